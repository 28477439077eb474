"""The state of explorations as recorded in a session file, without running them.

Entries of a lane descend from its record. Some descendants are not part of the lane: lanes forked there by a rule,
branches of sub-agents, and entries written under an invalid lease (see `leases`). Nor are entries after its end, unless
an `again` record reopened it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from sessiontree.agent.events import EndReason
from sessiontree.agent.limits import RunUsage
from sessiontree.branches.subagent_branches import TASK
from sessiontree.core.entries import Custom, Entry, MessageEntry
from sessiontree.core.ids import unix_seconds
from sessiontree.core.messages import Assistant, text_of
from sessiontree.core.usage import usage_of, valid_count
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.explore.lane import Lane, LaneState, find_lane
from sessiontree.explore.leases import is_free
from sessiontree.explore.records import (
    Bounds,
    BoundsChange,
    Check,
    Heartbeat,
    LaneEnd,
    LaneRecord,
    Lease,
    Plan,
    Record,
    Reopened,
    SentMessage,
    UsageRecord,
    VerdictRecord,
    record_of,
)
from sessiontree.session.reader import Reader

STATES: dict[EndReason, LaneState] = {
    "done": "done",
    "interrupted": "stopped",
    "limit": "limit",
    "error": "failed",
    "pending": "pending",
}
_INVALID_LEASE = "@"
"""No entry has this id, so no lease of a lane is equal to it."""
_AFTER_END = (Reopened, Heartbeat, Check, LaneEnd, VerdictRecord, Lease, UsageRecord, BoundsChange, SentMessage)
"""Records that may follow the end of a lane; other entries there are not part of it."""
_EXCLUSIVE = (Reopened, Lease)
"""Records that are valid only if their writer had seen every earlier entry of the lane."""
_LATE_WORK = (Check, UsageRecord)
"""Work for a lane that has ended: it counts as time worked."""


class ExplorationLike(Protocol):
    """A running exploration, or one read from a file."""

    @property
    def plan(self) -> Plan: ...

    @property
    def plan_id(self) -> str: ...

    @property
    def lanes(self) -> list[Lane]: ...


class TrackedWork:
    """A lane or plan as its records describe it."""

    def __init__(self, start: str, plan: str) -> None:
        self.start, self.plan = start, plan
        self.leaf = start
        self.lease: Lease | None = None
        self.spans: list[tuple[str, str]] = []
        """The entry of each valid lease, and the last one written under it."""
        self.end: LaneEnd | None = None
        self.late_usage = RunUsage()
        """Recorded since its end."""
        self.estimates: dict[str, RunUsage] = {}
        """Expected usage of requests in flight, by the entries that record it."""
        self.bounds: Bounds | None = None
        """On a plan: the limits, if they were changed."""
        self.check: Check | None = None
        self.verdict: VerdictRecord | None = None
        self.excluded: list[str] = []
        """Descendants that are not part of it, such as branches of sub-agents."""

    @property
    def in_flight(self) -> RunUsage:
        """The sum of all estimates."""
        total = RunUsage()
        for usage in self.estimates.values():
            total = total.combine(usage)
        return total

    @property
    def lease_id(self) -> str | None:
        return self.spans[-1][0] if self.spans else None


class TrackedLane(TrackedWork):
    def __init__(self, start: str, plan: str, record: LaneRecord) -> None:
        super().__init__(start, plan)
        self.record = record


class _Membership(Struct, frozen=True):
    """The lane or plan that an entry belongs to, and the lease it was written under."""

    start: str
    lease: str | None = None


class ExplorationLog:
    """Incremental index of a session's exploration records. Safe for several threads."""

    def __init__(self, session: Reader) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._read = self._scanned = 0
        self._members: dict[str, _Membership] = {}
        self._numbers: set[tuple[str, int]] = set()
        self.plans: dict[str, Plan] = {}
        self.lanes: dict[str, TrackedLane] = {}
        self.tracked: dict[str, TrackedWork] = {}
        """All lanes and plans by their first entries."""

    @property
    def has_changes(self) -> bool:
        """Whether there are unread entries that could be records. Reads only their types."""
        types = self._session.journal.types
        start, self._scanned = self._scanned, len(types)
        if "custom" in types[start : self._scanned]:
            self._scanned = start  # remains true until `refresh` has read them
            return True
        return False

    def refresh(self) -> None:
        """Read the entries written since the last call."""
        with self._lock:
            journal = self._session.journal
            ignored = self._session.dialect.traits.passive_types
            until = len(journal.tree.ids)
            for node in range(self._read, until):
                id, kind = journal.tree.ids[node], journal.types[node]
                if kind == "custom":
                    self._add_custom(self._session.entry(id))
                elif kind not in ignored:
                    self._add(id, self._session.parent(id), None)
            self._read = self._scanned = until

    def lane_of(self, id: str | None) -> TrackedLane | None:
        """The lane that an entry descends from."""
        member = self._members.get(id) if id is not None else None
        return self.lanes.get(member.start) if member is not None else None

    def _add_custom(self, entry: Entry) -> None:
        record = record_of(entry)
        match record:
            case Plan():
                self.plans[entry.id] = record
                self._track(TrackedWork(entry.id, entry.id))
            case LaneRecord():
                self._add_lane(entry, record)
            case _ if isinstance(entry, Custom) and entry.custom_type == TASK:
                self._exclude(entry.id, entry.parent_id)
            case _:
                self._add(entry.id, entry.parent_id, record)

    def _add_lane(self, entry: Entry, record: LaneRecord) -> None:
        plan = next((id for id, plan in reversed(self.plans.items()) if plan.run == record.run), None)
        # Of several records with the same number, the first in the file counts.
        if plan is None or (plan, record.number) in self._numbers:
            return
        self._numbers.add((plan, record.number))
        self.lanes[entry.id] = lane = TrackedLane(entry.id, plan, record)
        self._track(lane)

    def _track(self, work: TrackedWork) -> None:
        self.tracked[work.start] = work
        self._members[work.start] = _Membership(work.start)

    def _add(self, id: str, parent: str | None, record: Record | None) -> None:
        member = self._members.get(parent) if parent is not None else None
        if member is None:
            return
        lane = self.tracked[member.start]
        if lane.end is not None and not isinstance(record, _AFTER_END):
            return
        # Valid only under the current lease; a new lease only if its writer knew the lane's last entry.
        is_outdated = isinstance(record, _EXCLUSIVE) and parent != lane.leaf
        if member.lease != lane.lease_id or is_outdated:
            self._exclude(id, parent)
            return
        if isinstance(record, Lease):
            lane.lease = record
            lane.spans.append((id, id))
            member = _Membership(member.start, id)
        # Spans measure the time worked: a verdict is not work, and neither are most records after the end.
        elif (
            lane.spans
            and not isinstance(record, VerdictRecord)
            and (lane.end is None or isinstance(record, _LATE_WORK))
        ):
            lane.spans[-1] = (lane.spans[-1][0], id)
        self._members[id] = member
        lane.leaf = id
        self._apply(lane, id, record)

    def _exclude(self, id: str, parent: str | None) -> None:
        """Mark an entry, and with it its descendants, as attached to a lane without being part of it."""
        member = self._members.get(parent) if parent is not None else None
        if member is not None:
            self._members[id] = _Membership(member.start, _INVALID_LEASE)
            self.tracked[member.start].excluded.append(id)

    def _apply(self, lane: TrackedWork, id: str, record: Record | None) -> None:
        match record:
            case LaneEnd():
                lane.end, lane.late_usage = record, RunUsage()
                lane.estimates.clear()
            case UsageRecord(is_expected=True):
                lane.estimates[id] = _sanitize(record.spent)
            case UsageRecord():
                lane.late_usage = lane.late_usage.combine(_sanitize(record.spent))
                for settled in record.settles:
                    lane.estimates.pop(settled, None)
            case Reopened():
                # No process works on it now. Usage of excluded entries is part of the usage at its end.
                lane.end = lane.lease = lane.check = lane.verdict = None
                lane.excluded.clear()
            case BoundsChange():
                lane.bounds = record.bounds
            case Check():
                lane.check = record
            case VerdictRecord():
                lane.verdict = record
            case _:
                pass


