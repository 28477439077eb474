"""The data of the branch graph, for the script that draws it (`static/graph.js`).

Rows, columns and lines are those of `sessiontree tree` (`core.layout`, `views.rails`); the script only paints them. A
second set of rows has every linear run folded into its first and last entry. Bodies are not read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from sessiontree.branches.merge_records import find_merges
from sessiontree.branches.session_layout import find_layout
from sessiontree.core.entries import CONVERSATION_TYPES
from sessiontree.core.layout import Layout, find_runs
from sessiontree.core.tree import NodeSet
from sessiontree.session.reader import Reader
from sessiontree.views.rails import Rails, group_lanes

MAX_COLUMNS = 60
MAX_ROWS = 100_000
"""Entries that a picture has rows for; of larger sessions, only the folded rows are drawn."""
_LEAST_FOLDED = 2
"""Entries that folding a run hides at least."""


class GraphRow(Struct, frozen=True, gc=False):
    """What a row shows besides its lines."""

    kind: str
    text: str


def build_graph_data(
    session: Reader, describe: Callable[[int], GraphRow | None] | None = None, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    """Build the data as JSON. `describe` adds kind and text of entries whose content is known already."""
    tree, types = session.journal.tree, session.journal.types
    merges = find_merges(session)
    layout = find_layout(session, merges)
    shadowed = session.shadowed
    nodes = group_lanes(
        layout, [node for node, kind in enumerate(types) if kind in CONVERSATION_TYPES and node not in shadowed]
    )
    folded, hidden = _fold(layout, nodes)
    is_huge = len(nodes) > MAX_ROWS
    if is_huge:
        nodes = folded
    history = session.dialect.find_history(session.journal, session.node_of(session.leaf), session.read_options)
    active = NodeSet(len(tree), chain(session.path_nodes(session.leaf), history))
    names = session.labels if labels is None else labels
    row_of = {node: row for row, node in enumerate(nodes)}
    here = next((row_of[node] for node in reversed(history) if node in row_of), -1)
    described = [describe(node) for node in nodes] if describe is not None else []
    return {
        "ids": [tree.ids[node] for node in nodes],
        "nodes": nodes,
        "active": "".join("1" if node in active else "0" for node in nodes),
        "here": here,
        "labels": {row_of[node]: names[id] for id in names if (node := session.node_of(id)) in row_of},
        "merges": sorted(row_of[node] for id in merges if (node := tree.node_of.get(id)) in row_of),
        "parents": [_nearest_row(layout, row_of, node) for node in nodes],
        "rows": _rows(layout, nodes, hidden if is_huge else dict.fromkeys(nodes, 0)),
        "folded": _rows(layout, folded, hidden),
        "kinds": [row.kind if row is not None else "" for row in described],
        "texts": [row.text if row is not None else "" for row in described],
    }


def _nearest_row(layout: Layout, row_of: dict[int, int], node: int) -> int:
    """The row that a node follows or forks from; -1 if it starts a tree."""
    before = layout.before[node]
    while before >= 0 and before not in row_of:
        before = layout.before[before]
    return row_of.get(before, -1)


def _rows(layout: Layout, nodes: Sequence[int], hidden: dict[int, int]) -> dict[str, Any]:
    columns: list[int] = []
    cells: list[str] = []
    for row in Rails(layout, nodes, MAX_COLUMNS):
        columns.append(row.column)
        cells.append(_digits(row.cells))
    return {
        "nodes": list(nodes),
        "columns": columns,
        "cells": cells,
        "hidden": [hidden[node] for node in nodes],
    }


@functools.lru_cache(1024)  # few different rows, many entries
def _digits(cells: tuple[int, ...]) -> str:
    """The lines of a row, one hexadecimal digit per column."""
    return "".join(format(cell, "x") for cell in cells)


def _fold(layout: Layout, nodes: Sequence[int]) -> tuple[list[int], dict[int, int]]:
    """The nodes that stay when runs are folded, each with the number of entries hidden after it."""
    shown = NodeSet(len(layout), nodes)
    hidden: dict[int, int] = {}
    for run in find_runs(layout):
        kept = [node for node in run if node in shown]
        if len(kept) < _LEAST_FOLDED + 2:
            hidden |= dict.fromkeys(kept, 0)
        else:
            hidden[kept[0]], hidden[kept[-1]] = len(kept) - 2, 0
    return [node for node in nodes if node in hidden], hidden
