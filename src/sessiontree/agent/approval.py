"""Approval of tool calls: modes, tools approved for the session, and questions to the user.

| | `plan` | `default` | `autoEdit` | `yolo` |
|---|---|---|---|---|
| reading inside the project | allowed | allowed | allowed | allowed |
| changing files inside the project | denied | asks, unless the tool is approved | allowed | allowed |
| commands, and tools that may change anything | denied | asks, unless the tool is approved | the same | allowed |
| anything outside the project and the added folders | reading asks | always asks | always asks | allowed |
| changing git's files, keys or our home folder; reading secrets | reading asks | always asks | always asks | allowed |

The mode and the approved tools are recorded in the session. A session file may come from another person, so its
content grants nothing by itself. Only approvals given to this process count: by the user's answers, by options, or by
`accept`, after a front end has shown `claimed` and asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from sessiontree.agent.text_files import render_diff
from sessiontree.agent.tools.base import Plan
from sessiontree.core.entries import ApprovalMode, Config
from sessiontree.session.session import Session

MODES: tuple[ApprovalMode, ...] = ("plan", "default", "autoEdit", "yolo")
"""Strictest first."""
PLAN_INSTRUCTIONS = """Plan mode is on: nothing may be changed yet. Look around with tools that only read, then answer
with a plan: what you will change, file by file, and how you will check it. The user approves the plan before you carry
it out."""
_ONLY_PLANNING = "plan mode is on, so only tools that read may run until the user has approved the plan"


class Allow(Struct, frozen=True, tag=True):
    """The call may run."""


class Deny(Struct, frozen=True, tag=True):
    """The call may not run."""

    reason: str


class Question(Struct, frozen=True):
    """A question to the user."""

    tool: str
    title: str
    preview: str
    """The command, or the diff of the change. Untrusted text: front ends must escape it."""
    reasons: tuple[str, ...]
    """Why approval is needed."""
    may_always: bool
    """Whether the answer may apply to the rest of the session."""
    call_id: str = ""


class Ask(Struct, frozen=True, tag=True):
    """The user has to decide."""

    question: Question


Decision: TypeAlias = Allow | Deny | Ask


class Reply(Struct, frozen=True):
    """The user's answer: once, always for this session, or no, with a reason for the model."""

    answer: Literal["once", "always", "no"]
    reason: str = ""


class Approver(Protocol):
    """A front end that can ask the user.

    Contract: `ask` waits for an answer. Calls run in parallel, so several questions may be open. When the task is
    cancelled, the question is withdrawn.
    """

    async def ask(self, question: Question) -> Reply: ...


class CompactionConsent:
    """The user's consent to compact a session of another agent: asked when it is first due, remembered for a chat."""

    tool = "compact"

    def __init__(self) -> None:
        self._remembered: Literal["always", "no"] | None = None

    async def ask(self, approver: Approver, session: Session) -> str | None:
        """Ask whether to compact now; returns why not, or None for yes."""
        if self._remembered is None:
            title = f"summarize the older messages of this {session.dialect.name} session, to fit the model's window"
            reason = f"the summary is written to {session.location}, and its own agent will also see only that"
            reply = await approver.ask(Question(self.tool, title, "", (reason,), may_always=True))
            if reply.answer == "once":
                return None
            self._remembered = reply.answer
        if self._remembered == "always":
            return None
        return "a session of another agent is only compacted with consent; /compact or `sessiontree compact` does it"


class DenyAll:
    """An Approver without a user, as with `--print`: every question is denied."""

    async def ask(self, question: Question) -> Reply:
        return Reply("no", f"no user is present to approve it ({question.reasons[0]})")


