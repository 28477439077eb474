"""The branches of a session as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sessiontree.branches.list import BranchFacts, Distance
from sessiontree.branches.open_files import Writer
from sessiontree.core.entries import milliseconds
from sessiontree.core.ids import IdPrefixes
from sessiontree.views.branch_labels import Mark, describe_mark
from sessiontree.views.listing import age, amount
from sessiontree.views.text import columns, cut, one_line, pad, short_entry_id

_HEADINGS = ("", "BRANCH", "NAME", "AHEAD", "BEHIND", "TOKENS", "AGE")
_MAX_NAME = 32
_MARK_WIDTHS = (_MAX_NAME, 22, 16, 0)
"""Widths to try for the mark of a branch, so that its last words still fit."""
_MIN_LAST_TEXT = 12


def draw_branches(
    branches: Sequence[BranchFacts],
    last_texts: Sequence[str],
    width: int,
    now: float,
    ids: IdPrefixes,
    marks: Mapping[str, Mark] | None = None,
) -> Iterator[str]:
    """One row per branch: end, name, distance, last words.

    `ids` are those of the session. `marks`, by the ends of branches, replace missing names.
    """
    rows, widths, room = _table(branches, ids, marks or {}, width, now)
    for cells, last_text in zip([_HEADINGS, *rows], ["LAST MESSAGE", *last_texts], strict=True):
        filled = [
            pad(cell, size) if at < 3 else " " * (size - columns(cell)) + cell
            for at, (cell, size) in enumerate(zip(cells, widths, strict=True))
        ]
        last = cut(one_line(last_text), room) if room >= _MIN_LAST_TEXT else ""
        yield cut("  ".join([*filled, last]).rstrip(), width)


def _table(
    branches: Sequence[BranchFacts], ids: IdPrefixes, marks: Mapping[str, Mark], width: int, now: float
) -> tuple[list[tuple[str, ...]], list[int], int]:
    """The cells, the width of each column, and the width left for last words. Marks are shortened until those fit."""
    tables = []
    for longest in _MARK_WIDTHS if marks else _MARK_WIDTHS[:1]:
        rows = [_cells(branch, ids, marks.get(branch.leaf), longest, now) for branch in branches]
        widths = [max(map(columns, column)) for column in zip(_HEADINGS, *rows, strict=True)]
        tables.append((rows, widths, width - sum(widths) - 2 * len(widths)))
    fitting = (table for least in (_MIN_LAST_TEXT, -2) for table in tables if table[2] >= least)
    return next(fitting, tables[-1])


def _cells(branch: BranchFacts, ids: IdPrefixes, mark: Mark | None, longest: int, now: float) -> tuple[str, ...]:
    return (
        "●" if branch.is_active else "○",
        short_entry_id(branch.leaf, ids),
        cut(_name_cell(branch, ids, mark, longest), _MAX_NAME),
        "" if branch.is_active else _distance(branch.ahead),
        "" if branch.is_active else _distance(branch.behind),
        amount(branch.tokens),
        age(milliseconds(branch.last_time), now),
    )


def _name_cell(branch: BranchFacts, ids: IdPrefixes, mark: Mark | None, longest: int) -> str:
    """The name of a branch, or else its mark, and where it was merged."""
    merged = f" ⇢ {short_entry_id(branch.merged_into[-1], ids)}" if branch.merged_into else ""
    name = one_line(branch.name or "")
    if not name and mark is not None:
        name = mark.fitting(longest - columns(merged)) or mark.texts[-1]
    return f"{name}{merged}".lstrip()


def _distance(distance: Distance) -> str:
    return (
        f"{distance.messages}" if distance.messages == distance.entries else f"{distance.messages}/{distance.entries}"
    )


def draw_writers(writers: Sequence[Writer] | None) -> str:
    """The processes that have the file open for writing, if that can be determined."""
    if writers is None:
        return "this system cannot report which processes have the file open"
    if not writers:
        return "no other process has the file open for writing now"
    who = ", ".join(f"{one_line(writer.program) or 'a process'} ({writer.pid})" for writer in writers)
    return f"open for writing in: {who}"


def describe_branch(branch: BranchFacts, mark: Mark | None = None) -> dict[str, Any]:
    return {
        "leaf": branch.leaf,
        "name": branch.name,
        "active": branch.is_active,
        "ahead": _described(branch.ahead),
        "behind": _described(branch.behind),
        "ancestor": branch.ancestor,
        "time": branch.last_time,
        "tokens": branch.tokens,
        "mergedInto": list(branch.merged_into),
        **describe_mark(mark),
    }


def _described(distance: Distance) -> dict[str, int]:
    return {"entries": distance.entries, "messages": distance.messages}


def describe_writers(writers: Sequence[Writer] | None) -> list[dict[str, Any]] | None:
    return None if writers is None else [{"pid": writer.pid, "program": writer.program} for writer in writers]
