"""What the lines of an item do not say of it: made into passthrough data when it is written, put back when it is told.

passthrough data are those of `sessiontree.dialects.passthrough`, with parts of our own, so that content is not written
twice:

* `merge`: fields of single blocks by position, for a call whose id was changed, a signature the line has no place for;
* `without`: names of fields that telling makes up and the item did not have: of the `item`, its `message` and of what
  rides on with it (`passthrough data`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude.records import Fields, object_in
from sessiontree.dialects.passthrough import PASSTHROUGH, new_passthrough, restore_entry

PART = "part"
"""In passthrough data: the line belongs to the item before it, and says nothing of its own."""

PLAIN = "plain"
"""In passthrough data: what looks like a line of the client's was said by the user."""

AFTER = "after"
"""In passthrough data, or on an aside: the aside that stands before this, empty when there are only others."""

_OWN_PARTS = frozenset({"merge", "without", PART, PLAIN, AFTER})
PARTS = frozenset({"id", "entry", "fields", "message", "insert", "replace"}) | _OWN_PARTS
"""Everything in passthrough data that has a meaning to us; the rest rides on."""
_SELDOM = frozenset({"entry", "fields", "insert", "replace", "without"})


def build_passthrough(entry: CanonicalEntry, told: CanonicalEntry, left_out: Collection[int] = ()) -> Fields:
    """The passthrough data for lines that are told as `told` and shall be told as `item`.

    `left_out` are the positions of blocks of the item's message that the lines do not have.
    """
    message, told_message = entry.fields.get("message"), told.fields.get("message")
    has_message = isinstance(message, dict) and isinstance(told_message, dict)
    if entry.kind != told.kind or ("message" in entry.fields and not has_message):
        return new_passthrough(entry, told.id, whole=True)
    changed, missing = _changes(entry.fields, told.fields, "message", PASSTHROUGH)
    parts: Fields = {"fields": changed}
    on, told_on = object_in(entry.fields, PASSTHROUGH), object_in(told.fields, PASSTHROUGH)
    ride_on, stay = _changes(on, told_on)
    if entry.fields.get(PASSTHROUGH, on) != on or not PARTS.isdisjoint(on):  # nothing that any of us would write
        parts["fields"], ride_on, stay = {**changed, PASSTHROUGH: entry.fields[PASSTHROUGH]}, {}, []
    without = {"item": missing, "rider": stay}
    if isinstance(message, dict) and isinstance(told_message, dict):
        parts["message"], without["message"] = _changes(message, told_message, "content")
        parts |= _content_changes(message, told_message, left_out, without["message"])
    found = new_passthrough(
        entry,
        told.id,
        fields=parts["fields"],
        message=parts.get("message"),
        insert=parts.get("insert", ()),
        replace=parts.get("replace", ()),
    )
    found |= ride_on
    if parts.get("merge"):
        found["merge"] = parts["merge"]
    if any(without.values()):
        found["without"] = {of: names for of, names in without.items() if names}
    return found


def _changes(wanted: Mapping[str, Any], told: Mapping[str, Any], *besides: str) -> tuple[Fields, list[str]]:
    """The fields to be put over what is told, and the names of those to be taken away."""
    changed = {
        name: value
        for name, value in wanted.items()
        if name not in besides and (name not in told or not _is_same(told[name], value))
    }
    return changed, [name for name in told if name not in besides and name not in wanted]


def _content_changes(message: Fields, told: Fields, left_out: Collection[int], missing: list[str]) -> Fields:
    if "content" not in message:
        missing += ["content"] if "content" in told else []
        return {}
    wanted, found = message["content"], told.get("content")
    if not isinstance(wanted, list) or not isinstance(found, list) or len(wanted) != len(found) + len(left_out):
        if _is_same(wanted, found):
            return {}
        changed, _ = _changes(message, told, "content")
        return {"message": {**changed, "content": wanted}}
    parts: Fields = {"insert": [(at, wanted[at]) for at in sorted(left_out)], "replace": [], "merge": []}
    standing = iter(found)
    for at, block in enumerate(wanted):
        if at in left_out:
            continue
        said = next(standing)
        if _is_same(said, block):
            continue
        if isinstance(said, dict) and isinstance(block, dict) and block.keys() >= said.keys():
            parts["merge"].append([at, {k: v for k, v in block.items() if k not in said or not _is_same(said[k], v)}])
        else:
            parts["replace"].append((at, block))
    return parts


def _is_same(one: Any, other: Any) -> bool:
    """Equal, and not only because Python takes True for 1."""
    return bool(one == other) and (type(one) is bool) is (type(other) is bool)


def restore_passthrough(entry: CanonicalEntry, found: Mapping[str, Any]) -> CanonicalEntry:
    """The item as it was, out of what its lines tell and their passthrough data."""
    if not found:
        return entry
    if _SELDOM.isdisjoint(found):
        return _put_back_plainly(entry, found)
    whole = isinstance(found.get("entry"), dict)
    told_on = {} if whole else object_in(entry.fields, PASSTHROUGH)
    entry = restore_entry(entry, {name: part for name, part in found.items() if name not in _OWN_PARTS})
    if whole:
        return entry
    without = object_in(dict(found), "without")
    fields = _but(entry.fields, without.get("item"))
    on = {**_but(told_on, without.get("rider")), **object_in(fields, PASSTHROUGH)}
    if on and isinstance(fields.get(PASSTHROUGH, {}), dict):
        fields[PASSTHROUGH] = on
    message = fields.get("message")
    if isinstance(message, dict):
        message = _but(message, without.get("message"))
        if isinstance(message.get("content"), list):
            message["content"] = _merged(message["content"], found.get("merge"))
        fields["message"] = message
    return CanonicalEntry(entry.kind, fields, entry.id, entry.timestamp, entry.aliases)


def _put_back_plainly(entry: CanonicalEntry, found: Mapping[str, Any]) -> CanonicalEntry:
    """The same for passthrough data with none of the parts that are seldom needed."""
    id = found.get("id")
    id = id if isinstance(id, str) and id else entry.id
    also = (*entry.aliases, entry.id) if id != entry.id and entry.id else entry.aliases
    fields = dict(entry.fields)
    told_on = fields.pop(PASSTHROUGH, None)
    on = {name: value for name, value in found.items() if name not in PARTS}
    if isinstance(told_on, dict):
        on = told_on | on
    if on:
        fields[PASSTHROUGH] = on
    message = fields.get("message")
    if isinstance(message, dict):
        changed = found.get("message")
        message = {**message, **changed} if isinstance(changed, dict) else dict(message)
        if "merge" in found and isinstance(message.get("content"), list):
            message["content"] = _merged(message["content"], found["merge"])
        fields["message"] = message
    return CanonicalEntry(entry.kind, fields, id, entry.timestamp, also)


def _but(fields: Fields, names: Any) -> Fields:
    """Some fields without those that a list names."""
    gone = names if isinstance(names, list) else []
    return {name: value for name, value in fields.items() if name not in gone}


def _merged(content: list[Any], changes: Any) -> list[Any]:
    blocks = list(content)
    for change in changes if isinstance(changes, list) else ():
        match change:
            case [int(at), dict(fields)] if 0 <= at < len(blocks) and isinstance(blocks[at], dict):
                blocks[at] = {**blocks[at], **fields}
    return blocks
