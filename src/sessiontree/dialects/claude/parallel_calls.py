"""Shards and results of parallel tool calls that a plain walk misses.

The client writes each block of a response as a line of its own (a shard), and each result as a child of the shard with
its call. The next turn is a child of the result written last. So a walk up from a leaf misses the other results, and
the shards after the one it arrives at.

The client (about 2.1.8x and newer) restores them by `message.id`. The response's shards off the path, and the results
whose parent is one of its shards, are inserted after the last shard on the path: shards in their order, then results in
file order (measured; its SDK sorts by time). Of two results for one call the first is kept. A shard off the path whose
call has no result is dropped once a prompt follows: until then the call may still be running. Without a `message.id`
the client finds none of them; `ReadOptions.recovered` does.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from msgspec import Struct

from sessiontree.dialects.claude.chain import Chain

_NEIGHBORS = 16
"""Number of lines of the path on either side, in file order, to search for the response of an orphaned shard."""

_LEVELS_AHEAD = 3
_OFF_PATH = -1


class _Response(Struct):
    """The lines of one response."""

    shards: list[int]
    """The positions of its shards on the path, ascending."""

    off_path_shards: list[int]
    off_path_results: list[int]


class _ParallelLines:
    """Finds the lines off one path that belong to a response on it."""

    def __init__(self, chain: Chain, path: Sequence[int], eligible: set[int] | None, recovered: bool) -> None:
        self.responses: dict[object, _Response] = {}
        self._chain = chain
        self._path = path
        self._positions = array("q", [_OFF_PATH]) * len(chain)
        """The position of each line on the path. A path can have half a million lines: an array needs little memory."""
        for at, node in enumerate(path):
            self._positions[node] = at
        self._recovered = recovered
        self._eligible = eligible
        self._off_path_children = self._find_off_path_children()
        """The children off the path of each line, in file order. Nearly all lines have none."""

    def _find_off_path_children(self) -> dict[int, list[int]]:
        parents, positions = self._chain.parents, self._positions
        found: dict[int, list[int]] = {}
        for node in range(min(self._path, default=0), len(parents)):
            if positions[node] != _OFF_PATH:
                continue
            parent = parents[node]
            if parent is not None and self._is_eligible(node):
                found.setdefault(parent, []).append(node)
        return found

    def _is_eligible(self, node: int) -> bool:
        return self._eligible is None or node in self._eligible

    def collect(self) -> None:
        """Find all lines off the path that belong to a response on it."""
        forks = (self._positions[node] for node in self._off_path_children)
        starts = sorted(at for at in forks if at != _OFF_PATH)
        self._load_ahead(starts)
        for at in starts:
            self._follow(at, self._path[at])
        for node in self._orphaned_lines():
            shard = self._find_response_near(node)
            if shard is not None:
                self._add_shard(shard, node)

    def _load_ahead(self, starts: Sequence[int]) -> None:
        # Read everything needed in one batch: the children off the path, and the path around them.
        wanted: set[int] = set()
        level = [self._path[at] for at in starts]
        for at in starts:
            wanted.update(self._path[max(0, at - 1) : at + 4])
        for _ in range(_LEVELS_AHEAD):
            level = [child for node in level for child in self._off_path_children.get(node, ())]
            wanted.update(level)
        self._chain.load_summaries(sorted(wanted))

    def _follow(self, at: int, node: int) -> None:
        """Collect the children of a line; `at` is the position on the path that they branch off."""
        for child in self._iter_children(node):
            summary = self._chain.summary(child)
            if summary.is_assistant:
                shard = self._find_shard_near(at, summary.response)
                if shard is not None:
                    self._add_shard(shard, child)
            elif summary.results and self._can_have_results(node):
                self._add_result(at, child)
            elif self._chain.types[child] != "message":
                self._follow(at, child)  # an attachment or a system line between a shard and the next one

    def _iter_children(self, node: int) -> Iterator[int]:
        """Iterate over the children of a line off the path, passing through progress lines."""
        pending = self._off_path_children.get(node, [])[::-1]
        while pending:
            child = pending.pop()
            if self._chain.types[child] == "progress":
                pending.extend(reversed(self._off_path_children.get(child, [])))
            elif self._chain.is_link(child):
                yield child

    def _can_have_results(self, node: int) -> bool:
        summary = self._chain.summary(node)
        return summary.is_assistant and bool(summary.response or self._recovered)

    def _find_shard_near(self, at: int, response: str) -> int | None:
        """Return the position of a shard of a response at a position of the path or around it."""
        if not response:
            # Without an id, an assistant line that is a child of another one can only be guessed to be its shard.
            here = self._chain.summary(self._path[at])
            return at if self._recovered and here.is_assistant and not here.response else None
        for near in (at, at + 1, at - 1):  # nearly always the case
            if 0 <= near < len(self._path) and self._response_at(near) == response:
                return near
        return next((near for near in reversed(self._turn_around(at)) if self._response_at(near) == response), None)

    def _response_at(self, at: int) -> str:
        return self._chain.summary(self._path[at]).response

    def _turn_around(self, at: int) -> list[int]:
        """Return the positions around one up to a prompt, or to a shard of another response, on either side."""
        positions = [at]
        for step in (-1, 1):
            near = at + step
            while 0 <= near < len(self._path):
                summary = self._chain.summary(self._path[near])
                if summary.is_prompt:
                    break
                positions.append(near)
                if summary.is_assistant and summary.response != self._response_at(at):
                    break
                near += step
        return sorted(positions)

    def _response(self, at: int) -> _Response:
        id = self._response_at(at)
        key: object = id or self._path[at]
        if key not in self.responses:
            shards = [near for near in self._turn_around(at) if self._response_at(near) == id] if id else [at]
            self.responses[key] = _Response(shards, [], [])
        return self.responses[key]

    def _add_shard(self, at: int, node: int) -> None:
        """Add a shard off the path, and the shards and results below it."""
        response = self._response(at)
        if node in response.off_path_shards:
            return
        response.off_path_shards.append(node)
        pending = [node]
        while pending:
            shard = pending.pop()
            for child in self._iter_children(shard):
                summary = self._chain.summary(child)
                if summary.results:
                    self._add_result(at, child)
                    if self._response_at(at):  # without an id, what follows a result may be the next turn
                        pending.append(child)
                elif summary.is_assistant:
                    if summary.response == self._response_at(at) and child not in response.off_path_shards:
                        response.off_path_shards.append(child)
                        pending.append(child)
                elif self._chain.types[child] != "message":
                    pending.append(child)

    def _add_result(self, at: int, node: int) -> None:
        results = self._response(at).off_path_results
        if node not in results:
            results.append(node)

    def _orphaned_lines(self) -> list[int]:
        """Return the links off the path whose parents are missing: one may be a shard that lost the one before it."""
        orphans = [problem.node for problem in self._chain.tree.problems() if problem.kind == "missing-parent"]
        return [
            node
            for node in orphans
            if self._positions[node] == _OFF_PATH and self._chain.is_link(node) and self._is_eligible(node)
        ]

    def _find_response_near(self, node: int) -> int | None:
        """Return the position of a line of the path near in the file that is a shard of the same response."""
        response = self._chain.summary(node).response
        if not response:
            return None
        in_file_order = sorted(self._path)
        middle = bisect_left(in_file_order, node)
        near = in_file_order[max(0, middle - _NEIGHBORS) : middle + _NEIGHBORS]
        return next((self._positions[other] for other in near if self._chain.summary(other).response == response), None)


def insert_parallel_lines(chain: Chain, path: Sequence[int], eligible: set[int] | None, recovered: bool) -> list[int]:
    """Return a path with the missed shards and results of its responses inserted.

    `eligible` are the only lines that may be used, where not all may (see `boundaries`).
    """
    search = _ParallelLines(chain, path, eligible, recovered)
    search.collect()
    before = list(path)
    after: list[int] = []  # filled from the end, so that each line is moved only once
    is_open = True
    """Whether no prompt follows the response."""
    end = len(path)
    for response in sorted(search.responses.values(), key=lambda response: -response.shards[-1]):
        last = response.shards[-1]
        is_open = is_open and not any(chain.summary(path[at]).is_prompt for at in range(last + 1, end))
        end = last + 1
        first = _insert(chain, before, response, is_open)
        after += reversed(before[first:])
        del before[first:]
    return before + after[::-1]


def _insert(chain: Chain, path: list[int], response: _Response, is_open: bool) -> int:
    """Insert the lines of a response after its last shard on the path; return the first position that changed."""
    last = response.shards[-1]
    first = last
    while first - 1 in response.shards:
        first -= 1
    shard_nodes = {path[at] for at in response.shards}
    calls = {call for node in [*shard_nodes, *response.off_path_shards] for call in chain.summary(node).calls}
    end = last + 1
    while end < len(path) and calls.intersection(chain.summary(path[end]).results):
        end += 1
    on_path = path[last + 1 : end]
    answered = {call for node in path[response.shards[0] : end] for call in chain.summary(node).results}
    first_result = {call: node for node in reversed(on_path) for call in chain.summary(node).results}
    results = list(on_path)
    added: set[str] = set()
    for node in chain.in_order(response.off_path_results):
        node_calls = set(chain.summary(node).results)
        is_duplicate = any(
            call in added or (call in answered and first_result.get(call, -1) < node) for call in node_calls
        )
        if not is_duplicate:
            added |= node_calls
            results.append(node)
    answered |= added
    # The client drops a shard off the path whose call was never answered, unless the call may still be running.
    shards = [node for node in response.off_path_shards if is_open or answered.issuperset(chain.summary(node).calls)]
    path[first:end] = [*chain.in_order([*path[first : last + 1], *shards]), *chain.in_order(results)]
    return first
