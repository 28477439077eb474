"""Compact a session: cut, summarize, check, write. And undo it.

Everything that can fail (no summary, an incomplete one, a hook that cancels, a result that does not fit) fails before
anything is written. A compaction is one entry after the leaf; all lines before it stay, and `undo` switches back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.compaction import hooks as hook_calls
from sessiontree.compaction.context_units import (
    LEAF_BEFORE_KEY,
    SUMMARIZER_KEY,
    ContextUnits,
    PreviousCompaction,
    build_units,
    decode_previous,
)
from sessiontree.compaction.cut_point import KEEP_RECENT, Cut, Parts, find_cut, parts_at
from sessiontree.compaction.hooks import Cancel, Hook, PendingSummary, SuppliedSummary
from sessiontree.compaction.policies import RESERVE, Policy, Reserve, Window
from sessiontree.compaction.prompts import TURN_HEADING
from sessiontree.compaction.sections import short_summary, without_file_lists
from sessiontree.compaction.strategies import REPLACE, Strategy, find_strategy
from sessiontree.compaction.summarizers import Request, Summarizer, Summary, add_usage, find_summarizer
from sessiontree.compaction.token_estimate import MEASURED, PI, Estimator, estimated_size
from sessiontree.compaction.touched_files import FileLists, files_in
from sessiontree.core.context import current_system
from sessiontree.core.entries import BranchSummary, Entry, MessageEntry
from sessiontree.core.ids import now_ms
from sessiontree.core.jsonio import native_fields
from sessiontree.core.messages import CompactionSummary, Message, System
from sessiontree.errors import CompactionError, ReadOnlyError
from sessiontree.session.session import Branch, Session

_SUMMARY_SHARE = 0.8
"""Share of the reserve that a summary may use."""

_TRIES = 12
"""Attempts to fit a window; each keeps half as much, and the last keeps nothing."""


class CompactionPlan(Struct, frozen=True):
    """What a compaction will summarize and keep."""

    strategy: str
    first_kept: str | None
    """The first entry that is kept; None if none is."""
    summarized: Sequence[Message]
    turn_prefix: Sequence[Message]
    kept: Sequence[Message]
    is_split_turn: bool
    previous_summary: str | None
    tokens_before: int
    """Size of the context by Pi's arithmetic."""
    files: FileLists
    system: System | None
    """The system prompt in force, which the compaction entry has to contain."""


class Compacted(Struct, frozen=True):
    """Result of a compaction, or with `dry_run` what it would be."""

    plan: CompactionPlan
    summary: str
    tokens_before: int
    """Size before: the provider's count, if it can be trusted, plus a measured estimate of the rest."""
    tokens_after: int
    """Size after, by the measured estimate."""
    summarizer: str
    """Name of the summarizer."""
    is_from_hook: bool = False
    entry: Entry | None = None
    """The compaction entry; None for a dry run."""
    leaf_before: str | None = None
    """The current entry before the compaction."""
    reports: tuple[str, ...] = ()
    """Failures of hooks."""


class Undone(Struct, frozen=True):
    """Result of undoing a compaction."""

    leaf: str | None
    compaction: str
    left: int
    """Number of messages after the compaction; they stay in the file, on a separate branch."""
    leaf_before: str | None = None
    """The current entry before the undo; switching to it reverts the undo."""


def prepare(
    session: Session,
    leaf: str | None,
    *,
    keep: int = KEEP_RECENT,
    strategy: Strategy | None = None,
    estimate: Estimator = PI,
    context_units: ContextUnits | None = None,
) -> CompactionPlan | None:
    """Plan a compaction at an entry; None when there is nothing to compact."""
    found = build_units(session, leaf) if context_units is None else context_units
    chosen = find_strategy(None, session.dialect) if strategy is None else strategy
    if found.ends_compacted:
        return None
    cut = find_cut(found.units, keep, chosen.rule, estimate)
    if cut is None:
        return None
    parts = parts_at(found.units, cut)
    if not parts.summarized and not parts.turn_prefix:
        return None
    return CompactionPlan(
        strategy=chosen.name,
        first_kept=found.units[cut.at].id if cut.at < len(found.units) else None,
        summarized=parts.summarized,
        turn_prefix=parts.turn_prefix,
        kept=parts.kept,
        is_split_turn=cut.turn_start is not None,
        previous_summary=found.previous.summary if found.previous is not None else None,
        tokens_before=found.size(PI).tokens,
        files=_touched_files(session, found, cut, parts),
        system=current_system(found.messages),
    )


