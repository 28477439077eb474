"""Contract checks for the storage that a dialect describes, on a sample file."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Iterator

from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.storage import Document, LineFile, Rows, Storage
from sessiontree.errors import ReadOnlyError, SessionTreeError
from sessiontree.session.journal import Journal
from sessiontree.sources import open_source
from sessiontree.sources.items import iter_items
from sessiontree.stores.contract import SessionRef, SessionStore, parse_ref, read_bytes
from sessiontree.testing.contract import expect, expect_error


def check_source(dialect: Dialect, path: str | os.PathLike[str], *, cuts: int = 50, seed: int = 0) -> list[SessionRef]:
    """Check a dialect's storage on a sound file, and on damaged copies of it; returns the sessions in the file.

    Other files next to it, such as earlier parts of a session, are copied with it.
    """
    path = os.path.abspath(os.fspath(path))
    chance = random.Random(seed)
    before = _files(os.path.dirname(path))
    refs = _sessions(dialect, path)
    expect(bool(refs), "a sound file contains at least one session", path)
    for ref in refs:
        _lines_are_readable(dialect, ref, chance)
        if not isinstance(dialect.storage(path), LineFile):
            _writing_is_refused(open_source(ref, dialect), dialect.storage(path))
    expect(_files(os.path.dirname(path)) == before, "reading creates and changes no file")
    for _ in range(cuts):
        with _copied(path) as copy:
            _damage(copy, chance)
            _damage_never_raises(dialect, copy)
    return refs


def _sessions(dialect: Dialect, path: str) -> list[SessionRef]:
    names = dialect.traits.session_names
    expect(path.endswith(names), "`session_names` has the end of the file's name", names)
    storage = dialect.storage(path)
    if not isinstance(storage, Rows):
        return [SessionRef(path)]
    stats = list(iter_items(path, storage, 1, dialect.name))
    expect(stats == list(iter_items(path, storage, 1, dialect.name)), "an unchanged file lists the same sessions")
    refs = [stat.ref for stat in stats]
    expect(len(set(refs)) == len(refs), "each session is listed once", refs)
    expect([parse_ref(str(ref), ()) for ref in refs] == refs, "a reference can be parsed back", refs)
    return refs


def _lines_are_readable(dialect: Dialect, ref: SessionRef, chance: random.Random) -> None:
    store = open_source(ref, dialect)
    size = store.size()
    data = read_bytes(store, 0, size + 1)
    expect(len(data) == size, "the store has as many bytes as its size", (len(data), size))
    expect(data.endswith(b"\n"), "the last line is complete", data[-80:])
    expect(dialect.recognize(data[: 64 * 1024]) > 0, "the dialect recognizes the lines", data[:200])
    for _ in range(20):
        start, length = chance.randrange(size + 2), chance.randrange(1, 300)
        part = read_bytes(store, start, length)
        expect(part == data[start : start + length], "bytes are the same at any offset", (start, length))
    store.close()
    again = open_source(ref, dialect)
    expect(read_bytes(again, 0, again.size()) == data, "an unchanged session has the same lines each time")
    journal = Journal(again, dialect)
    journal.refresh()
    expect(not journal.fragments, "every line of a sound session is known to the dialect", journal.fragments[:3])
    again.close()


def _writing_is_refused(store: SessionStore, storage: Storage) -> None:
    if isinstance(storage, Document) and storage.content is not None:
        lines = read_bytes(store, 0, store.size()).splitlines()
        again = [*storage.lines(b"".join(storage.content(lines)))]
        different = next((pair for pair in zip(again, lines, strict=False) if pair[0] != pair[1]), len(again))
        expect(again == lines, "`lines` of `content` are the same lines", different)
    with expect_error(ReadOnlyError, "appending to a source that is not a file of lines is refused"):
        store.append(b"x\n", expected_size=store.size())
    if not isinstance(storage, Document) or storage.content is None:
        with expect_error(ReadOnlyError, "replacing its bytes is refused"):
            store.replace([b"x\n"], expected_size=store.size())
    with expect_error(ReadOnlyError, "creating it is refused"):
        store.create([b"x\n"])


def _damage_never_raises(dialect: Dialect, path: str) -> None:
    """Damage is reported as an error of this package, or as problems of the session."""
    storage = dialect.storage(path)
    refs = [SessionRef(path)]
    if isinstance(storage, Rows):
        try:
            refs = [stat.ref for stat in iter_items(path, storage, 1, dialect.name)]
        except SessionTreeError:
            return
    for ref in refs:
        with contextlib.suppress(SessionTreeError), contextlib.closing(open_source(ref, dialect)) as store:
            Journal(store, dialect).refresh()


def _damage(path: str, chance: random.Random) -> None:
    """Cut a file, or change a few of its bytes."""
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if chance.random() < 0.5:
            file.truncate(chance.randrange(size))
            return
        for _ in range(chance.randrange(1, 20)):
            file.seek(chance.randrange(size))
            file.write(chance.randbytes(1))


@contextlib.contextmanager
def _copied(path: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(os.path.dirname(path), os.path.join(folder, "copy"))
        yield os.path.join(copy, os.path.basename(path))


def _files(folder: str) -> dict[str, tuple[int, int, bytes]]:
    """Size, time and content of the files in a folder."""
    found = {}
    for entry in os.scandir(folder):
        if entry.is_file() and not entry.name.endswith("-shm"):  # the lock table of a database that is in use
            with open(entry.path, "rb") as file:
                found[entry.name] = (entry.stat().st_size, entry.stat().st_mtime_ns, file.read())
    return found
