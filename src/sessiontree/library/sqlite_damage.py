"""Damage to our SQLite files: which errors mean it, and checksums of rows that SQLite itself does not check.

SQLite notices damage to the structure of a page, but a flipped byte inside a value just becomes another value. So
values that results depend on are stored with a checksum.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from zlib import crc32

import msgspec

_CHECKSUM = 4
_RESIDUE = 0x2144DF1C
"""The checksum of anything that ends with its own checksum, lowest byte first: one pass checks a value."""
_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions of database calls; the latter if SQLite's message quotes a damaged schema."""
_encode = msgspec.msgpack.Encoder().encode


class DamagedRowError(sqlite3.DatabaseError):
    """A row has a value that this program did not write."""


def is_damage(error: sqlite3.Error | UnicodeDecodeError, path: str) -> bool:
    """Whether the file at a path is damaged, rather than busy or not writable."""
    if isinstance(error, DamagedRowError | UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by Python: text in a column is not valid UTF-8
        return type(error) is sqlite3.OperationalError
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return True
    if code & 0xFF == sqlite3.SQLITE_READONLY:  # a damaged header can make a file read-only
        return os.path.isfile(path) and os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)
    return code & 0xFF not in _NOT_DAMAGE


def move_away(path: str) -> None:
    """Rename a damaged file, so that a new one can be created."""
    os.replace(path, f"{path}.damaged")
    # A write-ahead log of the damaged file must never be replayed into the new one.
    for sidecar in (f"{path}-wal", f"{path}-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(sidecar)


def seal(value: bytes | bytearray) -> bytes:
    """A value with its checksum."""
    return b"".join((value, crc32(value).to_bytes(_CHECKSUM, "little")))


def unseal(sealed: object) -> bytes | None:
    """The value that was sealed; None if it is damaged."""
    if not isinstance(sealed, bytes) or crc32(sealed) != _RESIDUE:
        return None
    return sealed[:-_CHECKSUM]


def row_checksum(*values: object) -> int:
    """The checksum of several columns."""
    return crc32(_encode(values))
