"""Sessions that a framework finds by a name of the caller's choice."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import sessiontree
from sessiontree.core.ids import is_session_id
from sessiontree.errors import AmbiguousError, NotFoundError, ReplacedError, UsageError, WriteError
from sessiontree.session.entry_input import Durability
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionRepository
from sessiontree.stores.repositories import open_repository

_CREATION_LOCK = "adapters.lock"
"""The document whose update serializes the creation of sessions by name. It stays empty."""


def session_id_of(name: str) -> str:
    """The id of a session for any name: the name itself if it is a valid id, else a readable part of it and a hash."""
    if is_session_id(name):
        return name
    from hashlib import sha256  # slow to load, and most names are ids

    readable = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name[:40]).strip("-")
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{readable}-{digest}" if readable else digest


class NamedSession:
    """A session of a repository, opened when it is first needed and created by the first write.

    Several objects, in any process, may use the same session: each read and write starts at the file's current entry.
    Threads may share an object.
    """

    def __init__(
        self,
        id: str,
        home: str | os.PathLike[str] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        durability: Durability = "turn",
    ) -> None:
        self.id = id
        self.home = home
        self._cwd = cwd
        self._durability = durability
        self._session: Session | None = None
        self._lock = threading.RLock()
        self._is_closed = False

    @property
    def repository(self) -> SessionRepository:
        return open_repository(self.home)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session | None]:
        """The session at its file's current entry; None if it does not exist. Nothing may be written in the block."""
        with self._lock:
            yield self._followed()

    @contextlib.contextmanager
    def writing(self, create: Callable[[], Session] | None = None) -> Iterator[Session]:
        """The session at its file's current entry, with all other writers excluded; created if it does not exist."""
        with self._lock, contextlib.ExitStack() as held:
            try:
                session = self._held(held, create or self.new)
            except (ReplacedError, NotFoundError):  # deleted by another program
                self.forget()
                session = self._held(held, create or self.new)
            try:
                yield session
                held.close()  # in a database, this is the commit
            except (ReplacedError, WriteError):
                self.forget()  # the next use opens it again, which shows what was written
                raise

    def append(self, write: Callable[[Session], object]) -> None:
        """Call `write`, which appends once (see `Session.append_following`) to the session, created if needed.

        No other writer is excluded, so `write` must not depend on what it has read before.
        """
        with self._lock:
            try:
                write(self._opened(self.new))
            except (ReplacedError, NotFoundError):  # deleted by another program; nothing was written
                self.forget()
                write(self._opened(self.new))
            except WriteError:
                self.forget()  # the next use opens it again, which shows what was written
                raise

    def _opened(self, create: Callable[[], Session]) -> Session:
        self.check_open()
        if self._session is None:
            opened = self._open()
            self._session = self._create(create) if opened is None else opened  # not `or`: an empty session is falsy
        return self._session

    def _held(self, held: contextlib.ExitStack, create: Callable[[], Session]) -> Session:
        """The session, with other writers excluded until `held` is closed."""
        session = self._opened(create)
        held.enter_context(session.journal.store.exclusive())
        session.follow()
        return session

    def close(self) -> None:
        """Close the session; later uses are refused."""
        with self._lock:
            self._is_closed = True
            session, self._session = self._session, None
            if session is not None:
                session.close()

    def forget(self) -> None:
        """Drop the open session: it was deleted, or a write to it failed."""
        with self._lock:
            self._session = None

    def check_open(self) -> None:
        """Raise if the session was closed."""
        if self._is_closed:
            raise UsageError(f"session {self.id!r} was closed; create another object to continue it")

    def _followed(self) -> Session | None:
        self.check_open()
        if self._session is not None:
            with contextlib.suppress(ReplacedError, NotFoundError):
                self._session.follow()
                return self._session
        self._session = self._open()
        return self._session

    def _open(self) -> Session | None:
        try:
            ref = self.repository.find(self.id)
        except NotFoundError:
            return None
        except AmbiguousError as error:
            if all(found.startswith(self.id) for found in error.candidates):
                return None  # longer ids that start with this one
            raise
        opened = sessiontree.open(ref, durability=self._durability)
        return opened if opened.id == self.id else None

    def _create(self, create: Callable[[], Session]) -> Session:
        found: list[Session] = []

        def find_or_create(document: bytes | None) -> bytes | None:
            opened = self._open()
            found.append(create() if opened is None else opened)  # as above
            return document

        # File names contain a time, so two processes could create two sessions of one name.
        self.repository.documents.update(_CREATION_LOCK, find_or_create)
        self._session = found[-1]
        return self._session

    def new(self) -> Session:
        """Create the session with nothing in it."""
        return sessiontree.create(self._cwd, id=self.id, home=self.home, appear="now", durability=self._durability)
