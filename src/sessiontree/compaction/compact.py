"""Compacting a session: cut, summarise, check, write. And taking it back.

Everything that can go wrong goes wrong before anything is written: no summary, a cancelled one, one that is not whole,
a result that does not fit. What is written is one entry behind the leaf; every line before it stays as it is, and
`undo` lets the session stand before it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.compaction import hooks as hooking
from sessiontree.compaction.context_units import STOOD_AT, Projection, project
from sessiontree.compaction.cut_point import KEEP_RECENT, Cut, Parts, find_cut, parts_at
from sessiontree.compaction.hooks import Cancel, Hook, Occasion, Supply
from sessiontree.compaction.policies import RESERVE, Policy, Reserve, Window
from sessiontree.compaction.prompts import TURN_HEADING
from sessiontree.compaction.sections import without_file_lists
from sessiontree.compaction.strategies import REPLACE, Strategy, find_strategy
from sessiontree.compaction.summarizers import Request, Summarizer, Summary, added_usage, find_summarizer
from sessiontree.compaction.system_prompt import current_system
from sessiontree.compaction.token_estimate import MEASURED, PI, Estimator, estimated_size
from sessiontree.compaction.touched_files import FileLists, files_in
from sessiontree.core.entries import BranchSummary, Entry
from sessiontree.core.ids import now_ms
from sessiontree.core.messages import CompactionSummary, Message, System
from sessiontree.errors import CompactionError, ReadOnlyError
from sessiontree.session.session import Branch, Session

_SUMMARY_SHARE = 0.8
"""How much of the reserve a summary may take."""

_TRIES = 12


class Prepared(Struct, frozen=True):
    """What a compaction would do."""

    strategy: str
    first_kept: str | None
    """The entry from which on all is kept; None when nothing is."""
    summarised: Sequence[Message]
    turn_prefix: Sequence[Message]
    kept: Sequence[Message]
    is_split_turn: bool
    previous_summary: str | None
    tokens_before: int
    """The context as it is, by Pi's arithmetic."""
    files: FileLists
    system: System | None
    """The system prompt in force, which a compaction has to carry."""


class Compacted(Struct, frozen=True):
    """What a compaction did, or with `dry_run` would do."""

    prepared: Prepared
    summary: str
    tokens_before: int
    """The context as it was: what the provider counted, if that can be trusted, and a measured estimate of the rest."""
    tokens_after: int
    """The context as it is now, by the measured estimate."""
    summarizer: str
    """Who wrote the summary."""
    is_from_hook: bool = False
    entry: Entry | None = None
    """What was written; None for a dry run."""
    stood_at: str | None = None
    """Where the session stood before it."""
    reports: tuple[str, ...] = ()
    """What went wrong in hooks."""


class Undone(Struct, frozen=True):
    """Where the session stands after a compaction was taken back."""

    leaf: str | None
    compaction: str
    left: int
    """How many messages were said after the compaction; they stay in the file, on a branch of their own."""


def prepare(
    session: Session,
    leaf: str | None,
    *,
    keep: int = KEEP_RECENT,
    strategy: Strategy | None = None,
    estimate: Estimator = PI,
    projection: Projection | None = None,
) -> Prepared | None:
    """What a compaction at an entry would do; None when there is nothing to compact."""
    found = project(session, leaf) if projection is None else projection
    chosen = find_strategy(None, session.dialect.name) if strategy is None else strategy
    if found.ends_compacted:
        return None
    cut = find_cut(found.units, keep, chosen.manner, estimate)
    if cut is None:
        return None
    parts = parts_at(found.units, cut)
    if not parts.summarised and not parts.turn_prefix:
        return None
    return Prepared(
        strategy=chosen.name,
        first_kept=found.units[cut.at].id if cut.at < len(found.units) else None,
        summarised=parts.summarised,
        turn_prefix=parts.turn_prefix,
        kept=parts.kept,
        is_split_turn=cut.turn_start is not None,
        previous_summary=found.earlier.summary if found.earlier is not None else None,
        tokens_before=found.size(PI).tokens,
        files=_files(session, found, cut, parts),
        system=current_system(found.messages),
    )


