"""`sessiontree -c` and `sessiontree -r`: continue without naming a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.library.world import IDS, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    (tmp_path / "here").mkdir()
    world.claude(IDS[0], tmp_path / "here", ["mend the parser"])
    with world.library() as library:
        library.refresh()  # both forms then tell what the cache knows
    return world


def run(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sessiontree", *arguments]
    around = {**world.environment, "LANG": "C.UTF-8"}
    return subprocess.run(
        command, cwd=world.folder / "here", env=around, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("short", "long", "expected"),
    [
        (["-c"], ["continue"], "mend the parser\nsession      " + IDS[0]),
        (["-c", "--print-path"], ["continue", "--print-path"], f"/{IDS[0]}.jsonl\n"),
        (["-c", "--json", "--cwd", "."], ["continue", "--json", "--cwd", "."], f'"id":"{IDS[0]}"'),
        (["-r"], ["continue", "-r"], "  1   mend the parser "),
        (["-r", "--all"], ["continue", "-r", "--all"], "  1   mend the parser "),
    ],
)
def test_a_short_form_does_what_the_command_does(
    short: list[str], long: list[str], expected: str, world: World
) -> None:
    done = run(world, *short)
    assert done.returncode == 0
    assert expected in done.stdout
    assert done.stdout == run(world, *long).stdout


def test_the_help_names_the_short_forms(world: World) -> None:
    shown = run(world, "--help").stdout
    assert "-c  " in shown
    assert "`sessiontree continue -r`" in shown


def test_unknown_options_are_refused_in_the_name_of_continue(world: World) -> None:
    done = run(world, "-c", "--nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--nonsense" in done.stderr
    assert run(world, "list", "-c").returncode == 2
