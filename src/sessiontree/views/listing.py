"""The table of sessions, with columns that fit the terminal.

If the width is not enough, the least important columns are dropped; nothing is wrapped. A `~` marks estimated numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sessiontree.core.ids import IdPrefixes
from sessiontree.core.usage import CostTotal, UnpricedUsage, recorded_cost, unpriced_totals
from sessiontree.library.summary import Summary
from sessiontree.library.threads import ThreadMember
from sessiontree.views.text import columns, cut, fitted, one_line, pad

if TYPE_CHECKING:
    from sessiontree.archive.tags import SessionTags

MARKS = {"ok": " ", "unchecked": "~", "damaged": "!", "empty": "-", "draft": "?"}
"""Prefix of a title."""

_GAP = "  "
_MIN_TITLE, _MAX_TITLE, _MAX_WORD, _MAX_ID, _MAX_TAGS = 28, 90, 20, 20, 24
_NOTHING = frozenset({"", "-"})
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_AGES = ((365 * _DAY, "y"), (30 * _DAY, "mo"), (_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m"))


class Column(Struct, frozen=True):
    """A column: heading, content, and drop order (the highest first)."""

    heading: str
    show: Callable[[Summary], str]
    drop_order: int
    right: bool = False


def age(milliseconds: int | None, now: float) -> str:
    """How long ago, in the largest unit: `3m`, `2d`, `1mo`."""
    if milliseconds is None:
        return ""
    passed = max(now - milliseconds / 1000, 0)
    for seconds, unit in _AGES:
        if passed >= seconds:
            return f"{int(passed // seconds)}{unit}"
    return "now"


def amount(number: float) -> str:
    """A count in at most four characters: `950`, `12k`, `3.4M`."""
    if number < 1e3:
        return str(number) if isinstance(number, int) else f"{number:.0f}"
    size, unit = (1e3, "k") if number < 1e6 else (1e6, "M") if number < 1e9 else (1e9, "G")
    shown = number / size
    return f"{shown:.1f}{unit}" if shown < 9.95 else f"{shown:.0f}{unit}"


def session_cost(summary: Summary) -> CostTotal:
    """The cost of a session, with an estimate for requests without a recorded one."""
    return _estimated_cost(summary.cost, summary.unpriced)


def dollars(cost: str) -> str:
    """Add the dollar sign to a text of `CostTotal.text`: `$0.12`, `~$0.09`."""
    return f"{cost[0]}${cost[1:]}" if cost[0] in "~<>" else f"${cost}"


def _estimated_cost(recorded: float, unpriced: Iterable[UnpricedUsage]) -> CostTotal:
    from sessiontree.models.cost_estimate import cost_total  # the prices are read only if a cost is shown

    return cost_total(recorded, unpriced)


def _tags_text(tags: SessionTags | None) -> str:
    """A pin and the tags of a session."""
    if tags is None:
        return ""
    return cut(" ".join([*(["⚑"] if tags.pinned else []), *map(one_line, tags.tags)]), _MAX_TAGS)


def listing_columns(
    now: float, ids: dict[str, str], tags: Mapping[str, SessionTags], *, with_project: bool
) -> list[Column]:
    """The columns after the title, in order. `?` is unknown, `-` is nothing to know."""

    total_text = functools.cache(lambda cost, unpriced: _estimated_cost(cost, unpriced).text())  # many rows are alike

    def cost_text(summary: Summary) -> str:
        if not summary.messages:
            return "-"
        text = total_text(summary.cost, summary.unpriced)
        return f"~{text}" if not summary.exact and text[0].isdecimal() else text

    def counted(summary: Summary, number: float) -> str:
        if not number:
            return "?" if summary.messages or not summary.exact else "-"
        return amount(number) if summary.exact else f"~{amount(number)}"

    def messages(summary: Summary) -> str:
        return "0" if summary.exact and not summary.messages else counted(summary, summary.messages)

    word = functools.cache(lambda text: cut(one_line(text), _MAX_WORD))  # few distinct words, many rows
    found = [
        Column("age", lambda summary: age(summary.recency, now), 0, right=True),
        Column("msgs", messages, 1, right=True),
        Column("br", lambda summary: amount(summary.branches) if summary.exact else "?", 7, right=True),
        Column("size", lambda summary: amount(summary.size), 5, right=True),
        Column("agent", lambda summary: word(summary.agent), 3),
        Column("model", lambda summary: word(summary.model or ("?" if summary.messages else "-")), 9),
        Column("in", lambda summary: counted(summary, summary.tokens_in + summary.tokens_cached), 8, right=True),
        Column("out", lambda summary: counted(summary, summary.tokens_out), 8, right=True),
        Column(
            "cost",
            cost_text,
            6,
            right=True,
        ),
        Column("tags", lambda summary: _tags_text(tags.get(summary.ref)), 4),
        Column("id", lambda summary: cut(_clean(ids.get(summary.ref, summary.id)), _MAX_ID), 2),
    ]
    if with_project:
        found.insert(0, Column("project", lambda summary: word(summary.cwd.rpartition("/")[2] or "?"), 4))
    return found


def draw_listing(
    threads: Sequence[ThreadMember],
    width: int,
    now: float,
    ids: dict[str, str],
    *,
    with_project: bool,
    tags: Mapping[str, SessionTags] = MappingProxyType({}),
) -> Iterator[str]:
    """Render the table with its headings. `tags` are by reference."""
    titles = [_title(member) for member in threads]
    longest = _longest(titles)
    available = listing_columns(now, ids, tags, with_project=with_project)
    kept = _fitting(threads, min(longest, _MIN_TITLE), width, available)
    room = width - sum(len(_GAP) + cells.width for cells in kept)
    room = max(min(room, longest, _MAX_TITLE), 5)
    shown = [[fitted("  title", room), *map(fitted, titles, repeat(room))]]
    shown += [cells.texts for cells in kept]
    for row in zip(*shown, strict=True):
        yield _GAP.join(row).rstrip()


def _longest(titles: Sequence[str]) -> int:
    """The width of the longest title, up to the maximum."""
    longest = len("  title")
    for title in titles:
        if longest >= _MAX_TITLE:
            break
        if 2 * len(title) > longest:
            longest = max(longest, columns(title))
    return longest


class _Cells(Struct, frozen=True):
    """A rendered column with its heading; all cells have the same width."""

    texts: list[str]
    width: int
    drop_order: int


def _fitting(threads: Sequence[ThreadMember], wanted: int, width: int, available: Sequence[Column]) -> list[_Cells]:
    """The columns that leave enough width for the title; empty ones are dropped."""
    # The columns to keep first come first.
    order = sorted(range(len(available)), key=lambda at: (available[at].drop_order, -at))
    kept: dict[int, _Cells] = {}
    for at in order:
        cells = _cells(available[at], threads)
        if cells is None:
            continue
        width -= len(_GAP) + cells.width
        if width < wanted:
            break
        kept[at] = cells
    return [kept[at] for at in sorted(kept)]


def _cells(column: Column, threads: Sequence[ThreadMember]) -> _Cells | None:
    texts = [column.heading, *map(column.show, [member.summary for member in threads])]
    if _NOTHING.issuperset(texts[1:]):
        return None
    if "".join(texts).isascii():
        width = max(map(len, texts))
        filled = list(map(str.rjust if column.right else str.ljust, texts, repeat(width)))
    else:
        width = max(map(columns, set(texts)))
        fill = functools.cache(lambda text: _filled(text, width, right=column.right))
        filled = list(map(fill, texts))
    return _Cells(filled, width, column.drop_order)


def _filled(text: str, width: int, *, right: bool) -> str:
    return " " * (width - columns(text)) + text if right else pad(text, width)


def _title(member: ThreadMember) -> str:
    summary = member.summary
    text = _clean(summary.title) or {"empty": "(empty)", "draft": "(draft)"}.get(summary.health, "(no title)")
    branch = "  " * (member.depth - 1) + ("└ " if member.depth else "")
    kind = "⚙ " if summary.kind == "subagent" else "⇄ " if member.relation == "copy" else ""
    return f"{MARKS[summary.health]} {branch}{kind}{text}"


def _clean(text: str) -> str:
    """Sanitize; checking whether that is necessary is faster."""
    return text if text.isprintable() else one_line(text)


def short_ids(sessions: Sequence[Summary]) -> dict[str, str]:
    """Map paths to the shortest unique prefix of their id, at least eight characters."""
    prefixes = IdPrefixes({summary.id for summary in sessions})
    return {summary.ref: prefixes.shortest(summary.id) for summary in sessions}


def describe_summary(summary: Summary) -> dict[str, Any]:
    """A session as JSON: the fields of `Summary` in camel case, times in ISO format."""
    return {
        "path": summary.ref,
        "agent": summary.agent,
        "id": summary.id,
        "title": summary.title,
        "named": summary.named,
        "cwd": summary.cwd,
        "created": iso(summary.created),
        "active": iso(summary.active),
        "messages": summary.messages,
        "branches": summary.branches,
        "exact": summary.exact,
        "size": summary.size,
        "model": summary.model,
        "tokens": {"input": summary.tokens_in, "output": summary.tokens_out, "cached": summary.tokens_cached},
        "cost": recorded_cost(summary.cost),
        **cost_fields(session_cost(summary)),
        "health": summary.health,
        "kind": summary.kind,
        "parent": summary.parent,
        "forkedFrom": summary.forked_from,
        "firstPrompt": summary.first_prompt,
        "lastPrompt": summary.last_prompt,
        "description": summary.description or None,
        "gitBranch": summary.git_branch,
        "tags": list(summary.tags),
        "agentSetting": summary.agent_setting,
        "pullRequests": list(summary.pull_requests),
    }


def cost_fields(total: CostTotal) -> dict[str, Any]:
    """A cost as JSON: with an estimate of what the agent did not record, and where it comes from."""
    dollars = None if total.dollars is None else round(total.dollars, 6)
    return {"estimatedCost": dollars, "costKind": total.kind}


def iso(milliseconds: int | None) -> str | None:
    """Format a time as `2026-02-16T10:20:30.000Z`; None if it is missing or out of range."""
    from datetime import UTC, datetime

    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")[:23] + "Z"
    except (ValueError, OverflowError, OSError):
        return None


def totals(sessions: Sequence[Summary]) -> dict[str, Any]:
    """Totals over sessions; exact only if all of their numbers are."""
    cost = sum(summary.cost for summary in sessions)
    unpriced = unpriced_totals(used for summary in sessions for used in summary.unpriced)
    return {
        "sessions": len(sessions),
        "size": sum(summary.size for summary in sessions),
        "messages": sum(summary.messages for summary in sessions),
        "tokens": {
            "input": sum(summary.tokens_in for summary in sessions),
            "output": sum(summary.tokens_out for summary in sessions),
            "cached": sum(summary.tokens_cached for summary in sessions),
        },
        "cost": recorded_cost(cost),
        **cost_fields(_estimated_cost(cost, unpriced)),
        "exact": all(summary.exact for summary in sessions),
    }


def describe_thread(member: ThreadMember, tags: SessionTags | None = None) -> dict[str, Any]:
    """A session with its depth and relation (`fork`, `copy`, `subagent` or None) in a thread."""
    return {
        **describe_summary(member.summary),
        "tags": list(member.summary.tags if tags is None else tags.tags),
        "pinned": tags is not None and tags.pinned,
        "depth": member.depth,
        "relation": member.relation or None,
    }
