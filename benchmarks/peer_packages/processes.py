"""Run a command, and measure it from start to end."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from msgspec import Struct


class Measured(Struct, frozen=True):
    """CPU time in seconds with its children, peak memory in bytes, and the output of a process."""

    seconds: float
    peak: int
    output: str


class CommandFailedError(Exception):
    """A measured command failed; the message has the end of its output."""


def measured(command: Sequence[str], environment: Mapping[str, str], folder: str = "/") -> Measured:
    """Run a command to its end. Its memory includes that of this process when it was started, about 40 MB."""
    with tempfile.TemporaryFile("w+", errors="replace") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=errors
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (output, errors):
            file.seek(0)
        if process.returncode:
            end = (errors.read() or output.read()).strip()[-300:]
            raise CommandFailedError(f"{os.path.basename(command[0])} ended with {process.returncode}: {end}")
        return Measured(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, output.read())


def best(runs: Sequence[Measured]) -> Measured:
    """The fastest run, with the lowest peak of all."""
    fastest = min(runs, key=lambda run: run.seconds)
    return Measured(fastest.seconds, min(run.peak for run in runs), fastest.output)
