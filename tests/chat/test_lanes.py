"""The live view of lanes: plain lines without a terminal, a table that is redrawn on one."""

from __future__ import annotations

import fcntl
import itertools
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from sessiontree.explore.state import find_exploration
from sessiontree.views.text import columns
from tests.agent.builders import pid_in
from tests.chat.terminals import Terminal, call, scripted, turn
from tests.explore.programs import Repository
from tests.explore.repos import git, user_filter

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_each_call_of_an_answer_is_shown_by_its_own_name(place: Repository) -> None:
    both = turn(
        "Both.",
        call("write", path="w.txt", content="one\n"),
        call("edit", path="w.txt", old_text="one", new_text="two"),
        when="go",
    )
    state = place.explore("go", "--model", scripted(place, both, turn("Done.", repeat=True))).stderr
    assert re.findall(r"^lane 1: (\w+) \{", state, re.MULTILINE) == ["write", "edit"]


def test_a_fork_that_is_not_created_is_not_announced(place: Repository) -> None:
    model = scripted(place, turn("Done.", repeat=True))
    state = place.explore("go", "--model", model, "--fork-on", "false", "--max-lanes", "1").stderr
    wish, refusal = [line for line in state.splitlines() if line[:1] in "⑂✗"]
    assert wish.startswith("⑂ lane 1: rule check requests a fork: ")
    assert refusal.startswith("✗ no lane was created for lane 1 by the rule check: ")
    assert "lane 2" not in state


def test_a_fork_that_is_created_is_shown_with_its_lane(place: Repository) -> None:
    model = scripted(place, turn("Done.", repeat=True))
    state = place.explore("go", "--model", model, "--fork-on", "false", "--max-depth", "1").stderr
    assert state.index("⑂ lane 1: rule check requests a fork") < state.index("lane 2: lane-2 ⑂1 · ")


@pytest.mark.parametrize("width", [40, 80])
def test_the_table_is_redrawn_in_place_and_no_line_is_too_wide(place: Repository, width: int) -> None:
    slow = [
        turn("Writing.", call("write", path="w.txt", content="一\n"), when="go"),
        turn(
            "解析器は一度に一ブロックずつ読みます。구문 분석기가 빨라졌습니다。",
            repeat=True,
            first_delay=0.6,
            delay=0.05,
        ),
    ]
    models = [scripted(place, *slow, name=f"a-script-with-a-long-name-for-lane-{number}") for number in (1, 2)]
    arguments = [part for model in models for part in ("--model", model)]
    with place.terminal("go", *arguments, more={"COLUMNS": str(width), "LINES": "30"}) as terminal:
        terminal.wait_for("keep N")
        drawn = terminal.raw.partition("keep N")[0]
        terminal.answer("show 1")
        terminal.wait_for("구문 분석기가 빨라졌습니다")
        terminal.wait_for("keep N")
        terminal.answer("")
        terminal.end()
    tables = drawn.split("Ctrl-C: stop a lane")[:-1]
    assert len(tables) > 3
    for table in tables:
        lines = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]|\r", "", line) for line in table.split("\n")]
        assert all(columns(line) < width for line in lines)
        rows = [line for line in lines if re.match(r"[12] ", line)]
        assert len(rows) == 2
        assert all(re.search(r"waiting|running|done", row) for row in rows)
    assert any("write w.txt" in table for table in tables)
    assert len({table.count("\n") for table in tables[1:]}) == 1, "as many rows each time"


def test_a_table_that_a_narrower_terminal_rewrapped_is_erased_completely(place: Repository) -> None:
    writes = call("write", path="a-long-name-that-fills-its-row-of-the-table-to-the-end-" * 3, content="x")
    slow = [turn("Writing.", writes, when="go"), turn("Slowly.", repeat=True, first_delay=60.0)]
    narrow = 60
    with place.terminal("go", "--n", "3", "--model", scripted(place, *slow)) as terminal:
        terminal.wait_for("write a-long")
        terminal.wait_for("stop all")
        fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, narrow, 0, 0))
        while not (narrowed := narrowed_drawings(terminal.raw, narrow)):
            terminal.wait_for("stop all")
        terminal.kill()
    before, after = narrowed[0]
    folded = sum(-(-columns(line) // narrow) for line in before)
    assert after == folded > len(before)


def test_the_table_fits_the_terminal_even_if_stdout_is_a_file() -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 44, 0, 0))
    code = "import sys; from sessiontree.chat.terminal import Screen; s = Screen(sys.stderr); print(s.width, s.height)"
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave, env=environment, check=True
    )
    os.close(master)
    os.close(slave)
    assert done.stdout.split() == [b"44", b"50"]


def drawings(raw: str) -> list[tuple[int, list[str]]]:
    """For each drawn table: how many rows the cursor moved up first, and its lines."""
    found = re.findall(r"(?:\x1b\[(\d+)A)?((?:\x1b\[2K[^\n]*\n)+)\x1b\[J", raw)
    return [(int(up or 0), re.sub(r"\x1b\[2K|\r", "", lines).splitlines()) for up, lines in found]


def narrowed_drawings(raw: str, narrow: int) -> list[tuple[list[str], int]]:
    """The wide tables that were followed by a narrow one, and how many rows the cursor moved up in between."""
    return [
        (lines, up)
        for (_, lines), (up, anew) in itertools.pairwise(drawings(raw))
        if widest(anew) < narrow <= widest(lines)
    ]


def widest(lines: list[str]) -> int:
    return max(map(columns, lines))


@pytest.mark.parametrize("command", ["chat", "explore"])
def test_slow_creation_of_worktrees_is_reported_and_ctrl_c_stops_it(place: Repository, command: str) -> None:
    (place.project / ".gitattributes").write_text("*.slow filter=slow\n")
    (place.project / "x.slow").write_text("x\n")
    place.environment["GIT_CONFIG_GLOBAL"] = user_filter(
        place.home / "git-settings", "slow", f"echo $$ > {place.home}/begun; sleep 3; cat"
    )
    model = scripted(place, turn("Done.", repeat=True))
    if command == "chat":
        terminal = Terminal(place, ["--session", place.location, "--model", model])
        terminal.enter('/explore 3 "go"')
    else:
        terminal = place.terminal("go", "--n", "3", "--model", model)
    with terminal:
        terminal.wait_for("creating worktrees: 1 of 3")
        pid_in(place.home / "begun")  # the first one is being created, so it is finished
        terminal.interrupt()
        terminal.wait_for("decide later]")
        terminal.answer("leave")
        if command == "chat":
            terminal.enter("/quit")
        assert terminal.end() == (0 if command == "chat" else 130)
    lanes = find_exploration(place.opened()).lanes
    assert [lane.state for lane in lanes] == ["stopped"]
    assert len(git(place.project, "worktree", "list").splitlines()) == 1
