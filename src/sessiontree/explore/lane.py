"""A lane of an exploration: a branch of the session with its own prompt, model and folder."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.agent.events import AgentEnd, Event, TextDelta, ToolStart, TurnEnd, TurnStart, Used
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.loop import Prompt, Run
from sessiontree.agent.tools.base import short
from sessiontree.core.call_target import call_target
from sessiontree.core.entries import Custom, Entry
from sessiontree.errors import AmbiguousError, NotFoundError, UsageError
from sessiontree.explore.records import Check, LaneRecord, Lease, Record, UsageRecord, VerdictRecord, Worktree, write
from sessiontree.models import Model
from sessiontree.session.entry_input import ContentInput, EntryInput
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.session.session import Branch, Session

_MAX_TARGET = 200
"""Characters of the target of the current call."""

LaneState: TypeAlias = Literal["waiting", "running", "done", "failed", "limit", "stopped", "pending", "lost"]
"""`lost`: it has no end record, and no process works on it. `running` includes lanes of other processes."""

ENDED: frozenset[LaneState] = frozenset({"done", "failed", "limit", "stopped", "pending"})


class Job(Struct, frozen=True):
    """A lane to create."""

    prompt: Prompt
    model: Model
    name: str = ""
    """Default: `lane-` and its number."""
    origin: int | None = None
    """The lane it is forked from by a rule."""
    rule: str | None = None
    reason: str | None = None
    depth: int = 0
    at: str | Current | None = CURRENT
    """Parent of its first entry: the plan, or an entry of the lane it is forked from."""


class LaneBranch(Branch):
    """The branch of a lane, safe for several threads.

    Records become the leaf here even in formats where extension state does not move it: the validity of a lease depends
    on the order of all entries (see `leases`).
    """

    def __init__(self, session: Session, leaf: str | None) -> None:
        super().__init__(session, leaf)
        self._lock = threading.Lock()
        self.last_write = time.time()

    def append(self, what: EntryInput | None = None, content: ContentInput | None = None, /, **fields: Any) -> Entry:
        with self._lock:
            entry = super().append(what, content, **fields)
            if isinstance(entry, Custom):
                self.leaf = entry.id
            self.last_write = time.time()
            return entry

    def move(self, to: str | None) -> None:
        with self._lock:
            super().move(to)


class Lane:
    """One lane, running here or read from the file."""

    def __init__(self, session: Reader, record: LaneRecord, start: str, leaf: str | None = None) -> None:
        self.record = record
        self.start = start
        """Id of its first entry."""
        self.state: LaneState = "waiting"
        self.spent = RunUsage()
        """All runs of the lane together."""
        self.text = ""
        """The model's last text. Untrusted, as is everything below that comes from a session or a model."""
        self.why = ""
        self.last_tool = ""
        """The last call, in one line."""
        self.check: Check | None = None
        self.verdict: VerdictRecord | None = None
        self.saved: str | None = None
        """The commit that holds its worktree's files at its end."""
        self.lease: Lease | None = None
        """The lease of this process, if it works on the lane."""
        self.model: Model | None = None
        self.run: Run | None = None
        """The run in progress."""
        self.stop_reason: str | None = None
        """Why the lane was stopped by the user, a rule or the caller."""
        self.settled: list[str] = []
        """Entries with estimates of requests that are over; the next usage record settles them."""
        self._before = RunUsage()
        self._session = session
        self._leaf = leaf or start
        self._branch: LaneBranch | None = None

    @property
    def number(self) -> int:
        return self.record.number

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def worktree(self) -> Worktree | None:
        return self.record.worktree

    @property
    def leaf(self) -> str | None:
        return self._branch.leaf if self._branch is not None else self._leaf

    @property
    def branch(self) -> Branch:
        """The branch that everything of the lane is appended to; safe for several threads."""
        if self._branch is None:
            self._branch = self._branch_at(self._leaf)
        return self._branch

    def _branch_at(self, leaf: str) -> LaneBranch:
        if not isinstance(self._session, Session):
            raise UsageError(f"{self._session.location}: the session was opened read-only")
        return LaneBranch(self._session, leaf)

    @property
    def silence(self) -> float:
        """Seconds since this process last wrote to the lane."""
        return time.time() - self._branch.last_write if self._branch is not None else 0.0

    def take_over(self, lease: Lease, leaf: str) -> None:
        """Continue the lane in this process, from the entry of its lease."""
        self.lease, self.state = lease, "waiting"
        self._branch = self._branch_at(leaf)

    async def write(self, record: Record) -> None:
        """Append a record. Cancellation waits until it is written."""
        await uncancelled(in_thread(write, self.branch, record))

    async def write_estimate(self, what: str, usage: RunUsage) -> str:
        """Record the expected usage of a request that no entry shows to be in flight; returns the record's entry."""
        writing = asyncio.ensure_future(in_thread(write, self.branch, UsageRecord(what, usage, is_expected=True)))
        try:
            return (await uncancelled(writing)).id
        except asyncio.CancelledError:  # no request will be made, but its estimate is in the file
            self.settled.append(writing.result().id)
            raise

    async def write_usage(self, what: str, usage: RunUsage) -> None:
        """Record usage that no message reports, and settle the estimates of requests that are over."""
        settled, self.settled = tuple(self.settled), []
        if settled or usage != RunUsage():
            await self.write(UsageRecord(what, usage, settles=settled))

    def begin(self, run: Run) -> None:
        """Attach a run; usage of earlier runs stays counted."""
        self.run, self._before = run, self.spent
        self.state = "running"

    def spent_with(self, of_run: RunUsage) -> RunUsage:
        """Usage of all runs, given that of the current one."""
        return self._before.combine(of_run)

    def handle(self, event: Event) -> None:
        """Update the lane from an event of its run."""
        match event:
            case TurnStart():
                self.text = ""
            case TextDelta():
                self.text += event.text
            case ToolStart():
                target = call_target(event.call.arguments) or short(event.call.arguments)
                self.last_tool = f"{event.call.name} {target[:_MAX_TARGET]}"
            case Used():
                self.spent = self.spent_with(event.spent)
            case TurnEnd() if self.run is not None:
                self.spent = self.spent_with(self.run.usage)
            case AgentEnd():
                self.spent, self.text, self.why = self.spent_with(event.spent), event.text, event.why
            case _:
                pass


def find_lane(lanes: Sequence[Lane], wanted: str | int) -> Lane:
    """Find a lane by its number or name."""
    text = str(wanted)
    found = [lane for lane in lanes if str(lane.number) == text] or [lane for lane in lanes if lane.name == text]
    if not found:
        known = ", ".join(f"{lane.number} ({lane.name})" for lane in lanes) or "none"
        raise NotFoundError(f"no lane {text!r}; lanes: {known}")
    if len(found) > 1:
        numbers = tuple(str(lane.number) for lane in found)
        raise AmbiguousError(f"{len(found)} lanes are named {text!r}; use a number: {', '.join(numbers)}", numbers)
    return found[0]
