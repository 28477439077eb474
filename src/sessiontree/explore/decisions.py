"""Decide about lanes: keep one, merge several, drop some, or leave them all as they are.

A decision is a `verdict` record on each lane it is about. Files are applied to the project first, and only if they do
not conflict with the user's changes, so an interrupted decision can be repeated. Folders of lanes are removed last,
when their work is saved in git (see `worktrees`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sessiontree.branches.merge import merge as merge_branch
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.core.jsonio import Value
from sessiontree.errors import ConflictError, SessionTreeError, StoreError, UsageError
from sessiontree.explore.lane import ENDED, Lane, find_lane
from sessiontree.explore.leases import is_free
from sessiontree.explore.records import Verdict, VerdictRecord, write
from sessiontree.explore.state import ExplorationLike, ExplorationLog
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.git.trees import FileChange, FileConflict
from sessiontree.session.session import Session

_MAX_LISTED = 8


class DecisionResult(Value, frozen=True, omit_defaults=False):
    """The effect of a decision."""

    verdict: Verdict
    lanes: tuple[int, ...]
    leaf: str | None
    """The session's current entry afterwards."""
    files: tuple[FileChange, ...] = ()
    """Changes in the project."""
    joins: tuple[str, ...] = ()
    """The merge entries."""
    notes: tuple[str, ...] = ()
    """Messages for the user. Untrusted text."""
    failed: tuple[str, ...] = ()
    """Those notes that are about folders which could not be removed."""


class CleanupResult(Value, frozen=True, omit_defaults=False):
    """Which folders of lanes were removed."""

    lanes: tuple[int, ...] = ()
    """Lanes whose folders were removed."""
    stayed: tuple[str, ...] = ()
    """Folders that were kept, with the reason."""
    failed: tuple[str, ...] = ()
    """Folders that could not be removed, with the reason and the next step. Untrusted text, as above."""


def keep(
    session: Session,
    exploration: ExplorationLike,
    lane: int | str,
    worktrees: LaneWorktrees | None,
    *,
    apply: bool = True,
    keep_worktrees: bool = False,
) -> DecisionResult:
    """Make a lane current and apply its files to the project. Undecided lanes are left.

    A lane that was kept before is also left: its files are removed from the project, unless they were changed or
    committed.
    """
    chosen = find_lane(exploration.lanes, lane)
    _check_idle(session, exploration.lanes)
    leaf = session.leaf
    is_on_lane = _is_on_lane(session, chosen)
    former = _find_former(session, exploration, chosen)
    files, remaining = _apply([chosen], worktrees, instead_of=former) if apply else ((), former)
    _check_idle(session, exploration.lanes)  # again: a lane may have been resumed while files were applied
    _write_verdict(chosen, "kept", "", worktrees)
    for other in exploration.lanes:
        if other in former or (other is not chosen and other.verdict is None):
            _write_verdict(other, "left", f"lane {chosen.number} was kept", worktrees)
    _check_valid(session, exploration.lanes)
    session.move(leaf if is_on_lane else chosen.leaf)  # a session that continued after the lane's end stays there
    session.flush()
    cleanup = CleanupResult() if keep_worktrees else remove_worktrees(exploration.lanes, worktrees)
    kept_before = [
        f"lane {other.number} was kept before; its changes may still be in the project"
        for other in remaining
        if other.worktree is not None
    ]
    notes = (*kept_before, *cleanup.stayed, *cleanup.failed)
    return DecisionResult("kept", (chosen.number,), session.leaf, files, notes=notes, failed=cleanup.failed)


def _is_on_lane(session: Session, lane: Lane) -> bool:
    return session.leaf is not None and lane.leaf in session.path_ids(session.leaf)


def _find_former(session: Session, exploration: ExplorationLike, chosen: Lane) -> list[Lane]:
    """The lanes that were kept before, and that `chosen` replaces."""
    if _is_on_lane(session, chosen):
        return []
    return [lane for lane in exploration.lanes if lane is not chosen and _verdict_of(lane.verdict) == "kept"]


def _verdict_of(record: VerdictRecord | None) -> Verdict | None:
    return None if record is None else record.verdict


