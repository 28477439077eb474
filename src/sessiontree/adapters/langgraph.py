"""A checkpoint saver for LangGraph: each thread is an ordinary session.

    graph = builder.compile(checkpointer=SessionTreeSaver("/srv/threads"))

A thread's messages become entries of the session, so that it can be listed, searched, converted and exported like any
other. Between them are entries of three types of our own:

    langgraph_checkpoint   a checkpoint: versions, metadata, and the values of the channels that changed
    langgraph_writes       the pending writes of one task
    langgraph_deleted      the checkpoints that were deleted; a session is only ever appended to

A value is stored once. A message is named by the id of its entry, a list by the checkpoint it extends and its new
items, and a large value by its hash in the blobs.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import logging
import math
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, field

try:
    from langchain_core import messages as chat_messages
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
except ImportError as error:
    raise ImportError("this needs LangGraph: pip install 'sessiontree[langgraph]'") from error

import sessiontree
from sessiontree.adapters.file_identity import file_identity
from sessiontree.core.ids import is_session_id, new_entry_id, timestamp
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.errors import AmbiguousError, DamagedError, InvalidEntryError, NotFoundError, ReplacedError
from sessiontree.session.blob_refs import PREFIX
from sessiontree.session.entry_input import parse_timestamp
from sessiontree.session.session import Session
from sessiontree.stores.contract import BlobStore, SessionStat, read_bytes
from sessiontree.stores.repositories import open_repository

Config: TypeAlias = Any
"""LangGraph's `RunnableConfig`."""
Ref: TypeAlias = dict[str, Any]
"""A stored value as JSON: `json`, `message`, `list`, `dict`, or a `type` of the serializer with `data` or `blob`."""
Name: TypeAlias = tuple[str, str]
"""Namespace and id of a checkpoint."""
MessageKey: TypeAlias = tuple[str, str | None]
"""Hash of a message without its id, and the id."""
ResultT = TypeVar("ResultT")

_log = logging.getLogger("sessiontree")

_CHECKPOINT = "langgraph_checkpoint"
_WRITES = "langgraph_writes"
_DELETED = "langgraph_deleted"
_THREAD = "langgraph_thread"
"""The name of a thread, where it cannot be the id of a session."""
_TYPES = frozenset({_CHECKPOINT, _WRITES, _DELETED, _THREAD})
_EXACT = "langgraph"
"""Field of a message's entry with what its class needs besides the shown message, and its hash."""
_SMALL = 1024
"""Values of fewer bytes are in the line of their checkpoint, others in blobs."""
_CREATION_LOCK = "adapters.lock"
"""The document whose update serializes the creation of sessions by name. It stays empty."""
_OPEN_THREADS = 64
_KEPT_LISTS = 8
_LONGEST_ID = 128
_OWN_KEYS = frozenset({"id", "ts", "channel_values", "channel_versions", "versions_seen"})
"""Parts of a checkpoint that have fields of their own; others are stored as they are."""
_HEAD_BYTES = 64 * 1024
_ATTEMPTS = 3


