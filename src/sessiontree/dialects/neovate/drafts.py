"""An item as the bodies of its lines, with the passthrough data they need, before they get a place in the file."""

from __future__ import annotations

from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.neovate.content import Call, Said, calls_of, say, say_result, say_stray_result
from sessiontree.dialects.neovate.content_decoder import hear_item, hear_result, heard_message, is_output
from sessiontree.dialects.neovate.deltas import applied
from sessiontree.dialects.neovate.metadata_lines import MARKS
from sessiontree.dialects.neovate.plain import plain_draft
from sessiontree.dialects.neovate.riding import Draft, build_passthrough, extras_of, without_extras


def draft(entry: CanonicalEntry, uuid: str, timestamp: str, marks: dict[str, Any], *, is_root: bool) -> Draft | None:
    """Any item but a result that answers a call; None when it has to stand beside the tree."""
    plain = plain_draft(entry, uuid, timestamp, marks)
    if plain is not None:
        return plain
    bare = without_extras(entry)
    said = say_stray_result(bare.fields["message"]) if is_tool_result(bare) else say(bare)
    if said is None:
        return None
    extras = extras_of(entry)
    bodies = _with_extras(said.bodies, extras)
    heard = hear_item(bodies, uuid, timestamp, is_root=is_root)
    if len(bodies) == 1 and is_output(bodies[0]):
        marks = {**marks, "alone": True}  # or it would be taken for what a command before it printed
    further = [{MARKS: {"part": True}} for _ in bodies[1:]]
    return Draft(bodies, [build_passthrough(bare, heard, said, marks), *further], said.notes, calls_of(bodies[0]))


def draft_result(entry: CanonicalEntry, call: Call, id: str, timestamp: str) -> Draft:
    """A result as one part of a line; its passthrough data stands among those of the line's results."""
    plain = plain_draft(entry, id, timestamp, {}, call)
    if plain is not None:
        return plain
    bare = without_extras(entry)
    said: Said = say_result(bare.fields["message"], call)
    extras = extras_of(entry)
    (part,) = _with_extras(said.bodies, extras)
    heard = heard_message(hear_result(part), id, timestamp)
    return Draft([part], [build_passthrough(bare, heard, said, {})], said.notes)


def around_results(entry: CanonicalEntry) -> dict[str, Any]:
    """What a line of results said beyond its results, kept by the first of them."""
    found = extras_of(entry).get("around")
    return found if isinstance(found, dict) else {}


def role_of(entry: CanonicalEntry) -> str:
    """The role of the message that an item holds; empty when it holds none."""
    message = entry.fields.get("message") if entry.kind == "message" else None
    role = message.get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def is_tool_result(entry: CanonicalEntry) -> bool:
    return role_of(entry) == "toolResult"


def _with_extras(bodies: list[dict[str, Any]], extras: dict[str, Any]) -> list[dict[str, Any]]:
    """Bodies with what their lines said beyond canonical form when they came from Neovate."""
    whole, deltas = extras.get("bodies"), extras.get("lines")
    if isinstance(whole, list) and whole and all(isinstance(body, dict) for body in whole):
        return whole
    if isinstance(deltas, list) and len(deltas) == len(bodies):
        return [applied(body, delta) for body, delta in zip(bodies, deltas, strict=True)]
    return bodies
