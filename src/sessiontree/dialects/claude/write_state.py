"""What stands where in a transcript that is being written: by what was written so far, and by the file behind it.

A parent is always the line that children hang on; an item may have more lines than that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from msgspec import Struct

from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import tool_calls
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude.boundaries import kept_by
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.line_builder import Call, Placed
from sessiontree.dialects.claude.path import find_trail
from sessiontree.dialects.contract import AS_CLIENT, IndexedLines, is_metadata_id


class Behind(str):
    """The id of a line as the place behind one of its asides.

    An aside is said to have the id of its parent, and what follows it is given that id as its own parent. So the id
    itself remembers which of the two was meant.
    """

    __slots__ = ("aside",)
    aside: str

    def __new__(cls, line: str, aside: str) -> Behind:
        made = super().__new__(cls, line)
        made.aside = aside
        return made


class FoundCall(Struct, frozen=True):
    """A call that a result answers: the response it is part of, and the line that the result shall hang on."""

    call: Call
    response: str
    hangs_on: str | None
    is_near: bool
    """Whether nothing but other results stands between the two."""


class WriteState:
    """The items so far."""

    def __init__(self, lines: IndexedLines | None) -> None:
        self._lines = lines
        self._placed: dict[str, Placed] = {}
        """By the line that children hang on."""
        self._mains: dict[str, str] = {}
        """Ids that items came with, to their lines."""
        self._asides: dict[str, str | None] = {}
        """Ids of items without a place, to what they stand behind."""
        self._last_asides: dict[str | None, str] = {}
        """Lines to the last aside behind each."""
        self._captured: set[str] = set()
        """Lines that a boundary kept."""
        self._left: set[str] = set()
        """Responses from which, or from whose results, the conversation went on."""
        self._tip: str | None = None
        self._answered: dict[str, set[str]] = {}
        """Responses to the lines of those of their calls that have results."""

    @property
    def has_chain(self) -> bool:
        return self._lines is not None and any(not is_metadata_id(id) for id in self._lines.tree.ids)

    def add(self, entry: CanonicalEntry, id: str, placed: Placed) -> None:
        self._placed[id] = placed
        self._tip = id
        if entry.id:
            self._mains[entry.id] = placed.main
        for name in entry.aliases:
            if name:
                self._mains[name] = placed.main
        if placed.answers is not None:
            self._answered.setdefault(placed.answers, set()).add(placed.answered_line)

    def add_aside(self, entry: CanonicalEntry, id: str, parent: str | None) -> None:
        self._last_asides[parent] = id
        self._asides.update((name, parent) for name in (entry.id, *entry.aliases) if name)

    def aside_before(self, place: str | None) -> str | None:
        """The aside that a place is behind, empty when there are only others, None when there is none.

        Of several ways to begin a session nothing tells which is meant: they all begin behind its first asides.
        """
        if place not in self._last_asides:
            return None
        if place is None:
            return self._last_asides[None]
        return place.aside if isinstance(place, Behind) else ""

    def main_of(self, id: str) -> str:
        """What an entry is called here that is called `id` where it comes from."""
        return self._mains.get(id, id)

    def last_prompt(self, leaf: str | None) -> str:
        """The last thing the user said on the way to a line."""
        while leaf is not None and leaf in self._placed:
            placed = self._placed[leaf]
            if placed.prompt:
                return placed.prompt
            leaf = placed.parent
        return ""

    # Calls

    def find_call(self, id: str, parent: str | None) -> FoundCall | None:
        """The call with an id that is nearest above a line; of several with that id the first without a result."""
        at, is_near = parent, True
        answered: set[str] = set()
        while at is not None and at in self._placed:
            placed = self._placed[at]
            calls = [call for call in placed.calls if call.given == id] if placed.calls else ()
            if calls:
                call = next((call for call in calls if call.line not in answered), calls[-1])
                return FoundCall(call, at, _hangs_on(call, placed, answered) if is_near else parent, is_near)
            answered.add(placed.answered_line)
            is_near = is_near and placed.answers is not None and not placed.is_apart
            at = placed.parent
        return self._find_call_in_file(id, at, parent, is_near)

    def _find_call_in_file(self, id: str, at: str | None, parent: str | None, is_near: bool) -> FoundCall | None:
        node = None if self._lines is None or at is None else self._lines.tree.node_of.get(at)
        if self._lines is None or node is None:
            return None
        chain = Chain(self._lines)
        ids = self._lines.tree.ids
        for above in _iter_up(chain, node):
            speech = chain.speech(above)
            if speech.is_assistant:
                shards = _shards_from(chain, above)
                for shard in shards:
                    if id in chain.speech(shard).calls:
                        call = Call(id, id, _name_of(chain, shard, id), ids[shard])
                        hangs_on = ids[_hanging(chain, shards, shard, id)] if is_near else parent
                        return FoundCall(call, ids[shards[-1]], hangs_on, is_near)
            is_near = is_near and (bool(speech.answers) or speech.is_assistant)
        return None

    # Parting

    def needs_boundary(self, parent: str | None, *, is_result: bool) -> bool:
        """Whether what is written behind a line would be read with lines of another branch, or they with it.

        The results of a response are all taken to belong to each way on from it, and lines that a boundary kept follow
        that boundary. In a file that is continued, both are as the client means it.
        """
        if self._lines is not None or parent is None:
            return False
        response, answered = self._open_response(parent)
        if response is not None:
            if not self._answered.get(response, answered) <= answered or (is_result and response in self._left):
                return True
            if not is_result:
                self._left.add(response)
        return parent != self._tip and self._is_captured(parent)

    def _open_response(self, parent: str) -> tuple[str | None, set[str]]:
        """The response that a line is part or a result of, and the lines of its calls that have results up to there."""
        answered: set[str] = set()
        at: str | None = parent
        while at is not None and (placed := self._placed.get(at)) is not None and not placed.is_apart:
            if placed.answers is None:
                return (at if placed.calls else None), answered
            answered.add(placed.answered_line)
            at = placed.parent
        return None, answered

    def _is_captured(self, parent: str) -> bool:
        """Whether any line on the way up to the last boundary follows another boundary by now."""
        at: str | None = parent
        while at is not None and at in self._placed:
            placed = self._placed[at]
            if not self._captured.isdisjoint(placed.uuids):
                return True
            if placed.is_apart or placed.kept is not None:
                return False
            at = placed.parent
        return False

    # Keeping

    def kept(self, first: str, parent: str | None) -> list[str]:
        """The lines from an entry on to the one a compaction stands behind; none if the entry is not on that way."""
        main, at = self.main_of(first), parent
        found: list[tuple[str, ...]] = []
        while at is not None and at in self._placed:
            if first in self._asides and self._asides[first] == at:
                return _flat(found)
            placed = self._placed[at]
            if placed.kept is None:  # an older summary within what is kept has nothing left to say
                found.append(placed.uuids)
            if main in placed.uuids:
                return _flat(found)
            at = placed.parent
        in_file = self._kept_in_file(main, at)
        return in_file + _flat(found) if in_file is not None else []

    def capture(self, lines: Iterable[str]) -> None:
        """Remember that these lines follow another boundary from now on, whoever comes to them."""
        self._captured.update(lines)

    def context_lines(self, leaf: str) -> list[str]:
        """The lines that are sent for the way to a line: from the last compaction on, its summary first."""
        at: str | None = leaf
        found: list[tuple[str, ...]] = []
        while at is not None and at in self._placed:
            placed = self._placed[at]
            if placed.kept is not None:
                return [*placed.uuids[1:2], *placed.kept, *placed.uuids[2:], *_flat(found)]
            found.append(placed.uuids)
            at = placed.parent
        return _flat(found)

    def lines_without_later_boundary(self, leaf: str) -> list[str]:
        """The lines that are sent for a line of the file, if a later boundary has taken some of them for itself."""
        node = None if self._lines is None else self._lines.tree.node_of.get(leaf)
        if self._lines is None or node is None:
            return []
        chain = Chain(self._lines)
        later = list(takewhile(lambda boundary: boundary > node, chain.boundaries_before(len(chain) - 1)))
        if not later:
            return []
        nodes = [each for each in find_trail(chain, node, AS_CLIENT).nodes if chain.types[each] != "compaction"]
        for boundary in later:
            kept = kept_by(chain, boundary)
            if not kept.nodes.isdisjoint(nodes):  # the last one that takes any of them decides
                is_free = kept.listed is not None and kept.listed.issuperset(nodes)
                return [] if is_free else [self._lines.tree.ids[each] for each in nodes]
        return []

    def _kept_in_file(self, first: str, at: str | None) -> list[str] | None:
        node = None if self._lines is None or at is None else self._lines.tree.node_of.get(at)
        if self._lines is None or node is None:
            return None
        chain = Chain(self._lines)
        nodes = find_trail(chain, node, AS_CLIENT).nodes
        wanted = self._lines.tree.node_of.get(first)
        if wanted not in nodes:
            return None
        start = nodes.index(wanted)
        response = chain.speech(nodes[start]).response
        while response and start and chain.speech(nodes[start - 1]).response == response:
            start -= 1
        return [self._lines.tree.ids[node] for node in nodes[start:] if not _is_of_compaction(chain, node)]


def _hangs_on(call: Call, placed: Placed, answered: set[str]) -> str:
    """The line of the call; the last one, if a call between them is open and would be lost beside the path."""
    lines = placed.uuids
    if call.line == lines[-1]:
        return call.line
    behind = lines[lines.index(call.line) + 1 :]
    is_open = any(other.line in behind and other.line not in answered for other in placed.calls)
    return lines[-1] if is_open else call.line


def _flat(found: list[tuple[str, ...]]) -> list[str]:
    return [uuid for uuids in reversed(found) for uuid in uuids]


def _is_of_compaction(chain: Chain, node: int) -> bool:
    return chain.types[node] == "compaction" or chain.facts(node).is_summary


def _iter_up(chain: Chain, node: int) -> Iterator[int]:
    at: int | None = node
    while at is not None:  # the tree has no rings
        yield at
        at = chain.parents[at]


def _shards_from(chain: Chain, node: int) -> list[int]:
    """The shards of a response that one of them leads to: those above it, itself, and those below it."""
    response = chain.speech(node).response
    if not response:
        return [node]
    first = node
    while (above := chain.parents[first]) is not None and chain.speech(above).response == response:
        first = above
    shards: list[int] = []
    pending = [first]
    while pending:
        shard = pending.pop()
        shards.append(shard)
        pending += [child for child in chain.tree.children(shard) if chain.speech(child).response == response]
    return sorted(shards)


def _hanging(chain: Chain, shards: list[int], shard: int, id: str) -> int:
    """The line for a result to hang on: that of its call, or the last one while a call behind it is open."""
    answered = {
        answer for each in shards for child in chain.tree.children(each) for answer in chain.speech(child).answers
    }
    behind = shards[shards.index(shard) + 1 :]
    is_open = any(call not in answered and call != id for each in behind for call in chain.speech(each).calls)
    return shards[-1] if is_open else shard


def _name_of(chain: Chain, shard: int, id: str) -> str:
    (entry,) = chain.entries([shard])
    calls = tool_calls(entry.message) if isinstance(entry, MessageEntry) else ()
    return next((call.name for call in calls if call.id == id), "")
