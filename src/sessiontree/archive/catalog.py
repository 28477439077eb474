"""The catalog of the archive: one JSON line for each item that was added, and one for each that was removed.

The file is append-only. A line that cannot be parsed is skipped and reported; the objects it names still exist.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sessiontree.archive.object_store import ArchivedFile
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.errors import ConflictError
from sessiontree.stores.atomic_files import create_file
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

Kind = Literal["moved", "kept", "edited"]
"""`moved`: a cleaned session; `kept`: a copy of one; `edited`: the state of a file before it was rewritten."""


class Edit(Struct, frozen=True):
    """One rewrite of a session file. The item's first file is its content before."""

    verb: str
    path: str
    """Path of the rewritten file; for a move, the new one."""
    size: int
    """Size right after the rewrite; the file may have grown since."""
    sha256: str
    taken: tuple[tuple[int, int], ...] = ()
    """Removed byte ranges, as (offset, length) in the content before."""


class SessionInfo(Struct, frozen=True):
    """What the catalog records about a session."""

    path: str
    agent: str = ""
    session: str = ""
    title: str = ""
    cwd: str = ""


class ArchiveItem(Struct, frozen=True):
    """One item of the archive; the fields are those of its line in the catalog."""

    id: str
    kind: Kind
    path: str
    agent: str
    session: str
    title: str
    size: int
    """Of all files together."""
    sha256: str
    """Of the session file."""
    when: str
    why: str
    files: tuple[ArchivedFile, ...]
    """The session file first, then those in its folder."""
    edit: Edit | None = None
    cwd: str = ""
    """The working folder of the session; empty if it is unknown."""


class Catalog:
    """The list of archive items, in a file."""

    def __init__(self, path: str, os_calls: OsCalls = OS_CALLS) -> None:
        self.path = path
        self._os_calls = os_calls
        self._reset((0, 0))

    def _reset(self, identity: tuple[int, int]) -> None:
        self.problems: list[str] = []
        """Lines that could not be parsed, as messages."""
        self._items: dict[str, ArchiveItem] = {}
        self._identity = identity
        self._read_to = 0
        self._lines = 0

    def read(self) -> dict[str, ArchiveItem]:
        """Id -> item, oldest first. Reads only what was appended since the last call."""
        try:
            with open(self.path, "rb") as file:
                found = os.fstat(file.fileno())
                identity = (found.st_dev, found.st_ino)
                if identity != self._identity or found.st_size < self._read_to:
                    self._reset(identity)
                file.seek(self._read_to)
                data = file.read()
        except FileNotFoundError:
            self._reset((0, 0))
            return {}
        # A line without LF is still being written, or torn; it is read again next time.
        complete = data[: data.rfind(b"\n") + 1]
        self._read_to += len(complete)
        for line in complete.split(b"\n")[:-1]:
            self._lines += 1
            if line.strip():
                self._parse_line(line)
        return dict(self._items)

    def _parse_line(self, line: bytes) -> None:
        try:
            fields = parse_json(line)
            if "left" in fields:
                self._items.pop(fields["left"], None)
            else:
                item = msgspec.convert(fields, ArchiveItem)
                self._items[item.id] = item
        except (ValueError, TypeError) as error:
            self.problems.append(f"{self.path}:{self._lines}: skipped: {error}")

    def add(self, item: ArchiveItem) -> None:
        """Append an item; durable when this returns."""
        self._append(msgspec.to_builtins(item))

    def remove(self, id: str, why: str, when: str) -> None:
        """Append the removal of an item; durable when this returns."""
        self._append({"left": id, "why": why, "when": when})

    def _append(self, fields: dict[str, Any]) -> None:
        line = render_json(fields) + b"\n"
        if not os.path.exists(self.path):
            create_file(self.path, [line], self._os_calls)
            return
        store = FileStore(self.path, os_calls=self._os_calls)
        try:
            with store.exclusive() as size:
                # End a torn line first, or the new item would become part of it.
                is_torn = size > 0 and read_bytes(store, size - 1, 1) != b"\n"
                if store.append(b"\n" + line if is_torn else line, expected_size=size) is None:
                    raise ConflictError(f"{self.path}: another program wrote to it; nothing was written")
            store.sync()
        finally:
            store.close()
