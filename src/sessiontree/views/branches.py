"""The branches of a session as a table, and as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sessiontree.branching.branches import BranchFacts, Distance
from sessiontree.branching.writers import Writer
from sessiontree.context import milliseconds
from sessiontree.views.listing import age, amount
from sessiontree.views.text import columns, cut, one_line, pad

_HEADINGS = ("", "BRANCH", "NAME", "AHEAD", "BEHIND", "TOKENS", "AGE")
_LONGEST_NAME = 32
_SHORTEST_SAYING = 12


def draw_branches(branches: Sequence[BranchFacts], sayings: Sequence[str], width: int, now: float) -> Iterator[str]:
    """One row for each branch: where it ends, what it is called, how far it is, what it says last."""
    rows = [_cells(branch, now) for branch in branches]
    widths = [max(map(columns, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    room = width - sum(widths) - 2 * len(widths)
    for cells, saying in zip([_HEADINGS, *rows], ["LAST WORDS", *sayings], strict=True):
        filled = [
            pad(cell, size) if at < 3 else " " * (size - columns(cell)) + cell
            for at, (cell, size) in enumerate(zip(cells, widths, strict=True))
        ]
        last = cut(one_line(saying), room) if room >= _SHORTEST_SAYING else ""
        yield cut("  ".join([*filled, last]).rstrip(), width)


def _cells(branch: BranchFacts, now: float) -> tuple[str, ...]:
    name = one_line(branch.name or "")
    if branch.merged_into:
        name = f"{name} ⇢ {one_line(branch.merged_into[-1])[:8]}".lstrip()
    return (
        "●" if branch.is_active else "○",
        one_line(branch.leaf)[:8],
        cut(name, _LONGEST_NAME),
        "" if branch.is_active else _far(branch.ahead),
        "" if branch.is_active else _far(branch.behind),
        amount(branch.tokens),
        age(milliseconds(branch.last_time), now),
    )


def _far(distance: Distance) -> str:
    return (
        f"{distance.messages}" if distance.messages == distance.entries else f"{distance.messages}/{distance.entries}"
    )


def draw_writers(writers: Sequence[Writer] | None) -> str:
    """Who writes, as far as that can be known."""
    if writers is None:
        return "this system does not tell who has the file open"
    if not writers:
        return "no other process has the file open for writing now"
    who = ", ".join(f"{one_line(writer.program) or 'a process'} ({writer.pid})" for writer in writers)
    return f"open for writing in: {who}"


def describe_branch(branch: BranchFacts) -> dict[str, Any]:
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
    }


def _described(distance: Distance) -> dict[str, int]:
    return {"entries": distance.entries, "messages": distance.messages}


def describe_writers(writers: Sequence[Writer] | None) -> list[dict[str, Any]] | None:
    return None if writers is None else [{"pid": writer.pid, "program": writer.program} for writer in writers]
