"""Tool calls of a run: each from plan to result, and several in parallel.

A call that goes wrong (invalid arguments, a denial, a failure of the tool) has that as its result. Only a cancellation
is raised.

A call that was written may have no result: the program ended first, or the session was moved to the answer. If another
branch has the result, a run copies it. Other calls need a decision:

    pending_calls(branch)                 the calls without a result, and whether each had begun
    resolve_pending(branch, decision)     "run" again, "skip", or `Answered("...")`: one decision for all, or one each

No call is run automatically: it may have done its work before the program ended. A run that starts on a branch
with such calls ends immediately and reports them, unless it is given a decision.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.agent.approval import Approvals, Approver, Ask, Decision, Deny, DenyAll, Question, Reply, denied_text
from sessiontree.agent.async_bridge import in_thread, uncancelled
from sessiontree.agent.branch_writer import SerializedBranch
from sessiontree.agent.checkpoints import Checkpoints
from sessiontree.agent.event_channel import EventChannel
from sessiontree.agent.events import ApprovalAnswered, ApprovalAsked, Event, ToolEnd, ToolStart, ToolUpdate
from sessiontree.agent.limits import RequestGate
from sessiontree.agent.live_context import live_context_of
from sessiontree.agent.tool_output import OutputThrottle, lost, not_run, result_message
from sessiontree.agent.tools.base import ArgumentsError, Plan, Tool, ToolContext, ToolOutput, Tools
from sessiontree.agent.tools.tool_table import runnable_call
from sessiontree.core.entries import Entry
from sessiontree.core.messages import (
    Image,
    ToolCall,
    ToolResult,
    blocks_of,
    text_of,
)
from sessiontree.errors import UsageError
from sessiontree.session.pending_calls import open_calls, results_elsewhere
from sessiontree.session.session import Branch, Session

_SNAPSHOTS = frozenset({"file_snapshot", "sessiontree:file_snapshot"})


class ToolRunner:
    """Runs single calls in one session: plan, approval, checkpoint, run, masking of secrets."""

    def __init__(
        self,
        tools: Tools,
        context: ToolContext,
        approvals: Approvals,
        *,
        approver: Approver | None = None,
        checkpoints: Checkpoints | None = None,
        agent: str | None = None,
    ) -> None:
        """`agent` is the dialect of the session, whose client may have made the calls."""
        self._agent = agent
        self._tools, self._approvals = tools, approvals
        self._context = msgspec.structs.replace(context, mask=context.masked())
        self._approver = approver or DenyAll()
        self._checkpoints = checkpoints
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def tools(self) -> Tools:
        return self._tools

    async def call(
        self, call: ToolCall, *, branch: Branch | None = None, update: Callable[[str], None] | None = None
    ) -> ToolOutput:
        """Run a call and return its masked result. `branch` is where its checkpoint is recorded.

        A call of the session's client is mapped to the tool that does the same.
        """
        if self._agent is not None:
            call = runnable_call(call, self._agent, self._tools) or call
        tool = self._tools.find(call.name)
        if tool is None:
            available = ", ".join(self._tools.names) or "none"
            return ToolOutput(f"no tool is named {call.name!r}; available: {available}", is_error=True)
        context = msgspec.structs.replace(self._context, call_id=call.id, update=update)
        try:
            plan, decision = await asyncio.to_thread(self._plan, tool, call, context)
            async with self._lock_paths(write.target.path for write in plan.writes) as waited:
                if waited:  # another call may have changed the file: the plan is outdated
                    plan, decision = await asyncio.to_thread(self._plan, tool, call, context)
                output = await self._find_denial(tool, decision)
                if output is None:
                    context = msgspec.structs.replace(context, approved=plan)
                    output = await self._run(tool, call, plan, context, branch)
        except ArgumentsError as error:
            output = ToolOutput(str(error), is_error=True)
        except Exception as error:  # noqa: BLE001 - tools of other packages may raise anything; it becomes the result
            output = ToolOutput(f"{tool.name} failed: {type(error).__name__}: {error}", is_error=True)
        return self._masked(output)

    def _plan(self, tool: Tool, call: ToolCall, context: ToolContext) -> tuple[Plan, Decision]:
        # In a thread: it reads files, may read the session's settings, and renders a diff for the question.
        plan = tool.plan(call.arguments, context)
        return plan, self._approvals.decide(tool.name, plan, call.id)

    async def _find_denial(self, tool: Tool, decision: Decision) -> ToolOutput | None:
        if isinstance(decision, Ask):
            reply = await self._approver.ask(decision.question)
            if reply.answer == "always" and decision.question.may_always:
                await uncancelled(in_thread(self._approvals.approve, tool.name))
            if reply.answer != "no":
                return None
            decision = Deny(reply.reason)
        if isinstance(decision, Deny):
            return ToolOutput(denied_text(tool.name, decision.reason), is_error=True, details={"denied": True})
        return None

    async def _run(
        self, tool: Tool, call: ToolCall, plan: Plan, context: ToolContext, branch: Branch | None
    ) -> ToolOutput:
        if self._checkpoints is None or plan.changes == "nothing":
            return await tool.run(call.arguments, context)
        async with self._checkpoints.around(tool.name, plan, call.id, branch):
            return await tool.run(call.arguments, context)

    @contextlib.asynccontextmanager
    async def _lock_paths(self, paths: Iterable[str]) -> AsyncIterator[bool]:
        """Serialize calls that change the same file. Yields whether it had to wait."""
        async with contextlib.AsyncExitStack() as stack:
            # Sorted, so that two calls which change the same two files cannot deadlock.
            locks = [self._locks.setdefault(path, asyncio.Lock()) for path in sorted(set(paths))]
            waited = any(lock.locked() for lock in locks)
            for lock in locks:
                await stack.enter_async_context(lock)
            yield waited

    def _masked(self, output: ToolOutput) -> ToolOutput:
        mask = self._context.masked()
        return msgspec.structs.replace(output, text=mask.text(output.text), details=mask.value(output.details))


class OpenCall:
    """A call whose result is not written yet."""

    def __init__(self, call: ToolCall, channel: EventChannel[Event]) -> None:
        self.call = call
        self.has_started = False
        self.awaits_approval = False
        # An update is skipped while the consumer has not taken the last one: what is on the screen stays current.
        self.throttle = OutputThrottle(lambda text: channel.push(ToolUpdate(call.id, text)), lambda: channel.is_empty)

    @property
    def had_begun(self) -> bool:
        """Whether it may have changed something: it was started, and is not waiting for an approval."""
        return self.has_started and not self.awaits_approval


class KeepResult(Protocol):
    """Writes the result of a call to the session."""

    def __call__(self, call: OpenCall, output: ToolOutput, /) -> Awaitable[None]: ...


class ParallelCalls:
    """Runs the calls of an answer in parallel, writes each result as it arrives, and emits events."""

    def __init__(
        self, branch: Branch, channel: EventChannel[Event], keep_result: KeepResult, gate: RequestGate | None
    ) -> None:
        self._branch, self._channel, self._keep_result, self._gate = branch, channel, keep_result, gate
        self.open: list[OpenCall] = []
        """Calls without a result. The writer of entries updates it together with the file."""

    async def run_all(self, runner: ToolRunner, calls: Sequence[OpenCall], why_not: str | None = None) -> None:
        """Run calls; with `why_not`, record that none was run."""
        if why_not is not None:
            for call in calls:
                await self._keep_result(call, not_run(why_not))
            return
        tasks = [asyncio.create_task(self._run(runner, call)) for call in calls]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            # None may still run, or write a result, when the run settles its open calls.
            for task in tasks:
                task.cancel()
            await uncancelled(asyncio.gather(*tasks, return_exceptions=True))
        for task in tasks:
            task.result()

    async def _run(self, runner: ToolRunner, opened: OpenCall) -> None:
        call = opened.call
        why_not = await self._gate.before_call() if self._gate is not None else None
        if why_not is not None:
            await self._keep_result(opened, not_run(why_not))
            return
        await self._channel.send(ToolStart(call))
        opened.has_started = True
        loop = asyncio.get_running_loop()

        def update(text: str) -> None:  # tools call it from any thread
            loop.call_soon_threadsafe(opened.throttle.add, text)

        try:
            output = await runner.call(call, branch=self._branch, update=update)
        except Exception as error:  # noqa: BLE001 - tools of other packages may raise anything; it becomes the result
            output = ToolOutput(f"{call.name} failed: {type(error).__name__}: {error}", is_error=True)
        finally:
            opened.throttle.close()
        await self._keep_result(opened, output)
        opened.throttle.flush()
        await self._channel.send(ToolEnd(call, output))

    def approver(self, approver: Approver) -> Approver:
        """Wrap an approver: questions and replies are emitted as events, and noted on the open call."""
        return _AnnouncingApprover(self, approver, self._channel)


class _AnnouncingApprover:
    def __init__(self, calls: ParallelCalls, approver: Approver, channel: EventChannel[Event]) -> None:
        self._calls, self._approver, self._channel = calls, approver, channel

    async def ask(self, question: Question) -> Reply:
        self._set_awaiting(question, True)
        await self._channel.send(ApprovalAsked(question))
        reply = await self._approver.ask(question)
        self._set_awaiting(question, reply.answer == "no")
        await self._channel.send(ApprovalAnswered(question.call_id, reply))
        return reply

    def _set_awaiting(self, question: Question, awaits: bool) -> None:
        for opened in self._calls.open:
            if opened.call.id == question.call_id:
                opened.awaits_approval = awaits


# Calls without a result


class Answered(Struct, frozen=True):
    """A result written by the user."""

    text: str
    is_error: bool = False


Resolution: TypeAlias = Literal["run", "skip"] | Answered
PendingDecision: TypeAlias = Resolution | Mapping[str, Resolution]
"""One resolution for all calls, or one per call id."""


class PendingCall(Struct, frozen=True):
    """A call without a result."""

    call: ToolCall
    had_begun: bool
    """Whether it is known to have begun changing files. False does not prove the opposite."""


class AnsweredCall(Struct, frozen=True):
    """A call without a result on this branch that has one on another branch."""

    call: ToolCall
    output: ToolOutput


def pending_calls(branch: Branch | Session) -> list[PendingCall]:
    """Find the calls at the end of a branch that have no result, on this branch or another one."""
    return find_open_calls(branch)[0]


def find_open_calls(branch: Branch | Session) -> tuple[list[PendingCall], list[AnsweredCall]]:
    """The calls at the end of a branch without a result on it: those without any, and those answered elsewhere."""
    calls = open_calls(live_context_of(branch).messages())
    if not calls:
        return [], []
    session = branch if isinstance(branch, Session) else branch.session
    begun, elsewhere = set(_iter_begun(branch)), results_elsewhere(session, branch.leaf, {call.id for call in calls})
    pending = [PendingCall(call, call.id in begun) for call in calls if call.id not in elsewhere]
    answered = [AnsweredCall(call, _copied_output(*elsewhere[call.id])) for call in calls if call.id in elsewhere]
    return pending, answered


def _copied_output(entry: str, message: ToolResult) -> ToolOutput:
    images = tuple(block for block in blocks_of(message.content) if isinstance(block, Image))
    return ToolOutput(text_of(message.content), message.is_error, {"copiedFrom": entry}, images)


def _iter_begun(branch: Branch | Session) -> Iterator[str]:
    """Ids of calls since the last answer with a checkpoint, which is written before files are changed."""
    session = branch if isinstance(branch, Session) else branch.session
    at = branch.leaf
    while at is not None:
        kind = session.type_of(at)
        if kind in _SNAPSHOTS:
            fields = session.fields(at)
            call = (fields.get("entry") or fields).get("call")
            if isinstance(call, str):
                yield call
        elif kind == "message" and session.fields(at).get("message", {}).get("role") == "assistant":
            return
        at = session.parent(at)


def decided(decision: PendingDecision, call: ToolCall) -> Resolution:
    """The resolution of a call; `UsageError` if a mapping does not contain it."""
    if not isinstance(decision, Mapping):
        return decision
    if call.id not in decision:
        raise UsageError(f"no decision for the call {call.id} of {call.name}: choose run, skip, or an answer")
    return decision[call.id]


def result_without_running(pending: PendingCall, resolution: Resolution) -> ToolOutput:
    """The result of a call that is not run again."""
    if isinstance(resolution, Answered):
        return ToolOutput(resolution.text, resolution.is_error, {"answeredBy": "user"})
    return lost(had_begun=pending.had_begun)


async def resolve_pending(
    branch: Branch | Session, decision: PendingDecision, runner: ToolRunner | None = None
) -> list[Entry]:
    """Write a result for each pending call and return the entries. `runner` is needed to run calls again.

    A call with a result on another branch gets a copy of it.
    """
    open_here, answered = find_open_calls(branch)
    waiting = [(pending, decided(decision, pending.call)) for pending in open_here]
    if runner is None and any(resolution == "run" for _, resolution in waiting):
        raise UsageError("running calls again needs a ToolRunner: pass `runner`")
    writer = SerializedBranch(branch, live_context_of(branch).add)
    written = [writer.append(result_message(known.call, known.output)) for known in answered]
    for pending, resolution in waiting:
        if resolution == "run":
            assert runner is not None
            output = await runner.call(pending.call, branch=writer)
        else:
            output = result_without_running(pending, resolution)
        written.append(writer.append(result_message(pending.call, output)))
    return written
