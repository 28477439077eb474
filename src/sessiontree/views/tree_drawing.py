"""Draw the rows of a tree: the parts of a row with their meaning, for the command line and for screens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain, islice
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord
from sessiontree.core.entries import Entry
from sessiontree.core.layout import NO_NODE, Layout
from sessiontree.session.reader import Reader
from sessiontree.views.branch_labels import Mark
from sessiontree.views.graph import clock
from sessiontree.views.text import columns, cut, fitted, one_line, plural, short_entry_id
from sessiontree.views.tree_rows import TreeRow, TreeRows

PartKind: TypeAlias = Literal[
    "rails", "other rails", "id", "mark", "name", "fold", "text", "other text", "label", "here", "time"
]
"""What a part of a row is; `other` parts are not on the active path."""

NAME_WIDTH = 10
_MIN_TEXT = 8
"""Minimum width of the text in a row, however narrow the terminal is."""
_STEP = 256
"""Rows that are in memory at a time."""
AROUND = 10
"""Rows that are shown before and after a given one."""

_DOTS = {(True, True): "◆", (False, True): "◇", (True, False): "●", (False, False): "○"}
"""By whether an entry is on the active path, and whether it is a merge."""
_FOLDS = {"none": "", "folded": "▸ ", "unfolded": "▾ "}
_LANE_COLORS = (6, 5, 2, 3, 4, 9, 14, 13)
_LEGEND = (
    ("●", "on the active path"),
    ("○", "other branches"),
    ("◆", "merge (⇠ from, ⇢ into)"),
    ("▸", "folded"),
    ("⊘", "left out of the context"),
    ("◀ here", "current entry"),
    ("[…]", "label or lane"),
)


Part: TypeAlias = tuple[str, PartKind]
"""A part of a row: its text, sanitized and possibly empty, and what it is. A row has nine, so they are no structs."""

Paint: TypeAlias = Callable[[TreeRows, int, Part], str]
"""Colors a part of a row that is not empty."""


class RowFormat(Struct, frozen=True):
    """What rows show besides rails, names and texts."""

    with_ids: bool = False
    with_times: bool = False
    now: datetime | None = None

    @classmethod
    def full(cls) -> RowFormat:
        """With ids and times, as of now."""
        return cls(with_ids=True, with_times=True, now=datetime.now().astimezone())


class RowFacts(Struct, frozen=True, gc=False):
    """What a row shows of its entries."""

    name: str
    text: str
    timestamp: str


def read_facts(rows: TreeRows, row: int, shown: TreeRow, entries: Sequence[Entry], room: int | None) -> RowFacts:
    """`entries` are those that `TreeRows.needed` names."""
    return RowFacts(rows.speaker(row, entries[0]), rows.text_of(shown, entries, room), entries[0].timestamp)


def draw_row(
    rows: TreeRows, row: int, shown: TreeRow, facts: RowFacts, width: int, how: RowFormat, marked: Collection[str] = ()
) -> list[Part]:
    """The parts of a row, at most `width` columns wide together."""
    node = shown.nodes[0]
    id = rows.tree.ids[node]
    is_active = node in rows.active
    join = rows.merges.get(id)
    rails = f"{shown.rails.text(_DOTS[is_active, join is not None])} "
    short = f"{short_entry_id(id, rows.session.id_prefixes)}  " if how.with_ids else ""
    mark = ("✓ " if id in marked else "") + ("⊘ " if id in rows.left_out else "")
    fold = _FOLDS[shown.fold]
    label = ""
    if row in rows.merged_into:
        label = "".join([f"  ⇢ {short_entry_id(merge, rows.session.id_prefixes)}" for merge in rows.merged_into[row]])
    if id in rows.labels:
        label += f"  [{one_line(rows.labels[id])}]"
    here = "  ◀ here" if row == rows.here else ""
    time = f"  {clock(facts.timestamp, how.now)}" if how.with_times else ""
    free = width - len(rails) - NAME_WIDTH - 1 - columns(f"{short}{mark}{fold}{label}{here}{time}")
    least, text = _MIN_TEXT, facts.text
    if join is not None:
        text = _came_from(join, rows.session) + text
    if id in rows.branch_marks and (whose := _fitted_mark(rows.branch_marks[id], free)):
        label, free, least = label + whose, free - columns(whose), 1
    parts: list[Part] = [
        (rails, "rails" if is_active else "other rails"),
        (short, "id"),
        (mark, "mark"),
        (_name_column(facts.name), "name"),
        (fold, "fold"),
        (fitted(text, max(free, least)), "text" if is_active else "other text"),
        (label, "label"),
        (here, "here"),
        (time, "time"),
    ]
    return parts if free >= least else _cut_parts(parts, width)


@lru_cache(64)  # few names, many rows
def _name_column(name: str) -> str:
    return f"{fitted(name, NAME_WIDTH)} "


def _cut_parts(parts: Sequence[Part], width: int) -> list[Part]:
    """Drop what is wider than a narrow terminal."""
    kept: list[Part] = []
    for text, kind in parts:
        kept.append((cut(text, width), kind))
        width -= columns(kept[-1][0])
    return kept


def draw_tree(
    rows: TreeRows,
    width: int,
    how: RowFormat | None = None,
    paint: Paint | None = None,
    around: int | None = None,
    margin: int = AROUND,
) -> Iterator[str]:
    """Draw all rows, or only `margin` of them before and after the row `around`, each at most `width` columns wide.

    An empty row separates trees. Only a few entries are in memory at a time.
    """
    how = how or RowFormat.full()
    start, end = (0, len(rows)) if around is None else (max(around - margin, 0), min(around + margin + 1, len(rows)))
    if start:
        yield f"⋮ {plural(start, 'row')} before"
    roots = _later_roots(rows.layout)
    for first in range(start, end, _STEP):
        step = [rows[row] for row in range(first, min(first + _STEP, end))]
        needed = [rows.needed(shown) for shown in step]
        entries = rows.session.journal.iter_entries([*chain.from_iterable(needed)])
        for row, (shown, nodes) in enumerate(zip(step, needed, strict=True), first):
            if shown.node in roots and len(shown.rails.cells) == 1 and row > start:
                yield ""
            facts = read_facts(rows, row, shown, [*islice(entries, len(nodes))], width)
            parts = draw_row(rows, row, shown, facts, width, how)
            if paint is None:
                texts = [text for text, _ in parts]
            else:
                texts = [paint(rows, row, part) for part in parts if part[0]]
            yield "".join(texts).rstrip()
    if end < len(rows):
        yield f"⋮ {plural(len(rows) - end, 'row')} after"


def lane_color(lane: int) -> int:
    """The color of a lane: a number of the terminal's palette."""
    return _LANE_COLORS[lane % len(_LANE_COLORS)]


def legend(lines: Sequence[str]) -> str:
    """The signs of some drawn lines, on one line."""
    drawn = "\n".join(lines)
    return "  ".join(f"{sign} {meaning}" for sign, meaning in _LEGEND if sign[0] in drawn)


def _later_roots(layout: Layout) -> set[int]:
    """The nodes at which trees start, except for the first tree."""
    return {node for node in layout.first[1:] if layout.before[node] == NO_NODE}


def _fitted_mark(mark: Mark, room: int) -> str:
    """The longest mark that leaves room for the text; the shortest one may leave a single column."""
    room -= len("  []")
    text = mark.fitting(room - _MIN_TEXT) or mark.texts[-1]
    return f"  [{text}]" if columns(text) < room else ""


def _came_from(join: MergeRecord, session: Reader) -> str:
    if join.session:
        return f"⇠ {short_entry_id(join.session)}:{short_entry_id(join.entry)}  "
    return f"⇠ {short_entry_id(join.entry, session.id_prefixes)}  "
