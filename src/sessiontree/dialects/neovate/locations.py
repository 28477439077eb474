"""Paths of Neovate's sessions, copies of files and long tool output.

    <folder>/<id>.jsonl          a session; without the folder for the working directory `/`
    <folder>/agent-<id>.jsonl    a sub-agent, without a link to its session
    <folder>/requests/           requests to the model

Sessions in `~/.neo/sessions` have no folder either.

No line names the working directory, and several directories share one folder. Neovate's `data.json` lists the
directories it knows: if exactly one of them maps to a folder, it is that one.
"""

from __future__ import annotations

import functools
import os
import re
from binascii import hexlify
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.canonical import Destination, SessionMeta
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name

if TYPE_CHECKING:
    import hashlib

SKIPPED_FOLDERS = frozenset({"requests", "file-history"})
_PRODUCTS = (".neovate", ".takumi")
_UUID_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_session_id = re.compile(r"[0-9a-f]{8}\Z")


def find_destination(meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
    id = session_id(meta.id)
    home = environment.get("HOME") or "~"
    folder = os.path.join(home, ".neovate", "projects", project_folder_name(meta.cwd))
    return Destination(os.path.join(folder, f"{id}.jsonl"), ("neovate", "--resume", id))


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    home = environment.get("HOME") or os.path.expanduser("~")
    return *(os.path.join(home, product, "projects") for product in _PRODUCTS), os.path.join(home, ".neo", "sessions")


def classify_file(relative: str) -> SessionFile | None:
    if not is_session_name(relative) or relative.count("/") > 1:
        return None
    name = relative.rpartition("/")[2].removesuffix(".jsonl")
    return SessionFile("subagent", id=name) if name.startswith("agent-") else SessionFile()


def session_cwds(root: str, read: Callable[[str], bytes | None]) -> dict[str, str]:
    """Folder -> working directory, for folders that only one known directory maps to."""
    projects = parse_object(read(os.path.join(os.path.dirname(root), "data.json")) or b"").get("projects")
    found: dict[str, str] = {}
    shared: set[str] = set()
    for cwd in projects if isinstance(projects, dict) else ():
        folder = project_folder_name(cwd)
        if found.setdefault(folder, cwd) != cwd:
            shared.add(folder)
    return {folder: cwd for folder, cwd in found.items() if folder not in shared}


def project_folder_name(cwd: str) -> str:
    """The folder below `projects` for a working directory; empty for `/`. Different directories may share a name."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", cwd.strip("/")).strip("-").lower()


def file_history_path(project_folder: str, session_id: str, relative_path: str, version: int) -> str:
    """The copy of a file that a snapshot refers to."""
    from hashlib import sha256  # slow to load, and not needed to read a session

    digest = sha256(relative_path.encode("utf-8", "surrogatepass")).hexdigest()
    return os.path.join(project_folder, "file-history", session_id, f"{digest[:16]}@v{version}")


def tool_output_folder(config_folder: str) -> str:
    """The folder with the full text of long tool output, below `~/.neovate`."""
    return os.path.join(config_folder, "tool-output")


def session_id(id: str) -> str:
    """An id that Neovate accepts: eight hex digits, derived from the original id."""
    return id if _session_id.match(id) else derived_uuid(id)[:8]


def derived_uuid(name: str) -> str:
    """A version 5 UUID for a name, computed without `uuid.UUID`, which is slow."""
    digest = _namespace()()
    digest.update(hexlify(name.encode("utf-8", "surrogatepass")))
    found = digest.hexdigest()
    return f"{found[:8]}-{found[8:12]}-5{found[13:16]}-{_UUID_VARIANT[found[16]]}{found[17:20]}-{found[20:32]}"


@functools.cache
def _namespace() -> Callable[[], hashlib._Hash]:
    """Return a function that copies a digest which already includes our namespace."""
    from hashlib import sha1
    from uuid import NAMESPACE_URL, uuid5

    return sha1(uuid5(NAMESPACE_URL, "sessiontree:neovate").bytes, usedforsecurity=False).copy