class ExplorationState(Struct, frozen=True):
    """One exploration as recorded in the file."""

    plan_id: str
    plan: Plan
    lanes: list[Lane]
    seconds: float
    """Time that any process worked on it."""

    @property
    def run(self) -> str:
        return self.plan.run

    @property
    def open_lanes(self) -> list[Lane]:
        """Lanes without an end and verdict that no process works on."""
        return [lane for lane in self.lanes if lane.state == "lost" and lane.verdict is None]

    def lane(self, wanted: str | int) -> Lane:
        """Find a lane by its name or number."""
        return find_lane(self.lanes, wanted)


def explorations(session: Reader, log: ExplorationLog | None = None) -> list[ExplorationState]:
    """All explorations of a session, in the order they were started."""
    log = log or ExplorationLog(session)
    log.refresh()
    found = []
    for id, plan in log.plans.items():
        lanes = [lane for lane in log.lanes.values() if lane.plan == id]
        bounds = log.tracked[id].bounds
        current = plan if bounds is None else msgspec.structs.replace(plan, bounds=bounds)
        seconds = _time_worked(session, [log.tracked[id], *lanes])
        found.append(ExplorationState(id, current, [_read_lane(session, lane) for lane in lanes], seconds))
    return found


def find_exploration(session: Reader, run: str | None = None, log: ExplorationLog | None = None) -> ExplorationState:
    """Find an exploration by its id or an unambiguous prefix; without one, the last."""
    found = explorations(session, log)
    if run is not None:
        found = [state for state in found if state.run.startswith(run)]
        if len(found) > 1:
            matches = ", ".join(state.run for state in found)
            raise UsageError(f"{run!r} matches {len(found)} explorations: {matches}")
    if not found:
        raise NotFoundError(f"{session.location}: no exploration" + (f" matches {run!r}" if run is not None else ""))
    return found[-1]


