"""Each test has a database of its own, on the server of its worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository
from tests.postgres.server import Server

_numbers = itertools.count()

MakeRepository = Callable[[str], PostgresRepository]


@pytest.fixture
def make_repository(server: Server) -> Iterator[MakeRepository]:
    """Open a repository by name: the same database for the same name in one test."""
    opened: dict[str, PostgresRepository] = {}

    def make(name: str) -> PostgresRepository:
        if name not in opened:
            opened[name] = open_postgres_repository(server.create_database(f"test{next(_numbers)}"))
            opened[name].upgrade()
        return opened[name]

    yield make
    for repository in opened.values():
        repository.close()


@pytest.fixture
def repository(make_repository: MakeRepository) -> PostgresRepository:
    return make_repository("one")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of a user, so that a test can list what appears in them."""
    for name in ("HOME", "SESSIONTREE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    (tmp_path / "tmpdir").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path
