"""The shipped contract checks pass on our own stores and dialects, and fail on broken ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sessiontree.core.layout import LayoutColumns
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoded, SessionMeta
from sessiontree.dialects.contract import Envelope, IndexedLines
from sessiontree.dialects.native.dialect import NATIVE, Native, NativeEncoder
from sessiontree.dialects.pi import PI
from sessiontree.stores.blobs import FileBlobs
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryBlobs, MemoryRepository, MemoryStore
from sessiontree.stores.repositories import FileRepository, open_repository
from sessiontree.testing import ContractError, check_blob_store, check_dialect, check_repository, check_store

CORPUS = sorted((Path(__file__).parent / "corpus" / "pi-family").glob("*.jsonl"))
NATIVE_SAMPLE = (
    b'{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/","sessiontree":1}\n'
    b'{"type":"message","id":"1","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"q"}}\n'
    b'{"type":"message","id":"2","parentId":"1","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"user","content":"\xe6\x97\xa5"}}\n'
    b'{"type":"leaf","id":"3","parentId":"1","timestamp":"2026-01-01T00:00:03.000Z","targetId":"1"}\n'
    b'{"type":"label","id":"4","parentId":"1","timestamp":"2026-01-01T00:00:04.000Z","targetId":"1","label":"x"}\n'
)


def test_file_stores_fulfill_the_contract(tmp_path: Path) -> None:
    assert len(check_store(lambda name: FileStore(tmp_path / name))) == 13


def test_memory_stores_fulfill_the_contract() -> None:
    stores: dict[str, MemoryStore] = {}
    check_store(lambda name: stores.setdefault(name, MemoryStore()))


def test_repositories_fulfill_the_contract(tmp_path: Path) -> None:
    assert len(check_repository(lambda name: FileRepository(str(tmp_path / name)))) == 9
    check_repository(lambda name: open_repository(f"memory:{tmp_path.name}-{name}"))


@pytest.mark.parametrize("broken", ["find", "delete", "iter_stats"])
def test_a_repository_that_breaks_its_contract_is_caught(broken: str) -> None:
    class Broken(MemoryRepository):
        def find(self, wanted: str) -> Any:
            return next(iter(self.iter_stats())).ref if broken == "find" else super().find(wanted)

        def delete(self, ref: Any) -> None:
            if broken != "delete":
                super().delete(ref)

        def iter_stats(self) -> Any:
            return iter([] if broken == "iter_stats" else list(super().iter_stats()))

    repositories: dict[str, Broken] = {}
    with pytest.raises(ContractError):
        check_repository(lambda name: repositories.setdefault(name, Broken(f"memory:{name}")))


def test_blob_stores_fulfill_the_contract(tmp_path: Path) -> None:
    check_blob_store(lambda: FileBlobs(tmp_path))
    check_blob_store(MemoryBlobs)


def test_dialects_fulfill_the_contract_on_every_sample_cut_and_scrambled() -> None:
    check_dialect(PI, [path.read_bytes() for path in CORPUS], cuts=60)
    check_dialect(NATIVE, [NATIVE_SAMPLE], cuts=500)


class Forgetful(MemoryStore):
    def append(self, data: bytes, *, expected_size: int) -> int | None:
        found = super().append(data[:-1], expected_size=expected_size)
        return None if found is None else found + 1


class Careless(MemoryStore):
    def replace(self, data: Any, *, expected_size: int) -> str:
        return super().replace(data, expected_size=self.size())


class Blind(MemoryStore):
    def append(self, data: bytes, *, expected_size: int) -> int | None:
        return super().append(data, expected_size=self.size())


class Overwriting(MemoryStore):
    def create(self, data: Any) -> None:
        self._data = None
        super().create(data)


@pytest.mark.parametrize("broken", [Forgetful, Careless, Blind, Overwriting])
def test_a_store_that_breaks_its_contract_is_caught(broken: type[MemoryStore]) -> None:
    stores: dict[str, MemoryStore] = {}
    with pytest.raises(ContractError):
        check_store(lambda name: stores.setdefault(name, broken()))


def test_a_blob_store_that_follows_paths_is_caught() -> None:
    class Trusting(MemoryBlobs):
        def get(self, name: str) -> bytes | None:
            return self._blobs.get(name)

    with pytest.raises(ContractError, match="refused"):
        check_blob_store(Trusting)


def test_a_dialect_that_loses_an_entrys_parent_is_caught() -> None:
    class Lossy(Native):
        def decode_line(self, fields: dict[str, Any], node: int) -> Any:
            found = super().decode_line(fields, node)
            return Envelope(found.type, found.id, None) if isinstance(found, Envelope) else found

    with pytest.raises(ContractError, match="agree on a line"):
        check_dialect(Lossy(), [NATIVE_SAMPLE])


def test_a_dialect_whose_encoder_loses_messages_is_caught() -> None:
    class Mute(NativeEncoder):
        def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
            return Encoded(parent) if entry.kind == "message" else super().encode(entry, parent)

    class Forgetful(Native):
        def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> NativeEncoder:
            return Mute(self, meta, lines)

    with pytest.raises(ContractError, match="decodes to the same messages"):
        check_dialect(Forgetful(), [NATIVE_SAMPLE], cuts=0)


def test_a_dialect_that_writes_outside_its_folders_is_caught() -> None:
    class Stray(Native):
        def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
            return Destination(f"/elsewhere/{meta.id}.jsonl", ())

    with pytest.raises(ContractError, match=r"below a session root.*elsewhere"):
        check_dialect(Stray(), [NATIVE_SAMPLE], cuts=0)


def test_a_dialect_whose_layout_depends_on_later_lines_is_caught() -> None:
    class Hindsight(Native):
        def layout_columns(self, lines: IndexedLines) -> LayoutColumns:
            found = super().layout_columns(lines)
            return LayoutColumns(found.parents, [is_placed and len(lines.types) > 2 for is_placed in found.placed])

    with pytest.raises(ContractError, match="do not depend on later lines"):
        check_dialect(Hindsight(), [NATIVE_SAMPLE], cuts=0)


def test_a_dialect_that_reads_any_file_is_caught() -> None:
    class Greedy(Native):
        def recognize(self, head: bytes) -> int:
            return 50

    with pytest.raises(ContractError, match=r"other files with 0.*ELF"):
        check_dialect(Greedy(), [NATIVE_SAMPLE], cuts=0)


def test_the_checks_need_no_test_framework() -> None:
    code = (
        "import sys, sessiontree.testing, sessiontree.testing.faults;"
        "assert not {'pytest', 'hypothesis'} & set(sys.modules), 'a test framework was imported'"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
