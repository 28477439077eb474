"""Where Neovate keeps things: project folders, session files, copies of files, long tool output."""

from __future__ import annotations

import functools
import os
import re
from binascii import hexlify
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sessiontree.dialects.canonical import Destination, SessionMeta

if TYPE_CHECKING:
    import hashlib

_variant = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_own_id = re.compile(r"[0-9a-f]{8}\Z")


def project_folder_name(cwd: str) -> str:
    """The folder below `projects` for work in `cwd`; empty for the root, whose sessions lie in `projects` itself.

    Different folders may share a name, and the cwd stands nowhere in the file.
    """
    return re.sub(r"[^a-zA-Z0-9]+", "-", cwd.strip("/")).strip("-").lower()


def file_history_path(project_folder: str, session_id: str, relative_path: str, version: int) -> str:
    """Where the copy of a file lies that a snapshot names."""
    from hashlib import sha256  # slow to load, and not needed to read a session

    digest = sha256(relative_path.encode("utf-8", "surrogatepass")).hexdigest()
    return os.path.join(project_folder, "file-history", session_id, f"{digest[:16]}@v{version}")


def tool_output_folder(config_folder: str) -> str:
    """Where the full text of long tool output lies, below `~/.neovate`."""
    return os.path.join(config_folder, "tool-output")


def session_id(id: str) -> str:
    """What Neovate calls a session: eight hex digits, which follow from the id it had."""
    return id if _own_id.match(id) else derived_uuid(id)[:8]


def derived_uuid(name: str) -> str:
    """A UUID that follows from a name alone: one of version 5, made without the detour over `uuid.UUID`."""
    digest = _namespace()()
    digest.update(hexlify(name.encode("utf-8", "surrogatepass")))
    found = digest.hexdigest()
    return f"{found[:8]}-{found[8:12]}-5{found[13:16]}-{_variant[found[16]]}{found[17:20]}-{found[20:32]}"


@functools.cache
def _namespace() -> Callable[[], hashlib._Hash]:
    """What begins a digest that our namespace is already in."""
    from hashlib import sha1
    from uuid import NAMESPACE_URL, uuid5

    return sha1(uuid5(NAMESPACE_URL, "sessiontree:neovate").bytes, usedforsecurity=False).copy


def destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    """Where Neovate looks for a session of a folder, and how it goes on with it."""
    id = session_id(meta.id)
    home = environment.get("HOME") or "~"
    folder = os.path.join(home, ".neovate", "projects", project_folder_name(meta.cwd))
    return Destination(os.path.join(folder, f"{id}.jsonl"), ("neovate", "--resume", id))
