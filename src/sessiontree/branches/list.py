"""List the branches of a session: tip, name, distance from the active one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from sessiontree.branches.merge_records import MergeRecord, find_merges, history_nodes
from sessiontree.branches.tips import find_tips, tip_of
from sessiontree.compaction.token_estimate import context_size
from sessiontree.core.entries import MESSAGE_TYPES
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.reader import Reader


class Distance(Struct, frozen=True):
    """Number of entries and messages of a branch after the common ancestor."""

    entries: int
    messages: int


class BranchFacts(Struct, frozen=True):
    """One branch."""

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
    labels = {**session.client_notes.branch_summaries, **session.labels}
    merges = find_merges(session)
    found: list[BranchFacts] = []
    for end, history in _histories(session, ours).items():
        leaf = session.journal.tree.ids[end]
        alone, missing = _difference(history, ours)
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
                merged_into=_merged_into(leaf, merges),
            )
        )
    newest_first = sorted(found, key=lambda branch: branch.last_time, reverse=True)
    return sorted(newest_first, key=lambda branch: not branch.is_active)


def _histories(session: Reader, active: Sequence[int]) -> dict[int, list[int]]:
    """Tips of all branches, and the session's current entry, with their histories."""
    found = find_tips(session)
    here = tip_of(session, active)
    if here is not None and here not in found:
        found[here] = list(active[: active.index(here) + 1])  # the current entry is in the middle of a branch
    return found


def _difference(one: Sequence[int], other: Sequence[int]) -> tuple[list[int], list[int]]:
    mine, theirs = set(one), set(other)
    return [node for node in one if node not in theirs], [node for node in other if node not in mine]


def _distance(session: Reader, nodes: Sequence[int]) -> Distance:
    types = session.journal.types
    return Distance(len(nodes), sum(types[node] in MESSAGE_TYPES for node in nodes))


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


def _merged_into(leaf: str, merges: Mapping[str, MergeRecord]) -> tuple[str, ...]:
    return tuple(id for id, record in merges.items() if record.entry == leaf and record.session is None)
