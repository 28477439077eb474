"""Shards and results of parallel tool calls that a plain walk misses.

The client writes each block of a response as a line of its own (a shard), and each result as a child of the shard with
its call. The next turn is a child of the result written last. So a walk up from a leaf misses the other results, and
the shards after the one it arrives at.

The client (about 2.1.8x and newer) restores them by id, wherever they are in the file (measured with 2.1.325): all
lines with the `message.id` of a response on the path are its shards. The results of their calls are the children of
these shards, and for a call without one, any line with its id. They are together at the first shard on the path: that
one, the other shards in file order, then the results in file order (its SDK sorts by time). Of two results for one call
the first is kept. A shard off the path whose call has no result is dropped once a prompt follows: until then the call
may still be running. Without a `message.id` the client finds none of them; `ReadOptions.recovered` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from sessiontree.dialects.claude.boundaries import LoadedLines
from sessiontree.dialects.claude.chain import Chain, NodeSet
from sessiontree.dialects.claude.index import LineSummary

_Key: TypeAlias = str | int
"""The id of a response; a shard's node where it has none."""


class _Response(Struct):
    """The lines of one response."""

    first: int
    """Its first shard on the path."""
    shards: list[int]
    """Its other shards."""
    results: list[int]
    last_position: int
    """The position of its last shard on the path."""
    is_scattered: bool = False
    """Whether some of its lines are off the path, or another turn is between its shards."""


def insert_parallel_lines(
    chain: Chain, path: Sequence[int], eligible: LoadedLines | None, recovered: bool
) -> list[int]:
    """Return a path with the missed shards and results of its responses inserted.

    `eligible` are the only lines that may be used, where not all may (see `boundaries`).
    """
    on_path = NodeSet(len(chain), path)
    is_on_path = on_path.flags
    off_path = [
        node
        for node, kind in enumerate(chain.types)
        if kind == "message" and not is_on_path[node] and (eligible is None or node in eligible)
    ]
    if not off_path and not _has_scattered_response(chain, path):
        return list(path)
    search = _ParallelLines(chain, path, recovered)
    search.add_off_path(off_path)
    groups: dict[int, list[int]] = {}
    moved: set[int] = set()
    for response in search.scattered():
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


def _has_scattered_response(chain: Chain, path: Sequence[int]) -> bool:
    """Whether another turn is between two shards of a response. Fast, because nearly always there is none."""
    seen: set[str] = set()
    current = ""
    for node in path:
        summary = chain.summaries[node]
        if summary is None:
            if chain.types[node] != "message":
                continue
            summary = chain.summary(node)
        if summary.is_assistant:
            if summary.response != current:
                if summary.response in seen:
                    return True
                current = summary.response
                if current:
                    seen.add(current)
        elif summary.is_message and not summary.results:
            current = ""
    return False


class _ParallelLines:
    """Collects the lines of the responses on one path, on the path and off it."""

    def __init__(self, chain: Chain, path: Sequence[int], recovered: bool) -> None:
        self.responses: dict[_Key, _Response] = {}
        self._chain = chain
        self._recovered = recovered
        self._by_call: dict[str, _Response] = {}
        self._prompts: list[tuple[int, int]] = []
        """The position and node of each prompt on the path."""
        self._last_turn: _Response | None = None
        """The response that the next shard on the path may continue."""
        results: list[int] = []
        for at, node, summary in self._summaries(path):
            if summary.is_assistant:
                self._add_shard(at, node, summary)
            elif summary.results:
                results.append(node)
            elif summary.is_prompt:
                self._prompts.append((at, node))
                self._last_turn = None
        self._results_on_path = results

    def _summaries(self, nodes: Sequence[int]) -> Iterator[tuple[int, int, LineSummary]]:
        """Iterate over messages: position, node and summary of each."""
        types, summaries = self._chain.types, self._chain.summaries
        self._chain.load_summaries(node for node in nodes if types[node] == "message")
        for at, node in enumerate(nodes):
            if types[node] == "message":
                yield at, node, summaries[node] or self._chain.summary(node)

    def _add_shard(self, at: int, node: int, summary: LineSummary) -> None:
        if not summary.response and not self._recovered:
            self._last_turn = None
            return
        key: _Key = summary.response or node
        response = self.responses.get(key)
        if response is None:
            self.responses[key] = response = _Response(node, [], [], at)
        else:
            response.shards.append(node)
            response.last_position = at
            response.is_scattered = response.is_scattered or response is not self._last_turn
        self._last_turn = response
        self._add_calls(response, summary)

    def _add_calls(self, response: _Response, summary: LineSummary) -> None:
        for call in summary.calls:
            self._by_call.setdefault(call, response)

    def add_off_path(self, nodes: Sequence[int]) -> None:
        """Add all lines off the path that belong to a response on it."""
        results: list[tuple[int, LineSummary]] = []
        for _, node, summary in self._summaries(nodes):
            if summary.results:
                results.append((node, summary))
            elif summary.is_assistant:
                response = self.responses.get(self._key_off_path(node, summary))
                if response is not None and self._chain.is_in_tree(node):
                    response.shards.append(node)
                    response.is_scattered = True
                    self._add_calls(response, summary)
                    if not summary.response:
                        self.responses[node] = response
        for node, summary in results:
            response = self._response_of_result(summary)
            if response is not None and self._chain.is_in_tree(node):
                response.results.append(node)
                response.is_scattered = True
        for node in self._results_on_path:
            response = self._response_of_result(self._chain.summary(node))
            if response is not None:
                response.results.append(node)

    def _key_off_path(self, node: int, summary: LineSummary) -> _Key:
        if summary.response or not self._recovered:
            return summary.response
        # Without an id, an assistant line that is a child of another one can only be guessed to be its shard.
        return next((at for at in self._chain.iter_ancestors(node) if at != node and not self._is_progress(at)), -1)

    def _is_progress(self, node: int) -> bool:
        return self._chain.types[node] == "progress"

    def _response_of_result(self, summary: LineSummary) -> _Response | None:
        return next((self._by_call[call] for call in summary.results if call in self._by_call), None)

    def scattered(self) -> list[_Response]:
        return [response for response in self.responses.values() if response.is_scattered]

    def group(self, response: _Response, on_path: NodeSet) -> list[int]:
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
        # The client drops a shard off the path whose call was never answered, unless the call may still be running.
        is_open = not self._is_followed_by_prompt(response)
        shards = [
            node
            for node in chain.in_order(response.shards)
            if node in on_path or is_open or answered.issuperset(chain.summary(node).calls)
        ]
        return [response.first, *shards, *results]

    def _is_child(self, node: int, response: _Response) -> bool:
        above = self._chain.iter_ancestors(self._chain.parents[node])
        parent = next((at for at in above if not self._is_progress(at)), -1)
        return parent == response.first or parent in response.shards

    def _is_followed_by_prompt(self, response: _Response) -> bool:
        # The output of a local command is sent like a prompt, but the calls before it may still be running.
        return any(at > response.last_position and self._chain.facts(node).is_turn for at, node in self._prompts[::-1])
