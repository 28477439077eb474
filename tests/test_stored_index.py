"""The index beside the bytes of a session: it gives the same answers as reading, and a wrong one is not used."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.session import journal, stored_index
from sessiontree.session.journal import Journal
from sessiontree.stores import file_index
from sessiontree.stores.file import FileStore
from tests.damage import BUILDERS, DAMAGE
from tests.test_every_dialect import FILES

CASES = [pytest.param(dialect, kind, id=f"{dialect}-{kind}") for dialect in BUILDERS for kind in DAMAGE]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of indexes; sessions of any size are large."""
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(journal, "STORED_SIZE", 1)
    monkeypatch.setattr(file_index, "_TICK_NS", -1)
    return tmp_path / "cache" / "indexes"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of blocks that were read to be indexed."""
    starts: list[int] = []
    original = Journal._index_block

    def index_block(self: Journal, block: Any) -> None:
        starts.append(block.start)
        original(self, block)

    monkeypatch.setattr(Journal, "_index_block", index_block)
    return starts


def describe(path: Path) -> list[object]:
    """Everything that an index could change."""
    with sessiontree.open(path) as session:
        indexed = session.journal
        return [
            session.header,
            indexed.header_fields,
            indexed.header_span,
            session.ids,
            indexed.types,
            list(indexed.tree.parents()),
            list(indexed.tree.earlier_parents()),
            indexed.tree.node_of,
            indexed.tree.problems(),
            [indexed.span(node) for node in range(len(indexed))],
            indexed.own_customs,
            indexed.generated_ids,
            indexed.fragments,
            session.problems,
            session.leaf,
            list(session.context().messages),
            list(session),
            list(indexed.notes),
        ]


def without_index(path: Path) -> list[object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "STORED_SIZE", 1 << 60)
        return describe(path)


def rewrite(path: Path, change: Callable[[Path], object]) -> None:
    """Change a file so that its time changes, too: the clock of a file system ticks every few milliseconds."""
    before = path.stat().st_ctime_ns
    deadline = time.monotonic() + 60
    while True:
        change(path)
        if path.stat().st_ctime_ns != before:
            return
        assert time.monotonic() < deadline


@pytest.mark.parametrize("source", FILES)
def test_a_loaded_index_gives_the_same_answers_as_reading(
    tmp_path: Path, cache: Path, read: list[int], source: Path
) -> None:
    path = tmp_path / source.name
    path.write_bytes(source.read_bytes())
    expected = without_index(path)
    assert describe(path) == expected
    read.clear()
    assert describe(path) == expected
    is_stored = source.read_bytes().endswith(b"\n")  # the end of an incomplete line may still be written
    assert (read == []) == is_stored, "nothing was indexed again"


@pytest.mark.parametrize(("dialect", "kind"), CASES)
def test_a_grown_session_is_read_from_the_end_of_the_index_on(
    tmp_path: Path, cache: Path, read: list[int], dialect: str, kind: str
) -> None:
    data = DAMAGE[kind].apply(BUILDERS[dialect]())
    path = tmp_path / "s-1.jsonl"
    ends = [at + 1 for at, byte in enumerate(data) if byte == 0x0A]
    cut = ends[len(ends) // 2]
    path.write_bytes(data[:cut])
    describe(path)
    assert [*cache.iterdir()]
    read.clear()
    with path.open("ab") as file:
        file.write(data[cut:])
    found = describe(path)
    assert read[0] == cut, "only the tail was indexed"
    # The notes of a damaged block are missing, and the blocks are not the same.
    assert found[:-1] == without_index(path)[:-1]


def session_of(path: Path, texts: int = 30) -> Path:
    with sessiontree.create(path=path) as session:
        for number in range(texts):
            session.append("user", f"text {number}")
    return path


def test_a_file_that_was_changed_in_place_is_read_again(tmp_path: Path, cache: Path, read: list[int]) -> None:
    path = session_of(tmp_path / "one.jsonl")
    stat = path.stat()
    describe(path)
    assert [*cache.iterdir()]
    read.clear()

    def change(path: Path) -> None:
        data = path.read_bytes().replace(b"text 7", b"text 8")
        with path.open("r+b") as file:
            file.write(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    rewrite(path, change)
    found = describe(path)
    assert read[0] == 0
    assert found == without_index(path)


def test_a_file_that_was_rewritten_in_place_and_grew_is_read_again(
    tmp_path: Path, cache: Path, read: list[int]
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    path = session_of(tmp_path / "one.jsonl")
    for _ in range(20):
        describe(path)
        data = path.read_bytes()
        lines = data.splitlines(keepends=True)
        at = chance.randrange(1, len(lines))
        rewritten = b"".join(lines[:at] + lines[at + 1 :]) + lines[at] + b'{"type":"custom","id":"x"}\n'
        rewrite(path, lambda path, data=rewritten: path.write_bytes(data))  # type: ignore[misc]
        read.clear()
        found = describe(path)
        assert found == without_index(path)


def test_a_damaged_index_is_not_used(tmp_path: Path, cache: Path, read: list[int]) -> None:
    path = session_of(tmp_path / "one.jsonl")
    expected = describe(path)
    (stored,) = cache.iterdir()
    data = stored.read_bytes()
    for at in range(0, len(data), 7):
        stored.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert describe(path) == expected
    for size in range(0, len(data), 41):
        stored.write_bytes(data[:size])
        assert describe(path) == expected


def test_an_index_of_another_version_is_not_used(
    tmp_path: Path, cache: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session_of(tmp_path / "one.jsonl")
    describe(path)
    monkeypatch.setattr(stored_index, "_VERSION", stored_index._VERSION + 1)
    read.clear()
    describe(path)
    assert read[0] == 0


def test_a_session_that_was_opened_with_an_index_is_written_and_notices_a_rewrite(tmp_path: Path, cache: Path) -> None:
    path = session_of(tmp_path / "one.jsonl")
    describe(path)
    with sessiontree.open(path) as session:
        session.append("user", "after the index")
        assert session.context().messages[-1].text == "after the index"
    describe(path)
    session = sessiontree.open(path)
    rewrite(path, lambda path: path.write_bytes(path.read_bytes()[:-30] + b"y" * 29 + b"\n"))
    with pytest.raises(sessiontree.ReplacedError):
        session.append("user", "lost")
    session.close()


def test_overwriting_bytes_removes_the_index(tmp_path: Path, cache: Path) -> None:
    path = session_of(tmp_path / "one.jsonl")
    describe(path)
    store = FileStore(path)
    with store.exclusive():
        store.overwrite(0, b"[", b"{")
    assert [*cache.iterdir()] == []


def test_a_cache_folder_that_cannot_be_written_changes_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session_of(tmp_path / "one.jsonl")
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "file" / "cache"))
    assert describe(path) == without_index(path)


def test_the_oldest_indexes_are_removed_beyond_the_limit(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [session_of(tmp_path / f"{number}.jsonl") for number in range(3)]
    describe(paths[0])
    size = next(cache.iterdir()).stat().st_size
    monkeypatch.setattr(file_index, "_TOTAL_SIZE", 2 * size + size // 2)
    for number, path in enumerate(paths):
        describe(path)
        for stored in cache.iterdir():
            os.utime(stored, (number, number))
    assert len([*cache.iterdir()]) == 2


def test_small_sessions_have_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    describe(session_of(tmp_path / "one.jsonl"))
    assert not (tmp_path / "cache").exists()
