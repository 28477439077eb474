"""What a line does not say of its item, as a rider; and the item again, from what was heard of the line.

Beyond the common parts of a rider (see `sessiontree.dialects.passthrough`), Neovate's lines have marks of their own
under `neovate`:

* `without`: fields that the item did not have;
* `order`: where the blocks of the line stood; `blocks`: what they said beyond the line (deltas); `plain`: the content
  was a text;
* `timestamp`: the item's own, where the line has another;
* `after`: the aside the line stands behind; `behind`: the line that a compaction follows; `root`: it is one on purpose;
* `part`: the line belongs to the item before; `copy`: it repeats what a compaction kept; `forked`: its mark of a fork
  is ours;
* `results`: a rider for each result of the line, `{"filler": true}` for one that we made up, `{"copy": true}` for one
  that another branch tells; `result`: how many results stood before this line, which had to wait for all of them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.neovate.content import Call, Said
from sessiontree.dialects.neovate.deltas import applied, difference
from sessiontree.dialects.neovate.metadata_lines import MARKS
from sessiontree.dialects.passthrough import RIDER, restored

EXTRAS = "neovate"
"""Under this name an item keeps what a line of Neovate said beyond shared words."""


class Draft(Struct, frozen=True, gc=False):
    """The bodies of an item's lines, each with its rider."""

    bodies: list[dict[str, Any]]
    riders: list[dict[str, Any]]
    notes: tuple[LossNote, ...] = ()
    calls: dict[str, Call] = {}
    """The calls of an answer, by id."""


def extras_of(item: CanonicalEntry) -> dict[str, Any]:
    """What an item keeps of the line of Neovate it comes from."""
    found = _riding(item).get(EXTRAS)
    return found if isinstance(found, dict) else {}


def without_extras(item: CanonicalEntry) -> CanonicalEntry:
    return (
        item
        if EXTRAS not in _riding(item)
        else _with_riding(item, {name: value for name, value in _riding(item).items() if name != EXTRAS})
    )


def with_extras(item: CanonicalEntry, extras: dict[str, Any]) -> CanonicalEntry:
    return _with_riding(item, {**_riding(item), EXTRAS: extras}) if extras else item


def rider_for(item: CanonicalEntry, heard: CanonicalEntry, said: Said, marks: dict[str, Any]) -> dict[str, Any]:
    """What the line has to carry so that `as_it_was` makes `item` of `heard`. `item` has no extras."""
    rider = dict(_riding(item))
    marks = dict(marks)
    if item.id and item.id != heard.id:
        rider["id"] = item.id
    if item.timestamp and item.timestamp != heard.timestamp:
        marks["timestamp"] = item.timestamp
    fields = {name: value for name, value in item.fields.items() if name != RIDER}
    if said.is_reworded or item.kind != heard.kind:
        rider["entry"] = {**fields, "type": item.kind}
    elif item.kind != "message":
        rider |= _named("fields", _changed(heard.fields, fields))
        marks |= _named("without", sorted(heard.fields.keys() - fields.keys()))
    else:
        message = fields.pop("message")
        if fields:
            rider["fields"] = fields
        _compare_messages(message, heard.fields["message"], said, rider, marks)
    if marks:
        rider[MARKS] = marks
    return rider


def _compare_messages(
    message: dict[str, Any], heard: dict[str, Any], said: Said, rider: dict[str, Any], marks: dict[str, Any]
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
            rider |= _named("insert", [[at, block] for at, block in said.left_out])
        elif isinstance(content, str) and given == [{"type": "text", "text": content}]:
            marks["plain"] = True
        else:
            changed["content"] = content
    if changed:
        rider["message"] = changed


def _changed(heard: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """The fields that are not heard, or heard differently."""
    return {
        name: value
        for name, value in fields.items()
        if name not in heard or heard[name] != value or type(heard[name]) is not type(value)
    }


def as_it_was(heard: CanonicalEntry, rider: dict[str, Any]) -> CanonicalEntry:
    """The item that a line was written for, without extras."""
    found = rider.get(MARKS)
    marks: dict[str, Any] = found if isinstance(found, dict) else {}
    item = restored(_unmarked(heard, marks), {name: value for name, value in rider.items() if name != MARKS})
    timestamp = marks.get("timestamp")
    return msgspec.structs.replace(item, timestamp=timestamp) if isinstance(timestamp, str) else item


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


def _riding(item: CanonicalEntry) -> dict[str, Any]:
    found = item.fields.get(RIDER)
    return found if isinstance(found, dict) else {}


def _with_riding(item: CanonicalEntry, riding: dict[str, Any]) -> CanonicalEntry:
    fields = {name: value for name, value in item.fields.items() if name != RIDER}
    return _with_fields(item, fields | _named(RIDER, riding))


def _with_fields(item: CanonicalEntry, fields: dict[str, Any]) -> CanonicalEntry:
    return msgspec.structs.replace(item, fields=fields)


def _named(name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value else {}
