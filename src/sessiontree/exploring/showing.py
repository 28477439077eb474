"""Lanes in a terminal: how far each is, and what came of them. Every text here is clean, and measured in columns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from sessiontree.exploring.comparing import Result
from sessiontree.exploring.lanes import Lane
from sessiontree.exploring.trees import FileChange
from sessiontree.views.listing import amount
from sessiontree.views.text import columns, cut, one_line, pad

_LONGEST_NAME = 20
_LONGEST_MODEL = 28
_SHORTEST_TEXT = 10
_MINUTE, _HOUR = 60, 3600
_SIGNS = {"added": "A", "changed": "M", "removed": "D", "mode": "m"}


def draw_progress(lanes: Sequence[Lane], width: int, began: dict[int, float] | None = None) -> list[str]:
    """One row for each lane: how far it is, and what it does. `began` has when each that runs here began."""
    now = time.monotonic()
    rows = []
    for lane in lanes:
        seconds = lane.spent.seconds
        if began is not None and lane.state == "running" and lane.number in began:
            seconds = max(seconds, now - began[lane.number])
        rows.append(
            (
                str(lane.number),
                cut(_named(lane.name, lane.record.origin), _LONGEST_NAME),
                cut(one_line(lane.record.model), _LONGEST_MODEL),
                lane.state,
                str(lane.spent.turns),
                amount(lane.spent.tokens),
                cost(lane.spent.cost),
                duration(seconds),
            )
        )
    doing = [_doing(lane) for lane in lanes]
    headings = ("", "LANE", "MODEL", "STATE", "TURN", "TOKENS", "COST", "TIME")
    return list(_table(headings, rows, "DOING", doing, width, left=4))


def draw_results(results: Sequence[Result], width: int) -> Iterator[str]:
    """The lanes side by side, then the files of each."""
    headings = ("", "LANE", "MODEL", "STATE", "CHECK", "FILES", "+", "-", "TURNS", "TOKENS", "COST", "TIME")
    rows = [
        (
            str(one.lane),
            cut(_named(one.name, one.origin), _LONGEST_NAME),
            cut(one_line(one.model), _LONGEST_MODEL),
            f"{one.state} ({one.verdict})" if one.verdict is not None else one.state,
            {None: "unknown" if one.check_why else "", True: "passed", False: "failed"}[one.check],
            "" if one.files is None else str(len(one.files)),
            "" if one.files is None else str(one.added),
            "" if one.files is None else str(one.removed),
            str(one.turns),
            amount(one.tokens),
            cost(one.cost),
            duration(one.seconds),
        )
        for one in results
    ]
    yield from _table(headings, rows, "ANSWER", [_gist(one.answer) for one in results], width, left=5)
    for one in results:
        if one.files or one.why or one.reason or one.check_why:
            yield ""
            yield cut(f"{one.lane} {_named(one.name, one.origin)}", width)
            if one.reason:
                yield cut(
                    f"  forked from lane {one.origin} by {one_line(one.rule or '')}: {one_line(one.reason)}", width
                )
            if one.why:
                yield cut(f"  {one_line(one.why)}", width)
            if one.check_why:
                yield cut(f"  check: {one_line(one.check_why)}", width)
            yield from draw_files(one.files or (), width)


def draw_files(files: Sequence[FileChange], width: int) -> Iterator[str]:
    """What became of files: added, changed, removed, made to be run; with their lines."""
    for one in files:
        lines = "binary" if one.added is None else f"+{one.added} -{one.removed}"
        yield cut(f"  {_SIGNS[one.kind]} {lines:>9}  {one_line(one.path)}", width)


def describe(result: Result) -> dict[str, Any]:
    """A result as a plain value, the whole answer in it."""
    told: dict[str, Any] = msgspec.to_builtins(result)
    return told


def duration(seconds: float) -> str:
    """`4.2s`, `3m05s`, `2h07m`."""
    if seconds < _MINUTE:
        return f"{seconds:.1f}s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)}m{int(seconds % _MINUTE):02}s"
    return f"{int(seconds // _HOUR)}h{int(seconds % _HOUR // _MINUTE):02}m"


def cost(dollars: float) -> str:
    """Dollars; nothing where nothing is known to have been paid."""
    if not dollars:
        return ""
    return f"${dollars:.2f}" if dollars >= 0.01 else f"${dollars:.4f}"


def _named(name: str, origin: int | None) -> str:
    """A name, and where a fork came from."""
    shown = one_line(name)
    return f"{shown} ⑂{origin}" if origin is not None else shown


def _doing(lane: Lane) -> str:
    if lane.state == "running":
        return one_line(lane.last_tool) or _gist(lane.text)
    return one_line(lane.why) or _gist(lane.text)


def _gist(text: str) -> str:
    return next((one_line(line) for line in text.splitlines() if line.strip()), "")


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], last: str, texts: Sequence[str], width: int, *, left: int
) -> Iterator[str]:
    """Columns as wide as they need to be, the last one with what room is left. Empty columns are not shown."""
    shown = [at for at in range(len(headings)) if any(row[at] for row in rows)]
    sizes = {at: max(columns(row[at]) for row in [headings, *rows]) for at in shown}
    room = width - sum(sizes.values()) - 2 * len(shown)
    for row, text in zip([headings, *rows], [last, *texts], strict=True):
        cells = [pad(row[at], sizes[at]) if at < left else _right(row[at], sizes[at]) for at in shown]
        cells += [cut(text, room)] if room >= _SHORTEST_TEXT else []
        yield cut("  ".join(cells).rstrip(), width)


def _right(text: str, size: int) -> str:
    return " " * (size - columns(text)) + text
