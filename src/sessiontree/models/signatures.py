"""What a provider wants to see again with a block, in our one field for it, and back.

Each block has one text for that: `thinking_signature`, `text_signature`, `thought_signature`. What stands in it is
what Pi writes, so that it can go on with such a session, and we with one of its:

* Anthropic: the signature. Redacted thinking has it with `redacted`.
* OpenAI Responses: for thinking, the reasoning item as JSON; for text, JSON with the item's id and phase; for a call,
  JSON with the item's id (Pi puts that into the id of the call, which no other provider takes).
* OpenAI Chat Completions: for thinking, the name of the field it came in.
* Gemini: the signature, at whichever block it came with.

Pure functions over `Mark`, which is what the library keeps apart: an id, a signature, details.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from sessiontree.core.jsonio import JsonObject
from sessiontree.models.endpoints import Api


class Mark(Struct, frozen=True):
    """What belongs to a block of an answer besides its words."""

    id: str | None = None
    signature: str | None = None
    phase: str | None = None

    def __bool__(self) -> bool:
        return any((self.id, self.signature, self.phase))


NONE = Mark()


def render_thinking(api: Api, mark: Mark, text: str) -> str | None:
    match api:
        case "openai-responses":
            if not mark.id:
                return None
            item: JsonObject = {
                "type": "reasoning",
                "id": mark.id,
                "summary": [{"type": "summary_text", "text": text}] if text else [],
            }
            if mark.signature:
                item["encrypted_content"] = mark.signature
            return _json(item)
        case "openai-completions":
            return mark.id
        case _:
            return mark.signature


def parse_thinking(api: Api, written: str | None) -> Mark:
    if not written:
        return NONE
    match api:
        case "openai-responses":
            fields = _object(written)
            return Mark(_text(fields, "id"), _text(fields, "encrypted_content"))
        case "openai-completions":
            return Mark(id=written)
        case _:
            return Mark(signature=written)


def render_text(api: Api, mark: Mark) -> str | None:
    if api != "openai-responses":
        return mark.signature
    if not mark.id:
        return None
    fields: JsonObject = {"v": 1, "id": mark.id}
    if mark.phase:
        fields["phase"] = mark.phase
    return _json(fields)


def parse_text(api: Api, written: str | None) -> Mark:
    if not written:
        return NONE
    if api != "openai-responses":
        return Mark(signature=written)
    fields = _object(written)
    return Mark(_text(fields, "id"), None, _text(fields, "phase"))


def render_call(api: Api, mark: Mark) -> str | None:
    if api == "openai-responses":
        return _json({"id": mark.id}) if mark.id else None
    return mark.signature


def parse_call(api: Api, written: str | None) -> Mark:
    if not written:
        return NONE
    return Mark(_text(_object(written), "id")) if api == "openai-responses" else Mark(signature=written)


def _json(fields: JsonObject) -> str:
    # In ASCII: what is recorded may pass through programs that are not careful with anything else.
    return json.dumps(fields, separators=(",", ":"))


def _object(written: str) -> JsonObject:
    try:
        found: Any = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(fields: JsonObject, name: str) -> str | None:
    found = fields.get(name)
    return found if isinstance(found, str) and found else None
