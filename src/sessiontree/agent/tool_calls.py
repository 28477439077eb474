"""One call of a tool from beginning to end: plan, approval, checkpoint, run, masking. The run loop calls this.

Whatever goes wrong with a call is its result: arguments that do not fit, a denial, a failure. Only a cancel gets out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec

from sessiontree.agent.approval import Approvals, Approver, Ask, Decision, Deny, NobodyToAsk, denied_text
from sessiontree.agent.branch_writer import in_thread, uncancelled
from sessiontree.agent.checkpoints import Checkpoints
from sessiontree.agent.tools.base import ArgumentsError, Plan, Tool, ToolContext, ToolOutput
from sessiontree.agent.tools.registry import Tools
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Text, ToolCall
from sessiontree.session.session import Branch


class Calls:
    """Runs the calls of a model in one session."""

    def __init__(
        self,
        tools: Tools,
        context: ToolContext,
        approvals: Approvals,
        *,
        approver: Approver | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._tools, self._approvals = tools, approvals
        self._context = msgspec.structs.replace(context, mask=context.masked())
        self._approver = approver or NobodyToAsk()
        self._checkpoints = checkpoints
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def tools(self) -> Tools:
        return self._tools

    async def call(
        self, call: ToolCall, *, branch: Branch | None = None, update: Callable[[str], None] | None = None
    ) -> ToolOutput:
        """The result of a call, fit to be kept. `branch` is where the checkpoint is noted."""
        tool = self._tools.find(call.name)
        if tool is None:
            return ToolOutput(
                f"there is no tool {call.name!r}; there is: {', '.join(self._tools.names) or 'none'}", is_error=True
            )
        context = msgspec.structs.replace(self._context, call_id=call.id, update=update)
        try:
            plan, decision = await asyncio.to_thread(self._planned, tool, call, context)
            async with self._alone(write.place.path for write in plan.writes) as waited:
                if waited:  # the file is not what it was
                    plan, decision = await asyncio.to_thread(self._planned, tool, call, context)
                output = await self._find_denial(tool, decision)
                if output is None:
                    context = msgspec.structs.replace(context, approved=plan)
                    output = await self._run(tool, call, plan, context, branch)
        except ArgumentsError as error:
            output = ToolOutput(str(error), is_error=True)
        except Exception as error:  # noqa: BLE001 - a tool of someone else may fail in any way; the model is told
            output = ToolOutput(f"{tool.name} failed: {type(error).__name__}: {error}", is_error=True)
        return self._masked(output)

    def _planned(self, tool: Tool, call: ToolCall, context: ToolContext) -> tuple[Plan, Decision]:
        """What a call will do, and whether it may. For a thread: files are looked at, settings may have to be read
        while others write, and the question shows a difference."""
        plan = tool.plan(call.arguments, context)
        return plan, self._approvals.decide(tool.name, plan, call.id)

    async def _find_denial(self, tool: Tool, decision: Decision) -> ToolOutput | None:
        if isinstance(decision, Ask):
            reply = await self._approver.ask(decision.question)
            if reply.answer == "always" and decision.question.may_always:
                await uncancelled(in_thread(self._approvals.approve, tool.name))
            if reply.answer == "no":
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
    async def _alone(self, paths: Iterable[str]) -> AsyncIterator[bool]:
        """Calls that change the same file wait for each other, all others run side by side. Whether it had to wait."""
        async with contextlib.AsyncExitStack() as stack:
            locks = [self._locks.setdefault(path, asyncio.Lock()) for path in sorted(set(paths))]
            waited = any(lock.locked() for lock in locks)
            for lock in locks:
                await stack.enter_async_context(lock)
            yield waited

    def _masked(self, output: ToolOutput) -> ToolOutput:
        mask = self._context.masked()
        return msgspec.structs.replace(output, text=mask.text(output.text), details=mask.value(output.details))


def result_message(call: ToolCall, output: ToolOutput) -> JsonObject:
    """A result as a message for `append`."""
    content = [msgspec.to_builtins(block) for block in (Text(output.text), *output.images)]
    message: JsonObject = {
        "role": "toolResult",
        "toolCallId": call.id,
        "toolName": call.name,
        "content": content,
        "isError": output.is_error,
    }
    return {**message, "details": output.details} if output.details else message
