"""Bytes and times of written lines: Neovate refuses a whole file for one line that is not strict JSON."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.neovate.records import milliseconds

_encode = msgspec.json.Encoder().encode
_time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)\Z")


def render_line(fields: dict[str, Any]) -> bytes:
    """One line without LF, in strict JSON: a number that JSON does not know becomes null."""
    try:
        return _encode(fields)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError):
        return render_json(_finite(fields))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def line_time(entry: CanonicalEntry, otherwise: str) -> str:
    """The time for an item's line: its own, else that of its message, else the one before."""
    if _time.match(entry.timestamp) and milliseconds(entry.timestamp) is not None:
        return entry.timestamp
    message = entry.fields.get("message")
    time = message.get("timestamp") if isinstance(message, dict) else None
    found = milliseconds(entry.timestamp)
    return _iso(found if found is not None else time) or otherwise or "1970-01-01T00:00:00.000Z"


def _iso(ms: Any) -> str | None:
    if not isinstance(ms, int | float) or isinstance(ms, bool):
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
