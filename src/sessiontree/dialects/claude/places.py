"""Where the client looks for a session, and what it is called there. Names only; nothing is looked at."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping

from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.claude.related_files import project_key

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z"
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def is_uuid(text: str) -> bool:
    return re.match(_UUID, text) is not None


def session_uuid(id: str) -> str:
    """What the client calls a session: it finds none whose id is no UUID."""
    return id if is_uuid(id) else made_uuid(_sessions(), id)


@functools.cache
def _sessions() -> bytes:
    """The space in which the ids of sessions are made."""
    from uuid import NAMESPACE_URL, uuid5

    return uuid5(NAMESPACE_URL, "sessiontree:claude").bytes


def made_uuid(space: bytes, name: str) -> str:
    """A UUID that follows from a name, whatever characters it has: that of version 5, made without its objects."""
    from hashlib import sha1  # slow to load, and not needed to read a transcript

    digits = sha1(space + name.encode("utf-8", "backslashreplace"), usedforsecurity=False).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:32]}"


def destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    """The transcript of a new session, whose folder is given as a real path."""
    home = environment.get("HOME") or environment.get("USERPROFILE") or "~"
    config = environment.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
    folder = environment.get("CLAUDE_CODE_PROJECT_DIR_NAME") or project_key(meta.cwd)
    id = session_uuid(meta.id)
    return Destination(os.path.join(config, "projects", folder, f"{id}.jsonl"), ("claude", "--resume", id))
