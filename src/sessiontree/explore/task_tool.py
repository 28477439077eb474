"""The `task` tool: a model delegates part of its work to a sub-agent on a branch of the same session.

    … ── assistant with the call ─┬─ tool result ── …                            the caller sees only the result
                                  └─ task ── reset ── prompt ── assistant ── …   the sub-agent has an empty context

The branch is like any other: it can be watched, switched to, continued and branched. In formats that cannot reset the
context, such as Pi's, or on request, the sub-agent has its own session, which names its origin. Usage of a sub-agent
counts for the run that called it, and cannot exceed what is left of that run's limits.

A call that is run again after a crash continues its sub-agent, on its branch or in its session, and repeats nothing.
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
from sessiontree.agent.tools.base import ArgumentsError, Plan, StructTool, ToolContext, ToolOutput, Tools, short
from sessiontree.branches.subagent_branches import TASK_TOOL, SubagentRecord, subagent_at, subagent_entry
from sessiontree.branches.subagent_sessions import find_subagent_session
from sessiontree.core.entries import MessageEntry
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, ToolCall, message_text, text_of, tool_calls
from sessiontree.errors import SessionTreeError
from sessiontree.explore.budget import Budget as SharedBudget
from sessiontree.explore.lane_messages import InboxTool, SendTool
from sessiontree.explore.new_subagent_session import create_subagent_session
from sessiontree.explore.records import Bounds
from sessiontree.explore.request_gate import LaneGate
from sessiontree.models import Model, open_model
from sessiontree.session.pending_calls import open_calls
from sessiontree.session.session import Branch, Session

MAX_TEXT = 20_000
"""Characters of a sub-agent's last message that the caller sees."""
_MAX_LINE = 160
_SUMMARY_ARGUMENTS = ("command", "path", "pattern", "description")
"""Arguments that summarize a call."""
_ROLE = (
    "You work on one part of a larger task, for another agent that will see only your last message. Questions are not "
    "answered: decide for yourself, and report at the end what you did, what you found and what is left."
)

Mode: TypeAlias = Literal["branch", "session"]


class Budget(Struct, frozen=True, forbid_unknown_fields=True):
    tokens: Annotated[float, Meta(gt=0)] | None = None
    cost: Annotated[float, Meta(gt=0, description="US dollars")] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(gt=0, description="requests to the model")] | None = None


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    description: Annotated[str, Meta(min_length=1, max_length=200, description="the task in a few words")]
    prompt: Annotated[
        str, Meta(min_length=1, max_length=200_000, description="everything the sub-agent has to know and to do")
    ]
    tools: Annotated[tuple[str, ...], Meta(description="the tools it may use; all of yours if not given")] | None = None
    model: Annotated[str, Meta(description="provider:name; your own if not given")] | None = None
    budget: Annotated[Budget, Meta(description="how much it may use")] | None = None
    mode: Annotated[Mode, Meta(description="a branch of this session, or a separate session")] = "branch"


