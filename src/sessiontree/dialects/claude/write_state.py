"""Map each encoded entry to its line uuids, parent and open tool calls; fall back to the file that is continued.

A parent is always the last line of an entry, the one that children name as their parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from msgspec import Struct

from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import tool_calls
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.claude.boundaries import find_loaded_lines
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.line_builder import Call, PlacedEntry
from sessiontree.dialects.claude.loose_lines import is_note
from sessiontree.dialects.claude.path import find_path, has_turn, is_followed_by_boundary, is_reached
from sessiontree.dialects.contract import AS_CLIENT, IndexedLines, is_metadata_id


class AfterMetadata(str):
    """The uuid of a chain line, as the position after one of the metadata entries that follow it.

    A metadata entry is encoded with the id of its parent, and its child gets that id as its own parent. So the string
    itself has to record which of the two it refers to. It is empty if no chain line precedes the metadata entry.
    """

    __slots__ = ("metadata_id",)
    metadata_id: str

    def __new__(cls, line: str, metadata_id: str) -> AfterMetadata:
        made = super().__new__(cls, line)
        made.metadata_id = metadata_id
        return made


class FoundCall(Struct, frozen=True):
    """The call that a result answers, its response, and the line that becomes the result's parent."""

    call: Call
    response: str
    parent: str | None
    is_adjacent: bool
    """Whether only other results are between the call and the result."""


