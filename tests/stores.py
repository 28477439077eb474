"""Stores for tests that hold for every kind of store. The fixture `store_kind` chooses the kind.

Tests of a module that uses the fixture run once for each kind; those in PostgreSQL are slow ones.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sessiontree.errors import NotFoundError
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionRef, SessionStore, read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryStore

if TYPE_CHECKING:
    from sessiontree.stores.postgres.repository import PostgresRepository

NOWHERE = "/nonexistent/sessiontree-home"
POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.slow)
FILES_AND_POSTGRESQL = pytest.mark.parametrize("store_kind", ["files", POSTGRESQL], indirect=True, scope="module")

_numbers = itertools.count()


def _in_memory(data: bytes, name: str) -> SessionStore:
    return MemoryStore(data, f"/{name}") if name else MemoryStore(data)


_make_store: Callable[[bytes, str], SessionStore] = _in_memory


def new_store(data: bytes, name: str = "") -> SessionStore:
    """A store with some bytes, of the chosen kind; in memory without a choice. `name` is that of a file."""
    return _make_store(data, name)


def open_stored(store: SessionStore, dialect: str | None = None, **options: Any) -> Session:
    """The session in a store, far from anyone's home folder."""
    root = None if store.ref.home.startswith("postgresql:") else NOWHERE
    return open_store(store, root=root, dialect=dialect, **options)


def stored_bytes(store: SessionStore) -> bytes:
    return read_bytes(store, 0, store.size())


@contextlib.contextmanager
def _chosen(make: Callable[[bytes, str], SessionStore]) -> Iterator[None]:
    global _make_store
    before, _make_store = _make_store, make
    try:
        yield
    finally:
        _make_store = before


@pytest.fixture(scope="module", params=["memory", POSTGRESQL])
def store_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Choose where `new_store` makes stores: in memory and in PostgreSQL, or what a mark names."""
    if request.param == "memory":
        yield request.param
    elif request.param == "files":
        with _chosen(lambda data, name: _in_file(tmp_path_factory.mktemp("stores"), data, name)):
            yield request.param
    else:
        import psycopg

        from sessiontree.stores.postgres import open_postgres_repository

        name = f"kind{next(_numbers)}"
        address = request.getfixturevalue("server").create_database(name)
        with psycopg.connect(address, autocommit=True) as connection:  # thousands of commits must not wait for the disk
            connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
        repository = open_postgres_repository(address)
        repository.upgrade()
        with contextlib.closing(repository), _chosen(lambda data, name: _in_database(repository, data, name)):
            yield request.param


def _in_file(folder: Path, data: bytes, name: str) -> SessionStore:
    store = FileStore(folder / (name or "s.jsonl"))
    store.create([data])
    return store


def _in_database(repository: PostgresRepository, data: bytes, name: str) -> SessionStore:
    id = Path(name).stem if name else f"s-{next(_numbers)}"
    with contextlib.suppress(NotFoundError):
        repository.delete(SessionRef(id, repository.home))
    store = repository.new(id, timestamp="", cwd="/")
    store.create([data])
    return store
