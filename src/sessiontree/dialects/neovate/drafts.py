"""An item as the bodies of its lines, with the riders they need, before they get a place in the file."""

from __future__ import annotations

from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.neovate.content import Call, Said, calls_of, say, say_result, say_stray_result
from sessiontree.dialects.neovate.content_decoder import hear_item, hear_result, heard_message, is_output
from sessiontree.dialects.neovate.deltas import applied
from sessiontree.dialects.neovate.metadata_lines import MARKS
from sessiontree.dialects.neovate.plain import plain_draft
from sessiontree.dialects.neovate.riding import Draft, extras_of, rider_for, without_extras


def draft(item: CanonicalEntry, uuid: str, timestamp: str, marks: dict[str, Any], *, is_root: bool) -> Draft | None:
    """Any item but a result that answers a call; None when it has to stand beside the tree."""
    plain = plain_draft(item, uuid, timestamp, marks)
    if plain is not None:
        return plain
    bare = without_extras(item)
    said = say_stray_result(bare.fields["message"]) if is_tool_result(bare) else say(bare)
    if said is None:
        return None
    extras = extras_of(item)
    bodies = _with_extras(said.bodies, extras)
    heard = hear_item(bodies, uuid, timestamp, is_root=is_root)
    if len(bodies) == 1 and is_output(bodies[0]):
        marks = {**marks, "alone": True}  # or it would be taken for what a command before it printed
    further = [{MARKS: {"part": True}} for _ in bodies[1:]]
    return Draft(bodies, [rider_for(bare, heard, said, marks), *further], said.notes, calls_of(bodies[0]))


def draft_result(item: CanonicalEntry, call: Call, id: str, timestamp: str) -> Draft:
    """A result as one part of a line; its rider stands among those of the line's results."""
    plain = plain_draft(item, id, timestamp, {}, call)
    if plain is not None:
        return plain
    bare = without_extras(item)
    said: Said = say_result(bare.fields["message"], call)
    extras = extras_of(item)
    (part,) = _with_extras(said.bodies, extras)
    heard = heard_message(hear_result(part), id, timestamp)
    return Draft([part], [rider_for(bare, heard, said, {})], said.notes)


def around_results(item: CanonicalEntry) -> dict[str, Any]:
    """What a line of results said beyond its results, kept by the first of them."""
    found = extras_of(item).get("around")
    return found if isinstance(found, dict) else {}


def role_of(item: CanonicalEntry) -> str:
    """The role of the message that an item holds; empty when it holds none."""
    message = item.fields.get("message") if item.kind == "message" else None
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def is_tool_result(item: CanonicalEntry) -> bool:
    return role_of(item) == "toolResult"


def _with_extras(bodies: list[dict[str, Any]], extras: dict[str, Any]) -> list[dict[str, Any]]:
    """Bodies with what their lines said beyond shared words when they came from Neovate."""
    whole, deltas = extras.get("bodies"), extras.get("lines")
    if isinstance(whole, list) and whole and all(isinstance(body, dict) for body in whole):
        return whole
    if isinstance(deltas, list) and len(deltas) == len(bodies):
        return [applied(body, delta) for body, delta in zip(bodies, deltas, strict=True)]
    return bodies