class TaskTool(StructTool[TaskArguments]):
    name = TASK_TOOL
    description = (
        "Delegate a part of the task to a sub-agent. It has an empty context, so its prompt has to contain everything "
        "it needs to know; you see only its last message. Several calls in one response run in parallel, in the same "
        "files. Use it for searches that read a lot, and for parts that do not depend on each other."
    )
    Arguments = TaskArguments

    def __init__(
        self, *, depth: int = 1, find_model: Callable[[str], Model] = open_model, home: str | None = None
    ) -> None:
        """`depth` limits nested sub-agents; with 1, a sub-agent has no `task` tool.

        `home` is where the session of a sub-agent is created if its caller's format has no empty sessions.
        """
        self._depth, self._find_model, self.home = depth, find_model, home

    def prepare(self, arguments: TaskArguments, context: ToolContext) -> Plan:
        if context.run is not None:
            self._tools_for(arguments, context.run)
        return Plan(f"task: {short(arguments.description)}")

    async def carry_out(self, arguments: TaskArguments, context: ToolContext) -> ToolOutput:
        caller = context.run
        if caller is None:
            raise ArgumentsError("task: a sub-agent needs a run, and this call has none")
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
                    f"task: the prices of {model.name} are unknown, and cost is limited; leave the model out"
                )
            return await self._work(arguments, context, caller, tools, model)
        finally:
            await model.close()

    def _tools_for(self, arguments: TaskArguments, caller: Run) -> Tools:
        """The tools of a sub-agent: the caller's or some of them, and `task` with less depth."""
        tools = Tools(tool for tool in caller.setup.tools if not isinstance(tool, TaskTool | SendTool | InboxTool))
        if self._depth > 1:
            tools.add(TaskTool(depth=self._depth - 1, find_model=self._find_model, home=self.home))
        if arguments.tools is None:
            return tools
        unknown = [name for name in arguments.tools if name not in tools.names]
        if unknown:
            available = ", ".join(tools.names) or "none"
            raise ArgumentsError(f"task: a sub-agent cannot have the tool {unknown[0]!r}; available: {available}")
        return Tools(tools[name] for name in dict.fromkeys(arguments.tools))

    async def _ask_for_model(self, arguments: TaskArguments, context: ToolContext, caller: Run) -> ToolOutput | None:
        # Another model may cost more and sends data to another provider: the user decides.
        if await in_thread(lambda: Approvals(caller.session).mode) == "yolo":
            return None
        title = f"{short(arguments.description)}, answered by {arguments.model}"
        question = Question(
            self.name, title, title, ("it uses another model",), may_always=False, call_id=context.call_id
        )
        reply = await caller.setup.approver.ask(question)
        if reply.answer != "no":
            return None
        reason = reply.reason or "the user denied it"
        return ToolOutput(f"task was not run: {reason}. Leave the model out.", True, {"denied": True})

    async def _work(
        self, arguments: TaskArguments, context: ToolContext, caller: Run, tools: Tools, model: Model
    ) -> ToolOutput:
        sub_agent = await uncancelled(in_thread(self._begin, arguments, context.call_id, caller, model))
        if sub_agent.answer is not None:
            if sub_agent.is_linked:
                await uncancelled(in_thread(sub_agent.branch.session.close))
            return _output(arguments, sub_agent, AgentEnd("done", sub_agent.branch.leaf, RunUsage(), sub_agent.answer))
        share = _Share(caller, is_linked=sub_agent.is_linked)
        sub = self._run_of(arguments, context, tools, model, sub_agent, share)
        try:
            async for event in sub:
                share.count(sub.usage)
                if ends_request(event):
                    await share.write_usage(sub)
                line = _progress_line(event)
                if line and context.update is not None:
                    context.update(line + "\n")
        finally:
            sub.interrupt("the call of the sub-agent was interrupted")
            await uncancelled(sub.finish())
            share.count(sub.usage)
            await uncancelled(share.write_usage(sub))
            if sub_agent.is_linked:
                await uncancelled(in_thread(sub_agent.branch.session.close))
        assert sub.end is not None
        return _output(arguments, sub_agent, sub.end)

    def _run_of(
        self,
        arguments: TaskArguments,
        context: ToolContext,
        tools: Tools,
        model: Model,
        sub_agent: _SubAgent,
        share: _Share,
    ) -> Run:
        setup, budget = share.caller.setup, arguments.budget or Budget()
        return run(
            sub_agent.branch,
            arguments.prompt if sub_agent.is_new else None,
            model=model,
            tools=tools,
            approver=_NamedApprover(setup.approver, arguments.description),
            settings=setup.settings,
            context=msgspec.structs.replace(context, update=None, call_id="", approved=None, run=None),
            checkpoints=None if sub_agent.is_linked else setup.checkpoints,
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

    def _begin(self, arguments: TaskArguments, call: str, caller: Run, model: Model) -> _SubAgent:
        """Start a sub-agent, or continue the one of an earlier run of the same call. Blocking."""
        session = caller.session
        if not session.dialect.client.applies_resets or arguments.mode == "session":
            return self._begin_session(arguments, call, caller, model)
        answer = _entry_with_call(session, caller.leaf, call)
        earlier = _find_on_branch(session, answer, call)
        if earlier is not None:
            return earlier
        record = SubagentRecord(call, arguments.description, model.name, answer)
        start = session.branch(answer).append(subagent_entry(record)).id
        branch = session.branch(start)
        branch.append({"type": "reset_boundary"})
        return _SubAgent(branch, start)

    def _begin_session(self, arguments: TaskArguments, call: str, caller: Run, model: Model) -> _SubAgent:
        session = caller.session
        found = find_subagent_session(session, _entry_with_call(session, caller.leaf, call), call, self.home)
        if found is not None:
            linked, start = found
            Approvals(linked).inherit(Approvals(session))
            earlier = _continued(linked, start, is_linked=True)
            return earlier or _SubAgent(linked.branch(start), start, is_linked=True)
        linked = create_subagent_session(session, arguments.description, self.home)
        record = SubagentRecord(call, arguments.description, model.name, caller.leaf, session.id)
        start = linked.append(subagent_entry(record)).id
        return _SubAgent(linked.branch(start), start, is_linked=True)


class _SubAgent(Struct, frozen=True):
    """A sub-agent of a `task` call: the branch or session it works in, and how far it got before."""

    branch: Branch
    start: str
    """Its first entry."""
    is_linked: bool = False
    """Whether it has a separate session."""
    is_new: bool = True
    """Whether it has no prompt yet."""
    answer: str | None = None
    """Its last message, if it had finished and only the result of the call was lost."""


class _Share:
    """The gate of one sub-agent.

    Its requests pass the caller's gate, and one shared by all sub-agents of the caller: together they exceed a limit by
    one request at most.
    """

    def __init__(self, caller: Run, *, is_linked: bool = False) -> None:
        self.caller = caller
        self._is_linked = is_linked
        self._counted = self._recorded = RunUsage()

    @property
    def counts_cost(self) -> bool:
        return self.caller.setup.limits.counts_cost

    def count(self, spent: RunUsage) -> None:
        """Charge the caller for what the sub-agent used since the last call."""
        new, self._counted = spent.since(self._counted), spent
        self.caller.charge(new)

    async def write_usage(self, sub: Run) -> None:
        """Record usage on the lane that the lane's session does not report: in another session, or by no provider."""
        unreported = sub.usage if self._is_linked else sub.unreported
        new, self._recorded = unreported.since(self._recorded), unreported
        await self._write_usage(new)

    async def _write_usage(self, usage: RunUsage) -> None:
        gate = self.caller.setup.limits.gate
        if isinstance(gate, LaneGate):
            await gate.write_usage("task", usage)
        elif isinstance(gate, _Share) and not gate._is_linked:  # a linked caller records it with its own usage
            await gate._write_usage(usage)

    async def before_turn(self) -> None:
        """Sub-agents receive no messages."""

    async def before_call(self) -> str | None:
        gate = self.caller.setup.limits.gate
        return await gate.before_call() if gate is not None else None

    async def enter(self, asked: GateRequest) -> Ticket | str:
        limits, shared = self.caller.setup.limits, _shared_budget(self.caller)
        shared.count(_CALLER, self.caller.usage)
        most = (await asked.expected()).maximum if shared.is_counting else RunUsage()
        reserved = await shared.enter(most, is_alone=asked.is_exclusive and shared.is_counting)
        if isinstance(reserved, str):
            return limits.reached(self.caller.usage) or reserved
        passed: Ticket | str | None = None
        try:
            passed = await limits.gate.enter(asked) if limits.gate is not None else Ticket()
        finally:
            if not isinstance(passed, Ticket):
                shared.leave(reserved, _CALLER, self.caller.usage, RunUsage())
        return _Both(reserved, passed) if isinstance(passed, Ticket) else passed

    def leave(self, ticket: Ticket, spent: RunUsage, used: RunUsage) -> None:
        assert isinstance(ticket, _Both)
        self.count(spent)
        _shared_budget(self.caller).leave(ticket.reserved, _CALLER, self.caller.usage, used)
        if self.caller.setup.limits.gate is not None:
            self.caller.setup.limits.gate.leave(ticket.passed, self.caller.usage, used)


class _Both(Ticket):
    """A request of a sub-agent: a reservation among its siblings, and the ticket of the caller's gate."""

    def __init__(self, reserved: Ticket, passed: Ticket) -> None:
        self.reserved, self.passed = reserved, passed


_CALLER = 0
_budgets: weakref.WeakKeyDictionary[Run, SharedBudget] = weakref.WeakKeyDictionary()


def _shared_budget(caller: Run) -> SharedBudget:
    """The budget that all sub-agents of a run share."""
    found = _budgets.get(caller)
    if found is None:
        limits = caller.setup.limits
        found = _budgets[caller] = SharedBudget(Bounds(tokens=limits.tokens, cost=limits.cost))
    return found


class _NamedApprover:
    """The caller's approver; questions name the sub-agent."""

    def __init__(self, approver: Approver, description: str) -> None:
        self._approver, self._name = approver, short(description, 40)

    async def ask(self, question: Question) -> Reply:
        named = msgspec.structs.replace(
            question,
            title=f"[{self._name}] {question.title}",
            reasons=(*question.reasons, f"the sub-agent for {self._name!r} asks"),
        )
        return await self._approver.ask(named)


def _entry_with_call(session: Session, leaf: str | None, call: str) -> str:
    """The entry of the assistant message with a call."""
    at = leaf
    while at is not None:
        entry = session.entry(at) if session.type_of(at) == "message" else None
        if isinstance(entry, MessageEntry) and any(tool_call.id == call for tool_call in tool_calls(entry.message)):
            return at
        at = session.parent(at)
    raise ArgumentsError(f"task: the call {call!r} is not on the branch of its run")


@contextlib.contextmanager
def find_sub_agent(
    session: Session, leaf: str | None, call: str, home: str | None = None
) -> Iterator[_SubAgent | None]:
    """The sub-agent of an open call, on its branch or in its session; None if it has no message yet."""
    answer = _entry_with_call(session, leaf, call)
    earlier = _find_on_branch(session, answer, call)
    found = find_subagent_session(session, answer, call, home) if earlier is None else None
    if found is None:
        yield earlier
        return
    linked, start = found
    try:
        yield _continued(linked, start, is_linked=True)
    finally:
        linked.close()


def _find_on_branch(session: Session, answer: str, call: str) -> _SubAgent | None:
    """The sub-agent that an earlier run of a call started on a branch; None if it has no message yet."""
    starts = [
        child
        for child in session.children(answer)
        if (record := subagent_at(session, child)) is not None and record.call == call
    ]
    return next((found for start in reversed(starts) if (found := _continued(session, start)) is not None), None)


def _continued(session: Session, start: str, *, is_linked: bool = False) -> _SubAgent | None:
    """The sub-agent that starts at an entry, to continue at its last one; None if it has no message yet."""
    branch = session.branch(_last_descendant(session, start))
    messages = branch.context().messages if session.type_of(branch.leaf or start) != "custom" else ()
    if not messages:
        return None
    last = messages[-1]
    ended = isinstance(last, Assistant) and last.stop_reason not in ("aborted", "error") and not tool_calls(last)
    return _SubAgent(branch, start, is_linked, is_new=False, answer=message_text(last) if ended else None)


def _last_descendant(session: Session, top: str) -> str:
    """The last descendant of an entry in file order, except those on branches of nested sub-agents."""
    tree, types = session.journal.tree, session.journal.types
    ignored = session.dialect.traits.passive_types
    first = last = tree.node_of[top]
    descendants = {first}
    for node in range(first + 1, len(types)):
        if tree.parent(node) in descendants and subagent_at(session, tree.ids[node]) is None:
            descendants.add(node)
            last = last if types[node] in ignored else node
    return tree.ids[last]


def _progress_line(event: Event) -> str:
    """The line that the call shows for an event of its sub-agent; empty for most."""
    match event:
        case ToolStart(call=call):
            return f"{call.name}: {_summarize(call)}"
        case ToolEnd(call=call, output=output) if output.is_error:
            return f"{call.name} failed: {short(output.text, _MAX_LINE)}"
        case ApprovalAsked(question=question):
            return f"{question.tool} waits for approval"
        case Persisted(entry=MessageEntry(message=Assistant() as answer)):
            return short(text_of(answer.content), _MAX_LINE)
        case _:
            return ""


def _summarize(call: ToolCall) -> str:
    for name in _SUMMARY_ARGUMENTS:
        value = call.arguments.get(name)
        if isinstance(value, str) and value.strip():
            return short(value, _MAX_LINE)
    return short(call.arguments, _MAX_LINE)


def _output(arguments: TaskArguments, sub_agent: _SubAgent, end: AgentEnd) -> ToolOutput:
    """The result of the call."""
    session = sub_agent.branch.session
    location: JsonObject = {"session": session.id, "start": sub_agent.start, "leaf": sub_agent.branch.leaf}
    if sub_agent.is_linked:
        location["path"] = session.location
    spent = msgspec.to_builtins(end.spent)
    details = {
        "task": {"description": arguments.description, "reason": end.reason, **location, "spent": spent},
    }
    text = end.text.strip() or "(the sub-agent returned no text)"
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n\n[truncated: {len(text):,} characters; the rest is on its branch]"
    if end.reason != "done":
        text = f"The sub-agent did not finish ({end.reason}: {end.why}). Its last message:\n\n{text}"
    return ToolOutput(text, is_error=end.reason != "done", details=details)


class Unfinished(Struct, frozen=True):
    """A sub-agent whose process ended while it worked."""

    description: str
    leaf: str
    """Its last entry, on a branch of the caller's session."""


def find_unfinished(session: Session) -> list[Unfinished]:
    """The sub-agents of open calls on the active branch, except those in separate sessions."""
    found = []
    for call in open_calls(session.context().messages):
        if call.name != TASK_TOOL:
            continue
        earlier = _find_on_branch(session, _entry_with_call(session, session.leaf, call.id), call.id)
        record = subagent_at(session, earlier.start) if earlier is not None else None
        if earlier is not None and record is not None and earlier.branch.leaf is not None:
            found.append(Unfinished(record.description, earlier.branch.leaf))
    return found
