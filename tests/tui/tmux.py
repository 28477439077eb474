"""A real terminal: tmux with its own server, in which programs run as for a user."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

SECONDS = 60.0


def require_tmux() -> None:
    """Skip without tmux; in CI it has to be there."""
    if shutil.which("tmux") is None:
        if os.environ.get("CI"):
            pytest.fail("tmux is not installed; .ci/run installs it")
        pytest.skip("tmux is not installed")


class Tmux:
    """A window of tmux that runs a shell in a folder."""

    def __init__(
        self, socket: Path, folder: Path, environment: Mapping[str, str], size: tuple[int, int] = (140, 40)
    ) -> None:
        self._base = ["tmux", "-S", str(socket), "-f", os.devnull]
        self._environment = {**environment, "TERM": "xterm-256color", "PS1": "$ ", "ESCDELAY": "50"}
        width, height = size
        # -s escape-time: tmux itself must not wait for what may follow an escape key.
        self._run(
            "new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(folder), "/bin/sh",
            ";", "set", "-s", "escape-time", "0",
        )  # fmt: skip

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._base, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run([*self._base, "kill-server"], capture_output=True, check=False)

    def command(self, *words: str) -> None:
        """Enter a command line."""
        self.type(shlex.join(words))
        self.press("Enter")

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    @property
    def shown(self) -> str:
        """What is on the screen."""
        return self._run("capture-pane", "-p")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the screen matches a regular expression."""
        deadline = time.monotonic() + SECONDS
        while True:
            shown = self.shown
            found = re.search(pattern, shown)
            if found is not None:
                return found
            assert time.monotonic() < deadline, f"{pattern!r} is not on the screen:\n{shown}"
            time.sleep(0.05)

    def wait_until_gone(self, text: str) -> None:
        deadline = time.monotonic() + SECONDS
        while text in self.shown:
            assert time.monotonic() < deadline, f"{text!r} is still on the screen:\n{self.shown}"
            time.sleep(0.05)
