"""Find problems in a session: in its lines, its tree, and the content of its entries."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from sessiontree.core.entries import Compaction, Entry, MessageEntry
from sessiontree.core.messages import Assistant, ToolResult, message_text, tool_calls
from sessiontree.core.tree import Tree
from sessiontree.dialects.contract import AS_CLIENT, LineProblem, ReadOptions
from sessiontree.dialects.side_branches import SideBranches
from sessiontree.repair.rules import RULES, Rule, Severity
from sessiontree.session.journal import Journal
from sessiontree.session.line_offsets import LineSpan
from sessiontree.session.reader import Reader
from sessiontree.sources.lines_store import damage_of

_SHOWN_PLACES = 5
_UUID = 36
_BLOAT_SHARE = 0.3
_BLOAT_BYTES = 1_000_000
_STEP = 256


class Finding(Struct, frozen=True):
    """A problem: its rule, how often it occurs, the first places, and its effect."""

    rule: Rule
    count: int
    places: tuple[LineSpan, ...]
    cost: str = ""

    @property
    def severity(self) -> Severity:
        return self.rule.severity


class _ToolPairs:
    """Nodes of calls and results by id, and nodes with truncated texts, in the complete file.

    Stored in columns: a file can have hundreds of thousands of calls.
    """

    def __init__(self) -> None:
        self.cut: list[int] = []
        self._rows: dict[str, int] = {}
        self._calls = array("q")
        """By row: the first node with the call, or -1."""
        self._results = array("q")
        """By row: the first node with a result, or -1."""
        self._more_results: dict[int, list[int]] = {}
        self._responses = array("q")
        """By row: the same number for the calls of one response, whose lines a client may write separately."""

    def _row(self, id: str) -> int:
        row = self._rows.get(id)
        if row is None:
            row = self._rows[id] = len(self._calls)
            self._calls.append(-1)
            self._results.append(-1)
            self._responses.append(-1)
        return row

    def add_call(self, id: str, node: int, response: str | None) -> None:
        row = self._row(id)
        if self._calls[row] < 0:
            self._calls[row] = node
            self._responses[row] = hash(response) if response else node

    def add_result(self, id: str, node: int) -> None:
        row = self._row(id)
        if self._results[row] < 0:
            self._results[row] = node
        else:
            self._more_results.setdefault(row, []).append(node)

    def __iter__(self) -> Iterator[tuple[int | None, list[int]]]:
        """Iterate over the ids: the node of the call, if there is one, and those of its results."""
        for row, (call, result) in enumerate(zip(self._calls, self._results, strict=True)):
            results = [] if result < 0 else [result, *self._more_results.get(row, ())]
            yield None if call < 0 else call, results

    def find_lost(self, tree: Tree, client_path: Sequence[int]) -> list[int]:
        """Find results off a path that has another result of the same response.

        Otherwise the path leaves at the answer, or after one of its results: the others are on the branch that was
        left, as when a user switches to that entry.
        """
        on_path = bytearray(len(tree))
        for node in client_path:
            on_path[node] = True
        off: list[tuple[int, int]] = []
        for response, (call, results) in zip(self._responses, self, strict=True):
            if call is not None and on_path[call] and results and not any(on_path[node] for node in results):
                off.append((response, results[0]))
        shown: dict[int, set[int]] = {response: set() for response, _ in off}
        for response, (_, results) in zip(self._responses, self, strict=True):
            if response in shown:
                shown[response].update(node for node in results if on_path[node])
        parents = tree.parents()
        lost: list[int] = []
        for response, result in off:
            start = parents[result]
            while start is not None and not on_path[start]:
                start = parents[start]
            if shown[response] and start not in shown[response]:
                lost.append(result)
        return sorted(lost)


def examine(session: Reader) -> list[Finding]:
    """Find all problems of a session, losses first. Reads the complete session once; writes nothing."""
    journal = session.journal
    found: list[Finding] = [*_tree_findings(session)]
    pairs, bounds = _read_all(journal)
    client_path = journal.dialect.find_path(journal, _leaf(journal), AS_CLIENT)
    found += _tool_findings(journal, pairs, client_path)
    found += _bound_findings(journal, bounds)
    found += stale_leaf(journal)
    found += _bloat(journal)
    found += _related_files(journal)
    found += _several_sessions(journal)
    found += _title_out_of_sight(journal)
    found += _client_problems(journal)
    reported = {finding.rule.id for finding in found}
    found += [finding for finding in _problem_findings(session) if finding.rule.id not in reported]
    order: dict[Severity, int] = {"loss": 0, "damage": 1, "note": 2}
    return sorted(found, key=lambda finding: (order[finding.severity], finding.rule.id))


def is_damaged(session: Reader) -> bool:
    """Whether a session has findings that are more than notes."""
    return any(finding.severity != "note" for finding in examine(session))


def _finding(rule: str, places: Iterable[LineSpan], cost: str = "") -> Finding:
    listed = list(places)
    return Finding(RULES[rule], len(listed), tuple(listed[:_SHOWN_PLACES]), cost)


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number:,} {singular if number == 1 else plural or f'{singular}s'}"


def _short(session: Reader, id: str) -> str:
    """The beginning of a UUID, enough to find the entry; other ids unchanged."""
    return session.id_prefixes.shortest(id) if len(id) == _UUID else id


def _leaf(journal: Journal) -> int | None:
    return journal.dialect.find_leaf(journal, AS_CLIENT)


def _problem_findings(session: Reader) -> Iterator[Finding]:
    by_kind: dict[str, list[LineSpan]] = {}
    for problem in session.problems:
        by_kind.setdefault(problem.kind, []).append(LineSpan(problem.start, problem.end, problem.line))
    reasons: dict[str, dict[str, None]] = {}
    for fragment in session.fragments:
        if reason := damage_of(fragment.raw):
            reasons.setdefault(fragment.kind, {})[reason] = None
    for kind, places in by_kind.items():
        yield _finding(kind, places, "; ".join([*reasons.get(kind, ())][:_SHOWN_PLACES]))


def _tree_findings(session: Reader) -> Iterator[Finding]:
    """Findings for links that can be repaired, with the number of entries they hide."""
    journal = session.journal
    by_rule: dict[str, list[LineSpan]] = {}
    candidates: dict[str, str] = {}
    for reparenting in journal.dialect.find_reparentings(journal):
        by_rule.setdefault(reparenting.rule, []).append(journal.span(reparenting.node))
        node, parent = (_short(session, journal.tree.ids[number]) for number in (reparenting.node, reparenting.parent))
        candidates.setdefault(reparenting.rule, f"best parent for {node} is {parent}: {reparenting.why}")
    if not by_rule:
        return
    leaf = _leaf(journal)
    client_path = set(journal.dialect.find_path(journal, leaf, AS_CLIENT))
    recovered = journal.dialect.find_path(journal, leaf, ReadOptions(recovered=True))
    hidden = sum(
        1
        for node in recovered
        if node not in client_path and journal.types[node] not in journal.dialect.traits.bookkeeping
    )
    for rule, places in by_rule.items():
        lost = [f"{_count(hidden, 'entry', 'entries')} of the active path unreachable"] if hidden else []
        yield _finding(rule, places, "; ".join([*lost, candidates[rule]]))


def _read_all(journal: Journal) -> tuple[_ToolPairs, list[tuple[int, str]]]:
    """Read every entry. Returns what its calls and results are, and the first kept entry of each compaction."""
    pairs = _ToolPairs()
    bounds: list[tuple[int, str]] = []
    for start in range(0, len(journal), _STEP):
        nodes = range(start, min(start + _STEP, len(journal)))
        for node, entry in zip(nodes, journal.entries(nodes), strict=True):
            _collect(pairs, node, entry, journal.dialect.traits.truncation_notice)
            # A compaction may keep nothing on purpose.
            if isinstance(entry, Compaction) and entry.first_kept_entry_id not in ("", None, entry.id):
                bounds.append((node, entry.first_kept_entry_id))
    return pairs, bounds


def _collect(pairs: _ToolPairs, node: int, entry: Entry, truncation_notice: str) -> None:
    if not isinstance(entry, MessageEntry):
        return
    for message in entry.messages:
        if truncation_notice and message_text(message).endswith(truncation_notice):
            pairs.cut.append(node)
        if isinstance(message, ToolResult):
            pairs.add_result(message.tool_call_id, node)
        if isinstance(message, Assistant):
            for call in tool_calls(message):
                pairs.add_call(call.id, node, message.response_id)


def _tool_findings(journal: Journal, pairs: _ToolPairs, client_path: list[int]) -> Iterator[Finding]:
    orphans = [node for call, results in pairs if call is None for node in results]
    if orphans:
        yield _finding(
            "orphan-tool-result", map(journal.span, orphans), f"{_count(len(orphans), 'result')} without a call"
        )
    if pairs.cut:
        yield _finding("cut-content", map(journal.span, pairs.cut))
    open_calls = [call for call, results in pairs if call is not None and not results]
    if open_calls:
        yield _finding(
            "unanswered-tool-call", map(journal.span, open_calls), f"{_count(len(open_calls), 'call')} unanswered"
        )
    lost = pairs.find_lost(journal.tree, client_path)
    if lost:
        yield _finding("lost-parallel-results", map(journal.span, lost), f"{_count(len(lost), 'result')} off the path")


def _bound_findings(journal: Journal, bounds: list[tuple[int, str]]) -> Iterator[Finding]:
    nodes = {node: journal.tree.node_of.get(bound) for node, bound in bounds}
    on_path = journal.tree.find_ancestors({node: kept for node, kept in nodes.items() if kept is not None})
    dangling = [node for node, _ in bounds if node not in on_path]
    if dangling:
        yield _finding("dangling-bound", map(journal.span, dangling), "the entries to keep are not in the context")


def stale_leaf(journal: Journal) -> Iterator[Finding]:
    """Find a last line that is on another branch than the last message, without a move to that branch after it."""
    trailing_types = journal.dialect.client.trailing_types
    if not trailing_types or not len(journal):
        return
    leaf = _leaf(journal)
    client_path = journal.dialect.find_path(journal, leaf, AS_CLIENT)
    sides = SideBranches(journal)
    messages = (node for node in range(len(journal) - 1, -1, -1) if journal.types[node] == "message")
    newest = next((node for node in messages if not sides.is_outside(node, leaf)), None)
    last = len(journal) - 1
    if newest is None or newest == last or newest in client_path or journal.types[last] not in trailing_types:
        return
    if _was_left(journal, newest, client_path):
        return
    hidden = len(set(journal.tree.path(newest)) - set(client_path))
    yield _finding("stale-leaf", [journal.span(last)], f"{_count(hidden, 'entry', 'entries')} hidden")


def _was_left(journal: Journal, newest: int, client_path: Sequence[int]) -> bool:
    """Whether the last switch after the newest message leads to the path: to one of its entries, or before its root."""
    moves = (node for node in range(len(journal) - 1, newest, -1) if journal.types[node] == "leaf")
    move = next(moves, None)
    if move is None:
        return False
    target = journal.tree.parent(move)
    return client_path[0] >= move if target is None else target in client_path


def _bloat(journal: Journal) -> Iterator[Finding]:
    """Find bookkeeping lines that make up a large part of a large file."""
    sizes: dict[str, int] = {}
    total = journal.size
    if total < _BLOAT_BYTES:
        return
    for node, kind in enumerate(journal.types):
        if kind in _BULKY or kind in journal.dialect.traits.bookkeeping:
            place = journal.span(node)
            sizes[kind] = sizes.get(kind, 0) + place.end - place.start
    for kind, size in sizes.items():
        if size > _BLOAT_SHARE * total:
            places = [journal.span(node) for node, other in enumerate(journal.types) if other == kind]
            yield _finding("bloat", places, f"{kind} lines are {100 * size / total:.0f}% of {total:,} bytes")


def _related_files(journal: Journal) -> Iterator[Finding]:
    """Find related files that are missing or were moved."""
    by_rule: dict[str, list[int]] = {}
    for item in journal.dialect.facts(journal).related_files:
        there = [os.path.isfile(place) for place in item.places]
        if not any(there):
            by_rule.setdefault("missing-subagent" if item.kind == "subagent" else "missing-output", []).append(
                item.node
            )
        elif item.kind == "output" and not there[0]:
            by_rule.setdefault("moved-output", []).append(item.node)
    for rule, nodes in by_rule.items():
        yield _finding(rule, map(journal.span, nodes))


def _several_sessions(journal: Journal) -> Iterator[Finding]:
    ids = journal.dialect.facts(journal).session_ids
    if len(ids) > 1:
        yield _finding("several-sessions", [LineSpan(0, journal.size, 1)], f"lines of {len(ids)} sessions")


def _client_problems(journal: Journal) -> Iterator[Finding]:
    """Find what the client objects to in lines that can be read."""
    by_rule: dict[str, list[LineProblem]] = {}
    for problem in journal.dialect.find_problems(journal):
        by_rule.setdefault(problem.rule, []).append(problem)
    top = journal.header_span or LineSpan(0, 0, 1)
    for rule, problems in by_rule.items():
        places = [top if problem.node is None else journal.span(problem.node) for problem in problems]
        more = f"; and {len(problems) - 1:,} more" if len(problems) > 1 else ""
        yield _finding(rule, places, problems[0].effect + more)


def _title_out_of_sight(journal: Journal) -> Iterator[Finding]:
    """Find a title that is outside the parts of the file where the client looks for it."""
    window, types = journal.dialect.traits.title_window, journal.dialect.traits.title_types
    places = [journal.span(node) for node, kind in enumerate(journal.types) if kind in types]
    if places and all(place.start >= window and place.end <= journal.size - window for place in places):
        yield _finding("title-out-of-sight", places[-1:])


_BULKY = frozenset({"progress", "compaction", "mode_change"})
