"""Triggers: when to compact, pruning before compaction, and one attempt after an overflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree import Session
from sessiontree.compaction import (
    Compacted,
    Pruned,
    Ratio,
    Window,
    after_overflow,
    compact,
    make_room,
    measure,
    prune,
    restore,
    should_compact,
)
from sessiontree.core.messages import Assistant
from sessiontree.errors import CompactionError
from sessiontree.settings import Prune
from tests.compaction.sessions import DIALECTS, context_texts, file_of, separated, worked_session
from tests.conversion.conversations import assistant, call, result, text


def counted(tokens: int, **more: Any) -> dict[str, Any]:
    """An answer for which the provider reports this many tokens."""
    usage = {"input": tokens, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": tokens}
    return {**assistant(text("answer")), "usage": usage, **more}


def busy_session(folder: Path, outputs: int = 10, words: int = 8000) -> Session:
    """A native session with large outputs in its older turns."""
    session = sessiontree.create(cwd=str(folder), path=folder / "busy.jsonl", appear="now")
    for number in range(outputs):
        session.append("user", f"turn {number}")
        session.append({**assistant(text("look"), call(f"c{number}", "bash", {"command": "cat"})), "usage": None})
        session.append(result(f"c{number}", "bash", f"[{number}]" + " out" * words))
        session.append({**assistant(text("seen")), "usage": None})
    return session


def test_the_providers_count_decides_only_until_the_next_compaction(tmp_path: Path) -> None:
    session = sessiontree.open(file_of(worked_session(), "native", tmp_path))
    session.append("user", "go")
    session.append(counted(190_000))
    assert measure(session).counted == 190_000
    assert should_compact(session, 200_000)
    assert not should_compact(session, 1_000_000)
    session.append("user", "more")
    compact(session, keep=2000)
    assert measure(session).counted == 0  # the answer is kept, but its usage no longer counts
    assert not should_compact(session, 200_000)
    session.append("user", "and on")
    session.append(counted(5_000))
    assert measure(session).counted == 5_000


@pytest.mark.parametrize("dialect", DIALECTS)
def test_kept_usage_does_not_trigger_in_any_dialect(dialect: str, tmp_path: Path) -> None:
    base = worked_session()
    base.append("user", "go")
    base.append(counted(190_000))
    session = sessiontree.open(file_of(base, dialect, tmp_path))
    assert should_compact(session, 200_000)
    compact(session, keep=700, strategy="segment")
    again = sessiontree.open(session.location)
    assert "answer" in context_texts(again)
    assert not should_compact(again, 200_000)


def test_pruning_old_outputs_frees_space_and_can_be_undone(tmp_path: Path) -> None:
    session = busy_session(tmp_path)
    before = list(session.context().messages)
    lines = Path(session.location).read_bytes()
    tokens = measure(session).tokens
    done = prune(session)
    assert len(done.entries) == 4  # two turns and the newest 40,000 tokens before them are protected
    texts = context_texts(sessiontree.open(session.location))
    assert [entry for entry in texts if "removed to save context" in entry] == texts[2:15:4]
    assert measure(session).tokens == pytest.approx(tokens - done.freed, rel=0.01)
    assert Path(session.location).read_bytes().startswith(lines)
    assert separated(session) == []
    assert prune(session).entries == ()
    assert len(restore(session)) == 4
    assert list(sessiontree.open(session.location).context().messages) == before
    assert restore(session) == ()


def test_pruning_that_would_free_too_little_does_nothing(tmp_path: Path) -> None:
    session = busy_session(tmp_path, outputs=8)
    lines = Path(session.location).read_bytes()
    assert prune(session) == Pruned((), 0)
    assert Path(session.location).read_bytes() == lines


@pytest.mark.parametrize("dialect", ["omp", "claude", "neovate"])
def test_sessions_of_clients_without_context_edits_are_not_pruned(dialect: str, tmp_path: Path) -> None:
    session = sessiontree.open(file_of(worked_session(), dialect, tmp_path))
    with pytest.raises(CompactionError, match="cannot prune sessions"):
        prune(session)


def test_make_room_uses_the_cheapest_step_that_suffices(tmp_path: Path) -> None:
    session = busy_session(tmp_path)
    tokens = measure(session).tokens
    assert make_room(session, 10 * tokens) is None
    assert isinstance(make_room(session, Window(tokens + 1000), policy=Ratio(0.9)), Pruned)
    assert make_room(session, Window(tokens + 1000), policy=Ratio(0.9)) is None
    assert isinstance(make_room(session, tokens // 3), Compacted)
    assert not should_compact(session, tokens // 3)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_after_an_overflow_the_failed_attempt_is_removed_and_a_second_overflow_gives_up(
    dialect: str, tmp_path: Path
) -> None:
    base = worked_session()
    base.append("user", "the long one")
    base.append({**assistant(text("")), "stopReason": "error", "errorMessage": "prompt is too long"})
    session = sessiontree.open(file_of(base, dialect, tmp_path))
    done = after_overflow(session, keep=300, strategy="segment")
    assert done.entry is not None
    found = sessiontree.open(session.location)
    last = found.context().messages[-1]
    assert not isinstance(last, Assistant)
    assert context_texts(found)[-1] == "the long one"
    with pytest.raises(CompactionError, match="still too long"):
        after_overflow(found)
    found.append(assistant(text("now it works")))
    found.append("user", "more " * 900)
    assert after_overflow(sessiontree.open(session.location), keep=10, strategy="segment").entry is not None


def test_an_overflow_with_nothing_to_compact_does_not_move_the_current_entry(tmp_path: Path) -> None:
    session = sessiontree.create(cwd=str(tmp_path), path=tmp_path / "s.jsonl", appear="now")
    session.append("user", "one")
    session.append({**assistant(text("")), "stopReason": "error"})
    before = list(session.context().messages)
    with pytest.raises(CompactionError, match="nothing to compact"):
        after_overflow(session)
    assert list(sessiontree.open(tmp_path / "s.jsonl").context().messages) == before


def test_settings_define_which_outputs_are_protected(tmp_path: Path) -> None:
    session = busy_session(tmp_path)
    usual = prune(session, dry_run=True)
    assert prune(session, dry_run=True, settings=Prune(protect_tokens=10_000_000)) == Pruned((), 0)
    assert set(usual.entries) < set(prune(session, dry_run=True, settings=Prune(protect_tokens=0)).entries)
