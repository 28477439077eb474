"""Tables of lanes for a terminal: their progress, and their results. All texts are sanitized and measured in columns.

Nothing important is cut off: names of models shrink first, empty columns are omitted, and where a table does not fit,
each lane gets several rows.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Literal, TypeAlias

from msgspec import Struct

from sessiontree.explore.compare import Result
from sessiontree.explore.lane import Lane
from sessiontree.git.trees import FileChange
from sessiontree.views.diff import wrap
from sessiontree.views.listing import amount
from sessiontree.views.text import clean, columns, cut, one_line, pad

LineStyle: TypeAlias = Literal["plain", "heading", "quiet", "bad", "command"]
"""A command is never wrapped or cut, however long: users copy it."""
_Line: TypeAlias = tuple[str, LineStyle]
Paint: TypeAlias = Callable[[str], str]

SEPARATOR = " · "
_GOOD_ACTIVITY, _MIN_ACTIVITY = 36, 20
"""Columns for a lane's activity: names shrink until it has the first; below the second it gets its own row."""
_TIME_WIDTH = 6
_MAX_ANSWER, _MAX_CHECK, _MAX_REASON = 6, 5, 3
"""Lines shown of an answer, of a check's output and of a reason."""
_QUOTE = "  │ "
_MINUTE, _HOUR = 60, 3600
_MIN_COST = 0.0001
_FILE_SIGNS = {"added": "A", "changed": "M", "removed": "D", "mode": "m", "renamed": "R"}


# Columns


class LaneTitle(Struct, frozen=True):
    """Sanitized texts that identify a lane."""

    number: int
    name: str
    model: str
    origin: int | None = None
    """The lane it was forked from."""

    @property
    def text(self) -> str:
        """Number, name and origin."""
        return f"{self.number} {self.label(is_short=False)}".rstrip()

    def label(self, *, is_short: bool) -> str:
        """Name and origin; the short form omits a name that only repeats the number."""
        name = "" if is_short and self.name == f"lane-{self.number}" else self.name
        return f"{name} ⑂{self.origin}".lstrip() if self.origin is not None else name


class Layout(Struct, frozen=True):
    """How much of the names is shown, and the gap between columns."""

    is_full: bool
    """With providers, and with names that only repeat the number."""
    max_model: int
    max_name: int
    gap: int = 2


_LAYOUTS = (
    Layout(True, 28, 20),
    Layout(False, 28, 20),
    Layout(False, 20, 16),
    Layout(False, 14, 12),
    Layout(False, 10, 8, 1),
)
"""From the widest to the narrowest."""


class Column(Struct, frozen=True):
    heading: str
    cells: Sequence[str]
    is_right: bool = False
    min_size: int = 0

    @property
    def size(self) -> int:
        return max(self.min_size, *map(columns, [self.heading, *self.cells]))


def lane_title(number: int, name: str, model: str, origin: int | None) -> LaneTitle:
    """A title with sanitized texts."""
    return LaneTitle(number, one_line(name), one_line(model), origin)


def _shared_model(titles: Sequence[LaneTitle]) -> str | None:
    """The model that all lanes have: it is printed once above the table."""
    models = {title.model for title in titles}
    return models.pop() if len(models) == 1 else None


def _title_columns(titles: Sequence[LaneTitle], layout: Layout) -> list[Column] | None:
    """Number, name and model; None if the shortened models would look the same."""
    names = [cut(title.label(is_short=not layout.is_full), layout.max_name) for title in titles]
    found = [Column("", [str(title.number) for title in titles]), Column("LANE", names)]
    if _shared_model(titles) is None:
        models = shorten_models([title.model for title in titles], layout.max_model, with_provider=layout.is_full)
        if models is None:
            return None
        if layout.is_full or models != names:  # lanes are often named after their models
            found.append(Column("MODEL", models))
    return found


def shorten_models(models: Sequence[str], size: int, *, with_provider: bool = False) -> list[str] | None:
    """Models in at most `size` columns each: without provider, then cut; None if two would look the same."""
    count = len(set(models))
    names = [model.partition(":")[2] or model for model in models]
    shown = names if not with_provider and len(set(names)) == count else list(models)
    for shorten in (cut, cut_middle):
        found = [shorten(model, size) for model in shown]
        if len(set(found)) == count:
            return found
    return None


