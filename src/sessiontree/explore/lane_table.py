"""Lanes in a terminal: how far each is, and what came of them. Every text here is clean, and measured in columns.

Nothing that matters is cut away: where a table has no room for its columns, a lane takes several rows.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Literal, TypeAlias

from sessiontree.explore.compare import Result
from sessiontree.explore.lane import Lane
from sessiontree.explore.table_layout import (
    BETWEEN,
    SHAPES,
    Column,
    Who,
    cut_middle,
    packed,
    shared_model,
    short_models,
    table_rows,
    table_width,
    who_columns,
    who_is,
    without_empty,
)
from sessiontree.git.trees import FileChange
from sessiontree.views.diff import wrap
from sessiontree.views.listing import amount
from sessiontree.views.text import clean, columns, cut, one_line

Manner: TypeAlias = Literal["plain", "heading", "quiet", "bad", "command"]
"""How a line is meant, for who has colours. A command is one line however long it is: someone copies it."""
_Line: TypeAlias = tuple[str, Manner]
Paint: TypeAlias = Callable[[str], str]

_GOOD_DOING, _LEAST_DOING = 36, 20
"""Columns for what a lane does: names shrink until it has the first; with less than the second it has its own row."""
_LONGEST_TIME = 6
_MOST_OF_ANSWER, _MOST_OF_CHECK, _MOST_OF_REASON = 6, 5, 3
"""Lines."""
_QUOTE = "  │ "
_MINUTE, _HOUR = 60, 3600
_LEAST_COST = 0.0001
_SIGNS = {"added": "A", "changed": "M", "removed": "D", "mode": "m", "renamed": "R"}


def draw_progress(
    lanes: Sequence[Lane], width: int, began: dict[int, float] | None = None, most: int | None = None
) -> list[str]:
    """How far each lane is, and what it does: a row for each, or two for each where the width does not do.

    `began` has when each that runs here began. With `most`, there are no more lines than that: lanes that have ended
    make room first, and are counted.
    """
    if not lanes:
        return []
    whos = [who_is(lane.number, lane.name, lane.record.model, lane.record.origin) for lane in lanes]
    model = shared_model(whos)
    above = [] if model is None else [cut_middle(f"model: {model}", width)]
    heading, rows = _progress_rows(lanes, whos, _seconds(lanes, began), width)
    above.append(heading)
    size = len(rows[0])
    if most is None or len(above) + size * len(rows) <= most:
        return [*above, *(line for row in rows for line in row)]
    if most < len(above) + size + 1:
        above = [heading]
    order = sorted(range(len(lanes)), key=lambda at: (lanes[at].state not in ("running", "waiting"), at))
    shown = sorted(order[: max(most - len(above) - 1, 0) // size])
    left = len(lanes) - len(shown)
    more = cut(f"… {left} more lane{'s' if left > 1 else ''}", width)
    return [*above, *(line for at in shown for line in rows[at]), more]


def _seconds(lanes: Sequence[Lane], began: dict[int, float] | None) -> list[float]:
    now = time.monotonic()
    return [
        max(lane.spent.seconds, now - began[lane.number])
        if began is not None and lane.state == "running" and lane.number in began
        else lane.spent.seconds
        for lane in lanes
    ]


def _progress_rows(
    lanes: Sequence[Lane], whos: Sequence[Who], seconds: Sequence[float], width: int
) -> tuple[str, list[list[str]]]:
    """The headings, and the rows of each lane: as many for all of them."""
    state = Column("STATE", [lane.state for lane in lanes])
    turns = Column("TURN", [str(lane.spent.turns) for lane in lanes], is_right=True)
    tokens = [amount(lane.spent.tokens) for lane in lanes]
    costs = [cost(lane.spent.cost) for lane in lanes]
    times = Column("TIME", [duration(one) for one in seconds], is_right=True, least=_LONGEST_TIME)
    doing = [_doing(lane) for lane in lanes]
    numbers = without_empty([state, turns, Column("TOKENS", tokens, True), Column("COST", costs, True), times])
    tables = [
        ([*without_empty(who), *numbers], shape.gap)
        for shape in SHAPES
        if (who := who_columns(whos, shape)) is not None
    ]
    for least, (table, gap) in product((_GOOD_DOING, _LEAST_DOING), tables):
        room = width - table_width(table, gap) - gap
        if room >= least:
            texts = [cut(text, room) for text in doing]
            heading, *rows = table_rows([*table, Column("DOING", texts)], gap)
            return heading, [[row] for row in rows]
    for table, gap in tables:
        if table_width(table, gap) <= width:
            heading, *rows = table_rows(table, gap)
            before = " " * (table[0].size + gap)
            return heading, [[row, cut(before + text, width).rstrip()] for row, text in zip(rows, doing, strict=True)]
    short = [Column("", [str(one.number) for one in whos]), state, turns, Column("TOK", tokens, True), times]
    short.insert(1, Column("LANE", _short_names(whos, max(width - table_width(short, 1) - 1, 4))))
    heading, *rows = [cut(row, width) for row in table_rows(short, 1)]
    below = [f"  {BETWEEN.join(filter(None, both))}" for both in zip(costs, doing, strict=True)]
    return heading, [[row, cut(text, width).rstrip()] for row, text in zip(rows, below, strict=True)]


def _short_names(whos: Sequence[Who], size: int) -> list[str]:
    """One name for each: of lanes that have none but their number, the model says more."""
    models = short_models([one.model for one in whos], size) or [cut_middle(one.model, size) for one in whos]
    has_models = shared_model(whos) is None
    return [cut(one.named(is_short=has_models) or model, size) for one, model in zip(whos, models, strict=True)]


def draw_results(
    results: Sequence[Result], width: int, *, session: str = "SESSION", bold: Paint = str, dim: Paint = str
) -> Iterator[str]:
    """The lanes side by side; then of each its answer, what a check said that did not pass, and its files.

    `session` are the words, clean and fit for a shell, that name the session in a command that shows more.
    """
    paints: dict[Manner, Paint] = {"plain": str, "heading": bold, "quiet": dim, "bad": bold, "command": dim}

    def more(one: Result) -> str:
        return f"sessiontree show {session} --leaf {shlex.quote(one_line(one.leaf or ''))}"

    for text, manner in result_lines(results, width, more):
        yield paints[manner](text) if text else ""


def result_lines(results: Sequence[Result], width: int, more: Callable[[Result], str]) -> Iterator[_Line]:
    """As `draw_results`, each line with how it is meant; `more` is the command that shows the whole answer."""
    if not results:
        return
    whos = [who_is(one.lane, one.name, one.model, one.origin) for one in results]
    model = shared_model(whos)
    if model is not None:
        yield cut_middle(f"model: {model}", width), "plain"
    table = _results_table(results, whos, width)
    if table is not None:
        heading, *rows = table
        yield heading, "quiet"
        yield from ((row, "plain") for row in rows)
    for one, who in zip(results, whos, strict=True):
        yield "", "plain"
        if table is not None:
            said = [who.title] if model is not None else [who.title, who.model]
            yield cut_middle(BETWEEN.join(said), width), "heading"
        else:
            yield from _block(one, who, width, with_model=model is None)
        for text, manner in _below(one, width, more):
            yield text if manner == "command" else cut(text, width), manner


def _results_table(results: Sequence[Result], whos: Sequence[Who], width: int) -> list[str] | None:
    """A row for each lane, all its columns in it; None when the width does not do."""
    numbers = without_empty(
        [
            Column("STATE", [_state(one) for one in results]),
            Column("CHECK", [_check(one) for one in results]),
            Column("FILES", [_files(one) for one in results]),
            Column("TURNS", [str(one.turns) for one in results], is_right=True),
            Column("TOKENS", [amount(one.tokens) for one in results], is_right=True),
            Column("COST", [cost(one.cost) for one in results], is_right=True),
            Column("TIME", [duration(one.seconds) for one in results], is_right=True),
        ]
    )
    for shape in SHAPES:
        who = who_columns(whos, shape)
        if who is not None and table_width(table := [*without_empty(who), *numbers], shape.gap) <= width:
            return list(table_rows(table, shape.gap))
    return None


def _block(one: Result, who: Who, width: int, *, with_model: bool) -> Iterator[_Line]:
    """What a row of the table says, on several lines."""
    state = _state(one)
    yield cut(f"{cut(who.title, width - columns(BETWEEN + state))}{BETWEEN}{state}", width), "heading"
    count = len(one.files or ())
    pieces = [
        who.model if with_model else "",
        f"check {_check(one)}" if _check(one) else "",
        "" if one.files is None else f"{_count(count, 'file')} +{one.added} -{one.removed}" if count else "no files",
        _count(one.turns, "turn"),
        f"{amount(one.tokens)} tokens",
        cost(one.cost),
        duration(one.seconds),
    ]
    yield from ((f"  {line}", "plain") for line in packed([piece for piece in pieces if piece], width - 2))


def _below(one: Result, width: int, more: Callable[[Result], str]) -> Iterator[_Line]:
    """What has no place in a row: why, the answer, what a check said, the files."""
    if one.reason:
        yield from _told(f"forked from lane {one.origin} by {one_line(one.rule or '')}: {one_line(one.reason)}", width)
    if one.why:
        yield from _told(one_line(one.why), width, "bad" if one.state == "failed" else "plain")
    yield from _answer(one, width, more)
    if one.check is False or one.check_why:
        yield from _said_by_check(one, width)
    yield from ((line, "plain") for line in draw_files(one.files or (), width))


def _told(text: str, width: int, manner: Manner = "plain") -> Iterator[_Line]:
    return ((f"  {line}", manner) for line in _folded(text, width - 2, _MOST_OF_REASON))


def _answer(one: Result, width: int, more: Callable[[Result], str]) -> Iterator[_Line]:
    lines = [piece for line in _lines(one.answer) for piece in wrap(line, width - len(_QUOTE))]
    if not lines:
        yield "  (no answer)", "quiet"
    is_long = len(lines) > _MOST_OF_ANSWER + 1  # one more takes no more room than saying so
    shown = lines[:_MOST_OF_ANSWER] if is_long else lines
    yield from ((f"{_QUOTE}{line}".rstrip(), "plain") for line in shown)
    if is_long:
        said, command = f"  … {len(lines) - len(shown)} more lines:", more(one)
        if columns(f"{said} {command}") <= width:
            yield f"{said} {command}", "quiet"
        else:
            yield said, "quiet"
            yield f"  {command}", "command"


def _said_by_check(one: Result, width: int) -> Iterator[_Line]:
    lines = [line for line in _lines(one.check_output) if line]
    last = lines[-_MOST_OF_CHECK:]
    what = "check failed" if one.check is False else f"check: {one_line(one.check_why)}"
    if len(lines) > len(last):
        what += f"; the last {len(last)} of {len(lines)} lines it printed:"
    else:
        what += "; what it printed:" if lines else "; it printed nothing"
    yield from _told(what, width, "bad")
    for line in last:
        yield from ((_QUOTE + piece, "quiet") for piece in _folded(line, width - len(_QUOTE), 2))


def draw_files(files: Sequence[FileChange], width: int) -> Iterator[str]:
    """What became of files: added, changed, removed, renamed, made to be run; with their lines."""
    for one in files:
        lines = "binary" if one.added is None else f"+{one.added} -{one.removed}"
        before = f"  {_SIGNS[one.kind]} {lines:>9}  "
        path = one_line(one.path if one.was is None else f"{one.was} → {one.path}")
        yield cut(before + cut_middle(path, max(width - len(before), 4)), width)


def shell_words(session: str, home: str | None) -> str:
    """The words for a shell that name a session in a command, and the home it is in, if that has to be said."""
    return _quoted(session) if home is None else f"{_quoted(session)} --home {_quoted(home)}"


def _quoted(text: str) -> str:
    return shlex.quote(clean(text).replace("\n", " "))


def duration(seconds: float) -> str:
    """`4.2s`, `3m05s`, `2h07m`."""
    if seconds < _MINUTE:
        return f"{seconds:.1f}s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)}m{int(seconds % _MINUTE):02}s"
    return f"{int(seconds // _HOUR)}h{int(seconds % _HOUR // _MINUTE):02}m"


def cost(dollars: float) -> str:
    """Dollars, below one with enough digits to tell lanes apart; nothing where nothing is known to have been paid."""
    if not dollars:
        return ""
    return f"${dollars:.2f}" if dollars >= 1 else f"${dollars:.4f}" if dollars >= _LEAST_COST else f"<${_LEAST_COST}"


def _state(one: Result) -> str:
    return f"{one.state} ({one.verdict})" if one.verdict is not None else one.state


def _check(one: Result) -> str:
    return {None: "unknown" if one.check_why else "", True: "passed", False: "failed"}[one.check]


def _files(one: Result) -> str:
    """How many, with the lines of all."""
    if one.files is None:
        return ""
    return f"{len(one.files)} +{one.added} -{one.removed}" if one.files else "0"


def _doing(lane: Lane) -> str:
    if lane.state == "running":
        return one_line(lane.last_tool) or _gist(lane.text)
    return one_line(lane.why) or _gist(lane.text)


def _gist(text: str) -> str:
    return next((one_line(line) for line in text.splitlines() if line.strip()), "")


def _lines(text: str) -> list[str]:
    """Clean lines, without those that are empty at both ends, and never two empty ones in a row."""
    lines = [line.rstrip() for line in clean(text).split("\n")]
    kept = [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]
    return kept[: len(kept) - 1] if kept and not kept[-1] else kept


def _folded(text: str, width: int, most: int) -> list[str]:
    """A clean line on at most so many, with an ellipsis where it was cut."""
    lines = wrap(text, width)
    return lines if len(lines) <= most else [*lines[: most - 1], cut(lines[most - 1], width - 1) + "…"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
