"""Find the client of a dialect by the dialect's name, which records of sessions store."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sessiontree import plugins
from sessiontree.dialects.client import Client

if TYPE_CHECKING:
    from sessiontree.dialects.contract import Locations


def client_of(name: str) -> Client:
    """The client of a dialect; one that nothing is known about if the dialect is not installed.

    A module with a dialect may have its client as `CLIENT`, which spares loading the dialect.
    """
    if name not in plugins.names("dialects"):
        return Client()
    client = getattr(plugins.load_module("dialects", name), "CLIENT", None)
    if client is not None:
        return cast(Client, client)
    dialect: Locations = plugins.load("dialects", name)
    return dialect.client


def read_client_file(path: str) -> bytes | None:
    """The bytes of a client's small file; None if it cannot be read. For methods of clients that ask for a file."""
    try:
        with open(path, "rb") as file:
            return file.read(_LARGEST_FILE)
    except OSError:
        return None


_LARGEST_FILE = 1 << 20
