"""Ids and times: session ids (UUIDv7), entry ids (8 hex digits), ISO times in milliseconds."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Container

SHORTEST_PREFIX = 8

_SESSION_ID = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z"
_lock = threading.Lock()
_last_ms = 0
_counter = 0
_second = (-1, "")
"""The last second a time was made for, and its text: one value, so that threads never see half of a change."""
_ENDINGS = tuple([f".{ms:03d}Z" for ms in range(1000)])


_DRAWN_AT_ONCE = 64
_drawn: list[str] = []
"""Ids for entries to come: asking the system for each of them takes longer than anything else about it."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)  # or parent and child would give out the same


def new_session_id() -> str:
    """A UUIDv7. Ids made by one process sort in the order they were made."""
    global _last_ms, _counter
    with _lock:
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


def is_session_id(text: str) -> bool:
    """Whether a text may name a session: it cannot be a path, hide a file or leave a folder."""
    return re.match(_SESSION_ID, text) is not None and ".." not in text


def is_session_id_prefix(text: str) -> bool:
    """Whether a text may be the beginning of a session's id."""
    return is_session_id(text + "0")


def new_entry_id(taken: Container[str]) -> str:
    """Eight hex digits that no entry of the session has."""
    while True:
        try:
            found = _drawn.pop()
        except IndexError:
            digits = os.urandom(4 * _DRAWN_AT_ONCE).hex()
            _drawn.extend([digits[at : at + 8] for at in range(0, len(digits), 8)])
            continue
        if found not in taken:
            return found


def timestamp() -> str:
    """Now, in UTC, as `2026-02-16T10:20:30.000Z`."""
    global _second
    second, rest = divmod(time.time_ns() // 1_000_000, 1000)
    known = _second
    if known[0] != second:  # formatting costs more than everything else in an append's bookkeeping
        _second = known = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
    return known[1] + _ENDINGS[rest]


def now_ms() -> int:
    """Now, as milliseconds since 1970."""
    return time.time_ns() // 1_000_000
