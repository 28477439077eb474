"""Gemini CLI's ids, which are random UUIDs. The first eight digits of a session's id are part of its file's name."""

from __future__ import annotations

import hashlib
import re
import uuid

_uuid = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def is_uuid(id: str) -> bool:
    return _uuid.match(id) is not None


def session_id(id: str) -> str:
    """The id of a session: its own, or one made from an id whose first digits are a time or that is not a UUID."""
    return id if is_uuid(id) and id[14] != "7" else derived_id("session", id)


def derived_id(scope: str, id: str) -> str:
    digest = hashlib.sha256(f"{scope} {id}".encode("utf-8", "surrogatepass")).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))
