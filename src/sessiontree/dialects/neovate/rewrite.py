"""Rewrite a file with its lines in another order, or with other settings.

Neovate shows the path to the last message in file order. To continue a branch of a file in which a child comes before
its parent, the path has to be in order first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.records import MESSAGE


def rewrite_in_order(lines: IndexedLines, node: int) -> list[bytes] | None:
    """All lines of the file with the path to a node in order; None when it is already in order."""
    path = lines.tree.path(node)
    at = _first_out_of_order(path)
    return _move_to_end(lines, path[at:]) if at < len(path) else None


def _first_out_of_order(path: Sequence[int]) -> int:
    """The position of the first line that comes before its parent in the file; the length without one."""
    return next((at for at in range(1, len(path)) if path[at] < path[at - 1]), len(path))


def _move_to_end(lines: IndexedLines, nodes: Sequence[int]) -> list[bytes]:
    """The lines of the file with some of them moved to the end. Of several lines with one uuid only the last moves."""
    moved = list(lines.iter_raw(nodes))
    wanted = {raw.strip() for raw in moved}
    places: dict[bytes, int] = {}
    found = list(lines.raw_lines())
    for at, line in enumerate(found):
        if line.strip() in wanted:
            places[line.strip()] = at
    taken = set(places.values())
    rest = [line for at, line in enumerate(found) if at not in taken]
    return rest + [found[places[raw.strip()]] for raw in moved if raw.strip() in places]


def rewrite_config(lines: IndexedLines, changes: dict[str, Any]) -> list[bytes]:
    """All lines of the file with changed settings at the top, as Neovate itself writes them, without blank lines."""
    config: dict[str, Any] | None = None
    rest: list[bytes] = []
    for line in lines.raw_lines():
        fields = _config_line(line)
        if fields is None:
            rest += [line] if line.strip() else []
        elif config is None:
            config = fields
    return [render_json({"type": "config", "config": {**(config or {}), **changes}}), *rest]


def _config_line(line: bytes) -> dict[str, Any] | None:
    """The settings on a config line; None for any other line."""
    if b'"config"' not in line:
        return None
    fields = parse_object(line)
    if fields.get("type") != "config":
        return None
    config = fields.get("config")
    return config if isinstance(config, dict) else {}


def message_before(lines: IndexedLines, node: int) -> str | None:
    """The uuid of the last message at or before a node."""
    return next((lines.tree.ids[at] for at in range(node, -1, -1) if lines.types[at] == MESSAGE), None)
