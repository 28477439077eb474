"""Fixtures for the tests of adapters: empty repositories in a folder, in memory and in PostgreSQL."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres.server import Server, temporary_server

from sessiontree.stores.postgres import open_postgres_repository

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with temporary_server() as server:
        yield server


@pytest.fixture(params=["folder", "memory", "postgresql"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty repository."""
    if request.param == "folder":
        yield str(tmp_path / "agents")
    elif request.param == "memory":
        yield f"memory:{uuid.uuid4()}"
    else:
        address = request.getfixturevalue("server").create_database(f"adapter{next(_numbers)}")
        repository = open_postgres_repository(address)
        repository.upgrade()
        yield address
        repository.close()
