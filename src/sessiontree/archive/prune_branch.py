"""Taking a branch out of a session file, into the archive. All other branches stay as they are, byte for byte."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.archive.archive import Archive
from sessiontree.archive.catalog import Item
from sessiontree.archive.rewrite import Change, check_same, removed_lines, rewrite
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.errors import UsageError
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session


class Pruning(Struct, frozen=True):
    """What pruning would take out."""

    entry: str
    nodes: tuple[int, ...]
    size: int
    leaves: tuple[str, ...]
    """The ends of the branches that go."""
    changes: tuple[Change, ...]


def plan_pruning(session: Session, entry: str) -> Pruning:
    """What goes with an entry: everything that hangs on it. Refused when the session stands there."""
    if is_metadata_id(entry):
        raise UsageError(f"{entry}: is no part of the tree, so it begins no branch")
    nodes = descendants(session, session.node_of(entry))
    ids = {session.journal.tree.ids[node] for node in nodes}
    on_path = set(session.path_ids()) & ids
    if on_path or session.leaf in ids:
        raise UsageError(
            f"{session.location}: the session stands on this branch; `sessiontree branch` moves it to another one first"
        )
    changes = tuple(removed_lines(session, nodes))
    leaves = tuple(leaf for leaf in session.leaves() if leaf in ids)
    return Pruning(entry, tuple(sorted(nodes)), sum(change.end - change.start for change in changes), leaves, changes)


def descendants(session: Session, top: int | None) -> set[int]:
    """A node and everything that hangs on it."""
    assert top is not None
    tree, found, pending = session.journal.tree, {top}, [top]
    while pending:
        for child in tree.children(pending.pop()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def prune(archive: Archive, session: Session, plan: Pruning) -> Item:
    """Carry it out. Gives the item in the archive that brings the branch back."""
    kept = [leaf for leaf in session.leaves() if leaf not in plan.leaves]

    def check(after: Reader) -> None:
        check_same(session, after, kept)
        if len(after) != len(session) - len(plan.nodes):
            raise UsageError(f"{session.location}: more than the branch would go; nothing was written")

    return rewrite(archive, session, plan.changes, "prune", check)
