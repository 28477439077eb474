"""Merge another branch into this one, from the same or another session, of any dialect.

Everything is written in one write, the merge entry last. Without that line nothing counts as merged: if the process
dies during the write, copied messages may remain in the file. They are harmless, and the merge can be repeated. See
docs/decisions/0016-merge.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import BranchDelta, find_unmerged, is_same
from sessiontree.branches.file_conflicts import FileConflict, files_of, find_file_conflicts
from sessiontree.branches.merge_records import MERGED_FROM, MergeMethod, MergeRecord, append_point, find_same_merge
from sessiontree.branches.replay import CompletePairs, adapt_entries, check_no_open_calls, complete_pairs, is_replayable
from sessiontree.branches.summarize import SummaryOptions, newest_messages, summarize_branch
from sessiontree.compaction import hooks as hook_calls
from sessiontree.compaction.hooks import Hook
from sessiontree.compaction.sections import DECISIONS, parse_sections
from sessiontree.compaction.summarizers import Request, find_summarizer
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.ids import timestamp
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.errors import ReadOnlyError, UsageError, check_option
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.session.session import Session

MERGE_HEADING = "Another branch of this conversation was merged here. What was done on it:"
_REPLAYED = "{messages} written on another branch of this conversation and copied here by a merge."
_PICKED = "{messages} written on another branch of this conversation and picked from it."
_CONFLICTS = "## Conflicts"
_CONTRADICTIONS = (
    "In addition, this branch is about to be merged into another one. If a decision of this branch contradicts one of "
    f"the other's decisions below, end your notes with the heading `{_CONFLICTS}` and one point for each such pair, "
    "naming both. If none does, leave that heading out. The other's decisions:\n{decisions}"
)


class Conflict(Struct, frozen=True):
    """A conflict between two branches."""

    kind: Literal["file", "decision"]
    text: str
    path: str | None = None
    ours: tuple[str, ...] = ()
    """For a file: ids of the tool calls that changed it on our branch."""
    theirs: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        if self.kind == "decision":
            return {"kind": self.kind, "text": self.text}
        return {"kind": self.kind, "path": self.path, "ours": list(self.ours), "theirs": list(self.theirs)}


class Merged(Struct, frozen=True):
    """Result of a merge; with `dry_run`, the expected result."""

    how: MergeMethod
    source: str
    """The other parent."""
    into: str | None
    ancestor: str | None
    session: str | None = None
    """The other parent's session, if it is a different one."""
    messages: int = 0
    """Number of new messages on the other branch."""
    brought: tuple[str, ...] = ()
    """Entries that were copied before the merge entry."""
    entry: str | None = None
    """The merge entry; None for a dry run, and when there was nothing to merge."""
    summary: str = ""
    files: FileLists = FileLists()
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes about content that was not copied, and about failed hooks."""
    nothing: str | None = None
    """Why nothing was added; None if something was."""


class PreparedMerge(Struct, frozen=True):
    """A merge or pick that only has to be written."""

    found: Merged
    """The expected result."""
    entries: tuple[CanonicalEntry, ...] = ()
    """The entries to append after `found.into`, the merge entry last; none if there is nothing to merge."""
    hooks: Sequence[Hook] = ()


def merge(
    session: Session,
    source_leaf: str,
    *,
    into: str | Current = CURRENT,
    how: MergeMethod = "summary",
    source: Reader | None = None,
    options: SummaryOptions | None = None,
    dry_run: bool = False,
) -> Merged:
    """Merge another branch into this one; the merge entry becomes the current one.

    `summary` adds a summary of it, `append` copies its messages. Entries that were merged before are not merged again.
    To copy chosen entries, see `pick`.
    """
    prepared = prepare_merge(session, source_leaf, into=into, how=how, source=source, options=options, dry_run=dry_run)
    return prepared.found if dry_run else write_merge(session, prepared)


def prepare_merge(
    session: Session,
    source_leaf: str,
    *,
    into: str | Current = CURRENT,
    how: MergeMethod = "summary",
    source: Reader | None = None,
    options: SummaryOptions | None = None,
    dry_run: bool = False,
) -> PreparedMerge:
    """Do everything but write: check, summarize, adapt entries. `dry_run` also accepts read-only sessions."""
    if how == "pick":
        raise UsageError("merge cannot pick entries: use `pick`")
    check_option("how", how, [known for known in get_args(MergeMethod) if known != "pick"])
    other: Reader = session if source is None else source
    target = check_target(session, into, dry_run=dry_run)
    other.node_of(source_leaf)
    theirs, ours = find_unmerged(session, target, other, source_leaf)
    found = Merged(
        how, source_leaf, target, theirs.ancestor, None if is_same(session, other) else other.id, files=files_of(theirs)
    )
    messages = [entry for entry in theirs.items if is_replayable(entry)]
    if not messages:
        return nothing_to_merge(found, "already merged: it has no new messages; nothing was added")
    if found.session is None and target == theirs.ancestor:
        raise UsageError(
            f"{session.location}: {source_leaf} is a descendant of {target}, so there is nothing to merge; "
            "use `sessiontree branch` to switch to it"
        )
    done_before = find_same_merge(session, MergeRecord(source_leaf, target, session=found.session, how=how))
    if done_before is not None:
        return already_merged(found, done_before)
    check_no_open_calls(session, target)
    found = msgspec.structs.replace(found, messages=len(messages))
    if how == "append":
        return prepare_replay(session, found, complete_pairs(theirs.items, theirs.lead), theirs, ours)
    return _summarize(session, found, theirs, ours, SummaryOptions() if options is None else options)


def write_merge(session: Session, prepared: PreparedMerge) -> Merged:
    """Append a prepared merge in one write."""
    found = prepared.found
    if not prepared.entries:
        return found
    *brought, entry = session.append_all(prepared.entries, found.into)
    done = msgspec.structs.replace(found, brought=tuple(dict.fromkeys(brought)), entry=entry)
    return msgspec.structs.replace(done, notes=(*done.notes, *hook_calls.call_after(prepared.hooks, done)))


def nothing_to_merge(found: Merged, why: str) -> PreparedMerge:
    return PreparedMerge(msgspec.structs.replace(found, nothing=why))


def already_merged(found: Merged, record: str) -> PreparedMerge:
    """The result for a repeated merge."""
    return nothing_to_merge(found, f"already merged by {record}; nothing was added")


def check_target(session: Session, into: str | Current, *, dry_run: bool) -> str:
    """Check that a merge can be written, and find the entry to append it to."""
    if session.read_only is not None and not dry_run:
        raise ReadOnlyError(f"{session.location}: cannot write: {session.read_only}")
    target = session.leaf if isinstance(into, Current) else into
    if target is None:
        raise UsageError(f"{session.location}: no current entry; name the entry to append after")
    session.node_of(target)
    return append_point(session, target)


def prepare_replay(
    session: Session,
    found: Merged,
    pieces: CompletePairs,
    theirs: BranchDelta,
    ours: BranchDelta,
    *,
    entries: Sequence[str] = (),
) -> PreparedMerge:
    """Prepare to copy entries to the target, followed by the merge entry."""
    found = msgspec.structs.replace(
        found, conflicts=_file_conflicts(ours, theirs), notes=pieces.notes, messages=len(pieces.items)
    )
    if not pieces.items:
        return nothing_to_merge(found, "none of its messages can be copied; nothing was added")
    assert found.into is not None
    items = adapt_entries(pieces.items, theirs.session, session, found.into)
    messages = "The message above was" if len(items) == 1 else f"The {len(items)} messages above were"
    words = (_PICKED if found.how == "pick" else _REPLAYED).format(messages=messages)
    text = words + _render_conflicts(found.conflicts) + found.files.text()
    record = MergeRecord(
        found.source, found.into, found.ancestor, found.session, found.how, brought=len(items), entries=tuple(entries)
    )
    details = {**found.files.details(), **_details(record, found.conflicts)}
    fields = {"fromId": found.source, "summary": text, "details": details, "fromHook": False}
    return PreparedMerge(msgspec.structs.replace(found, summary=text), (*items, _merge_entry(fields)))


def _summarize(
    session: Session, found: Merged, theirs: BranchDelta, ours: BranchDelta, options: SummaryOptions
) -> PreparedMerge:
    chosen_options = options
    if options.writer is not find_summarizer() and not options.only_instructions:
        chosen_options = msgspec.structs.replace(options, instructions=_with_decisions(options, ours))
    result = summarize_branch(theirs, session, chosen_options)
    conflicts = _file_conflicts(ours, theirs)
    if not result.from_hook:
        text, named = _without_conflicts(result.text)
        result = msgspec.structs.replace(result, text=text + _render_conflicts((*conflicts, *named)))
        conflicts += named
    fields = result.fields(MERGE_HEADING)
    record = MergeRecord(found.source, found.into, found.ancestor, found.session, found.how)
    given = fields.get("details")
    details = {**(given if isinstance(given, dict) else {}), **_details(record, conflicts)}
    found = msgspec.structs.replace(
        found, summary=fields["summary"], files=result.files, conflicts=conflicts, notes=result.reports
    )
    entry = _merge_entry({"fromId": found.source, **fields, "details": details})
    return PreparedMerge(found, (entry,), options.hooks)


def _merge_entry(fields: dict[str, Any]) -> CanonicalEntry:
    return CanonicalEntry("branch_summary", fields, timestamp=timestamp())


def _details(record: MergeRecord, conflicts: Sequence[Conflict]) -> dict[str, Any]:
    found: dict[str, Any] = {MERGED_FROM: record.fields()}
    if conflicts:
        found["conflicts"] = [conflict.fields() for conflict in conflicts]
    return found


def _file_conflicts(ours: BranchDelta, theirs: BranchDelta) -> tuple[Conflict, ...]:
    return tuple(_conflict(found) for found in find_file_conflicts(ours, theirs))


def _conflict(found: FileConflict) -> Conflict:
    text = f"Both branches changed `{found.path}` differently: look at the file before relying on either version."
    return Conflict("file", text, found.path, found.ours, found.theirs)


def _render_conflicts(conflicts: Sequence[Conflict]) -> str:
    """Render conflicts for the model."""
    if not conflicts:
        return ""
    return f"\n\n{_CONFLICTS}\n" + "\n".join(f"- {' '.join(conflict.text.split())}" for conflict in conflicts)


def _with_decisions(options: SummaryOptions, ours: BranchDelta) -> str | None:
    """Add a question about contradictory decisions to the instructions."""
    agent = ours.session.dialect.name
    notes = find_summarizer()(Request("branch", newest_messages(ours, options.budget), agent=agent))
    decisions = parse_sections(notes.text).get(DECISIONS)
    if not decisions:
        return options.instructions
    asked = _CONTRADICTIONS.format(decisions="\n".join(f"- {decision}" for decision in decisions))
    return f"{options.instructions}\n\n{asked}" if options.instructions else asked


def _without_conflicts(summary: str) -> tuple[str, tuple[Conflict, ...]]:
    """Split a summary from its final section about conflicts."""
    before, heading, after = summary.rpartition(_CONFLICTS)
    if not heading:
        return summary, ()
    points = [line.strip().removeprefix("- ").strip() for line in after.splitlines()]
    return before.rstrip(), tuple(Conflict("decision", point) for point in points if point and point != "(none)")
