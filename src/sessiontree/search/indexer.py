"""Keep the search index up to date with the session files. Of a file that grew, only the new lines are read.

Each step is one transaction: terms of complete lines, and how far their file is indexed. A killed process leaves only
complete steps, and the next one continues after them. A line's position in the index follows from its position in the
file, so the result does not depend on the number of steps.

One process writes at a time. Another one waits, and then finds little left to index.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from sessiontree.dialects.texts import Line, Text
from sessiontree.errors import SessionTreeError
from sessiontree.library.cache import transaction
from sessiontree.library.session_store import open_store
from sessiontree.library.summary import Summary
from sessiontree.search.file_chunks import CHUNK_BITS, as_file, bytes_before, find_identity, head_hash, iter_lines
from sessiontree.search.index_db import (
    HomeIndexStore,
    IndexedFile,
    IndexStore,
    find_number,
    index_path,
    next_file_number,
    row_number,
    store_file,
    store_next_file_number,
)
from sessiontree.search.text_extractor import read_line
from sessiontree.search.tokenizer import Terms, folded, joined_texts
from sessiontree.stores.contract import SessionStore, read_bytes

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Dialect
    from sessiontree.library.home_image import HomeImage
    from sessiontree.library.library import Library

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the bytes read, the bytes in total, and the current path."""

_STEP = 16 << 20
_COMMIT_SECONDS = 1.0
_MAX_CALLS = 256
_LOOK_BACK = 256 * 1024
_WASTE = 0.5
FACET = "\x02"
"""Prefix of facet terms, which describe a text (kind, tool, model). No word of a text contains it."""


class Pending(Struct, frozen=True):
    """A file with lines that are not indexed yet."""

    summary: Summary
    start: int
    """Offset to read from; 0 for a new or replaced file."""
    known: IndexedFile | None


class Index:
    """The search index of this machine, or of a repository that keeps its own."""

    def __init__(self, environment: Mapping[str, str] | None = None, *, image: HomeImage | None = None) -> None:
        path = index_path(os.environ if environment is None else environment)
        self.store = IndexStore(path) if image is None else HomeIndexStore(image)

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pending(self, sessions: Sequence[Summary], known: Mapping[str, IndexedFile] | None = None) -> list[Pending]:
        """Files that are new or have changed, oldest first, so that newer files have larger numbers."""
        known = self.store.indexed_files() if known is None else known
        found: list[Pending] = []
        for summary in sessions:
            before = known.get(summary.ref)
            if before is None:
                found.append(Pending(summary, 0, None))
            elif before.size != summary.size or before.modified != summary.modified or before.agent != summary.agent:
                found.append(_check_growth(summary, before))
        return sorted(
            (file for file in found if file.start != file.summary.size), key=lambda file: file.summary.recency
        )

    def update(
        self, sessions: Sequence[Summary], *, progress: Progress | None = None, timeout: float | None = None
    ) -> bool:
        """Index what is new and forget deleted files. False if another process does that for `timeout` seconds."""
        with self.store.writer_lock(timeout=timeout) as is_ours:
            if not is_ours:
                return False
            self.store.attempt(lambda database: self._update(database, sessions, progress))
        return True

    def _update(self, database: sqlite3.Connection, sessions: Sequence[Summary], progress: Progress | None) -> None:
        self.store.drop_damaged_rows(database)
        self._forget(database, sessions)
        waiting = self.pending(sessions)
        total = sum(file.summary.size - file.start for file in waiting)
        writer = _Writer(database, progress, total)
        for file in waiting:
            writer.read(file)
            writer.commit_in_time()
        writer.commit()

    def _forget(self, database: sqlite3.Connection, sessions: Sequence[Summary]) -> None:
        """Drop deleted files. If most rows no longer belong to a file, drop everything."""
        paths = {summary.ref for summary in sessions}
        gone = [known for known in self.store.indexed_files().values() if known.path not in paths]
        if gone:
            with transaction(database):
                for known in gone:
                    _drop(database, known)
        wasted = find_number(database, "wasted") or 0
        kept = database.execute("SELECT coalesce(sum(size), 0) FROM files").fetchone()[0]
        if wasted > _WASTE * (kept + wasted) and wasted > _STEP:
            with transaction(database):
                database.execute("DELETE FROM files")
                database.execute("DELETE FROM branches")
                database.execute("DELETE FROM numbers")
                database.execute("INSERT INTO terms(terms) VALUES('delete-all')")


class IndexPart(Struct, frozen=True):
    """An index, and which sessions of a library it is for: those in files, or those of a repository with its own."""

    index: Index
    library: Library
    is_of_home: bool = False

    def sessions(self) -> list[Summary]:
        return self.library.stored() if self.is_of_home else self.library.indexable()

    def update(self, *, progress: Progress | None = None, timeout: float | None = None) -> bool:
        return self.index.update(self.sessions(), progress=progress, timeout=timeout)


