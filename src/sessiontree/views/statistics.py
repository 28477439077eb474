"""Statistics as a table with bars, as CSV and as JSON.

The length of a bar is relative to the row with the most tokens. If the width is not enough, bars get shorter, then the
least important columns are dropped, and finally the bars; rows never wrap.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from sessiontree.library.aggregate import By, FileCount, Gap, Group, Statistics
from sessiontree.library.session_stats import Numbers
from sessiontree.models.cost_estimate import cost_total as estimated_cost
from sessiontree.views.listing import amount, cost_fields
from sessiontree.views.text import clean, columns, cut, one_line, pad

Paint = Callable[[str], str]

SHOWN_FILES = 10
_GAP = "  "
_MIN_LABEL, _MAX_LABEL, _MIN_BAR, _MAX_BAR = 14, 48, 6, 30
_FEW = 3
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MISSING = {"day": "(no time)", "model": "(no model)", "project": "(no folder)", "session": "(no title)"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Column(Struct, frozen=True):
    heading: str
    show: Callable[[Group], str]
    drop_order: int
    """Drop order if there is no room: the highest first."""


_COLUMNS = (
    _Column("tokens", lambda group: amount(group.numbers.tokens), 1),
    _Column("requests", lambda group: amount(group.numbers.requests), 0),
    _Column("in", lambda group: amount(group.numbers.input), 4),
    _Column("out", lambda group: amount(group.numbers.output), 3),
    _Column("cached", lambda group: amount(group.numbers.cached), 5),
    _Column("cost", lambda group: _cost_text(group.numbers), 2),
    _Column("calls", lambda group: amount(group.numbers.calls), 6),
    _Column("errors", lambda group: _percent(group.numbers), 7),
    _Column("sessions", lambda group: amount(group.sessions), 8),
)


def _cost_text(numbers: Numbers) -> str:
    return estimated_cost(numbers.cost, numbers.unpriced).text() if numbers.requests else "-"


def bar(share: float, width: int, *, with_blocks: bool = True) -> str:
    """A bar for a share of 1; any share above zero is visible."""
    eighths = round(max(min(share, 1.0), 0.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    if not with_blocks:
        return "#" * max(-(-eighths // 8), 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def draw_statistics(
    found: Statistics, width: int, *, paint: Paint = str, quiet: Paint = str, with_blocks: bool = True
) -> Iterator[str]:
    """Render groups and total with headings. `paint` colors bars, `quiet` headings."""
    groups = [*found.groups, found.total]
    labels = [*(label_of(found.by, group) for group in found.groups), "total"]
    cells = [(column, [column.show(group) for group in groups]) for column in _COLUMNS]
    kept = [(column, texts) for column, texts in cells if any(text not in ("", "0") for text in texts)]
    widest = max(columns(found.by), *map(columns, labels))
    wanted = min(widest, _MIN_LABEL)
    with_bar = wanted + len(_GAP) + _MIN_BAR
    while len(kept) > 1 and width - _taken(kept) < (with_bar if len(kept) > _FEW else wanted):
        kept.remove(max(kept, key=lambda pair: pair[0].drop_order))
    room = width - _taken(kept)
    label_width = min(widest, _MAX_LABEL, room)
    if room >= with_bar:  # the label is shortened to make room for a bar
        label_width = min(label_width, room - len(_GAP) - _MIN_BAR)
    label_width = max(label_width, 1)
    bar_width = min(room - label_width - len(_GAP), _MAX_BAR)
    bars = _bars([group.numbers.tokens for group in found.groups], bar_width, with_blocks=with_blocks)
    widths = [_width(column, texts) for column, texts in kept]
    heading = [pad(cut(found.by, label_width), label_width), *([" " * bar_width] if bars else [])]
    heading += [column.heading.rjust(size) for (column, _), size in zip(kept, widths, strict=True)]
    yield quiet(_GAP.join(heading).rstrip())
    for at, label in enumerate(labels):
        parts = [pad(cut(label, label_width), label_width)]
        if bars:
            drawn = bars[at] if at < len(found.groups) else ""
            parts.append((paint(drawn) if drawn else "") + " " * (bar_width - len(drawn)))
        parts += [texts[at].rjust(size) for (_, texts), size in zip(kept, widths, strict=True)]
        yield _GAP.join(parts).rstrip()


def draw_files(
    files: Sequence[FileCount],
    width: int,
    folder: str | None,
    *,
    paint: Paint = str,
    quiet: Paint = str,
    with_blocks: bool = True,
) -> Iterator[str]:
    """The most used files; those below `folder` with relative paths."""
    shown = files[:SHOWN_FILES]
    if not shown:
        return
    names = [one_line(_from(file.path, folder)) for file in shown]
    counts = [[str(file.uses), str(file.read), str(file.written), str(file.edited)] for file in shown]
    headings = ["uses", "read", "written", "edited"]
    while headings and width - sum(len(_GAP) + len(heading) for heading in headings) < _MIN_LABEL + _MIN_BAR + 2 * len(
        _GAP
    ):
        headings.pop()
    widths = [max(len(heading), *(len(row[at]) for row in counts)) for at, heading in enumerate(headings)]
    room = width - sum(len(_GAP) + size for size in widths)
    name_width = max(min(max(len("busiest files"), *map(columns, names)), room - len(_GAP) - _MIN_BAR), 1)
    bar_width = min(room - name_width - len(_GAP), _MAX_BAR)
    bars = _bars([file.uses for file in shown], bar_width, with_blocks=with_blocks)
    heading = [pad(cut("busiest files", name_width), name_width), *([" " * bar_width] if bars else [])]
    yield quiet(
        _GAP.join([*heading, *(text.rjust(size) for text, size in zip(headings, widths, strict=True))]).rstrip()
    )
    for at, name in enumerate(names):
        parts = [pad(_cut_front(name, name_width), name_width)]
        if bars:
            parts.append(paint(bars[at]) + " " * (bar_width - len(bars[at])))
        parts += [text.rjust(size) for text, size in zip(counts[at], widths, strict=False)]
        yield _GAP.join(parts).rstrip()


def label_of(by: By, group: Group) -> str:
    """The label of a row, sanitized, on one line."""
    if group.session is not None:
        return one_line(group.session.title) or _MISSING["session"]
    text = os.path.basename(group.key.rstrip("/")) or group.key if by == "project" else group.key
    return one_line(text) or _MISSING.get(by, "")


def describe_statistics(found: Statistics) -> dict[str, Any]:
    """Statistics as JSON."""
    return {
        "by": found.by,
        "groups": [_described(found.by, group) for group in found.groups],
        "totals": {"sessions": found.total.sessions, **_described_numbers(found.total.numbers)},
        "files": [_described_file(file) for file in found.files[:SHOWN_FILES]],
        "repeated": found.repeated,
        "gaps": [_described_gap(gap) for gap in found.gaps],
    }


def csv_rows(found: Statistics) -> str:
    """The groups as CSV with headings.

    Text that a spreadsheet would take for a formula gets a leading apostrophe; control characters are replaced.
    """
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    about = ["title", "agent"] if found.by == "session" else []
    counted = ["requests", "input", "output", "cached", "cost", "calls", "results", "errors", "error_rate"]
    write([found.by, *about, "sessions", *counted])
    for group in found.groups:
        numbers = group.numbers
        summary = group.session
        names = [] if summary is None else [_escape_formula(summary.title), _escape_formula(summary.agent)]
        rate = numbers.error_rate
        write(
            [
                _escape_formula(group.key),
                *names,
                group.sessions,
                numbers.requests,
                _whole(numbers.input),
                _whole(numbers.output),
                _whole(numbers.cached),
                f"{numbers.cost:.6f}" if numbers.priced else "",
                numbers.calls,
                numbers.results,
                numbers.errors,
                "" if rate is None else f"{rate:.4f}",
            ]
        )
    return out.getvalue()


def _described(by: By, group: Group) -> dict[str, Any]:
    summary = group.session
    about = (
        {}
        if summary is None
        else {"id": summary.id, "title": summary.title, "agent": summary.agent, "path": summary.ref}
    )
    return {by: group.key, **about, "sessions": group.sessions, **_described_numbers(group.numbers)}


def _described_numbers(numbers: Numbers) -> dict[str, Any]:
    rate = numbers.error_rate
    total = estimated_cost(numbers.cost, numbers.unpriced)
    return {
        "requests": numbers.requests,
        "tokens": {
            "input": _whole(numbers.input),
            "output": _whole(numbers.output),
            "cached": _whole(numbers.cached),
        },
        "cost": round(numbers.cost, 6) if numbers.priced else None,
        **cost_fields(total),
        "toolCalls": numbers.calls,
        "toolResults": numbers.results,
        "toolErrors": numbers.errors,
        "errorRate": None if rate is None else round(rate, 6),
    }


def _described_file(file: FileCount) -> dict[str, Any]:
    return {"path": file.path, "uses": file.uses, "read": file.read, "written": file.written, "edited": file.edited}


def _described_gap(gap: Gap) -> dict[str, Any]:
    damage = gap.damage
    if damage is None:
        return {"path": gap.path, "read": False, "reason": gap.reason}
    first = {"line": damage.line, "start": damage.start, "kind": damage.kind}
    return {"path": gap.path, "read": True, "pieces": damage.pieces, "first": first}


def _escape_formula(text: str) -> str:
    shown = clean(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _whole(number: float) -> int:
    return round(number)


def _percent(numbers: Numbers) -> str:
    rate = numbers.error_rate
    if rate is None:
        return ""
    return "0%" if rate == 0 else f"{100 * rate:.1f}%"


def _bars(values: Sequence[float], width: int, *, with_blocks: bool) -> list[str]:
    """One bar per value; empty if there is no room or nothing to show."""
    largest = max(values, default=0)
    if width < _MIN_BAR or not largest:
        return []
    return [bar(value / largest, width, with_blocks=with_blocks) for value in values]


def _width(column: _Column, texts: Sequence[str]) -> int:
    return max(len(column.heading), *map(len, texts))


def _taken(kept: Sequence[tuple[_Column, Sequence[str]]]) -> int:
    return sum(len(_GAP) + _width(column, texts) for column, texts in kept)


def _from(path: str, folder: str | None) -> str:
    if folder is not None and path.startswith(f"{folder.rstrip('/')}/"):
        return path[len(folder.rstrip("/")) + 1 :]
    return path


def _cut_front(text: str, width: int) -> str:
    """Shorten a path to `width` columns by cutting its beginning."""
    if columns(text) <= width:
        return text
    start = 1
    while start < len(text) and columns(text[start:]) > width - 1:
        start += 1
    return "…" + text[start:]
