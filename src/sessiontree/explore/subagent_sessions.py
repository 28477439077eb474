"""Sub-agents that have a session of their own: how it begins, and how it is found again when its call is run again.

The first entry of a sub-agent says which call of which session it works for. The caller's file has no place to say
where the session is (Claude's and Neovate's have none for anything of ours), so it is looked for: beside the caller's
file and in our own folder of the project (Neovate's name no project: then in all of them), among what was written since
the call was made.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any

import msgspec

from sessiontree import plugins
from sessiontree.agent.approval import Approvals
from sessiontree.core.entries import Custom, Entry, ForkOrigin, Header
from sessiontree.core.ids import new_session_id, timestamp
from sessiontree.core.jsonio import Value
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import Dialect
from sessiontree.errors import SessionTreeError
from sessiontree.explore.leases import seconds_of
from sessiontree.explore.records import TASK
from sessiontree.paths import home as default_home
from sessiontree.paths import iter_session_files, session_path
from sessiontree.session.open import open as open_session
from sessiontree.session.session import Session
from sessiontree.stores.file import FileStore

_HEAD = 1 << 16
"""Bytes of a file in which its first entries are."""
_SLACK = 2.0
"""Seconds by which the clock of a file system may be behind that of an entry."""


class Started(Value, frozen=True):
    """What the first entry of a sub-agent says."""

    call: str
    """The call that it works for."""
    description: str
    model: str
    answer: str | None = None
    """The entry with the call, and the session that has it when that is another one."""
    session: str | None = None


def started_of(entry: Entry) -> Started | None:
    """What an entry says of a sub-agent that begins there; None when none does."""
    if not isinstance(entry, Custom) or entry.custom_type != TASK:
        return None
    try:
        return msgspec.convert(entry.data, Started)
    except msgspec.ValidationError:
        return None


def entry_of(record: Started) -> dict[str, Any]:
    return {"type": "custom", "customType": TASK, "data": msgspec.to_builtins(record)}


def started_at(session: Session, id: str) -> Started | None:
    return started_of(session.entry(id)) if session.type_of(id) == "custom" else None


def new_linked(origin: Session, name: str, home: str | None = None) -> Session:
    """An empty session that names its origin, and in which the same is approved. For a thread."""
    linked = origin.fork(None) if origin.dialect.one_line_per_entry else _new_native(origin, home or default_home())
    linked.rename(name)
    approvals = Approvals(origin)
    if approvals.restored is not None:
        linked.set_config(approval_mode=approvals.mode, approval_tools=approvals.tools)
    return linked


def _new_native(origin: Session, root: str) -> Session:
    """A session of our own, for callers whose files cannot begin without words."""
    native: Dialect = plugins.load("dialects", "native")
    cwd = origin.cwd or os.getcwd()
    start = SessionMeta(
        new_session_id(),
        timestamp(),
        cwd,
        forked_from=ForkOrigin(origin.id, None),
        origin=origin.location,
        large_content="inline",
    )
    store = FileStore(session_path(root, Header(id=start.id, timestamp=start.timestamp, cwd=cwd)))
    store.create(line + b"\n" for line in native.encoder(start).prologue())
    return open_session(store.location, home=root)


def find_linked(origin: Session, answer: str, call: str, home: str | None = None) -> tuple[Session, str] | None:
    """The session that was begun for a call of an answer, and the entry it begins with. For a thread."""
    root = home or default_home()
    for path in _candidates(origin, answer, root):
        try:
            linked = open_session(path, home=root)
        except (SessionTreeError, OSError):
            continue
        for id in linked.ids:
            record = started_at(linked, id)
            if record is not None and _is_for(record, origin, answer, call):
                return linked, id
        linked.close()
    return None


def _is_for(record: Started, origin: Session, answer: str, call: str) -> bool:
    if (record.call, record.session) != (call, origin.id) or record.answer is None or record.answer not in origin:
        return False
    return answer in origin.path_ids(record.answer)


def _candidates(origin: Session, answer: str, root: str) -> Iterator[str]:
    """The files that may be it, the newest first."""
    since = seconds_of(origin.entry(answer).timestamp) - _SLACK
    found: list[tuple[float, str]] = []
    for path in _files(origin, root):
        with contextlib.suppress(OSError):
            about = os.lstat(path)
            if stat.S_ISREG(about.st_mode):
                found.append((about.st_mtime, path))
    names = origin.id.encode()
    for changed, path in sorted(found, reverse=True):
        if changed < since:
            return
        if path != os.path.abspath(origin.location) and names in _head(path):
            yield path


def _files(origin: Session, root: str) -> Iterator[str]:
    """The sessions beside one, and those of ours in its project; where no folder is named, all of ours."""
    folders = {os.path.dirname(os.path.abspath(origin.location))}
    if origin.cwd:
        header = Header(id=new_session_id(), timestamp=timestamp(), cwd=origin.cwd)
        folders.add(os.path.dirname(session_path(root, header)))
    else:
        yield from (path for _, path in iter_session_files(root))
    for folder in folders:
        with contextlib.suppress(OSError):
            yield from (os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".jsonl"))


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""
