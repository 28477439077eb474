"""Run one lane: wait for a slot, run the agent, check the files, record the end, ask the hooks what follows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.agent.events import EndReason, ends_request
from sessiontree.agent.limits import Limits, RunUsage
from sessiontree.agent.live_context import live_context_of
from sessiontree.agent.loop import Run, is_answered
from sessiontree.agent.loop import run as run_agent
from sessiontree.agent.tool_calls import PendingDecision
from sessiontree.agent.tool_output import spill_target
from sessiontree.agent.tools.base import ToolContext
from sessiontree.agent.workspace import Workspace
from sessiontree.branches.subagent_branches import TASK_TOOL
from sessiontree.errors import SessionTreeError
from sessiontree.explore.check import check_lane, join_reasons
from sessiontree.explore.events import LaneRefused
from sessiontree.explore.lane import Lane
from sessiontree.explore.records import LaneEnd
from sessiontree.explore.request_gate import TAKEN_OVER, LaneGate
from sessiontree.explore.state import STATES
from sessiontree.paths import home
from sessiontree.session.pending_calls import open_calls

if TYPE_CHECKING:
    from sessiontree.explore.exploration import Exploration

LEFT = "the exploration was closed before the lane ended"
_UNREPORTED = "requests that did not report their usage"
_CHECKED: frozenset[EndReason] = frozenset({"done", "limit", "error"})


class LaneRunner:
    """The task that runs one lane."""

    def __init__(self, exploration: Exploration, lane: Lane) -> None:
        self._exploration, self._lane = exploration, lane
        self._task: asyncio.Task[None] | None = None
        # A task that is cancelled before its first step would never record the lane's end, so it must not be.
        self._has_begun = False
        self._is_ending = False

    @property
    def task(self) -> asyncio.Task[None] | None:
        """The task while it runs."""
        return self._task if self._task is not None and not self._task.done() else None

    def start(self, prompt: str | None) -> None:
        """Run the lane with a prompt, or with None continue it, as soon as a slot is free."""
        self._spawn(self._run(prompt))

    def follow_up(self) -> None:
        """Ask the hooks about a lane that ended earlier: its process may have died before doing so."""
        self._has_begun = True
        self._spawn(self._follow_up_late())

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        self._exploration.task_started()
        self._task = asyncio.create_task(work)

    def interrupt(self, why: str) -> None:
        """Interrupt the run, or cancel what comes before and after it."""
        if self._lane.run is not None:
            self._lane.run.interrupt(why)
        elif self._task is not None and self._has_begun and (self._lane.state == "waiting" or self._is_ending):
            self._task.cancel()

    async def _run(self, prompt: str | None) -> None:
        self._has_begun = True
        lane = self._lane
        try:
            try:
                if self._is_unwanted:
                    await self._stop()
                else:
                    async with self._exploration.slots:
                        await self._run_agent(prompt)
            except asyncio.CancelledError:
                await uncancelled(self._stop())
            except Exception as error:  # noqa: BLE001 - a failing hook, tool or model must not affect other lanes
                await self._end("error", f"{type(error).__name__}: {error}")
            if not self._exploration.is_left:
                await self._follow_up()
        except SessionTreeError as error:  # the store failed: the file has no end of the lane, so it can be resumed
            lane.state, lane.why = "lost", str(error)
        finally:
            lane.run = None
            self._exploration.task_finished()

    @property
    def _is_unwanted(self) -> bool:
        return self._lane.stop_reason is not None or self._exploration.is_left

    async def _run_agent(self, prompt: str | None) -> None:
        exploration, lane = self._exploration, self._lane
        if self._is_unwanted:  # stopped while it waited for a slot
            return await self._stop()
        if not await exploration.leases.holds_lane(lane):
            return await self._give_up()
        why = exploration.budget.reached()
        if why is not None:
            return await self._end("limit", why)
        if prompt is None and await in_thread(_is_complete, lane):
            return await self._end("done", "")
        run = await self._new_run(prompt)
        lane.begin(run)
        recorded = RunUsage()
        try:
            async for event in run:
                lane.handle(event)
                for hook in exploration.hooks:
                    await hook.handle_event(exploration, lane, event)
                if ends_request(event):  # recorded at once, so that the usage counts even if this process dies
                    recorded = await self._write_unreported(run, recorded)
                await exploration.send(lane, event)
        finally:
            lane.run = None
        assert run.end is not None
        # Checked again before the end is recorded: another process may have taken the lane over during the run.
        if not await exploration.leases.holds_lane(lane):
            return await self._give_up()
        await self._write_unreported(run, recorded)
        if run.end.reason == "interrupted" and lane.stop_reason is None:
            return await exploration.release_lane(lane, LEFT)
        if run.end.reason == "pending":  # `resume` can decide what happens to the calls
            return await exploration.release_lane(lane, run.end.why, "pending")
        # A run only knows its share of the budget: prefer the limit of the whole exploration as the reason.
        why = exploration.budget.reached() if run.end.reason == "limit" else None
        return await self._end(run.end.reason, why or run.end.why)

    async def _write_unreported(self, run: Run, recorded: RunUsage) -> RunUsage:
        """Record the usage that no entry reports; returns its new total."""
        unreported = run.unreported
        await self._lane.write_usage(_UNREPORTED, unreported.since(recorded))
        return unreported

    async def _new_run(self, prompt: str | None) -> Run:
        exploration, lane = self._exploration, self._lane
        options, bounds = exploration.options, exploration.plan.bounds
        assert lane.model is not None
        context = await in_thread(self._tool_context)
        return run_agent(
            lane.branch,
            prompt,
            model=lane.model,
            tools=exploration.tools_for(lane),
            approver=options.approver_for(lane) if options.approver_for is not None else None,
            settings=options.settings,
            context=context,
            system=exploration.system_for(context.workspace.root),
            thinking=options.thinking,
            limits=Limits(
                turns=None if bounds.turns is None else max(bounds.turns - lane.spent.turns, 0),
                seconds=exploration.budget.seconds_left,
                gate=LaneGate(exploration, lane),
            ),
            pending=await in_thread(self._pending_decision),
            summarizer=options.summarizer,
        )

    def _tool_context(self) -> ToolContext:
        exploration, lane = self._exploration, self._lane
        outputs = spill_target(exploration.session)
        readable = (outputs,) if isinstance(outputs, str) else ()
        settings = exploration.options.settings
        unguarded = (lane.worktree.path,) if lane.worktree is not None else ()
        workspace = Workspace(exploration.folder(lane), guarded=(home(),), readable=readable, unguarded=unguarded)
        return ToolContext(workspace, outputs=outputs, sandbox=settings is None or settings.sandbox)

    def _pending_decision(self) -> PendingDecision | None:
        """What happens to calls without a result. Sub-agents continue: that repeats nothing."""
        pending = self._exploration.options.pending
        if pending != "skip":
            return pending
        calls = open_calls(live_context_of(self._lane.branch).messages())
        return {call.id: "run" if call.name == TASK_TOOL else "skip" for call in calls} or "skip"

    # The end of a lane

    async def _end(self, reason: EndReason, why: str) -> None:
        """Save the worktree, run the check, and record the end."""
        exploration, lane = self._exploration, self._lane
        lane.why = why
        if lane.worktree is not None and exploration.worktrees is not None:
            try:
                lane.saved = await uncancelled(in_background(exploration.worktrees.save, lane.worktree))
            except SessionTreeError as error:
                lane.why = join_reasons(why, f"its folder could not be saved: {error}")
        if exploration.plan.check is not None and reason in _CHECKED and not exploration.is_left:
            self._is_ending = True
            try:
                lane.check = await check_lane(exploration, lane, exploration.plan.check)
            finally:
                self._is_ending = False
            await lane.write(lane.check)
        await lane.write(LaneEnd(reason, lane.why, lane.spent, lane.text, lane.saved))
        await in_thread(exploration.session.flush)
        exploration.close_lane(lane, STATES[reason], lane.why)

    async def _stop(self) -> None:
        """End a lane that did not start, or whose end was interrupted."""
        if self._lane.stop_reason is not None:
            await self._end("interrupted", self._lane.stop_reason)
        else:
            await self._exploration.release_lane(self._lane, LEFT)

    async def _give_up(self) -> None:
        """Another process has taken over this lane or the whole exploration."""
        if self._exploration.leases.owns(self._lane):
            await self._exploration.release_lane(self._lane, TAKEN_OVER)
        else:
            self._exploration.close_lane(self._lane, "lost", TAKEN_OVER)

    async def _follow_up(self) -> None:
        """Create the lanes that hooks want after the end of this one. Hooks may run checks: an interrupt ends that."""
        exploration, lane = self._exploration, self._lane
        self._is_ending = True
        try:
            for hook in exploration.hooks:
                try:
                    for job in await hook.after_end(exploration, lane):
                        await exploration.add(job)
                except SessionTreeError:
                    raise
                except Exception as error:  # noqa: BLE001 - a failing hook must not keep the others from being asked
                    exploration.emit(lane, LaneRefused(f"{type(error).__name__}: {error}", lane.number))
        finally:
            self._is_ending = False

    async def _follow_up_late(self) -> None:
        try:
            if not self._exploration.is_left:
                await self._follow_up()
        except SessionTreeError as error:  # the store failed
            self._exploration.emit(self._lane, LaneRefused(str(error), self._lane.number))
        finally:
            self._exploration.task_finished()


def _is_complete(lane: Lane) -> bool:
    """Whether the last message needs no answer: the process died between the last answer and the end. Blocking."""
    messages = live_context_of(lane.branch).messages()
    return bool(messages) and is_answered(messages) and not open_calls(messages)
