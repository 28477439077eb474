"""Shards and results of parallel tool calls that a plain walk misses.

The client writes each block of a response as a line of its own (a shard), and each result as a child of the shard with
its call. The next turn is a child of the result written last. So a walk up from a leaf misses the other results, and
the shards after the one it arrives at.

The client (about 2.1.8x and newer) restores them by id, wherever they are in the file (measured with 2.1.325): all
lines with the `message.id` of a response on the path are its shards. The results of their calls are the children of
these shards, and for a call without one, any line with its id. They are together at the first shard on the path: that
one, the other shards in file order, then the results in file order (its SDK sorts by time). Of two results for one call
the first is kept. Results on the path stay there, and are sent only directly after their response. The exception are
results before it, with no prompt between the two: they are sent after it (`move_early_results`). Without a
`message.id` the client finds none of them; `ReadOptions.recovered` does. `open_calls` has the rule for calls without a
result.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from sessiontree.dialects.claude.boundaries import LoadedLines
from sessiontree.dialects.claude.chain import MAX_SEARCHES, Chain, NodeSet
from sessiontree.dialects.claude.index import LineSummary

_Key: TypeAlias = str | int
"""The id of a response; a shard's node where it has none."""

_SHORT = 16
"""A path of less than one line in so many is short: an index finds its lines faster than a search of the file."""


class _Response(Struct):
    """The lines of one response that has some of them off the path, or another turn between its shards."""

    first: int
    """Its first shard on the path."""
    shards: list[int]
    """Its other shards."""
    results: list[int]


def insert_parallel_lines(
    chain: Chain, path: Sequence[int], eligible: LoadedLines | None, recovered: bool
) -> list[int]:
    """Return a path with the missed shards and results of its responses inserted.

    `eligible` are the only lines that may be used, where not all may (see `boundaries`).
    """
    on_path: Container[int]
    # A history has a path for each compaction. Searching the file for each of them takes too long if they are many.
    if len(path) < len(chain) // _SHORT and chain.count_search() > MAX_SEARCHES:
        on_path = frozenset(path)
        index = chain.once(_RecoveredIndex if recovered else _ParallelIndex)
        off_path = [
            node
            for node in index.find_lines(chain, path)
            if node not in on_path and (eligible is None or node in eligible)
        ]
    else:
        on_path = NodeSet(len(chain), path)
        is_on_path = on_path.flags
        off_path = [
            node
            for node, kind in enumerate(chain.types)
            if kind == "message" and not is_on_path[node] and (eligible is None or node in eligible)
        ]
    search = _ParallelLines(chain, path, off_path, recovered)
    groups: dict[int, list[int]] = {}
    moved: set[int] = set()
    for response in search.find_responses():
        groups[response.first] = group = search.group(response, on_path)
        moved.update(group)
    if not groups:
        return list(path)
    joined: list[int] = []
    for node in path:
        if node in groups:
            joined += groups[node]
        elif node not in moved:
            joined.append(node)
    return joined


def move_early_results(chain: Chain, path: Sequence[int]) -> list[int]:
    """Return a path on which results that precede the shard with their call follow it, if no prompt is between them.

    A repeated line or a bridged parent can put a result there.
    """
    early: dict[str, int] = {}
    """The results since the last prompt, by call."""
    after: dict[int, list[int]] = {}
    for node in path:
        if chain.types[node] != "message":
            continue
        summary = chain.summary(node)
        if summary.is_assistant:
            found = dict.fromkeys(early.pop(call) for call in summary.calls if call in early)
            if found:
                after[node] = list(found)
        elif summary.results:
            for call in summary.results:
                early.setdefault(call, node)
        elif summary.is_message:
            early.clear()
    moved = {node for nodes in after.values() for node in nodes}
    return [line for node in path if node not in moved for line in (node, *after.get(node, ()))]


