"""Sub-agents in sessions of their own: how such a session starts, and how it is found again.

The first entry of a sub-agent names the call and the session it works for. The caller's file cannot hold a link to it,
because the formats of Claude Code and Neovate have no extension data. So the session is searched for among sessions
written since the call: in the caller's repository or, for a file, next to it and in our folder of the project (without
a project, in all of our folders).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from sessiontree import plugins
from sessiontree.agent.approval import Approvals
from sessiontree.branches.subagent_branches import TASK, SubagentRecord, parse_subagent
from sessiontree.core.entries import ForkOrigin
from sessiontree.core.ids import new_session_id, timestamp
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import Dialect
from sessiontree.errors import SessionTreeError
from sessiontree.explore.leases import parse_seconds
from sessiontree.paths import home as default_home
from sessiontree.paths import iter_session_files, session_path
from sessiontree.session.open import open as open_session
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionRef, SessionRepository, read_bytes
from sessiontree.stores.repositories import open_repository

_HEAD_BYTES = 1 << 16
"""The first entries of a file are within these bytes."""
_CLOCK_SLACK = 2.0
"""Seconds by which a file's modification time may be before the timestamp of an entry in it."""


def entry_of(record: SubagentRecord) -> dict[str, Any]:
    return {"type": "custom", "customType": TASK, "data": msgspec.to_builtins(record)}


def subagent_at(session: Session, id: str) -> SubagentRecord | None:
    return parse_subagent(session.entry(id)) if session.type_of(id) == "custom" else None


def create_subagent_session(origin: Session, name: str, home: str | None = None) -> Session:
    """Create an empty session that names its origin and has the same approvals. Blocking."""
    created = (
        origin.fork(None) if origin.dialect.traits.one_line_per_entry else _new_native(origin, home or default_home())
    )
    created.rename(name)
    Approvals(created).inherit(Approvals(origin))
    return created


def _new_native(origin: Session, root: str) -> Session:
    """A native session, for callers whose format has no empty sessions."""
    native: Dialect = plugins.load("dialects", DEFAULT_DIALECT)
    cwd = origin.cwd or os.getcwd()
    start = SessionMeta(
        new_session_id(),
        timestamp(),
        cwd,
        forked_from=ForkOrigin(origin.id, None),
        origin=origin.location,
        large_content="inline",
    )
    repository = origin.repository if origin.ref.home else open_repository(root)
    store = repository.new(start.id, timestamp=start.timestamp, cwd=cwd)
    store.create(line + b"\n" for line in native.encoder(start).prologue())
    return open_store(store, repository=repository)


def find_subagent_session(
    origin: Session, answer: str, call: str, home: str | None = None
) -> tuple[Session, str] | None:
    """Find the session that was started for a call, and its first entry. Blocking."""
    root = home or default_home()
    for ref in _candidates(origin, answer, root):
        try:
            found = _open(origin, ref, root)
        except (SessionTreeError, OSError):
            continue
        for id in found.ids:
            record = subagent_at(found, id)
            if record is not None and _is_for(record, origin, answer, call):
                return found, id
        found.close()
    return None


def _open(origin: Session, ref: SessionRef, root: str) -> Session:
    if not ref.home:
        return open_session(ref, home=root)
    return open_store(origin.repository.open(ref), repository=origin.repository)


def _is_for(record: SubagentRecord, origin: Session, answer: str, call: str) -> bool:
    if (record.call, record.session) != (call, origin.id) or record.answer is None or record.answer not in origin:
        return False
    return answer in origin.path_ids(record.answer)


def _candidates(origin: Session, answer: str, root: str) -> Iterator[SessionRef]:
    """Sessions that may be the one, newest first."""
    since = parse_seconds(origin.entry(answer).timestamp) - _CLOCK_SLACK
    if origin.ref.home:
        found = [(one.changed / 1e9, one.ref) for one in origin.repository.iter_stats()]
    else:
        found = list(_iter_changed(_files(origin, root)))
    id = origin.id.encode()
    for changed, ref in sorted(found, reverse=True):
        if changed < since:
            return
        if ref != origin.ref and id in _head(origin.repository, ref):
            yield ref


def _iter_changed(paths: Iterable[str]) -> Iterator[tuple[float, SessionRef]]:
    """The modification times of regular files."""
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                yield status.st_mtime, SessionRef(path)


def _files(origin: Session, root: str) -> Iterator[str]:
    """Sessions next to one, and ours of its project; without a project, all of ours."""
    folders = {os.path.dirname(os.path.abspath(origin.location))}
    if origin.cwd:
        folders.add(os.path.dirname(session_path(root, new_session_id(), timestamp(), origin.cwd)))
    else:
        yield from (path for _, path in iter_session_files(root))
    for folder in folders:
        with contextlib.suppress(OSError):
            yield from (os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".jsonl"))


def _head(repository: SessionRepository, ref: SessionRef) -> bytes:
    try:
        store = repository.open(ref)
        try:
            return read_bytes(store, 0, _HEAD_BYTES)
        finally:
            store.close()
    except SessionTreeError:
        return b""
