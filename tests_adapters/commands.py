"""Run the commands that have to work on the sessions of every adapter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(home: Path, *arguments: str) -> str:
    """The output of a command that succeeds, with nothing of the caller's settings and sessions."""
    done = subprocess.run(
        [sys.executable, "-m", "sessiontree", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(home.parent), "SESSIONTREE_HOME": str(home), "LANG": "C.UTF-8"},
        cwd=home.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


def check_commands(home: Path, id: str, texts: list[str]) -> None:
    """Check that list, tree, doctor, context, convert, the terminal UI and the web page work on the session of a home.

    The last four show its texts.
    """
    assert id in run(home, "list", "--all", "--json")
    assert run(home, "tree", id)
    run(home, "doctor", id)
    shown = run(home, "context", id, "--json")
    target = home.parent / "converted.jsonl"
    run(home, "convert", id, "--to", "claude", "--out", str(target))
    converted = target.read_text(encoding="utf-8")
    for text in texts:
        assert text in shown
        assert text in converted
    from tests_adapters.front_ends import check_front_ends  # child processes of tests import this module, too

    check_front_ends(home.parent, texts, {"SESSIONTREE_HOME": str(home)})