def merge(
    session: Session,
    exploration: ExplorationLike,
    lanes: Sequence[int | str],
    worktrees: LaneWorktrees | None,
    *,
    summary: SummaryOptions | None = None,
    keep_worktrees: bool = False,
) -> DecisionResult:
    """Merge lanes into the current branch, or into the first of them if the current entry is before the lanes.

    Each is summarized there. The files of all are applied to the project, or none are.
    """
    chosen = _find_lanes(exploration, lanes)
    if not chosen:
        raise UsageError("no lanes to merge; name at least one")
    _check_idle(session, chosen)
    _apply(chosen, worktrees, dry_run=True)
    into = _find_target(session, chosen)
    reason = f"with {_numbers(chosen)}"
    if into is None:
        first, *_ = chosen
        assert first.leaf is not None
        _write_verdict(first, "merged", reason, worktrees)  # before the merge entries that follow on its branch
        into = first.leaf
    joins: list[str] = []
    notes: list[str] = []
    for lane in chosen:
        assert lane.leaf is not None
        if lane.start in session.path_ids(into):
            continue
        merged = merge_branch(session, lane.leaf, into=into, options=summary)
        into = merged.entry or into
        joins += [merged.entry] if merged.entry is not None else []
        notes += [f"lane {lane.number}: {merged.nothing}"] if merged.nothing is not None else []
        notes += [conflict.text for conflict in merged.conflicts]
    files, _ = _apply(chosen, worktrees)
    for lane in chosen:
        _write_verdict(lane, "merged", reason, worktrees)
    _check_valid(session, chosen)
    session.move(into)
    session.flush()
    cleanup = CleanupResult() if keep_worktrees else remove_worktrees(chosen, worktrees)
    notes += (*cleanup.stayed, *cleanup.failed)
    numbers = tuple(lane.number for lane in chosen)
    return DecisionResult("merged", numbers, session.leaf, files, tuple(joins), tuple(notes), cleanup.failed)


def _find_target(session: Session, chosen: Sequence[Lane]) -> str | None:
    """The entry that lanes are merged into; None for the end of the first lane."""
    into = _without_leaf_entries(session, session.leaf)
    first, *others = chosen
    assert first.leaf is not None
    before = session.path_ids(first.leaf)
    if into is not None and into not in before[: before.index(first.start)]:
        return into
    if not others:
        raise UsageError(
            f"lane {first.number} starts at the current entry, so there is nothing to merge; keep it, or name more "
            "lanes"
        )
    return None


def _find_lanes(exploration: ExplorationLike, names: Sequence[int | str]) -> list[Lane]:
    """Lanes by number or name, each once."""
    return list({lane.start: lane for lane in (find_lane(exploration.lanes, name) for name in names)}.values())


def _without_leaf_entries(session: Session, leaf: str | None) -> str | None:
    # Some formats record the current entry as a separate entry.
    while leaf is not None and session.type_of(leaf) == "leaf":
        leaf = session.parent(leaf)
    return leaf


def drop(
    session: Session,
    exploration: ExplorationLike,
    lanes: Sequence[int | str],
    worktrees: LaneWorktrees | None,
    *,
    why: str = "",
    keep_worktrees: bool = False,
) -> DecisionResult:
    """Mark lanes as dropped. They stay in the tree, and their work in git."""
    chosen = _find_lanes(exploration, lanes)
    _check_idle(session, chosen)
    return _set_aside(session, chosen, "dropped", why, worktrees, keep_worktrees=keep_worktrees)


def leave(
    session: Session, exploration: ExplorationLike, worktrees: LaneWorktrees | None, *, keep_worktrees: bool = False
) -> DecisionResult:
    """Mark all undecided lanes as left. They can be decided about later."""
    chosen = [lane for lane in exploration.lanes if lane.verdict is None]
    _check_idle(session, chosen)
    return _set_aside(session, chosen, "left", "", worktrees, keep_worktrees=keep_worktrees)


