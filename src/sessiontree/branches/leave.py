"""Leaving a branch with a summary: what was tried there is known where one goes on.

The summary stands where the new branch begins, as an ordinary `branch_summary`. Everything that can go wrong (no
summary, a cancelled one, an interruption) goes wrong before anything is written.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import tell_side
from sessiontree.branches.merge_records import end_at, history_ids
from sessiontree.branches.replay import check_is_whole
from sessiontree.branches.summarize import Ask, sum_up
from sessiontree.compaction import hooks as hook_calls
from sessiontree.compaction.prompts import BRANCH_HEADING
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.ids import timestamp
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import ReadOnlyError
from sessiontree.session.session import Session

_ROOT = "root"
"""What `fromId` says when the branch that was left is the place before the first entry (Pi's word)."""


class Left(Struct, frozen=True):
    """What leaving a branch did."""

    left: str | None
    """Where the session stood."""
    leaf: str | None
    """Where it stands now."""
    entry: str | None = None
    """The summary; None when there was nothing to summarise."""
    summary: str = ""
    summarizer: str = ""
    files: FileLists = FileLists()
    messages: int = 0
    """How many messages are on the branch that was left."""
    reports: tuple[str, ...] = ()


def leave(session: Session, to: str | None, ask: Ask | None = None) -> Left:
    """Stand at another entry, with a summary of the branch that is left behind it.

    From where the session stands back to what both have. With nothing said on that way, it is a plain move.
    """
    if session.read_only is not None:
        raise ReadOnlyError(f"{session.location}: cannot be written: {session.read_only}")
    wanted = Ask() if ask is None else ask
    stood = session.leaf
    session.node_of(to)
    side = tell_side(session, stood, frozenset(history_ids(session, to)))
    count = len(side.messages)
    if not count:
        if to != stood:
            session.move(to)
        return Left(stood, to)
    to = None if to is None else end_at(session, to)
    check_is_whole(session, to)
    summed = sum_up(side, session, wanted)
    fields = {"fromId": stood or _ROOT, **summed.fields(BRANCH_HEADING)}
    (entry,) = session.append_all([CanonicalEntry("branch_summary", fields, timestamp=timestamp())], to)
    done = Left(stood, entry, entry, fields["summary"], summed.by, summed.files, count, summed.reports)
    return msgspec.structs.replace(done, reports=(*done.reports, *hook_calls.call_after(wanted.hooks, done)))