def _files(session: Session, projection: Projection, cut: Cut, parts: Parts) -> FileLists:
    """What was touched by what is summarised, and by what earlier summaries stand for."""
    agent = session.dialect.name
    found = files_in(parts.summarised, agent) | files_in(parts.turn_prefix, agent)
    if projection.earlier is not None:
        found |= projection.earlier.files
    for entry in session.entries(projection.ids_of("branch_summary", cut.at)):
        if isinstance(entry, BranchSummary) and not entry.from_hook:
            found |= FileLists.of_details(entry.details)
    return found


def compact(
    session: Session,
    *,
    branch: Branch | None = None,
    instructions: str | None = None,
    keep: int | None = None,
    strategy: str | None = None,
    summarizer: Summarizer | None = None,
    policy: Policy | None = None,
    window: Window | int | None = None,
    hooks: Sequence[Hook] = (),
    dry_run: bool = False,
) -> Compacted:
    """Let a summary stand for the older part of a session, or of one of its branches.

    With a window, the result is made to fit: by `policy` (default: a reserve) it is not due to be compacted again. If
    it cannot be made to fit, or there is nothing to compact, that is a `CompactionError` and nothing is written.
    """
    place: Session | Branch = session if branch is None else branch
    if session.read_only is not None and not dry_run:
        raise ReadOnlyError(f"{session.location}: cannot be compacted: {session.read_only}")
    projection = project(session, place.leaf)
    chosen = find_strategy(strategy, session.dialect.name)
    room = _room(window, policy)
    prepared = _prepared_to_fit(session, projection, KEEP_RECENT if keep is None else keep, chosen, room)
    occasion = Occasion(
        session,
        "compaction",
        prepared.summarised,
        prepared.turn_prefix,
        prepared.previous_summary,
        prepared.first_kept,
        prepared.tokens_before,
        prepared.files,
        instructions,
    )
    heard = hooking.ask(hooks, occasion)
    if isinstance(heard.verdict, Cancel):
        raise CompactionError(f"{session.location}: not compacted: {heard.verdict.reason}")
    supplied = heard.verdict
    writer = find_summarizer() if summarizer is None else summarizer
    if supplied is not None:
        summary, details = Summary(supplied.summary), supplied.details
        if supplied.keep_nothing:
            prepared = msgspec.structs.replace(prepared, first_kept=None, kept=())
    else:
        written = _summarised(writer, prepared, instructions, session.dialect.name, _summary_room(room))
        summary = Summary(written.text + prepared.files.text(), written.usage)
        details = {**prepared.files.details(), "summarizer": writer.name, "strategy": prepared.strategy}
        if not session.dialect.one_line_per_entry:
            details[STOOD_AT] = place.leaf
    after = _size_after(prepared, summary.text)
    if room is not None and after > room:
        raise CompactionError(
            f"{session.location}: not compacted: {after:,} tokens would be left and {room:,} fit; "
            "start a new session, or keep less of this one"
        )
    done = Compacted(
        prepared,
        summary.text,
        tokens_before=projection.likely_size().tokens,
        tokens_after=after,
        summarizer="hook" if supplied is not None else writer.name,
        is_from_hook=supplied is not None,
        stood_at=place.leaf,
        reports=heard.reports,
    )
    if dry_run:
        return done
    entry = place.append({"type": "compaction", **_fields(session, prepared, summary, details, supplied)})
    done = msgspec.structs.replace(done, entry=entry)
    return msgspec.structs.replace(done, reports=(*done.reports, *hooking.tell(hooks, done)))


