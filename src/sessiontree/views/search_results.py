"""Search results as text and as JSON: sessions, best first, each with its hits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from sessiontree.library.summary import Summary
from sessiontree.search import Hit, Part
from sessiontree.views.listing import age, iso
from sessiontree.views.text import clean, columns, cut, one_line, short_entry_id

Mark = Callable[[str], str]
"""Highlights a sanitized text."""

BRANCHES = {"active": "", "abandoned": "on an abandoned branch", "compacted": "before a compaction"}
"""Notes on hits that the model no longer sees."""

_KINDS = {"input": "call", "output": "result"}
_SEPARATOR = " · "
_WIDEST_PROJECT, _NARROWEST_TITLE, _NARROWEST_PLACE = 24, 16, 12


def grouped(hits: Sequence[Hit]) -> Iterator[tuple[Summary, list[Hit]]]:
    """Hits grouped by session; they are already in that order."""
    for _, found in groupby(hits, key=lambda hit: hit.session.ref):
        group = list(found)
        yield group[0].session, group


def draw_session(summary: Summary, width: int, now: float, id: str) -> tuple[str, str]:
    """Title and facts of a session, which together fit on one line."""
    project = cut(one_line(os.path.basename(summary.cwd)), _WIDEST_PROJECT)
    facts = {"agent": one_line(summary.agent), "project": project, "age": age(summary.recency, now), "id": one_line(id)}
    for least_important in ("project", "agent", "age"):
        if columns(_joined(facts.values())) > width - _NARROWEST_TITLE:
            del facts[least_important]
    shown = cut(_joined(facts.values()), max(width - _NARROWEST_TITLE, 8))
    title = one_line(summary.title) or "(no title)"
    title = ("⚙ " if summary.kind == "subagent" else "") + title
    return cut(title, max(width - columns(shown) - 2, 2)), shown


def draw_place(hit: Hit, now: float, width: int = 100) -> tuple[str, str]:
    """Kind and position of a hit, and notes: no longer visible to the model, failed.

    Together, with a separator, they fit on one line.
    """
    kind = _KINDS.get(hit.kind, hit.kind)
    tool = f"{one_line(hit.tool)} " if hit.tool and hit.kind in _KINDS else ""
    facts = [tool + kind, short_entry_id(hit.entry), position(hit), age(hit.time, now)]
    partial = "only some of the words" if hit.is_partial else ""
    remarks = [BRANCHES[hit.branch], "failed" if hit.is_error else "", partial]
    notes = cut(_joined(remarks), max(width - _NARROWEST_PLACE, 8))
    room = width - columns(notes) - (len(_SEPARATOR) if notes else 0)
    return cut(_joined(facts), max(room, 2)), notes


def _joined(facts: Iterable[str]) -> str:
    return _SEPARATOR.join(filter(None, facts))


def position(hit: Hit) -> str:
    """Position in the file, as a percentage."""
    return f"{100 * hit.offset // max(hit.session.size, 1)}%"


def draw_snippet(parts: Sequence[Part], width: int, mark: Mark) -> str:
    """Render a snippet on one line with hits highlighted, scrolled so that the first hit is visible."""
    pieces = [(clean(part.text).replace("\n", " "), part.is_hit) for part in parts]
    characters = [(character, is_hit) for text, is_hit in pieces for character in text]
    first = next((at for at, (_, is_hit) in enumerate(characters) if is_hit), 0)
    extra = 0 if "\x1b" in mark(" ") else columns(mark(" ")) - 1  # color codes take no columns
    start = _start(characters, first, width)
    shown, used = [("…", False)] if start else [], 1 if start else 0
    for at in range(start, len(characters)):
        character, is_hit = characters[at]
        wide = columns(character) + (extra if is_hit and not (shown and shown[-1][1]) else 0)
        is_last = at == len(characters) - 1
        if used + wide > width - (0 if is_last else 1):
            shown.append(("…", False))
            break
        shown.append((character, is_hit))
        used += wide
    runs = (
        (is_hit, "".join(character for character, _ in run))
        for is_hit, run in groupby(shown, key=lambda character: character[1])
    )
    return "".join(mark(text) if is_hit else text for is_hit, text in runs).strip()


def _start(characters: Sequence[tuple[str, bool]], first: int, room: int) -> int:
    """First character to show: 0 unless the first hit would be too far to the right."""
    if columns("".join(character for character, _ in characters)) <= room:
        return 0
    before, at = 0, first
    while at > 0 and before + columns(characters[at - 1][0]) <= room // 3:
        at -= 1
        before += columns(characters[at][0])
    return at


def describe_hit(hit: Hit) -> dict[str, Any]:
    """A hit as JSON. Ranges in a snippet are half-open and count code points."""
    summary = hit.session
    return {
        "session": {
            "id": summary.id,
            "path": summary.ref,
            "agent": summary.agent,
            "title": summary.title,
            "project": summary.cwd,
            "active": iso(summary.active),
            "kind": summary.kind,
            "parent": summary.parent,
        },
        "entry": hit.entry or None,
        "kind": hit.kind,
        "role": hit.role,
        "tool": hit.tool or None,
        "model": hit.model or None,
        "time": iso(hit.time),
        "isError": hit.is_error,
        "branch": hit.branch,
        "isPartial": hit.is_partial,
        "position": {"offset": hit.offset, "size": summary.size},
        "snippet": describe_snippet(hit.snippet),
        "score": hit.score,
        "command": list(hit.command),
    }


def describe_snippet(parts: Sequence[Part]) -> dict[str, Any]:
    ranges: list[tuple[int, int]] = []
    at = 0
    for part in parts:
        if part.is_hit:
            ranges.append((at, at + len(part.text)))
        at += len(part.text)
    return {"text": "".join(part.text for part in parts), "ranges": ranges}
