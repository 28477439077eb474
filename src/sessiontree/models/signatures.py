"""Encode and decode the provider data that has to be sent back with a block: ids, signatures.

Each block has one text field for it: `thinking_signature`, `text_signature`, `thought_signature`. Its content is the
same as in Pi, so that either program can continue the other's sessions:

* Anthropic: the signature. Redacted thinking has it with `redacted`.
* OpenAI Responses: for thinking, the reasoning item as JSON; for text, JSON with the item's id and phase; for a call,
  JSON with the item's id. (Pi puts that into the call's id, which no other provider accepts.)
* OpenAI Chat Completions: for thinking, the name of the field it came in.
* Gemini: the signature, at the block it came with.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from sessiontree.core.jsonio import JsonObject
from sessiontree.models.endpoints import Api


class Mark(Struct, frozen=True):
    """Provider data of a block, as separate fields like in the library."""

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
    # ASCII only: the session may pass through programs that do not handle other characters correctly.
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
