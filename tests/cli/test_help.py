"""The help: the grouped list of commands, the help of each command, and suggestions for unknown commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sessiontree.cli import main
from sessiontree.cli.commands import COMMANDS, GROUPS, SUMMARIES
from sessiontree.cli.parser import build_parsers, find_subcommands


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def show_help(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as exited:
        main([*arguments, "--help"])
    assert exited.value.code == 0
    return capsys.readouterr().out


def test_the_root_help_lists_each_command_once_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    paragraphs = {part.split("\n")[0]: part.split("\n")[1:] for part in show_help(capsys).split("\n\n")}
    for group, commands in GROUPS.items():
        rows = [line.split(maxsplit=1) for line in paragraphs[f"{group}:"]]
        assert rows == [[name, summary] for name, summary in commands.items()]
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))
    assert [*GROUPS] == ["Browse", "Resume and branch", "Find", "Share", "Organize", "Repair", "Agent", "Set up"]


def test_every_module_of_a_command_is_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    import sessiontree.cli

    folder = Path(sessiontree.cli.__file__).parent
    modules = {path.stem for path in folder.glob("*.py") if "\nEXAMPLES = " in path.read_text(encoding="utf-8")}
    assert modules | {"completion"} == {"continue_" if name == "continue" else name for name in COMMANDS}


def test_the_root_help_imports_no_command() -> None:
    program = (
        "import sys\nfrom sessiontree.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print([name for name in sys.modules if name.startswith(('sessiontree.session', 'sessiontree.lib'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def write_transcript(path: Path) -> None:
    """A transcript of Claude Code with one prompt."""
    line = {
        "type": "user",
        "uuid": "8b01d2e4-0000-4000-8000-000000000001",
        "parentUuid": None,
        "sessionId": "8b01d2e4-0000-4000-8000-000000000000",
        "timestamp": "2026-02-16T10:20:30.000Z",
        "cwd": "/projects/shop",
        "message": {"role": "user", "content": "hello"},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(line) + "\n")


def loaded_by(*arguments: str, home: Path) -> list[str]:
    """The modules that a command has loaded at its end."""
    program = (
        "import sys, json\nfrom sessiontree.cli import main\n"
        f"assert main({list(arguments)!r}) == 0\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    folders = {"HOME": "", "CLAUDE_CONFIG_DIR": ".claude", "SESSIONTREE_HOME": "ours", "SESSIONTREE_CACHE": "cache"}
    around = {**os.environ, **{name: str(home / folder) for name, folder in folders.items()}}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=around)
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    return loaded


def test_drawing_a_tree_loads_no_other_client_and_nothing_of_the_search(tmp_path: Path) -> None:
    write_transcript(tmp_path / "t.jsonl")
    loaded = loaded_by("tree", str(tmp_path / "t.jsonl"), home=tmp_path)
    assert "sessiontree.dialects.claude.dialect" in loaded
    others = ("codex", "gemini", "neovate", "opencode", "qwen")
    assert not [name for name in loaded if name.startswith(tuple(f"sessiontree.dialects.{other}" for other in others))]
    assert not [name for name in loaded if name.endswith(".texts") or name.startswith("sessiontree.search")]
    assert "sessiontree.library.last_session" not in loaded


@pytest.mark.parametrize("command", ["list", "stats"])
def test_sessions_that_did_not_change_are_shown_without_the_modules_that_read_them(
    tmp_path: Path, command: str
) -> None:
    write_transcript(
        tmp_path / ".claude" / "projects" / "-projects-shop" / "8b01d2e4-0000-4000-8000-000000000000.jsonl"
    )
    first = loaded_by(command, "--all", home=tmp_path)
    again = loaded_by(command, "--all", home=tmp_path)
    reading = ("sessiontree.library.summary_reader", "sessiontree.dialects.claude", "sessiontree.dialects.tool_table")
    assert "sessiontree.library.summary_reader" in first
    assert not [name for name in again if name.startswith((*reading, "sessiontree.repair"))]


def test_the_help_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in ((), *((name,) for name in COMMANDS)):
        prose = show_help(capsys, *arguments).split("examples:")[0]
        assert max(map(len, prose.splitlines())) <= 80, arguments


def test_the_help_command_prints_what_the_option_prints(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ((), ("tree",), ("continue",)):
        expected = show_help(capsys, *arguments)
        assert main(["help", *arguments]) == 0
        assert capsys.readouterr().out == expected


def test_the_help_command_has_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["help", "--json"])
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert {name: text for group in groups for name, text in group["commands"].items()} == SUMMARIES
    main(["help", "tree", "--json"])
    assert json.loads(capsys.readouterr().out)["summary"] == SUMMARIES["tree"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("ls", "list"), ("log", "show"), ("find", "search"), ("serch", "search"), ("Tree", "tree"), ("resum", "resume")],
)
def test_an_unknown_command_gets_a_suggestion(typed: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([typed], [typed, "--json"], ["help", typed]):
        assert main(arguments) == 2
        assert capsys.readouterr().err == f"sessiontree: unknown command '{typed}'; did you mean '{meant}'?\n"


def test_an_unknown_command_like_no_other_gets_a_pointer_to_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyzzy"]) == 2
    expected = "sessiontree: unknown command 'xyzzy'; `sessiontree help` lists all commands\n"
    assert capsys.readouterr().err == expected


def test_without_a_command_and_without_a_terminal_sessions_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    listed = capsys.readouterr().out
    assert main([]) == 0
    assert capsys.readouterr().out == listed


def test_each_command_describes_its_json(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [line for line in show_help(capsys, "tree").splitlines() if line.startswith("  --json ")]
    assert line.endswith("print one JSON object")
    (line,) = [line for line in show_help(capsys, "explore", "start").splitlines() if line.startswith("  --json ")]
    assert "each event" in line


def test_every_command_has_a_summary_examples_and_a_description(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        text = show_help(capsys, command)
        assert text.split("examples:")[1].count("sessiontree " + command) == 2, command
        assert "--json" in text
        assert SUMMARIES[command]
    assert "exit codes:" in show_help(capsys)


def test_every_argument_of_every_command_has_a_description() -> None:
    _, parsers = build_parsers(COMMANDS)
    leaves = [leaf for parser in parsers.values() for leaf in find_subcommands(parser).values() or [parser]]
    undescribed = [(leaf.prog, action.dest) for leaf in leaves for action in leaf._actions if not action.help]
    assert undescribed == []