class WriteState:
    """The entries that were encoded so far."""

    def __init__(self, lines: IndexedLines | None) -> None:
        self._lines = lines
        self._responses: set[str] | None = None
        """The ids of the responses in the file, once they are needed."""
        self._placed: dict[str, PlacedEntry] = {}
        """By the line that children name as their parent."""
        self._main_lines: dict[str, str] = {}
        """Canonical ids -> main lines."""
        self._metadata_parents: dict[str, str | None] = {}
        """Canonical ids of metadata entries -> the chain lines they follow."""
        self._last_metadata: dict[str | None, str] = {}
        """Chain lines -> the last metadata entry after each."""
        self._preserved: set[str] = set()
        """Lines that a boundary preserved."""
        self._preserved_last: frozenset[str] = frozenset()
        """Lines that the last boundary preserved."""
        self._unpreserved: set[str] = set()
        """Lines with no preserved line on the path up to their last boundary; branches share most of it."""
        self._boundaries = 0
        self._boundaries_before: dict[str, int] = {}
        """Lines -> the number of boundaries before each."""
        self._continued: set[str] = set()
        """Responses after which, or after whose results, the conversation continued."""
        self._tip: str | None = None
        self._answered: dict[str, tuple[str, ...]] = {}
        """Responses -> the lines of their calls that have results."""

    @property
    def has_chain(self) -> bool:
        return self._lines is not None and any(not is_metadata_id(id) for id in self._lines.tree.ids)

    def add(self, entry: CanonicalEntry, id: str, placed: PlacedEntry) -> None:
        self._placed[id] = placed
        self._boundaries_before.update(dict.fromkeys(placed.uuids, self._boundaries))
        self._tip = id
        for name in (entry.id, *entry.aliases):
            if name:
                self._main_lines[name] = placed.main
        if placed.response is not None:
            self._answered[placed.response] = (*self._answered.get(placed.response, ()), placed.call_line)

    def add_metadata(self, entry: CanonicalEntry, id: str, parent: str | None) -> None:
        self._last_metadata[parent] = id
        self._metadata_parents.update((name, parent) for name in (entry.id, *entry.aliases) if name)

    def metadata_before(self, position: str | None) -> str | None:
        """Return the metadata entry that a position follows; empty when only others do, None when there are none."""
        if (position or None) not in self._last_metadata:
            return None
        return position.metadata_id if isinstance(position, AfterMetadata) else ""

    def main_line(self, id: str) -> str:
        """Return the main line of the entry with a canonical id; the id itself when it was not encoded here."""
        return self._main_lines.get(id, id)

    def last_prompt(self, leaf: str | None) -> str:
        """Return the last prompt on the path to a line."""
        while leaf is not None and leaf in self._placed:
            placed = self._placed[leaf]
            if placed.prompt:
                return placed.prompt
            leaf = placed.parent
        return ""

    def has_response(self, id: str) -> bool:
        """Whether the file that is continued has a response with an id: the client takes its lines for shards of it."""
        if self._lines is None:
            return False
        if self._responses is None:
            chain = Chain(self._lines)
            messages = [node for node, kind in enumerate(chain.types) if kind == "message"]
            chain.load_summaries(messages)
            self._responses = {chain.summary(node).response for node in messages}
        return id in self._responses

    # Positions

    def find_pinned(self, target: str, context: Sequence[str]) -> str:
        """Return the line to pin so that the client sends a context of lines of the file: its target, or its end."""
        # A boundary is not part of the context. In a cycle of parents, the response of the target can precede prompts.
        if self._lines is None or target not in context:
            return context[-1]
        chain = Chain(self._lines)
        later = [self._lines.tree.node_of[line] for line in context[context.index(target) + 1 :]]
        is_inside = any(chain.summary(node).is_prompt and not is_note(chain, node) for node in later)
        return context[-1] if is_inside else target

    def can_be_current(self, line: str) -> bool:
        """Whether a line of the file is one that the client can continue: not a sub-agent's, not a metadata line."""
        node = None if self._lines is None else self._lines.tree.node_of.get(line)
        return self._lines is not None and node is not None and Chain(self._lines).can_be_leaf(node)

    def has_turn(self, line: str | None) -> bool:
        """Whether a line, or a line above it, is a user or assistant line. Without one the client ignores the path."""
        at = line
        while at is not None and at in self._placed:
            if self._placed[at].is_turn:
                return True
            at = self._placed[at].parent
        node = None if self._lines is None or at is None else self._lines.tree.node_of.get(at)
        if self._lines is None or node is None:
            return False
        chain = Chain(self._lines)
        loaded = find_loaded_lines(chain)
        if is_reached(chain, loaded, node):
            return has_turn(chain, loaded, node)
        return any(chain.facts(each).is_turn for each in find_path(chain, node, AS_CLIENT).nodes)

    # Calls

    def find_call(self, id: str, parent: str | None) -> FoundCall | None:
        """Return the nearest call with an id above a line; of several in one response, the first without a result."""
        at, is_adjacent = parent, True
        answered: set[str] = set()
        while at is not None and at in self._placed:
            placed = self._placed[at]
            calls = [call for call in placed.calls if call.canonical_id == id] if placed.calls else ()
            if calls:
                call = next((call for call in calls if call.line not in answered), calls[-1])
                return FoundCall(call, at, parent, is_adjacent)
            answered.add(placed.call_line)
            is_adjacent = is_adjacent and placed.response is not None and not placed.is_separated
            at = placed.parent
        return self._find_call_in_file(id, at, parent, is_adjacent)

    def _find_call_in_file(self, id: str, at: str | None, parent: str | None, is_adjacent: bool) -> FoundCall | None:
        node = None if self._lines is None or at is None else self._lines.tree.node_of.get(at)
        if self._lines is None or node is None:
            return None
        chain = Chain(self._lines)
        ids = self._lines.tree.ids
        for above in chain.iter_ancestors(node):
            summary = chain.summary(above)
            if summary.is_assistant:
                shards = _find_shards(chain, above)
                for shard in shards:
                    if id in chain.summary(shard).calls:
                        call = Call(id, id, _tool_name(chain, shard, id), ids[shard])
                        line = _result_parent(chain, shards, shard, id, node) if is_adjacent else None
                        return FoundCall(call, ids[shards[-1]], parent if line is None else ids[line], is_adjacent)
            is_adjacent = is_adjacent and (bool(summary.results) or summary.is_assistant)
        return None

    def is_in_response_with_calls(self, line: str) -> bool:
        """Whether a line is a shard or a result of a response with calls, or a note of the client after one."""
        at: str | None = line
        while at is not None and (placed := self._placed.get(at)) is not None:
            if placed.response is not None or placed.calls:
                return True
            if placed.is_turn or placed.kept is not None:
                return False
            at = placed.parent
        node = None if self._lines is None or at is None else self._lines.tree.node_of.get(at)
        if self._lines is None or node is None:
            return False
        chain = Chain(self._lines)
        above = next((at for at in chain.iter_ancestors(node) if not _is_between_turns(chain, at)), None)
        if above is None:
            return False
        summary = chain.summary(above)
        return bool(summary.results) or any(chain.summary(shard).calls for shard in _find_shards(chain, above))

    # Separating branches

    def needs_boundary(self, parent: str | None, *, is_result: bool) -> bool:
        """Whether the client would mix what follows a line with lines of another branch.

        The client adds all results of a response to every path through it, inserts preserved lines after the boundary
        that preserves them, and then ignores the other lines before it. A file that is continued was already written
        with that in mind.
        """
        if self._lines is not None or parent is None:
            return False
        response, answered = self._find_open_response(parent)
        if response is not None:
            is_mixed = not answered.issuperset(self._answered.get(response, ()))
            if is_mixed or (is_result and response in self._continued):
                return True
            if not is_result:
                self._continued.add(response)
        return parent != self._tip and (self._is_hidden(parent) or self._has_preserved_lines(parent))

    def _is_hidden(self, line: str) -> bool:
        """Whether the line does not exist for the client, as soon as a boundary preserves lines (see `boundaries`)."""
        is_earlier = self._boundaries_before.get(line, self._boundaries) < self._boundaries
        return bool(self._preserved) and is_earlier and line not in self._preserved_last

    def _find_open_response(self, parent: str) -> tuple[str | None, set[str]]:
        """Return the response of a shard or a result, and the lines of its calls that have results up to there."""
        answered: set[str] = set()
        at: str | None = parent
        while at is not None and (placed := self._placed.get(at)) is not None and not placed.is_separated:
            if placed.response is None:
                return (at if placed.calls else None), answered
            answered.add(placed.call_line)
            at = placed.parent
        return None, answered

    def _has_preserved_lines(self, parent: str) -> bool:
        """Whether a boundary elsewhere preserves any line of the path up to its last boundary."""
        at: str | None = parent
        walked: list[str] = []
        while at is not None and at in self._placed and at not in self._unpreserved:
            placed = self._placed[at]
            if not self._preserved.isdisjoint(placed.uuids):
                return True
            walked.append(at)
            at = None if placed.is_separated or placed.kept is not None else placed.parent
        self._unpreserved.update(walked)
        return False

    # What compactions keep

    def find_kept(self, first: str, parent: str | None) -> list[str]:
        """Return the lines from an entry to a compaction's parent; none when the entry is not on that path."""
        main, at = self.main_line(first), parent
        found: list[tuple[str, ...]] = []
        while True:
            if first in self._metadata_parents and self._metadata_parents[first] == at:
                return _flatten(found)
            if at is None or at not in self._placed:
                break
            placed = self._placed[at]
            if placed.kept is None:  # the summary of an earlier compaction is replaced by the new one
                found.append(placed.uuids)
            if main in placed.uuids:
                return _flatten(found)
            at = placed.parent
        in_file = self._find_kept_in_file(main, at)
        return in_file + _flatten(found) if in_file is not None else []

    def add_boundary(self, preserved: Iterable[str]) -> None:
        """Record a boundary and the lines it preserves: the client moves them there on every path."""
        self._boundaries += 1
        self._preserved_last = frozenset(preserved)
        self._preserved |= self._preserved_last
        self._unpreserved.clear()

    def context_lines(self, leaf: str) -> list[str]:
        """Return the lines of the context at a line: from the last compaction on, its summary first."""
        at: str | None = leaf
        found: list[tuple[str, ...]] = []
        while at is not None and at in self._placed:
            placed = self._placed[at]
            if placed.kept is not None:
                return [*placed.uuids[1:2], *placed.kept, *placed.uuids[2:], *_flatten(found)]
            found.append(placed.uuids)
            at = placed.parent
        return _flatten(found)

    def context_hidden_by_boundary(self, leaf: str, *, at_end: bool) -> list[str]:
        """Return the context lines of a line in the file, if a later boundary hides them or changes their order.

        With `at_end`, no line is written after it.
        """
        node = None if self._lines is None else self._lines.tree.node_of.get(leaf)
        if self._lines is None or node is None:
            return []
        chain = Chain(self._lines)
        is_hidden = not is_reached(chain, find_loaded_lines(chain), node)
        if not is_hidden and not (at_end and is_followed_by_boundary(chain, node)):
            return []
        nodes = find_path(chain, node, AS_CLIENT).nodes
        return [self._lines.tree.ids[each] for each in nodes if chain.types[each] != "compaction"]

    def _find_kept_in_file(self, first: str, at: str | None) -> list[str] | None:
        node = None if self._lines is None or at is None else self._lines.tree.node_of.get(at)
        if self._lines is None or node is None:
            return None
        chain = Chain(self._lines)
        nodes = find_path(chain, node, AS_CLIENT).nodes
        wanted = self._lines.tree.node_of.get(first)
        if wanted not in nodes:
            return None
        start = nodes.index(wanted)
        response = chain.summary(nodes[start]).response
        while response and start and chain.summary(nodes[start - 1]).response == response:
            start -= 1
        return [self._lines.tree.ids[node] for node in nodes[start:] if not _is_of_compaction(chain, node)]


