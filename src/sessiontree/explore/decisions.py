"""What becomes of lanes: one is kept, several are merged, some are dropped, or all are left as they are.

Every decision is a `verdict` entry on each lane it is about. Files come into the project before anything else is
written, and only if they fit what the user changed meanwhile; a decision that was interrupted can be made again. The
folders of lanes go at the end, when their work is safe in git (see `copies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessiontree.branches.merge import merge as merge_branch
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.core.jsonio import Value
from sessiontree.errors import ConflictError, SessionTreeError, StoreError, UsageError
from sessiontree.explore.compare import HasLanes
from sessiontree.explore.lane import ENDED, Lane, find_lane
from sessiontree.explore.leases import is_free
from sessiontree.explore.records import Copy, Judged, Verdict, write
from sessiontree.explore.state import ExplorationLog
from sessiontree.explore.worktrees import Copies
from sessiontree.git.trees import FileChange, FileClash
from sessiontree.session.session import Session

_SHOWN = 8


class Decided(Value, frozen=True, omit_defaults=False):
    """What a decision did."""

    verdict: Verdict
    lanes: tuple[int, ...]
    leaf: str | None
    """Where the session stands then."""
    files: tuple[FileChange, ...] = ()
    """What changed in the project."""
    joins: tuple[str, ...] = ()
    """The entries that bring lanes in."""
    notes: tuple[str, ...] = ()
    """What a person should look at. Untrusted text."""
    failed: tuple[str, ...] = ()
    """Those of them that tell of folders that could not be tidied up."""


class Tidied(Value, frozen=True, omit_defaults=False):
    """What became of the folders of lanes."""

    lanes: tuple[int, ...] = ()
    """Those whose folders are gone now."""
    stayed: tuple[str, ...] = ()
    """Which were left there, and why."""
    failed: tuple[str, ...] = ()
    """Which could not be tidied up, why, and what to do. Untrusted text, as above."""


def keep(
    session: Session,
    exploration: HasLanes,
    lane: int | str,
    copies: Copies | None,
    *,
    apply: bool = True,
    keep_copies: bool = False,
) -> Decided:
    """Stand on a lane for good, with its files in the project. Lanes that nothing was decided about are left.

    One that was kept before is left, too: its files go from the project again, unless they were changed or committed.
    """
    chosen = find_lane(exploration.lanes, lane)
    _check_quiet(session, exploration.lanes)
    stands = session.leaf
    is_there = stands is not None and chosen.leaf in session.path_ids(stands)
    former = [] if is_there else [one for one in exploration.lanes if one is not chosen and _is(one, "kept")]
    files, stay = _apply([chosen], copies, instead_of=former) if apply else ((), former)
    _check_quiet(session, exploration.lanes)
    _judge(chosen, "kept", "", copies)
    for other in exploration.lanes:
        if other in former or (other is not chosen and other.verdict is None):
            _judge(other, "left", f"lane {chosen.number} was kept", copies)
    _check_counted(session, exploration.lanes)
    session.move(stands if is_there else chosen.leaf)  # who has gone on behind it stays there
    session.flush()
    tidied = Tidied() if keep_copies else tidy(exploration.lanes, copies)
    notes = (*(_still_there(one) for one in stay if one.copy is not None), *tidied.stayed, *tidied.failed)
    return Decided("kept", (chosen.number,), session.leaf, files, notes=notes, failed=tidied.failed)


def _is(lane: Lane, verdict: Verdict) -> bool:
    return lane.verdict is not None and lane.verdict.verdict == verdict


def _still_there(lane: Lane) -> str:
    return f"lane {lane.number} was kept before: what it changed may still be in the project"


def merge(
    session: Session,
    exploration: HasLanes,
    lanes: Sequence[int | str],
    copies: Copies | None,
    *,
    ask: SummaryOptions | None = None,
    keep_copies: bool = False,
) -> Decided:
    """Bring lanes together: into where the session stands, or if that is before them, into the first of them.

    What each did is summarised there, and the files of all come into the project, or none do.
    """
    chosen = _named(exploration, lanes)
    if not chosen:
        raise UsageError("which lanes to merge has to be said")
    _check_quiet(session, chosen)
    _apply(chosen, copies, dry_run=True)
    into = _last_said(session, session.leaf)
    first, *_ = chosen
    assert first.leaf is not None
    before = session.path_ids(first.leaf)
    verdict = f"with {_numbers(chosen)}"
    if into is None or into in before[: before.index(first.start)]:
        if len(chosen) == 1:
            raise UsageError(
                f"lane {first.number} goes on from where the session stands, so there is nothing to bring together; "
                "keep it, or name several lanes"
            )
        _judge(first, "merged", verdict, copies)  # before the others are brought behind it
        into = first.leaf
    joins: list[str] = []
    notes: list[str] = []
    for lane in chosen:
        assert lane.leaf is not None
        if lane.start in session.path_ids(into):
            continue
        merged = merge_branch(session, lane.leaf, into=into, options=ask)
        into = merged.entry or into
        joins += [merged.entry] if merged.entry is not None else []
        notes += [f"lane {lane.number}: {merged.nothing}"] if merged.nothing is not None else []
        notes += [conflict.text for conflict in merged.conflicts]
    files, _ = _apply(chosen, copies)
    for lane in chosen:
        _judge(lane, "merged", verdict, copies)
    _check_counted(session, chosen)
    session.move(into)
    session.flush()
    tidied = Tidied() if keep_copies else tidy(chosen, copies)
    notes += (*tidied.stayed, *tidied.failed)
    numbers = tuple(lane.number for lane in chosen)
    return Decided("merged", numbers, session.leaf, files, tuple(joins), tuple(notes), tidied.failed)


def _named(exploration: HasLanes, names: Sequence[int | str]) -> list[Lane]:
    """Lanes, each once however often and by whatever name it is named."""
    return list({lane.start: lane for lane in (find_lane(exploration.lanes, one) for one in names)}.values())


def _last_said(session: Session, leaf: str | None) -> str | None:
    """Where a session stands, and not the entry that says so, as the formats of others have it."""
    while leaf is not None and session.type_of(leaf) == "leaf":
        leaf = session.parent(leaf)
    return leaf


def drop(
    session: Session,
    exploration: HasLanes,
    lanes: Sequence[int | str],
    copies: Copies | None,
    *,
    why: str = "",
    keep_copies: bool = False,
) -> Decided:
    """Say of lanes that they lead nowhere. Nothing of them is lost: they stay in the tree, and their work in git."""
    chosen = _named(exploration, lanes)
    _check_quiet(session, chosen)
    return _set_aside(session, chosen, "dropped", why, copies, keep_copies=keep_copies)


def leave(session: Session, exploration: HasLanes, copies: Copies | None, *, keep_copies: bool = False) -> Decided:
    """Leave all lanes that nothing was decided about as they are. They can be taken up again."""
    chosen = [lane for lane in exploration.lanes if lane.verdict is None]
    _check_quiet(session, chosen)
    return _set_aside(session, chosen, "left", "", copies, keep_copies=keep_copies)


def _set_aside(
    session: Session, lanes: Sequence[Lane], verdict: Verdict, why: str, copies: Copies | None, *, keep_copies: bool
) -> Decided:
    stands = session.leaf
    for lane in lanes:
        _judge(lane, verdict, why, copies)
    _check_counted(session, lanes)
    session.move(stands)  # what was written on lanes moves nobody
    session.flush()
    tidied = Tidied() if keep_copies else tidy(lanes, copies)
    path = session.path_ids(stands) if stands is not None else []
    there = [lane for lane in lanes if lane.start in path]
    notes = (*(f"the session still stands on lane {lane.number}" for lane in there), *tidied.stayed, *tidied.failed)
    return Decided(verdict, tuple(lane.number for lane in lanes), session.leaf, notes=notes, failed=tidied.failed)


def closed(lanes: Iterable[Lane]) -> list[Lane]:
    """The lanes that nobody works on and that nobody is to go on with: they need no folder."""
    return [
        lane
        for lane in lanes
        if lane.state in ENDED or (lane.verdict is not None and lane.state not in ("running", "waiting"))
    ]


def leftovers(lanes: Iterable[Lane], copies: Copies | None) -> list[Lane]:
    """The lanes that need no folder and have one: it was wished, or a process died before it could tidy up."""
    if copies is None:
        return []
    return [lane for lane in closed(lanes) if lane.copy is not None and copies.is_left(lane.copy)]


def tidy(lanes: Iterable[Lane], copies: Copies | None) -> Tidied:
    """Take the folders of lanes away when their work is saved, each by itself."""
    if copies is None:
        return Tidied()
    gone: list[int] = []
    stayed: list[str] = []
    failed: list[str] = []
    for lane in lanes:
        if lane.copy is None:
            continue
        try:
            why = copies.remove(lane.copy)
        except (SessionTreeError, OSError) as error:
            failed.append(f"lane {lane.number}: {error}")
        else:
            stayed += [why] if why is not None else []
            gone += [lane.number] if why is None else []
    return Tidied(tuple(gone), tuple(stayed), tuple(failed))


def _judge(lane: Lane, verdict: Verdict, why: str, copies: Copies | None) -> None:
    commit = None
    if copies is not None and lane.copy is not None:
        try:
            commit = copies.save(lane.copy)
        except StoreError:  # a damaged folder, which stays: `tidy` tells of it
            commit = lane.saved
    judged = Judged(verdict, why, commit)
    if lane.verdict != judged:
        write(lane.branch, judged)
        lane.verdict = judged


def _apply(
    lanes: Sequence[Lane], copies: Copies | None, *, instead_of: Sequence[Lane] = (), dry_run: bool = False
) -> tuple[tuple[FileChange, ...], list[Lane]]:
    """Bring the files of lanes into the project; what changed there, and those of the others whose files stay."""
    made: list[Copy] = [lane.copy for lane in lanes if lane.copy is not None]
    if copies is None or not made:
        return (), [*instead_of]
    former = [lane.copy for lane in instead_of if lane.copy is not None]
    applied = copies.apply_all(made, instead_of=former, dry_run=dry_run)
    if applied.clashes:
        raise ConflictError(_told(applied.clashes, lanes))
    return applied.files, [lane for lane in instead_of if lane.copy in applied.stay]


def _told(clashes: Sequence[FileClash], lanes: Sequence[Lane]) -> str:
    named = "; ".join(f"{clash.path} {clash.why}" for clash in clashes[:_SHOWN])
    more = f"; and {len(clashes) - _SHOWN} more" if len(clashes) > _SHOWN else ""
    is_one = len(lanes) == 1
    whose = f"lane {lanes[0].number} do not fit" if is_one else f"lanes {_numbers(lanes)} do not fit together, or not"
    step = "Set aside what you changed there" if is_one else "Keep one of them, or merge fewer"
    return (
        f"the files of {whose} into the project: {named}{more}; nothing was written. {step}; "
        "`sessiontree explore SESSION --diff LANE` shows them"
    )


def _numbers(lanes: Sequence[Lane]) -> str:
    return ", ".join(str(lane.number) for lane in lanes)


def _check_quiet(session: Session, lanes: Sequence[Lane]) -> None:
    """Nothing is decided about lanes that grow, or have grown since they were looked at."""
    session.refresh()
    book = ExplorationLog(session)
    book.look()
    growing = [lane for lane in lanes if lane.state in ("running", "waiting") or _is_held(session, book, lane)]
    if growing:
        raise UsageError(
            f"lanes that are still under way: {_numbers(growing)}; wait for their end, or stop them in the terminal "
            "where they are"
        )
    changed = [lane for lane in lanes if book.noted[lane.start].leaf != lane.leaf]
    if changed:
        raise ConflictError(
            f"lanes that have grown since they were looked at: {_numbers(changed)}; nothing was decided, look at them "
            "again first"
        )


def _check_counted(session: Session, lanes: Sequence[Lane]) -> None:
    """Another process may have taken a lane over in the very moment in which it was decided about."""
    book = ExplorationLog(session)
    book.look()
    late = [lane for lane in lanes if book.noted[lane.start].verdict != lane.verdict]
    if late:
        raise ConflictError(
            f"another process went on with lanes {_numbers(late)} in this moment, so what was decided about them does "
            "not count; their files may be in the project. Wait for their end, and decide again"
        )


def _is_held(session: Session, book: ExplorationLog, lane: Lane) -> bool:
    noted = book.noted[lane.start]
    return noted.end is None and not is_free(noted.lease, session.entry(noted.leaf).timestamp)
