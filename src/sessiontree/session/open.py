"""Create and open sessions, by path or by id."""

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

_HEAD_BYTES = 64 * 1024
_CONFIDENT = 20


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
    """Start a session with the working folder `cwd` (default: the current folder).

    The file is created with the first user message, in the home folder or at `path`. With `until_assistant`, it is
    created with the first assistant message; with `appear="now"`, at once; with `in_memory`, never.

    `large_content="inline"` is for sessions that Pi, which has no blobs, should read as well. This value, or `"blobs"`,
    is recorded in the header and applies to every writer that does not pass its own.
    """
    if until_assistant:
        appear = "assistant"
    if id is not None and not is_session_id(id):
        raise UsageError(f"{id!r} is not a valid session id: use letters, digits, '-', '_' and '.', no '..'")
    folder = os.path.abspath(os.fspath(cwd) if cwd is not None else os.getcwd())
    native: Dialect = plugins.load("dialects", "native")
    header = Header(
        id=id or new_session_id(),
        version=native.version,
        timestamp=timestamp(),
        cwd=folder,
        large_content=None if large_content == "truncate" else large_content,
    )
    options = Options(durability=durability, large_content=large_content, appear="now" if in_memory else appear)
    if in_memory:
        repository = SessionRepository(lambda *_: MemoryStore(), MemoryBlobs())
        return new_session(header, native, MemoryStore(), repository, options)
    root = _root(home)
    store = FileStore(path if path is not None else session_path(root, header))
    return new_session(header, native, store, _home_repository(root), options)


def open(
    session: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    dialect: str | None = None,
    durability: Durability = "turn",
    large_content: LargeContent | None = None,
    read_options: ReadOptions = AS_CLIENT,
) -> Session:
    """Open a session by the path of its file, by its id or by a prefix of its id. Writes nothing."""
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
    """Open the session in a store."""
    head = read_bytes(store, 0, _HEAD_BYTES)
    chosen: Dialect = plugins.load("dialects", dialect) if dialect else detect(head, store.location)
    repository = _home_repository(root if root is not None else home())
    if chosen.name != "native":
        foreign_blobs = chosen.blob_folder(store.location)
        blobs = repository.blobs if foreign_blobs is None else FileBlobs(foreign_blobs, flat=True)
        repository = SessionRepository(_client_stores(chosen, store.location), blobs)
    options = Options(durability=durability, large_content=large_content, read_options=read_options)
    opened = Session(Journal(store, chosen, repository.blobs), repository, options)
    if dialect and opened.header.id == "" and not len(opened) and head.strip():
        raise NotASessionError(_not_a_session(store.location))
    return opened


def detect(head: bytes, location: str) -> Dialect:
    """Find the dialect with the highest score for the first bytes; if all scores are low, the path decides."""
    dialects: list[Dialect] = []
    scores: dict[str, int] = {}
    # Dialects of other packages come first, so that they can claim a file. Of ours, native comes first: its header is
    # unmistakable, and then no other dialect has to be loaded.
    for name in sorted(
        plugins.names("dialects"), key=lambda name: (plugins.is_ours("dialects", name), name != "native")
    ):
        dialect: Dialect = plugins.load("dialects", name)
        score = scores[dialect.name] = dialect.recognize(head)
        if score >= CERTAIN:
            return dialect
        dialects.append(dialect)
    best = max(dialects, key=lambda dialect: scores[dialect.name])
    if scores[best.name] == 0:
        raise NotASessionError(_not_a_session(location))
    if scores[best.name] < _CONFIDENT:
        by_folder = [dialect for dialect in dialects if any(folder in location for folder in dialect.path_markers)]
        return by_folder[0] if by_folder else best
    return best


def looks_like_path(text: str) -> bool:
    return os.sep in text or text.endswith(".jsonl") or os.path.isfile(text)


def _not_a_session(location: str) -> str:
    return f"{location} line 1 byte 0: not a session in a known format; the file was not touched"


def _root(chosen: str | os.PathLike[str] | None) -> str:
    return os.path.abspath(os.fspath(chosen)) if chosen is not None else home()


def _root_of(path: str, default: str) -> str:
    """The home folder of a session file (`<home>/sessions/<project>/<file>`), else the default one."""
    sessions = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    return os.path.dirname(sessions) if os.path.basename(sessions) == "sessions" else default


def _home_repository(root: str) -> SessionRepository:
    return SessionRepository(lambda header, _: FileStore(session_path(root, header)), FileBlobs(blobs_folder(root)))


def _client_stores(dialect: Dialect, location: str) -> Callable[[Header, bool], Store]:
    """Stores for forks of a client's session: in its folder or, for another working folder, where the client looks."""

    def store_for(header: Header, moved: bool) -> Store:
        meta = SessionMeta(header.id, header.timestamp, header.cwd)
        path = dialect.destination(meta, os.environ).path
        return FileStore(path if moved else os.path.join(os.path.dirname(location), os.path.basename(path)))

    return store_for
