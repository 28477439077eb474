"""The checkpoint saver that LangGraph calls."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

try:
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
        writes_sort_key,
    )
except ImportError as error:
    raise ImportError("this needs LangGraph: pip install 'sessiontree[langgraph]'") from error

import sessiontree
from sessiontree.adapters.langgraph.batch import Batch
from sessiontree.adapters.langgraph.thread import CHECKPOINT, DELETED, THREAD, WRITES, Name, Thread
from sessiontree.adapters.worker_threads import run_write
from sessiontree.core.ids import is_session_id
from sessiontree.errors import AmbiguousError, NotFoundError, ReplacedError
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionStat, read_bytes
from sessiontree.stores.repositories import open_repository

Config: TypeAlias = Any
"""LangGraph's `RunnableConfig`."""
ResultT = TypeVar("ResultT")

_CREATION_LOCK = "adapters.lock"
"""The document whose update serializes the creation of sessions by name. It stays empty."""
_OPEN_THREADS = 64
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
        self._threads: OrderedDict[tuple[int, str], Thread] = OrderedDict()
        self._lock = threading.Lock()
        self._shows_deleted = False

    # Reading

    def get_tuple(self, config: Config) -> CheckpointTuple | None:
        thread = self._find(_thread_of(config))
        if thread is None:
            return None
        with thread.lock:
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

    def _tuple(self, thread: Thread, name: Name) -> CheckpointTuple | None:
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

        def build(thread: Thread) -> list[bytes]:
            values = checkpoint["channel_values"]
            batch = Batch(thread)
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
            return batch.render(CHECKPOINT, fields, checkpoint["id"], checkpoint["ts"])

        self._write(_thread_of(config), build)
        return _config(_thread_of(config), name)

    def put_writes(self, config: Config, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        name = (config["configurable"].get("checkpoint_ns", ""), config["configurable"]["checkpoint_id"])

        def build(thread: Thread) -> list[bytes]:
            known = thread.writes.get(name, {})
            batch = Batch(thread, adds_messages=name in thread.checkpoints)
            new = [
                [number, channel, thread.values.encode(batch, value)]
                for index, (channel, value) in enumerate(writes)
                if (number := WRITES_IDX_MAP.get(channel, index)) < 0 or (task_id, number) not in known
            ]
            if not new:
                return []
            # Usually the position shows which checkpoint it is. But writes may be stored before theirs, or after the
            # next one: those must not become the current entry on a separate branch.
            follows = name in thread.checkpoints and (batch.has_new or name not in thread.succeeded)
            fields: dict[str, Any] = {} if follows else {"namespace": name[0], "checkpoint": name[1]}
            fields |= {"task": task_id, **({"path": task_path} if task_path else {})}
            batch.position = thread.tail(name) if follows else thread.session.leaf
            return batch.render(WRITES, {**fields, "writes": new})

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
            journal = source.session.journal
            nodes = [node for node, kind in enumerate(journal.types) if kind != THREAD]
            lines = [*journal.iter_lines(nodes)]
        self._write(str(target_thread_id), lambda _: lines)

    def prune(self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest") -> None:
        for id in thread_ids:
            if strategy == "delete":
                self.delete_thread(id)
            elif self._find(str(id)) is not None:
                self._hide(str(id), lambda one: one.name[1] != one.thread.latest(one.name[0]))

    def _hide(self, thread_id: str, condition: Callable[[_Candidate], bool]) -> None:
        def build(thread: Thread) -> list[bytes]:
            names = [name for name in thread.visible(None) if condition(_Candidate(thread, name))]
            batch = Batch(thread)
            batch.position = thread.session.leaf
            return batch.render(DELETED, {"checkpoints": [list(name) for name in names]}) if names else []

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

    def _write(self, thread_id: str, build: Callable[[Thread], Sequence[bytes]]) -> None:
        """Append the lines that `build` returns in one write, with other writers excluded."""
        for attempt in range(_ATTEMPTS):
            # A known thread may be outdated: it is refreshed below, with other writers excluded.
            thread = self._known(thread_id) or self._find(thread_id) or self._create(thread_id)
            try:
                with thread.lock, thread.session.journal.store.exclusive():
                    thread.refresh()
                    lines = build(thread)
                    if lines:
                        thread.session.append_lines(lines)
                return
            except (NotFoundError, ReplacedError):  # another process has deleted the thread
                self._forget(thread_id)
                if attempt == _ATTEMPTS - 1:
                    raise
            except BaseException:
                self._forget(thread_id)  # the next call reads what was written
                raise

    def _known(self, thread_id: str) -> Thread | None:
        """An open thread as it was at its last use."""
        with self._lock:
            return self._threads.get((id(self.serde), thread_id))

    def _find(self, thread_id: str) -> Thread | None:
        """A thread with everything that is stored; None if there is none."""
        found = self._known(thread_id)
        if found is not None:
            try:
                with found.lock:
                    found.refresh()
                return found
            except (NotFoundError, ReplacedError):
                self._forget(thread_id)
        opened = self._open(_session_id(thread_id))
        if opened is None:
            return None
        thread = self._keep(Thread(thread_id, opened, self.serde))
        with thread.lock:
            thread.refresh()
        return thread

    def _open(self, id: str) -> Session | None:
        try:
            opened = sessiontree.open(open_repository(self._home).find(id))
        except (AmbiguousError, NotFoundError):  # none, or longer ids that start with this one
            return None
        return opened if opened.id == id else None

    def _create(self, thread_id: str) -> Thread:
        id, repository = _session_id(thread_id), open_repository(self._home)
        opened: list[Session] = []

        def find_or_create(document: bytes | None) -> bytes | None:
            found = self._open(id)
            if found is None:
                found = sessiontree.create(self._cwd, id=id, home=self._home, appear="now")
                if id != thread_id:
                    found.append({"type": THREAD, "thread": thread_id})
            opened.append(found)
            return document

        # File names contain a time, so two processes could create two sessions of one name.
        repository.documents.update(_CREATION_LOCK, find_or_create)
        return self._keep(Thread(thread_id, opened[-1], self.serde))

    def _keep(self, thread: Thread) -> Thread:
        with self._lock:
            self._threads[id(thread.values.serde), thread.name] = thread  # LangGraph copies savers with another serde
            while len(self._threads) > _OPEN_THREADS:
                self._threads.popitem(last=False)  # a call may still use it: it closes when the last one is done
        return thread

    def _forget(self, thread_id: str) -> None:
        with self._lock:
            self._threads.pop((id(self.serde), thread_id), None)

    def _all_threads(self) -> Iterator[Thread]:
        repository = open_repository(self._home)
        for stat in sorted(repository.iter_stats(), key=_changed, reverse=True):
            try:
                if b'"langgraph_' not in read_bytes(repository.open(stat.ref), 0, _HEAD_BYTES):
                    continue
                session = sessiontree.open(stat.ref)
            except NotFoundError:  # deleted since it was listed
                continue
            first = next((id for id in session.ids if session.type_of(id) == THREAD), None)
            name = session.id if first is None else str(session.fields(first).get("thread"))
            found = self._find(name)
            if found is not None:
                yield found


class _Candidate(Struct, frozen=True):
    """A checkpoint that may be deleted."""

    thread: Thread
    name: Name

    def metadata_field(self, key: str) -> Any:
        return self.thread.values.decode(self.thread.checkpoints[self.name].metadata).get(key)


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
    return await run_write(functools.partial(call, *arguments))
