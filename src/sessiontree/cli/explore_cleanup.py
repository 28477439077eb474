"""Folders of lanes that have ended, which a process that died could not take away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.cli import stderr
from sessiontree.cli.explore_common import copies_of, session_words
from sessiontree.cli.parser import Options
from sessiontree.errors import SessionTreeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessiontree.explore.decisions import Tidied
    from sessiontree.explore.lane import Lane
    from sessiontree.explore.state import ExplorationState
    from sessiontree.explore.worktrees import Copies
    from sessiontree.session.session import Session


def say_leftovers(session: Session, told: ExplorationState, options: Options) -> None:
    """Tell of folders that nobody needs."""
    from sessiontree.explore.cleanup import is_worked_on, unmade
    from sessiontree.explore.decisions import leftovers

    copies = copies_of(session, options)
    found, begun = leftovers(told.lanes, copies), unmade(told, told.run, copies)
    if not (found or begun) or is_worked_on(session, told):
        return
    staying = [lane for lane in found if _stays(lane, copies)]
    going = [lane for lane in found if lane not in staying]
    resume = f"`sessiontree explore {session_words(session, options)} --resume {told.run}`"
    if going:
        stderr.print_line(
            f"exploration {told.run}: folders of lanes that have ended are still there ({_numbers(going)}); "
            f"{resume} takes them away, their work stays in git"
        )
    if begun:
        stderr.print_line(
            f"exploration {told.run}: a process ended while it made the folder of a lane, which is still there; "
            f"{resume} goes on with the lane, or takes the folder away"
        )
    if staying:
        stderr.print_line(
            f"exploration {told.run}: folders of lanes stay, as there are repositories of their own in them "
            f"({_numbers(staying)}); when you have moved those elsewhere, {resume} takes the folders away"
        )


def _stays(lane: Lane, copies: Copies) -> bool:
    """Whether nobody but a person takes the folder of a lane away: there is a repository of its own in it."""
    from sessiontree.git.trees import find_nested_repositories

    if lane.copy is None:
        return False
    try:
        copies.check(lane.copy)
        return bool(find_nested_repositories(lane.copy.path, lane.copy.base, lane.copy.repository))
    except (SessionTreeError, OSError):  # what is wrong with it is told by who takes it away
        return False


def take_away(session: Session, told: ExplorationState, options: Options) -> bool:
    """Tidy up where there is nothing to go on with; `UsageError` when there is nothing to tidy up either.

    Whether all went well.
    """
    from sessiontree.explore.cleanup import clear_unmade, is_worked_on
    from sessiontree.explore.decisions import leftovers, tidy

    if is_worked_on(session, told):
        raise UsageError(
            f"exploration {told.run}: another process works on it; wait for its end, or end it, to go on here"
        )
    copies = copies_of(session, options)
    cleared = clear_unmade(session, told, told.run, copies)
    found = [] if options.keep_worktrees else leftovers(told.lanes, copies)
    if not found and not cleared:
        at_limit = [lane for lane in told.lanes if lane.state == "limit" and lane.verdict is None]
        step = "; lanes that reached a limit go on with a larger --budget" if at_limit else ""
        raise UsageError(
            f"exploration {told.run}: there is nothing to go on with, no lane of it was left open{step}; --again LANE "
            "goes on with one that failed or was stopped"
        )
    tidied = tidy(found, copies)
    if cleared:
        stderr.print_line(f"exploration {told.run}: the folder of a lane that was not made to the end was taken away")
    if tidied.lanes:
        stderr.print_line(
            f"exploration {told.run}: there is nothing to go on with; the folders that were left of lanes "
            f"{', '.join(map(str, tidied.lanes))} were taken away, their work is in refs/sessiontree/explore/{told.run}"
        )
    return say_tidied(tidied)


def say_tidied(tidied: Tidied) -> bool:
    """Tell which folders stayed; whether all could be tidied up that should be."""
    from sessiontree.views.text import one_line

    for note in tidied.stayed:
        stderr.print_line(one_line(note))
    for note in tidied.failed:
        stderr.print_error(one_line(note))
    return not tidied.failed


def _numbers(lanes: Sequence[Lane]) -> str:
    return ", ".join(str(lane.number) for lane in lanes)
