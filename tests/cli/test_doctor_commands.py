"""`doctor` and `repair` as processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessiontree.cli import main
from tests.cli.conftest import Run
from tests.damage import BUILDERS, DAMAGE

CORPUS = Path(__file__).parents[1] / "corpus"


def damaged(tmp_path: Path, dialect: str, kind: str) -> Path:
    path = tmp_path / f"{dialect}.jsonl"
    path.write_bytes(DAMAGE[kind].apply(BUILDERS[dialect]()))
    return path


def test_a_healthy_session_is_reported_in_one_line(run: Run) -> None:
    ran = run("doctor", str(CORPUS / "pi-family" / "01_linear.jsonl"))
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.lines) == 1
    assert "no problems found" in ran.out


def test_findings_have_rule_count_position_cost_client_and_repair(run: Run, tmp_path: Path) -> None:
    path = damaged(tmp_path, "pi", "lost line")
    ran = run("doctor", str(path))
    assert ran.code == 3
    assert "✗ missing-parent 2 ×, first at line" in ran.out
    assert "unreachable" in ran.out
    assert "Repair links it to the best candidate." in ran.out
    (report,) = run("doctor", str(path), "--json").json["sessions"]
    (finding,) = report["findings"]
    assert set(finding) == {"rule", "severity", "count", "places", "meaning", "cost", "owner", "repair"}


def test_findings_are_wrapped_between_words_in_a_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = damaged(tmp_path, "claude", "stub glued to a record")
    whole = run("doctor", str(path)).out
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sessiontree.cli.output.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    main(["doctor", str(path)])
    wrapped = capsys.readouterr().out
    assert wrapped.split() == whole.split()
    assert wrapped.splitlines()[0] == whole.splitlines()[0]
    assert max(map(len, wrapped.splitlines()[1:])) <= 60 < max(map(len, whole.splitlines()[1:]))


def test_a_folder_is_checked_and_summarized(run: Run) -> None:
    ran = run("doctor", str(CORPUS), width=200)
    assert ran.code == 3
    assert "files: " in ran.out
    assert "  undecodable  " in ran.out
    reports = run("doctor", str(CORPUS), "--json").json["sessions"]
    assert {report["dialect"] for report in reports} >= {"pi", "omp", "claude", "neovate"}


def test_a_file_that_is_not_a_session_does_not_stop_the_check(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\x89PNG not a session")
    (tmp_path / "b.jsonl").write_bytes((CORPUS / "pi-family" / "01_linear.jsonl").read_bytes())
    ran = run("doctor", str(tmp_path))
    assert ran.code == 3
    assert "not a session in a known format" in ran.out
    assert "2 files: 1 without problems, 1 not a session" in ran.out
    assert run("doctor", str(tmp_path / "nowhere")).code == 1


def test_other_files_with_json_in_a_folder_are_not_sessions(run: Run, tmp_path: Path) -> None:
    (tmp_path / "history-log.jsonl").write_text('{"prompt": "hello", "cwd": "/work"}\n')
    (tmp_path / "records.jsonl").write_text('{"text": "' + "x" * 100_000 + '"}\n')
    (tmp_path / "b.jsonl").write_bytes((CORPUS / "pi-family" / "01_linear.jsonl").read_bytes())
    ran = run("doctor", str(tmp_path))
    assert (ran.code, ran.out.count("\n")) == (0, 1)
    assert "b.jsonl (pi" in ran.out
    named = run("doctor", str(tmp_path / "history-log.jsonl"))
    assert named.code == 3
    assert "not a session in a known format" in named.out


def test_a_folder_without_sessions_is_reported(run: Run, tmp_path: Path) -> None:
    ran = run("doctor", str(tmp_path))
    assert (ran.code, ran.out, ran.err) == (0, "", f"{tmp_path}: no sessions in this folder\n")


def test_repair_only_shows_its_plan_by_default(run: Run, tmp_path: Path) -> None:
    path = damaged(tmp_path, "claude", "stub glued to a record")
    before = path.read_bytes(), path.stat().st_mtime_ns
    ran = run("repair", str(path))
    assert ran.code == 0
    assert "glued-stub" in ran.out
    assert "nothing was written" in ran.err
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(tmp_path.glob("*.bak")) == []


def test_repair_in_place_keeps_a_backup_and_a_side_car_and_then_finds_nothing(run: Run, tmp_path: Path) -> None:
    path = damaged(tmp_path, "neovate", "torn tail")
    before = path.read_bytes()
    result = run("repair", str(path), "--in-place", "--json").json
    assert Path(result["backup"]).read_bytes() == before
    assert [json.loads(line)["rule"] for line in Path(result["sidecar"]).read_text().splitlines()] == ["torn-tail"]
    assert run("doctor", str(path)).code == 0
    again = run("repair", str(path), "--in-place")
    assert (again.code, again.out) == (0, "")
    assert "nothing to repair" in again.err


def test_context_reads_every_dialect_like_its_client_and_recovered_adds_the_rest(run: Run, tmp_path: Path) -> None:
    for dialect in BUILDERS:
        path = damaged(tmp_path, dialect, "lost line")
        owner = run("context", str(path), "--json").json
        more = run("context", str(path), "--json", "--recovered").json
        assert owner["dialect"] == dialect
        assert len(more["messages"]) == 17
        assert len(owner["messages"]) < 17
