"""Leave a branch with a summary, so that on the new branch the model knows what was tried.

The summary is the first entry of the new branch, an ordinary `branch_summary`. Every possible failure (of the summary,
a hook that cancels, an interruption) happens before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import find_delta
from sessiontree.branches.merge_records import append_point
from sessiontree.branches.replay import check_no_open_calls
from sessiontree.branches.summarize import SummaryOptions, summarize_branch
from sessiontree.compaction import hooks as hook_calls
from sessiontree.compaction.hooks import Hook
from sessiontree.compaction.prompts import BRANCH_HEADING
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.ids import timestamp
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import ReadOnlyError
from sessiontree.session.history import history_ids
from sessiontree.session.session import Session

_ROOT = "root"
"""Pi's value of `fromId` when the session was before its first entry."""


class LeaveResult(Struct, frozen=True):
    """Result of leaving a branch."""

    left: str | None
    """The previous current entry."""
    leaf: str | None
    """The new current entry."""
    entry: str | None = None
    """The summary entry; None when there was nothing to summarize."""
    summary: str = ""
    summarizer: str = ""
    files: FileLists = FileLists()
    messages: int = 0
    """Number of messages on the branch that was left."""
    reports: tuple[str, ...] = ()


class PreparedLeave(Struct, frozen=True):
    """A switch that only has to be written."""

    found: LeaveResult
    """The expected result; `leaf` is the entry to append the summary to, or to move to."""
    entry: CanonicalEntry | None = None
    """The summary; None if there is nothing to summarize."""
    hooks: Sequence[Hook] = ()


def leave(session: Session, to: str | None, options: SummaryOptions | None = None) -> LeaveResult:
    """Switch to another entry, with a summary of the messages back to the common ancestor.

    Without such messages this is a plain move.
    """
    return write_leave(session, prepare_leave(session, to, SummaryOptions() if options is None else options))


def prepare_leave(session: Session, to: str | None, options: SummaryOptions) -> PreparedLeave:
    """Do everything but write: check, and summarize."""
    if session.read_only is not None:
        raise ReadOnlyError(f"{session.location}: cannot write: {session.read_only}")
    leaf_before = session.leaf
    session.node_of(to)
    side = find_delta(session, leaf_before, frozenset(history_ids(session, to)))
    count = len(side.messages)
    if not count:
        return PreparedLeave(LeaveResult(leaf_before, to))
    to = None if to is None else append_point(session, to)
    check_no_open_calls(session, to)
    result = summarize_branch(side, session, options)
    fields = {"fromId": leaf_before or _ROOT, **result.fields(BRANCH_HEADING)}
    found = LeaveResult(leaf_before, to, None, fields["summary"], result.by, result.files, count, result.reports)
    return PreparedLeave(found, CanonicalEntry("branch_summary", fields, timestamp=timestamp()), options.hooks)


def write_leave(session: Session, prepared: PreparedLeave) -> LeaveResult:
    """Append a prepared summary, or move if there is none."""
    found = prepared.found
    if prepared.entry is None:
        if found.leaf != session.leaf:
            session.move(found.leaf)
        return found
    (entry,) = session.append_all([prepared.entry], found.leaf)
    done = msgspec.structs.replace(found, leaf=entry, entry=entry)
    return msgspec.structs.replace(done, reports=(*done.reports, *hook_calls.call_after(prepared.hooks, done)))
