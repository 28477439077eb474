"""Descriptions of how a client stores its sessions in files.

A dialect never opens a file. It describes the storage with one of these structs, and `sessiontree.sources` opens it as
a store of lines. Functions in them are pure and may raise `ValueError` for damaged content, which then becomes a
problem of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct


class LineFile(Struct, frozen=True):
    """A file of lines, one session per file. The only storage that can be written."""


class Document(Struct, frozen=True):
    """A file that is one document, such as a JSON object with all messages of a session."""

    lines: Callable[[bytes], Iterable[bytes]]
    """Splits the content of the file into the lines of the session, without LF."""
    content: Callable[[Iterable[bytes]], Iterable[bytes]] | None = None
    """The inverse, for files that are written for the client: turns lines without LF into the content of a file."""


class FileReader(Protocol):
    """Reads the other files of a session. Neither method raises an error."""

    def names(self, folder: str) -> Sequence[str]:
        """The sorted names in a folder; empty if it cannot be read."""
        ...

    def read(self, path: str) -> bytes | None:
        """The bytes of a regular file; None if it cannot be read."""
        ...


class Gathered(Struct, frozen=True):
    """A file that describes a session, whose messages are in separate files."""

    lines: Callable[[str, bytes, FileReader], Iterable[bytes]]
    """Turns the path and the content of the file into the lines of the session, without LF.

    Paths of other files may only be built from names that the reader listed.
    """


class Outline(Struct, frozen=True):
    """A short form of a session in a database, so that listing a large one need not read it."""

    lines: Sequence[bytes]
    """The header, the first and the last prompt, without LF."""
    messages: int
    active: int | None = None
    """Time of the last message in milliseconds since 1970."""
    model: str | None = None
    requests: int = 0
    input: int | float = 0
    output: int | float = 0
    cached: int | float = 0
    cache_written: int | float = 0
    cost: float = 0.0


class Rows(Struct, frozen=True):
    """An SQLite database that contains many sessions. Its queries only read."""

    sessions: str | tuple[str, ...]
    """A query for all sessions; several are tried in order, until the database has the tables and columns of one.

    Its columns, of which only `item` is required:

    item      the id of the session in the database
    modified  time of the last change in milliseconds since 1970
    stamp     any value that changes with the content of the session, if its time is not enough to notice that
    size      size in bytes, if it is cheap to know
    kind      `session` (the default) or `subagent`
    parent    of a sub-agent: the item of the session that started it

    A session without `modified` and `stamp` is read again after every write to the database.
    """
    lines: str | tuple[str, ...]
    """A query for the rows of one session, in order; `:item` is the session. Several are tried as for `sessions`."""
    line: Callable[[tuple[Any, ...]], bytes | Sequence[bytes]]
    """Turns a row of `lines` into a line without LF, or into several: a part of a row that cannot be decoded is a line
    of its own."""
    outline: str | tuple[str, ...] = ()
    """A query for one row with a short form of one session; without it, a listing reads the whole session."""
    outline_of: Callable[[Mapping[str, Any]], Outline | None] = lambda row: None  # noqa: ARG005 - the default
    """Turns the row of `outline` into the short form; None if the whole session has to be read."""


class Compressed(Struct, frozen=True):
    """A compressed file of lines, or a compressed document."""

    codec: Literal["gzip", "zstd"]
    content: LineFile | Document = LineFile()


class EarlierPart(Struct, frozen=True):
    """The earlier file that a session continues, and the part of it that belongs to the session."""

    folder: str
    name: str | tuple[str, ...]
    """The name of the file in the folder, or the end of the name of a single file anywhere below it. With several
    names, the file has one of them."""
    end: int
    """Number of bytes of the earlier file that belong to the session."""
    start: int = 0
    """Number of bytes at its beginning, such as its header, that do not."""
    after: int = 0
    """Number of bytes at the beginning of the later file, such as its header, that come before the earlier part."""
    likely_folders: tuple[str, ...] = ()
    """Folders that are searched first, without those below them: searching all of `folder` may take long."""


class Joined(Struct, frozen=True):
    """A file of lines that may continue an earlier one, which may continue another."""

    earlier: Callable[[str, bytes], EarlierPart | None]
    """Finds the earlier part by the path and the beginning of a file; None if the file is complete. The beginning is
    64 KiB, or the first line if that is longer."""
    codec: Literal["gzip", "zstd"] | None = None
    """The compression of the file itself."""


Storage: TypeAlias = LineFile | Document | Gathered | Rows | Compressed | Joined

LINE_FILE = LineFile()
