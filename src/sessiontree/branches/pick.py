"""Picking: chosen entries of other branches, said again behind an entry. A call always travels with its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sessiontree.branches.branch_delta import Side, is_same, parted_sessions, tell_side
from sessiontree.branches.file_conflicts import files_of
from sessiontree.branches.merge import Merged, already_there, bring, check_place
from sessiontree.branches.merge_records import Join, find_same_join, history_ids, taken_by
from sessiontree.branches.replay import can_be_said, check_is_whole, pair_up, whole
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import UsageError
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.session.session import Session


def pick(
    session: Session,
    entries: Sequence[str],
    *,
    onto: str | Current = CURRENT,
    source: Reader | None = None,
    branch: str | None = None,
    dry_run: bool = False,
) -> Merged:
    """Say chosen entries again behind an entry, in the order they were said; the session stands at the join then.

    They may come from several branches, or with `branch` from the path to one entry alone. What stands on the way to
    `onto` already, or was picked onto it before, is not said twice.
    """
    other: Reader = session if source is None else source
    if not entries:
        raise UsageError("which entries to pick has to be said")
    place = check_place(session, onto, dry_run=dry_run)
    is_own = is_same(session, other)
    taken = taken_by(session, place)
    there = taken.picked.get(None if is_own else other.id, frozenset()) | (taken.ids if is_own else frozenset())
    chosen = [id for id in dict.fromkeys(entries) if id not in there]
    end = (chosen or list(entries))[-1]
    found = Merged("pick", branch or end, place, None, None if is_own else other.id)
    if not chosen:
        return msgspec.structs.replace(found, nothing="all of these are here already; nothing was added")
    done_before = find_same_join(session, Join(end, place, None, found.session, "pick", 0, tuple(chosen)))
    if done_before is not None:
        return already_there(found, done_before)
    check_is_whole(session, place)
    items = _chosen_items(other, chosen, branch)
    ours, theirs = parted_sessions(session, place, other, end)
    theirs = msgspec.structs.replace(theirs, items=tuple(items), lead=())
    found = msgspec.structs.replace(found, ancestor=theirs.ancestor, files=files_of(theirs))
    names = dict.fromkeys([*(_line_of(other, entry) for entry in items), *chosen])
    return bring(session, found, whole(items), theirs, ours, entries=tuple(names), dry_run=dry_run)


def _chosen_items(source: Reader, chosen: Sequence[str], branch: str | None) -> list[CanonicalEntry]:
    """The chosen entries with what belongs to them, branch by branch."""
    entries: list[CanonicalEntry] = []
    left = list(chosen)
    while left:
        end = branch if branch is not None else _end_behind(source, left[0])
        side = tell_side(source, end, frozenset())
        found, taken = _closed(side, set(left))
        if not taken:
            raise UsageError(_why_not(source, left[0], branch))
        entries += found
        left = [id for id in left if id not in taken]
    return entries


def _closed(side: Side, chosen: set[str]) -> tuple[list[CanonicalEntry], set[str]]:
    """The chosen items of a history with the calls and results that belong to them; which of the chosen those are."""
    entries = [entry for entry in side.items if can_be_said(entry)]
    wanted = {at for at, entry in enumerate(entries) if chosen.intersection(_names(entry))}
    taken = {id for at in wanted for id in _names(entries[at]) if id in chosen}
    pairs = pair_up(entries)
    wanted |= {call for result, call in pairs.items() if result in wanted}
    wanted |= {result for result, call in pairs.items() if call in wanted}
    return [entries[at] for at in sorted(wanted)], taken


def _end_behind(source: Reader, id: str) -> str:
    """The end of a branch that an entry lies on: the active one, else the newest."""
    active = source.leaf
    if active is not None and id in history_ids(source, active):
        return active
    tree = source.journal.tree
    below = set(tree.iter_subtree(source.node_of(id)))
    ends = [leaf for leaf in source.leaves() if tree.node_of[leaf] in below]
    return ends[-1] if ends else id


def _why_not(source: Reader, id: str, branch: str | None) -> str:
    if branch is not None and id not in history_ids(source, branch):
        return f"{source.location}: {id} is not on the way to {branch}"
    return f"{source.location}: {id} is an entry of type {source.type_of(id)}; only what someone said can be picked"


def _line_of(source: Reader, entry: CanonicalEntry) -> str:
    """The id that an item has in the file."""
    return next((id for id in _names(entry) if id in source), entry.id)


def _names(entry: CanonicalEntry) -> Iterable[str]:
    return (entry.id, *entry.aliases)
