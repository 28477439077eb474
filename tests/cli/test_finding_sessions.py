"""SESSION on the command line: a path, or the id, first characters or title of any agent's session."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.builders import json_line
from tests.cli.conftest import Run
from tests.library.world import IDS, World

READING = [
    ("show",),
    ("tree",),
    ("context", "--json"),
    ("info",),
    ("export",),
    ("doctor",),
    ("repair",),
    ("migrate",),
    ("label",),
    ("tag",),
    ("shrink",),
]


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    return World(tmp_path).claude(IDS[0], "/work", ["mend the parser"])


@pytest.mark.parametrize("named", [IDS[0], IDS[0][:8], "mend the parser", "the pars"])
def test_a_session_of_another_agent_is_found_by_id_prefix_and_title(named: str, run: Run, claude: Path) -> None:
    assert run("info", named, "--json").json["path"] == str(claude)


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_a_session_of_another_agent_is_found_by_every_command(command: tuple[str, ...], run: Run, claude: Path) -> None:
    before = claude.read_bytes()
    ran = run(*command, IDS[0][:8])
    assert (ran.code, ran.err.partition("sessiontree:")[1]) == (0, ""), ran.err
    assert ran.out == run(*command, str(claude)).out
    assert claude.read_bytes() == before


def test_lines_beside_the_conversation_do_not_count_as_branches(run: Run, claude: Path) -> None:
    *_, last = (json.loads(line) for line in claude.read_bytes().splitlines())
    progress = {"type": "progress", "data": {"type": "hook_progress"}, "timestamp": last["timestamp"]}
    for number in range(2):
        with claude.open("ab") as file:
            file.write(json_line({**progress, "uuid": f"progress-{number}", "parentUuid": last["uuid"]}))
    assert run("info", IDS[0], "--json").json["branches"] == 1
    assert "1 branch)" in run("open", IDS[0]).out


def test_commands_that_change_a_session_find_it_too(run: Run, claude: Path) -> None:
    entry = run("append", "mend the parser", "user", "go on").out.strip()
    assert entry in run("show", IDS[0][:8], "--json").out
    assert run("branch", IDS[0], f"user-0-{IDS[0][:8]}").code == 0
    assert os.path.dirname(run("fork", "mend the", "--no-before").out.strip()) == str(claude.parent)
    assert IDS[0] in run("resume", IDS[0][:8], "--print").out
    assert run("convert", IDS[0][:8], "--to", "pi", "--json").json["session"] == IDS[0]


@pytest.mark.parametrize("command", [("continue",), ("-c",), ("open", "mend the"), ("fork", "mend the", "--no-before")])
def test_commands_that_find_a_session_end_with_the_command_to_go_on(
    command: tuple[str, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    World(tmp_path).claude(IDS[0], str(tmp_path), ["mend the parser"])
    monkeypatch.chdir(tmp_path)
    ran = run(*command)
    in_agent, here = ran.err.splitlines()[-2:]
    resumed = run(*in_agent.removeprefix("to continue in its agent: sessiontree ").split(), "--print")
    assert resumed.out.startswith(f"cd {tmp_path} && claude --resume ")
    named = here.removeprefix("to continue here: sessiontree chat --session ")
    assert run("info", named, "--json").json["id"] in ran.out + ran.err
    assert "to go on" not in run(*command, "--json").err


def test_the_command_to_go_on_with_a_native_session_starts_in_its_folder(run: Run, session: str) -> None:
    id = run("info", session, "--json").json["id"]
    assert run("open", session).err.splitlines()[-1] == f"to continue here: cd / && sessiontree chat --session {id}"


def test_an_id_of_a_native_session_is_found_without_reading_other_agents_sessions(
    run: Run, session: str, claude: Path, tmp_path: Path
) -> None:
    id = run("info", session, "--json").json["id"]
    assert run("show", id).out == run("show", session).out
    assert run("show", id[:13]).code == 0
    assert not (tmp_path / "cache").exists()
    assert run("show", "解析器").out == run("show", session).out
    assert (tmp_path / "cache").exists()


def test_several_matches_are_listed_and_no_match_is_an_error_with_the_next_step(run: Run, tmp_path: Path) -> None:
    world = World(tmp_path)
    paths = [world.claude(IDS[0], "/work", ["the same \x1b[31m"]), world.pi(IDS[1], "/work", ["the same thing"])]
    for command in READING[:4]:
        ran = run(*command, "the same")
        assert (ran.code, ran.out) == (2, "")
        assert all(str(path) in ran.err for path in paths)
        assert "\x1b" not in ran.err
        ran = run(*command, "nothing like it")
        assert (ran.code, ran.out) == (1, "")
        assert "(searched 2 sessions; use a path, an id prefix or a title)" in ran.err
    assert run("doctor", str(tmp_path / "gone.jsonl")).err.endswith("gone.jsonl: no such file or folder\n")
    assert run("doctor", "nothing like it").code == 1


def test_a_dialect_given_as_an_option_is_used(run: Run, claude: Path) -> None:
    assert run("info", IDS[0], "--json").json["dialect"] == "claude"
    assert run("info", IDS[0], "--dialect", "pi", "--json").json["dialect"] == "pi"
