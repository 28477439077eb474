"""What rides along: content that a format has no place for, kept on a line where its owner does not look.

A rider stands in the field `sessiontree` of a line. It says what the entry was called and what the line does not say of
it; `restored` gives the entry back as it was. Owners pass over fields they do not know, and keep the line as it is.

* `id`: what the entry was called, if the line has another id;
* `entry`: the whole entry (`type` and fields), when the line says it in quite other words, or says something else;
* `fields`, `message`: fields of the entry, or of its message, that the line has no place for;
* `insert`, `replace`: blocks of the message's content by position, left out or said differently on the line.

Anything else in a rider stays on the item under the same field, to ride on: what an agent's own lines say beyond shared
words stands under the agent's name, and the words in which tools were called under `tools`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry

RIDER = "sessiontree"
"""The field of a line that holds a rider, and the type of a line that is nothing but one."""

Placed = Sequence[tuple[int, Any]]

_PARTS = frozenset({"id", "entry", "fields", "message", "insert", "replace"})


def rider(
    item: CanonicalEntry,
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
    if item.id and item.id != id:
        found["id"] = item.id
    if whole:
        found["entry"] = {"type": item.kind, **item.fields}
        return found
    parts = {"fields": fields, "message": message, "insert": list(insert), "replace": list(replace)}
    found.update((name, part) for name, part in parts.items() if part)
    return found


def rider_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """The rider of a decoded line; empty when it has none."""
    found = line.get(RIDER)
    return found if isinstance(found, dict) else {}


def restored(item: CanonicalEntry, found: Mapping[str, Any]) -> CanonicalEntry:
    """The item as it was before it was written to a line that has this rider."""
    id = found.get("id")
    id = id if isinstance(id, str) and id else item.id
    also = (*item.also, item.id) if id != item.id and item.id else item.also
    on = {name: value for name, value in found.items() if name not in _PARTS}
    entry = found.get("entry")
    if isinstance(entry, dict) and isinstance(entry.get("type"), str):
        fields = {name: value for name, value in entry.items() if name != "type"}
        return CanonicalEntry(entry["type"], fields | ({RIDER: on} if on else {}), id, item.timestamp, also)
    fields = {name: value for name, value in item.fields.items() if name != RIDER}
    if on:
        fields[RIDER] = on
    fields |= _object(found, "fields")
    message = fields.get("message")
    if isinstance(message, dict):
        message = {**message, **_object(found, "message")}
        content = _restored_content(message.get("content"), found)
        if content is not None:
            message["content"] = content
        fields["message"] = message
    return CanonicalEntry(item.kind, fields, id, item.timestamp, also)


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
