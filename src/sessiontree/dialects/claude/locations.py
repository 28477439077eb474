"""Paths and names of the client's transcripts. Works on names only; nothing is read.

<key>/<session>.jsonl                                      a session; <key> is made from the working directory
<key>/<session>/subagents/agent-<id>.jsonl                 a sub-agent of it; also deeper, in `workflows/<run>/`
<key>/agent-<id>.jsonl                                     a sub-agent, up to 2.0; its lines name the session
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping

from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name

SKIPPED_FOLDERS = frozenset({"tool-results", "memory"})

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z"
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_MAX_KEY = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    return (os.path.expanduser(os.path.join(_config_folder(environment), "projects")),)


def _config_folder(environment: Mapping[str, str]) -> str:
    home = environment.get("HOME") or environment.get("USERPROFILE") or "~"
    return environment.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")


def classify_file(relative: str) -> SessionFile | None:
    """Return the role of a file, by its path below `projects`; None when it is not a transcript."""
    if not is_session_name(relative):
        return None
    parts = relative.split("/")
    name = parts[-1].removesuffix(".jsonl")
    if len(parts) == 2:
        return SessionFile("subagent", id=name) if name.startswith("agent-") else SessionFile()
    if len(parts) >= 4 and parts[2] == "subagents" and name.startswith("agent-"):
        return SessionFile("subagent", id=name, parent=f"{parts[0]}/{parts[1]}.jsonl")
    return None


def destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    """Return the path of a new transcript; the working directory must be a real path."""
    folder = environment.get("CLAUDE_CODE_PROJECT_DIR_NAME") or project_key(meta.cwd)
    id = session_uuid(meta.id)
    path = os.path.join(_config_folder(environment), "projects", folder, f"{id}.jsonl")
    return Destination(path, ("claude", "--resume", id))


# Project keys


def project_key(cwd: str) -> str:
    """Return the folder name for a working directory, given as a real path.

    Every UTF-16 unit that is not a letter or digit of ASCII becomes a dash, as in the client: a character beyond the
    basic plane gives two. Several paths can have the same key. A long key is cut, with a hash appended.
    """
    if not cwd.isascii():
        import unicodedata  # most paths do not need it

        cwd = unicodedata.normalize("NFC", cwd)
    units = _utf16_units(cwd)
    key = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    return key if len(key) <= _MAX_KEY else f"{key[:_MAX_KEY]}-{_hash(units)}"


def _utf16_units(text: str) -> list[int]:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(encoded[at : at + 2], "little") for at in range(0, len(encoded), 2)]


def _hash(units: Iterable[int]) -> str:
    """The client's 32-bit string hash (`h * 31 + unit`, signed), in base 36."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    return _base36(abs(value - (1 << 32) if value >= 1 << 31 else value))


def _base36(value: int) -> str:
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


# UUIDs


def is_uuid(text: str) -> bool:
    return re.match(_UUID, text) is not None


def session_uuid(id: str) -> str:
    """Return the client's id for a session: it finds only sessions whose id is a UUID."""
    return id if is_uuid(id) else generate_uuid(_session_namespace(), id)


@functools.cache
def _session_namespace() -> bytes:
    from uuid import NAMESPACE_URL, uuid5

    return uuid5(NAMESPACE_URL, "sessiontree:claude").bytes


def generate_uuid(namespace: bytes, name: str) -> str:
    """Return the version 5 UUID of a name, which may hold any characters, without the cost of UUID objects."""
    from hashlib import sha1  # slow to load, and not needed to read a transcript

    digits = sha1(namespace + name.encode("utf-8", "backslashreplace"), usedforsecurity=False).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:32]}"
