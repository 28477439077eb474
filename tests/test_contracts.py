"""The shipped contract checks pass on our own stores and dialects, and fail on broken ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree.dialects.native.dialect import NATIVE, Native
from sessiontree.dialects.pi import PI
from sessiontree.stores.blobs import FileBlobs
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryBlobs, MemoryStore
from sessiontree.testing import ContractError, check_blob_store, check_dialect, check_store

CORPUS = sorted((Path(__file__).parent / "corpus" / "pi-family").glob("*.jsonl"))
NATIVE_SAMPLE = (
    b'{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/","sessiontree":1}\n'
    b'{"type":"message","id":"1","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"q"}}\n'
    b'{"type":"message","id":"2","parentId":"1","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"user","content":"\xe6\x97\xa5"}}\n'
    b'{"type":"leaf","id":"3","parentId":"1","timestamp":"2026-01-01T00:00:03.000Z","targetId":"1"}\n'
    b'{"type":"label","id":"4","parentId":"1","timestamp":"2026-01-01T00:00:04.000Z","targetId":"1","label":"x"}\n'
)


def test_file_stores_fulfill_the_contract(tmp_path: Path) -> None:
    assert len(check_store(lambda name: FileStore(tmp_path / name))) == 12


def test_memory_stores_fulfill_the_contract() -> None:
    stores: dict[str, MemoryStore] = {}
    check_store(lambda name: stores.setdefault(name, MemoryStore()))


def test_blob_stores_fulfill_the_contract(tmp_path: Path) -> None:
    check_blob_store(lambda: FileBlobs(tmp_path))
    check_blob_store(MemoryBlobs)


def test_dialects_fulfill_the_contract_on_every_sample_cut_and_scrambled() -> None:
    check_dialect(PI, [path.read_bytes() for path in CORPUS], cuts=60)
    check_dialect(NATIVE, [NATIVE_SAMPLE], cuts=500)


class Forgetful(MemoryStore):
    def append(self, data: bytes) -> None:
        super().append(data[:-1])


class Careless(MemoryStore):
    def replace(self, data: Any, expected_size: int) -> str:
        return super().replace(data, self.size())


class Overwriting(MemoryStore):
    def create(self, data: Any) -> None:
        self._data = None
        super().create(data)


@pytest.mark.parametrize("broken", [Forgetful, Careless, Overwriting])
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
        def envelope(self, fields: dict[str, Any]) -> Any:
            found = super().envelope(fields)
            return type(found)(found.type, found.id, None)

    with pytest.raises(ContractError, match="agree on a line"):
        check_dialect(Lossy(), [NATIVE_SAMPLE])


def test_the_checks_need_no_test_framework() -> None:
    code = (
        "import sys, sessiontree.testing, sessiontree.testing.faults;"
        "assert not {'pytest', 'hypothesis'} & set(sys.modules), 'a test framework was imported'"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
