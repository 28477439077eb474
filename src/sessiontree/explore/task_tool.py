"""`task`: a model gives a part of its work to a sub-agent, which has a branch of its own in the same session.

    … ── answer with the call ─┬─ result of the call ── …                        the caller: it sees the result only
                               └─ task ── reset ── prompt ── answer ── …         the sub-agent: it begins with nothing

The branch is like any other: it can be watched, switched to, gone on with and branched. Where a file has no way to say
that a context begins anew, as Pi's, or when it is asked for, the sub-agent has a session of its own that names its
origin. What a sub-agent uses counts for the run that called it, and it may use no more than that has left.

A call that is run again after a crash goes on where its sub-agent stood, on its branch or in its session; what that had
left open is not repeated.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from sessiontree.agent.approval import Approvals, Approver, Question, Reply
from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.agent.events import AgentEnd, ApprovalAsked, Event, Persisted, ToolEnd, ToolStart, ends_request
from sessiontree.agent.limits import GateRequest, Limits, RunUsage, Ticket
from sessiontree.agent.loop import Run, run
from sessiontree.agent.pending import open_calls
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, ToolContext, ToolOutput, short
from sessiontree.agent.tools.registry import Tools
from sessiontree.core.entries import MessageEntry
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, ToolCall, message_text, text_of, tool_calls
from sessiontree.errors import SessionTreeError
from sessiontree.explore.budget import Budget as Together
from sessiontree.explore.lane_messages import InboxTool, SendTool
from sessiontree.explore.records import TASK_TOOL, Bounds
from sessiontree.explore.request_gate import LaneGate
from sessiontree.explore.subagent_sessions import Started, entry_of, find_linked, new_linked, started_at
from sessiontree.models import Model, open_model
from sessiontree.session.session import Branch, Session

MOST_TEXT = 20_000
"""Characters of a sub-agent's last words that its caller is told."""
_LINE = 160
_RESETTING = frozenset({"native", "omp"})
"""The dialects whose contexts begin anew behind a reset boundary."""
_TELLING = ("command", "path", "pattern", "description")
"""The arguments that say in one line what a call is about."""
_ROLE = (
    "You work on one part of a larger piece of work, for another agent that will see nothing but your last message. "
    "Nobody answers questions: decide for yourself, and say at the end what you did, what you found and what is left."
)

Mode: TypeAlias = Literal["branch", "session"]


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: Annotated[float, Meta(gt=0)] | None = None
    cost: Annotated[float, Meta(gt=0, description="US dollars")] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(gt=0, description="requests to the model")] | None = None


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    description: Annotated[str, Meta(min_length=1, max_length=200, description="what it is about, in a few words")]
    prompt: Annotated[
        str, Meta(min_length=1, max_length=200_000, description="everything the sub-agent has to know and to do")
    ]
    tools: Annotated[tuple[str, ...], Meta(description="the tools it may use; all of yours if not given")] | None = None
    model: Annotated[str, Meta(description="provider:name; your own if not given")] | None = None
    budget: Annotated[Budget, Meta(description="how much it may use")] | None = None
    mode: Annotated[Mode, Meta(description="a branch of this session, or a session of its own")] = "branch"


