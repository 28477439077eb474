"""The last session of a terminal, with real terminals that run several commands."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.library.world import IDS, World, append, claude_lines, repository


class Terminal:
    """A terminal that stays open between commands."""

    def __init__(self, world: World, folder: Path) -> None:
        self._master, self._slave = pty.openpty()
        self._world, self._folder = world, folder

    def run(self, *arguments: str, code: int = 0, **more: str) -> str:
        """Captures stdout as `$(...)` does; stderr goes to the terminal."""
        process = subprocess.Popen(
            [sys.executable, "-m", "sessiontree", *arguments],
            stdin=self._slave,
            stdout=subprocess.PIPE,
            stderr=self._slave,
            cwd=self._folder,
            env={"LANG": "C.UTF-8", "TERM": "xterm", **self._world.environment, **more},
        )
        out, _ = process.communicate(timeout=60)
        assert process.returncode == code, f"{arguments}: {self._shown()}"
        return out.decode().strip()

    def _shown(self) -> str:
        ready, _, _ = select.select([self._master], [], [], 0)
        return os.read(self._master, 65536).decode() if ready else ""

    def close(self) -> None:
        os.close(self._slave)
        os.close(self._master)


Open = Callable[[], Terminal]


@pytest.fixture
def here(world: World) -> Path:
    folder = world.folder / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def terminal(world: World, here: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def open_one() -> Terminal:
        opened.append(Terminal(world, here))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def test_a_terminal_continues_its_last_session_and_others_the_newest(terminal: Open, world: World, here: Path) -> None:
    one, other = terminal(), terminal()
    older = one.run("new")
    one.run("append", older, "user", "the older one")
    newer = other.run("new")
    other.run("append", newer, "user", "the newer one")
    assert one.run("continue", "--print-path") == older
    assert other.run("continue", "--print-path") == newer
    assert terminal().run("continue", "--print-path") == newer
    assert {path.name.startswith("pts-") for path in (world.home / "st" / "terminal-sessions").iterdir()} == {True}


def test_a_new_session_is_the_last_one_of_its_terminal(terminal: Open) -> None:
    one = terminal()
    first, second = one.run("new"), one.run("new")
    one.run("append", first, "user", "said something")
    assert one.run("continue", "--print-path") == first
    third = one.run("new")
    assert one.run("continue", "--print-path") == third != second


def test_branch_and_fork_set_the_last_session_and_reading_does_not(terminal: Open, world: World, here: Path) -> None:
    one = terminal()
    foreign = world.claude(IDS[0], here, ["mend the parser", "and the lexer"], minute=90)
    path = one.run("new")
    entry = one.run("append", path, "user", "hello")
    for reading in (
        ("show", str(foreign)),
        ("tree", IDS[0]),
        ("list",),
        ("info", IDS[0]),
        ("context", IDS[0]),
        ("label", str(foreign)),
    ):
        one.run(*reading)
        assert one.run("continue", "--print-path") == path, reading
    one.run("branch", IDS[0], f"user-0-{IDS[0][:8]}")
    assert one.run("continue", "--print-path") == str(foreign)
    one.run("branch", path, entry)
    assert one.run("continue", "--print-path") == path
    forked = one.run("fork", IDS[0], "--no-before")
    assert one.run("continue", "--print-path") == forked


def test_a_resumed_session_is_the_last_one_once_its_agent_starts(terminal: Open, world: World, here: Path) -> None:
    one = terminal()
    foreign = world.claude(IDS[0], here, ["mend the parser"])
    path = one.run("new")
    one.run("resume", IDS[0], code=1, PATH="/nowhere")
    assert one.run("continue", "--print-path") == path, "its agent did not start"
    agent = world.folder / "bin" / "claude"
    agent.parent.mkdir()
    agent.write_text("#!/bin/sh\necho went on with $*\n")
    agent.chmod(0o755)
    assert IDS[0] in one.run("resume", IDS[0], PATH=f"{agent.parent}:{os.environ['PATH']}")
    assert one.run("continue", "--print-path") == str(foreign)


def test_a_session_of_another_agent_is_appended_to_and_continued(terminal: Open, world: World, here: Path) -> None:
    one = terminal()
    foreign = world.claude(IDS[0], here, ["mend the parser"])
    world.claude(IDS[1], here, ["something newer"], minute=200)
    one.run("append", "mend the parser", "user", "go on")
    assert one.run("continue", "--print-path") == str(foreign)
    append(foreign, claude_lines(IDS[0], str(here), minute=30)[:1])
    assert one.run("continue", "--print-path") == str(foreign)


def test_commands_work_if_the_last_session_cannot_be_recorded(terminal: Open, world: World) -> None:
    one = terminal()
    path = one.run("new")
    folder = world.home / "st" / "terminal-sessions"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.write_text("in the way")
    assert one.run("append", path, "user", "hello")


def test_git_runs_only_for_the_first_of_many_appends(terminal: Open, world: World, here: Path) -> None:
    asked = world.folder / "asked"
    wrapper = world.folder / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho x >> "{asked}"\nexit 1\n')
    wrapper.chmod(0o755)
    around = {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    repo = repository(world.folder / "repo")
    (repo / "below").mkdir()
    one = terminal()
    for folder in (repo, repo / "below"):
        path = one.run("new", "--cwd", str(folder), **around)
        for number in range(3):
            one.run("append", path, "user", f"prompt {number}", **around)
    assert asked.read_text() == "x\n" * 2  # for its settings, and for the repository
