"""Shards and results of one response that hang beside the path.

The client writes each block of a response as a line of its own (a shard), and each result as a child of the shard with
its call. The next turn hangs on the result written last, so going up from a leaf passes by the other results, and by
shards behind the one it comes to. They are put back behind the last shard on the path: shards, then results, each in
file order. Shards know each other by the id of their response; without one, the client finds nothing, and only a
recovered reading does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from msgspec import Struct

from sessiontree.dialects.claude.chain import Chain

# A shard that lost its parent is looked for among so many lines of the path on either side of it in the file.
_NEIGHBOURS = 16

_LEVELS_AHEAD = 3


class _Response(Struct):
    """The lines of one response: where its shards stand on the path, and what was found beside it."""

    shards: list[int]
    """Positions on the path, ascending."""

    off_shards: list[int]
    off_results: list[int]


class Beside:
    """The search for what hangs beside one path."""

    def __init__(self, chain: Chain, path: Sequence[int], eligible: set[int] | None, recovered: bool) -> None:
        self.chain = chain
        self.path = path
        self.position = dict(zip(path, range(len(path)), strict=True))
        self.recovered = recovered
        self.responses: dict[object, _Response] = {}
        self._eligible = eligible
        self._branches = self._find_branches()
        """The lines beside the path that hang on each line, in file order: nearly all lines have none."""

    def _find_branches(self) -> dict[int, list[int]]:
        parents = self.chain.parents
        off_path = set(range(min(self.path, default=0), len(parents))).difference(self.position)
        found: dict[int, list[int]] = {}
        for node in sorted(off_path):
            parent = parents[node]
            if parent is not None and self._may_use(node):
                found.setdefault(parent, []).append(node)
        return found

    def _may_use(self, node: int) -> bool:
        return self._eligible is None or node in self._eligible

    def collect(self) -> None:
        """Find everything that belongs to a response on the path."""
        starts = sorted(self.position[node] for node in self._branches.keys() & self.position.keys())
        self._load_ahead(starts)
        for at in starts:
            self._follow(at, self.path[at])
        for node in self._lost_shards():
            client = self._position_of_response(node)
            if client is not None:
                self._take_shard(client, node)

    def _load_ahead(self, starts: Sequence[int]) -> None:
        """Read in one go what will be asked about: what hangs on the path, and the lines around those places."""
        wanted: set[int] = set()
        level = [self.path[at] for at in starts]
        for at in starts:
            wanted.update(self.path[max(0, at - 1) : at + 4])
        for _ in range(_LEVELS_AHEAD):
            level = [child for node in level for child in self._branches.get(node, ())]
            wanted.update(level)
        self.chain.prepare_speech(sorted(wanted))

    def _follow(self, at: int, node: int) -> None:
        """Look at what hangs on a line of the path."""
        for child in self._iter_children(node):
            speech = self.chain.speech(child)
            if speech.is_assistant:
                client = self._shard_near(at, speech.response)
                if client is not None:
                    self._take_shard(client, child)
            elif speech.answers and self._is_group(node):
                self._take_result(at, child)
            elif self.chain.types[child] != "message":
                self._follow(at, child)

    def _iter_children(self, node: int) -> Iterator[int]:
        """Lines beside the path that hang on a line; progress between is passed through."""
        pending = self._branches.get(node, [])[::-1]
        while pending:
            child = pending.pop()
            if self.chain.types[child] == "progress":
                pending.extend(reversed(self._branches.get(child, [])))
            elif self.chain.is_link(child):
                yield child

    def _is_group(self, node: int) -> bool:
        speech = self.chain.speech(node)
        return speech.is_assistant and bool(speech.response or self.recovered)

    def _shard_near(self, at: int, response: str) -> int | None:
        """The position of a shard of a response at a line of the path or next to it.

        Without an id, an answer that follows an answer directly is a shard of it, if we may guess.
        """
        if not response:
            here = self.chain.speech(self.path[at])
            return at if self.recovered and here.is_assistant and not here.response else None
        for near in (at, at + 1, at - 1):
            if 0 <= near < len(self.path) and self.chain.speech(self.path[near]).response == response:
                return near
        return next((near for near in reversed(self._run(at)) if self._response_at(near) == response), None)

    def _response_at(self, at: int) -> str:
        return self.chain.speech(self.path[at]).response

    def _run(self, at: int) -> list[int]:
        """Positions around one up to where someone else speaks."""
        positions = [at]
        for step in (-1, 1):
            near = at + step
            while 0 <= near < len(self.path):
                speech = self.chain.speech(self.path[near])
                if speech.is_prompt:
                    break
                positions.append(near)
                if speech.is_assistant and speech.response != self._response_at(at):
                    break
                near += step
        return sorted(positions)

    def _response(self, at: int) -> _Response:
        """The response that a shard on the path is part of."""
        name = self._response_at(at)
        key: object = name or self.path[at]
        if key not in self.responses:
            shards = [near for near in self._run(at) if self._response_at(near) == name] if name else [at]
            self.responses[key] = _Response(shards, [], [])
        return self.responses[key]

    def _take_shard(self, at: int, node: int) -> None:
        response = self._response(at)
        if node in response.off_shards:
            return
        response.off_shards.append(node)
        pending = [node]
        while pending:
            shard = pending.pop()
            for child in self._iter_children(shard):
                speech = self.chain.speech(child)
                if speech.answers:
                    self._take_result(at, child)
                    if self._response_at(at):  # without an id, what follows a result may be the next turn
                        pending.append(child)
                elif speech.is_assistant:
                    if speech.response == self._response_at(at) and child not in response.off_shards:
                        response.off_shards.append(child)
                        pending.append(child)
                elif self.chain.types[child] != "message":
                    pending.append(child)

    def _take_result(self, at: int, node: int) -> None:
        results = self._response(at).off_results
        if node not in results:
            results.append(node)

    def _lost_shards(self) -> list[int]:
        """Lines beside the path whose parents are missing."""
        orphans = [problem.node for problem in self.chain.tree.problems() if problem.kind == "missing-parent"]
        return [
            node for node in orphans if node not in self.position and self.chain.is_link(node) and self._may_use(node)
        ]

    def _position_of_response(self, node: int) -> int | None:
        response = self.chain.speech(node).response
        if not response:
            return None
        in_file_order = sorted(self.path)
        middle = bisect_left(in_file_order, node)
        near = in_file_order[max(0, middle - _NEIGHBOURS) : middle + _NEIGHBOURS]
        return next((self.position[other] for other in near if self.chain.speech(other).response == response), None)


def with_siblings(chain: Chain, path: Sequence[int], eligible: set[int] | None, recovered: bool) -> list[int]:
    """A path with the shards and results that belong to it put in their places.

    `eligible` are the only lines that may be used, where not all may.
    """
    beside = Beside(chain, path, eligible, recovered)
    beside.collect()
    before = list(path)
    behind: list[int] = []  # from the end, so that each line is moved once
    for response in sorted(beside.responses.values(), key=lambda response: -response.shards[-1]):
        first = _place(chain, before, response)
        behind += reversed(before[first:])
        del before[first:]
    return before + behind[::-1]


def _place(chain: Chain, path: list[int], response: _Response) -> int:
    """Put what was found behind the last shard on the path, in order with the shards and results that stand there.

    Gives the position from which the path has changed.
    """
    last = response.shards[-1]
    first = last
    while first - 1 in response.shards:
        first -= 1
    shard_nodes = {path[at] for at in response.shards}
    calls = {call for node in [*shard_nodes, *response.off_shards] for call in chain.speech(node).calls}
    end = last + 1
    while end < len(path) and calls.intersection(chain.speech(path[end]).answers):
        end += 1
    standing = path[last + 1 : end]
    answered = {answer for node in path[response.shards[0] : end] for answer in chain.speech(node).answers}
    earlier = {answer: node for node in reversed(standing) for answer in chain.speech(node).answers}
    results = list(standing)
    taken: set[str] = set()
    for node in sorted(response.off_results):
        answers = set(chain.speech(node).answers)
        is_second = any(
            answer in taken or (answer in answered and earlier.get(answer, -1) < node) for answer in answers
        )
        if not is_second:
            taken |= answers
            results.append(node)
    answered |= taken
    shards = [node for node in response.off_shards if answered.issuperset(chain.speech(node).calls)]
    path[first:end] = [*sorted([*path[first : last + 1], *shards]), *sorted(results)]
    return first
