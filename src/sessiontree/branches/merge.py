"""Merging: what another branch learned, brought here. Of the same session or another one, of any dialect.

What is brought is written in one write, the join last: until that line is there, nothing was merged. If the process
dies in the midst of the write, whole entries of it may be in the file, behind the place they were to go to; they say
nothing untrue, and the merge can be made again from the place it was meant for. See docs/decisions/0016-merging.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import Side, is_same, tell_news
from sessiontree.branches.file_conflicts import FileConflict, files_of, find_file_conflicts
from sessiontree.branches.merge_records import MERGED_FROM, How, Join, end_at, find_same_join
from sessiontree.branches.replay import Whole, can_be_said, check_is_whole, fit_for, whole
from sessiontree.branches.summarize import Ask, newest_messages, sum_up
from sessiontree.compaction import hooks as hook_calls
from sessiontree.compaction.sections import DECISIONS, parse_sections
from sessiontree.compaction.summarizers import Request, find_summarizer
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.ids import timestamp
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import ReadOnlyError, UsageError
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.session.session import Session

MERGE_HEADING = "Another branch of this conversation was merged here. What was done on it:"
_REPLAYED = "{messages} said on another branch of this conversation and brought here by a merge."
_PICKED = "{messages} said on another branch of this conversation and picked from it."
_CONFLICTS = "## Conflicts"
_CONTRADICTIONS = (
    "Besides, this branch is about to be merged into another one. If a decision of this branch contradicts one of the "
    f"other's decisions below, end your notes with the heading `{_CONFLICTS}` and one point for each such pair, naming "
    "both. If none does, leave that heading out. The other's decisions:\n{decisions}"
)


class Conflict(Struct, frozen=True):
    """Something in which the two branches are at odds."""

    kind: Literal["file", "decision"]
    text: str
    path: str | None = None
    ours: tuple[str, ...] = ()
    """For a file: the tool calls that changed it on our branch."""
    theirs: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        if self.kind == "decision":
            return {"kind": self.kind, "text": self.text}
        return {"kind": self.kind, "path": self.path, "ours": list(self.ours), "theirs": list(self.theirs)}


class Merged(Struct, frozen=True):
    """What a merge did, or with `dry_run` would do."""

    how: How
    source: str
    """The other parent."""
    into: str | None
    ancestor: str | None
    session: str | None = None
    """The other parent's session, if that is another one."""
    messages: int = 0
    """How many messages of the other branch were new here."""
    brought: tuple[str, ...] = ()
    """The entries that were written before the join."""
    entry: str | None = None
    """The join; None for a dry run, and when there was nothing to merge."""
    summary: str = ""
    files: FileLists = FileLists()
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()
    """What stayed behind, and what went wrong in hooks."""
    nothing: str | None = None
    """Why nothing was added, if nothing was."""


def merge(
    session: Session,
    source_leaf: str,
    *,
    into: str | Current = CURRENT,
    how: How = "summary",
    source: Reader | None = None,
    ask: Ask | None = None,
    dry_run: bool = False,
) -> Merged:
    """Bring what another branch has into this one; the session stands at the join then.

    `summary` has it summarised, `append` says all its messages again behind ours. What was brought before is not
    brought again. For chosen entries see `pick`.
    """
    if how == "pick":
        raise UsageError("which entries to pick has to be said: see `pick`")
    other: Reader = session if source is None else source
    place = check_place(session, into, dry_run=dry_run)
    other.node_of(source_leaf)
    theirs, ours = tell_news(session, place, other, source_leaf)
    found = Merged(
        how, source_leaf, place, theirs.ancestor, None if is_same(session, other) else other.id, files=files_of(theirs)
    )
    said = [entry for entry in theirs.items if can_be_said(entry)]
    if not said:
        return msgspec.structs.replace(found, nothing="everything it says is here already; nothing was added")
    if found.session is None and place == theirs.ancestor:
        raise UsageError(
            f"{session.location}: {source_leaf} goes on from {place}, so there is nothing to bring together; "
            "`sessiontree branch` stands there, `sessiontree branch --summarise` comes back with a summary"
        )
    done_before = find_same_join(session, Join(source_leaf, place, session=found.session, how=how))
    if done_before is not None:
        return already_there(found, done_before)
    check_is_whole(session, place)
    found = msgspec.structs.replace(found, messages=len(said))
    if how == "append":
        return bring(session, found, whole(theirs.items, theirs.lead), theirs, ours, dry_run=dry_run)
    return _summarise(session, found, theirs, ours, Ask() if ask is None else ask, dry_run=dry_run)


def already_there(found: Merged, join: str) -> Merged:
    """What is told of a merge that was made before, at the same place."""
    return msgspec.structs.replace(found, nothing=f"this was brought there before, see {join}; nothing was added")


def check_place(session: Session, into: str | Current, *, dry_run: bool) -> str:
    """The entry to bring something to, if that can be done there."""
    if session.read_only is not None and not dry_run:
        raise ReadOnlyError(f"{session.location}: cannot be written: {session.read_only}")
    place = session.leaf if isinstance(into, Current) else into
    if place is None:
        raise UsageError(f"{session.location}: it stands before its first entry; say where to with --into ENTRY")
    session.node_of(place)
    return end_at(session, place)


