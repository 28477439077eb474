"""Explorations as the file tells them: what anyone can know of lanes without having run them.

Entries of a lane hang behind its record. Some that hang there are not its own: lanes that a rule began there, branches
of sub-agents, what was written under a lease that does not count (see `leases`), and what anyone said behind its end,
unless an `again` says that it goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from sessiontree.agent.events import EndReason
from sessiontree.agent.limits import RunUsage
from sessiontree.core.entries import Custom, Entry, MessageEntry
from sessiontree.core.messages import Assistant, text_of
from sessiontree.core.usage import usage_of, valid_count
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.explore.lane import Lane, LaneState, find_lane
from sessiontree.explore.leases import is_free, seconds_of
from sessiontree.explore.records import (
    TASK,
    Again,
    Beat,
    Bounded,
    Bounds,
    Check,
    End,
    Judged,
    LaneRecord,
    Lease,
    Paid,
    Plan,
    Record,
    Send,
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
_ASIDE = "@"
"""Stands for a lease that never counts."""
_OURS = (Again, Beat, Check, End, Judged, Lease, Paid, Bounded, Send)
_TAKING = (Again, Lease)
"""What counts only if whoever wrote it had seen everything that stands before it."""
_WORK = (Check, Paid)
"""What is still done for a lane that has ended."""


class TrackedWork:
    """What the records of one lane, or of a plan, say, and where it stands."""

    def __init__(self, start: str, plan: str) -> None:
        self.start, self.plan = start, plan
        self.leaf = start
        self.lease: Lease | None = None
        self.spans: list[tuple[str, str]] = []
        """For each lease that counted, its entry and the last one written under it."""
        self.end: End | None = None
        self.paid = RunUsage()
        """What was used for it since its end."""
        self.expected: dict[str, RunUsage] = {}
        """What is being asked for, by the entries that say so."""
        self.bounds: Bounds | None = None
        """What a plan may use, if that was changed."""
        self.check: Check | None = None
        self.verdict: Judged | None = None
        self.aside: list[str] = []
        """What hangs on it and is no part of it, as what its sub-agents did."""

    @property
    def under_way(self) -> RunUsage:
        """All that is being asked for."""
        total = RunUsage()
        for one in self.expected.values():
            total = total.combine(one)
        return total

    @property
    def lease_id(self) -> str | None:
        return self.spans[-1][0] if self.spans else None


class TrackedLane(TrackedWork):
    def __init__(self, start: str, plan: str, record: LaneRecord) -> None:
        super().__init__(start, plan)
        self.record = record


class _Belonging(Struct, frozen=True):
    """Which lane or plan an entry belongs to, and under which lease it was written."""

    start: str
    lease: str | None = None


class ExplorationLog:
    """What a session says of explorations, kept up while it grows. Threads may share it."""

    def __init__(self, session: Reader) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._seen = self._glanced = 0
        self._owner: dict[str, _Belonging] = {}
        self._numbers: set[tuple[str, int]] = set()
        self.plans: dict[str, Plan] = {}
        self.lanes: dict[str, TrackedLane] = {}
        self.noted: dict[str, TrackedWork] = {}
        """By their first entries: all lanes, and all plans."""

    @property
    def has_news(self) -> bool:
        """Whether there is anything to look at that could say something of lanes. Takes no time."""
        types = self._session.journal.types
        start, self._glanced = self._glanced, len(types)
        if "custom" in types[start : self._glanced]:
            self._glanced = start
            return True
        return False

    def look(self) -> None:
        """Take in what was written since the last look."""
        with self._lock:
            journal = self._session.journal
            quiet = self._session.dialect.bookkeeping | {"leaf"}
            until = len(journal.tree.ids)
            for node in range(self._seen, until):
                id, kind = journal.tree.ids[node], journal.types[node]
                if kind == "custom":
                    self._take_custom(self._session.entry(id))
                elif kind not in quiet:
                    self._take(id, self._session.parent(id), None)
            self._seen = self._glanced = until

    def lane_of(self, id: str | None) -> TrackedLane | None:
        """The lane that an entry belongs to, or hangs on."""
        belonging = self._owner.get(id) if id is not None else None
        return self.lanes.get(belonging.start) if belonging is not None else None

    def is_ours(self, id: str | None) -> bool:
        """Whether an entry is part of an exploration, and not of what was said before or after it."""
        return id in self._owner

    def _take_custom(self, entry: Entry) -> None:
        record = record_of(entry)
        match record:
            case Plan():
                self.plans[entry.id] = record
                self._keep(TrackedWork(entry.id, entry.id))
            case LaneRecord():
                self._begin(entry, record)
            case _ if isinstance(entry, Custom) and entry.custom_type == TASK:
                self._set_aside(entry.id, entry.parent_id)
            case _:
                self._take(entry.id, entry.parent_id, record)

    def _begin(self, entry: Entry, record: LaneRecord) -> None:
        plan = next((id for id, plan in reversed(self.plans.items()) if plan.run == record.run), None)
        if plan is None or (plan, record.number) in self._numbers:
            return
        self._numbers.add((plan, record.number))
        self.lanes[entry.id] = lane = TrackedLane(entry.id, plan, record)
        self._keep(lane)

    def _keep(self, noted: TrackedWork) -> None:
        self.noted[noted.start] = noted
        self._owner[noted.start] = _Belonging(noted.start)

    def _take(self, id: str, parent: str | None, record: Record | None) -> None:
        belonging = self._owner.get(parent) if parent is not None else None
        if belonging is None:
            return
        lane = self.noted[belonging.start]
        if lane.end is not None and not isinstance(record, _OURS):
            return
        has_not_seen_all = isinstance(record, _TAKING) and parent != lane.leaf
        if belonging.lease != lane.lease_id or has_not_seen_all:
            self._set_aside(id, parent)
            return
        if isinstance(record, Lease):
            lane.lease = record
            lane.spans.append((id, id))
            belonging = _Belonging(belonging.start, id)
        elif lane.spans and not isinstance(record, Judged) and (lane.end is None or isinstance(record, _WORK)):
            lane.spans[-1] = (lane.spans[-1][0], id)
        self._owner[id] = belonging
        lane.leaf = id
        self._note(lane, id, record)

    def _set_aside(self, id: str, parent: str | None) -> None:
        """What begins here hangs on a lane and is no part of it."""
        belonging = self._owner.get(parent) if parent is not None else None
        if belonging is not None:
            self._owner[id] = _Belonging(belonging.start, _ASIDE)
            self.noted[belonging.start].aside.append(id)

    def _note(self, lane: TrackedWork, id: str, record: Record | None) -> None:
        match record:
            case End():
                lane.end, lane.paid = record, RunUsage()
                lane.expected.clear()
            case Paid(is_expected=True):
                lane.expected[id] = _counted(record.spent)
            case Paid():
                lane.paid = lane.paid.combine(_counted(record.spent))
                for settled in record.settles:
                    lane.expected.pop(settled, None)
            case Again():  # nobody works on it, whoever did; what hung beside it is among what it had used at its end
                lane.end = lane.lease = lane.check = lane.verdict = None
                lane.aside.clear()
            case Bounded():
                lane.bounds = record.bounds
            case Check():
                lane.check = record
            case Judged():
                lane.verdict = record
            case _:
                pass


class ExplorationState(Struct, frozen=True):
    """One exploration as the file tells it."""

    plan_id: str
    plan: Plan
    lanes: list[Lane]
    seconds: float
    """For how long anyone worked on it."""

    @property
    def run(self) -> str:
        return self.plan.run

    @property
    def open_lanes(self) -> list[Lane]:
        """Those without an end that nobody works on, and that nothing was decided about."""
        return [lane for lane in self.lanes if lane.state == "lost" and lane.verdict is None]

    def lane(self, wanted: str | int) -> Lane:
        """A lane by its name or number."""
        return find_lane(self.lanes, wanted)


def explorations(session: Reader, book: ExplorationLog | None = None) -> list[ExplorationState]:
    """All explorations of a session, in the order they were begun."""
    book = book or ExplorationLog(session)
    book.look()
    found = []
    for id, plan in book.plans.items():
        noted = [one for one in book.lanes.values() if one.plan == id]
        raised = book.noted[id].bounds
        now = plan if raised is None else msgspec.structs.replace(plan, bounds=raised)
        worked = _worked(session, [book.noted[id], *noted])
        found.append(ExplorationState(id, now, [_lane(session, one) for one in noted], worked))
    return found


def find_exploration(session: Reader, run: str | None = None, book: ExplorationLog | None = None) -> ExplorationState:
    """The exploration with this id, or an unambiguous beginning of one; without one, the last."""
    found = explorations(session, book)
    if run is not None:
        found = [told for told in found if told.run.startswith(run)]
        if len(found) > 1:
            raise UsageError(f"{run!r} fits {len(found)} explorations: {', '.join(told.run for told in found)}")
    if not found:
        said = "there is no exploration" + (f" {run!r}" if run is not None else " in it")
        raise NotFoundError(f"{session.location}: {said}")
    return found[-1]


def state_of(session: Reader, noted: TrackedLane) -> LaneState:
    """How a lane ended, or whether anyone works on it."""
    if noted.end is not None:
        return STATES[noted.end.reason]
    return "lost" if is_free(noted.lease, session.entry(noted.leaf).timestamp) else "running"


def _lane(session: Reader, noted: TrackedLane) -> Lane:
    lane = Lane(session, noted.record, noted.start, noted.leaf)
    lane.check, lane.verdict = noted.check, noted.verdict
    lane.state = state_of(session, noted)
    if noted.end is not None:
        lane.why, lane.text, lane.spent = (
            noted.end.why,
            noted.end.text,
            _counted(noted.end.spent).combine(noted.paid).combine(noted.under_way),
        )
        lane.saved = noted.end.saved
        return lane
    spent = RunUsage()
    for entry in _entries(session, noted):
        match record_of(entry), entry:
            case End() as end, _:  # it went on: all before is counted there
                spent = _counted(end.spent)
            case Paid(is_expected=False) as paid, _:
                spent = spent.combine(_counted(paid.spent))
            case _, MessageEntry(message=Assistant() as answer):
                lane.text = text_of(answer.content) or lane.text
                spent = spent.plus(answer.usage, turns=1)
            case _:
                spent = spent.plus(usage_of(entry))
    spent = spent.combine(noted.under_way)
    for entry in session.entries(noted.aside):  # whoever said it, it was paid for
        spent = spent.plus(usage_of(entry))
    seconds = sum(until - since for since, until in _spans(session, noted))
    lane.spent = msgspec.structs.replace(spent, seconds=seconds)
    return lane


def _counted(spent: RunUsage) -> RunUsage:
    """What a record says was used, as far as that can be: the file may be someone else's."""
    return RunUsage(*(valid_count(getattr(spent, name)) for name in RunUsage.__struct_fields__))  # type: ignore[arg-type]


def _entries(session: Reader, noted: TrackedWork) -> list[Entry]:
    ids = session.path_ids(noted.leaf)
    start = ids.index(noted.start) if noted.start in ids else 0  # a damaged file may have rings
    return session.entries(ids[start:])


def _spans(session: Reader, noted: TrackedWork) -> Iterator[tuple[float, float]]:
    for first, last in noted.spans:
        yield seconds_of(session.entry(first).timestamp), seconds_of(session.entry(last).timestamp)


def _worked(session: Reader, lanes: Sequence[TrackedWork]) -> float:
    """For how long someone worked on some lanes: what they did at the same time counts once."""
    total = until = 0.0
    for since, end in sorted(span for noted in lanes for span in _spans(session, noted)):
        total += max(end - max(since, until), 0.0)
        until = max(until, end)
    return total
