"""An exploration: several lanes of one session that run in parallel.

    async with explore(session, prompts=[...], models=[...], tools=tools) as exploration:
        async for event in exploration:
            print(event.lane, event.event)

Invariants:

* A lane's record and lease are in the file before any work on it begins.
* All entries of a lane are appended through its own branch, in threads: the event loop never waits for disk or git.
* `stop` ends lanes for good. A process that leaves the block or dies leaves lanes that `resume` can continue.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.agent.event_channel import EventChannel
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.loop import Prompt, user_message
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.errors import ConflictError, UsageError
from sessiontree.explore import decisions
from sessiontree.explore.budget import Budget
from sessiontree.explore.compare import Result, compare
from sessiontree.explore.decisions import CleanupResult, DecisionResult
from sessiontree.explore.events import AnyEvent, LaneEnded, LaneEvent, LaneMade, LaneRefused
from sessiontree.explore.lane import Job, Lane, LaneState, find_lane
from sessiontree.explore.lane_runner import LEFT, LaneRunner
from sessiontree.explore.leases import LeaseKeeper, forget, new_lease, release
from sessiontree.explore.records import LaneRecord, Plan, Worktree, write
from sessiontree.explore.request_gate import TAKEN_OVER
from sessiontree.explore.state import ExplorationLog, is_active
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Branch, Session

if TYPE_CHECKING:
    from sessiontree.explore.start import ExploreOptions, LaneHook

STOPPED = "stopped by the user"
_QUEUE_SIZE = 64
"""Events that may wait for the consumer. Without a queue, each lane would wait for all others at each event."""


class Exploration:
    """A running exploration. Enter it, then iterate over it or call `finish`.

    Lanes wait for the consumer of their events: a caller that enters and does neither blocks them.
    """

    def __init__(
        self,
        session: Session,
        plan: Plan,
        options: ExploreOptions,
        hooks: Sequence[LaneHook],
        begin: Callable[[Exploration], Awaitable[None]],
        *,
        plan_id: str = "",
        seconds_before: float = 0.0,
    ) -> None:
        self.session, self.plan, self.plan_id = session, plan, plan_id
        self.options, self.hooks = options, tuple(hooks)
        self.lanes: list[Lane] = []
        self.worktrees = options.lane_worktrees
        self.log = ExplorationLog(session)
        self.budget = Budget(plan.bounds, seconds_before)
        self.leases = LeaseKeeper(self)
        self.slots = asyncio.Semaphore(plan.parallel)
        self.is_stopping = self.is_left = False
        self.cleanup: CleanupResult | None = None
        """Which folders of lanes were removed at the end."""
        self._tools = load_tools() if options.tools is None else options.tools
        self._begin = begin
        self._last_number = 0
        self._channel: EventChannel[LaneEvent] = EventChannel(_QUEUE_SIZE)
        self._runners: dict[int, LaneRunner] = {}
        self._running = 0
        self._has_begun = self._is_over = False
        self._heartbeat: asyncio.Task[None] | None = None
        self._initial_leaf: str | Current | None = CURRENT
        """The current entry before the first lane was written; CURRENT until then."""

    @property
    def run(self) -> str:
        """Its id: eight hex digits."""
        return self.plan.run

    @property
    def spent(self) -> RunUsage:
        """Usage of all lanes together."""
        return self.budget.spent

    def lane(self, wanted: str | int) -> Lane:
        """Find a lane by its name or number."""
        return find_lane(self.lanes, wanted)

    # Lifecycle

    async def __aenter__(self) -> Exploration:
        if self._has_begun:
            raise UsageError("an exploration can be entered once; use `resume` to continue it")
        self._has_begun = True
        self.task_started()
        self._heartbeat = asyncio.create_task(self.leases.run_heartbeat())
        try:
            await self._begin(self)
        except BaseException:
            await self._leave()
            raise
        self.task_finished()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave()

    def __aiter__(self) -> AsyncIterator[LaneEvent]:
        return self._events()

    async def _events(self) -> AsyncIterator[LaneEvent]:
        while (event := await self._channel.next()) is not None:
            yield event
        await self._finalize()

    async def finish(self) -> list[Lane]:
        """Wait until all lanes have ended, ignoring the events; returns the lanes."""
        self._channel.unblock()
        while await self._channel.next() is not None:
            pass
        await self._finalize()
        return self.lanes

    async def _leave(self) -> None:
        """Interrupt running lanes so that they can be resumed, then clean up."""
        was_over, self.is_left = self._is_over, True
        self._channel.unblock()
        for runner in self._runners.values():
            runner.interrupt(LEFT)
        # In a loop, because a lane that was being created may have started meanwhile.
        while running := [task for runner in self._runners.values() if (task := runner.task) is not None]:
            await uncancelled(asyncio.wait(running))
        await uncancelled(self._finalize())
        # After an early exit, rules may still have to look at the folders when the exploration is resumed.
        if not self.options.keep_worktrees and (was_over or not self.plan.rules):
            self.cleanup = await uncancelled(in_background(self.remove_worktrees))

    def remove_worktrees(self) -> CleanupResult:
        """Remove the folders of lanes that have ended; their work is in git. Blocking."""
        lanes = decisions.finished_lanes(self.lanes)
        if lanes and self.leases.plan_lease is None and is_active(self.session, self):
            lanes = [lane for lane in lanes if lane.lease is not None]  # another process may use the others
        return decisions.remove_worktrees(lanes, self.worktrees)

    async def _finalize(self) -> None:
        """After the last lane: stop the heartbeat, release the leases, restore the session's current entry."""
        if self._is_over:
            return
        self._is_over = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        for lane in self.lanes:
            if lane.lease is not None:
                forget(lane.lease)
        await in_thread(self.leases.release_plan)
        if not isinstance(self._initial_leaf, Current):
            await in_thread(self._restore_leaf, self._initial_leaf)

    def remember_leaf(self) -> None:
        """Remember the current entry before lanes are written."""
        self._initial_leaf = self.session.leaf

    def _restore_leaf(self, initial: str | None) -> None:
        # Clients that do not know lanes take the last entry for the current one, so it has to be written again. If
        # another process has moved the session meanwhile, or continued it, that stays.
        session = self.session
        if session.leaf != initial:
            session.move(session.leaf)
            return
        session.refresh()
        node = session.dialect.find_leaf(session.journal, session.read_options)
        session.move(None if node is None else session.journal.tree.ids[node])

    def task_started(self) -> None:
        """Keep the event stream open until `task_finished`."""
        self._running += 1

    def task_finished(self) -> None:
        self._running -= 1
        if self._running == 0:
            self._channel.end()

    # For the caller

    def stop(self, lane: int | str | None = None, why: str = STOPPED) -> None:
        """Stop a lane, or all of them, for good; results of interrupted tool calls are recorded first."""
        if lane is None:
            self.is_stopping = True
        for chosen in self.lanes if lane is None else [self.lane(lane)]:
            if chosen.stop_reason is None:
                chosen.stop_reason = why
            if chosen.number in self._runners:
                self._runners[chosen.number].interrupt(why)

    def steer(self, lane: int | str, text: str) -> None:
        """Queue a message for the next request of a running lane."""
        chosen = self.lane(lane)
        if chosen.run is None or chosen.state != "running":
            raise UsageError(f"lane {chosen.number} is not running ({chosen.state}), so no message can be sent to it")
        chosen.run.steer(text)

    async def add(self, job: Job) -> Lane | None:
        """Start another lane. Returns None at a limit: a `LaneRefused` event has the reason."""
        why = self._why_refused(job)
        if why is not None:
            self._channel.push(LaneEvent(job.origin or 0, LaneRefused(why, job.origin, job.rule)))
            return None
        self.task_started()
        try:
            lane = await self.make(job)
            self.start(lane, job.prompt if isinstance(job.prompt, str) else None)
        finally:
            self.task_finished()
        return lane

    def _why_refused(self, job: Job) -> str | None:
        bounds = self.plan.bounds
        if self._last_number >= bounds.lanes:
            return f"the limit of {bounds.lanes} lanes is reached"
        if job.depth > bounds.depth:
            return f"the limit of {bounds.depth} levels of forks is reached"
        if self.is_stopping or self.is_left or self._is_over:
            return "the exploration is ending"
        if self.leases.plan_lease is None:
            return "another process creates the lanes of this exploration"
        return self.budget.reached()

    @property
    def results(self) -> list[Result]:
        """The results of all lanes. Reads their worktrees: call it in a thread if those are large."""
        return compare(self, self.worktrees)

    async def keep(self, lane: int | str, *, apply: bool = True) -> DecisionResult:
        """Make a lane current and apply its files to the project; the others are left."""
        return await self._decide(decisions.keep, self.lane(lane).number, apply=apply)

    async def merge(self, *lanes: int | str) -> DecisionResult:
        """Merge several lanes: summaries of their messages, and their files."""
        return await self._decide(decisions.merge, [self.lane(lane).number for lane in lanes])

    async def drop(self, *lanes: int | str) -> DecisionResult:
        """Mark lanes as dropped; their folders are removed, their work stays in git."""
        return await self._decide(decisions.drop, [self.lane(lane).number for lane in lanes])

    async def leave(self) -> DecisionResult:
        """Mark all undecided lanes as left; their folders are removed, their work stays in git."""
        return await self._decide(decisions.leave)

    async def _decide(self, decide: Callable[..., DecisionResult], *arguments: Any, **options: Any) -> DecisionResult:
        if not self._is_over:
            raise UsageError("lanes are still running: iterate to the end, or call `finish` or `stop` first")
        return await in_background(partial(decide, self.session, self, *arguments, self.worktrees, **options))

    # Lanes

    def write_plan(self) -> None:
        """Append the plan and take its lease. Blocking."""
        self.plan_id = write(Branch(self.session, self.plan.at), self.plan).id
        self.leases.plan_lease = new_lease(self.options.lease_seconds)
        write(Branch(self.session, self.plan_id), self.leases.plan_lease)

    async def make(self, job: Job, number: int | None = None) -> Lane:
        """Create a lane: its worktree, record and lease. It does not run yet."""
        number = self._last_number + 1 if number is None else number
        self._last_number = max(self._last_number, number)
        # Not cancelled half-way: a worktree that no record names would be left over.
        return await uncancelled(self._make(job, number))

    async def _make(self, job: Job, number: int) -> Lane:
        if not await self.leases.holds_plan():
            raise ConflictError(f"exploration {self.run}: {TAKEN_OVER}, so this process creates no more lanes")
        worktree = None
        if self.plan.worktrees:
            assert self.worktrees is not None
            # A fork in the middle of a lane starts with that lane's files.
            is_midway = job.origin is not None and not isinstance(job.at, Current)
            like = self.lane(job.origin).worktree if job.origin is not None and is_midway else None
            worktree = await in_background(self.worktrees.make, self.run, number, like)
        lane = await in_thread(self._write_lane, number, job, worktree)
        self.lanes.append(lane)
        if self.is_stopping:  # stopped after the lane was requested
            lane.stop_reason = STOPPED
        self._channel.push(LaneEvent(number, LaneMade(lane.record, lane.start)))
        return lane

    def _write_lane(self, number: int, job: Job, worktree: Worktree | None) -> Lane:
        record = LaneRecord(
            run=self.run,
            number=number,
            name=job.name or f"lane-{number}",
            prompt=text_of_prompt(job.prompt),
            model=job.model.name,
            worktree=worktree,
            origin=job.origin,
            rule=job.rule,
            reason=job.reason,
            depth=job.depth,
        )
        at = self.plan_id if isinstance(job.at, Current) else job.at
        entry = write(Branch(self.session, at), record)
        lane = Lane(self.session, record, entry.id)
        lane.model = job.model
        lane.lease = new_lease(self.options.lease_seconds)
        write(lane.branch, lane.lease)
        self._write_model(lane, at)
        if not isinstance(job.prompt, str):  # the record has only its text; `resume` needs the images too
            lane.branch.append(user_message(job.prompt))
        return lane

    def _write_model(self, lane: Lane, at: str | None) -> None:
        """Record a change of model, so that other programs continue the branch with the same one."""
        provider, _, name = lane.record.model.partition(":")
        current = self.session.branch(at).context().state.model
        if name and (current is None or (current.provider, current.model_id) != (provider, name)):
            lane.branch.append({"type": "model_change", "provider": provider, "modelId": name})

    def adopt(self, lane: Lane) -> None:
        """Add a lane that another process created."""
        self.lanes.append(lane)
        self._last_number = max(self._last_number, lane.number)
        self.budget.count(lane.number, lane.spent)

    def start(self, lane: Lane, prompt: str | None) -> None:
        """Run a lane with a prompt, or with None continue it, as soon as a slot is free."""
        self._runners[lane.number] = LaneRunner(self, lane)
        self._runners[lane.number].start(prompt)

    def follow_up(self, lane: Lane) -> None:
        """Ask the hooks what follows from a lane that ended earlier."""
        self._runners[lane.number] = LaneRunner(self, lane)
        self._runners[lane.number].follow_up()

    async def release_lane(self, lane: Lane, why: str, state: LaneState = "lost") -> None:
        """Release the lease of a lane, so that any process can resume it."""
        assert lane.lease is not None
        await lane.write(release(lane.lease))
        self.close_lane(lane, state, why)

    def close_lane(self, lane: Lane, state: LaneState, why: str) -> None:
        """Set the final state of a lane in this process, and emit it."""
        lane.state, lane.why = state, why
        if lane.lease is not None:
            forget(lane.lease)
        self.budget.count(lane.number, lane.spent)
        self.emit(lane, LaneEnded(lane.state, lane.why, lane.text, lane.spent))

    def tools_for(self, lane: Lane) -> Tools:
        tools = self._tools if isinstance(self._tools, Tools) else self._tools(lane)
        return Tools([*tools, *(tool for hook in self.hooks for tool in hook.tools(self, lane))])

    def system_for(self, folder: str) -> str | None:
        """The system prompt for a lane that works in a folder."""
        system = self.options.system
        return system(folder) if callable(system) else system

    def folder(self, lane: Lane) -> str:
        """The folder that the tools of a lane work in."""
        if lane.worktree is not None and self.worktrees is not None:
            return self.worktrees.folder(lane.worktree)
        return self.session.cwd or os.getcwd()

    async def send(self, lane: Lane, event: AnyEvent) -> None:
        """Emit an event, and wait while the queue is full."""
        await self._channel.send(LaneEvent(lane.number, event))

    def emit(self, lane: Lane, event: AnyEvent) -> None:
        """Emit an event without waiting."""
        self._channel.push(LaneEvent(lane.number, event))


def text_of_prompt(prompt: Prompt) -> str:
    """The text of a prompt, without images."""
    content = user_message(prompt)["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")
