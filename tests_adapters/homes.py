"""The three kinds of repositories that each adapter is tested with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres.server import Server, temporary_server

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with temporary_server() as server:
        yield server


@pytest.fixture(params=["files", "memory", "postgresql"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty repository."""
    if request.param == "postgresql":
        from sessiontree.stores.postgres import open_postgres_repository

        server: Server = request.getfixturevalue("server")
        address = server.create_database(f"adapters{next(_numbers)}")
        repository = open_postgres_repository(address)
        repository.upgrade()
        yield address
        repository.close()
    else:
        yield str(tmp_path / "home") if request.param == "files" else f"memory:adapters{next(_numbers)}"
