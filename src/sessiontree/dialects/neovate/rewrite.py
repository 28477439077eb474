"""A file with its lines in another order, or with other settings: what Neovate says by the order of lines alone.

Neovate stands at the last message of the file and shows its path in the order of the file. To stand elsewhere, that
message has to come last, and what leads to it has to stand in the order in which it was said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.path import find_leaf
from sessiontree.dialects.neovate.records import MESSAGE


def standing_at(lines: IndexedLines, node: int) -> list[bytes] | None:
    """All lines of the file, those that must come last at the end; None when they stand there already."""
    path = lines.tree.path(node)
    at = _first_out_of_order(path)
    if node != find_leaf(lines):
        at = min(at, len(path) - 1)
    return _moved_to_end(lines, path[at:]) if at < len(path) else None


def in_order(lines: IndexedLines, node: int) -> list[bytes] | None:
    """All lines of the file, so that what leads to a node stands in order; None when it does."""
    path = lines.tree.path(node)
    at = _first_out_of_order(path)
    return _moved_to_end(lines, path[at:]) if at < len(path) else None


def _first_out_of_order(path: Sequence[int]) -> int:
    """The position of the first line that stands before its parent in the file; the length when there is none."""
    return next((at for at in range(1, len(path)) if path[at] < path[at - 1]), len(path))


def _moved_to_end(lines: IndexedLines, nodes: Sequence[int]) -> list[bytes]:
    """The lines of the file with some of them behind all others. Of several lines with one uuid only the last moves."""
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


def with_config(lines: IndexedLines, changes: dict[str, Any]) -> list[bytes]:
    """All lines of the file with changed settings at the top, as Neovate itself writes them; blank lines go."""
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
    """The settings on a line; None when it is another line."""
    if b'"config"' not in line:
        return None
    try:
        fields = parse_json(line)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("type") != "config":
        return None
    config = fields.get("config")
    return config if isinstance(config, dict) else {}


def last_message(lines: IndexedLines) -> str | None:
    """The uuid of the last message in the file."""
    leaf = find_leaf(lines)
    return None if leaf is None else lines.tree.ids[leaf]


def message_before(lines: IndexedLines, node: int) -> str | None:
    """The uuid of the last message at or before a node."""
    return next((lines.tree.ids[at] for at in range(node, -1, -1) if lines.types[at] == MESSAGE), None)