def preview(
    session: Session,
    exploration: ExplorationLike,
    lanes: Sequence[int | str],
    verdict: Verdict,
    worktrees: LaneWorktrees | None,
) -> tuple[FileChange, ...]:
    """The changes in the project that a decision would make. Raises what the decision would raise; decides nothing."""
    chosen = _find_lanes(exploration, lanes)
    if not chosen:
        raise UsageError("no lanes were named; name at least one")
    _check_idle(session, exploration.lanes if verdict == "kept" else chosen)
    files: tuple[FileChange, ...] = ()
    if verdict == "kept":
        former = _find_former(session, exploration, chosen[0])
        files, _ = _apply(chosen[:1], worktrees, instead_of=former, dry_run=True)
    elif verdict == "merged":
        _find_target(session, chosen)
        files, _ = _apply(chosen, worktrees, dry_run=True)
    return files


def revert(
    session: Session,
    exploration: ExplorationLike,
    before: Mapping[int, VerdictRecord | None],
    leaf: str | None,
    worktrees: LaneWorktrees | None,
) -> DecisionResult:
    """Take back a decision: the files of the project, the verdicts and the current entry are as before it.

    `before` has the verdicts by the number of the lane. A lane that had none is left, and can be decided about. Merge
    entries stay in the tree, on a separate branch.
    """
    _check_idle(session, exploration.lanes)
    former = [lane for lane in exploration.lanes if _has_files(before.get(lane.number))]
    latest = [lane for lane in exploration.lanes if _has_files(lane.verdict)]
    put_back = [lane for lane in former if lane not in latest]
    taken_out = [lane for lane in latest if lane not in former]
    files, remaining = _apply(put_back, worktrees, instead_of=taken_out)
    _check_idle(session, exploration.lanes)
    changed = [lane for lane in exploration.lanes if lane.verdict != before.get(lane.number)]
    for lane in changed:
        record = before.get(lane.number) or VerdictRecord("left", "the decision was undone")
        _write_verdict(lane, record.verdict, record.why, worktrees)
    _check_valid(session, exploration.lanes)
    session.move(leaf)
    session.flush()
    notes = tuple(
        f"lane {lane.number}: its changes may still be in the project, which has changed since; take them out by hand"
        for lane in remaining
        if lane.worktree is not None
    )
    return DecisionResult("left", tuple(lane.number for lane in changed), session.leaf, files, notes=notes)


def _has_files(verdict: VerdictRecord | None) -> bool:
    """Whether the files of a lane with this verdict were applied to the project."""
    return _verdict_of(verdict) in ("kept", "merged")


def _set_aside(
    session: Session,
    lanes: Sequence[Lane],
    verdict: Verdict,
    why: str,
    worktrees: LaneWorktrees | None,
    *,
    keep_worktrees: bool,
) -> DecisionResult:
    leaf = session.leaf
    for lane in lanes:
        _write_verdict(lane, verdict, why, worktrees)
    _check_valid(session, lanes)
    session.move(leaf)  # the verdicts are the last entries of the file, which some clients take for the current one
    session.flush()
    cleanup = CleanupResult() if keep_worktrees else remove_worktrees(lanes, worktrees)
    path = session.path_ids(leaf) if leaf is not None else []
    current = [f"the current entry is still on lane {lane.number}" for lane in lanes if lane.start in path]
    notes = (*current, *cleanup.stayed, *cleanup.failed)
    numbers = tuple(lane.number for lane in lanes)
    return DecisionResult(verdict, numbers, session.leaf, notes=notes, failed=cleanup.failed)


def finished_lanes(lanes: Iterable[Lane]) -> list[Lane]:
    """Lanes that need no folder: ended, or with a verdict and not running."""
    return [
        lane
        for lane in lanes
        if lane.state in ENDED or (lane.verdict is not None and lane.state not in ("running", "waiting"))
    ]


def stale_lanes(lanes: Iterable[Lane], worktrees: LaneWorktrees | None) -> list[Lane]:
    """Finished lanes that still have a folder, on request or because a process died."""
    if worktrees is None:
        return []
    return [
        lane for lane in finished_lanes(lanes) if lane.worktree is not None and worktrees.has_remains(lane.worktree)
    ]


