"""Side branches: what lanes and sub-agents write is in the tree, and the session does not stand there.

A side branch begins with a `custom` entry of certain types. What is written in one moves the leaf only if the session
stands in it already, because someone went there (docs/decisions/0023-side-branches.md).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from sessiontree.dialects.contract import IndexedLines

SUB_AGENT = "sessiontree.task"
STARTS = frozenset({"sessiontree.explore.plan", "sessiontree.explore.lane", SUB_AGENT})
"""The `customType`s that side branches begin with."""

OF_BRANCH = "ofBranch"
"""The field of a `leaf` entry that says: only who writes this branch moved, and not the session."""

_UNKNOWN, _NONE = -2, -1


class _Start(Struct):
    custom_type: str = msgspec.field(default="", name="customType")


_decode = msgspec.json.Decoder(_Start).decode


def find_session_leaf(lines: IndexedLines, moves: Iterator[tuple[int, int | None]]) -> int | None:
    """Where a session stands, given the entries that would move the leaf, the last one first, and where each leads."""
    sides = Sides(lines)
    last: dict[int, int] = {}
    """By the start of a side branch: the last of what was said there since the session was moved for sure."""
    leaf: int | None = None
    for node, to in moves:
        start = sides.start_of(to)
        if start is None or to is None or is_move_of_session(lines, node):
            leaf = to
            break
        last.setdefault(start, to)
    # Who says something in a side branch has left those inside of it, so the outermost one has the last word.
    return next((last[start] for start in reversed([*sides.starts_to(leaf)]) if start in last), leaf)


def is_move_of_session(lines: IndexedLines, node: int) -> bool:
    """Whether an entry says that the session stands elsewhere from there on, and not only who writes a branch."""
    return lines.types[node] == "leaf" and lines.fields([node])[0].get(OF_BRANCH) is not True


def is_start(custom_type: object) -> bool:
    """Whether a side branch begins with a `custom` entry of a type, if anything was said before it."""
    return isinstance(custom_type, str) and custom_type in STARTS


class Sides:
    """The side branches of a session, as far as they were asked for. Good as long as no entries are added."""

    def __init__(self, lines: IndexedLines) -> None:
        self._lines = lines
        self._customs = frozenset(lines.own_customs)
        self._nearest = array("q", [_UNKNOWN]) * (len(lines.types) if self._customs else 0)
        """By node: where the innermost side branch begins that it is in."""
        self._outer: dict[int, int | None] = {}

    def start_of(self, node: int | None) -> int | None:
        """Where the innermost side branch begins that a node is in, or that begins with it; None if it is in none."""
        if not self._customs or node is None:
            return None
        start = self._nearest[node]
        if start == _UNKNOWN:
            start = self._find_start(node)
        return None if start == _NONE else start

    def _find_start(self, node: int) -> int:
        parents, nearest = self._lines.tree.parents(), self._nearest
        way: list[int] = []
        above: int | None = node
        while above is not None and nearest[above] == _UNKNOWN:
            way.append(above)
            above = parents[above]
        start = _NONE if above is None else nearest[above]
        way.reverse()
        starts = self._starts_on(way)
        for one in way:
            if one in starts:
                self._outer[one] = None if start == _NONE else start
                start = one
            nearest[one] = start
        return start

    def starts_to(self, node: int | None) -> Iterator[int]:
        """Where the side branches begin that a node is in, the innermost one first."""
        start = self.start_of(node)
        while start is not None:
            yield start
            start = self._outer[start]

    def is_beside(self, node: int | None, leaf: int | None) -> bool:
        """Whether a node is in a side branch in which a session that stands at `leaf` does not stand."""
        start = self.start_of(node)
        return start is not None and start not in self.starts_to(leaf)

    def _starts_on(self, way: list[int]) -> set[int]:
        customs = [node for node in way if node in self._customs]
        raws = self._lines.iter_raw(customs)
        return {node for node, raw in zip(customs, raws, strict=True) if self._is_start(node, raw)}

    def _is_start(self, node: int, raw: bytes) -> bool:
        try:
            kind: object = _decode(raw).custom_type
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            kind = self._lines.fields([node])[0].get("customType")
        return is_start(kind) and (kind != SUB_AGENT or self._has_words_before(node))

    def _has_words_before(self, node: int) -> bool:
        """Whether anything was said before: if not, the whole session is the sub-agent's, and stands at its end."""
        parents, types = self._lines.tree.parents(), self._lines.types
        above = parents[node]
        while above is not None and types[above] != "message":
            above = parents[above]
        return above is not None