class _ParallelLines:
    """Collects the lines of the responses on one path that are not together on it.

    Nearly all responses of a long path are, so everything but the first pass is limited to the others.
    """

    def __init__(self, chain: Chain, path: Sequence[int], off_path: Sequence[int], recovered: bool) -> None:
        self._chain = chain
        self._path = path
        self._recovered = recovered
        self._shards_off_path: list[tuple[int, _Key, LineSummary]] = []
        self._results_off_path: list[tuple[int, LineSummary]] = []
        for node, summary in _iter_summaries(chain, off_path):
            if summary.results:
                self._results_off_path.append((node, summary))
            elif summary.is_assistant and (key := self._key_off_path(node, summary)) != "" and chain.is_in_tree(node):
                self._shards_off_path.append((node, key, summary))

    def find_responses(self) -> list[_Response]:
        """Return the responses whose lines have to be put together, in the order of the path."""
        keys = self._find_keys()
        if not keys:
            return []
        responses: dict[_Key, _Response] = {}
        owners: dict[str, _Response | None] = {}
        assistants = [
            (node, summary) for node, summary in _iter_summaries(self._chain, self._path) if summary.is_assistant
        ]
        calls = {call for node, summary in assistants if self._key(node, summary) in keys for call in summary.calls}
        for node, summary in assistants:
            key = self._key(node, summary)
            response = responses.get(key)
            if response is not None:
                response.shards.append(node)
            elif key in keys:
                responses[key] = response = _Response(node, [], [])
            # Branches can have calls with the same id: the first one on the path counts.
            for call in summary.calls:
                if call in calls:
                    owners.setdefault(call, response)
        for node, key, summary in self._shards_off_path:
            response = responses.get(key)
            if response is not None:
                response.shards.append(node)
                for call in summary.calls:
                    owners.setdefault(call, response)
                if not summary.response:
                    responses[node] = response
        self._add_results(responses, owners)
        return list({response.first: response for response in responses.values()}.values())

    def _find_keys(self) -> set[_Key]:
        """Return the responses on the path with lines off it, or with another turn between their shards."""
        chain, summaries, types = self._chain, self._chain.summaries, self._chain.types
        shards = {key for _, key, _ in self._shards_off_path}
        answered = {
            call for node, summary in self._results_off_path if chain.is_in_tree(node) for call in summary.results
        }
        found: set[_Key] = set()
        seen: set[_Key] = set()
        current: _Key = ""
        for node in self._path:  # a hot loop: it runs many thousands of times for a long session
            summary = summaries[node]
            if summary is None:
                if types[node] != "message":
                    continue
                summary = chain.summary(node)
            if summary.is_assistant:
                key = summary.response or self._key(node, summary)
                if key != current:
                    if key in seen or key in shards:
                        found.add(key)
                    current = key
                    seen.add(key)
                if answered and summary.calls and not answered.isdisjoint(summary.calls):
                    found.add(key)
            elif summary.is_message and not summary.results:
                current = ""
        found.discard("")
        return found

    def _add_results(self, responses: dict[_Key, _Response], owners: dict[str, _Response | None]) -> None:
        for node, summary in self._results_off_path:
            response = _owner_of_result(owners, summary)
            if response is not None and self._chain.is_in_tree(node):
                response.results.append(node)
        last_answer: _Response | None = None
        for node, summary in _iter_summaries(self._chain, self._path):
            if summary.is_assistant:
                last_answer = responses.get(self._key(node, summary))
            elif summary.results and last_answer is not None and _owner_of_result(owners, summary) is last_answer:
                last_answer.results.append(node)

    def _key(self, node: int, summary: LineSummary) -> _Key:
        return _key_of(node, summary, self._recovered)

    def _key_off_path(self, node: int, summary: LineSummary) -> _Key:
        return _key_off_path(self._chain, node, summary, self._recovered)

    def group(self, response: _Response, on_path: Container[int]) -> list[int]:
        """Return the lines of a response in the client's order."""
        chain = self._chain
        answered: set[str] = set()
        results: list[int] = []
        # A result elsewhere counts only for a call without one of its own: branches can have calls with the same id.
        in_order = chain.in_order(response.results)
        own = {node for node in in_order if node in on_path or self._is_child(node, response)}
        for node in [*filter(own.__contains__, in_order), *(node for node in in_order if node not in own)]:
            calls = chain.summary(node).results
            if node in on_path or not answered.issuperset(calls):
                results.append(node)
            answered.update(calls)
        results = chain.in_order(results)
        return [response.first, *chain.in_order(response.shards), *results]

    def _is_child(self, node: int, response: _Response) -> bool:
        parent = _parent_of(self._chain, node)
        return parent == response.first or parent in response.shards


