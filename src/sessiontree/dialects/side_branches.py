"""Side branches: lanes and sub-agents write to the tree without moving the session's current entry.

A side branch starts with a `custom` entry of certain types. Entries in one move the leaf only if the session is in that
branch already, because the user switched to it (docs/decisions/0023-side-branches.md).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from sessiontree.dialects.contract import IndexedLines

SUB_AGENT = "sessiontree.task"
STARTS = frozenset({"sessiontree.explore.plan", "sessiontree.explore.lane", SUB_AGENT})
"""The `customType`s that side branches start with."""

OF_BRANCH = "ofBranch"
"""The field of a `leaf` entry that moves only the writer of its branch, not the session."""

_UNKNOWN, _NONE = -2, -1


class _Start(Struct):
    custom_type: str = msgspec.field(default="", name="customType")


_decode = msgspec.json.Decoder(_Start).decode


def find_session_leaf(lines: IndexedLines, moves: Iterator[tuple[int, int | None]]) -> int | None:
    """Find the current entry. `moves` are the entries that would move the leaf, last one first, with their targets."""
    sides = SideBranches(lines)
    last: dict[int, int] = {}
    """By the start of a side branch: its last entry since the last certain move of the session."""
    leaf: int | None = None
    for node, to in moves:
        start = sides.start_of(to)
        if start is None or to is None or is_move_of_session(lines, node):
            leaf = to
            break
        last.setdefault(start, to)
    # An entry in a side branch leaves the branches nested in it, so the outermost branch decides.
    return next((last[start] for start in reversed([*sides.starts_to(leaf)]) if start in last), leaf)


def is_move_of_session(lines: IndexedLines, node: int) -> bool:
    """Whether an entry moves the session, not only the writer of a branch."""
    return lines.types[node] == "leaf" and lines.fields([node])[0].get(OF_BRANCH) is not True


def is_start(custom_type: object) -> bool:
    """Whether a `custom` entry of this type starts a side branch, if messages come before it."""
    return isinstance(custom_type, str) and custom_type in STARTS


class SideBranches:
    """The side branches of a session, found on demand. Valid until entries are added."""

    def __init__(self, lines: IndexedLines) -> None:
        self._lines = lines
        self._customs = frozenset(lines.own_customs)
        self._nearest = array("q", [_UNKNOWN]) * (len(lines.types) if self._customs else 0)
        """By node: the start of the innermost side branch it is in."""
        self._outer: dict[int, int | None] = {}

    def start_of(self, node: int | None) -> int | None:
        """The start of the innermost side branch that a node is in; None if it is in none."""
        if not self._customs or node is None:
            return None
        start = self._nearest[node]
        if start == _UNKNOWN:
            start = self._find_start(node)
        return None if start == _NONE else start

    def _find_start(self, node: int) -> int:
        parents, nearest = self._lines.tree.parents(), self._nearest
        trail: list[int] = []
        above: int | None = node
        while above is not None and nearest[above] == _UNKNOWN:
            trail.append(above)
            above = parents[above]
        start = _NONE if above is None else nearest[above]
        trail.reverse()
        starts = self._starts_on(trail)
        for step in trail:
            if step in starts:
                self._outer[step] = None if start == _NONE else start
                start = step
            nearest[step] = start
        return start

    def starts_to(self, node: int | None) -> Iterator[int]:
        """The starts of the side branches that a node is in, innermost first."""
        start = self.start_of(node)
        while start is not None:
            yield start
            start = self._outer[start]

    def is_outside(self, node: int | None, leaf: int | None) -> bool:
        """Whether a node is in a side branch that `leaf` is not in."""
        start = self.start_of(node)
        return start is not None and start not in self.starts_to(leaf)

    def _starts_on(self, nodes: list[int]) -> set[int]:
        customs = [node for node in nodes if node in self._customs]
        raws = self._lines.iter_raw(customs)
        return {node for node, raw in zip(customs, raws, strict=True) if self._is_start(node, raw)}

    def _is_start(self, node: int, raw: bytes) -> bool:
        try:
            kind: object = _decode(raw).custom_type
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            kind = self._lines.fields([node])[0].get("customType")
        return is_start(kind) and (kind != SUB_AGENT or self._has_message_before(node))

    def _has_message_before(self, node: int) -> bool:
        """Whether a message comes before the node; if not, the whole session is a sub-agent's."""
        parents, types = self._lines.tree.parents(), self._lines.types
        above = parents[node]
        while above is not None and types[above] != "message":
            above = parents[above]
        return above is not None