class TaskTool(StructTool[TaskArguments]):
    name = TASK_TOOL
    description = (
        "Let a sub-agent work on a part of the task. It has a fresh context, so its prompt has to say everything it "
        "needs to know; you see nothing but its last message. Several calls in one answer work side by side, in the "
        "same files. Fit for searches that read much, and for parts that do not depend on each other."
    )
    Arguments = TaskArguments

    def __init__(
        self, *, depth: int = 1, find_model: Callable[[str], Model] = open_model, home: str | None = None
    ) -> None:
        """`depth` is how many levels of sub-agents there may be; with 1, a sub-agent has none of its own.

        `home` is where a sub-agent's session goes when that of its caller cannot have one beside it.
        """
        self._depth, self._find_model, self.home = depth, find_model, home

    def prepare(self, arguments: TaskArguments, context: ToolContext) -> Plan:
        if context.run is not None:
            self._tools_for(arguments, context.run)
        return Plan(f"task: {short(arguments.description)}")

    async def carry_out(self, arguments: TaskArguments, context: ToolContext) -> ToolOutput:
        caller = context.run
        if caller is None:
            raise ArgumentsError("task: a sub-agent can be started by a run only, and this call belongs to none")
        tools = self._tools_for(arguments, caller)
        own = arguments.model is not None and arguments.model != caller.setup.model.name
        if not own:
            return await self._work(arguments, context, caller, tools, caller.setup.model)
        denied = await self._ask_for_model(arguments, context, caller)
        if denied is not None:
            return denied
        assert arguments.model is not None
        try:
            model = self._find_model(arguments.model)
        except SessionTreeError as error:
            raise ArgumentsError(f"task: {error}") from None
        try:
            if caller.setup.limits.counts_cost and not model.facts.prices.are_known:
                raise ArgumentsError(
                    f"task: the prices of {model.name} are not known, and what may be spent is limited; leave it out"
                )
            return await self._work(arguments, context, caller, tools, model)
        finally:
            await model.close()

    def _tools_for(self, arguments: TaskArguments, caller: Run) -> Tools:
        """The tools of a sub-agent: those of its caller that it was given, and a `task` of less depth."""
        tools = Tools(tool for tool in caller.setup.tools if not isinstance(tool, TaskTool | SendTool | InboxTool))
        if self._depth > 1:
            tools.add(TaskTool(depth=self._depth - 1, find_model=self._find_model, home=self.home))
        if arguments.tools is None:
            return tools
        unknown = [name for name in arguments.tools if name not in tools.names]
        if unknown:
            there = ", ".join(tools.names) or "none"
            raise ArgumentsError(f"task: a sub-agent cannot have the tool {unknown[0]!r}; it can have: {there}")
        return Tools(tools[name] for name in dict.fromkeys(arguments.tools))

    async def _ask_for_model(self, arguments: TaskArguments, context: ToolContext, caller: Run) -> ToolOutput | None:
        """A model of its own choice may cost more, and sends what it reads elsewhere: that is for the user to say."""
        if await in_thread(lambda: Approvals(caller.session).mode) == "yolo":
            return None
        said = f"{short(arguments.description)}, answered by {arguments.model}"
        question = Question(
            self.name, said, said, ("it asks another model",), may_always=False, call_id=context.call_id
        )
        reply = await caller.setup.approver.ask(question)
        if reply.answer != "no":
            return None
        reason = reply.reason or "the user denied it"
        return ToolOutput(f"task was not run: {reason}. Leave the model out.", True, {"denied": True})

    async def _work(
        self, arguments: TaskArguments, context: ToolContext, caller: Run, tools: Tools, model: Model
    ) -> ToolOutput:
        begun = await uncancelled(in_thread(self._begin, arguments, context.call_id, caller, model))
        if begun.said is not None:
            if begun.is_linked:
                await uncancelled(in_thread(begun.branch.session.close))
            return _output(arguments, begun, AgentEnd("done", begun.branch.leaf, RunUsage(), begun.said))
        share = _Share(caller, is_linked=begun.is_linked)
        sub = self._run_of(arguments, context, tools, model, begun, share)
        try:
            async for event in sub:
                share.count(sub.usage)
                if ends_request(event):
                    await share.note(sub)
                line = _line_of(event)
                if line and context.update is not None:
                    context.update(line + "\n")
        finally:
            sub.interrupt("the call of the sub-agent was interrupted")
            await uncancelled(sub.finish())
            share.count(sub.usage)
            await uncancelled(share.note(sub))
            if begun.is_linked:
                await uncancelled(in_thread(begun.branch.session.close))
        assert sub.end is not None
        return _output(arguments, begun, sub.end)

    def _run_of(
        self, arguments: TaskArguments, context: ToolContext, tools: Tools, model: Model, begun: _Begun, share: _Share
    ) -> Run:
        setup, budget = share.caller.setup, arguments.budget or Budget()
        return run(
            begun.branch,
            arguments.prompt if begun.is_new else None,
            model=model,
            tools=tools,
            approver=_Named(setup.approver, arguments.description),
            settings=setup.settings,
            context=msgspec.structs.replace(context, update=None, call_id="", approved=None, run=None),
            checkpoints=None if begun.is_linked else setup.checkpoints,
            system=f"{setup.system}\n\n{_ROLE}" if setup.system else _ROLE,
            thinking=setup.thinking,
            limits=Limits(
                turns=budget.turns,
                tokens=budget.tokens,
                cost=budget.cost,
                seconds=budget.seconds,
                budget=lambda _: setup.limits.reached(share.caller.usage),
                gate=share,
            ),
            pending="skip",
            summarizer=setup.summarizer,
        )

    def _begin(self, arguments: TaskArguments, call: str, caller: Run, model: Model) -> _Begun:
        """Where a sub-agent works: where it stood if its call is run again, else a place of its own. For a thread."""
        session = caller.session
        resets = session.dialect.name in _RESETTING
        if not resets or arguments.mode == "session":
            return self._begin_session(arguments, call, caller, model)
        answer = _answer_with(session, caller.leaf, call)
        stood = _earlier(session, answer, call)
        if stood is not None:
            return stood
        record = Started(call, arguments.description, model.name, answer)
        start = session.branch(answer).append(entry_of(record)).id
        branch = session.branch(start)
        branch.append({"type": "reset_boundary"})
        return _Begun(branch, start)

    def _begin_session(self, arguments: TaskArguments, call: str, caller: Run, model: Model) -> _Begun:
        session = caller.session
        found = find_linked(session, _answer_with(session, caller.leaf, call), call, self.home)
        if found is not None:
            linked, start = found
            return _stood(linked, start, is_linked=True) or _Begun(linked.branch(start), start, is_linked=True)
        linked = new_linked(session, arguments.description, self.home)
        record = Started(call, arguments.description, model.name, caller.leaf, session.id)
        start = linked.append(entry_of(record)).id
        return _Begun(linked.branch(start), start, is_linked=True)


