"""Who may do what: modes, tools approved for the session, and the question that is put when neither settles it.

| | `default` | `autoEdit` | `yolo` |
|---|---|---|---|
| what only reads, inside the project | passes | passes | passes |
| files changed, inside the project | is asked, unless the tool is approved | passes | passes |
| commands, and tools that may change anything | is asked, unless the tool is approved | the same | passes |
| anything outside the project and the added folders | is asked each time | is asked each time | passes |
| changes of git's own files, keys, our home; reading secrets | is asked each time | is asked each time | passes |

The mode and the approved tools are settings of the session, so they are there again when it is resumed. A session that
came from someone else brings them, too: `restored` says what a front end should show before it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from sessiontree.agent.diff import render_diff
from sessiontree.agent.tools.base import Plan
from sessiontree.core.entries import ApprovalMode
from sessiontree.session.session import Session

MODES: tuple[ApprovalMode, ...] = ("default", "autoEdit", "yolo")


class Allow(Struct, frozen=True, tag=True):
    """The call may be run."""


class Deny(Struct, frozen=True, tag=True):
    """The call may not be run."""

    reason: str


class Question(Struct, frozen=True):
    """What a person is asked."""

    tool: str
    title: str
    preview: str
    """What will be done: the command, or the difference it makes. Untrusted text, to be escaped by who shows it."""
    reasons: tuple[str, ...]
    """Why it is asked."""
    may_always: bool
    """Whether the answer may hold for the rest of the session."""
    call_id: str = ""


class Ask(Struct, frozen=True, tag=True):
    """A person has to say."""

    question: Question


Decision: TypeAlias = Allow | Deny | Ask


class Reply(Struct, frozen=True):
    """What a person says: once, always for this session, or no, with a reason for the model."""

    answer: Literal["once", "always", "no"]
    reason: str = ""


class Approver(Protocol):
    """A front end that can ask.

    Contract: `ask` waits for a person. Several may be waiting at once, as calls run in parallel. When the task is
    cancelled, the question is taken back.
    """

    async def ask(self, question: Question) -> Reply: ...


class DenyAll:
    """Where no person is there, as with `--print`: what would be asked is denied."""

    async def ask(self, question: Question) -> Reply:
        return Reply("no", f"nobody is there to approve it ({question.reasons[0]})")


class Approvals:
    """What may be done in a session; changes of it are kept in the session's settings."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def mode(self) -> ApprovalMode:
        return self._session.config.approval_mode

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools that are approved for the rest of the session."""
        return self._session.config.approval_tools

    @property
    def restored(self) -> str | None:
        """What is less careful than the default, in words; None when nothing is."""
        said = [f"mode {self.mode}"] if self.mode != "default" else []
        said += [f"approved: {', '.join(self.tools)}"] if self.tools else []
        return "; ".join(said) or None

    def set_mode(self, mode: ApprovalMode) -> None:
        if mode != self.mode:
            self._session.set_config(approval_mode=mode)

    def approve(self, *tools: str) -> None:
        """Approve tools for the rest of the session."""
        new = tuple(dict.fromkeys((*self.tools, *tools)))
        if new != self.tools:
            self._session.set_config(approval_tools=new)

    def revoke(self, *tools: str) -> None:
        """Take approvals back; without names, all of them."""
        new = tuple(name for name in self.tools if tools and name not in tools)
        if new != self.tools:
            self._session.set_config(approval_tools=new)

    def decide(self, tool: str, plan: Plan, call_id: str = "") -> Decision:
        """Whether a call may be run, by what is known without asking."""
        return decide(tool, plan, self.mode, self.tools, call_id)


def decide(tool: str, plan: Plan, mode: ApprovalMode, approved: Sequence[str] = (), call_id: str = "") -> Decision:
    """Whether a call may be run; see the table above."""
    if mode == "yolo":
        return Allow()
    each_time = _reasons(plan)
    if each_time:
        return Ask(Question(tool, plan.title, preview(plan), each_time, may_always=False, call_id=call_id))
    if plan.changes == "nothing" or tool in approved or (plan.changes == "files" and mode == "autoEdit"):
        return Allow()
    reason = "it changes files" if plan.changes == "files" else "it may change anything"
    return Ask(Question(tool, plan.title, preview(plan), (reason,), may_always=True, call_id=call_id))


def _reasons(plan: Plan) -> tuple[str, ...]:
    """What is asked about each time, whatever was approved before."""
    outside = [place for place in plan.reads if not place.is_readable]
    outside += [write.place for write in plan.writes if not write.place.is_inside]
    reasons = [f"{place.path} is outside the project and the added folders" for place in outside]
    reasons += [f"the name of {place.shown} says that it holds secrets" for place in plan.reads if place.is_secret]
    reasons += [
        f"a change of {write.place.shown} may make programs run later"
        for write in plan.writes
        if write.place.is_guarded
    ]
    return tuple(dict.fromkeys(reasons))


def preview(plan: Plan) -> str:
    """What a call will do, for a person: the command, or the difference it makes."""
    if plan.command is not None:
        return plan.command
    return "".join(render_diff(write.place.shown, write.old, write.data) for write in plan.writes) or plan.title


def denied_text(tool: str, reason: str) -> str:
    """What a model is told of a call that was denied."""
    return f"{tool} was not run: {reason or 'the user denied it'}. Nothing was changed."
