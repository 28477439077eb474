"""Mistakes and surroundings that new users meet: odd variables, empty files, folders, missing folders, file modes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.messages import ToolResult
from tests.cli.conftest import Run


@pytest.mark.parametrize("columns", ["abc", "", "-5", "0", "²"])
def test_an_odd_width_in_the_environment_is_ignored(session: str, tmp_path: Path, columns: str) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "SESSIONTREE_HOME": str(tmp_path / "home"), "COLUMNS": columns}
    command = [sys.executable, "-m", "sessiontree", "list", "--all"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "解析器" in done.stdout


@pytest.mark.parametrize("how", [("--install",), ("--out", "copy.jsonl"), ()])
def test_a_session_without_messages_is_not_converted(run: Run, tmp_path: Path, how: tuple[str, ...]) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    ran = run("convert", str(empty), "--to", "claude", *how)
    assert (ran.code, ran.out) == (1, "")
    assert "nothing to convert: the session has no messages" in ran.err
    assert list(tmp_path.rglob("*.jsonl")) == [empty]
    assert "nothing to convert" in run("resume", str(empty), "--in", "claude", "--print").err


@pytest.mark.parametrize(
    ("command", "empty"),
    [
        (("branch", "SESSION", ""), "ENTRY"),
        (("show", "SESSION", "--leaf", ""), "--leaf"),
        (("context", "SESSION", "--leaf", ""), "--leaf"),
        (("tree", "SESSION", "--around="), "--around"),
        (("fork", "SESSION", "--at", ""), "--at"),
        (("pick", "SESSION", "which?", ""), "ENTRY"),
        (("open", ""), "SESSION"),
        (("backup", ""), "DIR"),
        (("sync", ""), "DIR"),
        (("push", ""), "DIR|ADDRESS"),
        (("new", "--cwd", ""), "--cwd"),
        (("mv", "--project", "", "/new"), "--project"),
        (("export", "SESSION", "--out", ""), "--out"),
        (("list", "--since", ""), "--since"),
        (("search", "flag", "--project", ""), "--project"),
        (("explore", "keep", "SESSION", ""), "LANE"),
    ],
)
def test_an_empty_value_is_refused_and_nothing_is_written(
    run: Run, session: str, tmp_path: Path, command: tuple[str, ...], empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where an empty folder would be
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ran = run(*(session if argument == "SESSION" else argument for argument in command))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"sessiontree: {empty}: the value is empty")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_free_text_may_be_empty(run: Run, session: str) -> None:
    assert run("rename", session, "").code == 0
    assert run("info", session, "--json").json["name"] is None
    assert run("search", "", "--agent", "native").code == 0


def test_an_empty_command_is_unknown(run: Run) -> None:
    ran = run("")
    assert (ran.code, ran.out, ran.err) == (
        2,
        "",
        "sessiontree: unknown command ''; `sessiontree help` lists all commands\n",
    )


@pytest.mark.parametrize("option", ["--verison", "--json", "-x"])
def test_an_unknown_option_before_the_command_is_named(run: Run, option: str) -> None:
    ran = run(option, "list")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"sessiontree: unknown option '{option}'; the options of a command come after its name "
        "(see `sessiontree --help`)\n"
    )


@pytest.mark.parametrize("port", ["-1", "65536", "99999"])
def test_a_port_outside_of_the_range_is_refused(run: Run, port: str) -> None:
    ran = run("serve", "--port", port)
    assert (ran.code, ran.out, ran.err) == (2, "", f"sessiontree: --port {port}: expected 0 to 65535\n")


def test_the_path_of_a_folder_is_not_a_session(run: Run, tmp_path: Path) -> None:
    ran = run("show", str(tmp_path))
    assert (ran.code, ran.out) == (1, "")
    assert f"{tmp_path}: a folder, not a session" in ran.err


@pytest.mark.parametrize("command", ["show", "info", "open", "tag"])
def test_the_name_of_a_folder_is_not_taken_for_a_title(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with sessiontree.create(tmp_path, home=tmp_path / "home") as session:
        session.append("user", "Clean up src and more.")
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    for folder in ("src", "."):
        ran = run(command, folder)
        assert (ran.code, ran.out) == (1, "")
        assert f"{folder}: a folder, not a session" in ran.err
    assert run(command, "up src and").code == 0


def test_the_command_for_the_sessions_of_a_folder_can_be_copied(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rate limits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run("show", "rate limits").err.endswith("sessiontree list --project 'rate limits'\n")


def test_an_export_into_a_missing_folder_is_refused(run: Run, session: str, tmp_path: Path) -> None:
    out = tmp_path / "typo" / "page.html"
    ran = run("export", session, "--out", str(out))
    assert (ran.code, ran.out) == (1, "")
    assert f"{out.parent}: no such folder" in ran.err
    assert not out.parent.exists()


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_repair_keeps_the_mode_of_the_file(run: Run, session: str, mode: int) -> None:
    path = Path(session)
    path.write_bytes(path.read_bytes() + b'{"type": "mess')
    path.chmod(mode)
    assert run("repair", session, "--in-place").code == 0
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_the_demonstration_works_in_the_users_folder_and_leaves_nothing_behind(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, temporary = tmp_path / "project", tmp_path / "tmp"
    project.mkdir()
    temporary.mkdir()
    (project / "README.md").write_text("a project about otters")
    (project / "words.py").write_text("count = len\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("TMPDIR", str(temporary))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in project.iterdir()}
    ran = run("chat", "-p", "hello", "--model", "demo", "--approval", "yolo", "--output", "stream-json")
    assert ran.code == 0, ran.err
    assert "a project about otters" in ran.out
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in project.iterdir()} == before
    assert list(temporary.iterdir()) == []
    assert run("list", "--all", "--json").json["sessions"] == []


@pytest.mark.parametrize("arguments", [("-c", "--model", "demo"), ()])
def test_a_new_chat_with_the_demonstration_is_not_saved_however_it_was_chosen(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    if not arguments:
        monkeypatch.setenv("SESSIONTREE_MODEL", "demo")
    assert run("chat", "-p", "hello", *arguments).code == 0
    assert run("list", "--all", "--json").json["sessions"] == []


@pytest.mark.parametrize("command", ["list", "stats"])
def test_an_unknown_agent_is_refused_with_the_known_ones(run: Run, session: str, command: str) -> None:
    ran = run(command, "--all", "--agent", "cladue")
    assert (ran.code, ran.out) == (2, "")
    assert "unknown agent 'cladue'; known: claude" in ran.err
    assert run(command, "--all", "--agent", "Native", "--json").code == 0


def test_an_unknown_option_names_the_help_of_its_command(run: Run) -> None:
    close = "unknown option '--older'; did you mean '--older-than'? (see `sessiontree clean --help`)"
    assert close in run("clean", "--older", "5d").err
    assert "unrecognized arguments: --oops (see `sessiontree search --help`)" in run("search", "x", "--oops").err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("list", "--limt=3"), "unknown option '--limt=3'; did you mean '--limit'?"),
        (("convert", "S", "--to", "pi", "--branch", "al"), "--branch: unknown value 'al'; did you mean 'all'?"),
        (("convert", "S", "--to", "pi", "--branch", "x"), "--branch: unknown value 'x'; choose from active, all"),
        (("store", "upgrad"), "ACTION: unknown value 'upgrad'; did you mean 'upgrade'?"),
        (("list", "--limit", "many"), "--limit: 'many' is not a whole number"),
        (("store", "vacuum", "--days", "many"), "--days: 'many' is not a number"),
    ],
)
def test_a_misspelled_option_or_value_is_named_with_a_suggestion(
    run: Run, command: tuple[str, ...], message: str
) -> None:
    ran = run(*command)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"sessiontree: {message} (see `sessiontree {command[0]} --help`)\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "nothing to append: stdin is empty; pass ROLE and TEXT, or entries as JSON on stdin"),
        ("hello", "stdin line 1: expected a JSON object, got hello"),
        ('{"type":"custom"}\n\nx', "stdin line 2: expected a JSON object, got an empty line"),
    ],
)
def test_input_that_is_not_an_entry_is_described(run: Run, session: str, data: str, message: str) -> None:
    ran = run("append", session, stdin=data)
    assert (ran.code, ran.out, ran.err) == (2, "", f"sessiontree: {message}\n")


def test_a_result_without_an_id_answers_the_only_open_call(run: Run, session: str) -> None:
    form = 'pass JSON on stdin: {"role":"toolResult","toolCallId":ID,"toolName":NAME,"content":TEXT}'
    ran = run("append", session, "toolResult", "done")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"sessiontree: which call has this result? no call is open; {form}\n"
    calls = [{"type": "toolCall", "id": id, "name": "ls", "arguments": {}} for id in ("one", "two")]
    assert run("append", session, stdin=json.dumps({"role": "assistant", "content": calls})).code == 0
    ran = run("append", session, "toolResult", "done")
    assert (ran.code, "2 calls are open (one, two)" in ran.err) == (2, True)
    given = {"role": "toolResult", "toolCallId": "one", "toolName": "ls", "content": "first"}
    assert run("append", session, stdin=json.dumps(given)).code == 0
    assert run("append", session, "toolResult", "second").code == 0
    with sessiontree.open(session) as opened:
        result = opened.context().messages[-1]
    assert isinstance(result, ToolResult)
    assert (result.tool_call_id, result.tool_name, result.text) == ("two", "ls", "second")


def test_a_session_without_requests_has_no_cost(run: Run, tmp_path: Path) -> None:
    with sessiontree.create(tmp_path, home=tmp_path / "home") as session:
        session.append("user", "hello")
    assert "cost" not in run("info", session.location).out


def test_an_impossible_width_is_limited(run: Run, session: str) -> None:
    assert max(map(len, run("tree", session, width=99_999_999_999_999).lines)) < 20_000


def test_info_shows_a_session_whose_tags_cannot_be_read(run: Run, session: str, tmp_path: Path) -> None:
    (tmp_path / "home" / "marks.json").write_text("{bad")
    ran = run("info", session)
    assert (ran.code, "解析器" in ran.out) == (0, True)
    assert "tags are not shown" in ran.err


def test_pulling_from_a_missing_folder_is_an_error(run: Run, tmp_path: Path) -> None:
    ran = run("pull", str(tmp_path / "typo"))
    assert (ran.code, ran.out) == (1, "")
    assert "typo: no such folder; name the home to copy from" in ran.err
