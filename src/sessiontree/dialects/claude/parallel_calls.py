"""Shards and results of parallel tool calls that a walk up the parents misses.

The client writes each block of a response as a line of its own (a shard), and each result as a child of the shard with
its call. The next turn is a child of the result that was written last. So a walk up from a leaf misses the other
results, and the shards below the one that it arrives at.

Clients since about 2.1.8x restore these lines by id, wherever they are in the file. As measured with 2.1.325:

* All lines with the `message.id` of a response on the path are its shards.
* The results of their calls are the children of these shards; for a call without one, any line with its id. Of several
  results for one call, the first is kept.
* Lines on the path keep their order. The others are inserted between them in file order (the client's SDK sorts by
  time), from the first shard on the path on. Results that follow neither a shard nor a result of the response come
  last. In a response that starts inside another one, an inserted line can also precede the first shard on the path.
  A prompt or a boundary that follows the shards on the path is also after the inserted lines.
* Results on the path stay where they are, and are sent only if they directly follow their response: an answer that is
  not sent may be between the two. The exception are results before it, with no prompt between the two: they are sent
  after it.
* Without a `message.id`, the client finds none of these lines; `ReadOptions.recovered` does.

`shard_order` then puts the shards of each response together. `open_calls` has the rule for calls without a result, and
`loose_lines` the one for the client's notes in a response.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from sessiontree.core.tree import NodeSet
from sessiontree.dialects.claude.boundaries import LoadedLines
from sessiontree.dialects.claude.chain import LINK_TYPES, MAX_SEARCHES, Chain
from sessiontree.dialects.claude.index import LineSummary
from sessiontree.dialects.claude.loose_lines import Links, find_loose_lines, is_note, parent_of
from sessiontree.dialects.claude.shard_order import ShardSpan, is_settled

_Key: TypeAlias = str | int
"""The id of a response; a shard's node where it has none."""

_SHORT = 16
"""A path of less than one line in so many is short: an index finds its lines faster than a search of the file."""

_BLOCK = 512
"""Number of lines of a path that are searched at once for their latest line."""

_TYPES = LINK_TYPES - {"compaction"}


class _Response(Struct):
    """The lines of one response that has some of them off the path, or another turn between its shards."""

    first: int
    """Its first shard on the path."""
    shards: list[int]
    """Its other shards."""
    results: list[int]
    on_path: list[int]
    """The lines on the path, in its order: shards, results, and the notes after them."""
    has_calls: bool = False
    apart: list[int] = []
    """The results on the path that are not together with the response. Loose lines after them are."""


class GatheredPath(Struct, frozen=True):
    """A path with the missed lines of its responses, before the shards of each are put together."""

    nodes: list[int]
    spans: list[ShardSpan] = []

    def since(self, node: int) -> GatheredPath:
        """Return the part of the path that starts with a line."""
        start = self.nodes.index(node)
        spans = [
            ShardSpan(max(span.start - start, 0), span.end - start, span.shards)
            for span in self.spans
            if span.end > start
        ]
        return GatheredPath(self.nodes[start:], spans)


class _Span(Struct):
    """A part of the path with the lines of one response, or of several that overlap."""

    start: int
    end: int
    missed: list[tuple[int, int, list[int]]] = []
    """The missed lines of each response that are inserted in file order, and the positions from and up to which."""
    at_end: dict[int, list[int]] = {}
    """By position on the path: the other missed lines before it."""
    after_notes: dict[int, list[int]] = {}
    """The loose lines after notes on the path."""
    shards: dict[int, int] = {}
    """The first shards of their responses."""


