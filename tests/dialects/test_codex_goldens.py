"""Codex: what the real program 0.166.0 sent for each golden, and the dialect contract."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.dialects.codex import CODEX
from sessiontree.repair import examine
from sessiontree.sources.detect import detect
from sessiontree.testing import check_dialect
from tests.builders import THOROUGH
from tests.dialects.goldens import FOLDER, cases, copied, expectation, outline, sent_by_program, session_file

BETTER = {"D7-meta-line-deleted", "D13-legacy-two-records-fused"}
"""The program refuses the file, or loses records that can be read."""
SAME = [case for case in cases("codex") if case not in BETTER]
WHOLE = [case for case in SAME if not case.startswith("D")]


@pytest.mark.parametrize("case", SAME)
def test_the_context_is_what_codex_sent(case: str) -> None:
    assert outline(sessiontree.open(session_file("codex", case))) == sent_by_program("codex", case)


def test_two_records_on_one_line_are_both_read_where_codex_loses_both() -> None:
    session = sessiontree.open(session_file("codex", "D13-legacy-two-records-fused"))
    assert outline(session) == sent_by_program("codex", "10-legacy-mode")
    assert "fused-records" in {finding.rule.id for finding in examine(session)}


def test_a_file_without_its_header_is_read_where_codex_refuses_it() -> None:
    session = sessiontree.open(session_file("codex", "D7-meta-line-deleted"))
    texts = [found[2] for found in outline(session) if found[:2] == ("user", "text")]
    assert texts == ["Turn one", "Turn two, show b.txt [[TOOL:cat b.txt]]", "Turn three"]
    assert "no-header" in {finding.rule.id for finding in examine(session)}


@pytest.mark.parametrize("case", cases("codex"))
def test_a_golden_is_recognized_and_has_its_id(case: str) -> None:
    path = session_file("codex", case)
    assert detect(path.read_bytes()[: 64 * 1024], path.name) is CODEX
    if case not in BETTER:
        assert sessiontree.open(path).id == expectation("codex", case)["session_id"]


@pytest.mark.parametrize("case", WHOLE)
def test_doctor_finds_no_damage_in_a_healthy_rollout(case: str) -> None:
    findings = examine(sessiontree.open(session_file("codex", case)))
    assert [finding.rule.id for finding in findings if finding.severity != "note"] == []


def test_reading_changes_neither_bytes_nor_times_of_any_file() -> None:
    files = sorted((FOLDER / "codex").rglob("*"))
    before = [(path, os.stat(path).st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in files]
    for case in cases("codex"):
        with sessiontree.open(session_file("codex", case)) as session:
            session.context()
            list(session)
            examine(session)
    assert before == [(path, os.stat(path).st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in files]


def test_the_dialect_keeps_its_contract() -> None:
    wanted = ["01-plain", "05-compaction", "10-legacy-mode"]
    samples = [session_file("codex", case).read_bytes() for case in (WHOLE if THOROUGH else wanted)]
    check_dialect(CODEX, samples, cuts=40 if THOROUGH else 2)


def test_a_fork_is_read_with_the_part_of_its_origin_that_it_continues(tmp_path: Path) -> None:
    path = copied("codex", "06-fork", tmp_path / "sessions" / "2026" / "11" / "16")
    session = sessiontree.open(path)
    assert outline(session) == sent_by_program("codex", "06-fork")
    assert session.header.forked_from is not None
    assert session.header.forked_from.session == expectation("codex", "06-fork")["parent_session_id"]


def test_a_fork_whose_origin_is_archived_is_read_completely(tmp_path: Path) -> None:
    path = copied("codex", "06-fork", tmp_path / "sessions" / "2026" / "11" / "16")
    (origin,) = (other for other in path.parent.glob("*.jsonl") if other != path)
    (tmp_path / "archived_sessions").mkdir()
    origin.rename(tmp_path / "archived_sessions" / origin.name)
    assert outline(sessiontree.open(path)) == sent_by_program("codex", "06-fork")


def test_a_fork_without_its_origin_shows_its_own_part_and_reports_the_rest(tmp_path: Path) -> None:
    path = copied("codex", "06-fork", tmp_path / "sessions")
    (origin,) = (other for other in path.parent.glob("*.jsonl") if other != path)
    origin.unlink()
    session = sessiontree.open(path)
    assert [found[2] for found in outline(session)] == ["Only in the fork", "ANSWER: Only in the fork"]
    assert any("is missing" in fragment.raw.decode() for fragment in session.fragments)