def _result_parent(chain: Chain, shards: list[int], shard: int, id: str, leaf: int) -> int | None:
    """Return the line of a response in the file that its next result follows; None for the leaf, if all are above it.

    The client writes each result as a child of its own call, so a leaf can have only some of the calls above it. The
    client drops calls off the path that have no result.
    """
    path = set(takewhile(lambda node: node != shards[0], chain.iter_ancestors(leaf))) | {shards[0]}
    if path.issuperset(shards):
        return None
    answered = {
        result for each in shards for child in chain.tree.children(each) for result in chain.summary(child).results
    }
    later = shards[shards.index(shard) + 1 :]
    is_open = any(call not in answered and call != id for each in later for call in chain.summary(each).calls)
    return shards[-1] if is_open else shard


def _flatten(found: list[tuple[str, ...]]) -> list[str]:
    """Return the uuids of entries that were collected from the last to the first."""
    return [uuid for uuids in reversed(found) for uuid in uuids]


def _is_between_turns(chain: Chain, node: int) -> bool:
    return chain.types[node] == "progress" or is_note(chain, node)


def _is_of_compaction(chain: Chain, node: int) -> bool:
    return chain.types[node] == "compaction" or chain.facts(node).is_summary


def _find_shards(chain: Chain, node: int) -> list[int]:
    """Return all shards of the response that a line is a shard of, above and below it."""
    response = chain.summary(node).response
    if not response:
        return [node]
    first = node
    while (above := chain.parents[first]) is not None and chain.summary(above).response == response:
        first = above
    shards: list[int] = []
    pending = [first]
    while pending:
        shard = pending.pop()
        shards.append(shard)
        pending += [child for child in chain.tree.children(shard) if chain.summary(child).response == response]
    return sorted(shards)


def _tool_name(chain: Chain, shard: int, id: str) -> str:
    (entry,) = chain.entries([shard])
    calls = tool_calls(entry.message) if isinstance(entry, MessageEntry) else ()
    return next((call.name for call in calls if call.id == id), "")
