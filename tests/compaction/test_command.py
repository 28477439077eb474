"""The command `sessiontree compact`."""

from __future__ import annotations

from pathlib import Path

import pytest

import sessiontree
from tests.cli.conftest import Run
from tests.cli.conftest import run as run  # the fixture
from tests.compaction.sessions import DIALECTS, file_of, sent, worked_session


@pytest.mark.parametrize("dialect", DIALECTS)
def test_compact_and_undo(run: Run, dialect: str, tmp_path: Path) -> None:
    path = file_of(worked_session(), dialect, tmp_path)
    before = sent(sessiontree.open(path))
    ran = run("compact", str(path), "--keep", "900", "--strategy", "segment")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.lines] == ["tokens", "summarized", "kept", "files", "summary", "entry"]
    assert "1 read, 1 modified" in ran.out
    assert "4 messages" in ran.out
    assert "--undo` reverts it" in ran.err
    assert len(sessiontree.open(path).context().messages) == 5
    assert run("compact", str(path), "--undo").code == 0
    assert sent(sessiontree.open(path)) == before
    again = run("compact", str(path), "--undo")
    assert (again.code, again.out) == (1, "")
    assert "no compaction to undo" in again.err


def test_a_dry_run_shows_the_summary_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    path = file_of(worked_session(), "native", tmp_path)
    before = path.read_bytes()
    ran = run("compact", str(path), "--dry-run", "--keep", "900")
    assert "## Goal\n- Let src/parser.py keep the last line." in ran.out
    assert "nothing was written" in ran.err
    shown = run("compact", str(path), "--dry-run", "--keep", "900", "--json").json
    assert path.read_bytes() == before
    assert shown["done"] is False
    assert shown["tokensBefore"] > shown["tokensAfter"] > 0
    assert shown["isSplitTurn"] is False
    assert shown["kept"] + shown["summarised"] + shown["turnPrefix"] == 17
    assert (shown["readFiles"], shown["modifiedFiles"]) == (["src/lines.py"], ["src/parser.py"])


def test_json_has_the_compaction_entry_and_the_number_of_later_messages(run: Run, tmp_path: Path) -> None:
    path = file_of(worked_session(), "native", tmp_path)
    done = run("compact", str(path), "--keep", "900", "--instructions", "make check-1", "--json").json
    session = sessiontree.open(path)
    assert (done["done"], done["entry"]) == (True, session.leaf)
    assert done["summary"] == session.fields(done["entry"])["summary"]
    assert done["piTokensBefore"] == session.fields(done["entry"])["tokensBefore"]
    run("append", str(path), "user", "on")
    undone = run("compact", str(path), "--undo", "--json").json
    assert (undone["undone"], undone["leftBehind"]) == (done["entry"], 1)


def agents_compaction(path: Path) -> str:
    """Append a compaction as Pi itself writes it; returns its id."""
    session = sessiontree.open(path)
    kept = session.path_ids()[-2]
    entry = session.append(
        {"type": "compaction", "summary": "Pi's own.", "firstKeptEntryId": kept, "tokensBefore": 99, "details": {}}
    )
    session.append("user", "and on")
    session.close()
    return entry.id


def test_a_compaction_of_the_agent_is_only_undone_if_it_is_named(run: Run, tmp_path: Path) -> None:
    path = file_of(worked_session(), "pi", tmp_path)
    before = sent(sessiontree.open(path))
    compaction = agents_compaction(path)
    data = path.read_bytes()
    refused = run("compact", str(path), "--undo")
    assert refused.code == 1
    assert f"--compaction {compaction}" in refused.err
    assert path.read_bytes() == data
    assert run("compact", str(path), "--undo", "--compaction", compaction).code == 0
    assert sent(sessiontree.open(path)) == before


