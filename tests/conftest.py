"""What holds for all tests, and what is said at their end: what this machine lacks goes untested in silence nowhere."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.builders import examples
from tests.cli.shells import MISSING
from tests.stores import store_kind

__all__ = ["store_kind"]

# Sessions that a test creates without a path must not end up in the user's own home folder.
_home = tempfile.TemporaryDirectory(prefix="sessiontree-tests-")
os.environ["SESSIONTREE_HOME"] = _home.name

# A run that was started in the background has Ctrl-C ignored, and so would every program that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The number of examples of properties that do not choose one.
settings.register_profile("sessiontree", examples(100))
settings.load_profile("sessiontree")


if TYPE_CHECKING:
    from tests.postgres.server import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One PostgreSQL server for the tests of a worker."""
    from tests.postgres.server import temporary_server  # needs psycopg, which few tests do

    with temporary_server() as server:
        yield server


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for shell in MISSING:
        terminalreporter.write_line(
            f"NOT TESTED: the completion script of {shell} in {shell}, which is not installed here", red=True
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-snapshots", action="store_true", help="store what screens show now as right")


@pytest.fixture
def rewrite_snapshots(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-snapshots"))
