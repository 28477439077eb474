"""What `--help` shows, as a person reads it."""

from __future__ import annotations

import subprocess
import sys


def shown(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "sessiontree", *arguments, "--help"],
        capture_output=True,
        text=True,
        env={"COLUMNS": "200", "LC_ALL": "C.UTF-8"},
        check=True,
    )
    return done.stdout


def test_the_list_of_commands_has_nothing_in_it_but_commands() -> None:
    lines = shown().splitlines()
    at = lines.index("commands:")
    assert lines[at + 1].split() == ["COMMAND"]
    assert lines[at + 2].split()[:2] == ["new", "start"]
    assert "None" not in shown()


def test_each_command_says_what_it_prints_as_json() -> None:
    (line,) = [line for line in shown("tree").splitlines() if line.startswith("  --json ")]
    assert line.endswith("print one JSON object")
    (line,) = [line for line in shown("explore").splitlines() if line.startswith("  --json ")]
    assert "each event" in line