class SessionTreeSaver(BaseCheckpointSaver[int]):
    """A LangGraph checkpointer whose threads are sessions in a folder, or in a repository such as `postgresql://...`.

    Threads, processes and event loops may share the same threads. Blocking calls run in worker threads. Deleting a run
    and pruning hide checkpoints, their lines stay; `delete_thread` deletes the session.
    """

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        serde: Any = None,
    ) -> None:
        super().__init__(serde=serde)
        self._home = home
        self._cwd = cwd
        self._threads: OrderedDict[tuple[int, str], _Thread] = OrderedDict()
        self._lock = threading.Lock()
        self._shows_deleted = False

    # Reading

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        thread = self._find(_thread_of(config))
        if thread is None:
            return None
        with thread.lock:
            thread.refresh()
            namespace = config["configurable"].get("checkpoint_ns", "")
            id = get_checkpoint_id(config) or thread.latest(namespace)
            return None if id is None else self._tuple(thread, (namespace, id))

    def list(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        count = 0
        found_thread = None if config is None else self._find(_thread_of(config))
        for thread in self._all_threads() if config is None else [found_thread] if found_thread else []:
            with thread.lock:
                thread.refresh()
                names = thread.visible(None if config is None else config["configurable"].get("checkpoint_ns"))
            for name in names:
                if limit is not None and count >= limit:
                    return
                if config is not None and (wanted := get_checkpoint_id(config)) and name[1] != wanted:
                    continue
                if before is not None and (end := get_checkpoint_id(before)) and name[1] >= end:
                    continue
                with thread.lock:
                    if filter and not thread.matches(name, filter):
                        continue
                    found = self._tuple(thread, name)
                if found is not None:
                    count += 1
                    yield found

    def _tuple(self, thread: _Thread, name: Name) -> CheckpointTuple | None:
        stored = thread.checkpoints.get(name)
        if stored is None or (name in thread.deleted and not self._shows_deleted):
            return None
        values = {
            channel: thread.values.decode(thread.complete(value, channel))
            for channel, version in stored.versions.items()
            if (value := thread.value_of(name, channel, version)) is not None and value.value
        }
        writes = sorted(thread.writes.get(name, {}).items(), key=lambda one: writes_sort_key(one[1].path, *one[0]))
        return CheckpointTuple(
            config=_config(thread.name, name),
            checkpoint={
                **thread.values.decode(stored.rest),
                "id": name[1],
                "ts": stored.ts,
                "channel_values": values,
                "channel_versions": dict(stored.versions),
                "versions_seen": thread.values.decode(stored.seen),
            },
            metadata=thread.values.decode(stored.metadata),
            parent_config=None if stored.parent is None else _config(thread.name, (name[0], stored.parent)),
            pending_writes=[(key[0], one.channel, thread.values.decode(one.value)) for key, one in writes],
        )

    def get_delta_channel_history(self, *, config: Config, channels: Sequence[str]) -> Mapping[str, Any]:
        # A delta channel needs its whole parent chain, which is still there after pruning.
        complete = copy.copy(self)
        complete._shows_deleted = True
        found: Mapping[str, Any] = BaseCheckpointSaver.get_delta_channel_history(
            complete, config=config, channels=channels
        )
        return found

    # Writing

    def put(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]) -> Config:
        namespace = config["configurable"].get("checkpoint_ns", "")
        parent = config["configurable"].get("checkpoint_id")
        name = (namespace, checkpoint["id"])
        known = get_checkpoint_metadata(config, metadata)
        before = (namespace, parent) if parent else None

        def build(thread: _Thread) -> list[bytes]:
            values = checkpoint["channel_values"]
            batch = _Batch(thread)
            batch.position = thread.position(
                before, known, thread.values.hashes(batch, [values.get(channel) for channel in new_versions])
            )
            values = {channel: thread.encode_channel(batch, channel, before, values) for channel in new_versions}
            fields: dict[str, Any] = {"namespace": namespace} if namespace else {}
            fields |= {"parent": parent} if parent else {}
            fields |= {
                "versions": dict(checkpoint["channel_versions"]),
                "seen": thread.values.encode(batch, checkpoint["versions_seen"]),
                "rest": thread.values.encode(batch, {k: v for k, v in checkpoint.items() if k not in _OWN_KEYS}),
                "metadata": thread.values.encode(batch, known),
                "values": values,
            }
            return batch.render(_CHECKPOINT, fields, checkpoint["id"], checkpoint["ts"])

        self._write(_thread_of(config), build)
        return _config(_thread_of(config), name)

    def put_writes(self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        name = (config["configurable"].get("checkpoint_ns", ""), config["configurable"]["checkpoint_id"])

        def build(thread: _Thread) -> list[bytes]:
            known = thread.writes.get(name, {})
            batch = _Batch(thread, adds_messages=name in thread.checkpoints)
            new = [
                [number, channel, thread.values.encode(batch, value)]
                for index, (channel, value) in enumerate(writes)
                if (number := WRITES_IDX_MAP.get(channel, index)) < 0 or (task_id, number) not in known
            ]
            if not new:
                return []
            # Usually the position shows which checkpoint it is. But writes may be stored before theirs, or after the
            # next one: those must not become the current entry on a branch of their own.
            follows = name in thread.checkpoints and (batch.has_new or name not in thread.succeeded)
            fields: dict[str, Any] = {} if follows else {"namespace": name[0], "checkpoint": name[1]}
            fields |= {"task": task_id, **({"path": task_path} if task_path else {})}
            batch.position = thread.tail(name) if follows else thread.session.leaf
            return batch.render(_WRITES, {**fields, "writes": new})

        self._write(_thread_of(config), build)

    def delete_thread(self, thread_id: str) -> None:
        found = self._find(str(thread_id))
        self._forget(str(thread_id))
        if found is not None:
            with contextlib.suppress(NotFoundError):
                found.session.repository.delete(found.session.ref)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        wanted = {*run_ids}
        for thread in [*self._all_threads()] if wanted else []:
            self._hide(thread.name, lambda one: one.metadata_field("run_id") in wanted)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source = self._find(str(source_thread_id))
        if source is None:
            return
        with source.lock:
            source.refresh()
            journal = source.session.journal
            nodes = [node for node, kind in enumerate(journal.types) if kind != _THREAD]
            lines = [*journal.iter_lines(nodes)]
        self._write(str(target_thread_id), lambda _: lines)

    def prune(self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest") -> None:
        for id in thread_ids:
            if strategy == "delete":
                self.delete_thread(id)
            elif self._find(str(id)) is not None:
                self._hide(str(id), lambda one: one.name[1] != one.thread.latest(one.name[0]))

    def _hide(self, thread_id: str, condition: Callable[[_Candidate], bool]) -> None:
        def build(thread: _Thread) -> list[bytes]:
            names = [name for name in thread.visible(None) if condition(_Candidate(thread, name))]
            batch = _Batch(thread)
            batch.position = thread.session.leaf
            return batch.render(_DELETED, {"checkpoints": [list(name) for name in names]}) if names else []

        self._write(thread_id, build)

    # The same in coroutines

    async def aget_tuple(self, config: Config) -> CheckpointTuple | None:
        return await _run(self.get_tuple, config)

    async def alist(
        self,
        config: Config | None,
        *,
        filter: dict[str, Any] | None = None,
        before: Config | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await _run(next, found, None)) is not None:
            yield one

    async def aput(self, config: Config, checkpoint: Any, metadata: Any, new_versions: Mapping[str, Any]) -> Config:
        return await _run(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await _run(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await _run(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await _run(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await _run(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest"
    ) -> None:
        await _run(functools.partial(self.prune, strategy=strategy), thread_ids)

    async def aget_delta_channel_history(self, *, config: Config, channels: Sequence[str]) -> Mapping[str, Any]:
        return await _run(functools.partial(self.get_delta_channel_history, config=config, channels=channels))

    # Sessions

    def _write(self, thread_id: str, build: Callable[[_Thread], Sequence[bytes]]) -> None:
        """Append the lines that `build` returns in one write, with other writers excluded."""
        for attempt in range(_ATTEMPTS):
            thread = self._find(thread_id) or self._create(thread_id)
            try:
                with thread.lock, thread.session.journal.store.exclusive():
                    thread.refresh()
                    lines = build(thread)
                    if lines:
                        thread.session.append_lines(lines)
                return
            except ReplacedError:  # another process deleted the thread just now
                self._forget(thread_id)
                if attempt == _ATTEMPTS - 1:
                    raise
            except BaseException:
                self._forget(thread_id)  # the next call reads what was written
                raise

    def _find(self, thread_id: str) -> _Thread | None:
        with self._lock:
            found = self._threads.get((id(self.serde), thread_id))
        if found is not None:
            try:
                with found.lock:
                    found.refresh()
                return found
            except (NotFoundError, ReplacedError):
                self._forget(thread_id)
        opened = self._open(_session_id(thread_id))
        return None if opened is None else self._keep(_Thread(thread_id, opened, self.serde))

    def _open(self, id: str) -> Session | None:
        try:
            opened = sessiontree.open(open_repository(self._home).find(id))
        except (AmbiguousError, NotFoundError):  # none, or longer ids that start with this one
            return None
        return opened if opened.id == id else None

    def _create(self, thread_id: str) -> _Thread:
        id, repository = _session_id(thread_id), open_repository(self._home)
        opened: list[Session] = []

        def find_or_create(document: bytes | None) -> bytes | None:
            found = self._open(id)
            if found is None:
                found = sessiontree.create(self._cwd, id=id, home=self._home, appear="now")
                if id != thread_id:
                    found.append({"type": _THREAD, "thread": thread_id})
            opened.append(found)
            return document

        # File names contain a time, so two processes could create two sessions of one name.
        repository.documents.update(_CREATION_LOCK, find_or_create)
        return self._keep(_Thread(thread_id, opened[-1], self.serde))

    def _keep(self, thread: _Thread) -> _Thread:
        with self._lock:
            self._threads[id(thread.values.serde), thread.name] = thread  # LangGraph copies savers with another one
            while len(self._threads) > _OPEN_THREADS:
                self._threads.popitem(last=False)  # a call may still use it: it closes when the last one is done
        return thread

    def _forget(self, thread_id: str) -> None:
        with self._lock:
            self._threads.pop((id(self.serde), thread_id), None)

    def _all_threads(self) -> Iterator[_Thread]:
        repository = open_repository(self._home)
        for stat in sorted(repository.iter_stats(), key=_changed, reverse=True):
            try:
                if b'"langgraph_' not in read_bytes(repository.open(stat.ref), 0, _HEAD_BYTES):
                    continue
                session = sessiontree.open(stat.ref)
            except NotFoundError:  # deleted since it was listed
                continue
            first = next((id for id in session.ids if session.type_of(id) == _THREAD), None)
            name = session.id if first is None else str(session.fields(first).get("thread"))
            found = self._find(name)
            if found is not None:
                yield found


class _Write(Struct, frozen=True):
    channel: str
    value: Ref
    path: str


class _Stored(Struct, frozen=True):
    """The value of a channel, and the entry that contains it."""

    entry: str
    version: Any
    value: Ref


class _Checkpoint(Struct):
    """A checkpoint as it is stored."""

    entry: str
    parent: str | None
    ts: str
    versions: dict[str, Any]
    seen: Ref
    rest: Ref
    metadata: Ref
    values: dict[str, _Stored] = field(default_factory=dict)
    """By channel, those of earlier checkpoints included."""


class _Thread:
    """An open thread: its session and an index of its entries. Callers hold the lock."""

    def __init__(self, name: str, session: Session, serde: Any) -> None:
        self.name = name
        self.session = session
        self._identity = file_identity(session)
        self.lock = threading.RLock()
        self.values = _Values(self, serde)
        self.checkpoints: dict[Name, _Checkpoint] = {}
        self.writes: dict[Name, dict[tuple[str, int], _Write]] = {}
        self.deleted: set[Name] = set()
        self.succeeded: set[Name] = set()
        """Checkpoints that have children."""
        self.messages: dict[MessageKey, str] = {}
        """Entry of each message."""
        self.keys: dict[str, MessageKey] = {}
        """By entry."""
        self._by_version: dict[tuple[str, str, Any], _Stored] = {}
        self._owners: dict[str, Name] = {}
        """The checkpoint that an entry follows."""
        self._tails: dict[Name, list[str]] = {}
        """Entries that follow a checkpoint, up to the next ones."""
        self._lists: OrderedDict[tuple[str, str], list[Ref]] = OrderedDict()
        """Items of lists by entry and channel, for those used last."""
        self._stored: dict[tuple[str, str], Ref] = {}
        """Values by entry and channel."""
        self._read = 0

    def refresh(self) -> None:
        """Index the entries that were appended since the last call, by any process."""
        if file_identity(self.session) != self._identity:
            raise ReplacedError(f"{self.session.location}: was deleted or replaced. Open it again.")
        self.session.refresh()
        journal = self.session.journal
        nodes = [node for node in range(self._read, len(journal)) if journal.types[node] in _TYPES | {"message"}]
        self._read = len(journal)
        for node, fields in zip(nodes, journal.fields(nodes), strict=True):
            try:
                self._index(journal.types[node], journal.tree.ids[node], fields)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # Another program wrote it, or a line that it needs is lost: the rest of the thread is still there.
                place = f"{self.session.location}: {journal.tree.ids[node]}"
                _log.warning("%s: not a valid %s entry (%r); it is ignored", place, journal.types[node], error)

    def _index(self, kind: str, entry: str, fields: dict[str, Any]) -> None:
        namespace = fields.get("namespace", "")
        owner = self._owners.get(fields.get("parentId") or "")
        match kind:
            case "message":
                exact = fields.get(_EXACT)
                if exact:
                    self.keys[entry] = (exact["hash"], exact.get("id"))
                    self.messages[self.keys[entry]] = entry
            case "langgraph_checkpoint":
                owner = (namespace, fields.get("checkpoint", entry))
                self._index_checkpoint(owner, entry, fields)
            case "langgraph_writes":
                name = (namespace, fields["checkpoint"]) if "checkpoint" in fields else owner
                if name is None:
                    raise ValueError("its checkpoint is missing")
                stored = self.writes.setdefault(name, {})
                for number, channel, value in fields["writes"]:
                    self._index_messages(value)
                    stored[fields["task"], number] = _Write(channel, value, fields.get("path", ""))
            case "langgraph_deleted":
                self.deleted.update((one[0], one[1]) for one in fields["checkpoints"])
        if owner is not None:
            self._owners[entry] = owner
            if kind in ("message", _WRITES):
                self._tails.setdefault(owner, []).append(entry)

    def _index_checkpoint(self, name: Name, entry: str, fields: dict[str, Any]) -> None:
        parent = fields.get("parent")
        stored = _Checkpoint(
            entry,
            parent,
            fields.get("ts") or fields["timestamp"],
            fields["versions"],
            fields["seen"],
            fields["rest"],
            fields["metadata"],
        )
        before = self.checkpoints.get((name[0], parent)) if parent else None
        if parent:
            self.succeeded.add((name[0], parent))
        stored.values = {} if before is None else {**before.values}
        for channel, value in fields["values"].items():
            if "keep" in value:
                value["base"] = "" if before is None else before.values[channel].entry
            self._index_messages(value)
            version = stored.versions.get(channel)
            stored.values[channel] = self._by_version[name[0], channel, version] = _Stored(entry, version, value)
            self._stored[entry, channel] = value
        self.checkpoints[name] = stored
        self.deleted.discard(name)
        self._tails[name] = []

    def _index_messages(self, value: Ref) -> None:
        """Note the ids that messages got after they were stored without one."""
        for one in _messages_in(value):
            if "id" in one and one["message"] in self.keys:
                digest = self.keys[one["message"]][0]
                self.messages[digest, one["id"]] = one["message"]
                if self.messages.get((digest, None)) == one["message"]:
                    del self.messages[digest, None]  # an equal message without an id is another one from now on

    def damaged(self, what: str) -> DamagedError:
        return DamagedError(
            f"{self.session.location}: {what}; run `sessiontree doctor` on it, or use an older checkpoint"
        )

    # Questions

    def latest(self, namespace: str) -> str | None:
        return max((id for found, id in self.checkpoints.keys() - self.deleted if found == namespace), default=None)

    def visible(self, namespace: str | None) -> list[Name]:
        """The checkpoints of a namespace, or of all, newest first."""
        names = (name for name in self.checkpoints if name not in self.deleted)
        return sorted(
            (name for name in names if namespace is None or name[0] == namespace), key=lambda one: one[1], reverse=True
        )

    def matches(self, name: Name, wanted: Mapping[str, Any]) -> bool:
        metadata = self.values.decode(self.checkpoints[name].metadata)
        return all(metadata.get(key) == value for key, value in wanted.items())

    def value_of(self, name: Name, channel: str, version: Any) -> _Stored | None:
        """The value of a channel at a version, which the checkpoint or an earlier one stores."""
        known = self.checkpoints[name].values.get(channel)
        if known is not None and known.version == version:
            return known
        return self._by_version.get((name[0], channel, version))

    def complete(self, stored: _Stored, channel: str) -> Ref:
        """A value that depends on no other checkpoint."""
        return {"list": self.expand(stored.entry, channel)} if "keep" in stored.value else stored.value

    def tail(self, name: Name) -> str:
        """The last entry that follows a checkpoint."""
        following = self._tails[name]
        return following[-1] if following else self.checkpoints[name].entry

    def position(self, parent: Name | None, metadata: Mapping[str, Any], hashes: set[str]) -> str | None:
        """The entry that a new checkpoint follows: the last message of its parent's that it contains."""
        if parent is None:
            # The first checkpoint of a subgraph follows the one of the graph around it.
            around = [*(metadata.get("parents") or {}).items()]
            found = self.checkpoints.get(around[-1]) if around else None
            if found is not None:
                return found.entry
            return None if self.checkpoints else self.session.leaf
        stored = self.checkpoints.get(parent)
        if stored is None:
            return None
        last = stored.entry
        for entry in self._tails.get(parent, []):
            if entry in self.keys and self.keys[entry][0] not in hashes:
                break
            last = entry
        return last

    # Lists

    def encode_channel(self, batch: _Batch, channel: str, parent: Name | None, values: Mapping[str, Any]) -> Ref:
        """The value of a channel; a list as its difference to the one in the parent checkpoint."""
        if channel not in values:
            return {}
        value = values[channel]
        if type(value) is not list or not self.values.is_open:
            return self.values.encode(batch, value)
        before = self.checkpoints.get(parent) if parent else None
        stored = before.values.get(channel) if before is not None else None
        base = stored.entry if stored is not None and "list" in stored.value else None
        known = [] if base is None else [self.key_of(ref) for ref in self.expand(base, channel)]
        keep = 0
        for item, key in zip(value, known, strict=False):
            if (self.values.message_key(batch, item) or self.values.encode(batch, item)) != key:
                break
            keep += 1
        # The messages of a list are on the path of its checkpoint, in order: those of the base are by induction.
        path = self._messages_between(base, batch.position)
        items = [self.values.encode(batch, item, path) for item in value[keep:]]
        return {"list": items, "keep": keep} if keep else {"list": items}

    def key_of(self, ref: Ref) -> MessageKey | Ref:
        """What the item of a list is compared by."""
        if "message" not in ref:
            return ref
        digest, id = self.keys.get(ref["message"], ("", None))
        return digest, ref.get("id", id)

    def _messages_between(self, start: str | None, end: str | None) -> list[str]:
        """Entries of messages after one entry of a path, up to another."""
        found: list[str] = []
        while end is not None and end != start:
            if end in self.keys:
                found.append(end)
            end = self.session.parent(end)
        return found[::-1]

    def expand(self, entry: str, channel: str) -> list[Ref]:
        """All items of the list that an entry stores for a channel."""
        parts: list[Ref] = []
        key = (entry, channel)
        while key not in self._lists:
            part = self._stored.get(key)
            if part is None:
                raise self.damaged(f"the channel {channel!r} continues a checkpoint that is missing")
            parts.append(part)
            if "keep" not in part:
                break
            key = (part["base"], channel)
        items = [*self._lists.get(key, ())]
        for part in reversed(parts):
            items = [*items[: part.get("keep", 0)], *part["list"]]
        self._lists[entry, channel] = items
        while len(self._lists) > _KEPT_LISTS:
            self._lists.popitem(last=False)
        return items


class _Candidate(Struct, frozen=True):
    """A checkpoint that may be deleted."""

    thread: _Thread
    name: Name

    def metadata_field(self, key: str) -> Any:
        return self.thread.values.decode(self.thread.checkpoints[self.name].metadata).get(key)


class _Bare(Struct, frozen=True):
    """A message without its id, with the hash and the bytes of that."""

    original: Any
    message: Any
    digest: str
    serialized: tuple[str, bytes]


class _Batch:
    """Lines of one write: messages that are not stored yet, then an entry of our own."""

    def __init__(self, thread: _Thread, *, adds_messages: bool = True) -> None:
        self._thread = thread
        self._adds_messages = adds_messages
        """Whether new messages become entries: not where their place in the tree is unknown."""
        self._new: dict[MessageKey, tuple[str, dict[str, Any]]] = {}
        """Id and fields of new entries."""
        self._named: dict[str, str | None] = {}
        """Ids of messages that were stored without one."""
        self.bare: dict[int, _Bare] = {}
        """By the identity of their originals: a message is serialized once."""
        self.position: str | None = None
        """The entry that the lines follow."""

    @property
    def has_new(self) -> bool:
        """Whether the batch contains messages that were not stored before."""
        return bool(self._new)

    def message(self, key: MessageKey, fields: Callable[[], dict[str, Any]], path: list[str] | None) -> Ref | None:
        """Refer to a message that is stored, or that this batch stores. With a path, it is one of these entries.

        Entries of the path up to the message are removed from it, so that the next one follows. None if the message
        cannot be an entry.
        """
        if key in self._new:
            return {"message": self._new[key][0]}
        stored = self._thread.messages
        # LangGraph stores an input before its messages get ids: the same message, with another id.
        candidates = path if path is not None else [stored[one] for one in (key, (key[0], None)) if one in stored]
        for at, entry in enumerate(candidates):
            digest, id = self._thread.keys[entry]
            if digest == key[0] and (id == key[1] or (id is None and self._can_name(entry, key))):
                if path is not None:
                    del path[: at + 1]
                return {"message": entry} if id == key[1] else {"message": entry, "id": key[1]}
        if not self._adds_messages:
            return None
        self._new[key] = (self._free_id(), fields())
        return {"message": self._new[key][0]}

    def _can_name(self, entry: str, key: MessageKey) -> bool:
        """Whether an entry without an id is the message with this id: no other message was."""
        stored = self._thread.messages
        is_free = stored.get(key) == entry or stored.get((key[0], None)) == entry
        return is_free and self._named.setdefault(entry, key[1]) == key[1]

    def render(self, kind: str, fields: dict[str, Any], id: str = "", time: str = "") -> list[bytes]:
        """The lines: a chain of the new messages, then an entry with an id and time, if possible."""
        render, now, parent = self._thread.session.dialect.render_entry, timestamp(), self.position
        lines: list[bytes] = []
        for entry, message in self._new.values():
            lines.append(render("message", entry, parent, now, message))
            parent = entry
        if id and (id in self._thread.session or not is_session_id(id)):
            id, fields = "", {"checkpoint": id, **fields}
        if time and not _is_time(time):
            time, fields = "", {**fields, "ts": time}
        return [*lines, render(kind, id or self._free_id(), parent, time or now, fields)]

    def _free_id(self) -> str:
        used = {entry for entry, _ in self._new.values()}
        while (id := new_entry_id(self._thread.session.journal.tree.node_of)) in used:
            pass  # an id that this batch has given already
        return id


class _Values:
    """Encodes values as JSON and decodes them, exactly."""

    def __init__(self, thread: _Thread, serde: Any) -> None:
        self._thread = thread
        self.serde = serde
        self.is_open = type(serde) is JsonPlusSerializer
        """Whether values may be readable in the file: another serializer, for example, encrypts them."""

    @property
    def _blobs(self) -> BlobStore:
        return self._thread.session.repository.blobs

    def hashes(self, batch: _Batch, value: Any) -> set[str]:
        """Hashes of all messages in a value."""
        if type(value) in (list, dict) and self.is_open:
            items = value if type(value) is list else value.values()
            return {one for item in items for one in self.hashes(batch, item)}
        key = self.message_key(batch, value)
        return {key[0]} if key else set()

    def message_key(self, batch: _Batch, value: Any) -> MessageKey | None:
        """The key of a message; None for other values."""
        return (self._bare(batch, value).digest, value.id) if self.is_open and _role_of(value) else None

    def _bare(self, batch: _Batch, message: Any) -> _Bare:
        found = batch.bare.get(id(message))
        if found is None:
            bare = message.model_copy(update={"id": None})
            kind, data = self.serde.dumps_typed(bare)
            digest = base64.b64encode(sha256(kind.encode() + b"\0" + data).digest()[:18]).decode("ascii")
            found = batch.bare[id(message)] = _Bare(message, bare, digest, (kind, data))
        return found

    def encode(self, batch: _Batch, value: Any, path: list[str] | None = None) -> Ref:
        """A value as JSON; its messages are entries, with a path one of these or new ones."""
        if not self.is_open:
            return self._opaque(value)
        if _role_of(value):
            bare = self._bare(batch, value)
            ref = batch.message((bare.digest, value.id), lambda: self._message(bare, value.id), path)
            return self._opaque(value) if ref is None else ref
        if _is_json(value):
            return {"json": value} if len(render_json(value)) < _SMALL else self._opaque(value)
        if _contains_message(value):
            if type(value) is list:
                return {"list": [self.encode(batch, item) for item in value]}
            return {"dict": {key: self.encode(batch, item) for key, item in value.items()}}
        return self._opaque(value)

    def decode(self, ref: Ref) -> Any:
        entries = [*dict.fromkeys(one["message"] for one in _messages_in(ref))]
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
                return self._restore(fields, ref.get("id") or fields[_EXACT].get("id"))
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

    def _message(self, found: _Bare, id: str | None) -> dict[str, Any]:
        """The fields of a message's entry."""
        bare = found.message
        shown = _shown_message(bare)
        exact: dict[str, Any] = {"hash": found.digest} if id is None else {"hash": found.digest, "id": id}
        others = bare.model_dump(exclude={"content", "type", "id"}, exclude_defaults=True)
        fields = {"message": shown, _EXACT: {**exact, "class": type(bare).__name__, "fields": others}}
        if type(bare.content) is str and _is_json(others):
            with contextlib.suppress(ValueError):  # values that its class refuses to take from JSON
                if self.serde.dumps_typed(self._restore(parse_json(render_json(fields)), None)) == found.serialized:
                    return fields
        return {"message": shown, _EXACT: {**exact, **self._serialized(*found.serialized)}}

    def _restore(self, fields: Mapping[str, Any], id: str | None) -> Any:
        exact = fields[_EXACT]
        if "class" in exact:
            return _MESSAGE_CLASSES[exact["class"]](content=_text_of(fields["message"]), id=id, **exact["fields"])
        return self._restore_opaque(exact).model_copy(update={"id": id})


_MESSAGE_CLASSES: dict[str, Any] = {
    cls.__name__: cls for cls in (chat_messages.HumanMessage, chat_messages.AIMessage, chat_messages.ToolMessage)
}
_ROLES = {"HumanMessage": "user", "AIMessage": "assistant", "ToolMessage": "toolResult"}


def _role_of(value: Any) -> str:
    """The role of a message in a session; empty for values that are not shown as messages."""
    name = type(value).__name__
    if _MESSAGE_CLASSES.get(name) is not type(value) or type(value.id) not in (str, type(None)):
        return ""
    return _ROLES[name]


def _shown_message(message: Any) -> dict[str, Any]:
    text = message.text if isinstance(message.text, str) else message.text()
    content = message.content if type(message.content) is str else str(text)
    role = _role_of(message)
    if role == "user":
        return {"role": role, "content": content}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if content else []
    if role == "toolResult":
        names = {"toolCallId": message.tool_call_id, "toolName": message.name or ""}
        return {"role": role, **names, "content": blocks, "isError": message.status == "error"}
    calls = [
        {"type": "toolCall", "id": call["id"] or "", "name": call["name"], "arguments": call["args"]}
        for call in message.tool_calls
        if _is_json(call["args"])
    ]
    shown: dict[str, Any] = {"role": role, "content": [*blocks, *calls]}
    model = message.response_metadata.get("model_name")
    if isinstance(model, str):
        shown["model"] = model
    if message.usage_metadata:
        used = message.usage_metadata
        shown["usage"] = {"input": used["input_tokens"], "output": used["output_tokens"]}
    return {**shown, "stopReason": "toolUse" if calls else "stop"}


def _text_of(shown: Mapping[str, Any]) -> str:
    content = shown["content"]
    if isinstance(content, str):
        return content
    return next((str(block["text"]) for block in content if block["type"] == "text"), "")


def _is_json(value: Any) -> bool:
    """Whether JSON returns exactly this value, of the same types."""
    if value is None or type(value) in (bool, str, int):
        return True
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return all(map(_is_json, value))
    return type(value) is dict and all(type(key) is str and _is_json(item) for key, item in value.items())


def _contains_message(value: Any) -> bool:
    if type(value) is list:
        return any(map(_contains_message, value))
    if type(value) is dict:
        return all(type(key) is str for key in value) and any(map(_contains_message, value.values()))
    return bool(_role_of(value))


def _messages_in(ref: Ref) -> Iterator[Ref]:
    """The references to messages in a value."""
    match ref:
        case {"message": _}:
            yield ref
        case {"list": items}:
            for item in items:
                yield from _messages_in(item)
        case {"dict": items}:
            for item in items.values():
                yield from _messages_in(item)


def _is_time(text: object) -> bool:
    try:
        return isinstance(text, str) and parse_timestamp(text) is not None
    except InvalidEntryError:
        return False


def _thread_of(config: Config) -> str:
    return str(config["configurable"]["thread_id"])


def _config(thread: str, name: Name) -> Config:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": name[0], "checkpoint_id": name[1]}}


def _session_id(thread: str) -> str:
    """The id of a thread's session: its name if that is a valid id, else a readable part of it and a hash."""
    if is_session_id(thread) and len(thread) <= _LONGEST_ID:
        return thread
    readable = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in thread[:40]).strip("-")
    digest = sha256(thread.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{readable}-{digest}" if readable else digest


def _changed(stat: SessionStat) -> int:
    return stat.changed


async def _run(call: Callable[..., ResultT], *arguments: Any) -> ResultT:
    import anyio.to_thread  # works in asyncio and trio; a write that was started is finished when it is cancelled

    return await anyio.to_thread.run_sync(functools.partial(call, *arguments))