class _Begun(Struct, frozen=True):
    """Where a sub-agent works."""

    branch: Branch
    start: str
    """Its first entry."""
    is_linked: bool = False
    """Whether it has a session of its own."""
    is_new: bool = True
    """Whether its prompt has yet to be said."""
    said: str | None = None
    """Its last words, if it had come to its end before and only its result was lost."""


class _Share:
    """What one sub-agent takes of what its caller may use. Its requests pass the gates of the caller, and of all
    sub-agents beside it: together they pass a limit by no more than one request."""

    def __init__(self, caller: Run, *, is_linked: bool = False) -> None:
        self.caller = caller
        self._is_linked = is_linked
        self._counted = self._noted = RunUsage()

    @property
    def counts_cost(self) -> bool:
        return self.caller.setup.limits.counts_cost

    def count(self, spent: RunUsage) -> None:
        """The sub-agent has used so much; what is new in it counts for the caller."""
        new, self._counted = spent.since(self._counted), spent
        self.caller.charge(new)

    async def note(self, sub: Run) -> None:
        """Let a lane that all of this is for write down what its session does not tell: whatever was used in another
        session, and requests whose usage nobody told."""
        told = sub.usage if self._is_linked else sub.unreported
        new, self._noted = told.since(self._noted), told
        await self._note(new)

    async def _note(self, spent: RunUsage) -> None:
        gate = self.caller.setup.limits.gate
        if isinstance(gate, LaneGate):
            await gate.note("task", spent)
        elif isinstance(gate, _Share) and not gate._is_linked:  # else it is among what that one notes
            await gate._note(spent)

    async def before_turn(self) -> None:
        """Nothing is said to a sub-agent while it works."""

    async def before_call(self) -> str | None:
        gate = self.caller.setup.limits.gate
        return await gate.before_call() if gate is not None else None

    async def enter(self, asked: GateRequest) -> Ticket | str:
        limits, together = self.caller.setup.limits, _together(self.caller)
        together.count(_CALLER, self.caller.usage)
        most = (await asked.expected()).maximum if together.is_counting else RunUsage()
        reserved = await together.enter(most, is_alone=asked.is_exclusive and together.is_counting)
        if isinstance(reserved, str):
            return limits.reached(self.caller.usage) or reserved
        passed: Ticket | str | None = None
        try:
            passed = await limits.gate.enter(asked) if limits.gate is not None else Ticket()
        finally:
            if not isinstance(passed, Ticket):
                together.leave(reserved, _CALLER, self.caller.usage, RunUsage())
        return _Both(reserved, passed) if isinstance(passed, Ticket) else passed

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        assert isinstance(ticket, _Both)
        self.count(spent)
        _together(self.caller).leave(ticket.reserved, _CALLER, self.caller.usage, used)
        if self.caller.setup.limits.gate is not None:
            self.caller.setup.limits.gate.leave(ticket.passed, self.caller.usage, used)


class _Both(Ticket):
    """A request of a sub-agent: room among its siblings, and what the gate of their caller gave for it."""

    def __init__(self, reserved: Ticket, passed: Ticket) -> None:
        self.reserved, self.passed = reserved, passed


_CALLER = 0
_budgets: weakref.WeakKeyDictionary[Run, Together] = weakref.WeakKeyDictionary()


def _together(caller: Run) -> Together:
    """The gate of all sub-agents of a run."""
    found = _budgets.get(caller)
    if found is None:
        limits = caller.setup.limits
        found = _budgets[caller] = Together(Bounds(tokens=limits.tokens, cost=limits.cost))
    return found


class _Named:
    """The approver of the caller; what it asks says which sub-agent wants it."""

    def __init__(self, approver: Approver, description: str) -> None:
        self._approver, self._name = approver, short(description, 40)

    async def ask(self, question: Question) -> Reply:
        named = msgspec.structs.replace(
            question,
            title=f"[{self._name}] {question.title}",
            reasons=(*question.reasons, f"the sub-agent for {self._name!r} wants it"),
        )
        return await self._approver.ask(named)


