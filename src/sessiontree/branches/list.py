"""List the branches of a session: tip, name, distance from the active one."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from sessiontree.branches.context_sizes import ContextSizes
from sessiontree.branches.merge_records import find_merges
from sessiontree.branches.tips import find_linked_tips, tip_of
from sessiontree.core.entries import MESSAGE_TYPES
from sessiontree.dialects.contract import HistoryLinks, is_metadata_id
from sessiontree.session.history import history_links, history_nodes
from sessiontree.session.reader import Reader


class Distance(Struct, frozen=True):
    """Number of entries and messages of a branch after the common ancestor."""

    entries: int
    messages: int


class BranchFacts(Struct, frozen=True):
    """A branch as `branches` lists it: its name, and how far it is from the active one."""

    leaf: str
    name: str | None
    """Label of its tip, else the last label on the entries that only this branch has.

    A summary that the client wrote for the end of a branch counts as a label.
    """
    is_active: bool
    ahead: Distance
    """Entries that only this branch has, as in git."""
    behind: Distance
    """Entries that only the active branch has."""
    ancestor: str | None
    """The last entry that both have."""
    last_time: str
    tokens: int
    """Size of its context."""
    merged_into: tuple[str, ...] = ()
    """Merge entries that merged it into other branches."""


def list_branches(session: Reader) -> list[BranchFacts]:
    """List all branches, the active one first, then the newest. The tip of a branch is its last message."""
    ours = history_nodes(session, session.leaf)
    active = tip_of(session, ours)
    links = history_links(session)
    tips = find_linked_tips(session, links)
    if active is not None and active not in tips:
        tips.append(active)  # the current entry is in the middle of a branch
    labels = {**session.client_notes.branch_summaries, **session.labels}
    comparison: _LinkComparison | _HistoryComparison
    if links is None:
        comparison = _HistoryComparison(session, ours, labels)
    else:
        comparison = _LinkComparison(session, ours, labels, links)
    sizes = ContextSizes(session, links)
    merged_into = _merged_into(session)
    ids = session.journal.tree.ids
    found = [
        BranchFacts(
            leaf=ids[tip],
            name=(apart := comparison.compare(tip, is_active=tip == active)).name,
            is_active=tip == active,
            ahead=apart.ahead,
            behind=apart.behind,
            ancestor=apart.ancestor,
            last_time=apart.last_time,
            tokens=sizes.tokens(tip),
            merged_into=tuple(merged_into.get(ids[tip], ())),
        )
        for tip in tips
    ]
    newest_first = sorted(found, key=lambda branch: branch.last_time, reverse=True)
    return sorted(newest_first, key=lambda branch: not branch.is_active)


def _merged_into(session: Reader) -> dict[str, list[str]]:
    """By the tip of a branch: the merges that merged it into others."""
    found: dict[str, list[str]] = {}
    for id, record in find_merges(session).items():
        if record.session is None:
            found.setdefault(record.entry, []).append(id)
    return found


class _Apart(Struct, frozen=True):
    """How a branch differs from the active one."""

    ahead: Distance
    behind: Distance
    ancestor: str | None
    name: str | None
    last_time: str


class _HistoryComparison:
    """Compares branches by their histories, for formats in which those are not simply paths."""

    def __init__(self, session: Reader, ours: Sequence[int], labels: Mapping[str, str]) -> None:
        self._session = session
        self._ours = ours
        self._labels = labels
        self._is_ours = bytearray(len(session.journal))
        for node in ours:
            self._is_ours[node] = True

    def compare(self, tip: int, *, is_active: bool) -> _Apart:
        journal = self._session.journal
        ids = journal.tree.ids
        # In conversation order, not tree order: a line after preserved ones follows their compaction.
        find = self._session.dialect.find_history
        history = self._ours if is_active else find(journal, tip, self._session.read_options)
        history = history[: history.index(tip) + 1]
        theirs, mine = self._is_ours, bytearray(len(journal))
        for node in history:
            mine[node] = True
        alone = [node for node in history if not theirs[node]]
        shared = (ids[node] for node in reversed(history) if theirs[node] and not is_metadata_id(ids[node]))
        labelled = (ids[node] for node in reversed(history if is_active else alone) if ids[node] in self._labels)
        name = self._labels.get(ids[tip]) or next((self._labels[id] for id in labelled), None)
        return _Apart(
            ahead=_distance(self._session, alone),
            behind=_distance(self._session, [node for node in self._ours if not mine[node]]),
            ancestor=next(shared, None),
            name=name,
            last_time=_last_time(self._session, history),
        )


def _distance(session: Reader, nodes: Sequence[int]) -> Distance:
    types = session.journal.types
    return Distance(len(nodes), sum(types[node] in MESSAGE_TYPES for node in nodes))


def _last_time(session: Reader, history: Sequence[int]) -> str:
    for node in reversed(history):
        (entry,) = session.journal.entries([node])
        if entry.timestamp:
            return entry.timestamp
    return session.header.timestamp


class _Fork(Struct, frozen=True):
    """What a path has after it left the active one."""

    entries: int
    messages: int
    ancestor: int | None
    """The last entry on the active path."""
    label: str | None
    """The last label since then."""


class _LinkComparison:
    """Compares branches by links: facts about a parent apply to all branches below it, and are computed once."""

    def __init__(self, session: Reader, ours: Sequence[int], labels: Mapping[str, str], links: HistoryLinks) -> None:
        self._session = session
        self._ours = ours
        self._labels = labels
        self._parents = links.parents
        leaf = session.node_of(session.leaf)
        path = [] if leaf is None else links.history(leaf)
        # Arrays: those of half a million entries take 4 MB, a dict and a list of numbers 50.
        self._positions = array("i", [-1]) * len(session.journal)
        """By node: its position on the active path; -1 if it is not on it."""
        for at, node in enumerate(path):
            self._positions[node] = at
        types = session.journal.types
        self._messages = array("i", [0, *accumulate(types[node] in MESSAGE_TYPES for node in path)])
        """By position on the active path: the number of messages before it."""
        self._forks: dict[int, _Fork] = {}
        self._times: dict[int, str] = {}
        ids = session.journal.tree.ids
        labelled = (self._labels[ids[node]] for node in reversed(ours) if ids[node] in labels)
        self._active_label = next(labelled, None)

    def compare(self, tip: int, *, is_active: bool) -> _Apart:
        ids = self._session.journal.tree.ids
        fork = self._fork(tip)
        shared = 0 if fork.ancestor is None else self._positions[fork.ancestor] + 1
        missing = Distance(len(self._messages) - 1 - shared, self._messages[-1] - self._messages[shared])
        if is_active:
            missing = _distance(self._session, self._ours[self._ours.index(tip) + 1 :])
        return _Apart(
            ahead=Distance(fork.entries, fork.messages),
            behind=missing,
            ancestor=self._find_ancestor(fork.ancestor),
            name=self._labels.get(ids[tip]) or (self._active_label if is_active else fork.label),
            last_time=self._last_time(tip),
        )

    def _find_ancestor(self, node: int | None) -> str | None:
        """The id of an entry, or of the nearest one before it that is part of the tree."""
        ids = self._session.journal.tree.ids
        while node is not None and is_metadata_id(ids[node]):
            node = self._parents[node]
        return None if node is None else ids[node]

    def _fork(self, tip: int) -> _Fork:
        journal = self._session.journal
        walked: list[int] = []
        node: int | None = tip
        while node is not None and self._positions[node] < 0 and node not in self._forks:
            walked.append(node)
            node = self._parents[node]
        known = self._forks.get(node) if node is not None else None
        fork = known or _Fork(0, 0, node, None)
        for node in reversed(walked):
            label = self._labels.get(journal.tree.ids[node]) or fork.label
            messages = fork.messages + (journal.types[node] in MESSAGE_TYPES)
            fork = self._forks[node] = _Fork(fork.entries + 1, messages, fork.ancestor, label)
        return fork

    def _last_time(self, tip: int) -> str:
        """The time of the last entry of a path that has one."""
        walked: list[int] = []
        node: int | None = tip
        time = ""
        while node is not None and not time:
            if node in self._times:
                time = self._times[node]
                break
            walked.append(node)
            (entry,) = self._session.journal.entries([node])
            time, node = entry.timestamp, self._parents[node]
        time = time or self._session.header.timestamp
        self._times.update(dict.fromkeys(walked, time))
        return time
