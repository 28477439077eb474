"""Protocols of repositories (many sessions), session stores (the bytes of one), blobs and documents.

A `SessionRef` is the address of a session in any repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from sessiontree.errors import UsageError


class SessionRef(Struct, frozen=True, order=True):
    """The address of a session: its repository, its name there and, in a file with several sessions, which one.

    As text: `/work/a.jsonl`, `/data/opencode.db#ses_1`, `memory:team/ID`, `postgresql://host/db/ID`.
    """

    name: str
    """The absolute path of a file, or the session's id in its repository."""
    home: str = ""
    """The address of the repository, such as `memory:team`; empty for files."""
    item: str = ""
    """The session in a file that holds several, such as a database."""

    def __str__(self) -> str:
        whole = f"{self.home}/{self.name}" if self.home else self.name
        return f"{whole}#{self.item}" if self.item else whole

    @property
    def scheme(self) -> str:
        return self.home.partition(":")[0] if self.home else "file"

    @property
    def is_file(self) -> bool:
        """Whether the session is a separate file."""
        return not self.home and not self.item

    @property
    def path(self) -> str:
        """The path of the session's file; `UsageError` for a session that is not a separate file."""
        if not self.is_file:
            raise not_a_file(str(self))
        return self.name


def not_a_file(ref: str) -> UsageError:
    return UsageError(f"{ref}: this works only for sessions in separate files")


def parse_ref(text: str, schemes: Collection[str]) -> SessionRef:
    """Parse a reference. Text that starts with none of the schemes is a path, whatever characters it contains."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        text = rest.removeprefix("//")
    elif colon and scheme in schemes:
        home, slash, name = text.rpartition("/")
        if not slash or not name or home.endswith(("/", ":")):
            raise UsageError(f"{text!r} is not a session reference: use {scheme}:HOME/SESSION")
        return SessionRef(name, home)
    # A path may contain "#", and so may the name of a session inside a file: the file is the longest part that exists.
    container, mark, item = text, "", ""
    while "#" in container and not os.path.lexists(container):
        container, mark, last = container.rpartition("#")
        item = f"{last}#{item}" if item else last
    if mark and item and os.path.isfile(container):
        return SessionRef(os.path.abspath(container), "", item)
    return SessionRef(os.path.abspath(text))


class SessionStore(Protocol):
    """The bytes of one session.

    Contract:
    * Appended bytes are read back exactly, at the same offsets, as long as the store exists. Only `replace` and
      `overwrite` change them.
    * Reads never write, and work while others write: they return a prefix of the final bytes.
    * `append` is an atomic compare-and-append: if the store has `expected_size` bytes, it appends all of the data;
      otherwise it returns None and writes nothing. When it returns, the data is visible to every reader.
    * A failed `append` or `overwrite` raises `WriteError`, and so does every later write until `resolve`. The outcome
      may be unknown if a connection broke. `resolve` returns only when it is known: from then on, the data is
      completely in the store or never will be.
    * `exclusive` locks out other writers (threads, processes, other stores of the same bytes) and yields the size. The
      holder may append, overwrite, replace, and enter it again. An error in the block undoes no write made in it.
    * `overwrite` is called only inside `exclusive`. It replaces bytes at an offset with as many others if they are the
      expected ones; otherwise it raises `ConflictError` and writes nothing. The size never changes. If the process
      dies, either the old or the new bytes are stored.
    * If another program deletes, replaces or truncates the bytes, or rewrites bytes before the end that this store has
      read or written, writes raise `ReplacedError`. Reads that notice it may also raise it.
    * `create` creates the store with its first bytes, durably, all or nothing; `ExistsError` if it already exists.
    * `replace` replaces all bytes at once, durably: a reader sees the old or the new ones, never a mixture. It keeps
      the old ones as a backup and returns its name. `ConflictError` when the size is not the expected one.
    * `sync` returns when everything appended or overwritten so far would survive a power failure.

    One thread uses a store object at a time; other threads and processes open their own.
    """

    @property
    def ref(self) -> SessionRef: ...

    @property
    def location(self) -> str:
        """Location of the bytes, for display: a path or a URL."""
        ...

    def exists(self) -> bool: ...

    def size(self) -> int: ...

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Read bytes at an offset into a buffer and return their number; 0 at the end."""
        ...

    def create(self, data: Iterable[bytes]) -> None: ...

    def append(self, data: bytes, *, expected_size: int) -> int | None:
        """Append if the store has the expected size, and return the new size; None if another writer got there first.
        The new size exceeds the sum if a program that takes no lock appended in between.
        """
        ...

    def exclusive(self) -> AbstractContextManager[int]: ...

    def overwrite(self, offset: int, data: bytes, expected: bytes) -> None: ...

    def replace(self, data: Iterable[bytes], *, expected_size: int) -> str: ...

    def start_sync(self) -> None:
        """Hint that `sync` follows immediately, so that the disk can start early. Never raises."""
        ...

    def sync(self) -> None: ...

    def resolve(self) -> None:
        """Allow writes again after a failed one. Its outcome is settled when this returns."""
        ...

    def close(self) -> None: ...


