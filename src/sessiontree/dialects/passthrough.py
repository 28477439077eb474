"""Passthrough data: content that a format cannot store, in the field `sessiontree` of a line, which clients ignore.

An encoder encodes an entry, decodes the lines again and compares: `build_passthrough` returns what was lost or changed,
and `restore_entry` restores it when the lines are decoded later. The parts:

* `id`: the entry's id, where the line has another one;
* `entry`: the complete entry (`type` and fields), where the line holds something else;
* `fields`, `message`: fields of the entry and of its message to set;
* `without`: names of fields to remove, of the entry (`item`), its `message` and its carried data (`rider`);
* for the content of the message, in this order: `text` (it was a plain string), `blocks` (a delta for each changed
  block, see `json_delta`), `order` (where each block was), `insert`, `replace` (blocks by position) and `merge` (fields
  of single blocks). New lines have only the first four; older versions wrote the last two.

`part` marks a line that belongs to the entry before it; `plain` and `after` are marks of Claude Code's lines.
Everything else is *carried*: it stays on the entry in the same field, and the next encoder writes it again, whatever
its format. A client's own data is carried under the client's name, the original names of tools under `tools`.
`restated` marks entries that repeat others for a client, `unsent-thinking` answers whose thinking is not sent.

The names of parts must never change, because they are in users' files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from sessiontree.dialects.canonical import CanonicalEntry

PASSTHROUGH = "sessiontree"
"""The field of a line with passthrough data, and the type of a line that has nothing else."""

PARTS = frozenset(
    {
        *("id", "entry", "fields", "message", "without"),
        *("text", "blocks", "order", "insert", "replace", "merge"),
        *("part", "plain", "after"),
    }
)
"""The names of parts; everything else in passthrough data is carried."""

PART = "part"
"""Marks a line without its own content: it belongs to the entry before it."""
RESTATED = "restated"
"""The name of the mark that entries carry if they repeat others."""

UNSENT_THINKING = "unsent-thinking"
"""The name of the mark that answers carry if a client must not send their thinking."""

LEFT_OUT = "sessiontree.left-out"
"""The custom type of an entry that has a message only as passthrough data, which no client sends."""

REPORT = "sessiontree.conversion"
"""The custom type of the entry with the report of a conversion. It describes one file, so it is never converted."""

_CONTENT_PARTS = frozenset({"text", "blocks", "order", "insert", "replace", "merge"})


def passthrough_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """The passthrough data of a decoded line; empty without any."""
    return _object(line, PASSTHROUGH)


def carried_data(entry: CanonicalEntry, name: str) -> Any:
    """The data that an entry carries under a name; None without it."""
    if PASSTHROUGH not in entry.fields:  # nearly always
        return None
    return _object(entry.fields, PASSTHROUGH).get(name)


def is_restated(entry: CanonicalEntry) -> bool:
    """Whether an entry only repeats a message of the conversation for a client."""
    return carried_data(entry, RESTATED) is True


def with_carried_data(entry: CanonicalEntry, name: str, value: Any, **changed: Any) -> CanonicalEntry:
    """Replace the data that an entry carries under a name, and some fields; None or an empty value removes the data."""
    if not value and not changed and PASSTHROUGH not in entry.fields:  # nearly always
        return entry
    known = _object(entry.fields, PASSTHROUGH)
    if not value and not changed and name not in known:
        return entry
    fields, carried = {**entry.fields, **changed}, {**known}
    if value:
        carried[name] = value
    else:
        carried.pop(name, None)
    if carried:
        fields[PASSTHROUGH] = carried
    else:
        fields.pop(PASSTHROUGH, None)
    return msgspec.structs.replace(entry, fields=fields)


def build_passthrough(
    entry: CanonicalEntry,
    decoded: CanonicalEntry,
    *,
    left_out: Collection[int] = (),
    order: Sequence[int] | None = None,
    is_reworded: bool = False,
) -> dict[str, Any]:
    """Build passthrough data for lines that decode to `decoded`, so that `restore_entry` returns `entry`.

    `left_out` are the positions of content blocks that the lines do not have, `order` the positions of those they have.
    `is_reworded` stores the complete entry: the lines only paraphrase it.
    """
    fields = _without(entry.fields, [PASSTHROUGH]) if PASSTHROUGH in entry.fields else entry.fields
    carried, decoded_carried = entry.fields.get(PASSTHROUGH, {}), _object(decoded.fields, PASSTHROUGH)
    without: dict[str, list[str]] = {}
    if not isinstance(carried, dict) or not PARTS.isdisjoint(carried):
        fields[PASSTHROUGH] = carried  # not written by us: an ordinary field that has our name
        carried = {}
    id = {"id": entry.id} if entry.id and entry.id != decoded.id else {}
    message, decoded_message = fields.get("message"), decoded.fields.get("message")
    has_messages = isinstance(message, dict) and isinstance(decoded_message, dict)
    has_message = "message" in fields or "message" in decoded.fields
    if is_reworded or entry.kind != decoded.kind or (has_message and not has_messages):
        return {**carried, **id, "entry": {"type": entry.kind, **fields}}
    parts: dict[str, Any] = {}
    found, without["rider"] = _changes(carried, decoded_carried) if carried or decoded_carried else ({}, [])
    parts["fields"], without["item"] = _changes(fields, decoded.fields, besides=("message", PASSTHROUGH))
    if PASSTHROUGH in fields:
        parts["fields"][PASSTHROUGH] = fields[PASSTHROUGH]
    if isinstance(message, dict) and isinstance(decoded_message, dict):
        parts["message"], without["message"] = _changes(message, decoded_message)
        if "content" in parts["message"]:
            changes = _content_changes(message["content"], decoded_message.get("content"), left_out, order)
            if changes is not None:
                del parts["message"]["content"]
                parts |= changes
    found |= id | {name: part for name, part in parts.items() if part}
    if any(without.values()):
        found["without"] = {of: names for of, names in without.items() if names}
    return found


def _changes(
    wanted: Mapping[str, Any], decoded: Mapping[str, Any], besides: Collection[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The fields to set and the names of the fields to remove."""
    changed = {
        name: value
        for name, value in wanted.items()
        if not (name in decoded and _is_same(decoded[name], value)) and name not in besides
    }
    return changed, [name for name in decoded if name not in wanted and name not in besides]