def _iter_summaries(chain: Chain, nodes: Iterable[int]) -> Iterator[tuple[int, LineSummary]]:
    """Iterate over messages: node and summary of each."""
    types, summaries = chain.types, chain.summaries
    messages = [node for node in nodes if types[node] == "message"]
    chain.load_summaries(messages)
    for node in messages:
        yield node, summaries[node] or chain.summary(node)


def _key_of(node: int, summary: LineSummary, recovered: bool) -> _Key:
    """Return the key of a response by one of its lines on the path."""
    return summary.response or (node if recovered else "")


def _key_off_path(chain: Chain, node: int, summary: LineSummary, recovered: bool) -> _Key:
    """Return the key of a response by one of its lines off the path."""
    if summary.response or not recovered:
        return summary.response
    # Without an id, an assistant line that is a child of another one can only be guessed to be its shard.
    return _parent_of(chain, node)


def _parent_of(chain: Chain, node: int) -> int:
    """Return the nearest line above a line that is not progress; -1 if there is none."""
    return next((at for at in chain.iter_ancestors(chain.parents[node]) if chain.types[at] != "progress"), -1)


def _owner_of_result(owners: dict[str, _Response | None], summary: LineSummary) -> _Response | None:
    return next((owners[call] for call in summary.results if call in owners), None)


class _LinesByKey:
    """Lines by a key, in a few bytes for each: a dictionary of a large file would take 100 MB."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        # Only hashes of keys are stored, so callers may get a few lines with other keys.
        ordered = sorted(pairs)
        self._hashes = array("q", (key for key, _ in ordered))
        self._nodes = array("i", (node for _, node in ordered))

    def find(self, key: _Key) -> Sequence[int]:
        wanted = hash(key)
        return self._nodes[bisect_left(self._hashes, wanted) : bisect_right(self._hashes, wanted)]


class _ParallelIndex:
    """All shards by response, and all results by call."""

    recovered = False

    def __init__(self, chain: Chain) -> None:
        shards: list[tuple[int, int]] = []
        results: list[tuple[int, int]] = []
        for node, summary in _iter_summaries(chain, range(len(chain))):
            if summary.results:
                results += ((hash(call), node) for call in summary.results)
            elif summary.is_assistant and (key := _key_off_path(chain, node, summary, self.recovered)) != "":
                shards.append((hash(key), node))
        self._shards = _LinesByKey(shards)
        self._results = _LinesByKey(results)

    def find_lines(self, chain: Chain, path: Sequence[int]) -> list[int]:
        """Return the shards and results of the responses on a path, and perhaps a few others, in file order."""
        found: set[int] = set()
        pending: list[_Key] = []
        calls: set[str] = set()
        for node, summary in _iter_summaries(chain, path):
            if summary.is_assistant:
                pending.append(_key_of(node, summary, self.recovered))
                calls.update(summary.calls)
        while pending:
            for node in self._shards.find(pending.pop()):
                if node not in found:
                    found.add(node)
                    calls.update(chain.summary(node).calls)
                    if self.recovered:
                        pending.append(node)  # a shard without an id belongs to the response of its parent
        for call in calls:
            found.update(self._results.find(call))
        return sorted(found)


class _RecoveredIndex(_ParallelIndex):
    """The same with guesses about lines without a response id."""

    recovered = True
