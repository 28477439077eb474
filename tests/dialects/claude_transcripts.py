"""Transcripts that Claude Code's encoder writes for canonical entries, for the tests of the encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sessiontree.core.messages import Message, message_text
from sessiontree.dialects.canonical import CanonicalEntry, LossNote, SessionMeta
from sessiontree.dialects.claude import CLAUDE
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.session.journal import Journal
from sessiontree.stores.memory import MemoryStore

SESSION = "5e551011-0000-4000-8000-000000000001"
NIL = "00000000-0000-0000-0000-000000000000"
START = SessionMeta(SESSION, "2026-02-16T10:00:00.000Z", "/home/user/proj")
MS = 1771236001000
TIME = "2026-02-16T10:00:01.000Z"
CORPUS = Path(__file__).parent.parent / "corpus" / "claude"
SIGNATURE = "c2lnbmF0dXJl"
USAGE = {"input": 5, "output": 7, "cacheRead": 1, "cacheWrite": 2, "totalTokens": 15}


class Transcript:
    """The lines an encoder wrote for some entries, each a child of the one before unless a parent is given."""

    def __init__(self, start: SessionMeta = START, lines: Journal | None = None) -> None:
        self.encoder = CLAUDE.encoder(start, lines)
        self.raw: list[bytes] = list(self.encoder.prologue())
        self.ids: dict[str, str | None] = {}
        self.notes: list[LossNote] = []
        self.at: str | None = None

    def add(self, *entries: CanonicalEntry) -> Transcript:
        for entry in entries:
            self.add_at(entry, self.at)
        return self

    def add_at(self, entry: CanonicalEntry, parent: str | None) -> str | None:
        encoded = self.encoder.encode(entry, parent)
        self.raw += encoded.lines
        self.notes += encoded.notes
        self.at = self.ids[entry.id] = encoded.id
        return encoded.id

    def end(self, leaf: str | None = "") -> Transcript:
        self.raw += self.encoder.epilogue(self.at if leaf == "" else leaf)
        return self

    @property
    def data(self) -> bytes:
        return b"".join(line + b"\n" for line in self.raw)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.raw]

    @property
    def chain(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "uuid" in line]

    @property
    def journal(self) -> Journal:
        return journal_of(self.data)

    def decode(self, leaf: str | None = None) -> list[CanonicalEntry]:
        return decode(self.journal, leaf)

    def messages(self, leaf: str | None = None, read_options: ReadOptions = AS_CLIENT) -> tuple[Message, ...]:
        journal = self.journal
        node = CLAUDE.find_leaf(journal, read_options) if leaf is None else journal.tree.node_of[leaf]
        return CLAUDE.build_context(journal, node, read_options).messages

    def texts(self) -> list[str]:
        return [message_text(message) for message in self.messages()]


def journal_of(data: bytes) -> Journal:
    journal = Journal(MemoryStore(data), CLAUDE)
    journal.refresh()
    return journal


def decode(journal: Journal, leaf: str | None = None) -> list[CanonicalEntry]:
    node = CLAUDE.find_leaf(journal, AS_CLIENT) if leaf is None else journal.tree.node_of[leaf]
    return list(CLAUDE.decode(journal, CLAUDE.find_history(journal, node, AS_CLIENT)))


def comparable(entries: Sequence[CanonicalEntry]) -> list[tuple[str, dict[str, Any], str]]:
    return [(entry.kind, entry.fields, entry.id) for entry in entries]


def transcript_of(*entries: CanonicalEntry, start: SessionMeta = START) -> Transcript:
    return Transcript(start).add(*entries).end()


def entry(kind: str, id: str, **fields: Any) -> CanonicalEntry:
    return CanonicalEntry(kind, fields, id, TIME)


def message_entry(role: str, id: str, **fields: Any) -> CanonicalEntry:
    return entry("message", id, message={"role": role, **fields, "timestamp": MS})


def user(id: str, content: Any = "hello") -> CanonicalEntry:
    return message_entry("user", id, content=content)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": id, "name": name, "arguments": arguments}


def assistant(id: str, *blocks: dict[str, Any], **fields: Any) -> CanonicalEntry:
    common = {"api": "anthropic-messages", "provider": "anthropic", "model": "claude-x", "usage": USAGE}
    reason = "toolUse" if any(block["type"] == "toolCall" for block in blocks) else "stop"
    return message_entry("assistant", id, content=list(blocks), **{**common, "stopReason": reason, **fields})


def result(id: str, call_id: str, *blocks: dict[str, Any], **fields: Any) -> CanonicalEntry:
    content = list(blocks) or [text(f"result of {call_id}")]
    shape = {"toolCallId": call_id, "toolName": "Read", "content": content, "isError": False}
    return message_entry("toolResult", id, **{**shape, **fields})


def thinking(words: str, signature: str | None = SIGNATURE) -> dict[str, Any]:
    signed = {"thinkingSignature": signature} if signature else {}
    return {"type": "thinking", "thinking": words, **signed}


def compaction(id: str, first_kept: str | None, summary: str = "what happened", **fields: Any) -> CanonicalEntry:
    kept = {"firstKeptEntryId": first_kept} if first_kept else {}
    return entry("compaction", id, summary=summary, **kept, tokensBefore=1000, **fields)


def check_round_trip(*entries: CanonicalEntry) -> Transcript:
    transcript = transcript_of(*entries)
    assert comparable(transcript.decode()) == comparable(entries)
    return transcript
