"""Query the index for the chunks of files that match an expression."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain

from sessiontree.search.index_db import SHIFT, IndexStore
from sessiontree.search.indexer import FACET
from sessiontree.search.matcher import fts_expression
from sessiontree.search.query import Query

MAX_ROWS = 200_000
_ROWS = "SELECT rowid FROM terms WHERE terms MATCH ? ORDER BY rowid DESC LIMIT ?"
_ROWS_PER_FETCH = 500


class IndexQuery:
    """Questions to one index."""

    def __init__(self, store: IndexStore) -> None:
        self._store = store

    def expression(self, query: Query) -> str:
        """A query in the language of the index."""
        models = self._facet_terms("m") if query.filters.model else []
        tools = self._facet_terms("t") if query.filters.tool else []
        return fts_expression(query, models, tools)

    def rows(self, expression: str) -> list[int]:
        """The chunks that match, newest first, and at most `MAX_ROWS`."""
        return self._store.attempt(
            lambda database: list(chain.from_iterable(database.execute(_ROWS, (expression, MAX_ROWS))))
        )

    def find_rarest(self, expressions: Sequence[str]) -> tuple[int, list[int]]:
        """Find the expression with the fewest rows; returns its index and rows."""

        # All cursors advance together, so that only as many rows of the others are read.
        def ask(database: sqlite3.Connection) -> tuple[int, list[int]]:
            cursors = [database.execute(_ROWS, (expression, MAX_ROWS)) for expression in expressions]
            rows: list[list[int]] = [[] for _ in cursors]
            while True:
                for number, cursor in enumerate(cursors):
                    more = cursor.fetchmany(_ROWS_PER_FETCH)
                    rows[number] += [row for (row,) in more]
                    if len(more) < _ROWS_PER_FETCH:
                        return number, rows[number]

        return self._store.attempt(ask)

    def has_file(self, expression: str, file: int) -> bool:
        """Whether a chunk of a file matches."""
        sql = "SELECT 1 FROM terms WHERE terms MATCH ? AND rowid BETWEEN ? AND ? LIMIT 1"
        bounds = file << SHIFT, ((file + 1) << SHIFT) - 1
        row = self._store.attempt(lambda database: database.execute(sql, (expression, *bounds)).fetchone())
        return row is not None

    def _facet_terms(self, letter: str) -> list[str]:
        sql = "SELECT term FROM words WHERE term >= ? AND term < ?"
        bounds = (f"{FACET}{letter}", f"{FACET}{chr(ord(letter) + 1)}")
        return self._store.attempt(lambda database: [term for (term,) in database.execute(sql, bounds)])
