"""Builders of entries and sessions for tests of Neovate's encoder, and Neovate's own rules for loading a session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.dialects.neovate import NEOVATE
from sessiontree.dialects.neovate.locations import session_id
from sessiontree.dialects.neovate.metadata_lines import find_metadata_lines
from sessiontree.session.journal import Journal
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryStore
from tests.builders import NOWHERE

TIME = "2026-02-16T10:00:01.000Z"
META = SessionMeta(id="019c0000-0000-7000-8000-00000000000a", timestamp=TIME, cwd="/src/project")
SESSION = session_id(META.id)
PIXEL = "iVBORw0KGgo="


# Neovate's loading rules (0.28.2), reimplemented without using our own code


def loaded(data: bytes, leaf: str | None = None) -> list[dict[str, Any]]:
    """The result of `loadSessionMessages` of 0.28: any bad line throws, responses with open calls are dropped.

    It always starts at the last message; a `leaf` shows what it would load if that were the last one.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in data.decode().split("\n") if line]
    messages = [line for line in lines if line["type"] == "message"]
    by_uuid = {line["uuid"]: line for line in messages}
    on_path: set[str] = set()
    current = by_uuid[leaf] if leaf is not None else messages[-1] if messages else None
    while current is not None:
        assert current["uuid"] not in on_path, "the client hangs"
        on_path.add(current["uuid"])
        current = by_uuid.get(current["parentUuid"])
    path = [line for line in messages if line["uuid"] in on_path]
    answered = {
        part["toolCallId"]
        for line in path
        if line["role"] == "tool"
        for part in line["content"]
        if part["type"] == "tool-result"
    }
    return [line for line in path if set(calls(line)) <= answered]


def calls(line: dict[str, Any]) -> list[str]:
    if line["role"] != "assistant" or not isinstance(line["content"], list):
        return []
    return [part["id"] for part in line["content"] if part["type"] == "tool_use"]


def sent(line: dict[str, Any]) -> None:
    """Check that there is nothing that makes `toLanguageV3Messages` throw."""
    content = line["content"]
    allowed = {
        "user": {"text", "image"},
        "assistant": {"text", "reasoning", "tool_use"},
        "tool": {"tool-result"},
        "system": set(),
    }
    if not isinstance(content, str):
        assert {part["type"] for part in content} <= allowed[line["role"]]


# Building


def user(id: str, content: Any = "hello", **fields: Any) -> CanonicalEntry:
    return message_entry(id, {"role": "user", "content": content, **fields})


def message_entry(id: str, message: dict[str, Any]) -> CanonicalEntry:
    return CanonicalEntry("message", {"message": {"timestamp": 1771236001000, **message}}, id, TIME)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": "read", "arguments": arguments}


def answer(id: str, *blocks: Any, **fields: Any) -> CanonicalEntry:
    has_calls = any(isinstance(block, dict) and block.get("type") == "toolCall" for block in blocks)
    usage = {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 0, "totalTokens": 18}
    about = {"provider": "anthropic", "model": "opus", "usage": usage, "stopReason": "toolUse" if has_calls else "stop"}
    return message_entry(id, {"role": "assistant", "content": list(blocks), **about, **fields})


def result(id: str, call: str, content: Any = None, **fields: Any) -> CanonicalEntry:
    given = [text("done")] if content is None else content
    about = {"toolCallId": call, "toolName": "read", "content": given, "isError": False}
    return message_entry(id, {"role": "toolResult", **about, **fields})


def entry(kind: str, id: str, /, **fields: Any) -> CanonicalEntry:
    return CanonicalEntry(kind, fields, id, TIME)


class Writer:
    """Drives an encoder as a conversion does: parents by the ids of the canonical entries."""

    def __init__(self, start: SessionMeta = META, existing: bytes | None = None) -> None:
        self.data = b"" if existing is None else existing
        self.start = start
        self.is_new = existing is None
        self.encoder = NEOVATE.encoder(start)
        self.ids: dict[str, str | None] = {}
        self.notes: list[LossNote] = []
        if self.is_new:
            self._put(self.encoder.prologue())

    def _put(self, lines: Sequence[bytes]) -> None:
        assert not any(b"\n" in line for line in lines)
        self.data += b"".join(line + b"\n" for line in lines)

    def add(self, item: CanonicalEntry, parent: str | None) -> Encoded:
        if not self.is_new:
            self.encoder = NEOVATE.encoder(self.start, journal(self.data))
        written = self.encoder.encode(item, self.ids.get(parent, parent) if parent is not None else None)
        if written.rewrite is not None:
            self.data = b""
            self._put(written.rewrite)
        self._put(written.lines)
        self.ids.update(dict.fromkeys((item.id, *item.aliases), written.id))
        self.notes += written.notes
        return written

    def chain(self, *items: CanonicalEntry, parent: str | None = None) -> Writer:
        for item in items:
            self.add(item, parent)
            parent = item.id
        return self

    def end(self, leaf: str | None) -> Writer:
        self._put(self.encoder.epilogue(self.ids.get(leaf) if leaf is not None else None))
        return self

    @property
    def session(self) -> Session:
        return open_store(MemoryStore(self.data, location=f"/p/{SESSION}.jsonl"), root=NOWHERE, dialect="neovate")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.data.decode().split("\n") if line]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == "message"]

    def decoded(self, id: str | None = None) -> list[CanonicalEntry]:
        """The decoded history of the current entry or another one."""
        found = journal(self.data)
        leaf = NEOVATE.find_leaf(found, AS_CLIENT)
        if id is not None:
            aside = find_metadata_lines(found).by_id.get(id)
            leaf = aside.node if aside is not None else found.tree.node_of[str(self.ids[id])]
        return list(NEOVATE.decode(found, NEOVATE.find_history(found, leaf, AS_CLIENT)))


def journal(data: bytes) -> Journal:
    found = Journal(MemoryStore(data, location=f"/p/{SESSION}.jsonl"), NEOVATE)
    found.refresh()
    return found


def written(*items: CanonicalEntry) -> Writer:
    writer = Writer().chain(*items)
    return writer.end(items[-1].id)


def plain(items: Sequence[CanonicalEntry]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(item.kind, item.id, item.fields) for item in items]


def continued(writer: Writer) -> Writer:
    return Writer(META, writer.data)
