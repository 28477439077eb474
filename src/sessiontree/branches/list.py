"""The branches of a session: where each ends, what it is called, how far it is from the active one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from sessiontree.branches.merge_records import Join, find_joins, history_nodes
from sessiontree.branches.tips import SPEAKING, end_of, find_ends
from sessiontree.compaction.token_estimate import context_size
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.reader import Reader


class Distance(Struct, frozen=True):
    """How far one branch goes beyond what it shares with another."""

    entries: int
    messages: int


class BranchFacts(Struct, frozen=True):
    """One branch."""

    leaf: str
    name: str | None
    """The last label on what this branch has alone, or of its end."""
    is_active: bool
    ahead: Distance
    """What it has and the active one has not."""
    behind: Distance
    """What the active one has and it has not."""
    ancestor: str | None
    """The last entry that both have."""
    last_time: str
    tokens: int
    """How large its context is."""
    merged_into: tuple[str, ...] = ()
    """Joins that brought it into other branches."""


def list_branches(session: Reader) -> list[BranchFacts]:
    """Every branch, the active one first, then the newest. A branch ends with the last thing that was said on it."""
    ours = history_nodes(session, session.leaf)
    active = end_of(session, ours)
    labels = session.labels
    joins = find_joins(session)
    found: list[BranchFacts] = []
    for end, history in _histories(session, ours).items():
        leaf = session.journal.tree.ids[end]
        alone, missing = _apart(history, ours)
        found.append(
            BranchFacts(
                leaf=leaf,
                name=_name(session, leaf, history if end == active else alone, labels),
                is_active=end == active,
                ahead=_distance(session, alone),
                behind=_distance(session, missing),
                ancestor=_ancestor(session, history, alone),
                last_time=_last_time(session, history),
                tokens=context_size(session.context(leaf).messages).tokens,
                merged_into=_merged_into(leaf, joins),
            )
        )
    newest_first = sorted(found, key=lambda branch: branch.last_time, reverse=True)
    return sorted(newest_first, key=lambda branch: not branch.is_active)


def _histories(session: Reader, active: Sequence[int]) -> dict[int, list[int]]:
    """The ends of all branches, and where the session stands, with what leads to each."""
    found = find_ends(session)
    here = end_of(session, active)
    if here is not None and here not in found:
        found[here] = list(active[: active.index(here) + 1])  # it stands in the midst of a branch
    return found


def _apart(one: Sequence[int], other: Sequence[int]) -> tuple[list[int], list[int]]:
    mine, theirs = set(one), set(other)
    return [node for node in one if node not in theirs], [node for node in other if node not in mine]


def _distance(session: Reader, nodes: Sequence[int]) -> Distance:
    types = session.journal.types
    return Distance(len(nodes), sum(types[node] in SPEAKING for node in nodes))


def _ancestor(session: Reader, history: Sequence[int], alone: Sequence[int]) -> str | None:
    ids, apart = session.journal.tree.ids, set(alone)
    return next((ids[node] for node in reversed(history) if node not in apart and not is_metadata_id(ids[node])), None)


def _name(session: Reader, leaf: str, nodes: Sequence[int], labels: Mapping[str, str]) -> str | None:
    ids = session.journal.tree.ids
    return labels.get(leaf) or next((labels[ids[node]] for node in reversed(nodes) if ids[node] in labels), None)


def _last_time(session: Reader, history: Sequence[int]) -> str:
    for node in reversed(history):
        (entry,) = session.journal.entries([node])
        if entry.timestamp:
            return entry.timestamp
    return session.header.timestamp


def _merged_into(leaf: str, joins: Mapping[str, Join]) -> tuple[str, ...]:
    return tuple(id for id, join in joins.items() if join.entry == leaf and join.session is None)
