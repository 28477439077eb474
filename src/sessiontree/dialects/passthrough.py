"""What rides along: content that a format has no place for, kept on a line where its client does not look.

A passthrough data stands in the field `sessiontree` of a line. It says what the entry was called and what the line does
not say of it; `restored` gives the entry back as it was. Clients pass over fields they do not know, and keep the line
as it is.

* `id`: what the entry was called, if the line has another id;
* `entry`: the whole entry (`type` and fields), when the line says it in quite other words, or says something else;
* `fields`, `message`: fields of the entry, or of its message, that the line has no place for;
* `insert`, `replace`: blocks of the message's content by position, left out or said differently on the line.

Anything else in passthrough data stays on the item under the same field, to ride on: what an agent's own lines say
beyond shared words stands under the agent's name, and the words in which tools were called under `tools`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry

PASSTHROUGH = "sessiontree"
"""The field of a line that holds passthrough data, and the type of a line that is nothing but one."""

Placed = Sequence[tuple[int, Any]]

_PARTS = frozenset({"id", "entry", "fields", "message", "insert", "replace"})


def new_passthrough(
    entry: CanonicalEntry,
    id: str,
    *,
    whole: bool = False,
    fields: Mapping[str, Any] | None = None,
    message: Mapping[str, Any] | None = None,
    insert: Placed = (),
    replace: Placed = (),
) -> dict[str, Any]:
    """What shall ride along with an item's line whose id is `id`; empty when the line says everything.

    Positions count in the content as it was: first everything of `insert` is put in, in order, then `replace` is.
    """
    found: dict[str, Any] = {}
    if entry.id and entry.id != id:
        found["id"] = entry.id
    if whole:
        found["entry"] = {"type": entry.kind, **entry.fields}
        return found
    parts = {"fields": fields, "message": message, "insert": list(insert), "replace": list(replace)}
    found.update((name, part) for name, part in parts.items() if part)
    return found


def passthrough_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """The passthrough data of a decoded line; empty when it has none."""
    found = line.get(PASSTHROUGH)
    return found if isinstance(found, dict) else {}


def restore_entry(entry: CanonicalEntry, found: Mapping[str, Any]) -> CanonicalEntry:
    """The item as it was before it was written to a line that has this passthrough data."""
    id = found.get("id")
    id = id if isinstance(id, str) and id else entry.id
    also = (*entry.aliases, entry.id) if id != entry.id and entry.id else entry.aliases
    on = {name: value for name, value in found.items() if name not in _PARTS}
    stored = found.get("entry")
    if isinstance(stored, dict) and isinstance(stored.get("type"), str):
        fields = {name: value for name, value in stored.items() if name != "type"}
        return CanonicalEntry(stored["type"], fields | ({PASSTHROUGH: on} if on else {}), id, entry.timestamp, also)
    fields = {name: value for name, value in entry.fields.items() if name != PASSTHROUGH}
    if on:
        fields[PASSTHROUGH] = on
    fields |= _object(found, "fields")
    message = fields.get("message")
    if isinstance(message, dict):
        message = {**message, **_object(found, "message")}
        content = _restored_content(message.get("content"), found)
        if content is not None:
            message["content"] = content
        fields["message"] = message
    return CanonicalEntry(entry.kind, fields, id, entry.timestamp, also)


def _restored_content(content: Any, found: Mapping[str, Any]) -> list[Any] | None:
    """The content with blocks put back; None when nothing is to be put back."""
    insert, replace = _placed(found, "insert"), _placed(found, "replace")
    if not insert and not replace:
        return None
    blocks = list(content) if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    for at, block in insert:
        blocks.insert(at, block)
    for at, block in replace:
        if at < len(blocks):
            blocks[at] = block
    return blocks


def _placed(found: Mapping[str, Any], name: str) -> list[tuple[int, Any]]:
    pairs = found.get(name)
    if not isinstance(pairs, list):
        return []
    return [(pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2 and _is_position(pair[0])]


def _is_position(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and found >= 0


def _object(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}
