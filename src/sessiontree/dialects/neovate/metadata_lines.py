"""Lines of our own: entries that Neovate has no place for, kept beside the tree, where it does not look.

    {"type":"sessiontree","sessionId":…,"timestamp":…,"uuid":…,"id":…,"parent":…,"after":…,"entry":{"type":…,…}}

Neovate passes over types it does not know. `parent` is the message line that the entry stands behind and `after` the
aside between them, if there is one; a message that stands behind an aside says so in its passthrough data, under the
same name. `uuid` is that of the last message line before: Neovate takes the uuid of the last line of the file, whatever
its type, for the parent of some of its messages, and would start a new root behind a line that has none.

A *split* is a line of ours that stands between an answer and its results, where a branch begins among them: all results
of an answer are one line, and nothing can follow half a line. It tells the items of the turn up to there, and the line
of the results tells the rest:

    {"type":"sessiontree",…,"parent":…,"after":…,"entry":{"type":"sessiontree:split","of":…,"at":…,"lines":[…]}}

`of` is the line of results, `at` how many items the split tells and `lines` those of them that are lines of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.records import MESSAGE, own_entry, string
from sessiontree.dialects.passthrough import passthrough_of

SPLIT = "sessiontree:split"
"""The type of the entry on a line of ours that is a split."""

MARKS = "neovate"
"""The part of passthrough data that says how a line of Neovate is to be read."""


class Behind(str):
    """The uuid of a line (empty before the first) as the place behind one of its asides, or some items of a turn.

    A encoder says of an aside that it has the id of its parent, and of a result that it has that of the line of all
    results. What follows is given that id as its own parent, so the id itself remembers which of them was meant.
    """

    __slots__ = ("aside", "place", "trace")
    aside: str
    """Empty when no aside is meant."""
    trace: Trace | None
    place: int

    def __new__(cls, uuid: str, aside: str, trace: Trace | None = None, place: int = 0) -> Behind:
        made = super().__new__(cls, uuid)
        made.aside, made.trace, made.place = aside, trace, place
        return made


class Trace(Struct):
    """What is remembered of a turn, so that a branch can begin in the midst of it."""

    assistant: str
    after: str = ""
    """The aside that its results stand behind."""
    results: str = ""
    """The line of its results."""
    items: list[tuple[str, ...]] = []
    """What came behind the answer: nothing for a result, else the lines or the aside it became."""
    gathered: int = 0
    """How many of these items are told with the line of results: those up to the last result."""
    repeated: int = 0
    """How many results at the front of the line are those of another branch."""
    copies: list[str] = []
    """The lines behind the results that repeat those of another branch."""
    instead_of: str = ""
    """The line of results of that other branch."""


class Aside(Struct, frozen=True):
    """Where a line of our own stands."""

    node: int
    id: str
    parent: str | None
    after: str
    is_within: bool
    """Whether it stands between the results of one line."""
    split: Split | None = None


class Split(Struct, frozen=True):
    """The first items of a turn, told apart from the rest."""

    of: str
    at: int
    lines: tuple[str, ...]


class Asides(Struct, frozen=True):
    """All lines of our own in a file."""

    by_node: dict[int, Aside]
    by_id: dict[str, Aside]
    parents: frozenset[str | None]
    """The uuids of the lines that have an aside behind them."""
    splits: dict[str, dict[int, int]]
    """The splits of each line of results: how many items they tell, in order, and their nodes."""
    before: dict[int, list[int]]
    """The asides between a message and its parent, as far as someone asked: every branch asks for them again."""

    def behind(self, uuid: str) -> list[Aside]:
        """The asides behind a message, in file order."""
        return [aside for aside in self.by_id.values() if aside.parent == uuid] if uuid in self.parents else []

    def chain(self, id: str) -> list[int]:
        """The asides that lead from a message to one of them, that one last."""
        found: list[int] = []
        aside = self.by_id.get(id)
        while aside is not None and aside.node not in found:
            found.append(aside.node)
            if aside.split is not None:
                found += [node for at, node in self.splits_of(aside.split.of).items() if at < aside.split.at][::-1]
            aside = self.by_id.get(aside.after)
        return found[::-1]

    def splits_of(self, results: str) -> dict[int, int]:
        return self.splits.get(results, {})


_known: WeakKeyDictionary[IndexedLines, tuple[int, Asides]] = WeakKeyDictionary()


def asides_in(lines: IndexedLines) -> Asides:
    """The lines of our own. Remembered for as long as nothing is added, as each branch of a session asks for them."""
    known = _known.get(lines)
    if known is not None and known[0] == len(lines.types):
        return known[1]
    found = list(_iter_asides(lines))
    asides = Asides(
        {aside.node: aside for aside in found},
        {aside.id: aside for aside in found if aside.id},
        frozenset(aside.parent for aside in found),
        _splits(found),
        {},
    )
    _known[lines] = len(lines.types), asides
    return asides


def _iter_asides(lines: IndexedLines) -> Iterator[Aside]:
    nodes = [node for node, kind in enumerate(lines.types) if kind not in (MESSAGE, "file_snapshot")]
    for node, fields in zip(nodes, lines.fields(nodes), strict=True):
        if own_entry(fields):
            parent = fields.get("parent")
            place = parent if isinstance(parent, str) else None
            yield Aside(
                node, string(fields, "id"), place, string(fields, "after"), "result" in fields, split_of(fields)
            )


def split_of(fields: dict[str, Any]) -> Split | None:
    """The split that a line of ours is, if it is one."""
    entry = own_entry(fields)
    if not entry or entry["type"] != SPLIT:
        return None
    at, listed = entry.get("at"), entry.get("lines")
    names = tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()
    return Split(string(entry, "of"), at, names) if type(at) is int and at > 0 else None


def _splits(asides: list[Aside]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for aside in asides:
        if aside.split is not None:
            found.setdefault(aside.split.of, {})[aside.split.at] = aside.node
    return {of: dict(sorted(places.items())) for of, places in found.items()}


def marks_of(fields: dict[str, Any]) -> dict[str, Any]:
    """How a message line that we wrote is to be read; empty for lines of Neovate itself."""
    found = passthrough_of(fields).get(MARKS)
    return found if isinstance(found, dict) else {}
