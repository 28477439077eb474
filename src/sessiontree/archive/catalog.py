"""What is in the archive: one JSON line for each item that came, and one for each that left again.

The file only grows. A line that cannot be read is passed over and told; the contents it named are still there, by hash.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sessiontree.archive.object_store import Stored
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.stores.atomic_files import create_file
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

Kind = Literal["moved", "kept", "edited"]


class Edit(Struct, frozen=True):
    """A rewriting of a session file: what it left there. The item's first file is what stood there before."""

    verb: str
    path: str
    """Where the rewritten file is: the old place, or for a move the new one."""
    size: int
    sha256: str
    """Of the rewritten file, which may have grown since."""
    taken: tuple[tuple[int, int], ...] = ()
    """The bytes that left the file, as (offset, length) in what stood there before."""


class About(Struct, frozen=True):
    """What is told of a session that goes to the archive."""

    path: str
    agent: str = ""
    session: str = ""
    title: str = ""


class Item(Struct, frozen=True):
    """One thing in the archive: a session that moved in, a copy of one, or what a rewritten one was before."""

    id: str
    kind: Kind
    path: str
    agent: str
    session: str
    title: str
    size: int
    sha256: str
    """Of the session file; `files` has all of them."""
    when: str
    why: str
    files: tuple[Stored, ...]
    """The session file first, then those in its folder."""
    edit: Edit | None = None


class Index:
    """The list of items, in a file."""

    def __init__(self, path: str, os_calls: OsCalls = OS_CALLS) -> None:
        self.path = path
        self._os_calls = os_calls
        self._start_over((0, 0))

    def _start_over(self, identity: tuple[int, int]) -> None:
        self.problems: list[str] = []
        """Lines that could not be read, told for people."""
        self._items: dict[str, Item] = {}
        self._identity = identity
        self._read_to = 0
        self._lines = 0

    def read(self) -> dict[str, Item]:
        """The items that are in the archive now, oldest first. Only what is new in the file is read."""
        try:
            with open(self.path, "rb") as file:
                found = os.fstat(file.fileno())
                identity = (found.st_dev, found.st_ino)
                if identity != self._identity or found.st_size < self._read_to:
                    self._start_over(identity)
                file.seek(self._read_to)
                data = file.read()
        except FileNotFoundError:
            self._start_over((0, 0))
            return {}
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.split(b"\n")[:-1]:
            self._lines += 1
            if line.strip():
                self._take(line)
        return dict(self._items)

    def _take(self, line: bytes) -> None:
        try:
            fields = parse_json(line)
            if "left" in fields:
                self._items.pop(fields["left"], None)
            else:
                item = msgspec.convert(fields, Item)
                self._items[item.id] = item
        except (ValueError, TypeError) as error:
            self.problems.append(f"{self.path}:{self._lines}: passed over: {error}")

    def add(self, item: Item) -> None:
        """Return when the item is durably listed."""
        self._append(msgspec.to_builtins(item))

    def remove(self, id: str, why: str, when: str) -> None:
        """Return when it is durably said that an item has left."""
        self._append({"left": id, "why": why, "when": when})

    def _append(self, fields: dict[str, Any]) -> None:
        line = render_json(fields) + b"\n"
        if not os.path.exists(self.path):
            create_file(self.path, [line], self._os_calls)
            return
        store = FileStore(self.path, os_calls=self._os_calls)
        try:
            size = store.lock()
            try:
                is_torn = size > 0 and read_bytes(store, size - 1, 1) != b"\n"
                store.append(b"\n" + line if is_torn else line)
            finally:
                store.unlock()
            store.sync()
        finally:
            store.close()
