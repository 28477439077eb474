"""Sections of a summary: names, order, parsing and rendering.

All summaries have these sections, from every summarizer, so that a later one can build on an earlier one.
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
"""Text of an earlier summary outside of these sections, unchanged."""

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
"""Sections in order, with the level of their headings."""

RULE = "---"
"""Separates the part of a summary about a split turn."""

_SHORT = 100
"""Largest number of characters of a short summary."""

_BY_HEADING = {"#" * level + " " + name: name for name, level in LEVELS.items()}
_MARKS = ("- [x] ", "- [ ] ", "- ", "* ")
_NONE = frozenset({"", "(none)", "none"})


def parse_sections(summary: str) -> dict[str, list[str]]:
    """Parse a summary into the points of its sections. Text under no known heading goes to `EARLIER`, line by line."""
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
        elif (point := _strip_marker(line)).lower() not in _NONE:
            found.setdefault(name, []).append(point)
    if not any(line.strip() for line in found.get(EARLIER, ())):
        found.pop(EARLIER, None)
    return found


def _strip_marker(line: str) -> str:
    """Strip the list marker of a point."""
    line = line.strip()
    for mark in _MARKS:
        if line.startswith(mark):
            return line.removeprefix(mark).strip()
    number, dot, rest = line.partition(". ")
    return rest.strip() if dot and number.isdecimal() else line


def render_sections(sections: Mapping[str, Iterable[str]]) -> str:
    """Render a summary from the points of its sections; empty sections are left out."""
    parts: list[str] = []
    for name, level in LEVELS.items():
        points = list(sections.get(name, ()))
        is_needed = points or (name == PROGRESS and any(sections.get(sub) for sub in (DONE, IN_PROGRESS, BLOCKED)))
        if is_needed:
            lines = (
                points if name == EARLIER else [_render_point(name, at, point) for at, point in enumerate(points, 1)]
            )
            parts.append("\n".join(["#" * level + " " + name, *lines]))
    return "\n\n".join(parts)


def _render_point(name: str, number: int, point: str) -> str:
    mark = {DONE: "- [x] ", IN_PROGRESS: "- [ ] ", NEXT: f"{number}. "}.get(name, "- ")
    first, *more = point.splitlines() or [""]
    return "\n".join([mark + first, *("  " + line for line in more)])


def short_summary(summary: str) -> str:
    """One line about a summary: the current task, which is the last point of the goal, else the first line of text."""
    found = parse_sections(summary)
    points = [point for name, points in found.items() if name != EARLIER for point in points]
    lines = [line.strip() for line in found.get(EARLIER, ()) if line.strip() and not line.startswith(("#", RULE))]
    line = " ".join(next(iter([*found.get(GOAL, ())[-1:], *lines, *points]), "").split())
    return line if len(line) <= _SHORT else f"{line[: _SHORT - 1].rstrip()}…"


def without_file_lists(summary: str) -> str:
    """Remove the file lists at the end of a summary, which are stored separately."""
    for name in ("modified-files", "read-files"):
        start, end = summary.rfind(f"<{name}>\n"), summary.rfind(f"</{name}>")
        if 0 <= start < end:
            summary = summary[:start].rstrip() + summary[end + len(name) + 3 :]
    return summary.rstrip()
