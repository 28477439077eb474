"""Hooks: see, cancel and supply summaries, and fail without harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.compaction import Cancel, Compacted, Hook, PendingSummary, SuppliedSummary, compact
from sessiontree.compaction.context_units import build_units
from sessiontree.core.entries import Compaction
from sessiontree.errors import CompactionError
from tests.compaction.sessions import context_texts, file_of, worked_session


class Recording(Hook):
    def __init__(self, verdict: Cancel | SuppliedSummary | None = None) -> None:
        self.verdict = verdict
        self.seen: list[PendingSummary] = []
        self.results: list[Any] = []

    def before(self, occasion: PendingSummary) -> Cancel | SuppliedSummary | None:
        self.seen.append(occasion)
        return self.verdict

    def after(self, done: Any) -> None:
        self.results.append(done)


class Failing(Hook):
    def before(self, occasion: PendingSummary) -> Cancel | SuppliedSummary | None:
        raise RuntimeError("no such thing")

    def after(self, done: Any) -> None:
        raise KeyError("after")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return file_of(worked_session(), "native", tmp_path)


def test_a_hook_sees_the_messages_before_and_the_entry_after(path: Path) -> None:
    hook = Recording()
    done = compact(sessiontree.open(path), keep=600, hooks=[hook], instructions="focus")
    (occasion,) = hook.seen
    assert occasion.kind == "compaction"
    assert list(occasion.messages) == list(done.plan.summarized)
    assert list(occasion.turn_prefix) == list(done.plan.turn_prefix)
    assert occasion.first_kept == done.plan.first_kept
    assert occasion.files.modified == ("src/parser.py",)
    assert occasion.instructions == "focus"
    (results,) = hook.results
    assert isinstance(results, Compacted)
    assert results.entry == done.entry


def test_a_hook_may_cancel_and_then_nothing_is_written_and_no_other_hook_is_called(path: Path) -> None:
    before = path.read_bytes()
    later = Recording()
    with pytest.raises(CompactionError, match="not now"):
        compact(sessiontree.open(path), keep=600, hooks=[Recording(Cancel("not now")), later])
    assert path.read_bytes() == before
    assert later.seen == []


def test_a_supplied_summary_is_recorded_as_such_and_its_files_are_not_inherited(path: Path) -> None:
    session = sessiontree.open(path)
    supplied = SuppliedSummary("my own words", {"readFiles": ["planted"], "mine": 1})
    done = compact(session, keep=600, hooks=[Recording(supplied)])
    assert isinstance(done.entry, Compaction)
    assert (done.entry.summary, done.entry.from_hook, done.entry.details) == ("my own words", True, supplied.details)
    assert done.summarizer == "hook"
    earlier = build_units(session, session.leaf).previous
    assert earlier is not None
    assert earlier.files.read == ()


def test_a_hook_may_replace_everything_with_its_summary(path: Path) -> None:
    compact(sessiontree.open(path), keep=600, hooks=[Recording(SuppliedSummary("all of it", keep_nothing=True))])
    assert context_texts(sessiontree.open(path)) == ["all of it"]


def test_a_failing_hook_is_reported_and_the_compaction_continues(path: Path) -> None:
    last = Recording()
    done = compact(sessiontree.open(path), keep=600, hooks=[Failing(), last])
    assert done.entry is not None
    assert last.results
    assert list(done.reports) == [
        "the hook Failing failed in before(): RuntimeError: no such thing",
        "the hook Failing failed in after(): KeyError: 'after'",
    ]


def test_an_empty_summary_from_a_hook_is_ignored(path: Path) -> None:
    done = compact(sessiontree.open(path), keep=600, hooks=[Recording(SuppliedSummary("  "))])
    assert not done.is_from_hook
    assert "empty summary" in done.reports[0]
