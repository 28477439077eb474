"""Folders of lanes that have ended, which a process that died could not take away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.cli import talk
from sessiontree.cli.lanes import copies_of
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sessiontree.exploring.deciding import Tidied
    from sessiontree.exploring.lanes import Lane
    from sessiontree.exploring.told import Told
    from sessiontree.session import Session


def say_leftovers(session: Session, told: Told, options: Options) -> None:
    """Tell of folders that nobody needs."""
    from sessiontree.exploring.deciding import leftovers
    from sessiontree.exploring.leftovers import is_worked_on

    found = leftovers(told.lanes, copies_of(session, options))
    if found and not is_worked_on(session, told):
        talk.say(
            f"exploration {told.run}: folders of lanes that have ended are still there ({_numbers(found)}); "
            f"`sessiontree explore {session.id[:8]} --resume {told.run}` takes them away, their work stays in git"
        )


def take_away(session: Session, told: Told, options: Options) -> bool:
    """Tidy up where there is nothing to go on with; `UsageError` when there is nothing to tidy up either.

    Whether all went well.
    """
    from sessiontree.exploring.deciding import leftovers, tidy
    from sessiontree.exploring.leftovers import is_worked_on

    if is_worked_on(session, told):
        raise UsageError(
            f"exploration {told.run}: another process works on it; wait for its end, or end it, to go on here"
        )
    copies = copies_of(session, options)
    found = leftovers(told.lanes, copies)
    if not found or options.keep_worktrees:
        at_limit = [lane for lane in told.lanes if lane.state == "limit" and lane.verdict is None]
        step = "; lanes that reached a limit go on with a larger --budget" if at_limit else ""
        raise UsageError(
            f"exploration {told.run}: there is nothing to go on with, no lane of it was left open{step}; --again LANE "
            "goes on with one that failed or was stopped"
        )
    tidied = tidy(found, copies)
    if tidied.lanes:
        talk.say(
            f"exploration {told.run}: there is nothing to go on with; the folders that were left of lanes "
            f"{', '.join(map(str, tidied.lanes))} were taken away, their work is in refs/sessiontree/explore/{told.run}"
        )
    return say_tidied(tidied)


def say_tidied(tidied: Tidied) -> bool:
    """Tell which folders stayed; whether all could be tidied up that should be."""
    from sessiontree.views.text import one_line

    for note in tidied.stayed:
        talk.say(one_line(note))
    for note in tidied.failed:
        talk.say_error(one_line(note))
    return not tidied.failed


def _numbers(lanes: Sequence[Lane]) -> str:
    return ", ".join(str(lane.number) for lane in lanes)
