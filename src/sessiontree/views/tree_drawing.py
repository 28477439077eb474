"""Draw the rows of a tree: the parts of a row with their meaning, for the command line and for screens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord
from sessiontree.core.entries import Entry
from sessiontree.core.layout import NO_NODE
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


class Part(Struct, frozen=True):
    """A part of a row, sanitized."""

    text: str
    kind: PartKind


Paint: TypeAlias = Callable[[TreeRows, int, Part], str]
"""Colors a part of a row."""


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
    id = rows.id_of(row)
    is_active = shown.node in rows.active
    join = rows.merges.get(id)
    rails = f"{shown.rails.text(_dot(is_active=is_active, is_merge=join is not None))} "
    short = f"{short_entry_id(id)}  " if how.with_ids else ""
    name = _name_column(facts.name)
    mark = ("✓ " if id in marked else "") + ("⊘ " if id in rows.left_out else "")
    fold = {"none": "", "folded": "▸ ", "unfolded": "▾ "}[shown.fold]
    label = "".join(f"  ⇢ {short_entry_id(merge)}" for merge in rows.merged_into.get(row, ()))
    if id in rows.labels:
        label += f"  [{one_line(rows.labels[id])}]"
    here = "  ◀ here" if row == rows.here else ""
    time = f"  {clock(facts.timestamp, how.now)}" if how.with_times else ""
    taken = len(rails) + columns(short) + NAME_WIDTH + 1 + columns(mark + fold + label + here + time)
    branch = rows.branch_marks.get(id)
    whose = "" if branch is None else _fitted_mark(branch, width - taken)
    free = width - taken - columns(whose)
    text = facts.text if join is None else _came_from(join) + facts.text
    parts = [
        Part(rails, "rails" if is_active else "other rails"),
        Part(short, "id"),
        Part(mark, "mark"),
        Part(name, "name"),
        Part(fold, "fold"),
        Part(fitted(text, max(free, 1 if whose else _MIN_TEXT)), "text" if is_active else "other text"),
        Part(f"{label}{whose}", "label"),
        Part(here, "here"),
        Part(time, "time"),
    ]
    if free < (1 if whose else _MIN_TEXT):
        parts = _cut_parts(parts, width)
    return [part for part in parts if part.text]


@lru_cache(64)  # few names, many rows
def _name_column(name: str) -> str:
    return f"{fitted(name, NAME_WIDTH)} "


def _cut_parts(parts: Sequence[Part], width: int) -> list[Part]:
    """Drop what is wider than a narrow terminal."""
    kept: list[Part] = []
    for part in parts:
        text = cut(part.text, width)
        kept.append(Part(text, part.kind))
        width -= columns(text)
    return kept


def draw_tree(
    rows: TreeRows,
    width: int,
    how: RowFormat | None = None,
    paint: Paint = lambda _rows, _row, part: part.text,
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
    for first in range(start, end, _STEP):
        step = [rows[row] for row in range(first, min(first + _STEP, end))]
        entries = rows.session.journal.iter_entries([node for shown in step for node in rows.needed(shown)])
        for row, shown in enumerate(step, first):
            needed = [next(entries) for _ in rows.needed(shown)]
            if _starts_tree(rows, shown) and len(shown.rails.cells) == 1 and row > start:
                yield ""
            facts = read_facts(rows, row, shown, needed, width)
            yield "".join([paint(rows, row, part) for part in draw_row(rows, row, shown, facts, width, how)]).rstrip()
    if end < len(rows):
        yield f"⋮ {plural(len(rows) - end, 'row')} after"


def lane_color(lane: int) -> int:
    """The color of a lane: a number of the terminal's palette."""
    return _LANE_COLORS[lane % len(_LANE_COLORS)]


def legend(lines: Sequence[str]) -> str:
    """The signs of some drawn lines, on one line."""
    drawn = "\n".join(lines)
    return "  ".join(f"{sign} {meaning}" for sign, meaning in _LEGEND if sign[0] in drawn)


def _starts_tree(rows: TreeRows, shown: TreeRow) -> bool:
    layout, node = rows.layout, shown.node
    lane = layout.lanes[node]
    return lane > 0 and layout.first[lane] == node and layout.before[node] == NO_NODE


def _dot(*, is_active: bool, is_merge: bool) -> str:
    return ("◆" if is_active else "◇") if is_merge else ("●" if is_active else "○")


def _fitted_mark(mark: Mark, room: int) -> str:
    """The longest mark that leaves room for the text; the shortest one may leave a single column."""
    room -= len("  []")
    text = mark.fitting(room - _MIN_TEXT) or mark.texts[-1]
    return f"  [{text}]" if columns(text) < room else ""


def _came_from(join: MergeRecord) -> str:
    where = f"{short_entry_id(join.session)}:" if join.session else ""
    return f"⇠ {where}{short_entry_id(join.entry)}  "
