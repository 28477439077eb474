"""Tokens of the users of the web page: each one is bound to a tenant, and to reading or writing.

A token has a public id, by which it is found, listed and revoked, and a secret of 256 random bits. The table holds a
hash of both. A slow hash would protect a secret that can be guessed; this one cannot.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import LiteralString

from psycopg import Connection

from sessiontree.errors import NotFoundError
from sessiontree.stores.contract import AccessToken, Scope
from sessiontree.stores.postgres.tenants import check_tenant, check_tenant_name

PREFIX = "stree_"
"""How every token starts, so that people and scanners of secrets recognize one."""

_TEXT = re.compile(rf"{PREFIX}([0-9a-f]{{12}})_[A-Za-z0-9_-]{{20,100}}")
_SELECT: LiteralString = """
SELECT token, tenant, scope, note, to_char(created AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
to_char(revoked AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
FROM sessiontree.token
"""
_NO_HASH = bytes(32)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def add_token(connection: Connection, home: str, tenant: str, scope: Scope, note: str) -> str:
    """Create a token of a tenant that was added, and return its text. Only its hash is stored."""
    check_tenant(connection, home, check_tenant_name(tenant))
    id = secrets.token_hex(6)
    text = f"{PREFIX}{id}_{secrets.token_urlsafe(32)}"
    connection.execute(
        "INSERT INTO sessiontree.token (token, tenant, scope, hash, note) VALUES (%s, %s, %s, %s, %s)",
        [id, tenant, scope, _hash(text), note],
    )
    return text


def list_tokens(connection: Connection) -> list[AccessToken]:
    """All tokens, oldest first."""
    rows = connection.execute(f"{_SELECT} ORDER BY created, token").fetchall()
    return [AccessToken(*row) for row in rows]


def revoke_token(connection: Connection, home: str, id: str) -> None:
    """Revoke a token; `NotFoundError` if it does not exist or was already revoked."""
    changed = connection.execute(
        "UPDATE sessiontree.token SET revoked = now() WHERE token = %s AND revoked IS NULL", [id]
    ).rowcount
    if not changed:
        raise NotFoundError(f"{home}: no valid token {id[:80]!r}; `sessiontree store tokens` lists all")


def find_token(connection: Connection, id: str) -> AccessToken | None:
    """A token that was not revoked, by its id."""
    row = connection.execute(f"{_SELECT} WHERE token = %s AND revoked IS NULL", [id], prepare=True).fetchone()
    return None if row is None else AccessToken(*row)


def check_token(connection: Connection, text: str) -> AccessToken | None:
    """The token with a text, compared in constant time; None if it is wrong or was revoked."""
    found = _TEXT.fullmatch(text)
    id = "" if found is None else found[1]
    row = connection.execute("SELECT hash FROM sessiontree.token WHERE token = %s", [id]).fetchone()
    # Without such a token, another hash is compared: the time does not show whether an id exists.
    is_right = hmac.compare_digest(_NO_HASH if row is None else bytes(row[0]), _hash(text))
    return find_token(connection, id) if is_right else None
