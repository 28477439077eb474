"""Our own metadata lines: entries that Neovate cannot store, on lines of a type that it ignores.

    {"type":"sessiontree","sessionId":…,"timestamp":…,"uuid":…,"id":…,"parent":…,"after":…,"entry":{"type":…,…}}

`parent` is the message line that the entry follows, and `after` the metadata line between them, if there is one. A
message that follows a metadata line has `after` in its passthrough data. `uuid` is that of the last message line
before: Neovate uses the uuid of the file's last line, of any type, as the parent of some of its messages. It would
start a new root after a line without one.

A *split* is a metadata line between a response and its results, for a branch that starts among the results: all results
of a response are one line, and nothing can follow half a line. It decodes to the entries of the turn up to that point,
and the line of results to the rest:

    {"type":"sessiontree",…,"parent":…,"after":…,"entry":{"type":"sessiontree:split","of":…,"at":…,"lines":[…]}}

`of` is the line of results, `at` the number of entries that the split decodes to, and `lines` those of them that have
separate lines.

Message lines that we wrote have *marks*, in their passthrough data under `neovate`:

* `timestamp`: the entry's own, where the line has another;
* `after`: the metadata line before the message; `behind`: the line before a compaction; `root`: an intended root;
* `part`: the line belongs to the entry before it; `copy`: it repeats what a compaction kept; `alone`: it only looks
  like the output of a command; `forked`: its fork mark is ours;
* `results`: passthrough data for each result of the line, `{"filler": true}` for a generated result, `{"copy": true}`
  for one that belongs to another branch; `result`: the number of results before this line, which had to wait for all.

Older versions also stored `without`, `order`, `blocks` and `plain` here (see `decode`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.neovate.records import MESSAGE, metadata_entry, string
from sessiontree.dialects.passthrough import passthrough_of

SPLIT = "sessiontree:split"
"""The type of the entry on a split."""

MARKS = "neovate"
"""The part of passthrough data with marks; on a canonical entry, data from the Neovate lines it was decoded from."""


class Position(str):
    """The uuid of a line (empty before the first) that also names a metadata line after it, or a position in a turn.

    `Encoded.id` of a metadata line is that of its parent, and of a result that of the line with all results. The next
    entry gets this id as its parent, so the id itself has to record which of them it refers to.
    """

    __slots__ = ("entry_count", "metadata_id", "trace")
    metadata_id: str
    """Empty when no metadata line is meant."""
    trace: TurnTrace | None
    entry_count: int
    """Number of entries of the turn before this position."""

    def __new__(cls, uuid: str, metadata_id: str, trace: TurnTrace | None = None, entry_count: int = 0) -> Position:
        made = super().__new__(cls, uuid)
        made.metadata_id, made.trace, made.entry_count = metadata_id, trace, entry_count
        return made


class TurnTrace(Struct):
    """A record of a turn, so that a branch can start in the middle of it."""

    assistant: str
    after: str = ""
    """The metadata line that its results follow."""
    results: str = ""
    """The line of its results."""
    entries: list[tuple[str, ...]] = []
    """The entries after the response: empty for a result, else the lines or the metadata line it became."""
    through_last_result: int = 0
    """Number of these entries that are decoded with the line of results: those up to the last result."""
    copied_results: int = 0
    """Number of results at the start of the line that belong to another branch."""
    copies: list[str] = []
    """The lines after the results that repeat those of another branch."""
    copy_of: str = ""
    """The line of results of that other branch."""


class MetadataLine(Struct, frozen=True):
    """The position of one of our metadata lines."""

    node: int
    id: str
    parent: str | None
    after: str
    is_between_results: bool
    split: Split | None = None


class Split(Struct, frozen=True):
    """The first entries of a turn, decoded apart from the rest."""

    of: str
    at: int
    lines: tuple[str, ...]


class MetadataLines(Struct, frozen=True):
    """All our metadata lines of a file."""

    by_node: dict[int, MetadataLine]
    by_id: dict[str, MetadataLine]
    parents: frozenset[str | None]
    """The uuids of the lines that metadata lines follow."""
    splits: dict[str, dict[int, int]]
    """The splits of each line of results: number of entries -> node, in order."""
    before: dict[int, list[int]]
    """Cache of the metadata lines between a message and its parent, because every branch needs them again."""

    def children_of(self, uuid: str) -> list[MetadataLine]:
        """The metadata lines after a message, in file order."""
        return [line for line in self.by_id.values() if line.parent == uuid] if uuid in self.parents else []

    def chain(self, id: str) -> list[int]:
        """The metadata lines from a message to one of them, that one last."""
        found: dict[int, None] = {}
        line = self.by_id.get(id)
        while line is not None and line.node not in found:
            found[line.node] = None
            line = self.before_line(line)
        return [*found][::-1]

    def before_line(self, line: MetadataLine) -> MetadataLine | None:
        """The metadata line before another one: of a split, an earlier one of the same results."""
        if line.split is not None:
            earlier = [node for at, node in self.splits_of(line.split.of).items() if at < line.split.at]
            if earlier:
                return self.by_node[earlier[-1]]
        return self.by_id.get(line.after) if line.id else None

    def splits_of(self, results: str) -> dict[int, int]:
        return self.splits.get(results, {})


_cache: WeakKeyDictionary[IndexedLines, tuple[int, MetadataLines]] = WeakKeyDictionary()


def find_metadata_lines(lines: IndexedLines) -> MetadataLines:
    """Find our metadata lines. Cached until lines are added, because each branch of a session needs them."""
    known = _cache.get(lines)
    if known is not None and known[0] == len(lines.types):
        return known[1]
    found = list(_iter_metadata_lines(lines))
    metadata = MetadataLines(
        {line.node: line for line in found},
        {line.id: line for line in found if line.id},
        frozenset(line.parent for line in found),
        _splits(found),
        {},
    )
    _cache[lines] = len(lines.types), metadata
    return metadata


def _iter_metadata_lines(lines: IndexedLines) -> Iterator[MetadataLine]:
    nodes = [node for node, kind in enumerate(lines.types) if kind not in (MESSAGE, "file_snapshot")]
    for node, fields in zip(nodes, lines.fields(nodes), strict=True):
        if metadata_entry(fields):
            parent = fields.get("parent")
            yield MetadataLine(
                node,
                string(fields, "id"),
                parent if isinstance(parent, str) else None,
                string(fields, "after"),
                "result" in fields,
                parse_split(fields),
            )


def parse_split(fields: dict[str, Any]) -> Split | None:
    """The split on a line; None for any other line."""
    entry = metadata_entry(fields)
    if not entry or entry["type"] != SPLIT:
        return None
    at, listed = entry.get("at"), entry.get("lines")
    names = tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()
    return Split(string(entry, "of"), at, names) if type(at) is int and at > 0 else None


def _splits(lines: list[MetadataLine]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for line in lines:
        if line.split is not None:
            found.setdefault(line.split.of, {})[line.split.at] = line.node
    return {of: dict(sorted(nodes.items())) for of, nodes in found.items()}


def marks_of(line: dict[str, Any]) -> dict[str, Any]:
    """The marks on a message line that we wrote; empty for Neovate's own lines."""
    return marks_in(passthrough_of(line))


def marks_in(passthrough: dict[str, Any]) -> dict[str, Any]:
    found = passthrough.get(MARKS)
    return found if isinstance(found, dict) else {}
