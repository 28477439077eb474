"""Two branches in a terminal: side by side, or one below the other if there is no room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct

from sessiontree.branches.diff import Diff, SideFacts
from sessiontree.branches.file_conflicts import FileConflict
from sessiontree.views.listing import amount
from sessiontree.views.text import clean, columns, cut, one_line, pad, plural, short_entry_id

_NARROWEST = 36
"""Minimum width of a side for side-by-side view."""

_BETWEEN = " │ "
_MAX_POINTS = 12
_MAX_LINES = 40

Paint = Callable[[str], str]


class _Part(Struct, frozen=True):
    """One section with the lines of both sides."""

    title: str
    one: Sequence[str]
    other: Sequence[str]
    is_list: bool = False


def draw_diff(found: Diff, width: int, bold: Paint, dim: Paint) -> Iterator[str]:
    """Render the comparison; no line is wider than `width` columns."""
    yield from _heading(found, width)
    if found.is_one_branch:
        return
    side = (width - len(_BETWEEN)) // 2
    parts = _parts(found)
    if side >= _NARROWEST:
        names = [pad(cut(_name(facts), side), side) for facts in (found.one, found.other)]
        yield dim(_BETWEEN).join(map(bold, names)).rstrip()
        for part in parts:
            yield from _side_by_side(part, side, bold, dim)
    else:
        for facts, at in ((found.one, 0), (found.other, 1)):
            yield bold(cut(_name(facts), width))
            for part in parts:
                yield from _below(part, (part.one, part.other)[at], width, dim)
    if found.conflicts:
        yield ""
        yield bold(cut("changed differently on both sides", width))
        yield from (cut(f"  ! {one_line(conflict.path)}", width) for conflict in found.conflicts)


def _heading(found: Diff, width: int) -> Iterator[str]:
    if found.ancestor is None:
        yield "the branches have no entries in common"
    else:
        shared = plural(found.shared, "entry", "entries")
        last, continuation = short_entry_id(found.ancestor, found.one.id_prefixes), found.continuation
        if found.is_one_branch:
            yield cut(f"both branches end at {last} ({shared}); there is nothing to compare", width)
        elif continuation is not None:
            end = short_entry_id(continuation.leaf or "", continuation.id_prefixes)
            yield cut(f"the branch of {end} continues after {last} ({shared} in common)", width)
        else:
            yield cut(f"branches diverge after {last} ({shared} in common)", width)
    yield ""


def _name(facts: SideFacts) -> str:
    label = f" [{one_line(facts.name)}]" if facts.name else ""
    return f"{short_entry_id(facts.leaf or '', facts.id_prefixes)}{label}"


def _parts(found: Diff) -> list[_Part]:
    both = (found.one, found.other)
    sections: list[tuple[str, list[list[str]], bool]] = [
        ("asked", [_points(facts.asked) for facts in both], True),
        ("answered", [_points(facts.answered[:-1]) for facts in both], True),
        ("tools", [_tools(facts) for facts in both], False),
        ("read", [_paths(facts.files.read) for facts in both], False),
        ("changed", [_paths(facts.files.modified) for facts in both], False),
        ("used", [_used(facts) for facts in both], False),
        ("last message", [_text(facts.final) for facts in both], False),
    ]
    return [_Part(title, one, other, is_list) for title, (one, other), is_list in sections if one or other]


def _points(texts: Sequence[str]) -> list[str]:
    shown = [one_line(text) for text in texts[:_MAX_POINTS]]
    more = len(texts) - len(shown)
    return [*shown, f"({more} more)"] if more else shown


def _tools(facts: SideFacts) -> list[str]:
    if not facts.tools:
        return []
    failed = f" ({facts.failed} failed)" if facts.failed else ""
    return [", ".join(f"{one_line(name)} {count}" for name, count in facts.tools.items()) + failed]


def _paths(paths: Sequence[str]) -> list[str]:
    return [one_line(path) for path in paths]


def _used(facts: SideFacts) -> list[str]:
    used = facts.used
    cost = f", ${used.cost:,.4f}" if used.cost else ""
    return [
        f"{plural(facts.messages, 'message')}, {amount(facts.context_tokens)} tokens in its context",
        f"{plural(used.requests, 'request')}: {amount(used.input + used.cached + used.cache_written)} in, "
        f"{amount(used.output)} out{cost}",
    ]


def _text(text: str) -> list[str]:
    return clean(text).splitlines()


def _side_by_side(part: _Part, side: int, bold: Paint, dim: Paint) -> Iterator[str]:
    yield bold(part.title)
    left, right = (_fitted(part, lines, side) for lines in (part.one, part.other))
    for ours, theirs in zip_longest(left, right, fillvalue=""):
        yield f"{pad(ours, side)}{dim(_BETWEEN)}{theirs}".rstrip()


def _below(part: _Part, lines: Sequence[str], width: int, dim: Paint) -> Iterator[str]:
    if lines:
        yield dim(part.title)
        yield from _fitted(part, lines, width)
        yield ""


def _fitted(part: _Part, lines: Sequence[str], width: int) -> list[str]:
    """Wrap and indent lines; beyond a limit they are only counted."""
    fitted: list[str] = []
    for line in lines:
        first, rest = ("  • ", "    ") if part.is_list else ("  ", "  ")
        wrapped = wrap(line, width - columns(first))
        if part.is_list:
            wrapped = [*wrapped[:1], *([cut(" ".join(wrapped[1:]), width - columns(rest))] if wrapped[1:] else [])]
        fitted += [(rest if at else first) + piece for at, piece in enumerate(wrapped)]
    if len(fitted) > _MAX_LINES:
        fitted = [*fitted[:_MAX_LINES], f"  ({plural(len(fitted) - _MAX_LINES, 'more line')})"]
    return fitted


def wrap(line: str, width: int) -> list[str]:
    """Wrap a sanitized line at spaces, and inside a word only if necessary."""
    pieces: list[str] = []
    piece, used, blank = "", 0, -1
    for character in line:
        size = columns(character)
        if used + size > max(width, 2):
            if character == " ":
                pieces.append(piece)
                piece, used, blank = "", 0, -1
                continue
            kept, rest = (piece[:blank], piece[blank + 1 :]) if blank > 0 else (piece, "")
            pieces.append(kept.rstrip())
            piece, used, blank = rest, columns(rest), -1
        if character == " ":
            blank = len(piece)
        piece += character
        used += size
    return [*pieces, piece.rstrip()] if piece.strip() or not pieces else pieces


def describe_diff(found: Diff) -> dict[str, Any]:
    return {
        "ancestor": found.ancestor,
        "shared": found.shared,
        "sides": [_described(found.one), _described(found.other)],
        "conflicts": [_described_conflict(conflict) for conflict in found.conflicts],
    }


def _described(facts: SideFacts) -> dict[str, Any]:
    return {
        "session": facts.session,
        "dialect": facts.dialect,
        "leaf": facts.leaf,
        "name": facts.name,
        "entries": facts.entries,
        "messages": facts.messages,
        "asked": list(facts.asked),
        "answered": list(facts.answered),
        "final": facts.final,
        "tools": facts.tools,
        "failed": facts.failed,
        "readFiles": list(facts.files.read),
        "modifiedFiles": list(facts.files.modified),
        "contextTokens": facts.context_tokens,
        "used": facts.used,
        "time": facts.last_time,
    }


def _described_conflict(conflict: FileConflict) -> dict[str, Any]:
    return {"path": conflict.path, "calls": [list(conflict.ours), list(conflict.theirs)]}
