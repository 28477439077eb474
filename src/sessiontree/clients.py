"""Find the client of a dialect by the dialect's name, which records of sessions store."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sessiontree import plugins
from sessiontree.dialects.client import Client
from sessiontree.errors import PathError
from sessiontree.stores.safe_files import read_regular

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Locations


def client_of(name: str) -> Client:
    """The client of a dialect; one that nothing is known about if the dialect is not installed.

    A client with an entry point of its own is loaded without its dialect.
    """
    if name in plugins.names("clients"):
        return cast(Client, plugins.load("clients", name))
    if name not in plugins.names("dialects"):
        return Client()
    dialect: Locations = plugins.load("dialects", name)
    return dialect.client


def read_client_file(path: str) -> bytes | None:
    """The bytes of a client's small file; None if it cannot be read. For methods of clients that ask for a file."""
    try:
        return read_regular(path, _LARGEST_FILE)
    except (OSError, PathError):
        return None


_LARGEST_FILE = 1 << 20