def _content_changes(
    wanted: Any, decoded: Any, left_out: Collection[int], order: Sequence[int] | None
) -> dict[str, Any] | None:
    """The parts that turn decoded content into the wanted content; None if the content has to be stored in full."""
    if isinstance(wanted, str) and decoded == [{"type": "text", "text": wanted}]:
        return {"text": True}
    if not isinstance(wanted, list) or not isinstance(decoded, list):
        return None
    positions = [at for at in range(len(wanted)) if at not in left_out] if order is None else list(order)
    if len(positions) != len(decoded) or len(positions) + len(left_out) != len(wanted):
        return None
    deltas = [[at, json_delta(block, wanted[positions[at]])] for at, block in enumerate(decoded)]
    return {
        "blocks": [[at, delta] for at, delta in deltas if delta is not None],
        "order": positions if positions != sorted(positions) else [],
        "insert": [[at, wanted[at]] for at in sorted(left_out)],
    }


def restore_entry(entry: CanonicalEntry, found: Mapping[str, Any]) -> CanonicalEntry:
    """Restore the encoded entry from the entry its lines decode to and their passthrough data."""
    if not found:
        return entry
    id = found.get("id")
    id = id if isinstance(id, str) and id else entry.id
    aliases = (*entry.aliases, entry.id) if id != entry.id and entry.id else entry.aliases
    carried = {name: value for name, value in found.items() if name not in PARTS}
    stored = found.get("entry")
    if isinstance(stored, dict) and isinstance(stored.get("type"), str):
        fields = {name: value for name, value in stored.items() if name != "type"}
        fields |= {PASSTHROUGH: carried} if carried else {}
        return CanonicalEntry(stored["type"], fields, id, entry.timestamp, aliases)
    without = _object(found, "without")
    fields = _without(entry.fields, without.get("item"))
    carried = _without(_object(fields, PASSTHROUGH), without.get("rider")) | carried
    fields.pop(PASSTHROUGH, None)
    fields |= {PASSTHROUGH: carried} if carried else {}
    fields |= _object(found, "fields")
    message = fields.get("message")
    if isinstance(message, dict):
        message = _without(message, without.get("message")) | _object(found, "message")
        if not _CONTENT_PARTS.isdisjoint(found):
            message["content"] = _restore_content(message.get("content"), found)
        fields["message"] = message
    return CanonicalEntry(entry.kind, fields, id, entry.timestamp, aliases)


