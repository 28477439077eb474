"""What an exploration writes into the tree: small records in `custom` entries, each on the branch it is about.

    plan     behind the entry the exploration starts from; lanes begin behind it
    lane     the first entry of a lane: its prompt, model, working copy, and for a fork by rule, why
    lease    who works on the lane now, or makes lanes      beat     a sign of life of a lane that says nothing
    check    what a check printed                           end      how its run ended, and what it used
    send     something said to another lane                 verdict  what became of it: kept, merged, dropped, left
    paid     what was used for it that no message tells     again    it goes on although it had ended
    bounds   on a plan: what the exploration may use from then on

Programs that know nothing of this see branches, and state of an extension in them (docs/decisions/0020-exploring.md).
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
"""The `custom_message` with which a lane hears what another one sent it; its details name sender and `send` entry."""

TASK_TOOL = "task"
"""The tool that starts sub-agents."""
TASK = "sessiontree.task"
"""The type of the `custom` entry that a sub-agent's branch begins with: it hangs on a lane and is no part of it."""

Verdict: TypeAlias = Literal["kept", "merged", "dropped", "left"]


class Bounds(Value, frozen=True):
    """What an exploration as a whole may use; None is no limit."""

    tokens: float | None = None
    cost: float | None = None
    seconds: float | None = None
    turns: int | None = None
    """Of one lane."""
    lanes: int = 16
    """How many there may ever be, those made by rules included."""
    depth: int = 2
    """How many levels of forks by rule: with 1 only lanes that were asked for are forked, with 2 their forks too."""


class Rule(Value, frozen=True):
    """When a lane is forked by itself."""

    kind: Literal["check", "denied", "repeats", "judge"]
    command: str | None = None
    """check: what has to exit with 0."""
    count: int = 3
    """repeats: so many equal errors in a row."""
    threshold: float = 0.5
    """judge: a confidence below this."""
    model: str | None = None
    """judge: who is asked; None: the lane's own."""


class Wanted(Value, frozen=True):
    """A lane that an exploration begins with."""

    name: str
    prompt: str
    model: str


class Plan(Value, frozen=True):
    kind: ClassVar[str] = "plan"

    run: str
    """Eight hex digits."""
    at: str | None
    parallel: int
    worktrees: bool
    bounds: Bounds = Bounds()
    rules: tuple[Rule, ...] = ()
    check: str | None = None
    """What is run at the end of each lane, to compare them."""
    wanted: tuple[Wanted, ...] = ()
    """The lanes it begins with, so that those can be made that a crash has prevented."""


class Copy(Value, frozen=True):
    """The working copy of a lane."""

    path: str
    repository: str
    base: str
    """The tree it began with, as git names it: the project as it was, uncommitted files included."""
    head: str
    """The commit that was checked out."""
    ref: str
    """The ref that holds its work from the moment it is saved."""


class LaneRecord(Value, frozen=True):
    kind: ClassVar[str] = "lane"

    run: str
    number: int
    """From 1."""
    name: str
    prompt: str
    model: str
    copy: Copy | None = None
    origin: int | None = None
    """The lane that a rule forked."""
    rule: str | None = None
    reason: str | None = None
    depth: int = 0


class Lease(Value, frozen=True):
    kind: ClassVar[str] = "lease"

    token: str
    host: str
    pid: int
    started: str
    """When that process began, so that a number that was given again is not mistaken for it."""
    good_for: float
    """Seconds without a sign of life. With 0 its holder lets go of it: the lane may be gone on with by anyone."""


class Beat(Value, frozen=True):
    kind: ClassVar[str] = "beat"

    token: str


class Check(Value, frozen=True):
    kind: ClassVar[str] = "check"

    command: str
    passed: bool | None
    """None when it did not come to its end because the time of the exploration was over: then nobody knows."""
    exit_code: int | None
    output: str
    seconds: float
    why: str = ""
    """Why it neither passed nor failed."""


class End(Value, frozen=True):
    kind: ClassVar[str] = "end"

    reason: EndReason
    why: str
    spent: RunUsage
    """All runs of the lane together."""
    text: str = ""
    saved: str | None = None
    """The commit that holds the working copy as it was then."""


class Send(Value, frozen=True):
    kind: ClassVar[str] = "send"

    to: str
    """The name of a lane, or `*`."""
    text: str


class Paid(Value, frozen=True):
    """What a lane has used, and no message on its branch tells: the opinion of a judge, the work of a sub-agent that
    has a session of its own, a request that was dropped."""

    kind: ClassVar[str] = "paid"

    what: str
    spent: RunUsage
    is_expected: bool = False
    """It is being asked for, and may use so much: that counts until another `paid` settles it."""
    settles: tuple[str, ...] = ()
    """The entries with what was expected, and is known now."""


class Again(Value, frozen=True):
    """Someone wants a lane to go on that had ended. It counts, like a lease, when it hangs behind the last entry."""

    kind: ClassVar[str] = "again"


class Bounded(Value, frozen=True):
    kind: ClassVar[str] = "bounds"

    bounds: Bounds


class Judged(Value, frozen=True):
    kind: ClassVar[str] = "verdict"

    verdict: Verdict
    why: str = ""
    commit: str | None = None
    """Where its files went, or stay."""


Record: TypeAlias = Plan | LaneRecord | Lease | Beat | Check | End | Send | Paid | Again | Bounded | Judged

_TYPES: dict[str, type[Record]] = {
    one.kind: one for one in (Plan, LaneRecord, Lease, Beat, Check, End, Send, Paid, Again, Bounded, Judged)
}


def entry_of(record: Record) -> dict[str, Any]:
    """A record as the entry that is appended."""
    return {"type": "custom", "customType": PREFIX + record.kind, "data": msgspec.to_builtins(record)}


def write(branch: Branch, record: Record) -> Entry:
    """Append a record where a branch stands."""
    return branch.append(entry_of(record))


def record_of(entry: Entry) -> Record | None:
    """The record in an entry; None when it is none of ours, or not to be understood."""
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
