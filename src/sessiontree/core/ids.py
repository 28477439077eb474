"""Session ids (UUIDv7), entry ids (8 hex digits), ids of lines without one, ISO timestamps in milliseconds."""

from __future__ import annotations

import os
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Container

SHORTEST_PREFIX = 8

_SESSION_ID = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z"
_lock = threading.Lock()
_last_ms = 0
_counter = 0
_second = (-1, "")
"""Cache: the last formatted second and its text. One tuple, so that threads never see half of a change."""
_ENDINGS = tuple([f".{ms:03d}Z" for ms in range(1000)])

_POOL_SIZE = 64
_id_pool: list[str] = []
"""Random entry ids for later use: one `os.urandom` call per id would cost more than the rest of `new_entry_id`."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_id_pool.clear)  # otherwise parent and child would generate the same ids


def new_session_id() -> str:
    """Generate a UUIDv7. Ids of one process sort in the order of their creation."""
    global _last_ms, _counter
    with _lock:
        # Several ids in one millisecond count up the 12 bits after the time; if those run out, or the clock was set
        # back, the time of the ids runs ahead of the clock rather than repeating or sorting wrongly.
        now = time.time_ns() // 1_000_000
        if now > _last_ms:
            _last_ms, _counter = now, int.from_bytes(os.urandom(2)) & 0x7FF
        else:
            _counter += 1
            if _counter > 0xFFF:
                _last_ms, _counter = _last_ms + 1, 0
        ms, counter = _last_ms, _counter
    tail = int.from_bytes(os.urandom(8)) & 0x3FFF_FFFF_FFFF_FFFF
    digits = f"{(ms << 80) | (0x7000 | counter) << 64 | 0x8000_0000_0000_0000 | tail:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class IdPrefixes:
    """Shortest prefixes that tell different ids apart. Their collection may grow."""

    def __init__(self, ids: Collection[str]) -> None:
        self.ids = ids
        self._count = -1
        self._sorted: list[str] = []

    def shortest(self, id: str) -> str:
        """The shortest prefix that no other id has, at least eight characters; it does not end with a hyphen."""
        if len(id) <= SHORTEST_PREFIX:
            return id
        if self._count != len(self.ids):
            self._sorted = sorted(self.ids)
            self._count = len(self.ids)
        at = bisect_left(self._sorted, id)
        is_known = self._sorted[at : at + 1] == [id]
        neighbors = (*self._sorted[max(at - 1, 0) : at], *self._sorted[at + is_known : at + is_known + 1])
        length = max((_shared(id, other) + 1 for other in neighbors), default=SHORTEST_PREFIX)
        while id[length - 1 : length] == "-":
            length += 1
        return id[:length]


def _shared(first: str, other: str) -> int:
    """Length of the common prefix, at least one less than that of the shortest prefix that is shown."""
    low, high = SHORTEST_PREFIX - 1, min(len(first), len(other)) + 1
    while high - low > 1:  # comparing slices is faster than comparing characters
        middle = (low + high) // 2
        if first[:middle] == other[:middle]:
            low = middle
        else:
            high = middle
    return low


def is_session_id(text: str) -> bool:
    """Whether a text is a valid session id: safe as a file name, without separators, a leading dot or '..'."""
    return re.match(_SESSION_ID, text) is not None and ".." not in text


def session_word(id: str, location: str) -> str:
    """A session as a word of a shell command that is printed: its id, or its path if the id is not a valid one.

    A file can contain any id: an option, a second command, or characters that are not printed.
    """
    import shlex  # few commands need it

    return id if is_session_id(id) else shlex.quote(location)


def is_session_id_prefix(text: str) -> bool:
    """Whether a text can be the prefix of a session id."""
    return is_session_id(text + "0")


def new_entry_id(taken: Container[str]) -> str:
    """Generate an entry id of eight hex digits that is not in `taken`."""
    while True:
        try:
            found = _id_pool.pop()
        except IndexError:
            digits = os.urandom(4 * _POOL_SIZE).hex()
            _id_pool.extend([digits[at : at + 8] for at in range(0, len(digits), 8)])
            continue
        if found not in taken:
            return found


def metadata_id(node: int) -> str:
    """The id given to a metadata line, which has none of its own: its position in the file never changes."""
    return f"@{node}"


def is_metadata_id(id: str) -> bool:
    return id.startswith("@") and id[1:].isdecimal()


def position_id(node: int) -> str:
    """An id for an entry of a format without ids. The position of a line in an append-only file never changes."""
    return f"{node:08x}"


def timestamp() -> str:
    """The current UTC time as `2026-02-16T10:20:30.000Z`."""
    global _second
    second, rest = divmod(time.time_ns() // 1_000_000, 1000)
    known = _second
    if known[0] != second:  # strftime costs more than the rest of an append's bookkeeping
        _second = known = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
    return known[1] + _ENDINGS[rest]


def unix_seconds(text: str) -> float:
    """Seconds since 1970 of a timestamp; 0 if it is invalid."""
    from datetime import datetime  # slow to import, and few commands need it

    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def iso_time(value: object) -> str:
    """The time of a line as ISO text: programs write that, or count milliseconds. Empty for any other value."""
    if isinstance(value, str):
        return value
    if type(value) is not int and type(value) is not float:
        return ""
    from datetime import UTC, datetime  # slow to import, and almost every line has text

    try:
        return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return ""


def now_ms() -> int:
    """The current time as milliseconds since 1970."""
    return time.time_ns() // 1_000_000