def cut_middle(text: str, width: int) -> str:
    """A line in at most `width` columns, with an ellipsis in the middle: the end of a path matters most."""
    if columns(text) <= width:
        return text
    tail = ""
    for character in reversed(text):
        if columns(character + tail) > (width - 1) // 2:
            break
        tail = character + tail
    return cut(text, width - columns(tail)) + tail


def _table_width(table: Sequence[Column], gap: int) -> int:
    return sum(column.size for column in table) + gap * (len(table) - 1)


def _table_rows(table: Sequence[Column], gap: int) -> Iterator[str]:
    """The heading, then a row for each lane."""
    sizes = [column.size for column in table]
    for row in zip(*([column.heading, *column.cells] for column in table), strict=True):
        cells = [
            " " * (size - columns(text)) + text if column.is_right else pad(text, size)
            for column, text, size in zip(table, row, sizes, strict=True)
        ]
        yield (" " * gap).join(cells).rstrip()


def _without_empty(table: Sequence[Column]) -> list[Column]:
    return [column for column in table if any(column.cells)]


# Progress


def draw_progress(
    lanes: Sequence[Lane], width: int, began: dict[int, float] | None = None, most: int | None = None
) -> list[str]:
    """State and activity of each lane: one row each, or two where the width is not enough.

    `began` has the start times of running lanes. `most` limits the number of lines: ended lanes are left out first, and
    counted.
    """
    if not lanes:
        return []
    titles = [lane_title(lane.number, lane.name, lane.record.model, lane.record.origin) for lane in lanes]
    model = _shared_model(titles)
    above = [] if model is None else [cut_middle(f"model: {model}", width)]
    heading, rows = _progress_rows(lanes, titles, _seconds(lanes, began), width)
    above.append(heading)
    size = len(rows[0])
    if most is None or len(above) + size * len(rows) <= most:
        return [*above, *(line for row in rows for line in row)]
    if most < len(above) + size + 1:
        above = [heading]
    order = sorted(range(len(lanes)), key=lambda at: (lanes[at].state not in ("running", "waiting"), at))
    shown = sorted(order[: max(most - len(above) - 1, 0) // size])
    more = cut(f"… {_count(len(lanes) - len(shown), 'more lane')}", width)
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
    lanes: Sequence[Lane], titles: Sequence[LaneTitle], seconds: Sequence[float], width: int
) -> tuple[str, list[list[str]]]:
    """The heading, and the rows of each lane: the same number for all."""
    state = Column("STATE", [lane.state for lane in lanes])
    turns = Column("TURN", [str(lane.spent.turns) for lane in lanes], is_right=True)
    tokens = [amount(lane.spent.tokens) for lane in lanes]
    costs = [cost(lane.spent.cost, lane.spent.tokens) for lane in lanes]
    times = Column("TIME", [duration(elapsed) for elapsed in seconds], is_right=True, min_size=_TIME_WIDTH)
    activities = [_activity(lane) for lane in lanes]
    numbers = _without_empty([state, turns, Column("TOKENS", tokens, True), Column("COST", costs, True), times])
    tables = [
        ([*_without_empty(title), *numbers], layout.gap)
        for layout in _LAYOUTS
        if (title := _title_columns(titles, layout)) is not None
    ]
    for least, (table, gap) in product((_GOOD_ACTIVITY, _MIN_ACTIVITY), tables):
        space = width - _table_width(table, gap) - gap
        if space >= least:
            texts = [cut(text, space) for text in activities]
            heading, *rows = _table_rows([*table, Column("DOING", texts)], gap)
            return heading, [[row] for row in rows]
    for table, gap in tables:
        if _table_width(table, gap) <= width:
            heading, *rows = _table_rows(table, gap)
            indent = " " * (table[0].size + gap)
            return heading, [
                [row, cut(indent + text, width).rstrip()] for row, text in zip(rows, activities, strict=True)
            ]
    short = [Column("", [str(title.number) for title in titles]), state, turns, Column("TOK", tokens, True), times]
    short.insert(1, Column("LANE", _short_names(titles, max(width - _table_width(short, 1) - 1, 4))))
    heading, *rows = [cut(row, width) for row in _table_rows(short, 1)]
    below = [f"  {SEPARATOR.join(filter(None, both))}" for both in zip(costs, activities, strict=True)]
    return heading, [[row, cut(text, width).rstrip()] for row, text in zip(rows, below, strict=True)]


def _short_names(titles: Sequence[LaneTitle], size: int) -> list[str]:
    """One name for each lane: its own, or its model."""
    models = shorten_models([title.model for title in titles], size) or [
        cut_middle(title.model, size) for title in titles
    ]
    has_models = _shared_model(titles) is None
    return [cut(title.label(is_short=has_models) or model, size) for title, model in zip(titles, models, strict=True)]


def _activity(lane: Lane) -> str:
    current = lane.last_tool if lane.state == "running" else lane.why
    return one_line(current) or next((one_line(line) for line in lane.text.splitlines() if line.strip()), "")


# Results


def draw_results(
    results: Sequence[Result], width: int, *, session: str = "SESSION", bold: Paint = str, dim: Paint = str
) -> Iterator[str]:
    """A table of the lanes; then for each its answer, the output of a failed check, and its files.

    `session` names the session in commands that are printed: sanitized and quoted for a shell.
    """
    paints: dict[LineStyle, Paint] = {"plain": str, "heading": bold, "quiet": dim, "bad": bold, "command": dim}

    def more(result: Result) -> str:
        return f"sessiontree show {session} --leaf {shlex.quote(one_line(result.leaf or ''))}"

    for text, style in result_lines(results, width, more):
        yield paints[style](text) if text else ""


def result_lines(results: Sequence[Result], width: int, more: Callable[[Result], str]) -> Iterator[_Line]:
    """The lines of `draw_results` with their styles; `more` returns the command that shows a whole answer."""
    if not results:
        return
    titles = [lane_title(result.lane, result.name, result.model, result.origin) for result in results]
    model = _shared_model(titles)
    if model is not None:
        yield cut_middle(f"model: {model}", width), "plain"
    table = _results_table(results, titles, width)
    if table is not None:
        heading, *rows = table
        yield heading, "quiet"
        yield from ((row, "plain") for row in rows)
    for result, title in zip(results, titles, strict=True):
        yield "", "plain"
        if table is not None:
            parts = [title.text] if model is not None else [title.text, title.model]
            yield cut_middle(SEPARATOR.join(parts), width), "heading"
        else:
            yield from _block(result, title, width, with_model=model is None)
        for text, style in _details(result, width, more):
            yield text if style == "command" else cut(text, width), style


def _results_table(results: Sequence[Result], titles: Sequence[LaneTitle], width: int) -> list[str] | None:
    """A row with all columns for each lane; None if the width is not enough."""
    numbers = _without_empty(
        [
            Column("STATE", [_state(result) for result in results]),
            Column("CHECK", [_check(result) for result in results]),
            Column("FILES", [_files(result) for result in results]),
            Column("TURNS", [str(result.turns) for result in results], is_right=True),
            Column("TOKENS", [amount(result.tokens) for result in results], is_right=True),
            Column("COST", [cost(result.cost, result.tokens) for result in results], is_right=True),
            Column("TIME", [duration(result.seconds) for result in results], is_right=True),
        ]
    )
    for layout in _LAYOUTS:
        title = _title_columns(titles, layout)
        if title is not None and _table_width(table := [*_without_empty(title), *numbers], layout.gap) <= width:
            return list(_table_rows(table, layout.gap))
    return None


def _block(result: Result, title: LaneTitle, width: int, *, with_model: bool) -> Iterator[_Line]:
    """The contents of a table row on several lines."""
    state = _state(result)
    yield cut(f"{cut(title.text, width - columns(SEPARATOR + state))}{SEPARATOR}{state}", width), "heading"
    count = len(result.files or ())
    files = f"{_count(count, 'file')} +{result.added} -{result.removed}" if count else "no files"
    pieces = [
        title.model if with_model else "",
        f"check {_check(result)}" if _check(result) else "",
        "" if result.files is None else files,
        _count(result.turns, "turn"),
        f"{amount(result.tokens)} tokens",
        cost(result.cost, result.tokens),
        duration(result.seconds),
    ]
    yield from ((f"  {line}", "plain") for line in _fill([piece for piece in pieces if piece], width - 2))


def _fill(pieces: Sequence[str], width: int) -> Iterator[str]:
    """Pieces with separators, as many on a line as fit."""
    line = ""
    for piece in pieces:
        short = cut_middle(piece, width)
        if line and columns(line + SEPARATOR + short) > width:
            yield line
            line = short
        else:
            line = line + SEPARATOR + short if line else short
    if line:
        yield line


def _details(result: Result, width: int, more: Callable[[Result], str]) -> Iterator[_Line]:
    """Reasons, the answer, check output and files."""
    if result.reason:
        reason = f"forked from lane {result.origin} by {one_line(result.rule or '')}: {one_line(result.reason)}"
        yield from _paragraph(reason, width)
    if result.why:
        yield from _paragraph(one_line(result.why), width, "bad" if result.state == "failed" else "plain")
    yield from _answer(result, width, more)
    if result.check is False or result.check_why:
        yield from _check_output(result, width)
    yield from ((line, "plain") for line in draw_files(result.files or (), width))


def _paragraph(text: str, width: int, style: LineStyle = "plain") -> Iterator[_Line]:
    return ((f"  {line}", style) for line in _folded(text, width - 2, _MAX_REASON))


def _answer(result: Result, width: int, more: Callable[[Result], str]) -> Iterator[_Line]:
    lines = [piece for line in _lines(result.answer) for piece in wrap(line, width - len(_QUOTE))]
    if not lines:
        yield "  (no answer)", "quiet"
    is_long = len(lines) > _MAX_ANSWER + 1  # one more line takes no more space than the hint
    shown = lines[:_MAX_ANSWER] if is_long else lines
    yield from ((f"{_QUOTE}{line}".rstrip(), "plain") for line in shown)
    if is_long:
        hint, command = f"  … {len(lines) - len(shown)} more lines:", more(result)
        if columns(f"{hint} {command}") <= width:
            yield f"{hint} {command}", "quiet"
        else:
            yield hint, "quiet"
            yield f"  {command}", "command"


def _check_output(result: Result, width: int) -> Iterator[_Line]:
    lines = [line for line in _lines(result.check_output) if line]
    last = lines[-_MAX_CHECK:]
    outcome = "check failed" if result.check is False else f"check: {one_line(result.check_why)}"
    if len(lines) > len(last):
        outcome += f"; last {len(last)} of {len(lines)} lines of output:"
    else:
        outcome += "; output:" if lines else "; no output"
    yield from _paragraph(outcome, width, "bad")
    for line in last:
        yield from ((_QUOTE + piece, "quiet") for piece in _folded(line, width - len(_QUOTE), 2))


def draw_files(files: Sequence[FileChange], width: int) -> Iterator[str]:
    """Changed files, with the kind of change and the lines added and removed."""
    for file in files:
        lines = "binary" if file.added is None else f"+{file.added} -{file.removed}"
        prefix = f"  {_FILE_SIGNS[file.kind]} {lines:>9}  "
        path = one_line(file.path if file.was is None else f"{file.was} → {file.path}")
        yield cut(prefix + cut_middle(path, max(width - len(prefix), 4)), width)


def _state(result: Result) -> str:
    return f"{result.state} ({result.verdict})" if result.verdict is not None else result.state


def _check(result: Result) -> str:
    return {None: "unknown" if result.check_why else "", True: "passed", False: "failed"}[result.check]


def _files(result: Result) -> str:
    if result.files is None:
        return ""
    return f"{len(result.files)} +{result.added} -{result.removed}" if result.files else "0"


# Texts


def shell_words(session: str, home: str | None) -> str:
    """Shell words that name a session in a command, with its home if that is not the default."""
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


def cost(dollars: float, tokens: float) -> str:
    """Dollars with enough digits to compare lanes; `?` if the price of used tokens is unknown."""
    if not dollars:
        return "?" if tokens else ""
    return f"${dollars:.2f}" if dollars >= 1 else f"${dollars:.4f}" if dollars >= _MIN_COST else f"<${_MIN_COST}"


def _lines(text: str) -> list[str]:
    """Sanitized lines without blank lines at the start and end, and never two blank ones in a row."""
    lines = [line.rstrip() for line in clean(text).split("\n")]
    kept = [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]
    return kept[: len(kept) - 1] if kept and not kept[-1] else kept


def _folded(text: str, width: int, most: int) -> list[str]:
    """A line wrapped to at most `most` lines, with an ellipsis if it was cut."""
    lines = wrap(text, width)
    return lines if len(lines) <= most else [*lines[: most - 1], cut(lines[most - 1], width - 1) + "…"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
