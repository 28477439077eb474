"""The records an exploration writes into the tree: `custom` entries, each on the branch it describes.

    plan     child of the entry the exploration starts from; lanes are children of it
    lane     first entry of a lane: prompt, model, worktree, and for a fork by a rule, the reason
    lease    the process that runs the lane (on a plan: that creates lanes)
    beat     heartbeat of a lane that writes nothing else
    check    exit code and output of a check command     end      how the run ended, and its usage
    send     message to another lane                     verdict  kept, merged, dropped or left
    paid     usage that no message reports               again    an ended lane is resumed
    bounds   on a plan: new limits for the exploration

Other programs see ordinary branches with extension state in them (docs/decisions/0020-explorations.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from sessiontree.agent.events import EndReason
from sessiontree.agent.limits import RunUsage
from sessiontree.core.entries import Custom, Entry
from sessiontree.core.jsonio import Value
from sessiontree.session.reader import Reader
from sessiontree.session.session import Branch

PREFIX = "sessiontree.explore."
INBOX = PREFIX + "inbox"
"""Type of the `custom_message` that delivers a message to a lane; its details name the sender and the `send` entry."""

Verdict: TypeAlias = Literal["kept", "merged", "dropped", "left"]


class Bounds(Value, frozen=True):
    """Limits of an exploration as a whole; None is unlimited."""

    tokens: float | None = None
    cost: float | None = None
    seconds: float | None = None
    turns: int | None = None
    """Per lane."""
    lanes: int = 16
    """Lanes in all, including those forked by rules."""
    depth: int = 2
    """Levels of forks by rules: 1 forks only the original lanes, 2 also their forks."""


class Rule(Value, frozen=True):
    """When a lane is forked automatically."""

    kind: Literal["check", "denied", "repeats", "judge"]
    command: str | None = None
    """check: the command that has to exit with 0."""
    count: int = 3
    """repeats: the number of identical errors in a row."""
    threshold: float = 0.5
    """judge: fork below this confidence."""
    model: str | None = None
    """judge: the model to ask; None is the lane's own."""


class PlannedLane(Value, frozen=True):
    """A lane that an exploration starts with."""

    name: str
    prompt: str
    model: str


# `rename`, here and below: the names in files are older than those of the fields, and must not change.
class Plan(Value, frozen=True, rename={"planned": "wanted"}):
    kind: ClassVar[str] = "plan"

    run: str
    """Id of the exploration: eight hex digits."""
    at: str | None
    parallel: int
    worktrees: bool
    bounds: Bounds = Bounds()
    rules: tuple[Rule, ...] = ()
    check: str | None = None
    """Command that is run when a lane ends."""
    planned: tuple[PlannedLane, ...] = ()
    """The initial lanes, so that `resume` can create those a crash prevented."""


class Worktree(Value, frozen=True):
    """The git worktree of a lane."""

    path: str
    repository: str
    base: str
    """Object name of the tree it started with: the project including its uncommitted files."""
    head: str
    """The commit that was checked out."""
    ref: str
    """The ref that keeps its work once that is saved."""


class LaneRecord(Value, frozen=True, rename={"worktree": "copy"}):
    kind: ClassVar[str] = "lane"

    run: str
    number: int
    """From 1."""
    name: str
    prompt: str
    model: str
    worktree: Worktree | None = None
    origin: int | None = None
    """The lane it was forked from by a rule."""
    rule: str | None = None
    reason: str | None = None
    depth: int = 0


class Lease(Value, frozen=True, rename={"seconds": "goodFor"}):
    kind: ClassVar[str] = "lease"

    token: str
    host: str
    pid: int
    started: str
    """When the process started, to distinguish it from a later process with the same pid."""
    seconds: float
    """How long the lease lasts without a heartbeat. 0 releases it: any process may take the lane over."""


class Heartbeat(Value, frozen=True):
    kind: ClassVar[str] = "beat"

    token: str


class Check(Value, frozen=True):
    kind: ClassVar[str] = "check"

    command: str
    passed: bool | None
    """None when the exploration's time limit ended it."""
    exit_code: int | None
    output: str
    seconds: float
    why: str = ""
    """Why it neither passed nor failed."""


class LaneEnd(Value, frozen=True):
    kind: ClassVar[str] = "end"

    reason: EndReason
    why: str
    spent: RunUsage
    """All runs of the lane together."""
    text: str = ""
    saved: str | None = None
    """The commit that holds the worktree's files at that time."""


class SentMessage(Value, frozen=True):
    kind: ClassVar[str] = "send"

    to: str
    """The name of a lane, or `*`."""
    text: str


class UsageRecord(Value, frozen=True):
    """Usage of a lane that no message on its branch reports: a judge, a sub-agent's own session, a failed request."""

    kind: ClassVar[str] = "paid"

    what: str
    spent: RunUsage
    is_expected: bool = False
    """An estimate for a request in flight; it counts until another record settles it."""
    settles: tuple[str, ...] = ()
    """Entries with estimates that this record replaces."""


class Reopened(Value, frozen=True):
    """A lane continues after its end. Like a lease, it is valid only as a child of the lane's last entry."""

    kind: ClassVar[str] = "again"


class BoundsChange(Value, frozen=True):
    kind: ClassVar[str] = "bounds"

    bounds: Bounds


class VerdictRecord(Value, frozen=True):
    kind: ClassVar[str] = "verdict"

    verdict: Verdict
    why: str = ""
    commit: str | None = None
    """The commit that holds its files."""


Record: TypeAlias = (
    Plan
    | LaneRecord
    | Lease
    | Heartbeat
    | Check
    | LaneEnd
    | SentMessage
    | UsageRecord
    | Reopened
    | BoundsChange
    | VerdictRecord
)

_TYPES: dict[str, type[Record]] = {record.kind: record for record in Record.__args__}


def entry_of(record: Record) -> dict[str, Any]:
    """Encode a record as an entry to append."""
    return {"type": "custom", "customType": PREFIX + record.kind, "data": msgspec.to_builtins(record)}


def write(branch: Branch, record: Record) -> Entry:
    """Append a record to a branch."""
    return branch.append(entry_of(record))


def record_of(entry: Entry) -> Record | None:
    """Decode the record in an entry; None if it holds none, or one this version cannot decode."""
    if not isinstance(entry, Custom) or not entry.custom_type.startswith(PREFIX):
        return None
    kind = _TYPES.get(entry.custom_type.removeprefix(PREFIX))
    if kind is None:
        return None
    try:
        return msgspec.convert(entry.data, kind)
    except msgspec.ValidationError:
        return None


def iter_records(session: Reader) -> Iterator[tuple[str, Record]]:
    """All records of a session in file order, with the ids of their entries."""
    ids = [id for id in session.ids if session.type_of(id) == "custom"]
    for id, entry in zip(ids, session.entries(ids), strict=True):
        record = record_of(entry)
        if record is not None:
            yield id, record
