"""A conversation store for Pydantic AI: `TreeConversationStore`.

from sessiontree.adapters.pydantic_ai import TreeConversationStore

store = TreeConversationStore()
conversation = await store.load("user-123") or Conversation(conversation_id="user-123")
result = await agent.run("hello", conversation=conversation)
await store.save(result)

A conversation is a session, and its branches are branches of the session's tree. Each entry keeps its id; the message
is stored as ordinary messages that every command reads, and completely as passthrough data. The record is passthrough
data of the line that makes its head the current entry, so entries and record are one write. A fork is a fork of the
session: a copy of the history in which entries keep their ids. Deleting a conversation deletes its session with all
entries; forks keep their copies.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

try:
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessage, ModelResponse
except ImportError as error:
    raise ImportError("this needs Pydantic AI: pip install 'sessiontree[pydantic-ai]'") from error

from sessiontree.adapters.named_session import NamedSession, session_id_of
from sessiontree.adapters.worker_threads import run_read, run_write
from sessiontree.core.ids import now_ms
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import ToolCall
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of
from sessiontree.errors import InvalidEntryError, NotFoundError
from sessiontree.models.endpoints import Api
from sessiontree.models.facts import Prices
from sessiontree.models.from_provider import block_of, usage_of
from sessiontree.session.entry_input import Durability
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionStat
from sessiontree.stores.repositories import open_repository

_NAME = "pydantic-ai"
"""The name under which passthrough data holds messages and records."""
_SUFFIX = ".pydantic-ai"
"""The end of the ids of the sessions of conversations, so that listing them opens no other session."""
_OPEN_SESSIONS = 64
"""Number of sessions that stay open."""
_APIS: dict[str, Api] = {
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
    "google-gla": "google-generative-ai",
    "openai": "openai-responses",
}

_record_adapter = TypeAdapter(ConversationRecord)
_message_adapter: TypeAdapter[ModelMessage] = TypeAdapter(ModelMessage)


class TreeConversationStore(ConversationStore):
    """Conversations as ordinary sessions of this package.

    `home` is a folder or an address such as `memory:team` or `postgresql://host/db`; by default the home folder.
    Threads, event loops and processes may share the conversations.
    """

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        durability: Durability = "turn",
    ) -> None:
        # A separate object, so that its attributes cannot clash with those of a later version of the base class.
        self._conversations = _Conversations(home, cwd, durability)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record for a conversation, or `None` if the store doesn't have it."""
        return await run_read(lambda: self._conversations.read_record(conversation_id))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """The stored records, or those with a scope, newest first."""
        return await run_read(lambda: self._conversations.read_records(scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries in one write, if the stored revision is the expected one."""
        await run_write(lambda: self._conversations.write_record(record, new_entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation's session with all of its entries. Forks have copies of the entries they share."""
        await run_write(lambda: self._conversations.delete_record(conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """The entry with this id; `LookupError` if no conversation has it."""
        (entry,) = await run_read(lambda: self._conversations.read_history(entry_id, 1))
        return entry

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to `head_id`, or only the last `limit` of them, in one read."""
        if head_id is None or limit == 0:
            return []
        return await run_read(lambda: self._conversations.read_history(head_id, limit))


class _Conversations:
    """The blocking parts, which run in worker threads."""

    def __init__(
        self, home: str | os.PathLike[str] | None, cwd: str | os.PathLike[str] | None, durability: Durability
    ) -> None:
        self._home = home
        self._cwd = cwd
        self._durability = durability
        self._lock = threading.Lock()
        self._open: OrderedDict[str, NamedSession] = OrderedDict()
        """By session id, the most recently used last."""
        self._listed: dict[str, tuple[SessionStat, JsonObject | None]] = {}

    def read_record(self, conversation_id: str) -> ConversationRecord | None:
        with self._session_of(_session_id(conversation_id)).reading() as session:
            found = None if session is None else _stored_record(session)
        return None if found is None else _record_adapter.validate_python(found)

    def read_records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        listed: dict[str, tuple[SessionStat, JsonObject | None]] = {}
        for stat in open_repository(self._home).iter_stats():
            if not stat.id.endswith(_SUFFIX):
                continue
            known = self._listed.get(stat.id)
            if known is None or known[0] != stat:
                with self._session_of(stat.id).reading() as session:
                    known = (stat, None if session is None else _stored_record(session))
            listed[stat.id] = known
        self._listed = listed
        records = [_record_adapter.validate_python(found) for _, found in listed.values() if found is not None]
        chosen = [record for record in records if scope is None or record.scope == scope]
        chosen.sort(key=lambda record: record.updated_at, reverse=True)
        return chosen[:limit]

    def write_record(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected_revision: str | None
    ) -> None:
        conflict = ConversationConflict(record.conversation_id)
        stored = _record_adapter.dump_python(record, mode="json")
        chains = _chains(new_entries)
        bases = [base for base, _ in chains] or [record.head_id]
        named = self._session_of(_session_id(record.conversation_id))
        with named.reading() as session:
            is_new = session is None
            if _revision(session) != expected_revision:
                raise conflict
        new_ids = {entry.id for entry in new_entries}
        # Entries of other conversations that this one continues or points at are copied, as in a fork.
        outside = [id for id in dict.fromkeys([*bases, record.head_id]) if id is not None and id not in new_ids]
        sources = {id: self._holder_of(id, first=named) for id in outside}
        if record.head_id is not None and sources.get(record.head_id, named) is None:
            raise conflict

        forked = next((id for id in outside if sources[id] is not None), None) if is_new else None

        def create() -> Session:
            source = None if forked is None else sources[forked]
            if source is None:
                return named.new()
            with source.reading() as origin:
                if origin is None or forked is None or forked not in origin:
                    raise conflict
                return origin.fork(forked, id=named.id)

        # The lines of a fork's origin are copied by `create`, one by one.
        missing = {
            id: self._lines_to(id, source)
            for id, source in sources.items()
            if source not in (None, named) and id != forked
        }
        with named.writing(create) as session:
            # Compared again, now that no other writer can change it.
            if _revision(session) != expected_revision:
                raise conflict
            for id, lines in missing.items():
                if id not in session:
                    session.append_lines(lines)
            if record.head_id is not None and record.head_id not in session and record.head_id not in new_ids:
                raise conflict
            move = CanonicalEntry("leaf", {"targetId": record.head_id, PASSTHROUGH: {_NAME: {"record": stored}}})
            _append(session, chains, move, record.head_id)

    def delete_record(self, conversation_id: str, expected_revision: str) -> None:
        named = self._session_of(_session_id(conversation_id))
        with named.reading() as session:
            if session is None or _revision(session) != expected_revision:
                raise ConversationConflict(conversation_id)
        with named.writing() as session:
            if _revision(session) != expected_revision:
                raise ConversationConflict(conversation_id)
            # Writers that have the session open find this line; one that opens it later finds no session.
            session.append_all(
                [CanonicalEntry("leaf", {"targetId": None, PASSTHROUGH: {_NAME: {"record": None}}})], None
            )
            ref = session.ref
        named.forget()
        with contextlib.suppress(NotFoundError):  # another process was faster
            named.repository.delete(ref)

    def read_history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        holder = self._holder_of(head_id)
        if holder is None:
            raise LookupError(head_id)
        with holder.reading() as session:
            if session is None or head_id not in session:
                raise LookupError(head_id)
            return _entries_to(session, head_id, limit)

    # Sessions

    def _session_of(self, session_id: str) -> NamedSession:
        with self._lock:
            named = self._open.pop(session_id, None)
            if named is None:
                named = NamedSession(session_id, self._home, cwd=self._cwd, durability=self._durability)
            self._open[session_id] = named
            while len(self._open) > _OPEN_SESSIONS:
                self._open.popitem(last=False)
            return named

    def _holder_of(self, entry_id: str, first: NamedSession | None = None) -> NamedSession | None:
        """The session of a conversation that has an entry: usually one that was just used."""
        with self._lock:
            known = [*([] if first is None else [first]), *reversed(self._open.values())]
        seen: set[str] = set()
        for named in known:
            if named.id not in seen and _has_entry(named, entry_id):
                return named
            seen.add(named.id)
        for stat in open_repository(self._home).iter_stats():
            if stat.id.endswith(_SUFFIX) and stat.id not in seen:
                named = self._session_of(stat.id)
                if _has_entry(named, entry_id):
                    return named
        return None

    def _lines_to(self, entry_id: str, source: NamedSession | None) -> list[bytes]:
        assert source is not None
        with source.reading() as session:
            return [] if session is None or entry_id not in session else [*map(session.raw, session.path_ids(entry_id))]


def _session_id(conversation_id: str) -> str:
    return session_id_of(conversation_id) + _SUFFIX


def _has_entry(named: NamedSession, entry_id: str) -> bool:
    with named.reading() as session:
        return session is not None and entry_id in session and _stored_record_or_fork(session)


def _stored_record_or_fork(session: Session) -> bool:
    """Whether the conversation of a session was not deleted."""
    found = _last_record(session)
    return found is None or found["record"] is not None


def _revision(session: Session | None) -> str | None:
    record = None if session is None else _stored_record(session)
    return None if record is None else str(record["revision"])


def _stored_record(session: Session) -> JsonObject | None:
    found = _last_record(session)
    return None if found is None else found["record"]


def _last_record(session: Session) -> JsonObject | None:
    """The passthrough data of the last move that has a record; usually the last line."""
    journal = session.journal
    for node in range(len(journal) - 1, -1, -1):
        if journal.types[node] == "leaf":
            (fields,) = journal.resolved_fields([node])
            found = passthrough_of(fields).get(_NAME)
            if isinstance(found, dict) and "record" in found:
                return found
    return None


def _entries_to(session: Session, head_id: str, limit: int | None) -> list[ConversationEntry]:
    journal = session.journal
    parents, types, ids = journal.tree.parents(), journal.types, journal.tree.ids
    found: list[ConversationEntry] = []
    node = session.node_of(head_id)
    while node is not None and (limit is None or len(found) < limit):
        step: list[int] = []
        while node is not None and len(step) < (256 if limit is None else max(16, limit)):
            if types[node] == "message":
                step.append(node)
            node = parents[node]
        for at, fields in zip(step, journal.resolved_fields(step), strict=True):
            carried = passthrough_of(fields).get(_NAME)
            if isinstance(carried, dict) and "message" in carried:  # else a part of the message after it
                message = _message_adapter.validate_python(carried["message"])
                found.append(ConversationEntry(id=ids[at], parent_id=carried.get("parent"), message=message))
    if not found:
        raise LookupError(head_id)
    return found[:limit][::-1]


def _chains(entries: Sequence[ConversationEntry]) -> list[tuple[str | None, list[CanonicalEntry]]]:
    """Entries in runs in which each is the child of the one before, each run with its parent."""
    chains: list[tuple[str | None, list[CanonicalEntry]]] = []
    last: str | None = None
    for entry in entries:
        if not entry.id or is_metadata_id(entry.id) or not entry.id.isprintable():
            raise InvalidEntryError(f"{entry.id[:80]!r} cannot be the id of an entry")
        if not chains or entry.parent_id != last:
            chains.append((entry.parent_id, []))
        chains[-1][1].extend(_encode(entry))
        last = entry.id
    return chains


def _append(
    session: Session,
    chains: list[tuple[str | None, list[CanonicalEntry]]],
    move: CanonicalEntry,
    head_id: str | None,
) -> None:
    """Append entries and the move to the head, in one write if the head is the last of a single run."""
    for base, entries in chains:
        while entries and entries[0].id in session:  # written by an earlier attempt
            base, entries = entries[0].id, entries[1:]
        if entries and entries[-1].id == head_id and len(chains) == 1:
            session.append_all([*entries, move], base)
            return
        if entries:
            session.append_all(entries, base)
    session.append_all([move], head_id)


def _encode(entry: ConversationEntry) -> list[CanonicalEntry]:
    """Canonical entries of a message: a request with several parts becomes several, the last of which has its id."""
    data = {"message": _message_adapter.dump_python(entry.message, mode="json"), "parent": entry.parent_id}
    bodies = _messages_of(entry.message)
    found = [CanonicalEntry("message", {"message": body}, f"{entry.id}.{at}") for at, body in enumerate(bodies, 1)]
    return [
        *found[:-1],
        CanonicalEntry("message", {"message": bodies[-1], PASSTHROUGH: {_NAME: data}}, entry.id),
    ]


# Ordinary messages for those of Pydantic AI


def _messages_of(message: ModelMessage) -> list[JsonObject]:
    if isinstance(message, ModelResponse):
        return [_assistant(message)]
    bodies = [_request_part(part) for part in message.parts]
    return bodies or [{"role": "custom", "customType": f"{_NAME}.request", "content": "", "timestamp": now_ms()}]


def _assistant(response: ModelResponse) -> JsonObject:
    api = _APIS.get(response.provider_name or "", "openai-completions")
    blocks = [block for part in response.parts if (block := block_of(part, api)) is not None]
    has_calls = any(isinstance(block, ToolCall) for block in blocks)
    body: JsonObject = {
        "role": "assistant",
        "content": msgspec.to_builtins(blocks),
        "api": api,
        "stopReason": "toolUse" if has_calls else "stop",
        "timestamp": int(response.timestamp.timestamp() * 1000),
        "usage": msgspec.to_builtins(usage_of(response.usage, Prices())),
    }
    if response.provider_name:
        body["provider"] = response.provider_name
    if response.model_name:
        body["model"] = response.model_name
    return body


def _request_part(part: Any) -> JsonObject:
    timestamp = getattr(part, "timestamp", None)
    body: JsonObject = {"timestamp": now_ms() if timestamp is None else int(timestamp.timestamp() * 1000)}
    match part.part_kind:
        case "system-prompt":
            return {"role": "system", "content": part.content, **body}
        case "user-prompt":
            return {"role": "user", "content": _blocks(part.content), **body}
        case "tool-return" | "retry-prompt" if getattr(part, "tool_name", None):
            is_error = part.part_kind == "retry-prompt" or getattr(part, "outcome", "success") != "success"
            text = part.model_response() if is_error else part.model_response_str()
            return {
                "role": "toolResult",
                "toolCallId": part.tool_call_id,
                "toolName": part.tool_name,
                "content": [{"type": "text", "text": str(text)}],
                "isError": is_error,
                **body,
            }
        case "retry-prompt":
            return {"role": "user", "content": [{"type": "text", "text": part.model_response()}], **body}
        case kind:
            content = getattr(part, "content", "")
            text = content if isinstance(content, str) else repr(content)
            return {"role": "custom", "customType": f"{_NAME}.{kind}", "content": text, "display": True, **body}


def _blocks(content: Any) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    for part in [content] if isinstance(content, str) else content:
        if isinstance(part, str):
            blocks.append({"type": "text", "text": part})
        elif getattr(part, "kind", "") == "binary" and part.is_image:
            blocks.append({"type": "image", "mimeType": part.media_type, "data": part.base64})
        else:
            shown = getattr(part, "url", None) or getattr(part, "media_type", None) or type(part).__name__
            blocks.append({"type": "text", "text": f"[{getattr(part, 'kind', 'content')}: {shown}]"})
    return blocks
