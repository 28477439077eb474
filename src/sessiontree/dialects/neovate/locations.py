"""Where Neovate's sessions are found, and which working folder they belong to.

    <folder>/<id>.jsonl          a session; of the root folder `/`, without the folder
    <folder>/agent-<id>.jsonl    a sub-agent; nothing says whose
    <folder>/requests/           traffic with the model

No line says where a session worked, and several working folders share one folder here. Neovate's own notes list the
working folders that it knows: where exactly one of them has this folder, it is that one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.contract import SessionFile
from sessiontree.dialects.defaults import is_session_name
from sessiontree.dialects.neovate.places import project_folder_name

SKIPPED_FOLDERS = frozenset({"requests", "file-history"})
_PRODUCTS = (".neovate", ".takumi")


def session_roots(environment: Mapping[str, str]) -> tuple[str, ...]:
    home = environment.get("HOME") or os.path.expanduser("~")
    return tuple(os.path.join(home, product, "projects") for product in _PRODUCTS)


def classify_file(relative: str) -> SessionFile | None:
    if not is_session_name(relative) or relative.count("/") > 1:
        return None
    name = relative.rpartition("/")[2].removesuffix(".jsonl")
    return SessionFile("subagent", id=name) if name.startswith("agent-") else SessionFile()


def cwds(root: str, read: Callable[[str], bytes | None]) -> dict[str, str]:
    """Folder -> working folder, for those that can be only one."""
    try:
        notes = parse_json(read(os.path.join(os.path.dirname(root), "data.json")) or b"{}")
    except ValueError:
        return {}
    projects = notes.get("projects") if isinstance(notes, dict) else None
    found: dict[str, str] = {}
    shared: set[str] = set()
    for cwd in projects if isinstance(projects, dict) else ():
        folder = project_folder_name(cwd)
        if found.setdefault(folder, cwd) != cwd:
            shared.add(folder)
    return {folder: cwd for folder, cwd in found.items() if folder not in shared}
