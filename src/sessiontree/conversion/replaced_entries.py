"""Entries that a conversion replaced with the messages of a context, stored as data that no client sends.

A client without resets sends every message of a session. Where it would send something else than the source, the
session has the messages of the context instead, and the entries of the source as passthrough data. Every conversion
decodes the entries of the source.
"""

from __future__ import annotations

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.passthrough import PASSTHROUGH, carried_data

CUSTOM_TYPE = "sessiontree.replaced"
_REPLACED = "replaced"


def hide_replaced(entry: CanonicalEntry) -> CanonicalEntry:
    """Return an entry that no client sends, with another one as passthrough data."""
    stored = {"type": entry.kind, "id": entry.id, "timestamp": entry.timestamp, "fields": entry.fields}
    return CanonicalEntry("custom", {"customType": CUSTOM_TYPE, PASSTHROUGH: {_REPLACED: stored}})


def with_replaced(entry: CanonicalEntry) -> CanonicalEntry:
    """Return the entry that another one holds as data; any other entry unchanged."""
    if entry.kind != "custom" or entry.fields.get("customType") != CUSTOM_TYPE:
        return entry
    stored = carried_data(entry, _REPLACED)
    if not isinstance(stored, dict) or not isinstance(stored.get("type"), str):
        return entry
    fields, id, time = stored.get("fields"), stored.get("id"), stored.get("timestamp")
    return CanonicalEntry(
        stored["type"],
        fields if isinstance(fields, dict) else {},
        id if isinstance(id, str) and id else entry.id,
        time if isinstance(time, str) else entry.timestamp,
        (entry.id,),
    )
