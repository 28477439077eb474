"""Remove the folders that explorations left outside the session, when no process uses them."""

from __future__ import annotations

import os

from sessiontree.core.jsonio import Value
from sessiontree.errors import SessionTreeError
from sessiontree.explore.decisions import remove_worktrees
from sessiontree.explore.state import ExplorationLike, explorations, is_active
from sessiontree.explore.worktrees import REFS, LaneWorktrees
from sessiontree.session.reader import Reader


class RemovedWorktrees(Value, frozen=True, omit_defaults=False):
    """What remains of a session's explorations after their folders were removed. Untrusted text."""

    refs: tuple[str, ...] = ()
    """Refs that keep the work of lanes, with their repositories."""
    failed: tuple[str, ...] = ()
    """Why folders remain, or nothing was done."""


def remove_all_worktrees(session: Reader, home: str) -> RemovedWorktrees:
    """Save and remove all folders of a session's lanes, before the session itself is deleted."""
    found = explorations(session)
    if any(is_active(session, state) for state in found):
        return RemovedWorktrees(failed=("its lanes are running; stop them or wait until they have ended",))
    if not any(state.plan.worktrees for state in found):
        return RemovedWorktrees()
    lanes = [lane for state in found for lane in state.lanes if lane.worktree is not None]
    known = [lane.worktree for lane in lanes if lane.worktree is not None]
    try:
        worktrees = LaneWorktrees(home, session.id, session.cwd or "")
        removed = remove_worktrees(
            [lane for lane in lanes if lane.worktree is not None and worktrees.has_remains(lane.worktree)], worktrees
        )
        if worktrees.find_orphans(known):
            worktrees.remove_orphans(known)
    except SessionTreeError as error:
        return RemovedWorktrees(failed=(str(error),))
    refs = dict.fromkeys(f"{REFS}/{worktree.ref.split('/')[-2]} in {worktree.repository}" for worktree in known)
    remaining = [*removed.stayed, *removed.failed, *(f"{path} exists" for path in worktrees.find_orphans(known))]
    return RemovedWorktrees(tuple(refs), tuple(f"{why}; move or remove that folder first" for why in remaining))


def find_partial_worktrees(exploration: ExplorationLike, worktrees: LaneWorktrees | None) -> list[str]:
    """Folders of lanes that a process was creating when it died."""
    if worktrees is None:
        return []
    known = [lane.worktree for lane in exploration.lanes if lane.worktree is not None]
    return [path for path in worktrees.find_orphans(known) if path.split(os.sep)[-2] == exploration.plan.run]


def remove_partial_worktrees(
    session: Reader, exploration: ExplorationLike, worktrees: LaneWorktrees | None
) -> list[str]:
    """Save and remove the `find_partial_worktrees`, if no process works on the exploration; returns their paths."""
    if worktrees is None or not find_partial_worktrees(exploration, worktrees) or is_active(session, exploration):
        return []
    known = [lane.worktree for lane in exploration.lanes if lane.worktree is not None]
    return worktrees.remove_orphans(known, exploration.plan.run)
