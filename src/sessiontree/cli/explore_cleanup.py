"""Report and remove the folders of lanes that a killed process left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.cli import stderr
from sessiontree.cli.explore_common import lane_worktrees, refused_models, session_words
from sessiontree.cli.parser import Options
from sessiontree.errors import SessionTreeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessiontree.explore.decisions import CleanupResult
    from sessiontree.explore.lane import Lane
    from sessiontree.explore.state import ExplorationState
    from sessiontree.explore.worktrees import LaneWorktrees
    from sessiontree.session.session import Session


def print_leftovers(session: Session, state: ExplorationState, options: Options) -> None:
    """Report folders that no process needs."""
    from sessiontree.app.exploration import resume_command
    from sessiontree.explore.cleanup import find_partial_worktrees
    from sessiontree.explore.decisions import stale_lanes
    from sessiontree.explore.state import is_active

    worktrees = lane_worktrees(session, options)
    stale, partial = stale_lanes(state.lanes, worktrees), find_partial_worktrees(state, worktrees)
    if not (stale or partial) or is_active(session, state):
        return
    blocked = [lane for lane in stale if _has_repository(lane, worktrees)]
    removable = [lane for lane in stale if lane not in blocked]
    resume = f"`{resume_command(session_words(session, options), state.run, refused_models(state, options))}`"
    if removable:
        stderr.print_line(
            f"exploration {state.run}: folders of {_lanes(removable)} are left over; {resume} removes them (their "
            "files stay in git)"
        )
    if partial:
        stderr.print_line(
            f"exploration {state.run}: the folder of an unfinished lane is left over; {resume} continues the lane or "
            "removes the folder"
        )
    if blocked:
        stderr.print_line(
            f"exploration {state.run}: folders of {_lanes(blocked)} are kept, because they contain repositories; move "
            f"those elsewhere, then {resume} removes the folders"
        )


def _has_repository(lane: Lane, worktrees: LaneWorktrees) -> bool:
    """Whether the folder of a lane contains a repository, so that only the user may remove it."""
    from sessiontree.git.trees import find_nested_repositories

    if lane.worktree is None:
        return False
    try:
        worktrees.check(lane.worktree)
        return bool(find_nested_repositories(lane.worktree.path, lane.worktree.base, lane.worktree.repository))
    except (SessionTreeError, OSError):  # reported when the folder is removed
        return False


def remove_leftovers(session: Session, state: ExplorationState, options: Options) -> bool:
    """Remove folders if there is nothing to resume. Returns whether all could be removed.

    Raises `UsageError` if nothing is left over.
    """
    from sessiontree.explore.cleanup import remove_partial_worktrees
    from sessiontree.explore.decisions import remove_worktrees, stale_lanes
    from sessiontree.explore.state import is_active

    if is_active(session, state):
        raise UsageError(
            f"exploration {state.run}: another process is working on it; wait until it has ended, or stop it"
        )
    worktrees = lane_worktrees(session, options)
    partial = remove_partial_worktrees(session, state, worktrees)
    stale = [] if options.keep_worktrees else stale_lanes(state.lanes, worktrees)
    if not stale and not partial:
        at_limit = [lane for lane in state.lanes if lane.state == "limit" and lane.verdict is None]
        step = "a larger --budget continues lanes that reached a limit, " if at_limit else ""
        raise UsageError(
            f"exploration {state.run}: nothing to resume, all lanes have ended; {step}--again LANE one that failed or "
            "was stopped"
        )
    result = remove_worktrees(stale, worktrees)
    if partial:
        stderr.print_line(f"exploration {state.run}: removed the folder of an unfinished lane")
    if result.lanes:
        numbers = ", ".join(map(str, result.lanes))
        stderr.print_line(
            f"exploration {state.run}: nothing to resume; removed the folders of lanes {numbers}, their work is in "
            f"refs/sessiontree/explore/{state.run}"
        )
    return print_cleanup(result)


def print_cleanup(result: CleanupResult) -> bool:
    """Report folders that were kept. Returns whether all others could be removed."""
    from sessiontree.views.text import one_line

    for note in result.stayed:
        stderr.print_line(one_line(note))
    for note in result.failed:
        stderr.print_error(one_line(note))
    return not result.failed


def _lanes(lanes: Sequence[Lane]) -> str:
    numbers = ", ".join(str(lane.number) for lane in lanes)
    return f"{'lane' if len(lanes) == 1 else 'lanes'} {numbers}"
