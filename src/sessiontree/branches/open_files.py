"""Find the processes that have a session file open for writing.

Agents do not record that they are using a session: there is no lease, and locks are held only during a write. The only
indication is an open file. An agent that opens the file for each line is visible only at that moment.
"""

from __future__ import annotations

import os

from msgspec import Struct

_PROCESSES = "/proc"
_WRITING = os.O_WRONLY | os.O_RDWR


class Writer(Struct, frozen=True):
    """A process that has a file open for writing."""

    pid: int
    program: str


def find_writers(path: str) -> list[Writer] | None:
    """Find other processes that have a file open for writing; None where /proc is missing."""
    try:
        wanted = os.stat(path)
        processes = [int(name) for name in os.listdir(_PROCESSES) if name.isdecimal()]
    except OSError:
        return None
    if not processes:
        return None
    found = [Writer(pid, _program(pid)) for pid in processes if pid != os.getpid() and _writes(pid, wanted)]
    return sorted(found, key=lambda writer: writer.pid)


def _writes(pid: int, wanted: os.stat_result) -> bool:
    try:
        numbers = os.listdir(f"{_PROCESSES}/{pid}/fd")
    except OSError:
        return False  # it has ended, or belongs to another user
    return any(_is_open_for_writing(pid, number, wanted) for number in numbers)


def _is_open_for_writing(pid: int, number: str, wanted: os.stat_result) -> bool:
    try:
        held = os.stat(f"{_PROCESSES}/{pid}/fd/{number}")
        if (held.st_dev, held.st_ino) != (wanted.st_dev, wanted.st_ino):
            return False
        with open(f"{_PROCESSES}/{pid}/fdinfo/{number}", encoding="ascii") as info:
            flags = next((line.split()[1] for line in info if line.startswith("flags:")), "0")
    except (OSError, UnicodeDecodeError, IndexError):
        return False
    return bool(int(flags, 8) & _WRITING)


def _program(pid: int) -> str:
    try:
        with open(f"{_PROCESSES}/{pid}/comm", encoding="utf-8", errors="replace") as name:
            return name.read().strip()
    except OSError:
        return ""