def _touched_files(session: Session, context_units: ContextUnits, cut: Cut, parts: Parts) -> FileLists:
    """Files used in the summarized messages and in what earlier summaries replace."""
    agent = session.dialect.name
    found = files_in(parts.summarized, agent) | files_in(parts.turn_prefix, agent)
    if context_units.previous is not None:
        found |= context_units.previous.files
    for entry in session.entries(context_units.ids_of("branch_summary", cut.at)):
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
    """Replace the older messages of a session, or of one of its branches, with a summary.

    With a window, the result fits: `policy` (default: a reserve) does not ask for another compaction. If that is not
    possible, or there is nothing to compact, raise `CompactionError`; nothing is written.
    """
    prepared = prepare_compaction(
        session,
        branch=branch,
        instructions=instructions,
        keep=keep,
        strategy=strategy,
        summarizer=summarizer,
        policy=policy,
        window=window,
        hooks=hooks,
        dry_run=dry_run,
    )
    return prepared.found if dry_run else write_compaction(session if branch is None else branch, prepared)


class PreparedCompaction(Struct, frozen=True):
    """A compaction that only has to be written."""

    found: Compacted
    """The expected result."""
    fields: dict[str, Any]
    """The fields of the compaction entry."""
    hooks: Sequence[Hook] = ()


def prepare_compaction(
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
) -> PreparedCompaction:
    """Do everything but write: cut, summarize, check. `dry_run` also accepts read-only sessions."""
    target: Session | Branch = session if branch is None else branch
    if session.read_only is not None and not dry_run:
        raise ReadOnlyError(f"{session.location}: cannot compact: {session.read_only}")
    context_units = build_units(session, target.leaf)
    chosen = find_strategy(strategy, session.dialect)
    limit = _token_limit(window, policy)
    plan = _plan_to_fit(session, context_units, KEEP_RECENT if keep is None else keep, chosen, limit)
    supplied, reports = _ask_hooks(session, plan, instructions, hooks)
    writer = find_summarizer() if summarizer is None else summarizer
    if supplied is not None:
        by = "hook"
        summary, details = Summary(supplied.summary), supplied.details
        if supplied.keep_nothing:
            plan = msgspec.structs.replace(plan, first_kept=None, kept=())
    else:
        written = _summarize(writer, plan, instructions, session.dialect.name, _summary_limit(limit))
        by, reports = written.by or writer.name, (*reports, *written.reports)
        summary = Summary(written.text + plan.files.text(), written.usage)
        details = {**plan.files.details(), SUMMARIZER_KEY: by, "strategy": plan.strategy}
        # In these formats the compaction need not be a child of the current entry, which `undo` returns to.
        if not session.dialect.traits.one_line_per_entry:
            details[LEAF_BEFORE_KEY] = target.leaf
    after = _size_after(plan, summary.text)
    if limit is not None and after > limit:
        raise CompactionError(
            f"{session.location}: not compacted: {after:,} tokens would be left but only {limit:,} fit; "
            "start a new session, or keep less of this one"
        )
    done = Compacted(
        plan,
        summary.text,
        tokens_before=context_units.plausible_size().tokens,
        tokens_after=after,
        summarizer=by,
        is_from_hook=supplied is not None,
        leaf_before=target.leaf,
        reports=reports,
    )
    return PreparedCompaction(done, _fields(session, plan, summary, details, supplied), hooks)


def _ask_hooks(
    session: Session, plan: CompactionPlan, instructions: str | None, hooks: Sequence[Hook]
) -> tuple[SuppliedSummary | None, tuple[str, ...]]:
    """The summary that a hook supplies, if one does, and reports of failed hooks; `CompactionError` if one cancels."""
    pending = PendingSummary(
        session,
        "compaction",
        plan.summarized,
        plan.turn_prefix,
        plan.previous_summary,
        plan.first_kept,
        plan.tokens_before,
        plan.files,
        instructions,
    )
    decision = hook_calls.call_before(hooks, pending)
    if isinstance(decision.verdict, Cancel):
        raise CompactionError(f"{session.location}: not compacted: {decision.verdict.reason}")
    return decision.verdict, decision.reports


