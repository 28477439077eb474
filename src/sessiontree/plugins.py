"""Plugins from entry points: clients, dialects, embedders, stores, summarizers and tools of this and other packages.

`names` lists them without importing any; `load` imports one. The metadata files are read directly: `importlib.metadata`
reads the same files, but importing it takes longer than opening a session (see docs/decisions/0003-plugins.md).
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from typing import Any, Literal

from sessiontree.errors import NotFoundError

Kind = Literal["clients", "dialects", "embedders", "stores", "summarizers", "tools"]

_FILE = "entry_points.txt"


def names(kind: Kind) -> list[str]:
    """Names registered for a kind, sorted. Imports nothing."""
    return sorted(_table(tuple(sys.path)).get(f"sessiontree.{kind}", {}))


def load(kind: Kind, name: str) -> Any:
    """Import one registered object."""
    return _load(_target(kind, name))


@functools.cache  # a listing asks for the dialect of each file several times
def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in filter(None, attribute.split("[")[0].strip().split(".")):
        found = getattr(found, part)
    return found


def _target(kind: Kind, name: str) -> str:
    target = _table(tuple(sys.path)).get(f"sessiontree.{kind}", {}).get(name)
    if target is None:
        known = ", ".join(names(kind)) or "none"
        raise NotFoundError(f"no {kind.removesuffix('s')} named {name!r} is installed (available: {known})")
    return target


def is_ours(kind: Kind, name: str) -> bool:
    """Whether a plugin is part of this package."""
    return _table(tuple(sys.path))[f"sessiontree.{kind}"][name].startswith("sessiontree.")


@functools.cache
def _table(search_path: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Group -> name -> target. As with imports, the first folder on the path that has a name wins."""
    table: dict[str, dict[str, str]] = {}
    for folder in search_path:
        try:
            infos = [
                entry.path for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info"))
            ]
        except OSError:
            continue  # sys.path may contain missing folders and zip files
        for info in sorted(infos):
            for group, entries in _read(os.path.join(info, _FILE)).items():
                for name, target in entries.items():
                    table.setdefault(group, {}).setdefault(name, target)
    return table


def _read(path: str) -> dict[str, dict[str, str]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return {}
    if "[sessiontree." not in text:
        return {}
    table: dict[str, dict[str, str]] = {}
    group = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif "=" in line and group.startswith("sessiontree.") and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            table.setdefault(group, {})[name.strip()] = target.strip()
    return table
