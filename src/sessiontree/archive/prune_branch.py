"""Remove a branch from a session file; the archive keeps it. All other lines stay byte for byte."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.archive.archive import SessionArchive
from sessiontree.archive.catalog import ArchiveItem
from sessiontree.archive.rewrite import ByteChange, check_unchanged, removal_changes, rewrite
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.errors import UsageError
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session


class PrunePlan(Struct, frozen=True):
    """What pruning would remove."""

    entry: str
    nodes: tuple[int, ...]
    size: int
    leaves: tuple[str, ...]
    """The tips of the removed branches."""
    changes: tuple[ByteChange, ...]


def plan_prune(session: Session, entry: str) -> PrunePlan:
    """Plan the removal of an entry and its descendants; `UsageError` if the current entry is among them."""
    if is_metadata_id(entry):
        raise UsageError(f"{entry}: a metadata line, not part of the tree")
    nodes = find_descendants(session, session.node_of(entry))
    ids = {session.journal.tree.ids[node] for node in nodes}
    if ids & set(session.path_ids()) or session.leaf in ids:
        raise UsageError(f"{session.location}: the current entry is on this branch; switch with `sessiontree branch`")
    changes = tuple(removal_changes(session, nodes))
    leaves = tuple(leaf for leaf in session.leaves() if leaf in ids)
    return PrunePlan(entry, tuple(sorted(nodes)), sum(change.end - change.start for change in changes), leaves, changes)


def find_descendants(session: Session, top: int | None) -> set[int]:
    """A node and all nodes below it."""
    assert top is not None
    tree, found, pending = session.journal.tree, {top}, [top]
    while pending:
        for child in tree.children(pending.pop()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def prune(archive: SessionArchive, session: Session, plan: PrunePlan) -> ArchiveItem:
    """Remove a branch; returns the archive item that brings it back."""
    kept = [leaf for leaf in session.leaves() if leaf not in plan.leaves]

    def check(after: Reader) -> None:
        check_unchanged(session, after, kept)
        if len(after) != len(session) - len(plan.nodes):
            raise UsageError(f"{session.location}: more than the branch would be removed; nothing was written")

    return rewrite(archive, session, plan.changes, "prune", check)
