"""Create and open sessions: by path, by reference or by id."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from typing import TypeVar

from sessiontree import plugins
from sessiontree.core.entries import Header
from sessiontree.core.ids import new_session_id, timestamp
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.contract import AS_CLIENT, Dialect, ReadOptions
from sessiontree.errors import NotASessionError, NotFoundError
from sessiontree.paths import check_session_id, find_by_id, home_of_file
from sessiontree.session.blob_refs import LargeContent
from sessiontree.session.client_repository import ClientRepository
from sessiontree.session.entry_input import Appear, Durability, Options
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session, new_session
from sessiontree.sources import open_source
from sessiontree.sources.detect import detect, detect_source, not_a_session
from sessiontree.stores.contract import SessionRef, SessionRepository, SessionStore, read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryRepository
from sessiontree.stores.repositories import FileRepository, find_ref, open_repository

_HEAD_BYTES = 64 * 1024

ReaderT = TypeVar("ReaderT", bound=Reader)


def create(
    cwd: str | os.PathLike[str] | None = None,
    *,
    path: str | os.PathLike[str] | None = None,
    id: str | None = None,
    home: str | os.PathLike[str] | None = None,
    store: SessionStore | None = None,
    repository: SessionRepository | None = None,
    in_memory: bool = False,
    durability: Durability = "turn",
    appear: Appear = "user",
    until_assistant: bool = False,
    large_content: LargeContent | None = None,
) -> Session:
    """Start a session with the working folder `cwd` (default: the current folder).

    It is created with the first user message: at `path`, in `store`, in `repository`, or in the one at `home`, which is
    a folder or an address such as `memory:team`. With `until_assistant`, it is created with the first assistant
    message; with `appear="now"`, at once. With `in_memory` it is in a separate repository, and gone with this object.

    `large_content="inline"` is for sessions that Pi, which has no blobs, should read as well. This value, or `"blobs"`,
    is recorded in the header and applies to every writer that does not pass its own.
    """
    if until_assistant:
        appear = "assistant"
    native: Dialect = plugins.load("dialects", DEFAULT_DIALECT)
    header = Header(
        id=new_session_id() if id is None else check_session_id(id),
        version=native.traits.version,
        timestamp=timestamp(),
        cwd=os.path.abspath(os.fspath(cwd) if cwd is not None else os.getcwd()),
        large_content=None if large_content == "truncate" else large_content,
    )
    options = Options(durability=durability, large_content=large_content, appear="now" if in_memory else appear)
    if path is not None:
        store = FileStore(path)
    if repository is None:
        repository = MemoryRepository() if in_memory else _repository_at(store, home)
    if store is None:
        store = repository.new(header.id, timestamp=header.timestamp, cwd=header.cwd)
    return new_session(header, native, store, repository, options)


def open(
    session: str | os.PathLike[str] | SessionRef,
    *,
    home: str | os.PathLike[str] | None = None,
    dialect: str | None = None,
    durability: Durability = "turn",
    large_content: LargeContent | None = None,
    read_options: ReadOptions = AS_CLIENT,
) -> Session:
    """Open a session of any client by its path, its reference, its id or a prefix of its id. Writes nothing.

    An id is searched for in the repository at `home` first, then among the sessions of all clients.
    """
    options = Options(durability=durability, large_content=large_content, read_options=read_options)
    return _open_named(session, home, dialect, lambda journal: Session(journal, options))


def open_reader(
    session: str | os.PathLike[str] | SessionRef,
    *,
    home: str | os.PathLike[str] | None = None,
    dialect: str | None = None,
    read_options: ReadOptions = AS_CLIENT,
) -> Reader:
    """Open a session like `open`, for callers that only read: the result has no method that writes."""
    return _open_named(session, home, dialect, lambda journal: Reader(journal, read_options))


def open_store(
    store: SessionStore,
    *,
    root: str | os.PathLike[str] | None = None,
    repository: SessionRepository | None = None,
    dialect: str | None = None,
    durability: Durability = "turn",
    large_content: LargeContent | None = None,
    read_options: ReadOptions = AS_CLIENT,
) -> Session:
    """Open the session in a store.

    Its forks and large content go to `repository`, to the one at `root`, or to the one that its reference names.
    """
    options = Options(durability=durability, large_content=large_content, read_options=read_options)
    found = repository or _repository_at(store, root)
    return _open(store, lambda: found, dialect, lambda journal: Session(journal, options))


def blob_repository(ref: SessionRef, dialect: Dialect) -> Callable[[], SessionRepository]:
    """A function that opens the repository with the blobs of a session."""
    if ref.home:
        return partial(open_repository, ref.home)
    return _repository_finder(ref.name, dialect, partial(_repository_of_file, ref.name, dialect, None))


def _open_named(
    session: str | os.PathLike[str] | SessionRef,
    home: str | os.PathLike[str] | None,
    dialect: str | None,
    create: Callable[[Journal], ReaderT],
) -> ReaderT:
    if not isinstance(session, SessionRef):
        wanted = os.fspath(session)
        if looks_like_path(wanted):
            session = find_ref(wanted)
        else:
            session, dialect = _find_by_id(wanted, home, dialect)
    if session.home:
        repository = open_repository(session.home)
        return _open(repository.open(session), lambda: repository, dialect, create)
    chosen = _dialect_named(dialect) if dialect else detect_source(session)
    given = None if home is None else open_repository(home)
    find_repository = partial(_repository_of_file, session.name, chosen, given)
    return _open(open_source(session, chosen), find_repository, dialect, create, chosen)


def _open(
    store: SessionStore,
    find_repository: Callable[[], SessionRepository],
    dialect: str | None,
    create: Callable[[Journal], ReaderT],
    detected: Dialect | None = None,
) -> ReaderT:
    head = read_bytes(store, 0, _HEAD_BYTES)
    if detected is None:
        detected = _dialect_named(dialect) if dialect else detect(head, store.location)
    if not store.ref.home:
        find_repository = _repository_finder(store.location, detected, find_repository)
    # `cache`: found once, and only when needed, because a repository may be a database to connect to.
    opened = create(Journal(store, detected, cache(find_repository)))
    # A dialect chosen by the caller is not detected, and reads any other file as an empty session.
    if dialect and opened.header.id == "" and not len(opened) and head.strip():
        raise NotASessionError(not_a_session(store.location, head))
    return opened


def _repository_of_file(path: str, dialect: Dialect, given: SessionRepository | None) -> SessionRepository:
    """The repository of the home folder that a file is in, else the given one, else that of the home."""
    # The folders of other clients are arranged alike, but their sessions belong to our home folder.
    own_home = home_of_file(path) if dialect.name == DEFAULT_DIALECT else None
    return open_repository(own_home) if own_home or given is None else given


def _repository_finder(
    location: str, dialect: Dialect, find_own: Callable[[], SessionRepository]
) -> Callable[[], SessionRepository]:
    """A function that opens the repository of a file: the client's for a client's file, else our own."""
    return find_own if dialect.name == DEFAULT_DIALECT else lambda: ClientRepository(dialect, location, find_own())


def _repository_at(store: SessionStore | None, home: str | os.PathLike[str] | None) -> SessionRepository:
    """The repository at an address; without one, that of a store's reference, else the home folder."""
    if home is None and store is not None and store.ref.home:
        return MemoryRepository() if store.ref.home == "memory:" else open_repository(store.ref.home)
    return open_repository(home)


def _dialect_named(name: str) -> Dialect:
    found: Dialect = plugins.load("dialects", name)
    return found


def _find_by_id(wanted: str, home: str | os.PathLike[str] | None, dialect: str | None) -> tuple[SessionRef, str | None]:
    """Find a session by its id; also returns its dialect, if known."""
    repository = open_repository(home)
    try:
        return repository.find(wanted), dialect
    except NotFoundError:
        if not isinstance(repository, FileRepository):
            raise
    # Other clients have ids in their lines as well as in file names, so only the library, which caches them, knows all.
    from sessiontree.library.library import Library

    with Library(repository.home) as library:
        agents = {summary.ref: summary.agent for summary in library.everything() if summary.id.startswith(wanted)}
        known = ((summary.id, summary.ref) for summary in library.everything())
        found = find_by_id(wanted, known, "the folders of any agent")
    return find_ref(found), dialect or agents[found]


def looks_like_path(text: str) -> bool:
    """Whether a text is a path or a reference, rather than an id."""
    if os.sep in text or text.endswith(".jsonl") or os.path.isfile(text):
        return True
    return "#" in text and bool(find_ref(text).item)
