"""An index beside the cache may be anything: it is not used unless it fits the session, and stops no command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

import sessiontree
from sessiontree.session import journal
from sessiontree.session.stored_index import IndexColumns
from sessiontree.stores import file_index

replace = msgspec.structs.replace


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A session with an index; sessions of any size are large."""
    monkeypatch.setenv("SESSIONTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(journal, "STORED_SIZE", 1)
    monkeypatch.setattr(file_index, "_TICK_NS", -1)
    path = tmp_path / "one.jsonl"
    with sessiontree.create(path=path) as created:
        for number in range(20):
            created.append("user", f"text {number}")
    describe(path)
    return path


def describe(path: Path) -> list[object]:
    with sessiontree.open(path) as found:
        return [found.ids, list(found), list(found.context().messages), found.problems]


def index_of(session: Path) -> Path:
    (found,) = (session.parent / "cache" / "indexes").iterdir()
    return found


def truth(session: Path) -> list[object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "STORED_SIZE", 1 << 60)
        return describe(session)


def forge(session: Path, change: Callable[[IndexColumns], IndexColumns]) -> None:
    """Write an index with other columns, and with the right checksum."""
    place = index_of(session)
    stored = place.read_bytes()
    begin = 4 + int.from_bytes(stored[:4], "big")
    data = msgspec.msgpack.encode(change(msgspec.msgpack.decode(stored[begin:-4], type=IndexColumns)))
    place.write_bytes(stored[:begin] + data + crc32(data).to_bytes(4, "big"))


def offsets(columns: IndexColumns, **changes: Any) -> IndexColumns:
    return replace(columns, offsets=[replace(columns.offsets[0], **changes), *columns.offsets[1:]])


FORGED: dict[str, Callable[[IndexColumns], IndexColumns]] = {
    "types that have no name": lambda found: replace(found, type_names=[]),
    "types for some entries": lambda found: replace(found, types=found.types[:-4]),
    "types that are not whole numbers": lambda found: replace(found, types=found.types[:-1]),
    "parents beyond the end": lambda found: replace(found, tree=replace(found.tree, parents=b"\xff\xff\xff\x7f" * 20)),
    "negative parents": lambda found: replace(found, tree=replace(found.tree, parents=b"\xfe\xff\xff\xff" * 20)),
    "roots beyond the end": lambda found: replace(found, tree=replace(found.tree, parentless=b"\xff\xff\xff\x7f")),
    "more ids than lines": lambda found: replace(found, tree=replace(found.tree, ids=[*found.tree.ids, "more"])),
    "no offsets": lambda found: replace(found, offsets=[]),
    "a start beyond the end": lambda found: offsets(found, start=1 << 60),
    "a negative start": lambda found: offsets(found, start=-1000),
    "ends beyond the end": lambda found: offsets(found, wide=True, ends=b"\xff" * 160),
    "entries twice": lambda found: replace(found, offsets=[*found.offsets, *found.offsets]),
    "another size": lambda found: replace(found, size=found.size + 1),
    "entries of ours beyond the end": lambda found: replace(found, own_customs=[1 << 40]),
}


@pytest.mark.parametrize("kind", FORGED)
def test_an_index_with_a_checksum_that_does_not_fit_is_not_used(kind: str, session: Path) -> None:
    expected = truth(session)
    forge(session, FORGED[kind])
    assert describe(session) == expected


def test_the_index_is_used_as_it_was_stored(session: Path) -> None:
    read: list[int] = []
    forge(session, lambda found: found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal.Journal, "_index_block", lambda self, block: read.append(block.start))
        describe(session)
    assert read == []


def test_a_pipe_or_link_in_place_of_an_index_stops_no_reader(session: Path, tmp_path: Path) -> None:
    expected = truth(session)
    place = index_of(session)
    content = place.read_bytes()
    place.unlink()
    os.mkfifo(place)
    assert describe(session) == expected
    place.unlink(missing_ok=True)
    (tmp_path / "elsewhere").write_bytes(content)
    place.symlink_to(tmp_path / "elsewhere")
    assert describe(session) == expected
    assert (tmp_path / "elsewhere").read_bytes() == content
    place.unlink(missing_ok=True)
    place.mkdir()
    assert describe(session) == expected


def test_a_huge_index_is_not_read(session: Path) -> None:
    expected = truth(session)
    with index_of(session).open("r+b") as file:
        file.truncate(1 << 40)
    assert describe(session) == expected
