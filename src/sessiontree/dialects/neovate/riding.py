"""What a line does not say of its item, as passthrough data; and the item again, from what was heard of the line.

Beyond the common parts of passthrough data (see `sessiontree.dialects.passthrough`), Neovate's lines have marks of
their own under `neovate`:

* `without`: fields that the item did not have;
* `order`: where the blocks of the line stood; `blocks`: what they said beyond the line (deltas); `plain`: the content
  was a text;
* `timestamp`: the item's own, where the line has another;
* `after`: the aside the line stands behind; `behind`: the line that a compaction follows; `root`: it is one on purpose;
* `part`: the line belongs to the item before; `copy`: it repeats what a compaction kept; `forked`: its mark of a fork
  is ours;
* `results`: passthrough data for each result of the line, `{"filler": true}` for one that we made up, `{"copy": true}`
  for one that another branch tells; `result`: how many results stood before this line, which had to wait for all of
  them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.neovate.content import Call, Said
from sessiontree.dialects.neovate.deltas import applied, difference
from sessiontree.dialects.neovate.metadata_lines import MARKS
from sessiontree.dialects.passthrough import PASSTHROUGH, restore_entry

EXTRAS = "neovate"
"""Under this name an item keeps what a line of Neovate said beyond canonical form."""


class Draft(Struct, frozen=True, gc=False):
    """The bodies of an item's lines, each with its passthrough data."""

    bodies: list[dict[str, Any]]
    passthroughs: list[dict[str, Any]]
    notes: tuple[LossNote, ...] = ()
    calls: dict[str, Call] = {}
    """The calls of an answer, by id."""


def extras_of(entry: CanonicalEntry) -> dict[str, Any]:
    """What an item keeps of the line of Neovate it comes from."""
    found = _riding(entry).get(EXTRAS)
    return found if isinstance(found, dict) else {}


def without_extras(entry: CanonicalEntry) -> CanonicalEntry:
    return (
        entry
        if EXTRAS not in _riding(entry)
        else _with_riding(entry, {name: value for name, value in _riding(entry).items() if name != EXTRAS})
    )


def with_extras(entry: CanonicalEntry, extras: dict[str, Any]) -> CanonicalEntry:
    return _with_riding(entry, {**_riding(entry), EXTRAS: extras}) if extras else entry


def build_passthrough(
    entry: CanonicalEntry, heard: CanonicalEntry, said: Said, marks: dict[str, Any]
) -> dict[str, Any]:
    """What the line has to carry so that `as_it_was` makes `item` of `heard`. `item` has no extras."""
    passthrough = dict(_riding(entry))
    marks = dict(marks)
    if entry.id and entry.id != heard.id:
        passthrough["id"] = entry.id
    if entry.timestamp and entry.timestamp != heard.timestamp:
        marks["timestamp"] = entry.timestamp
    fields = {name: value for name, value in entry.fields.items() if name != PASSTHROUGH}
    if said.is_reworded or entry.kind != heard.kind:
        passthrough["entry"] = {**fields, "type": entry.kind}
    elif entry.kind != "message":
        passthrough |= _named("fields", _changed(heard.fields, fields))
        marks |= _named("without", sorted(heard.fields.keys() - fields.keys()))
    else:
        message = fields.pop("message")
        if fields:
            passthrough["fields"] = fields
        _compare_messages(message, heard.fields["message"], said, passthrough, marks)
    if marks:
        passthrough[MARKS] = marks
    return passthrough


def _compare_messages(
    message: dict[str, Any], heard: dict[str, Any], said: Said, passthrough: dict[str, Any], marks: dict[str, Any]
) -> None:
    changed = _changed(heard, message)
    if not heard.keys() <= message.keys():
        marks["without"] = sorted(heard.keys() - message.keys())
    if "content" in changed:
        content, given = changed.pop("content"), heard.get("content")
        if isinstance(content, list) and isinstance(given, list) and len(given) == len(said.order):
            deltas = [[at, difference(block, content[said.order[at]])] for at, block in enumerate(given)]
            marks |= _named("blocks", [[at, delta] for at, delta in deltas if delta is not None])
            marks |= {"order": list(said.order)} if list(said.order) != sorted(said.order) else {}
            passthrough |= _named("insert", [[at, block] for at, block in said.left_out])
        elif isinstance(content, str) and given == [{"type": "text", "text": content}]:
            marks["plain"] = True
        else:
            changed["content"] = content
    if changed:
        passthrough["message"] = changed


def _changed(heard: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not heard, or heard differently."""
    return {
        name: value
        for name, value in fields.items()
        if name not in heard or heard[name] != value or type(heard[name]) is not type(value)
    }


def as_it_was(heard: CanonicalEntry, passthrough: dict[str, Any]) -> CanonicalEntry:
    """The item that a line was written for, without extras."""
    found = passthrough.get(MARKS)
    marks: dict[str, Any] = found if isinstance(found, dict) else {}
    entry = restore_entry(
        _unmarked(heard, marks), {name: value for name, value in passthrough.items() if name != MARKS}
    )
    timestamp = marks.get("timestamp")
    return msgspec.structs.replace(entry, timestamp=timestamp) if isinstance(timestamp, str) else entry


def _unmarked(heard: CanonicalEntry, marks: dict[str, Any]) -> CanonicalEntry:
    listed = marks.get("without")
    without = listed if isinstance(listed, list) else []
    message = heard.fields.get("message")
    if not isinstance(message, dict):
        return _with_fields(heard, {name: value for name, value in heard.fields.items() if name not in without})
    message = {name: value for name, value in message.items() if name not in without}
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = _unmarked_content(content, marks)
    return _with_fields(heard, {**heard.fields, "message": message})


def _unmarked_content(content: list[Any], marks: dict[str, Any]) -> Any:
    if marks.get("plain") is True and len(content) == 1 and isinstance(content[0], dict):
        return content[0].get("text", "")
    content = applied(content, {"at": marks.get("blocks", [])})
    order = marks.get("order")
    if isinstance(order, list) and len(order) == len(content) and all(isinstance(at, int) for at in order):
        content = [block for _, block in sorted(zip(order, content, strict=True), key=lambda pair: pair[0])]
    return content


def _riding(entry: CanonicalEntry) -> dict[str, Any]:
    found = entry.fields.get(PASSTHROUGH)
    return found if isinstance(found, dict) else {}


def _with_riding(entry: CanonicalEntry, riding: dict[str, Any]) -> CanonicalEntry:
    fields = {name: value for name, value in entry.fields.items() if name != PASSTHROUGH}
    return _with_fields(entry, fields | _named(PASSTHROUGH, riding))


def _with_fields(entry: CanonicalEntry, fields: dict[str, Any]) -> CanonicalEntry:
    return msgspec.structs.replace(entry, fields=fields)


def _named(name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value else {}