def write_compaction(target: Session | Branch, prepared: PreparedCompaction) -> Compacted:
    """Append a prepared compaction after the current entry, or after the leaf of a branch."""
    entry = target.append({"type": "compaction", **prepared.fields})
    done = msgspec.structs.replace(prepared.found, entry=entry)
    return msgspec.structs.replace(done, reports=(*done.reports, *hook_calls.call_after(prepared.hooks, done)))


def _token_limit(window: Window | int | None, policy: Policy | None) -> int | None:
    """Largest size after the compaction: the policy's limit, and at least half of a small window."""
    if window is None:
        return None
    known = Window(window) if isinstance(window, int) else window
    limit = (Reserve() if policy is None else policy).limit(known)
    return known.tokens if limit is None else max(limit, known.tokens // 2)


def _summary_limit(limit: int | None) -> int:
    """Largest size of the summary: most of the reserve, at most a third of a small window."""
    longest = int(RESERVE * _SUMMARY_SHARE)
    return longest if limit is None else min(longest, max(limit // 3, 1))


def _plan_to_fit(
    session: Session, context_units: ContextUnits, keep: int, strategy: Strategy, limit: int | None
) -> CompactionPlan:
    """Plan a compaction that fits, keeping less and less: in the end, nothing."""
    most = None if limit is None else limit - _summary_limit(limit)
    for attempt in range(_TRIES):
        plan = prepare(session, context_units.leaf, keep=keep, strategy=strategy, context_units=context_units)
        size = estimated_size(context_units.messages, MEASURED) if plan is None else _kept_size(plan)
        if most is None or size <= most:
            break
        if strategy is REPLACE:
            break  # this strategy keeps only calls that still need their results
        if attempt == _TRIES - 2 or keep == 0:
            strategy = REPLACE
        keep = min(keep // 2, most)
    if plan is None:
        raise CompactionError(
            f"{session.location}: nothing to compact: everything would be kept; keep fewer tokens "
            "(the setting compaction.keepRecentTokens, or --keep)"
        )
    return plan


def _kept_size(plan: CompactionPlan) -> int:
    system = 0 if plan.system is None else MEASURED(plan.system)
    return system + sum(map(MEASURED, plan.kept))


def _size_after(plan: CompactionPlan, summary: str) -> int:
    return _kept_size(plan) + MEASURED(CompactionSummary(summary=summary))


def _summarize(
    writer: Summarizer, plan: CompactionPlan, instructions: str | None, agent: str, max_tokens: int
) -> Summary:
    """Summarize the older messages and, if a turn is split, its first part."""
    previous = without_file_lists(plan.previous_summary or "") or None
    request = Request(
        "history", plan.summarized, previous, instructions, files=plan.files, agent=agent, max_tokens=max_tokens
    )
    if not plan.turn_prefix:
        return writer(request)
    history_request = msgspec.structs.replace(request, max_tokens=max_tokens * 2 // 3)
    history = writer(history_request) if plan.summarized else Summary(previous or "")
    turn = Request(
        "turn", plan.turn_prefix, None, instructions, files=plan.files, agent=agent, max_tokens=max_tokens // 3
    )
    prefix = writer(turn)
    text = f"{history.text}\n\n{TURN_HEADING}\n\n{prefix.text}".lstrip()
    # If one of two parts was written by another summarizer, both are named.
    authors = dict.fromkeys(part.by or writer.name for part in ((history, prefix) if plan.summarized else (prefix,)))
    reports = tuple(dict.fromkeys((*history.reports, *prefix.reports)))
    return Summary(text, add_usage(history.usage, prefix.usage), " and ".join(authors), reports)


def _fields(
    session: Session, plan: CompactionPlan, summary: Summary, details: Any, supplied: SuppliedSummary | None
) -> dict[str, Any]:
    fields: dict[str, Any] = {"summary": summary.text}
    if session.dialect.traits.has_short_summaries and (short := short_summary(summary.text)):
        fields["shortSummary"] = short
    if plan.first_kept is not None:
        fields["firstKeptEntryId"] = plan.first_kept
    fields["tokensBefore"] = plan.tokens_before
    if details is not None:
        fields["details"] = details
    if summary.usage is not None:
        fields["usage"] = msgspec.to_builtins(summary.usage)
    fields["fromHook"] = supplied is not None
    if plan.system is not None and session.dialect.traits.one_line_per_entry:
        system = msgspec.structs.replace(plan.system, timestamp=now_ms())
        fields["systemMessage"] = native_fields(system)
    return fields


def undo(session: Session, *, branch: Branch | None = None, compaction: str | None = None) -> Undone:
    """Switch to the entry before the last compaction, or before the named one. Nothing is removed from the file."""
    target: Session | Branch = session if branch is None else branch
    undone = find_undo(session, target.leaf, compaction)
    target.move(undone.leaf)
    return undone


def find_undo(session: Session, leaf: str | None, compaction: str | None = None) -> Undone:
    """The result of undoing the last compaction before an entry; `CompactionError` if there is none.

    A compaction of the session's agent is only undone if it is named: the user has not asked us for it.
    """
    if session.dialect.traits.is_linear:
        raise CompactionError(
            f"{session.location}: a compaction cannot be undone, as these sessions have no branches; "
            "`sessiontree fork SESSION --at ENTRY` copies the messages up to an entry before it"
        )
    last = build_units(session, leaf)
    history = _history(session, leaf)
    wanted = None if compaction is None else session.find_entry(compaction)
    on_path = _compaction_on_path(session, leaf, wanted) if last.previous is None else None
    if last.previous is None and on_path is None and wanted is None:
        raise CompactionError(f"{session.location}: no compaction to undo")
    previous: PreviousCompaction | None
    if on_path is not None:
        previous, left = on_path, _count_messages_after(session, history, on_path.id)
    elif last.previous is not None and wanted in (None, last.previous.id, last.previous.message_id):
        previous, left = last.previous, sum(len(unit.messages) for unit in last.units) - _count_kept(last)
    else:
        assert wanted is not None
        previous = _units_at_compaction(session, history, wanted).previous
        left = _count_messages_after(session, history, wanted)
    assert previous is not None
    if wanted is None and not previous.is_own:
        raise CompactionError(
            f"{session.location}: the last compaction, {previous.id}, is the agent's own; "
            f"to undo it all the same, name it: --compaction {previous.id}"
        )
    before = [id for id in history[: history.index(previous.id)] if id in session and not id.startswith("@")]
    if not before:
        raise CompactionError(f"{session.location}: cannot undo the compaction: the messages before it are missing")
    target = previous.leaf_before if previous.leaf_before in before else before[-1]
    return Undone(target, previous.id, left, leaf)


def _history(session: Session, leaf: str | None) -> list[str]:
    """The entries before a leaf, including those that compactions replace."""
    journal = session.journal
    nodes = session.dialect.find_history(journal, session.node_of(leaf), session.read_options)
    return [journal.tree.ids[node] for node in nodes]


def _compaction_on_path(session: Session, leaf: str | None, wanted: str | None) -> PreviousCompaction | None:
    """The last compaction, or the wanted one, of a format whose paths also have the entries that it replaces."""
    if session.dialect.traits.one_line_per_entry:
        return None
    types, node_of = session.journal.types, session.journal.tree.node_of
    for id in reversed(session.branch(leaf).context().path):
        if wanted in (None, id) and types[node_of[id]] == "compaction":
            return decode_previous(session, [id], ())
    return None


def _count_messages_after(session: Session, history: list[str], id: str) -> int:
    return sum(isinstance(entry, MessageEntry) for entry in session.entries(history[history.index(id) + 1 :]))


def _units_at_compaction(session: Session, history: list[str], wanted: str) -> ContextUnits:
    """The context right after a compaction, which may have two lines."""
    at = history.index(wanted) if wanted in history else len(history)
    for id in history[at : at + 2]:
        found = build_units(session, id)
        if found.previous is not None and found.previous.id == wanted:
            return found
    raise CompactionError(f"{session.location}: {wanted} is not a compaction before the current entry")


def _count_kept(context_units: ContextUnits) -> int:
    summary = len(context_units.messages) - sum(len(unit.messages) for unit in context_units.units)
    return max(0, min(context_units.trusted_from, len(context_units.messages)) - summary)
