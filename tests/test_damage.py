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
from sessiontree.views.transcript import full_transcript
from tests.damage import BUILDERS, DAMAGE, LEFT, MAIN, MARKS

CASES = [pytest.param(dialect, kind, id=f"{dialect}-{kind}") for dialect in BUILDERS for kind in DAMAGE]


def damaged(tmp_path: Path, dialect: str, kind: str) -> Path:
    path = tmp_path / "s-1.jsonl"
    path.write_bytes(DAMAGE[kind].apply(BUILDERS[dialect]()))
    return path


def marks_of(session: sessiontree.Session) -> list[str]:
    return marks_in(session.context().messages)


def marks_in(messages: Iterable[Message]) -> list[str]:
    text = "\n".join(map(message_text, messages))
    return [mark for mark in MARKS if mark in text]


@pytest.mark.parametrize(("dialect", "kind"), CASES)
def test_the_dialect_of_a_damaged_session_is_still_known(tmp_path: Path, dialect: str, kind: str) -> None:
    assert sessiontree.open(damaged(tmp_path, dialect, kind)).dialect.name == dialect


@pytest.mark.parametrize(("dialect", "kind"), CASES)
def test_every_entry_still_on_disk_is_shown(tmp_path: Path, dialect: str, kind: str) -> None:
    path = damaged(tmp_path, dialect, kind)
    shown = "\n".join(full_transcript(sessiontree.open(path)))
    data = path.read_bytes()
    missing = [mark for mark in MARKS if mark.encode() in data and mark not in shown]
    assert missing == []


@pytest.mark.parametrize(("dialect", "kind"), CASES)
def test_a_recovered_reading_has_the_exact_path(tmp_path: Path, dialect: str, kind: str) -> None:
    path = damaged(tmp_path, dialect, kind)
    session = sessiontree.open(path, read_options=ReadOptions(recovered=True))
    expected = [MARKS[item] for item in MAIN if item not in DAMAGE[kind].costs]
    assert marks_of(session) == expected
    left = [MARKS[item] for item in LEFT]
    assert not set(left) & set(marks_of(session))


@pytest.mark.parametrize(("dialect", "kind"), CASES)
def test_doctor_has_a_finding_for_each_loss(tmp_path: Path, dialect: str, kind: str) -> None:
    findings = examine(sessiontree.open(damaged(tmp_path, dialect, kind)))
    serious = [
        finding.rule.id for finding in findings if finding.rule.id not in ("not-an-entry", "unanswered-tool-call")
    ]
    assert bool(serious) == DAMAGE[kind].is_found or kind == "missing result", serious
    if kind == "missing result":
        assert "unanswered-tool-call" in {finding.rule.id for finding in findings}


@pytest.mark.parametrize(("dialect", "kind"), CASES)
def test_after_repair_the_clients_own_rule_finds_the_complete_path(tmp_path: Path, dialect: str, kind: str) -> None:
    path = damaged(tmp_path, dialect, kind)
    session = sessiontree.open(path)
    carry_out(plan_repair(session), session)
    expected = [MARKS[item] for item in MAIN if item not in DAMAGE[kind].costs]
    repaired = sessiontree.open(path)
    # Not the context: Claude Code does not send a result whose call was never written.
    on_path = [message for entry in repaired.path() if isinstance(entry, MessageEntry) for message in entry.messages]
    assert marks_in(on_path) == expected
    once = path.read_bytes()
    again = sessiontree.open(path)
    carry_out(plan_repair(again), again)
    assert path.read_bytes() == once


def test_show_all_prints_what_is_on_disk_in_a_real_run(tmp_path: Path) -> None:
    path = damaged(tmp_path, "pi", "torn tail")
    command = [sys.executable, "-m", "sessiontree", "show", "--all", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert all(mark in done.stdout for mark in MARKS)
