"""Values as JSON for people: indented, and whatever they hold."""

from __future__ import annotations

import msgspec

from sessiontree.core.jsonio import render_json


def indented(value: object) -> str:
    """A value as indented JSON."""
    data = render_json(value)
    try:
        return msgspec.json.format(data).decode("utf-8", "replace")
    except (msgspec.MsgspecError, RecursionError):
        return data.decode("utf-8", "replace")
