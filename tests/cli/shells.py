"""Real shells on pseudo-terminals with the completion script loaded, and which of them are installed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from sessiontree.cli.completion import SHELLS
from tests.library.world import World

HERE = [shell for shell in SHELLS if shutil.which(shell)]
MISSING = [shell for shell in SHELLS if shell not in HERE]

_COMMANDS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
_SET_UP = {
    "bash": 'eval "$(sessiontree completion bash)"',
    "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(sessiontree completion zsh)"',
    "fish": "sessiontree completion fish | source",
}
_sequences = re.compile(r"\x1b(?:\[[0-9;?<>=]*[A-Za-z]|\][^\x07]*\x07|\(B|[=>])|\r")


def environment(world: World) -> dict[str, str]:
    """The current environment, with the commands of this installation first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**world.environment, "PATH": path, "LANG": "C.UTF-8", "TERM": "xterm"}


class Terminal:
    """A pseudo-terminal that runs a shell."""

    def __init__(self, shell: str, world: World, folder: Path) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WITH_TERMINAL, *_COMMANDS[shell]],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=environment(world),
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""
        self.type(f"{_SET_UP[shell]}; echo re''ady\n", until=r"(?m)^\W*ready")

    def type(self, keys: str, until: str) -> str:
        """Press keys and wait for a text; returns the output from then on."""
        self.shown = ""
        os.write(self.master, keys.encode())
        end = time.monotonic() + 30
        while not re.search(until, self.shown):
            ready, _, _ = select.select([self.master], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{until!r} was not shown within 30 s, but: {self.shown!r}"
            self.shown += _sequences.sub("", os.read(self.master, 65536).decode("utf-8", "replace"))
        return self.shown

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


# The terminal has to be the shell's own: else it cannot tell which of its programs are in front.
_WITH_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