def _answer_with(session: Session, leaf: str | None, call: str) -> str:
    """The entry of the answer that has a call."""
    at = leaf
    while at is not None:
        entry = session.entry(at) if session.type_of(at) == "message" else None
        if isinstance(entry, MessageEntry) and any(one.id == call for one in tool_calls(entry.message)):
            return at
        at = session.parent(at)
    raise ArgumentsError(f"task: the call {call!r} is not on the branch of its run")


@contextlib.contextmanager
def find_sub_agent(session: Session, leaf: str | None, call: str, home: str | None = None) -> Iterator[_Begun | None]:
    """Where the sub-agent of an open call stands, on its branch or in its session; None when it has said nothing."""
    answer = _answer_with(session, leaf, call)
    stood = _earlier(session, answer, call)
    found = find_linked(session, answer, call, home) if stood is None else None
    if found is None:
        yield stood
        return
    linked, start = found
    try:
        yield _stood(linked, start, is_linked=True)
    finally:
        linked.close()


def _earlier(session: Session, answer: str, call: str) -> _Begun | None:
    """Where the sub-agent of a call stood when an earlier run ended; None when it had said nothing yet."""
    starts = [
        child
        for child in session.children(answer)
        if (record := started_at(session, child)) is not None and record.call == call
    ]
    return next((stood for start in reversed(starts) if (stood := _stood(session, start)) is not None), None)


def _stood(session: Session, start: str, *, is_linked: bool = False) -> _Begun | None:
    """Where a sub-agent stands that begins at an entry; None when it has said nothing yet."""
    branch = session.branch(_last_behind(session, start))
    messages = branch.context().messages if session.type_of(branch.leaf or start) != "custom" else ()
    if not messages:
        return None
    last = messages[-1]
    ended = isinstance(last, Assistant) and last.stop_reason not in ("aborted", "error") and not tool_calls(last)
    return _Begun(branch, start, is_linked, is_new=False, said=message_text(last) if ended else None)


def _last_behind(session: Session, top: str) -> str:
    """The last entry behind another one in file order, but for what sub-agents that begin behind it wrote."""
    tree, types = session.journal.tree, session.journal.types
    quiet = session.dialect.bookkeeping | {"leaf"}
    first = last = tree.node_of[top]
    behind = {first}
    for node in range(first + 1, len(types)):
        if tree.parent(node) in behind and started_at(session, tree.ids[node]) is None:
            behind.add(node)
            last = last if types[node] in quiet else node
    return tree.ids[last]


def _line_of(event: Event) -> str:
    """What whoever watches the call is told of an event of the sub-agent; empty for most."""
    match event:
        case ToolStart(call=call):
            return f"{call.name}: {_about(call)}"
        case ToolEnd(call=call, output=output) if output.is_error:
            return f"{call.name} failed: {short(output.text, _LINE)}"
        case ApprovalAsked(question=question):
            return f"{question.tool} waits to be approved"
        case Persisted(entry=MessageEntry(message=Assistant() as answer)):
            return short(text_of(answer.content), _LINE)
        case _:
            return ""


def _about(call: ToolCall) -> str:
    """A call in one line."""
    for name in _TELLING:
        value = call.arguments.get(name)
        if isinstance(value, str) and value.strip():
            return short(value, _LINE)
    return short(call.arguments, _LINE)


def _output(arguments: TaskArguments, begun: _Begun, end: AgentEnd) -> ToolOutput:
    """What the caller is told."""
    session = begun.branch.session
    place: JsonObject = {"session": session.id, "start": begun.start, "leaf": begun.branch.leaf}
    if begun.is_linked:
        place["path"] = session.location
    spent = msgspec.to_builtins(end.spent)
    details = {
        "task": {"description": arguments.description, "reason": end.reason, **place, "spent": spent},
    }
    text = end.text.strip() or "(the sub-agent said nothing)"
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}\n\n[its last message has {len(text):,} characters; the rest is on its branch]"
    if end.reason != "done":
        text = f"The sub-agent did not come to its end ({end.reason}: {end.why}). The last it said:\n\n{text}"
    return ToolOutput(text, is_error=end.reason != "done", details=details)


class Unfinished(Struct, frozen=True):
    """A sub-agent whose program ended while it worked."""

    description: str
    leaf: str
    """Where it stands, on a branch of its caller's session."""


def find_unfinished(session: Session) -> list[Unfinished]:
    """The sub-agents of the calls that are open where a session stands. Those in sessions of their own are left out."""
    found = []
    for call in open_calls(session.context().messages):
        stood = _earlier(session, _answer_with(session, session.leaf, call.id), call.id) if _is_task(call) else None
        record = started_at(session, stood.start) if stood is not None else None
        if stood is not None and record is not None and stood.branch.leaf is not None:
            found.append(Unfinished(record.description, stood.branch.leaf))
    return found


def _is_task(call: ToolCall) -> bool:
    return call.name == TASK_TOOL
