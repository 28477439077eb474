"""Run the command line as a user does: as a process, with a temporary home folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree.session.open import create


class Ran:
    """The result of a command."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self.code = done.returncode
        self.out = done.stdout.decode("utf-8", "surrogateescape")
        self.err = done.stderr.decode("utf-8", "surrogateescape")

    @property
    def json(self) -> Any:
        assert self.out.count("\n") == 1, "exactly one JSON object on one line"
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: str, stdin: str | bytes = b"", width: int = 100) -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        own = {"HOME": str(tmp_path / "user"), "SESSIONTREE_HOME": str(tmp_path / "home")}
        own["SESSIONTREE_CACHE"] = str(tmp_path / "cache")
        environment = {**os.environ, **own, "COLUMNS": str(width), "TZ": "UTC"}
        command = [sys.executable, "-m", "sessiontree", *arguments]
        return Ran(subprocess.run(command, input=data, capture_output=True, env=environment, timeout=60, check=False))

    return run


@pytest.fixture
def session(tmp_path: Path) -> str:
    """The path of a session with two branches and a label."""
    session = create("/", home=str(tmp_path / "home"), appear="now")
    session.rename("解析器")
    session.append({"role": "user", "content": "Add a --json flag."})
    fork_point = session.append({"role": "assistant", "content": [{"type": "text", "text": "Which library?"}]}).id
    session.append({"role": "user", "content": "click"})
    session.label(fork_point, "which?")
    session.move(fork_point)
    session.append({"role": "user", "content": "保留 argparse"})
    session.close()
    return session.location
