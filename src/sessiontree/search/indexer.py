"""Bringing the search index up to date with the session files. Of a file that grew only what was added is read.

Each step is one transaction: the terms of some whole lines, and how far their file is read now. A process that dies
leaves steps that are whole, and the next one goes on behind them. Since a line's place in the index follows from its
place in the file, it makes no difference how many steps there were: the index is the same as if it were made at once.

One process adds at a time; another waits for it, and finds little left to do.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from sessiontree.library.cache import transaction
from sessiontree.library.summary import Summary
from sessiontree.search.file_chunks import STRETCH, edge_of, head_of, iter_lines, open_file, read_at
from sessiontree.search.index_db import Known, Store, index_path, keep_next_number, next_number, row_number
from sessiontree.search.text_extractor import Line, Text, joined_texts, read_line
from sessiontree.search.tokenizer import Terms, folded

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Dialect

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with how many of how many bytes have been read, and the path of the file."""

_STEP = 16 << 20
_KEPT_CALLS = 256
_LOOK_BACK = 256 * 1024
_WASTE = 0.5
MARK = "\x02"
"""Begins terms that are not words of a text but say something of it. No text has it in a word."""


class Pending(Struct, frozen=True):
    """A file with lines that are not in the index yet."""

    summary: Summary
    start: int
    """From where; 0 when it is new, or not the file it was."""
    known: Known | None


