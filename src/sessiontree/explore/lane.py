"""One lane of an exploration: a branch of the session with a prompt, a model and a folder of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sessiontree.agent.events import AgentEnd, Event, TextDelta, ToolStart, TurnEnd, TurnStart, Used
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.loop import Prompt, Run
from sessiontree.agent.tools.base import short
from sessiontree.core.entries import Custom, Entry
from sessiontree.errors import AmbiguousError, NotFoundError, UsageError
from sessiontree.explore.records import Check, Copy, Judged, LaneRecord, Lease
from sessiontree.models import Model
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.session.session import Branch, Session

LaneState: TypeAlias = Literal["waiting", "running", "done", "failed", "limit", "stopped", "pending", "lost"]
"""`lost`: without an end, and nobody works on it; `running` is also said of one that another process works on."""

ENDED: frozenset[LaneState] = frozenset({"done", "failed", "limit", "stopped", "pending"})


class Job(Struct, frozen=True):
    """What is wanted of a lane."""

    prompt: Prompt
    model: Model
    name: str = ""
    """Without one, `lane-` and its number."""
    origin: int | None = None
    """The lane it is forked from by a rule."""
    rule: str | None = None
    reason: str | None = None
    depth: int = 0
    at: str | Current | None = CURRENT
    """Where it begins: behind the plan, or at an entry of the lane it comes from."""


class LaneBranch(Branch):
    """The branch of a lane: for several threads, and so that records hang one behind the other like all that is said.

    In some formats state of extensions moves no leaf. Here it does, as the order in which leases and entries were
    written is what says under which lease an entry was (see `leases`).
    """

    def __init__(self, session: Session, leaf: str | None) -> None:
        super().__init__(session, leaf)
        self._lock = threading.Lock()
        self.last_sign = time.time()

    def append(self, what: Mapping[str, Any] | str | None = None, content: Any = None, /, **fields: Any) -> Entry:
        with self._lock:
            entry = super().append(what, content, **fields)
            if isinstance(entry, Custom):
                self.leaf = entry.id
            self.last_sign = time.time()
            return entry

    def move(self, to: str | None) -> None:
        with self._lock:
            super().move(to)


class Lane:
    """One lane, alive or read from the file."""

    def __init__(self, session: Reader, record: LaneRecord, start: str, leaf: str | None = None) -> None:
        self.record = record
        self.start = start
        """The id of its first entry."""
        self.state: LaneState = "waiting"
        self.spent = RunUsage()
        """All runs of the lane together."""
        self.text = ""
        """What the model said last. Untrusted, as is everything below that comes from a session or a model."""
        self.why = ""
        self.last_tool = ""
        """The last call, in one line."""
        self.check: Check | None = None
        self.verdict: Judged | None = None
        self.saved: str | None = None
        """The commit that holds its working copy as it was at its end."""
        self.lease: Lease | None = None
        """What this process works under, if it does."""
        self.model: Model | None = None
        self.run: Run | None = None
        """The run that is under way."""
        self.settled: list[str] = []
        """The entries that say that something is being asked for it, of what is over."""
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
    def copy(self) -> Copy | None:
        return self.record.copy

    @property
    def leaf(self) -> str | None:
        """Where it stands."""
        return self._branch.leaf if self._branch is not None else self._leaf

    @property
    def branch(self) -> Branch:
        """Where everything of the lane is written; threads may share it."""
        if self._branch is None:
            self._branch = self._branch_at(self._leaf)
        return self._branch

    def _branch_at(self, leaf: str) -> LaneBranch:
        if not isinstance(self._session, Session):
            raise UsageError(f"{self._session.location}: was opened to be read only")
        return LaneBranch(self._session, leaf)

    @property
    def silent_for(self) -> float:
        """Seconds since something was last written to it by this process."""
        return time.time() - self._branch.last_sign if self._branch is not None else 0.0

    def take_over(self, lease: Lease, leaf: str) -> None:
        """This process goes on with it, from the entry of its lease."""
        self.lease, self.state = lease, "waiting"
        self._branch = self._branch_at(leaf)

    def begin(self, run: Run) -> None:
        """A run goes on with it; what it used before stays counted."""
        self.run, self._before = run, self.spent
        self.state = "running"

    def spent_with(self, of_run: RunUsage) -> RunUsage:
        """All runs of the lane together, when the one that is under way has used so much."""
        return self._before.combine(of_run)

    def hear(self, event: Event) -> None:
        """Keep up with what its run tells."""
        match event:
            case TurnStart():
                self.text = ""
            case TextDelta():
                self.text += event.text
            case ToolStart():
                self.last_tool = f"{event.call.name} {short(event.call.arguments)}"
            case Used():
                self.spent = self.spent_with(event.spent)
            case TurnEnd() if self.run is not None:
                self.spent = self.spent_with(self.run.usage)
            case AgentEnd():
                self.spent, self.text, self.why = self.spent_with(event.spent), event.text, event.why
            case _:
                pass


def find_lane(lanes: Sequence[Lane], wanted: str | int) -> Lane:
    """A lane by its number or its name."""
    text = str(wanted)
    found = [lane for lane in lanes if str(lane.number) == text] or [lane for lane in lanes if lane.name == text]
    if not found:
        known = ", ".join(f"{lane.number} ({lane.name})" for lane in lanes) or "none"
        raise NotFoundError(f"there is no lane {text!r}; there is: {known}")
    if len(found) > 1:
        numbers = tuple(str(lane.number) for lane in found)
        raise AmbiguousError(
            f"{text!r} is the name of {len(found)} lanes; say the number: {', '.join(numbers)}", numbers
        )
    return found[0]
