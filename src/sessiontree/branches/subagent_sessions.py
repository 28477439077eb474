"""Sub-agents in separate sessions: how they are found.

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

from msgspec import Struct

from sessiontree.branches.subagent_branches import SubagentRecord, subagent_at
from sessiontree.core.ids import new_session_id, timestamp, unix_seconds
from sessiontree.errors import SessionTreeError
from sessiontree.paths import iter_session_files, session_path
from sessiontree.session.open import open as open_session
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionRef, SessionRepository, read_bytes

_HEAD_BYTES = 1 << 16
"""The first entries of a file are within these bytes."""
_CLOCK_SLACK = 2.0
"""Seconds by which a file's modification time may be before the timestamp of an entry in it."""


class SubagentSession(Struct, frozen=True):
    """The session of a sub-agent."""

    ref: SessionRef
    start: str
    """Its first entry."""
    record: SubagentRecord


def find_subagent_session(
    origin: Session, answer: str, call: str, home: str | None = None
) -> tuple[Session, str] | None:
    """Find the session that was started for a call, and its first entry. Blocking."""
    for ref in find_candidates(origin, origin.entry(answer).timestamp, home):
        for one in list_subagent_sessions(origin, [ref]):
            found = open_candidate(origin, ref) if _is_for(one.record, origin, answer, call) else None
            if found is not None:
                return found, one.start
    return None


def list_subagent_sessions(origin: Session, candidates: Iterable[SessionRef]) -> list[SubagentSession]:
    """Those of some sessions that calls of a session started."""
    found: list[SubagentSession] = []
    for ref in candidates:
        session = open_candidate(origin, ref)
        if session is None:
            continue
        with session:
            records = ((id, subagent_at(session, id)) for id in session.ids)
            found += [SubagentSession(ref, id, one) for id, one in records if one and one.session == origin.id]
    return found


def find_session_of_call(
    origin: Session, sessions: Iterable[SubagentSession], answer: str, call: str
) -> SessionRef | None:
    """Which of some sub-agents' sessions a call in an entry started."""
    found = [one for one in sessions if _is_for(one.record, origin, answer, call)]
    # Later calls with the same id come after the entry as well; the first one is that in the entry.
    return min(found, key=lambda one: origin.node_of(one.record.answer) or 0).ref if found else None


def _is_for(record: SubagentRecord, origin: Session, answer: str, call: str) -> bool:
    # Compare the entry as well: some servers give several calls the same id.
    if (record.call, record.session) != (call, origin.id) or record.answer is None or record.answer not in origin:
        return False
    return answer in origin.path_ids(record.answer)


def find_candidates(origin: Session, since: str, home: str | None = None) -> Iterator[SessionRef]:
    """Sessions that sub-agents of one may have, written since a time, newest first."""
    earliest = unix_seconds(since) - _CLOCK_SLACK
    if origin.ref.home:
        found = [(one.changed / 1e9, one.ref) for one in origin.repository.iter_stats()]
    else:
        found = list(_iter_changed(_files(origin, home or origin.repository.home)))
    id = origin.id.encode()
    for changed, ref in sorted(found, reverse=True):
        if changed < earliest:
            return
        if ref != origin.ref and id in _head(origin.repository, ref):
            yield ref


def open_candidate(origin: Session, ref: SessionRef) -> Session | None:
    """Open a session of the same repository, or a file; None if it cannot be read."""
    try:
        if not ref.home:
            return open_session(ref, home=origin.repository.home)
        return open_store(origin.repository.open(ref), repository=origin.repository)
    except (SessionTreeError, OSError):
        return None


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
