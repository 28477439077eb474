"""Descriptions of how a client stores its sessions in files.

A dialect never opens a file. It describes the storage with one of these structs, and `sessiontree.sources` opens it as
a store of lines. Functions in them are pure and may raise `ValueError` for damaged content, which then becomes a
problem of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from msgspec import Struct


class LineFile(Struct, frozen=True):
    """A file of lines, one session per file. The only storage that can be written."""


class Document(Struct, frozen=True):
    """A file that is one document, such as a JSON object with all messages of a session."""

    lines: Callable[[bytes], Iterable[bytes]]
    """Splits the content of the file into the lines of the session, without LF."""


class Rows(Struct, frozen=True):
    """An SQLite database that contains many sessions. Its queries only read."""

    sessions: str
    """A query for all sessions, with these columns, of which only `item` is required:

    item      the id of the session in the database
    modified  time of the last change in milliseconds since 1970
    stamp     any value that changes with the content of the session, if its time is not enough to notice that
    size      size in bytes, if it is cheap to know
    kind      `session` (the default) or `subagent`
    parent    of a sub-agent: the item of the session that started it

    A session without `modified` and `stamp` is read again after every write to the database.
    """
    lines: str
    """A query for the rows of one session, in order; `:item` is the session."""
    line: Callable[[tuple[Any, ...]], bytes]
    """Turns a row of `lines` into a line without LF."""


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


Storage: TypeAlias = LineFile | Document | Rows | Compressed | Joined

LINE_FILE = LineFile()