def bring(
    session: Session,
    found: Merged,
    pieces: Whole,
    theirs: Side,
    ours: Side,
    *,
    entries: Sequence[str] = (),
    dry_run: bool,
) -> Merged:
    """Say items again behind an entry, and the join behind them."""
    found = msgspec.structs.replace(
        found, conflicts=_file_conflicts(ours, theirs), notes=pieces.notes, messages=len(pieces.items)
    )
    if not pieces.items:
        return msgspec.structs.replace(found, nothing="nothing of it can be said again here; nothing was added")
    assert found.into is not None
    items = fit_for(pieces.items, theirs.session, session, found.into)
    messages = "The message above was" if len(items) == 1 else f"The {len(items)} messages above were"
    words = (_PICKED if found.how == "pick" else _REPLAYED).format(messages=messages)
    text = words + _told(found.conflicts) + found.files.text()
    join = Join(
        found.source, found.into, found.ancestor, found.session, found.how, brought=len(items), entries=tuple(entries)
    )
    details = {**found.files.details(), **_details(join, found.conflicts)}
    fields = {"fromId": found.source, "summary": text, "details": details, "fromHook": False}
    found = msgspec.structs.replace(found, summary=text)
    if dry_run:
        return found
    *brought, entry = session.append_all(
        [*items, CanonicalEntry("branch_summary", fields, timestamp=timestamp())], found.into
    )
    return msgspec.structs.replace(found, brought=tuple(dict.fromkeys(brought)), entry=entry)


def _summarise(session: Session, found: Merged, theirs: Side, ours: Side, ask: Ask, *, dry_run: bool) -> Merged:
    wanted = ask
    if ask.writer is not find_summarizer() and not ask.only_instructions:
        wanted = msgspec.structs.replace(ask, instructions=_with_decisions(ask, ours))
    summed = sum_up(theirs, session, wanted)
    conflicts = _file_conflicts(ours, theirs)
    if not summed.from_hook:
        text, named = _without_conflicts(summed.text)
        summed = msgspec.structs.replace(summed, text=text + _told((*conflicts, *named)))
        conflicts += named
    fields = summed.fields(MERGE_HEADING)
    join = Join(found.source, found.into, found.ancestor, found.session, found.how)
    given = fields.get("details")
    details = {**(given if isinstance(given, dict) else {}), **_details(join, conflicts)}
    found = msgspec.structs.replace(
        found, summary=fields["summary"], files=summed.files, conflicts=conflicts, notes=summed.reports
    )
    if dry_run:
        return found
    line = {"fromId": found.source, **fields, "details": details}
    (entry,) = session.append_all([CanonicalEntry("branch_summary", line, timestamp=timestamp())], found.into)
    done = msgspec.structs.replace(found, entry=entry)
    return msgspec.structs.replace(done, notes=(*done.notes, *hook_calls.call_after(ask.hooks, done)))


def _details(join: Join, conflicts: Sequence[Conflict]) -> dict[str, Any]:
    found: dict[str, Any] = {MERGED_FROM: join.fields()}
    if conflicts:
        found["conflicts"] = [conflict.fields() for conflict in conflicts]
    return found


def _file_conflicts(ours: Side, theirs: Side) -> tuple[Conflict, ...]:
    return tuple(_conflict(found) for found in find_file_conflicts(ours, theirs))


def _conflict(found: FileConflict) -> Conflict:
    text = f"Both branches changed `{found.path}`, each in its own way: look at the file before relying on either."
    return Conflict("file", text, found.path, found.ours, found.theirs)


def _told(conflicts: Sequence[Conflict]) -> str:
    """Conflicts as the model is told of them."""
    if not conflicts:
        return ""
    return f"\n\n{_CONFLICTS}\n" + "\n".join(f"- {' '.join(conflict.text.split())}" for conflict in conflicts)


def _with_decisions(ask: Ask, ours: Side) -> str | None:
    """The instructions, and what a model is asked about decisions that contradict each other."""
    agent = ours.session.dialect.name
    notes = find_summarizer()(Request("branch", newest_messages(ours, ask.budget), agent=agent))
    decisions = parse_sections(notes.text).get(DECISIONS)
    if not decisions:
        return ask.instructions
    asked = _CONTRADICTIONS.format(decisions="\n".join(f"- {decision}" for decision in decisions))
    return f"{ask.instructions}\n\n{asked}" if ask.instructions else asked


def _without_conflicts(summary: str) -> tuple[str, tuple[Conflict, ...]]:
    """A summary without its last heading about conflicts, and the points that stand there."""
    before, heading, after = summary.rpartition(_CONFLICTS)
    if not heading:
        return summary, ()
    points = [line.strip().removeprefix("- ").strip() for line in after.splitlines()]
    return before.rstrip(), tuple(Conflict("decision", point) for point in points if point and point != "(none)")
