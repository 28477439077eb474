"""Entries that the client has no line for: lines of our own type beside the chain, which it passes over."""

from __future__ import annotations

from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote
from sessiontree.dialects.claude.records import string_in
from sessiontree.dialects.claude.transcript import Transcript
from sessiontree.dialects.passthrough import PASSTHROUGH

_NO_LINE = "Claude Code has no line for them"


def put_aside(transcript: Transcript, item: CanonicalEntry, parent: str | None, what: str = "") -> Encoded:
    """An entry beside the chain. `what` names its kind in the plural, where its type does not."""
    inside = {name: value for name, value in item.fields.items() if name != "type"}
    entry = {"type": item.kind, **inside}
    target = string_in(item.fields, "targetId")
    line = transcript.aside_line(item, parent, entry)
    if target is not None and (known := transcript.standing.main_of(target)) != target:
        entry["targetId"] = known
        line[PASSTHROUGH] = {"fields": {"targetId": target}}
    return transcript.written_aside(line, parent, [LossNote("aside", what or f"{item.kind} entries", _NO_LINE)])
