"""The damage table: for every dialect and kind of damage, all remaining entries are shown and the path is exact."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import Message, message_text
from sessiontree.dialects.contract import ReadOptions
from sessiontree.repair import carry_out, examine, plan_repair
from sessiontree.stores.contract import SessionStore
from sessiontree.views.transcript import full_transcript
from tests.damage import BUILDERS, DAMAGE, LEFT, MAIN, MARKS
from tests.stores import FILES_AND_POSTGRESQL, new_store, open_stored, stored_bytes

CASES = pytest.mark.parametrize(
    ("dialect", "kind"),
    [pytest.param(dialect, kind, id=f"{dialect}-{kind}") for dialect in BUILDERS for kind in DAMAGE],
)


def damaged(dialect: str, kind: str) -> SessionStore:
    return new_store(DAMAGE[kind].apply(BUILDERS[dialect]()), "s-1.jsonl")


def marks_of(session: sessiontree.Session) -> list[str]:
    return marks_in(session.context().messages)


def marks_in(messages: Iterable[Message]) -> list[str]:
    text = "\n".join(map(message_text, messages))
    return [mark for mark in MARKS if mark in text]


@FILES_AND_POSTGRESQL
@CASES
@pytest.mark.usefixtures("store_kind")
def test_the_dialect_of_a_damaged_session_is_still_known(dialect: str, kind: str) -> None:
    assert open_stored(damaged(dialect, kind)).dialect.name == dialect


@FILES_AND_POSTGRESQL
@CASES
@pytest.mark.usefixtures("store_kind")
def test_every_entry_still_on_disk_is_shown(dialect: str, kind: str) -> None:
    store = damaged(dialect, kind)
    shown = "\n".join(full_transcript(open_stored(store)))
    data = stored_bytes(store)
    missing = [mark for mark in MARKS if mark.encode() in data and mark not in shown]
    assert missing == []


@FILES_AND_POSTGRESQL
@CASES
@pytest.mark.usefixtures("store_kind")
def test_a_recovered_reading_has_the_exact_path(dialect: str, kind: str) -> None:
    store = damaged(dialect, kind)
    session = open_stored(store, read_options=ReadOptions(recovered=True))
    expected = [MARKS[item] for item in MAIN if item not in DAMAGE[kind].costs]
    assert marks_of(session) == expected
    left = [MARKS[item] for item in LEFT]
    assert not set(left) & set(marks_of(session))


@FILES_AND_POSTGRESQL
@CASES
@pytest.mark.usefixtures("store_kind")
def test_doctor_has_a_finding_for_each_loss(dialect: str, kind: str) -> None:
    findings = examine(open_stored(damaged(dialect, kind)))
    serious = [
        finding.rule.id for finding in findings if finding.rule.id not in ("not-an-entry", "unanswered-tool-call")
    ]
    assert bool(serious) == DAMAGE[kind].is_found or kind == "missing result", serious
    if kind == "missing result":
        assert "unanswered-tool-call" in {finding.rule.id for finding in findings}


@FILES_AND_POSTGRESQL
@CASES
@pytest.mark.usefixtures("store_kind")
def test_after_repair_the_clients_own_rule_finds_the_complete_path(dialect: str, kind: str) -> None:
    store = damaged(dialect, kind)
    session = open_stored(store)
    carry_out(plan_repair(session), session)
    expected = [MARKS[item] for item in MAIN if item not in DAMAGE[kind].costs]
    repaired = open_stored(store)
    # Not the context: Claude Code does not send a result whose call was never written.
    on_path = [message for entry in repaired.path() if isinstance(entry, MessageEntry) for message in entry.messages]
    assert marks_in(on_path) == expected
    once = stored_bytes(store)
    again = open_stored(store)
    carry_out(plan_repair(again), again)
    assert stored_bytes(store) == once


def test_show_all_prints_what_is_on_disk_in_a_real_run(tmp_path: Path) -> None:
    path = tmp_path / "s-1.jsonl"
    path.write_bytes(DAMAGE["torn tail"].apply(BUILDERS["pi"]()))
    command = [sys.executable, "-m", "sessiontree", "show", "--all", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert all(mark in done.stdout for mark in MARKS)
