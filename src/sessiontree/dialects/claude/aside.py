"""Entries that the client has no line for: lines of our own type beside the chain, which it passes over."""

from __future__ import annotations

from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.claude.wire import string_in
from sessiontree.dialects.riders import RIDER
from sessiontree.dialects.scribe import Item, Note, Written

_NO_LINE = "Claude Code has no line for them"


def put_aside(transcript: Transcript, item: Item, parent: str | None, what: str = "") -> Written:
    """An entry beside the chain. `what` names its kind in the plural, where its type does not."""
    inside = {name: value for name, value in item.fields.items() if name != "type"}
    entry = {"type": item.kind, **inside}
    target = string_in(item.fields, "targetId")
    line = transcript.aside_line(item, parent, entry)
    if target is not None and (known := transcript.standing.main_of(target)) != target:
        entry["targetId"] = known
        line[RIDER] = {"fields": {"targetId": target}}
    return transcript.written_aside(line, parent, [Note("aside", what or f"{item.kind} entries", _NO_LINE)])