class StoredIndex(Struct, frozen=True):
    """A session's index, stored next to its bytes."""

    data: bytes | memoryview
    size: int
    """Number of bytes of the session that it covers, from the first one on."""


@runtime_checkable
class IndexStore(SessionStore, Protocol):
    """A store that keeps an index next to the bytes, so that opening a long session reads only its end.

    An index is derived from the bytes and can be lost at any time. The store does not interpret its content.

    Contract:
    * `read_index` returns an index only if the bytes it covers are still the ones it was built from: a store that was
      replaced, overwritten or rewritten by another program has none. Bytes may have been appended.
    * `write_index` stores the index of the bytes that were read since `read_index`, or nothing if they have changed
      since. It raises only what `pieces` raises, because an index is optional: without one, everything is read.
    * A name consists of letters, digits, `-`, `_` and `.`; each name has its own index.
    """

    def read_index(self, name: str) -> StoredIndex | None: ...

    def write_index(self, name: str, pieces: Iterable[bytes], size: int) -> None: ...


class BlobStore(Protocol):
    """Large content by its SHA-256.

    Contract:
    * `put` returns when the complete content is durable; storing the same content again changes nothing.
    * `get` returns the exact content, or None if it is missing; `DamagedError` when it does not match its name.
    * A name is 64 lower-case hex digits; any other name is a `NotFoundError`, never used as a path.
    """

    def put(self, data: bytes) -> str: ...

    def get(self, name: str) -> bytes | None: ...


class DocumentStore(Protocol):
    """Small named documents about the sessions of a repository, such as their tags.

    Contract:
    * `read` returns the content, or None if there is no such document.
    * `update` passes the content to a function and stores what it returns, durably and all or nothing. No other update
      of the document happens in between. None removes the document.
    * A name consists of letters, digits, `-`, `_` and `.`, and starts with a letter.
    """

    def location(self, name: str) -> str:
        """Location of a document, for display."""
        ...

    def read(self, name: str) -> bytes | None: ...

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None: ...


class SessionStat(Struct, frozen=True):
    """What a repository knows about a session without opening it."""

    ref: SessionRef
    id: str
    size: int
    changed: int
    """Time of the last change, in nanoseconds since 1970."""
    identity: int = 0
    """Differs if the bytes were replaced: a file's inode. Same identity, size and time: the session is unchanged."""
    dialect: str = ""
    """The name of its dialect; empty if only its content shows that."""
    kind: Literal["session", "subagent"] = "session"
    parent: SessionRef | None = None
    """The session that started it."""


class SessionRepository(Protocol):
    """Many sessions, with everything that belongs to them: blobs, documents, forks, sub-agents' sessions.

    Found by the scheme of a reference through the entry points `sessiontree.stores`. Threads may share it.

    Contract:
    * `new` gives the store of a new session; the session exists from the store's `create` on. `near` is a session of
      the same repository: where sessions are in folders, the new one goes next to it.
    * `open` gives the store of an existing session. `NotFoundError` for any other, at the latest on the first read.
    * `find` finds a session by its id, or by an unambiguous prefix of at least eight characters.
    * `iter_stats` lists all sessions without opening one.
    * `delete` removes a session permanently. Open stores of it raise `ReplacedError` when they are written.
    """

    @property
    def home(self) -> str:
        """The address of the repository: a folder, or text such as `memory:team`."""
        ...

    @property
    def is_volatile(self) -> bool:
        """Whether its sessions end with the process. Nothing about them may then be stored in a file."""
        ...

    @property
    def blobs(self) -> BlobStore: ...

    @property
    def documents(self) -> DocumentStore: ...

    def new(self, id: str, *, timestamp: str, cwd: str, near: SessionRef | None = None) -> SessionStore: ...

    def open(self, ref: SessionRef) -> SessionStore: ...

    def find(self, wanted: str) -> SessionRef: ...

    def iter_stats(self) -> Iterator[SessionStat]: ...

    def delete(self, ref: SessionRef) -> None: ...


@runtime_checkable
class WatchableRepository(SessionRepository, Protocol):
    """A repository that can wait for changes of a session."""

    def watch(self, ref: SessionRef, timeout: float | None = None) -> Iterator[int]:
        """Yield the size of a session now and after each change; ends when it is deleted, or `timeout` seconds after a
        change.
        """
        ...

    def stat(self, ref: SessionRef) -> SessionStat | None:
        """Facts about one session, without opening it; None if it does not exist."""
        ...


@runtime_checkable
class ArchiveRepository(WatchableRepository, Protocol):
    """A repository with its own archive: session contents under the id of an item, each with a record.

    Contract: each method is atomic, and durable when it returns. The repository does not interpret records.
    """

    def archive(self, item: str, record: bytes, stat: SessionStat, *, remove: bool) -> None:
        """Copy a session to a new item, and with `remove` delete it; `ConflictError` if it is not as in `stat`."""
        ...

    def archived(self) -> list[tuple[str, bytes]]:
        """Ids and records of all items, oldest first."""
        ...

    def read_archived(self, item: str) -> Iterator[bytes]:
        """The content of an item; `NotFoundError` if there is none."""
        ...

    def restore_archived(self, item: str, ref: SessionRef, *, remove: bool) -> None:
        """Create a session with the content of an item; `ExistsError` if there is one. `remove` removes the item."""
        ...

    def remove_archived(self, item: str) -> None:
        """Remove an item permanently; `NotFoundError` if there is none."""
        ...


