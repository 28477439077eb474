"""Explorations that nobody works on any more: whether that is so, and what is left of them outside of the session."""

from __future__ import annotations

import os
from typing import Protocol

from sessiontree.core.jsonio import Value
from sessiontree.errors import SessionTreeError
from sessiontree.explore.decisions import tidy
from sessiontree.explore.lane import Lane
from sessiontree.explore.leases import is_free
from sessiontree.explore.state import ExplorationLog, TrackedWork, explorations
from sessiontree.explore.worktrees import REFS, Copies
from sessiontree.session.reader import Reader


class HasPlan(Protocol):
    """An exploration that goes on, or one that a file tells of."""

    @property
    def plan_id(self) -> str: ...

    @property
    def lanes(self) -> list[Lane]: ...


class Left(Value, frozen=True, omit_defaults=False):
    """What is left of the explorations of a session when their folders are gone."""

    refs: tuple[str, ...] = ()
    """Where the work of lanes is, and in which repository. Untrusted text, as below."""
    failed: tuple[str, ...] = ()
    """Why folders stay, or nothing was done."""


def is_worked_on(session: Reader, told: HasPlan) -> bool:
    """Whether some process makes lanes of an exploration, or works on one."""
    plan = _noted(session, told)
    is_held = not is_free(plan.lease, session.entry(plan.leaf).timestamp)
    return is_held or any(lane.state == "running" for lane in told.lanes)


def has_died(session: Reader, told: HasPlan) -> bool:
    """Whether the process that made the lanes of an exploration went without saying so."""
    lease = _noted(session, told).lease
    return lease is not None and lease.good_for > 0 and not is_worked_on(session, told)


def _noted(session: Reader, told: HasPlan) -> TrackedWork:
    book = ExplorationLog(session)
    book.look()
    return book.noted[told.plan_id]


def take_all_away(session: Reader, home: str) -> Left:
    """Take away all folders of a session's lanes, before the session itself goes. Their work is saved, and stays."""
    found = explorations(session)
    if any(is_worked_on(session, told) for told in found):
        return Left(failed=("its lanes are at work; stop them where they are, or wait for their end",))
    if not any(told.plan.worktrees for told in found):
        return Left()
    made = [lane for told in found for lane in told.lanes if lane.copy is not None]
    known = [lane.copy for lane in made if lane.copy is not None]
    try:
        copies = Copies(home, session.id, session.cwd or "")
        tidied = tidy([lane for lane in made if lane.copy is not None and copies.is_left(lane.copy)], copies)
        if copies.orphans(known):
            copies.clear_orphans(known)
    except SessionTreeError as error:
        return Left(failed=(str(error),))
    refs = dict.fromkeys(f"{REFS}/{copy.ref.split('/')[-2]} in {copy.repository}" for copy in known)
    stayed = [*tidied.stayed, *tidied.failed, *(f"{path} is there" for path in copies.orphans(known))]
    return Left(tuple(refs), tuple(f"{why}; move or remove that folder first" for why in stayed))


def unmade(told: HasPlan, run: str, copies: Copies | None) -> list[str]:
    """The folders of lanes that a process was making when it died."""
    known = [lane.copy for lane in told.lanes if lane.copy is not None]
    return [] if copies is None else [path for path in copies.orphans(known) if path.split(os.sep)[-2] == run]


def clear_unmade(session: Reader, told: HasPlan, run: str, copies: Copies | None) -> list[str]:
    """Take those away, if nobody works on it; what was changed in them is saved first. Which ones."""
    if copies is None or not unmade(told, run, copies) or is_worked_on(session, told):
        return []
    return copies.clear_orphans([lane.copy for lane in told.lanes if lane.copy is not None], run)