@contextlib.contextmanager
def open_indexes(library: Library) -> Iterator[list[IndexPart]]:
    """The index of this machine and, if the library's home is a repository with its own index, that one as well."""
    with contextlib.ExitStack() as stack:
        parts = [IndexPart(stack.enter_context(Index(library.environment)), library)]
        image = library.home_image("search")
        if image is not None:
            parts.insert(0, IndexPart(stack.enter_context(Index(image=image)), library, is_of_home=True))
        yield parts


class _Writer:
    """Writes the terms of lines to the index in steps."""

    def __init__(self, database: sqlite3.Connection, progress: Progress | None, total: int) -> None:
        self._database = database
        self._progress = progress
        self._total = total
        self._read = 0
        self._unwritten = 0
        self._committed = time.monotonic()
        self._terms = Terms()
        self._next = next_file_number(database)
        self._replaced: list[IndexedFile] = []
        self._rows: list[tuple[int, bytes]] = []
        self._files: dict[str, tuple[Pending, int, int, bytes, bytes, int]] = {}

    def read(self, file: Pending) -> None:
        """Index the new lines of a session; an unreadable one is skipped."""
        with contextlib.closing(open_store(file.summary)) as store:
            try:
                # Before its lines: if the file is replaced meanwhile, the next update finds another fingerprint.
                identity = find_identity(file.summary)
                size = store.size()
                head = head_hash(store, size)
            except (SessionTreeError, OSError):
                return
            self._read_lines(file, store, identity, size, head)

    def _read_lines(self, file: Pending, store: SessionStore, identity: int, size: int, head: bytes) -> None:
        path = file.summary.ref
        number = self._number(file)
        texts_of_file = FileTexts(file.summary.agent, path, store)
        chunk_terms = _ChunkTerms(self._terms, self._rows, number)
        end = file.start
        # Not beyond the size in the summary: its modification time is stored with it, and is older than later lines.
        for offset, line in iter_lines(store, file.start, min(size, file.summary.size)):
            if not line.endswith(b"\n") and not _is_complete(line):
                break  # still being written: indexed with the next update
            chunk_terms.add(offset >> CHUNK_BITS, texts_of_file.texts(line, offset))
            end = offset + len(line)
            self._unwritten += len(line)
            if self._unwritten > _STEP:
                chunk_terms.finish()
                self._files[path] = (file, number, identity, head, bytes_before(store, end), end)
                self.commit()
        chunk_terms.finish()
        self._files[path] = (file, number, identity, head, bytes_before(store, end), end)

    def _number(self, file: Pending) -> int:
        """The number of a file; a new one if it was replaced. Stored by the next commit."""
        if file.start and file.known is not None:
            return file.known.file
        # A replaced file needs a new number. Rows of the old number cannot be deleted from a contentless table, and
        # would be taken for rows of the new content.
        if file.known is not None:
            self._replaced.append(file.known)
        self._next += 1
        return self._next - 1

    def commit_in_time(self) -> None:
        """Commit once in a while, so that an update of many small files that is stopped has not been in vain."""
        if time.monotonic() - self._committed >= _COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        database = self._database
        # One transaction: terms without the new size would be indexed twice, a size without its terms never.
        with transaction(database):
            for known in self._replaced:
                _drop(database, known)
            if self._files:
                store_next_file_number(database, self._next)
            # Sorted: FTS5 flushes its buffer when a row number is not larger than the last one.
            database.executemany("INSERT INTO terms(rowid, text) VALUES(?, ?)", sorted(self._rows))
            for path, (file, number, identity, head, edge, end) in self._files.items():
                summary = file.summary
                store_file(
                    database, IndexedFile(number, path, summary.agent, end, summary.modified, identity, head, edge)
                )
        self._replaced.clear()
        self._rows.clear()
        self._read += self._unwritten
        self._unwritten = 0
        self._committed = time.monotonic()
        if self._progress is not None and self._files:
            self._progress(self._read, self._total, next(reversed(self._files)))
        self._files.clear()


class _ChunkTerms:
    """Collects the texts of a chunk until it is complete, descriptive ones separately."""

    def __init__(self, terms: Terms, rows: list[tuple[int, bytes]], file: int) -> None:
        self._terms = terms
        self._rows = rows
        self._file = file
        self._chunk = 0
        self._texts: tuple[list[bytes], list[bytes]] = ([], [])
        self._facets: tuple[set[_Facets], set[_Facets]] = (set(), set())

    def add(self, chunk: int, lines: Sequence[Line]) -> None:
        if chunk != self._chunk:
            self.finish()
            self._chunk = chunk
        for line in lines:
            is_descriptive = line.is_descriptive
            texts, facets = self._texts[is_descriptive], self._facets[is_descriptive]
            for text in line.texts:
                texts.append(text.raw)
                facets.add((text.kind, text.role, text.is_error, text.tool, line.model))

    def finish(self) -> None:
        for is_descriptive in (False, True):
            texts, facets = self._texts[is_descriptive], self._facets[is_descriptive]
            if facets:
                text, is_escaped = joined_texts(texts)
                terms = b" ".join([self._terms.of(text, is_escaped=is_escaped), *map(_facet_terms, facets)])
                self._rows.append((row_number(self._file, self._chunk, is_descriptive=is_descriptive), terms))
                texts.clear()
                facets.clear()


