"""Pick entries of other branches, like git's cherry-pick. A tool call is always copied with its results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sessiontree.branches.branch_delta import BranchDelta, find_delta, find_session_deltas, is_same
from sessiontree.branches.file_conflicts import files_of
from sessiontree.branches.merge import (
    Merged,
    PreparedMerge,
    already_merged,
    check_target,
    nothing_to_merge,
    prepare_replay,
    write_merge,
)
from sessiontree.branches.merge_records import MergeRecord, find_same_merge, merged_history
from sessiontree.branches.replay import check_no_open_calls, complete_pairs, is_replayable, pair_results
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import UsageError
from sessiontree.session.history import history_ids
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
    """Copy entries after another entry, in their order; the merge entry becomes the current one.

    They may come from several branches or, with `branch`, only from the path to that entry. Entries that are on the
    path to `onto` or were already picked onto it are not copied again.
    """
    prepared = prepare_pick(session, entries, onto=onto, source=source, branch=branch, dry_run=dry_run)
    return prepared.found if dry_run else write_merge(session, prepared)


def prepare_pick(
    session: Session,
    entries: Sequence[str],
    *,
    onto: str | Current = CURRENT,
    source: Reader | None = None,
    branch: str | None = None,
    dry_run: bool = False,
) -> PreparedMerge:
    """Do everything but write. `dry_run` also accepts read-only sessions."""
    other: Reader = session if source is None else source
    if not entries:
        raise UsageError("no entries to pick: name at least one")
    target = check_target(session, onto, dry_run=dry_run)
    is_own = is_same(session, other)
    taken = merged_history(session, target)
    there = taken.picked.get(None if is_own else other.id, frozenset()) | (taken.ids if is_own else frozenset())
    chosen = [id for id in dict.fromkeys(entries) if id not in there]
    end = (chosen or list(entries))[-1]
    found = Merged("pick", branch or end, target, None, None if is_own else other.id)
    if not chosen:
        return nothing_to_merge(found, "all of these entries are already here; nothing was added")
    done_before = find_same_merge(session, MergeRecord(end, target, None, found.session, "pick", 0, tuple(chosen)))
    if done_before is not None:
        return already_merged(found, done_before)
    check_no_open_calls(session, target)
    items = _chosen_items(other, chosen, branch)
    ours, theirs = find_session_deltas(session, target, other, end)
    theirs = msgspec.structs.replace(theirs, items=tuple(items), lead=())
    found = msgspec.structs.replace(found, ancestor=theirs.ancestor, files=files_of(theirs))
    names = dict.fromkeys([*(_line_of(other, entry) for entry in items), *chosen])
    return prepare_replay(session, found, complete_pairs(items), theirs, ours, entries=tuple(names))


def _chosen_items(source: Reader, chosen: Sequence[str], branch: str | None) -> list[CanonicalEntry]:
    """The chosen entries with their calls and results, branch by branch."""
    entries: list[CanonicalEntry] = []
    left = list(chosen)
    while left:
        end = branch if branch is not None else _find_tip(source, left[0])
        side = find_delta(source, end, frozenset())
        found, taken = _closed(side, set(left))
        if not taken:
            raise UsageError(_why_not(source, left[0], branch))
        entries += found
        left = [id for id in left if id not in taken]
    return entries


def _closed(side: BranchDelta, chosen: set[str]) -> tuple[list[CanonicalEntry], set[str]]:
    """The chosen entries of a history with their calls and results, and the ids that were found."""
    entries = [entry for entry in side.items if is_replayable(entry)]
    positions = {at for at, entry in enumerate(entries) if chosen.intersection(_names(entry))}
    taken = {id for at in positions for id in _names(entries[at]) if id in chosen}
    pairs = pair_results(entries)
    positions |= {call for result, call in pairs.items() if result in positions}
    positions |= {result for result, call in pairs.items() if call in positions}
    return [entries[at] for at in sorted(positions)], taken


def _find_tip(source: Reader, id: str) -> str:
    """Tip of a branch that contains an entry: the active branch, else the newest."""
    active = source.leaf
    if active is not None and id in history_ids(source, active):
        return active
    tree = source.journal.tree
    below = set(tree.iter_subtree(source.node_of(id)))
    ends = [leaf for leaf in source.leaves() if tree.node_of[leaf] in below]
    return ends[-1] if ends else id


def _why_not(source: Reader, id: str, branch: str | None) -> str:
    if branch is not None and id not in history_ids(source, branch):
        return f"{source.location}: {id} is not on the path to {branch}"
    return f"{source.location}: {id} is an entry of type {source.type_of(id)}; only messages can be picked"


def _line_of(source: Reader, entry: CanonicalEntry) -> str:
    """The id of a canonical entry in the file."""
    return next((id for id in _names(entry) if id in source), entry.id)


def _names(entry: CanonicalEntry) -> Iterable[str]:
    return (entry.id, *entry.aliases)
