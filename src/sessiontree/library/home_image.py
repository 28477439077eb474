"""A SQLite database about the sessions of a repository: a document there, in memory here.

Nothing about the sessions of a team's database is stored in files of this machine. Their listing cache and their search
index are loaded from the repository, and stored there again when they have changed. All of it can be derived again. So
a repository that cannot be read or written only costs time, and of two processes that store it the last one wins.
"""

from __future__ import annotations

import contextlib
import sqlite3

from sessiontree.errors import SessionTreeError
from sessiontree.library.sqlite_damage import seal, unseal
from sessiontree.stores.contract import DocumentStore

_MAX_SIZE = 256 << 20
"""Larger databases are not stored: reading them back would take longer than reading the sessions."""


class HomeImage:
    """One database of a repository."""

    def __init__(self, documents: DocumentStore, name: str) -> None:
        self._documents = documents
        self._name = f"cache-{name}"
        self._changes = 0

    def open(self) -> sqlite3.Connection:
        """A connection to the database in memory, with the content of the repository, if there is any."""
        import zstandard  # only repositories need it

        database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with contextlib.suppress(SessionTreeError, zstandard.ZstdError):
            stored = self._documents.read(self._name)
            image = None if stored is None else unseal(stored)
            if image is not None:
                database.deserialize(zstandard.ZstdDecompressor().decompress(image, max_output_size=_MAX_SIZE))
        self._changes = database.total_changes
        return database

    def save(self, database: sqlite3.Connection) -> None:
        """Store the database if it has changed."""
        import zstandard

        if database.total_changes == self._changes:
            return
        image = database.serialize()
        self._changes = database.total_changes
        if len(image) > _MAX_SIZE:
            return
        data = seal(zstandard.ZstdCompressor(level=3).compress(image))
        with contextlib.suppress(SessionTreeError):  # a read-only user
            self._documents.update(self._name, lambda _: data)