class Approvals:
    """The approval settings of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def mode(self) -> ApprovalMode:
        """The mode in force: the one granted, or a stricter one that another process wrote since."""
        return min(self._session.granted.approval_mode, self._recorded().approval_mode, key=MODES.index)

    @property
    def tools(self) -> tuple[str, ...]:
        """Tools approved for the rest of the session."""
        recorded = self._recorded().approval_tools
        return tuple(tool for tool in self._session.granted.approval_tools if tool in recorded)

    @property
    def in_force(self) -> str | None:
        """A description of approvals in force that are less strict than the default; None if there are none."""
        return _describe(self.mode, self.tools)

    @property
    def claimed(self) -> str | None:
        """A description of approvals in the file that are not in force; None if there are none."""
        recorded = self._recorded()
        mode = recorded.approval_mode if recorded.approval_mode != self.mode else "default"
        return _describe(mode, tuple(tool for tool in recorded.approval_tools if tool not in self.tools))

    def accept(self) -> None:
        """Put the approvals in the file in force. The user has seen them and agreed."""
        self._session.granted = self._recorded()

    def inherit(self, approvals: Approvals) -> None:
        """Take over approvals in force in another session, as a sub-agent does from its caller."""
        if approvals.mode != "default" or approvals.tools:
            self._session.set_config(approval_mode=approvals.mode, approval_tools=approvals.tools)

    def _recorded(self) -> Config:
        return self._session.config

    def set_mode(self, mode: ApprovalMode) -> None:
        # Both are compared: the file may record another mode, which the user did not accept.
        if (mode, mode) != (self.mode, self._recorded().approval_mode):
            self._session.set_config(approval_mode=mode)

    def approve(self, *tools: str) -> None:
        """Approve tools for the rest of the session."""
        self._set_tools(tuple(dict.fromkeys((*self.tools, *tools))))

    def revoke(self, *tools: str) -> None:
        """Revoke approvals; without names, all of them."""
        self._set_tools(tuple(name for name in self.tools if tools and name not in tools))

    def _set_tools(self, tools: tuple[str, ...]) -> None:
        # Both are compared, as above: the file may record other tools.
        if (tools, tools) != (self.tools, self._recorded().approval_tools):
            self._session.set_config(approval_tools=tools)

    def decide(self, tool: str, plan: Plan, call_id: str = "") -> Decision:
        return decide(tool, plan, self.mode, self.tools, call_id)


def _describe(mode: ApprovalMode, tools: Sequence[str]) -> str | None:
    return Config(approval_mode=mode, approval_tools=tuple(tools)).approvals


def decide(tool: str, plan: Plan, mode: ApprovalMode, approved: Sequence[str] = (), call_id: str = "") -> Decision:
    """Decide whether a call may run, by the table above."""
    if mode == "yolo":
        return Allow()
    if mode == "plan" and plan.changes != "nothing":
        return Deny(_ONLY_PLANNING)
    # Before approved tools are considered: an approval of `write` covers the project, not keys or other folders.
    always_asked = _reasons_to_ask(plan)
    if always_asked:
        return Ask(Question(tool, plan.title, preview(plan), always_asked, may_always=False, call_id=call_id))
    if plan.changes == "nothing" or tool in approved or (plan.changes == "files" and mode == "autoEdit"):
        return Allow()
    reason = "it changes files" if plan.changes == "files" else "it may change anything"
    return Ask(Question(tool, plan.title, preview(plan), (reason,), may_always=True, call_id=call_id))


def _reasons_to_ask(plan: Plan) -> tuple[str, ...]:
    """Reasons that need approval each time, whatever was approved before."""
    outside = [read for read in plan.reads if not read.is_readable]
    outside += [write.target for write in plan.writes if not write.target.is_inside]
    reasons = [f"{target.path} is outside the project and the added folders" for target in outside]
    reasons += [f"the name of {read.shown} indicates secrets" for read in plan.reads if read.is_secret]
    reasons += [
        f"a change of {write.target.shown} may run programs later" for write in plan.writes if write.target.is_guarded
    ]
    return tuple(dict.fromkeys(reasons))


def preview(plan: Plan) -> str:
    """Describe a call for the user: the command, or the diff."""
    if plan.command is not None:
        return plan.command
    return "".join(render_diff(write.target.shown, write.old, write.data) for write in plan.writes) or plan.title


def denied_text(tool: str, reason: str) -> str:
    """The result of a denied call, for the model."""
    return f"{tool} was not run: {reason or 'the user denied it'}. Nothing was changed."