def is_active(session: Reader, exploration: ExplorationLike) -> bool:
    """Whether some process creates lanes of an exploration or works on one."""
    plan = _tracked_plan(session, exploration)
    is_held = not is_free(plan.lease, session.entry(plan.leaf).timestamp)
    return is_held or any(lane.state == "running" for lane in exploration.lanes)


def has_crashed(session: Reader, exploration: ExplorationLike) -> bool:
    """Whether the process that created the lanes ended without releasing its lease."""
    lease = _tracked_plan(session, exploration).lease
    return lease is not None and lease.seconds > 0 and not is_active(session, exploration)


def _tracked_plan(session: Reader, exploration: ExplorationLike) -> TrackedWork:
    log = ExplorationLog(session)
    log.refresh()
    return log.tracked[exploration.plan_id]


def state_of(session: Reader, tracked: TrackedLane) -> LaneState:
    """The state of a lane, from its end record or its lease."""
    if tracked.end is not None:
        return STATES[tracked.end.reason]
    return "lost" if is_free(tracked.lease, session.entry(tracked.leaf).timestamp) else "running"


def _read_lane(session: Reader, tracked: TrackedLane) -> Lane:
    lane = Lane(session, tracked.record, tracked.start, tracked.leaf)
    lane.check, lane.verdict = tracked.check, tracked.verdict
    lane.state = state_of(session, tracked)
    if tracked.end is not None:
        lane.why, lane.text, lane.saved = tracked.end.why, tracked.end.text, tracked.end.saved
        lane.spent = _sanitize(tracked.end.spent).combine(tracked.late_usage).combine(tracked.in_flight)
        return lane
    spent = RunUsage()
    for entry in _entries(session, tracked):
        match record_of(entry), entry:
            case LaneEnd() as end, _:  # it was reopened: the record has the total until then
                spent = _sanitize(end.spent)
            case UsageRecord(is_expected=False) as usage, _:
                spent = spent.combine(_sanitize(usage.spent))
            case _, MessageEntry(message=Assistant() as answer):
                lane.text = text_of(answer.content) or lane.text
                spent = spent.plus(answer.usage, turns=1)
            case _:
                spent = spent.plus(usage_of(entry))
    spent = spent.combine(tracked.in_flight)
    for entry in session.entries(tracked.excluded):  # requests of a superseded process were paid for, too
        spent = spent.plus(usage_of(entry))
    seconds = sum(until - since for since, until in _time_spans(session, tracked))
    lane.spent = msgspec.structs.replace(spent, seconds=seconds)
    return lane


def _sanitize(spent: RunUsage) -> RunUsage:
    # The file may come from elsewhere: negative and non-finite numbers must not reach the budget.
    return RunUsage(*(valid_count(getattr(spent, name)) for name in RunUsage.__struct_fields__))  # type: ignore[arg-type]


def _entries(session: Reader, tracked: TrackedWork) -> list[Entry]:
    ids = session.path_ids(tracked.leaf)
    start = ids.index(tracked.start) if tracked.start in ids else 0  # a damaged file may have cycles
    return session.entries(ids[start:])


def _time_spans(session: Reader, tracked: TrackedWork) -> Iterator[tuple[float, float]]:
    for first, last in tracked.spans:
        yield unix_seconds(session.entry(first).timestamp), unix_seconds(session.entry(last).timestamp)


def _time_worked(session: Reader, lanes: Sequence[TrackedWork]) -> float:
    """Seconds in which at least one of some lanes was worked on."""
    total = until = 0.0
    for since, end in sorted(span for tracked in lanes for span in _time_spans(session, tracked)):
        total += max(end - max(since, until), 0.0)
        until = max(until, end)
    return total
