"""Getting hold of a session: create one, open one by path or id, keep one in memory."""

from __future__ import annotations

import os
from collections.abc import Callable

from sessiontree import plugins
from sessiontree.core.entries import Header
from sessiontree.core.ids import is_session_id, new_session_id, timestamp
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import AS_CLIENT, CERTAIN, Dialect, ReadOptions
from sessiontree.errors import NotASessionError, UsageError
from sessiontree.paths import blobs_folder, find_session_file, home, session_path
from sessiontree.session.blob_refs import LargeContent
from sessiontree.session.entry_input import Appear, Durability, Options
from sessiontree.session.journal import Journal
from sessiontree.session.session import Session, SessionRepository, new_session
from sessiontree.stores.blobs import FileBlobs
from sessiontree.stores.contract import Store, read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryBlobs, MemoryStore

_HEAD = 64 * 1024
_SURE = 20


def create(
    cwd: str | os.PathLike[str] | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    id: str | None = None,
    home: str | os.PathLike[str] | None = None,
    in_memory: bool = False,
    durability: Durability = "turn",
    appear: Appear = "user",
    until_assistant: bool = False,
    large_content: LargeContent | None = None,
) -> Session:
    """Start a session for work in `cwd` (default: the current folder).

    Its file appears with the first user message, in the home folder or at `path`; with `until_assistant` it waits for
    the first assistant message, with `appear="now"` for nothing. With `in_memory` it never appears.

    `large_content="inline"` is for sessions that Pi shall read, too, which knows no blobs. That, or `"blobs"`, is noted
    in the file, and holds for everyone who appends to it and does not say otherwise.
    """
    if until_assistant:
        appear = "assistant"
    if id is not None and not is_session_id(id):
        raise UsageError(f"{id!r} cannot be a session id: letters, digits, '-', '_' and '.', no '..'")
    where = os.path.abspath(os.fspath(cwd) if cwd is not None else os.getcwd())
    native: Dialect = plugins.load("dialects", "native")
    header = Header(
        id=id or new_session_id(),
        version=native.version,
        timestamp=timestamp(),
        cwd=where,
        large_content=None if large_content == "truncate" else large_content,
    )
    options = Options(durability=durability, large_content=large_content, appear="now" if in_memory else appear)
    if in_memory:
        repository = SessionRepository(lambda *_: MemoryStore(), MemoryBlobs())
        return new_session(header, native, MemoryStore(), repository, options)
    root = _root(home)
    store = FileStore(path if path is not None else session_path(root, header))
    return new_session(header, native, store, _surroundings(root), options)


def open(
    session: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    dialect: str | None = None,
    durability: Durability = "turn",
    large_content: LargeContent | None = None,
    read_options: ReadOptions = AS_CLIENT,
) -> Session:
    """Open a session by the path of its file, or by its id or a prefix of it. Writes nothing."""
    root = _root(home)
    wanted = os.fspath(session)
    path = wanted if looks_like_path(wanted) else find_session_file(root, wanted)
    return open_store(
        FileStore(path),
        root=_root_of(path, root),
        dialect=dialect,
        durability=durability,
        large_content=large_content,
        read_options=read_options,
    )


def open_store(
    store: Store,
    *,
    root: str | None = None,
    dialect: str | None = None,
    durability: Durability = "turn",
    large_content: LargeContent | None = None,
    read_options: ReadOptions = AS_CLIENT,
) -> Session:
    """Open the session that a store holds."""
    head = read_bytes(store, 0, _HEAD)
    chosen: Dialect = plugins.load("dialects", dialect) if dialect else detect(head, store.location)
    repository = _surroundings(root if root is not None else home())
    if chosen.name != "native":
        foreign_blobs = chosen.blob_folder(store.location)
        blobs = repository.blobs if foreign_blobs is None else FileBlobs(foreign_blobs, flat=True)
        repository = SessionRepository(_stores_of_owner(chosen, store.location), blobs)
    options = Options(durability=durability, large_content=large_content, read_options=read_options)
    opened = Session(Journal(store, chosen, repository.blobs), repository, options)
    if dialect and opened.header.id == "" and not len(opened) and head.strip():
        raise NotASessionError(_refusal(store.location))
    return opened


def detect(head: bytes, location: str) -> Dialect:
    """The dialect that is surest about the first bytes of a session; where none is sure, the one at home there."""
    dialects: list[Dialect] = []
    scores: dict[str, int] = {}
    for name in sorted(plugins.names("dialects"), key=lambda name: plugins.is_ours("dialects", name)):
        dialect: Dialect = plugins.load("dialects", name)
        score = scores[dialect.name] = dialect.recognize(head)
        if score >= CERTAIN:
            return dialect  # the others need not even be loaded; those of other packages were asked before
        dialects.append(dialect)
    best = max(dialects, key=lambda dialect: scores[dialect.name])
    if scores[best.name] == 0:
        raise NotASessionError(_refusal(location))
    if scores[best.name] < _SURE:
        at_home = [dialect for dialect in dialects if any(folder in location for folder in dialect.folders)]
        return at_home[0] if at_home else best
    return best


def looks_like_path(text: str) -> bool:
    return os.sep in text or text.endswith(".jsonl") or os.path.isfile(text)


def _refusal(location: str) -> str:
    return f"{location} line 1 byte 0: no session of a known kind starts here; the file was not touched"


def _root(chosen: str | os.PathLike[str] | None) -> str:
    return os.path.abspath(os.fspath(chosen)) if chosen is not None else home()


def _root_of(path: str, default: str) -> str:
    """The home folder a session file lies in (`<home>/sessions/<project>/<file>`), else the default one."""
    sessions = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    return os.path.dirname(sessions) if os.path.basename(sessions) == "sessions" else default


def _surroundings(root: str) -> SessionRepository:
    return SessionRepository(lambda header, _: FileStore(session_path(root, header)), FileBlobs(blobs_folder(root)))


def _stores_of_owner(dialect: Dialect, location: str) -> Callable[[Header, bool], Store]:
    """Where forks of a foreign session go: beside it, or for work in another folder, where its owner looks then."""

    def store_for(header: Header, moved: bool) -> Store:
        start = SessionMeta(header.id, header.timestamp, header.cwd)
        place = dialect.destination(start, os.environ).path
        return FileStore(place if moved else os.path.join(os.path.dirname(location), os.path.basename(place)))

    return store_for
