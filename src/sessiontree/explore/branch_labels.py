"""What a tree and a list of branches say of lanes and sub-agents: `lane 2 · gpt-5 · kept`, `task · find the callers`.

A session without any costs nothing: what reads explorations is slow to import, and imported only for one that has some.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sessiontree.branches.list import BranchFacts
    from sessiontree.session.reader import Reader
    from sessiontree.views.branch_labels import Mark


def find_marks(session: Reader) -> dict[str, Mark]:
    """By the entries that their branches begin with, which a tree shows only if it shows everything."""
    journal = session.journal
    if not journal.own_customs:
        return {}
    from sessiontree.dialects.side_branches import SideBranches

    sides = SideBranches(journal)
    starts = [journal.tree.ids[node] for node in journal.own_customs if sides.start_of(node) == node]
    if not starts:
        return {}
    from sessiontree.explore.label_branches import mark_lanes, mark_tasks

    return {**mark_tasks(session, starts), **mark_lanes(session)}


def find_branch_marks(session: Reader, branches: Sequence[BranchFacts]) -> dict[str, Mark]:
    """By the ends of branches: the last mark on what a branch has alone, or for the active one, on all that it has."""
    marks = find_marks(session)
    if not marks:
        return {}
    from sessiontree.dialects.side_branches import SideBranches

    sides, ids = SideBranches(session.journal), session.journal.tree.ids
    found = {}
    for branch in branches:
        shared = () if branch.is_active else [*sides.starts_to(session.node_of(branch.ancestor))]
        alone = (ids[start] for start in sides.starts_to(session.node_of(branch.leaf)) if start not in shared)
        mark = next((marks[start] for start in alone if start in marks), None)
        if mark is not None:
            found[branch.leaf] = mark
    return found
