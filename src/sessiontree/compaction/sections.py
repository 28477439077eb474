"""The sections of a summary: their names and order, and a summary taken apart into them and put together again.

All summaries have these sections, whoever writes them, so that a later one can build on an earlier one part by part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

GOAL = "Goal"
CONSTRAINTS = "Constraints & Preferences"
PROGRESS = "Progress"
DONE = "Done"
IN_PROGRESS = "In Progress"
BLOCKED = "Blocked"
DECISIONS = "Key Decisions"
NEXT = "Next Steps"
CRITICAL = "Critical Context"
TURN = "The Turn in Progress"
EARLIER = "Earlier Summary"
"""What an earlier summary said outside of these sections, word for word."""

LEVELS: dict[str, int] = {
    GOAL: 2,
    CONSTRAINTS: 2,
    PROGRESS: 2,
    DONE: 3,
    IN_PROGRESS: 3,
    BLOCKED: 3,
    DECISIONS: 2,
    NEXT: 2,
    CRITICAL: 2,
    EARLIER: 2,
    TURN: 2,
}
"""Every section in its order, with the level of its heading."""

RULE = "---"
"""Stands before the part of a summary that tells of a turn that was cut."""

_BY_HEADING = {"#" * level + " " + name: name for name, level in LEVELS.items()}
_MARKS = ("- [x] ", "- [ ] ", "- ", "* ")
_NONE = frozenset({"", "(none)", "none"})


def parse_sections(summary: str) -> dict[str, list[str]]:
    """The points of each section of a summary. What stands under no heading of ours is under `EARLIER`, in lines."""
    found: dict[str, list[str]] = {}
    name = EARLIER
    for line in without_file_lists(summary).splitlines():
        heading = _BY_HEADING.get(line.strip())
        if heading is not None:
            name = heading
        elif line.strip() == RULE and name != EARLIER:
            continue
        elif line.startswith("#"):
            name = EARLIER
            found.setdefault(name, []).append(line)
        elif name == EARLIER:
            found.setdefault(name, []).append(line)
        elif line.startswith(("  ", "\t")) and found.get(name):
            found[name][-1] += "\n" + line.strip()
        elif (point := _bare(line)).lower() not in _NONE:
            found.setdefault(name, []).append(point)
    if not any(line.strip() for line in found.get(EARLIER, ())):
        found.pop(EARLIER, None)
    return found


def _bare(line: str) -> str:
    """A point without the mark it begins with."""
    line = line.strip()
    for mark in _MARKS:
        if line.startswith(mark):
            return line.removeprefix(mark).strip()
    number, dot, rest = line.partition(". ")
    return rest.strip() if dot and number.isdecimal() else line


def render_sections(sections: Mapping[str, Iterable[str]]) -> str:
    """A summary out of the points of its sections. A section that says nothing is left out."""
    parts: list[str] = []
    for name, level in LEVELS.items():
        points = list(sections.get(name, ()))
        is_needed = points or (name == PROGRESS and any(sections.get(sub) for sub in (DONE, IN_PROGRESS, BLOCKED)))
        if is_needed:
            lines = points if name == EARLIER else [_pointed(name, at, point) for at, point in enumerate(points, 1)]
            parts.append("\n".join(["#" * level + " " + name, *lines]))
    return "\n\n".join(parts)


def _pointed(name: str, number: int, point: str) -> str:
    mark = {DONE: "- [x] ", IN_PROGRESS: "- [ ] ", NEXT: f"{number}. "}.get(name, "- ")
    first, *more = point.splitlines() or [""]
    return "\n".join([mark + first, *("  " + line for line in more)])


def without_file_lists(summary: str) -> str:
    """A summary without the lists of files behind it, which are kept apart."""
    for name in ("modified-files", "read-files"):
        start, end = summary.rfind(f"<{name}>\n"), summary.rfind(f"</{name}>")
        if 0 <= start < end:
            summary = summary[:start].rstrip() + summary[end + len(name) + 3 :]
    return summary.rstrip()