class Index:
    """The search index of a machine."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self.store = Store(index_path(os.environ if environment is None else environment))

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def pending(self, sessions: Sequence[Summary], known: Mapping[str, Known] | None = None) -> list[Pending]:
        """The files that are new or have changed, the oldest first, so that newer ones have larger numbers."""
        known = self.store.known() if known is None else known
        found: list[Pending] = []
        for one in sessions:
            before = known.get(one.path)
            if before is None:
                found.append(Pending(one, 0, None))
            elif before.size != one.size or before.modified != one.modified or before.agent != one.agent:
                found.append(_looked_at(one, before))
        return sorted((one for one in found if one.start != one.summary.size), key=lambda one: one.summary.recency)

    def update(self, sessions: Sequence[Summary], *, progress: Progress | None = None, wait: bool = True) -> bool:
        """Read what is new into the index, and forget files that are gone. False when another process does it now."""
        with self.store.only_writer(wait=wait) as is_ours:
            if not is_ours:
                return False
            self.store.attempt(lambda database: self._update(database, sessions, progress))
        return True

    def _update(self, database: sqlite3.Connection, sessions: Sequence[Summary], progress: Progress | None) -> None:
        self._forget(database, sessions)
        waiting = self.pending(sessions)
        total = sum(one.summary.size - one.start for one in waiting)
        writer = _Writer(database, progress, total)
        for one in waiting:
            writer.read(one)
        writer.commit()

    def _forget(self, database: sqlite3.Connection, sessions: Sequence[Summary]) -> None:
        """Drop what is known of files that are gone. When most rows are of no file any more, drop everything."""
        paths = {one.path for one in sessions}
        gone = [known for known in self.store.known().values() if known.path not in paths]
        if gone:
            with transaction(database):
                for known in gone:
                    _drop(database, known)
        wasted = _number(database, "wasted")
        kept = database.execute("SELECT coalesce(sum(size), 0) FROM files").fetchone()[0]
        if wasted > _WASTE * (kept + wasted) and wasted > _STEP:
            with transaction(database):
                database.execute("DELETE FROM files")
                database.execute("DELETE FROM branches")
                database.execute("DELETE FROM numbers")
                database.execute("INSERT INTO terms(terms) VALUES('delete-all')")


class _Writer:
    """Puts the terms of lines into the index, step by step."""

    def __init__(self, database: sqlite3.Connection, progress: Progress | None, total: int) -> None:
        self._database = database
        self._progress = progress
        self._total = total
        self._read = 0
        self._unwritten = 0
        self._terms = Terms()
        self._next = next_number(database)
        self._replaced: list[Known] = []
        self._rows: list[tuple[int, bytes]] = []
        self._files: dict[str, tuple[Pending, int, os.stat_result, bytes, bytes, int]] = {}

    def read(self, one: Pending) -> None:
        """Read the lines of a file that are new. One that cannot be read has none."""
        try:
            descriptor = open_file(one.summary.path)
        except OSError:
            return
        try:
            self._read_file(one, descriptor)
        finally:
            os.close(descriptor)

    def _read_file(self, one: Pending, descriptor: int) -> None:
        path, stat = one.summary.path, os.fstat(descriptor)
        number = self._number(one)
        head = head_of(descriptor, stat.st_size)
        reading = FileReading(one.summary.agent, path, descriptor)
        gathered = _Gathered(self._terms, self._rows, number)
        place = one.start
        for offset, line in iter_lines(descriptor, one.start, min(stat.st_size, one.summary.size)):
            if not line.endswith(b"\n") and not _is_whole(line):
                break  # it is still being written
            gathered.add(offset >> STRETCH, reading.texts(line, offset))
            place = offset + len(line)
            self._unwritten += len(line)
            if self._unwritten > _STEP:
                gathered.finish()
                self._files[path] = (one, number, stat, head, edge_of(descriptor, place), place)
                self.commit()
        gathered.finish()
        self._files[path] = (one, number, stat, head, edge_of(descriptor, place), place)

    def _number(self, one: Pending) -> int:
        """The number of a file; another than before, when it is not the file it was. The next commit writes it down."""
        if one.start and one.known is not None:
            return one.known.file
        if one.known is not None:
            self._replaced.append(one.known)
        self._next += 1
        return self._next - 1

    def commit(self) -> None:
        """End the step."""
        database = self._database
        with transaction(database):
            for known in self._replaced:
                _drop(database, known)
            if self._files:
                keep_next_number(database, self._next)
            # In order: at a number that is not above the last, SQLite writes out what it has gathered.
            database.executemany("INSERT INTO terms(rowid, text) VALUES(?, ?)", sorted(self._rows))
            for path, (one, number, stat, head, edge, place) in self._files.items():
                row = (number, path, one.summary.agent, place, one.summary.modified, stat.st_ino, head, edge)
                database.execute("INSERT OR REPLACE INTO files VALUES(?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._replaced.clear()
        self._rows.clear()
        self._read += self._unwritten
        self._unwritten = 0
        if self._progress is not None and self._files:
            self._progress(self._read, self._total, next(reversed(self._files)))
        self._files.clear()


class _Gathered:
    """The texts of a stretch until it is complete: of what tells most, and of the rest."""

    def __init__(self, terms: Terms, rows: list[tuple[int, bytes]], file: int) -> None:
        self._terms = terms
        self._rows = rows
        self._file = file
        self._stretch = 0
        self._texts: tuple[list[bytes], list[bytes]] = ([], [])
        self._marks: tuple[set[_Mark], set[_Mark]] = (set(), set())

    def add(self, stretch: int, lines: Sequence[Line]) -> None:
        if stretch != self._stretch:
            self.finish()
            self._stretch = stretch
        for line in lines:
            is_telling = line.is_telling
            texts, marks = self._texts[is_telling], self._marks[is_telling]
            for text in line.texts:
                texts.append(text.raw)
                marks.add((text.kind, text.role, text.is_error, text.tool, line.model))

    def finish(self) -> None:
        for is_telling in (False, True):
            texts, marks = self._texts[is_telling], self._marks[is_telling]
            if marks:
                text, is_escaped = joined_texts(texts)
                terms = b" ".join([self._terms.of(text, is_escaped=is_escaped), *map(_marks_of, marks)])
                self._rows.append((row_number(self._file, self._stretch, is_telling=is_telling), terms))
                texts.clear()
                marks.clear()


class FileReading:
    """Lines of one file to texts, with what a line alone does not say: blobs, and the tools that results are of."""

    def __init__(self, dialect: Dialect | str, path: str, descriptor: int) -> None:
        self._dialect = dialect
        self._path = path
        self._descriptor = descriptor
        self._tools: dict[str, str] = {}

    def texts(self, line: bytes, offset: int, *, tools: bool = True) -> list[Line]:
        """What can be found of a line; with `tools`, results say of which tool they are."""
        lines = read_line(line, self._dialect, self._blob)
        if tools:
            for found in lines:
                for text in found.texts:
                    if text.call:
                        self._name_tool(text, offset)
        return lines

    def tool_of(self, text: Text, offset: int) -> str:
        """The tool of a text that does not name it itself."""
        return self._tool_before(text.call, offset) if text.call else ""

    def _blob(self, name: str) -> bytes | None:
        from sessiontree.errors import SessionTreeError
        from sessiontree.library.roots import dialect_named
        from sessiontree.stores.blobs import FileBlobs

        dialect = dialect_named(self._dialect) if isinstance(self._dialect, str) else self._dialect
        folder = dialect.blob_folder(self._path)
        blobs = FileBlobs(folder, flat=True) if folder else FileBlobs(_own_blobs(self._path))
        try:
            return blobs.get(name)
        except SessionTreeError:
            return None

    def _name_tool(self, text: Text, offset: int) -> None:
        if text.kind == "input":
            self._tools[text.call] = text.tool
            if len(self._tools) > _KEPT_CALLS:
                del self._tools[next(iter(self._tools))]
        elif not text.tool:
            text.tool = self._tools.pop(text.call, "") or self._tool_before(text.call, offset)

    def _tool_before(self, call: str, offset: int) -> str:
        """The name of a tool that was called some lines before; empty when the call is not near."""
        start = max(0, offset - _LOOK_BACK)
        before = read_at(self._descriptor, start, offset - start)
        at = before.rfind(b'"' + call.encode("utf-8", "replace") + b'"')
        line = before[before.rfind(b"\n", 0, at) + 1 : before.find(b"\n", at)] if at >= 0 else b""
        texts = [text for found in read_line(line, self._dialect) for text in found.texts] if line else []
        return next((text.tool for text in texts if text.call == call and text.kind == "input"), "")


def mark(letter: str, value: str) -> bytes:
    """A term that says something of a text: `t` its tool, `m` its model."""
    plain = "".join(character if character.isalnum() else "_" for character in folded(value))
    return f"{MARK}{letter}{plain[:60]}".encode("utf-8", "replace")


_Mark: TypeAlias = tuple[str, str, bool, str, str]
"""The kind of a text, who says it, whether it tells of a failure, its tool, and its model."""


@lru_cache(maxsize=1024)
def _marks_of(about: _Mark) -> bytes:
    kind, role, is_error, tool, model = about
    found = [mark("k", f"{kind}_{role}_{'e' if is_error else 'o'}")]
    found += [mark("t", tool)] if tool else []
    found += [mark("m", model)] if model else []
    return b" ".join(found)


def _own_blobs(path: str) -> str:
    from sessiontree.paths import blobs_folder

    return blobs_folder(os.path.dirname(os.path.dirname(os.path.dirname(path))))


def _looked_at(one: Summary, before: Known) -> Pending:
    """A file that is not as it was: it grew, or it is another."""
    try:
        descriptor = open_file(one.path)
    except OSError:
        return Pending(one, one.size, before)
    try:
        is_same = (
            one.agent == before.agent
            and os.fstat(descriptor).st_ino == before.inode
            and one.size >= before.size
            and head_of(descriptor, before.size) == before.head
            and edge_of(descriptor, before.size) == before.edge
            and (before.edge[-1:] in (b"\n", b"") or read_at(descriptor, before.size, 1) in (b"\n", b""))
        )
    finally:
        os.close(descriptor)
    return Pending(one, before.size if is_same else 0, before)


def _is_whole(line: bytes) -> bool:
    from sessiontree.core.jsonio import parse_json

    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def _drop(database: sqlite3.Connection, known: Known) -> None:
    wasted = _number(database, "wasted") + known.size
    database.execute("DELETE FROM files WHERE file = ?", (known.file,))
    database.execute("DELETE FROM branches WHERE file = ?", (known.file,))
    database.execute("INSERT OR REPLACE INTO numbers VALUES('wasted', ?)", (wasted,))


def _number(database: sqlite3.Connection, name: str) -> int:
    row = database.execute("SELECT value FROM numbers WHERE name = ?", (name,)).fetchone()
    return int(row[0]) if row else 0