class FileTexts:
    """Extracts texts of one file's lines, including blobs, and finds the tool that a result belongs to."""

    def __init__(self, dialect: Dialect | str, path: str, store: SessionStore) -> None:
        self._dialect = dialect
        self._path = path
        self._store = store
        self._tools: dict[str, str] = {}

    def texts(self, line: bytes, offset: int, *, tools: bool = True) -> list[Line]:
        """Extract the texts of a line. With `tools`, results get the name of their tool."""
        lines = read_line(line, self._dialect, self._blob)
        if tools:
            for found in lines:
                for text in found.texts:
                    if text.call:
                        self._name_tool(text, offset)
        return lines

    def tool_of(self, text: Text, offset: int) -> str:
        """The tool of a result that does not name it."""
        return self._find_tool_before(text.call, offset) if text.call else ""

    def _blob(self, name: str) -> bytes | None:
        from sessiontree.library.roots import dialect_named
        from sessiontree.stores.blobs import FileBlobs

        dialect = dialect_named(self._dialect) if isinstance(self._dialect, str) else self._dialect
        folder = dialect.blob_folder(self._path)
        blobs = FileBlobs(folder, flat=True) if folder else FileBlobs(_native_blobs(self._path))
        try:
            return blobs.get(name)
        except SessionTreeError:
            return None

    def _name_tool(self, text: Text, offset: int) -> None:
        if text.kind == "input":
            self._tools[text.call] = text.tool
            if len(self._tools) > _MAX_CALLS:
                del self._tools[next(iter(self._tools))]
        elif not text.tool:
            text.tool = self._tools.pop(text.call, "") or self._find_tool_before(text.call, offset)

    def _find_tool_before(self, call: str, offset: int) -> str:
        """Find the name of a tool in the lines before; empty if the call is not within 256 KiB."""
        start = max(0, offset - _LOOK_BACK)
        with as_file(self._store, start) as file:  # no copy: this runs for most results of tools
            before = file.read(offset - start)
        at = before.rfind(b'"' + call.encode("utf-8", "replace") + b'"')
        line = before[before.rfind(b"\n", 0, at) + 1 : before.find(b"\n", at)] if at >= 0 else b""
        texts = [text for found in read_line(line, self._dialect) for text in found.texts] if line else []
        return next((text.tool for text in texts if text.call == call and text.kind == "input"), "")


def facet_term(letter: str, value: str) -> bytes:
    """A term for a fact about a text: `k` kind, `t` tool, `m` model."""
    plain = "".join(character if character.isalnum() else "_" for character in folded(value))
    return f"{FACET}{letter}{plain[:60]}".encode("utf-8", "replace")


_Facets: TypeAlias = tuple[str, str, bool, str, str]
"""Kind, role, whether it is an error, tool, model."""


@lru_cache(maxsize=1024)
def _facet_terms(facets: _Facets) -> bytes:
    kind, role, is_error, tool, model = facets
    found = [facet_term("k", f"{kind}_{role}_{'e' if is_error else 'o'}")]
    found += [facet_term("t", tool)] if tool else []
    found += [facet_term("m", model)] if model else []
    return b" ".join(found)


def _native_blobs(path: str) -> str:
    from sessiontree.paths import blobs_folder

    return blobs_folder(os.path.dirname(os.path.dirname(os.path.dirname(path))))


def _check_growth(summary: Summary, before: IndexedFile) -> Pending:
    """Compare a changed session with its fingerprint: it either grew or was replaced."""
    try:
        with contextlib.closing(open_store(summary)) as store:
            # Agents only append. The inode changes when a file is replaced, the first bytes when it is rewritten, and
            # the bytes before the old end when it is truncated and continued differently. Then it is read from scratch.
            # A last line without a line feed was complete; if it goes on now, it was changed.
            is_same = (
                summary.agent == before.agent
                and find_identity(summary) == before.identity
                and summary.size >= before.size
                and head_hash(store, before.size) == before.head
                and bytes_before(store, before.size) == before.edge
                and (before.edge[-1:] in (b"\n", b"") or read_bytes(store, before.size, 1) in (b"\n", b""))
            )
    except (SessionTreeError, OSError):
        return Pending(summary, summary.size, before)  # nothing to read: what is indexed remains
    return Pending(summary, before.size if is_same else 0, before)


def _is_complete(line: bytes) -> bool:
    from sessiontree.core.jsonio import parse_json

    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _drop(database: sqlite3.Connection, known: IndexedFile) -> None:
    wasted = (find_number(database, "wasted") or 0) + known.size
    database.execute("DELETE FROM files WHERE file = ?", (known.file,))
    database.execute("DELETE FROM branches WHERE file = ?", (known.file,))
    database.execute("INSERT OR REPLACE INTO numbers VALUES('wasted', ?)", (wasted,))
