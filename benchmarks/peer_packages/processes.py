"""Run a command, and measure it from start to end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

from msgspec import Struct

_STARTER = """
import os, sys
os.set_inheritable(int(sys.argv[1]), False)
_, status, used = os.wait4(os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ), 0)
found = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss
os.write(int(sys.argv[1]), " ".join(map(str, found)).encode())
"""
"""A small process that starts the command: the peak memory of a process is at least that of the one that started it."""


class Measured(Struct, frozen=True):
    """CPU time in seconds with its children, peak memory in bytes, and the output of a process."""

    seconds: float
    peak: int
    output: str


class CommandFailedError(Exception):
    """A measured command failed; the message has the end of its output."""


def measured(command: Sequence[str], environment: Mapping[str, str], folder: str = "/") -> Measured:
    """Run a command to its end. Its memory is at least that of a bare interpreter, about 10 MB."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as output,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        tempfile.TemporaryFile("w+") as usage,
    ):
        number = usage.fileno()
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(number)]
        started = subprocess.run(
            [*starter, *command],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            pass_fds=[number],
            check=False,
        )
        for file in (output, errors, usage):
            file.seek(0)
        code, seconds, peak = (usage.read() or f"{started.returncode} 0 0").split()
        if code != "0" or started.returncode:
            end = (errors.read() or output.read()).strip()[-300:]
            raise CommandFailedError(f"{os.path.basename(command[0])} ended with {code}: {end}")
        return Measured(float(seconds), int(peak) * 1024, output.read())


def best(runs: Sequence[Measured]) -> Measured:
    """The fastest run, with the lowest peak of all."""
    fastest = min(runs, key=lambda run: run.seconds)
    return Measured(fastest.seconds, min(run.peak for run in runs), fastest.output)