def _restore_content(content: Any, found: Mapping[str, Any]) -> Any:
    insert, replace = _positioned(found.get("insert")), _positioned(found.get("replace"))
    if not isinstance(content, list) and not insert and not replace:
        return content
    blocks = list(content) if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    if found.get("text") is True and len(blocks) == 1 and isinstance(blocks[0], dict):
        return blocks[0].get("text", "")
    blocks = apply_delta(blocks, {"at": found.get("blocks")})
    order = found.get("order")
    if isinstance(order, list) and len(order) == len(blocks) and all(isinstance(at, int) for at in order):
        blocks = [block for _, block in sorted(zip(order, blocks, strict=True), key=lambda pair: pair[0])]
    for at, block in insert:
        blocks.insert(at, block)
    for at, block in replace:
        blocks[at : at + 1] = [block] if at < len(blocks) else []
    for at, changes in _positioned(found.get("merge")):
        if at < len(blocks) and isinstance(blocks[at], dict) and isinstance(changes, dict):
            blocks[at] = {**blocks[at], **changes}
    return blocks


# JSON deltas:
#   {"set": {name: value}, "without": [name], "in": {name: delta}}    for objects
#   {"at": [[position, delta], …]}                                    for lists of the same length
#   {"is": value}                                                     for anything else


def json_delta(old: Any, new: Any) -> dict[str, Any] | None:
    """The delta that turns one JSON value into another; None when they are equal."""
    if old is new or _is_same(old, new):
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        return _object_delta(old, new)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        deltas = [[at, json_delta(*pair)] for at, pair in enumerate(zip(old, new, strict=True))]
        return {"at": [[at, delta] for at, delta in deltas if delta is not None]}
    return {"is": new}


def _object_delta(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in new.items() if name not in old}
    inside: dict[str, Any] = {}
    for name in old.keys() & new.keys():
        delta = json_delta(old[name], new[name])
        if delta is not None and "is" in delta:
            changed[name] = new[name]
        elif delta is not None:
            inside[name] = delta
    parts = {"set": changed, "without": sorted(old.keys() - new.keys()), "in": inside}
    return {name: part for name, part in parts.items() if part}


def apply_delta(old: Any, delta: Any) -> Any:
    """Apply a delta to a JSON value; parts of the delta that do not fit the value are ignored."""
    if not isinstance(delta, dict):
        return old
    if "is" in delta:
        return delta["is"]
    if isinstance(old, dict):
        changed = _without(old, delta.get("without"))
        for name, change in _object(delta, "in").items():
            if name in changed:
                changed[name] = apply_delta(changed[name], change)
        return changed | _object(delta, "set")
    if isinstance(old, list):
        blocks = list(old)
        for at, change in _positioned(delta.get("at")):
            if at < len(blocks):
                blocks[at] = apply_delta(blocks[at], change)
        return blocks
    return old


def _is_same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal. Python alone would treat True, 1 and 1.0 as equal."""
    return type(one) is type(other) and (one is other or bool(one == other))


def _positioned(pairs: Any) -> list[tuple[int, Any]]:
    found = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2] if isinstance(pairs, list) else []
    return [(at, value) for at, value in found if type(at) is int and at >= 0]


def _without(fields: Mapping[str, Any], names: Any) -> dict[str, Any]:
    gone = names if isinstance(names, list) else ()
    return {name: value for name, value in fields.items() if name not in gone}


def _object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = fields.get(name)
    return found if isinstance(found, dict) else {}