def remove_worktrees(lanes: Iterable[Lane], worktrees: LaneWorktrees | None) -> CleanupResult:
    """Save and remove the folders of lanes; a failure affects only that lane."""
    if worktrees is None:
        return CleanupResult()
    removed: list[int] = []
    stayed: list[str] = []
    failed: list[str] = []
    for lane in lanes:
        if lane.worktree is None:
            continue
        try:
            why = worktrees.remove(lane.worktree)
        except (SessionTreeError, OSError) as error:
            failed.append(f"lane {lane.number}: {error}")
        else:
            stayed += [why] if why is not None else []
            removed += [lane.number] if why is None else []
    return CleanupResult(tuple(removed), tuple(stayed), tuple(failed))


def _write_verdict(lane: Lane, verdict: Verdict, why: str, worktrees: LaneWorktrees | None) -> None:
    commit = None
    if worktrees is not None and lane.worktree is not None:
        try:
            commit = worktrees.save(lane.worktree)
        except StoreError:  # a damaged folder; `remove_worktrees` keeps and reports it
            commit = lane.saved
    record = VerdictRecord(verdict, why, commit)
    if lane.verdict != record:
        write(lane.branch, record)
        lane.verdict = record


def _apply(
    lanes: Sequence[Lane], worktrees: LaneWorktrees | None, *, instead_of: Sequence[Lane] = (), dry_run: bool = False
) -> tuple[tuple[FileChange, ...], list[Lane]]:
    """Apply the files of lanes to the project. Returns the changes, and former lanes whose files remain there."""
    chosen = [lane.worktree for lane in lanes if lane.worktree is not None]
    former = [lane.worktree for lane in instead_of if lane.worktree is not None]
    if worktrees is None or not (chosen or former):
        return (), [*instead_of]
    applied = worktrees.apply_all(chosen, instead_of=former, dry_run=dry_run)
    if applied.clashes:
        raise ConflictError(_conflict_message(applied.clashes, lanes))
    return applied.files, [lane for lane in instead_of if lane.worktree in applied.stay]


def _conflict_message(clashes: Sequence[FileConflict], lanes: Sequence[Lane]) -> str:
    listed = "; ".join(f"{clash.path} {clash.why}" for clash in clashes[:_MAX_LISTED])
    more = f"; and {len(clashes) - _MAX_LISTED} more" if len(clashes) > _MAX_LISTED else ""
    if len(lanes) == 1:
        whose, step = f"lane {lanes[0].number} conflict with the project", "Set aside your changes to them"
    else:
        whose = f"lanes {_numbers(lanes)} conflict with each other or with the project"
        step = "Keep one lane, or merge fewer"
    return (
        f"the files of {whose}: {listed}{more}; nothing was written. {step}; "
        "`sessiontree explore diff SESSION LANE` shows them"
    )


def _numbers(lanes: Sequence[Lane]) -> str:
    return ", ".join(str(lane.number) for lane in lanes)


def _check_idle(session: Session, lanes: Sequence[Lane]) -> None:
    """Refuse to decide about lanes that run, or changed since the caller read them."""
    session.refresh()
    log = ExplorationLog(session)
    log.refresh()
    running = [lane for lane in lanes if lane.state in ("running", "waiting") or _is_held(session, log, lane)]
    if running:
        raise UsageError(
            f"still running: {_lanes(running)}; wait until they have ended, or stop them in their terminal"
        )
    changed = [lane for lane in lanes if log.tracked[lane.start].leaf != lane.leaf]
    if changed:
        raise ConflictError(
            f"{_lanes(changed)} changed in the meantime; nothing was decided. Compare the lanes again first"
        )


def _check_valid(session: Session, lanes: Sequence[Lane]) -> None:
    # Another process may have taken a lane over just before the verdict was written; then the verdict is invalid.
    log = ExplorationLog(session)
    log.refresh()
    late = [lane for lane in lanes if log.tracked[lane.start].verdict != lane.verdict]
    if late:
        raise ConflictError(
            f"another process just resumed {_lanes(late)}, so the decision is void; their files may be in the project. "
            "Wait until they have ended, and decide again"
        )


def _lanes(lanes: Sequence[Lane]) -> str:
    return f"{'lane' if len(lanes) == 1 else 'lanes'} {_numbers(lanes)}"


def _is_held(session: Session, log: ExplorationLog, lane: Lane) -> bool:
    tracked = log.tracked[lane.start]
    return tracked.end is None and not is_free(tracked.lease, session.entry(tracked.leaf).timestamp)
