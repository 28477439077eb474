"""One PostgreSQL server for the tests of a worker; each test has a database of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessiontree.stores.postgres import open_postgres_repository
from sessiontree.stores.postgres.repository import PostgresRepository
from tests.postgres.server import Server, find_programs, running

_numbers = itertools.count()

MakeRepository = Callable[[str], PostgresRepository]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    try:
        find_programs()
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    # A short path: the name of a Unix socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    folder.chmod(0o755)
    try:
        with running(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
