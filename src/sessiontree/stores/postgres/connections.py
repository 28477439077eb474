"""Connections to one server: a pool that all repositories of an address in this process share.

Tenants' repositories share it as well, because a role is set for each transaction. So a server with many users has as
many connections as it has work at the same time, not as it has users.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool

_MAX_CONNECTIONS = 64
_SECONDS_TO_CONNECT = 10

_PASSWORD = re.compile(r"^([a-z]+://[^/@:?]*):[^/@?]*@")
_PASSWORD_OPTION = re.compile(r"([?&])(?:ssl)?password=[^&]*&?")


class Connections:
    """A pool that is opened when it is first needed. Threads share it."""

    def __init__(self, address: str) -> None:
        self.address = address
        # autocommit: a single statement is its own transaction, without the round trips of BEGIN and COMMIT.
        self._settings: dict[str, Any] = {
            "autocommit": True,
            "application_name": "sessiontree",
            "connect_timeout": _SECONDS_TO_CONNECT,
        }
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None

    def connect(self) -> Connection:
        """A connection outside of the pool."""
        return psycopg.connect(self.address, **self._settings)

    @property
    def pool(self) -> ConnectionPool[Connection]:
        return self._pool or self._open()

    def _open(self) -> ConnectionPool[Connection]:
        with self._lock:
            if self._pool is None:
                logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
                self._pool = ConnectionPool(
                    self.address,
                    min_size=0,
                    max_size=_MAX_CONNECTIONS,
                    timeout=_SECONDS_TO_CONNECT,
                    num_workers=1,
                    kwargs=self._settings,
                    open=True,
                )
            return self._pool

    def drop_broken(self) -> None:
        """Remove connections that a restart of the server has ended."""
        pool = self._pool
        if pool is not None:
            pool.check()

    def close(self) -> None:
        """Close all connections of the pool; those in use when they are returned. The next use opens a new pool."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def without_password(address: str) -> str:
    """An address as it is shown and stored: the password stays in the process."""
    return _PASSWORD_OPTION.sub(r"\1", _PASSWORD.sub(r"\1@", address)).rstrip("?&")


_shared: dict[str, Connections] = {}
_shared_lock = threading.Lock()


def shared_connections(address: str) -> Connections:
    """The connections of an address: the same ones for all of the process.

    An address without a password finds those that were opened with one.
    """
    home = without_password(address)
    with _shared_lock:
        found = _shared.setdefault(home, Connections(address))
        if address != home:
            found.address = address  # the password given last
        return found