def test_an_older_compaction_can_be_named(run: Run, tmp_path: Path) -> None:
    path = file_of(worked_session(), "pi", tmp_path)
    before = sent(sessiontree.open(path))
    first = run("compact", str(path), "--keep", "900", "--json").json["entry"]
    run("append", str(path), "user", "between")
    agents_compaction(path)
    undone = run("compact", str(path), "--undo", "--compaction", first, "--json").json
    assert (undone["undone"], undone["leftBehind"]) == (first, 2)
    assert sent(sessiontree.open(path)) == before
    wrong = run("compact", str(path), "--undo", "--compaction", sessiontree.open(path).path_ids()[0])
    assert "is not a compaction" in wrong.err


@pytest.mark.parametrize("dialect", DIALECTS)
def test_undo_shows_what_moves_and_how_to_go_back(run: Run, dialect: str, tmp_path: Path) -> None:
    path = file_of(worked_session(), dialect, tmp_path)
    run("compact", str(path), "--keep", "900")
    compacted, data = sessiontree.open(path), path.read_bytes()
    planned = run("compact", str(path), "--undo", "--dry-run")
    assert "the current entry would move from" in planned.err
    assert "nothing was written" in planned.err
    assert path.read_bytes() == data
    done = run("compact", str(path), "--undo")
    assert done.out == planned.out
    (back,) = [line for line in done.err.splitlines() if line.startswith("to go back: sessiontree ")]
    assert run(*back.removeprefix("to go back: sessiontree ").split()).code == 0
    assert sent(sessiontree.open(path)) == sent(compacted)


def test_compactions_of_qwen_code_sessions_are_undone(run: Run, tmp_path: Path) -> None:
    path = file_of(worked_session(), "qwen", tmp_path)
    before = sent(sessiontree.open(path))
    ids = []
    for _ in range(2):
        ids.append(run("compact", str(path), "--keep", "900", "--json").json["entry"])
        run("append", str(path), "user", "and on")
    undone = run("compact", str(path), "--undo", "--json").json
    assert (undone["undone"], undone["leftBehind"]) == (ids[1], 1)
    assert run("compact", str(path), "--undo", "--compaction", ids[0]).code == 0
    assert sent(sessiontree.open(path)) == before
    assert "no compaction to undo" in run("compact", str(path), "--undo").err


def test_an_agents_own_compaction_of_qwen_code_is_only_undone_if_it_is_named(run: Run, tmp_path: Path) -> None:
    path = file_of(worked_session(), "qwen", tmp_path)
    with sessiontree.open(path) as session:
        entry = session.append({"type": "compaction", "summary": "Qwen's own.", "tokensBefore": 99})
    assert f"--compaction {entry.id}" in run("compact", str(path), "--undo").err
    assert run("compact", str(path), "--undo", "--compaction", entry.id).code == 0


def test_a_compaction_of_a_session_without_branches_is_not_offered_to_be_undone(run: Run, tmp_path: Path) -> None:
    path = file_of(worked_session(), "codex", tmp_path)
    assert "--undo" not in run("compact", str(path), "--keep", "900").err
    for options in (["--undo"], ["--undo", "--dry-run"]):
        refused = run("compact", str(path), *options)
        assert refused.code == 1
        assert "no branches" in refused.err
        assert "sessiontree fork" in refused.err


def test_session_text_cannot_harm_the_terminal(run: Run, tmp_path: Path) -> None:
    session = worked_session()
    session.append("user", "You must \x1b[31mnever\x1b[0m do \u202e this")
    path = file_of(session, "native", tmp_path)
    ran = run("compact", str(path), "--dry-run", "--keep", "1")
    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert "never" in ran.out


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("--keep", "many"), 2, "not a number of tokens"),
        (("--strategy", "other"), 1, "recent, segment, replace"),
        (("--summarizer", "nobody"), 1, "no summarizer named 'nobody'"),
        (("--compaction", "abc"), 2, "--compaction needs --undo"),
        (("--window", "90"), 1, "not compacted"),
        (("--keep", "100000", "--strategy", "recent"), 1, "nothing to compact"),
    ],
)
def test_errors_are_reported_on_one_line(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, expected: str
) -> None:
    path = file_of(worked_session(), "native", tmp_path)
    before = path.read_bytes()
    ran = run("compact", str(path), *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert expected in ran.err
    assert ran.err.count("\n") == 1
    assert path.read_bytes() == before