def _room(window: Window | int | None, policy: Policy | None) -> int | None:
    """How many tokens may be left. A reserve that eats up a small window leaves half of it."""
    if window is None:
        return None
    known = Window(window) if isinstance(window, int) else window
    limit = (Reserve() if policy is None else policy).limit(known)
    return known.tokens if limit is None else max(limit, known.tokens // 2)


def _summary_room(room: int | None) -> int:
    """How long a summary may be: most of the reserve, and of a small window not more than a third."""
    longest = int(RESERVE * _SUMMARY_SHARE)
    return longest if room is None else min(longest, max(room // 3, 1))


def _prepared_to_fit(
    session: Session, projection: Projection, keep: int, strategy: Strategy, room: int | None
) -> Prepared:
    """What to do, with as much less kept as it takes to fit: in the end, nothing."""
    most = None if room is None else room - _summary_room(room)
    for attempt in range(_TRIES):
        prepared = prepare(session, projection.leaf, keep=keep, strategy=strategy, projection=projection)
        size = estimated_size(projection.messages, MEASURED) if prepared is None else _kept_size(prepared)
        if most is None or size <= most:
            break
        if strategy is REPLACE:
            break  # nothing is kept but calls that wait for their results
        if attempt == _TRIES - 2 or keep == 0:
            strategy = REPLACE
        keep = min(keep // 2, most)
    if prepared is None:
        raise CompactionError(f"{session.location}: there is nothing to compact: all of it would be kept")
    return prepared


def _kept_size(prepared: Prepared) -> int:
    system = 0 if prepared.system is None else MEASURED(prepared.system)
    return system + sum(map(MEASURED, prepared.kept))


def _size_after(prepared: Prepared, summary: str) -> int:
    return _kept_size(prepared) + MEASURED(CompactionSummary(summary=summary))


def _summarised(
    writer: Summarizer, prepared: Prepared, instructions: str | None, agent: str, max_tokens: int
) -> Summary:
    """The summary of what is to be summarised, and of the beginning of a turn that is cut."""
    previous = without_file_lists(prepared.previous_summary or "") or None
    request = Request(
        "history", prepared.summarised, previous, instructions, files=prepared.files, agent=agent, max_tokens=max_tokens
    )
    if not prepared.turn_prefix:
        return writer(request)
    whole = msgspec.structs.replace(request, max_tokens=max_tokens * 2 // 3)
    history = writer(whole) if prepared.summarised else Summary(previous or "")
    turn = Request(
        "turn", prepared.turn_prefix, None, instructions, files=prepared.files, agent=agent, max_tokens=max_tokens // 3
    )
    prefix = writer(turn)
    text = f"{history.text}\n\n{TURN_HEADING}\n\n{prefix.text}".lstrip()
    return Summary(text, added_usage(history.usage, prefix.usage))


def _fields(
    session: Session, prepared: Prepared, summary: Summary, details: Any, supplied: Supply | None
) -> dict[str, Any]:
    fields: dict[str, Any] = {"summary": summary.text}
    if prepared.first_kept is not None:
        fields["firstKeptEntryId"] = prepared.first_kept
    fields["tokensBefore"] = prepared.tokens_before
    if details is not None:
        fields["details"] = details
    if summary.usage is not None:
        fields["usage"] = msgspec.to_builtins(summary.usage)
    fields["fromHook"] = supplied is not None
    if prepared.system is not None and session.dialect.one_line_per_entry:
        system = msgspec.structs.replace(prepared.system, timestamp=now_ms())
        fields["systemMessage"] = msgspec.to_builtins(system)
    return fields


def undo(session: Session, *, branch: Branch | None = None) -> Undone:
    """Let the session stand before its last compaction again. Nothing is taken out of the file."""
    place: Session | Branch = session if branch is None else branch
    projection = project(session, place.leaf)
    if projection.earlier is None:
        raise CompactionError(f"{session.location}: there is no compaction to take back")
    journal = session.journal
    nodes = session.dialect.find_history(journal, session.node_of(place.leaf), session.read_options)
    ids = [journal.tree.ids[node] for node in nodes]
    before = [id for id in ids[: ids.index(projection.earlier.id)] if id in session and not id.startswith("@")]
    stood_at = projection.earlier.stood_at
    place.move(stood_at if stood_at in before else before[-1] if before else None)
    left = sum(len(unit.messages) for unit in projection.units) - _count_kept(projection)
    return Undone(place.leaf, projection.earlier.id, left)


def _count_kept(projection: Projection) -> int:
    summary = len(projection.messages) - sum(len(unit.messages) for unit in projection.units)
    return max(0, min(projection.trusted_from, len(projection.messages)) - summary)