class RepositoryStatus(Struct, frozen=True):
    """What a repository holds."""

    sessions: int
    size: int
    """Bytes of all sessions."""
    parts: int
    """Rows they are stored in."""
    backups: int
    """Replaced contents that are still there."""
    blobs: int
    blob_size: int
    version: int
    """The version of its tables."""
    server: str
    archived: int = 0
    """Items of the archive."""
    archived_size: int = 0


@runtime_checkable
class MaintainedRepository(SessionRepository, Protocol):
    """A repository with tables that have to be created, upgraded, verified and cleaned up."""

    def upgrade(self) -> list[int]:
        """Create or upgrade the tables; returns the numbers of the migrations that were run."""
        ...

    def status(self) -> RepositoryStatus: ...

    def verify(self) -> Iterator[str]:
        """Describe everything that is damaged."""
        ...

    def vacuum(self, *, days: float, audit_days: float | None = None) -> tuple[int, int]:
        """Merge small parts, and remove backups of sessions unchanged for some days; returns how many rows each step
        saved.

        With `audit_days`, months of the audit log that ended that long ago are also dropped.
        """
        ...


class AuditRecord(Struct, frozen=True):
    """A write recorded in the audit log."""

    at: str
    """Time in UTC, in ISO 8601."""
    tenant: str
    session: str
    actor: str
    """The user of the server."""
    action: str
    """`create`, `append`, `overwrite`, `replace` or `delete`."""
    generation: int
    size: int
    """The size of the session after it."""


class TenantStatus(Struct, frozen=True):
    """What a tenant has stored."""

    tenant: str
    sessions: int
    size: int
    """Bytes of its sessions and blobs."""
    quota: int | None = None
    """Bytes it may store; None without a limit."""


@runtime_checkable
class TenantRepository(SessionRepository, Protocol):
    """A repository that several tenants share, each with sessions, blobs and documents that no other one sees."""

    def add_tenant(self, name: str, *, quota: int | None = None) -> str:
        """Add a tenant, or change its quota; returns the address of its repository."""
        ...

    def remove_tenant(self, name: str) -> None:
        """Remove a tenant; `ExistsError` if it has sessions."""
        ...

    def tenants(self) -> list[TenantStatus]: ...

    def set_audit(self, *, enabled: bool) -> None:
        """Turn the audit log on or off."""
        ...

    def audit(self, *, limit: int) -> list[AuditRecord]:
        """The latest writes, newest first."""
        ...

    def set_blob_store(self, url: str) -> None:
        """Store new blobs of all tenants in an object store; with an empty URL, in the repository again."""
        ...


Scope: TypeAlias = Literal["read", "write"]


class AccessToken(Struct, frozen=True):
    """A token that gives a user of the web page access to the sessions of one tenant. Its secret is not part of it."""

    id: str
    """The public part, which lists and logs may show."""
    tenant: str
    scope: Scope
    note: str
    """What the administrator wrote about it, such as its user."""
    created: str
    """Time in UTC, in ISO 8601."""
    revoked: str | None = None


@runtime_checkable
class TokenRepository(TenantRepository, Protocol):
    """A repository that issues tokens for its tenants. It stores only hashes: a lost token cannot be shown again."""

    def add_token(self, tenant: str, *, scope: Scope, note: str = "") -> str:
        """Create a token, and return its text, which is not stored."""
        ...

    def tokens(self) -> list[AccessToken]:
        """All tokens, including those that were revoked."""
        ...

    def revoke_token(self, id: str) -> None:
        """End a token; `NotFoundError` if there is no valid one with this id."""
        ...

    def check_token(self, text: str) -> AccessToken | None:
        """The token with this text; None if it is wrong or was revoked."""
        ...

    def find_token(self, id: str) -> AccessToken | None:
        """The token with this id; None if there is none, or it was revoked."""
        ...

    def home_of(self, tenant: str) -> str:
        """The address of the repository as a tenant sees it."""
        ...


def check_document_name(name: str) -> str:
    """Return a valid document name, which cannot be a path out of the folder."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", name):
        raise UsageError(f"{name[:80]!r} is not a document name: use letters, digits, '-', '_' and '.'")
    return name


def read_bytes(store: SessionStore, offset: int, size: int) -> bytes:
    """Read bytes of a store; fewer than `size` only at its end."""
    buffer = bytearray(size)
    with memoryview(buffer) as view:
        return bytes(view[: read_into(store, offset, view)])


def read_into(store: SessionStore, offset: int, view: memoryview) -> int:
    """Fill a view with bytes of a store and return their number; less than its size only at the end."""
    held = 0
    while held < len(view):
        got = store.readinto(offset + held, view[held:])
        if got == 0:
            break
        held += got
    return held
