"""Encode channel values as JSON, and decode them exactly."""

from __future__ import annotations

import base64
import contextlib
import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from msgspec import Struct

from sessiontree.adapters.langgraph.messages import (
    MESSAGE_CLASSES,
    contains_message,
    copy_message,
    is_json,
    is_same_message,
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


_KEPT_BYTES = 2 << 20
"""Total size of the lines whose messages an open thread keeps in memory."""


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
        """Whether values may be readable in the file: another serializer may encrypt them."""
        self._kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        """Messages by entry, with the size of their lines; those used last. Callers get copies."""
        self._kept_bytes = 0

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
        return (self._digest(batch, value), value.id) if self.is_open and role_of(value) else None

    def _digest(self, batch: Batch, message: Any) -> str:
        """The hash of a message without its id; that of an entry, if that is the same message."""
        found = batch.digests.get(id(message))
        if found is None:
            entry = self._thread.by_id.get(message.id)
            kept = None if entry is None else self._kept.get(entry)
            if entry is not None and kept is not None and is_same_message(message, kept[0]):
                digest = self._thread.keys[entry][0]
            else:
                digest = self._bare(batch, message).digest
            found = batch.digests[id(message)] = (message, digest)
        return found[1]

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
            key = (self._digest(batch, value), value.id)
            ref = batch.message(key, lambda: self._message(self._bare(batch, value), value.id), path)
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
        missing = next((entry for entry in entries if entry not in self._thread.keys), None)
        if missing is not None:
            raise self._thread.damaged(f"the message {missing} of a value is missing")
        return self._decode(ref, self._read_messages(entries))

    def _read_messages(self, entries: Sequence[str]) -> dict[str, Any]:
        """Messages by entry, which must not be changed; the fields of its line for one that only the serializer knows.

        In most threads the messages of a checkpoint are those of the one before, and one more.
        """
        found: dict[str, Any] = {entry: kept[0] for entry in entries if (kept := self._kept.get(entry)) is not None}
        for entry in found:
            self._kept.move_to_end(entry)
        journal = self._thread.session.journal
        unknown = [entry for entry in entries if entry not in found]
        nodes = [journal.tree.node_of[entry] for entry in unknown]
        for entry, fields, size in zip(unknown, journal.fields(nodes), journal.sizes(nodes), strict=True):
            found[entry] = fields
            if "class" in fields[EXACT]:
                found[entry] = self._restore(fields, fields[EXACT].get("id"))
                self._kept[entry] = (found[entry], size)
                self._kept_bytes += size
        while self._kept_bytes > _KEPT_BYTES:
            self._kept_bytes -= self._kept.popitem(last=False)[1][1]
        return found

    def forget(self, entry: str) -> None:
        """Drop the message of an entry, because a later line has its id."""
        self._kept_bytes -= self._kept.pop(entry, (None, 0))[1]

    def _decode(self, ref: Ref, messages: Mapping[str, Any]) -> Any:
        match ref:
            case {"json": value}:
                return copy.deepcopy(value)
            case {"message": entry}:
                message, id = messages[entry], ref.get("id") or self._thread.keys[entry][1]
                return self._restore(message, id) if type(message) is dict else copy_message(message, id)
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
        # As readable fields only if the class restores exactly the same bytes from them.
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