def insert_parallel_lines(chain: Chain, path: Sequence[int], eligible: LoadedLines, recovered: bool) -> GatheredPath:
    """Return a path with the missed shards and results of its responses inserted.

    `eligible` are the only lines that may be used (see `boundaries`).
    """
    on_path: Container[int]
    all_eligible = not eligible.start
    # A history has a path for each compaction. Searching the file for each of them takes too long if they are many.
    if len(path) < len(chain) // _SHORT and chain.count_search() > MAX_SEARCHES:
        on_path = frozenset(path)
        index = chain.once(_RecoveredIndex if recovered else _ParallelIndex)
        off_path = [
            node for node in index.find_lines(chain, path) if node not in on_path and (all_eligible or node in eligible)
        ]
    else:
        on_path = NodeSet(len(chain), path)
        is_on_path = on_path.flags
        off_path = [
            node
            for node, kind in enumerate(chain.types)
            if not is_on_path[node] and kind in _TYPES and (all_eligible or node in eligible)
        ]
    search = _ParallelLines(chain, path, on_path, off_path, eligible.links, recovered)
    responses = search.find_responses()
    return search.join(responses) if responses else GatheredPath(list(path))


class _ParallelLines:
    """Collects the lines of the responses on one path that are not together on it.

    Nearly all responses of a long path are, so everything but the first pass is limited to the others.
    """

    def __init__(
        self,
        chain: Chain,
        path: Sequence[int],
        on_path: Container[int],
        off_path: Sequence[int],
        links: Links,
        recovered: bool,
    ) -> None:
        self._chain = chain
        self._path = path
        self._on_path = on_path
        loose = find_loose_lines(chain, off_path, links)
        self._loose = loose.rows
        self._followers = loose.followers
        self._inserted: set[int] = set()
        """The lines off the path that are sent with the responses up to one, as long as there are loose lines."""
        self._links = links
        self._recovered = recovered
        self._turns: dict[int, int | None] = {}
        """Notes -> the shard or result that they follow. A path can have thousands of them in a row."""
        self._bridged: dict[int, int] | None = None
        """Lines on the path without a parent -> the line above them on the path."""
        self._blocks: dict[int, int] = {}
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
        calls = {call for _, key, summary in self._iter_answers() if key in keys for call in summary.calls}
        by_shard: dict[int, _Response] = {}
        for node, key, summary in self._iter_answers():
            response = responses.get(key)
            if response is not None:
                response.shards.append(node)
            elif key in keys:
                responses[key] = response = _Response(node, [], [], [])
            if response is not None:
                by_shard[node] = response
                if summary.calls:
                    response.has_calls = True
            # Branches can have calls with the same id: the first one on the path counts.
            for call in summary.calls:
                if call in calls:
                    owners.setdefault(call, response)
        for node, key, summary in self._shards_off_path:
            response = responses.get(key)
            if response is not None:
                response.shards.append(node)
                response.has_calls = response.has_calls or bool(summary.calls)
                for call in summary.calls:
                    owners.setdefault(call, response)
                if not summary.response:
                    responses[node] = response
        self._add_results(by_shard, owners)
        return list({response.first: response for response in responses.values()}.values())

    def _iter_answers(self) -> Iterator[tuple[int, _Key, LineSummary]]:
        """Iterate over the shards on the path. They are not kept: a long path has hundreds of thousands."""
        for node, summary in _iter_summaries(self._chain, self._path):
            if summary.is_assistant:
                yield node, self._key(node, summary), summary

    def _find_keys(self) -> set[_Key]:
        """Return the responses on the path with lines off it, or with another turn between their shards."""
        chain, summaries, types = self._chain, self._chain.summaries, self._chain.types
        shards = {key for _, key, _ in self._shards_off_path}
        # Results name a call, not a response: which response has the call is only known on the path.
        answered = {
            call for node, summary in self._results_off_path if chain.is_in_tree(node) for call in summary.results
        }
        for turn in map(self._turn_before, self._loose):
            if turn is not None:
                before = chain.summary(turn)
                answered.update(before.results)
                # A child of a shard belongs to its response, whatever call it has the result of.
                shard = turn if before.is_assistant else parent_of(chain, turn, self._links)
                if shard is not None and chain.summary(shard).is_assistant:
                    shards.add(self._key(shard, chain.summary(shard)))
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

    def _add_results(self, by_shard: dict[int, _Response], owners: dict[str, _Response | None]) -> None:
        for node, summary in self._results_off_path:
            response = _owner_of_result(owners, summary)
            if response is not None and self._chain.is_in_tree(node):
                response.results.append(node)
        chain, summaries, types = self._chain, self._chain.summaries, self._chain.types
        last_answer: _Response | None = None
        """The response that the next results may be together with: neither a prompt nor a boundary is between them."""
        member: _Response | None = None
        """The response that the next notes belong to."""
        for node in self._path:  # a hot loop
            if types[node] != "message":
                if types[node] == "compaction":
                    member = last_answer = None
                elif member is not None:
                    member.on_path.append(node)
                continue
            summary = summaries[node] or chain.summary(node)
            if summary.is_assistant:
                last_answer = member = by_shard.get(node)
            elif summary.results:
                owner = _owner_of_result(owners, summary)
                member = owner if owner is last_answer else None
                if member is not None:
                    member.results.append(node)
                elif owner is not None:
                    owner.apart.append(node)
                elif last_answer is not None and self._is_child(node, last_answer):
                    member = last_answer
            elif last_answer is not None and not is_note(chain, node):
                member = last_answer = None
            if member is not None:
                member.on_path.append(node)

    def _turn_before(self, node: int) -> int | None:
        """Return the shard or result that loose lines belong to; none if they follow others off the path."""
        at: int | None = node
        notes: list[int] = []
        while at is not None and is_note(self._chain, at):
            if at in self._turns:
                at = self._turns[at]
                break
            notes.append(at)
            at = self._parent_on_path(at) if at in self._on_path else None
        self._turns.update(dict.fromkeys(notes, at))
        return at

    def _parent_on_path(self, node: int) -> int | None:
        """Return the parent of a line on the path; where it is missing, the line that the path continues with."""
        parent = parent_of(self._chain, node, self._links)
        if parent is not None:
            return parent
        if self._bridged is None:
            steps = zip(self._path[1:], self._path, strict=False)
            self._bridged = {
                child: above for child, above in steps if parent_of(self._chain, child, self._links) is None
            }
        return self._bridged.get(node)

    def _key(self, node: int, summary: LineSummary) -> _Key:
        return _key_of(node, summary, self._recovered)

    def _key_off_path(self, node: int, summary: LineSummary) -> _Key:
        return _key_off_path(self._chain, node, summary, self._recovered)

    def join(self, responses: Sequence[_Response]) -> GatheredPath:
        """Return the path with the missed lines of some responses inserted."""
        path = self._path
        ends = {node for response in responses for node in (response.first, response.on_path[-1])}
        places = {node: at for at, node in enumerate(path) if node in ends}
        joined: list[int] = []
        found: list[ShardSpan] = []
        done = 0
        for span in self._iter_spans(responses, places):
            joined += path[done : span.start]
            start = len(joined)
            joined += self._join_span(span)
            shards = ShardSpan(start, len(joined), span.shards)
            if not is_settled(self._chain, joined, shards):  # a long session has many thousands that are
                found.append(shards)
            done = span.end
        joined += path[done:]
        return GatheredPath(joined, found)

    def _iter_spans(self, responses: Sequence[_Response], places: dict[int, int]) -> Iterator[_Span]:
        span: _Span | None = None
        for response in responses:  # in the order of the path, so those that overlap follow each other
            start, end = places[response.first], places[response.on_path[-1]] + 1
            if span is not None and start >= span.end:
                yield span
                span = None
            span = span or _Span(start, end)
            self._add_to_span(span, response, start, end)
        if span is not None:
            yield span

    def _add_to_span(self, span: _Span, response: _Response, start: int, end: int) -> None:
        span.end = max(span.end, end)
        results = self._select_results(response)
        elsewhere = self._find_results_elsewhere(response, results)
        span.at_end.setdefault(end, []).extend(elsewhere)
        lines = (*response.shards, *results)
        missed = [node for node in lines if node not in self._on_path and node not in elsewhere]
        if self._loose:
            self._inserted.update(missed, elsewhere)
        if response.has_calls and self._loose:
            # A result that is not used belongs to another response whose call has the same id, with its notes.
            of_others = self._find_results_elsewhere(response, response.results).keys() - set(results)
            own = [node for node in response.results if node not in of_others]
            members = dict.fromkeys([response.first, *response.shards, *own, *response.apart])
            missed += [line for node in members for line in self._find_loose(node)]
            notes = (node for node in response.on_path if node not in members)
            span.after_notes.update({node: row for node in notes if (row := self._find_loose(node))})
        span.shards.update(dict.fromkeys((response.first, *response.shards), response.first))
        if missed:
            # Nothing precedes the first line of all, but a missed line can precede the others.
            start = max(start, span.start + 1)
            if span.missed and start < span.missed[-1][1]:
                # The lines of responses that overlap are inserted together: file order decides among all of them.
                first, last, others = span.missed.pop()
                start, end, missed = first, max(last, end), others + missed
            span.missed.append((start, end, missed))

    def _find_loose(self, node: int) -> list[int]:
        """Return the loose lines after a line, without the rows that a line follows which is not sent."""
        return [note for row in self._loose.get(node, ()) if self._is_sent(row) for note in row]

    def _is_sent(self, row: Sequence[int]) -> bool:
        followers = (line for note in row for line in self._followers.get(note, ()))
        return all(line in self._inserted or line in self._on_path for line in followers)

    def _join_span(self, span: _Span) -> list[int]:
        inserted: dict[int, list[int]] = {}
        for start, end, missed in span.missed:
            place = start
            for node in self._chain.in_order(missed):
                place = self._find_later_line(place, end, self._chain.position(node))
                inserted.setdefault(place, []).append(node)
        if len(span.missed) > 1:
            inserted = {place: self._chain.in_order(nodes) for place, nodes in inserted.items()}
        lines: list[int] = []
        for at in range(span.start, span.end + 1):
            lines += (*inserted.get(at, ()), *span.at_end.get(at, ()))
            if at < span.end:
                lines.append(self._path[at])
                lines += span.after_notes.get(self._path[at], ())
        return lines

    def _find_later_line(self, at: int, end: int, position: int) -> int:
        """Return the first position on the path, up to `end`, with a line that is later in the file than another."""
        while at < end:
            # A damaged file can have many responses that each extend over most of the path.
            if at % _BLOCK == 0 and at + _BLOCK <= end and self._last_in_block(at) < position:
                at += _BLOCK
            elif self._chain.position(self._path[at]) > position:
                return at
            else:
                at += 1
        return end

    def _last_in_block(self, at: int) -> int:
        """Return the position in the file of the latest line in a block of the path."""
        if at not in self._blocks:
            self._blocks[at] = max(map(self._chain.position, self._path[at : at + _BLOCK]))
        return self._blocks[at]

    def _select_results(self, response: _Response) -> list[int]:
        """Return the results of a response: of several for one call, those on the path, or else the first."""
        chain, on_path = self._chain, self._on_path
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
        return results

    def _find_results_elsewhere(self, response: _Response, results: Sequence[int]) -> dict[int, None]:
        """Return the results off the path that follow no shard or result of their response."""
        together = {response.first, *response.shards}
        found: dict[int, None] = {}
        for node in self._chain.in_order(results):
            if node in self._on_path or parent_of(self._chain, node, {}) in together:
                together.add(node)
            else:
                found[node] = None
        return found

    def _is_child(self, node: int, response: _Response) -> bool:
        parent = parent_of(self._chain, node, self._links)
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
    parent = parent_of(chain, node, {})
    return -1 if parent is None else parent


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
        self._loose = find_loose_lines(chain, range(len(chain)), {})

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
        if self._loose.rows:
            loose = [line for node in (*path, *found) for row in self._loose.rows.get(node, ()) for line in row]
            found.update(loose, *(self._loose.followers.get(line, ()) for line in loose))
        return sorted(found)


class _RecoveredIndex(_ParallelIndex):
    """The same with guesses about lines without a response id."""

    recovered = True
