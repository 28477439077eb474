"""Sessions of a client that keeps each one in a JSON document."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping

import msgspec

from parrot import Parrot
from sessiontree.dialects.storage import LINE_FILE, Document, Storage


def _lines(document: bytes) -> Iterator[bytes]:
    chat = json.loads(document)
    messages = chat.pop("messages")
    yield json.dumps(chat).encode()
    for message in messages:
        yield json.dumps(message).encode()


class Crow(Parrot):
    name = "crow"
    traits = msgspec.structs.replace(Parrot.traits, session_names=(".crow.json",))

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return (os.path.join(environment.get("AVIARY") or "/nowhere", "crow"),)

    def storage(self, path: str) -> Storage:
        return Document(_lines) if path.endswith(".crow.json") else LINE_FILE


CROW = Crow()
