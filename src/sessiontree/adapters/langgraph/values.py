"""Values of channels as JSON, and back, exactly."""

from __future__ import annotations

import base64
import contextlib
import copy
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from msgspec import Struct

from sessiontree.adapters.langgraph.messages import (
    MESSAGE_CLASSES,
    contains_message,
    is_json,
    role_of,
    shown_message,
    text_of,
)
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.session.blob_refs import PREFIX
from sessiontree.stores.contract import BlobStore

if TYPE_CHECKING:
    from sessiontree.adapters.langgraph.batch import Batch
    from sessiontree.adapters.langgraph.thread import Thread

Ref: TypeAlias = dict[str, Any]
"""A stored value as JSON: `json`, `message`, `list`, `dict`, or a `type` of the serializer with `data` or `blob`."""
MessageKey: TypeAlias = tuple[str, str | None]
"""Hash of a message without its id, and the id."""
EXACT = "langgraph"
"""Field of a message's entry with what its class needs besides the shown message, and its hash."""
_SMALL = 1024
"""Values of fewer bytes are in the line of their checkpoint, others in blobs."""


class BareMessage(Struct, frozen=True):
    """A message without its id, with the hash and the bytes of that."""

    original: Any
    message: Any
    digest: str
    serialized: tuple[str, bytes]


class Values:
    """Encodes values as JSON and decodes them, exactly."""

    def __init__(self, thread: Thread, serde: Any) -> None:
        self._thread = thread
        self.serde = serde
        self.is_open = type(serde) is JsonPlusSerializer
        """Whether values may be readable in the file: another serializer, for example, encrypts them."""

    @property
    def _blobs(self) -> BlobStore:
        return self._thread.session.repository.blobs

    def hashes(self, batch: Batch, value: Any) -> set[str]:
        """Hashes of all messages in a value."""
        if type(value) in (list, dict) and self.is_open:
            items = value if type(value) is list else value.values()
            return {one for item in items for one in self.hashes(batch, item)}
        key = self.message_key(batch, value)
        return {key[0]} if key else set()

    def message_key(self, batch: Batch, value: Any) -> MessageKey | None:
        """The key of a message; None for other values."""
        return (self._bare(batch, value).digest, value.id) if self.is_open and role_of(value) else None

    def _bare(self, batch: Batch, message: Any) -> BareMessage:
        found = batch.bare.get(id(message))
        if found is None:
            bare = message.model_copy(update={"id": None})
            kind, data = self.serde.dumps_typed(bare)
            digest = base64.b64encode(sha256(kind.encode() + b"\0" + data).digest()[:18]).decode("ascii")
            found = batch.bare[id(message)] = BareMessage(message, bare, digest, (kind, data))
        return found

    def encode(self, batch: Batch, value: Any, path: list[str] | None = None) -> Ref:
        """A value as JSON; its messages are entries, with a path one of these or new ones."""
        if not self.is_open:
            return self._opaque(value)
        if role_of(value):
            bare = self._bare(batch, value)
            ref = batch.message((bare.digest, value.id), lambda: self._message(bare, value.id), path)
            return self._opaque(value) if ref is None else ref
        if is_json(value):
            return {"json": value} if len(render_json(value)) < _SMALL else self._opaque(value)
        if contains_message(value):
            if type(value) is list:
                return {"list": [self.encode(batch, item) for item in value]}
            return {"dict": {key: self.encode(batch, item) for key, item in value.items()}}
        return self._opaque(value)

    def decode(self, ref: Ref) -> Any:
        entries = [*dict.fromkeys(one["message"] for one in messages_in(ref))]
        node_of = self._thread.session.journal.tree.node_of
        missing = next((entry for entry in entries if entry not in self._thread.keys), None)
        if missing is not None:
            raise self._thread.damaged(f"the message {missing} of a value is missing")
        fields = self._thread.session.journal.fields([node_of[entry] for entry in entries])
        return self._decode(ref, dict(zip(entries, fields, strict=True)))

    def _decode(self, ref: Ref, messages: Mapping[str, dict[str, Any]]) -> Any:
        match ref:
            case {"json": value}:
                return copy.deepcopy(value)
            case {"message": entry}:
                fields = messages[entry]
                return self._restore(fields, ref.get("id") or fields[EXACT].get("id"))
            case {"list": items}:
                return [self._decode(item, messages) for item in items]
            case {"dict": items}:
                return {key: self._decode(item, messages) for key, item in items.items()}
        return self._restore_opaque(ref)

    def _opaque(self, value: Any) -> Ref:
        return self._serialized(*self.serde.dumps_typed(value))

    def _serialized(self, kind: str, data: bytes) -> Ref:
        if len(data) < _SMALL:
            return {"type": kind, "data": base64.b64encode(data).decode("ascii")}
        return {"type": kind, "blob": PREFIX + self._blobs.put(data)}

    def _restore_opaque(self, ref: Ref) -> Any:
        if "blob" in ref:
            data = self._blobs.get(ref["blob"].removeprefix(PREFIX))
            if data is None:
                raise self._thread.damaged(f"the blob {ref['blob']} of a value is missing")
        else:
            data = base64.b64decode(ref["data"])
        return self.serde.loads_typed((ref["type"], data))

    # Messages

    def _message(self, found: BareMessage, id: str | None) -> dict[str, Any]:
        """The fields of a message's entry."""
        bare = found.message
        shown = shown_message(bare)
        exact: dict[str, Any] = {"hash": found.digest} if id is None else {"hash": found.digest, "id": id}
        others = bare.model_dump(exclude={"content", "type", "id"}, exclude_defaults=True)
        fields = {"message": shown, EXACT: {**exact, "class": type(bare).__name__, "fields": others}}
        if type(bare.content) is str and is_json(others):
            with contextlib.suppress(ValueError):  # values that its class refuses to take from JSON
                if self.serde.dumps_typed(self._restore(parse_json(render_json(fields)), None)) == found.serialized:
                    return fields
        return {"message": shown, EXACT: {**exact, **self._serialized(*found.serialized)}}

    def _restore(self, fields: Mapping[str, Any], id: str | None) -> Any:
        exact = fields[EXACT]
        if "class" in exact:
            return MESSAGE_CLASSES[exact["class"]](content=text_of(fields["message"]), id=id, **exact["fields"])
        return self._restore_opaque(exact).model_copy(update={"id": id})


def messages_in(ref: Ref) -> Iterator[Ref]:
    """The references to messages in a value."""
    match ref:
        case {"message": _}:
            yield ref
        case {"list": items}:
            for item in items:
                yield from messages_in(item)
        case {"dict": items}:
            for item in items.values():
                yield from messages_in(item)
