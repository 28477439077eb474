"""Several branches of one session at once: lanes that grow side by side, each with a run of its own.

    async with explore(branch, prompts=[...], models=[...], tools=tools) as exploration:
        async for one in exploration:
            print(one.lane, one.event)

Rules of this file:

* A lane is in the file before anything is done on it, with the lease under which this process works on it.
* Everything of a lane is written through its own branch, in threads; the event loop waits neither for the disk nor git.
* `stop` ends lanes for good. Whoever just leaves, or dies, leaves lanes that `resume` goes on with.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING

from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.agent.event_channel import EventChannel
from sessiontree.agent.events import EndReason, ends_request
from sessiontree.agent.limits import Limits, RunUsage
from sessiontree.agent.live_context import live_context_of
from sessiontree.agent.loop import Prompt, Run, is_answered, user_message
from sessiontree.agent.loop import run as run_agent
from sessiontree.agent.pending import Decision, open_calls
from sessiontree.agent.spill_files import SpillFolders
from sessiontree.agent.tools.base import ToolContext
from sessiontree.agent.tools.registry import Tools
from sessiontree.agent.workspace import Workspace
from sessiontree.errors import ConflictError, SessionTreeError, UsageError
from sessiontree.explore.budget import Budget
from sessiontree.explore.check import SECONDS, run_check
from sessiontree.explore.events import AnyEvent, LaneEnded, LaneEvent, LaneMade, LaneRefused
from sessiontree.explore.heartbeat import Holding
from sessiontree.explore.lane import Job, Lane, LaneState, find_lane
from sessiontree.explore.lane_hooks import Work
from sessiontree.explore.leases import forget, release, take
from sessiontree.explore.records import (
    TASK_TOOL,
    Check,
    Copy,
    End,
    LaneRecord,
    Paid,
    Plan,
    Record,
    write,
)
from sessiontree.explore.request_gate import TAKEN_OVER, LaneGate
from sessiontree.explore.state import STATES, ExplorationLog
from sessiontree.paths import home
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Branch, Session

if TYPE_CHECKING:
    from sessiontree.explore.compare import Result
    from sessiontree.explore.decisions import Decided, Tidied

STOPPED = "the user stopped it"
LEFT = "the exploration was left before it had ended"
_ROOM = 64
"""How many events may wait for the one who looks. Were it none, each lane would wait for all others at each event."""
_UNTOLD = "requests that did not tell what they used"
_CHECKED: frozenset[EndReason] = frozenset({"done", "limit", "error"})


class Exploration:
    """An exploration that goes on. Enter it, then iterate over it or `finish` it.

    Lanes do not get ahead of the one who looks: whoever enters and does neither holds them up.
    """

    def __init__(
        self,
        session: Session,
        plan: Plan,
        work: Work,
        begin: Callable[[Exploration], Awaitable[None]],
        *,
        plan_id: str = "",
        seconds_before: float = 0.0,
    ) -> None:
        self.session, self.plan, self.plan_id = session, plan, plan_id
        self.lanes: list[Lane] = []
        self.work = work
        self.copies = work.copies
        self.book = ExplorationLog(session)
        self.budget = Budget(plan.bounds, seconds_before)
        self._begin = begin
        self._numbers = 0
        self._slots = asyncio.Semaphore(plan.parallel)
        self._channel: EventChannel[LaneEvent] = EventChannel(_ROOM)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._driven: set[int] = set()
        """The lanes whose tasks have begun: one that is cancelled before that would never see to its end."""
        self._stops: dict[int, str] = {}
        self._ending: set[int] = set()
        """The lanes whose runs are over, and which are being checked, or of which hooks are asked what follows."""
        self._going = 0
        self._has_begun = self._is_stopping = self._is_left = self._is_over = False
        self._beats: asyncio.Task[None] | None = None
        self._outputs = SpillFolders()
        self._stood: str | Current | None = CURRENT
        """Where the session stood when it began; nowhere until then."""
        self.holding = Holding(self)
        self.tidied: Tidied | None = None
        """What became of the folders of lanes at the end."""

    @property
    def run(self) -> str:
        """Its id: eight hex digits."""
        return self.plan.run

    @property
    def spent(self) -> RunUsage:
        """All lanes together."""
        return self.budget.spent

    @property
    def is_stopping(self) -> bool:
        """Whether all lanes were stopped."""
        return self._is_stopping

    def lane(self, wanted: str | int) -> Lane:
        """A lane by its name or number."""
        return find_lane(self.lanes, wanted)

    # From the beginning to the end

    async def __aenter__(self) -> Exploration:
        if self._has_begun:
            raise UsageError("an exploration is begun once; `explore` makes another, `resume` goes on with this one")
        self._has_begun = True
        self._going = 1  # whoever begins is one of those who are waited for
        self._beats = asyncio.create_task(self.holding.beat())
        try:
            await self._begin(self)
        except BaseException:
            await self._leave()
            raise
        self._one_less()
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
        await self._over()

    async def finish(self) -> list[Lane]:
        """Wait until all lanes have ended, without looking at the events; the lanes."""
        self._channel.unblock()
        while await self._channel.next() is not None:
            pass
        await self._over()
        return self.lanes

    async def _leave(self) -> None:
        """End what is under way, so that it can be gone on with; then tidy up."""
        was_over, self._is_left = self._is_over, True
        self._channel.unblock()
        for lane in self.lanes:
            self._interrupt(lane, LEFT)
        while under_way := [task for task in self._tasks.values() if not task.done()]:
            await uncancelled(asyncio.wait(under_way))
        await uncancelled(self._over())
        if not self.work.keep_worktrees and (was_over or not self.plan.rules):  # a rule may still want to look at them
            await uncancelled(in_background(self._tidy))

    def _tidy(self) -> None:
        """Take away the folders of lanes that have ended; their work is in git."""
        from sessiontree.explore.cleanup import is_worked_on
        from sessiontree.explore.decisions import closed, tidy

        lanes = closed(self.lanes)
        if lanes and self.holding.maker is None and is_worked_on(self.session, self):  # others may look at theirs
            lanes = [lane for lane in lanes if lane.lease is not None]
        self.tidied = tidy(lanes, self.copies)

    async def _over(self) -> None:
        """All lanes have ended: the session stands where it stood, and nothing of ours goes on."""
        if self._is_over:
            return
        self._is_over = True
        if self._beats is not None:
            self._beats.cancel()
        for lane in self.lanes:
            if lane.lease is not None:
                forget(lane.lease)
        self._outputs.close()
        await in_thread(self.holding.let_go)
        if not isinstance(self._stood, Current):
            await in_thread(self._stand_again, self._stood)

    def _stand_again(self, began: str | None) -> None:
        """Say where the session stands: programs that know nothing of lanes take the last entry for that.

        What others said meanwhile, where it stood, stays said.
        """
        session = self.session
        if session.leaf != began:
            session.move(session.leaf)
            return
        session.refresh()
        node = session.dialect.find_leaf(session.journal, session.read_options)
        session.move(None if node is None else session.journal.tree.ids[node])

    def note_standing(self) -> None:
        """From now on lanes are written: when all is over, it is said again where the session stands."""
        self._stood = self.session.leaf

    # For whoever looks

    def stop(self, lane: int | str | None = None, why: str = STOPPED) -> None:
        """End a lane, or all of them, for good. What its model and its tools were doing is settled first."""
        if lane is None:
            self._is_stopping = True
        for one in self.lanes if lane is None else [self.lane(lane)]:
            self._stops.setdefault(one.number, why)
            self._interrupt(one, why)

    def _interrupt(self, lane: Lane, why: str) -> None:
        if lane.run is not None:
            lane.run.interrupt(why)
        elif lane.number in self._driven and (lane.state == "waiting" or lane.number in self._ending):
            self._tasks[lane.number].cancel()

    async def add(self, job: Job) -> Lane | None:
        """Begin another lane. None when no more may be made: then a `LaneRefused` says why."""
        why = self._why_no_more(job)
        if why is not None:
            self._channel.push(LaneEvent(job.origin or 0, LaneRefused(why, job.origin, job.rule)))
            return None
        self._going += 1  # the exploration is not over while this is being made
        try:
            lane = await self.make(job)
            self.start(lane, job.prompt if isinstance(job.prompt, str) else None)
        finally:
            self._one_less()
        return lane

    def _why_no_more(self, job: Job) -> str | None:
        bounds = self.plan.bounds
        if self._numbers >= bounds.lanes:
            return f"the limit of {bounds.lanes} lanes is reached"
        if job.depth > bounds.depth:
            return f"the limit of {bounds.depth} levels of forks is reached"
        if self._is_stopping or self._is_left or self._is_over:
            return "the exploration is being ended"
        if self.holding.maker is None:
            return "another process makes the lanes of this exploration"
        return self.budget.reached()

    @property
    def results(self) -> list[Result]:
        """What came of the lanes, to be compared. Looks at their folders: for a thread, if they are large."""
        from sessiontree.explore.compare import compare

        return compare(self, self.copies)

    async def keep(self, lane: int | str, *, apply: bool = True) -> Decided:
        """Stand on a lane for good, with its files in the project; the others are left."""
        import sessiontree.explore.decisions as deciding

        self._check_over()
        return await in_background(
            lambda: deciding.keep(self.session, self, self.lane(lane).number, self.copies, apply=apply)
        )

    async def merge(self, *lanes: int | str) -> Decided:
        """Bring what several lanes found, and their files, together."""
        import sessiontree.explore.decisions as deciding

        self._check_over()
        numbers = [self.lane(one).number for one in lanes]
        return await in_background(lambda: deciding.merge(self.session, self, numbers, self.copies))

    async def drop(self, *lanes: int | str) -> Decided:
        """Say of lanes that they lead nowhere; their folders go, their work stays in git."""
        import sessiontree.explore.decisions as deciding

        self._check_over()
        numbers = [self.lane(one).number for one in lanes]
        return await in_background(lambda: deciding.drop(self.session, self, numbers, self.copies))

    async def leave(self) -> Decided:
        """Leave all lanes that nothing was decided about as they are; their folders go, their work stays in git."""
        import sessiontree.explore.decisions as deciding

        self._check_over()
        return await in_background(lambda: deciding.leave(self.session, self, self.copies))

    def _check_over(self) -> None:
        if not self._is_over:
            raise UsageError("lanes are still under way: iterate to the end, `finish` or `stop` them first")

    # Making lanes

    def write_plan(self) -> None:
        """Let the exploration exist. For a thread."""
        self.plan_id = write(Branch(self.session, self.plan.at), self.plan).id
        self.holding.maker = take(self.work.good_for)
        write(Branch(self.session, self.plan_id), self.holding.maker)

    async def make(self, job: Job, number: int | None = None) -> Lane:
        """Write a lane's record and lease, with a working copy if it has one. Nothing is begun yet."""
        number = self._numbers + 1 if number is None else number
        self._numbers = max(self._numbers, number)
        return await uncancelled(self._make(job, number))  # to its end: a copy that no record names would be left

    async def _make(self, job: Job, number: int) -> Lane:
        if not await self.holding.still_makes():
            raise ConflictError(f"exploration {self.run}: {TAKEN_OVER}, so this one makes no more lanes")
        copy = None
        if self.plan.worktrees:
            assert self.copies is not None
            begins_elsewhere = job.origin is not None and not isinstance(job.at, Current)
            like = self.lane(job.origin).copy if job.origin is not None and begins_elsewhere else None
            copy = await in_background(self.copies.make, self.run, number, like)
        lane = await in_thread(self._write_lane, number, job, copy)
        self.lanes.append(lane)
        if self._is_stopping:  # while it was being made
            self._stops.setdefault(number, STOPPED)
        self._channel.push(LaneEvent(number, LaneMade(lane.record, lane.start)))
        return lane

    def _write_lane(self, number: int, job: Job, copy: Copy | None) -> Lane:
        record = LaneRecord(
            run=self.run,
            number=number,
            name=job.name or f"lane-{number}",
            prompt=text_of_prompt(job.prompt),
            model=job.model.name,
            copy=copy,
            origin=job.origin,
            rule=job.rule,
            reason=job.reason,
            depth=job.depth,
        )
        at = self.plan_id if isinstance(job.at, Current) else job.at
        entry = write(Branch(self.session, at), record)
        lane = Lane(self.session, record, entry.id)
        lane.model = job.model
        lane.lease = take(self.work.good_for)
        write(lane.branch, lane.lease)
        self._say_model(lane, at)
        if not isinstance(job.prompt, str):  # its record has only the text: who resumes it needs all of it
            lane.branch.append(user_message(job.prompt))
        return lane

    def _say_model(self, lane: Lane, at: str | None) -> None:
        """Say who answers on a lane, if it is not who did before: whoever goes on with it asks the same one."""
        provider, _, name = lane.record.model.partition(":")
        told = self.session.branch(at).context().state.model
        if name and (told is None or (told.provider, told.model_id) != (provider, name)):
            lane.branch.append({"type": "model_change", "provider": provider, "modelId": name})

    def adopt(self, lane: Lane) -> None:
        """A lane that was begun by someone else is one of this exploration."""
        self.lanes.append(lane)
        self._numbers = max(self._numbers, lane.number)
        self.budget.count(lane.number, lane.spent)

    def start(self, lane: Lane, prompt: str | None) -> None:
        """Let a lane begin with a prompt, or with None go on where it stands, as soon as there is a place for it."""
        self._going += 1
        self._tasks[lane.number] = asyncio.create_task(self._drive(lane, prompt))

    def follow(self, lane: Lane) -> None:
        """Ask the hooks what follows from the end of a lane whose process may have died before it did."""
        self._going += 1
        self._driven.add(lane.number)
        self._tasks[lane.number] = asyncio.create_task(self._follow_late(lane))

    async def _follow_late(self, lane: Lane) -> None:
        try:
            if not self._is_left:
                await self._follow(lane)
        except SessionTreeError as error:  # the store fails
            self.tell(lane, LaneRefused(str(error), lane.number))
        finally:
            self._one_less()

    def _one_less(self) -> None:
        self._going -= 1
        if self._going == 0:
            self._channel.end()

    # One lane

    async def _drive(self, lane: Lane, prompt: str | None) -> None:
        """A lane, from its turn to its end and what follows from it. Nothing that goes wrong in it gets out."""
        self._driven.add(lane.number)
        try:
            try:
                if self._is_unwanted(lane):
                    await self._stopped(lane)
                else:
                    async with self._slots:
                        await self._go(lane, prompt)
            except asyncio.CancelledError:
                await uncancelled(self._stopped(lane))
            except Exception as error:  # noqa: BLE001 - whatever a hook, a tool or a model does, other lanes go on
                await self._failed(lane, error)
            if not self._is_left:
                await self._follow(lane)
        except SessionTreeError as error:  # the store fails: the file has no end of the lane, so it can be resumed
            lane.state, lane.why = "lost", str(error)
        finally:
            lane.run = None
            self._one_less()

    def _is_unwanted(self, lane: Lane) -> bool:
        return lane.number in self._stops or self._is_left

    async def _go(self, lane: Lane, prompt: str | None) -> None:
        if self._is_unwanted(lane):
            return await self._stopped(lane)
        if not await self.holding.still_holds(lane):
            return await self._give_up(lane)
        why = self.budget.reached()
        if why is not None:
            return await self._end(lane, "limit", why)
        if prompt is None and await in_thread(_is_answered, lane):
            return await self._end(lane, "done", "")
        run = await self._run_of(lane, prompt)
        lane.begin(run)
        noted = RunUsage()
        try:
            async for event in run:
                lane.hear(event)
                for hook in self.work.hooks:
                    await hook.heard(self, lane, event)
                if ends_request(event):
                    noted = await self._note_untold(lane, run, noted)
                await self._tell(lane, event)
        finally:
            lane.run = None
        assert run.end is not None
        if not await self.holding.still_holds(lane):
            return await self._give_up(lane)
        await self._note_untold(lane, run, noted)
        if run.end.reason == "interrupted" and lane.number not in self._stops:
            return await self.let_go(lane, LEFT)
        if run.end.reason == "pending":  # whoever resumes it may say what becomes of the calls
            return await self.let_go(lane, run.end.why, "pending")
        why = self.budget.reached() if run.end.reason == "limit" else None  # of the limit of all, not what was left
        return await self._end(lane, run.end.reason, why or run.end.why)

    async def _note_untold(self, lane: Lane, run: Run, noted: RunUsage) -> RunUsage:
        """Write down what a run has used, and no entry tells; how much that is by now."""
        untold = run.unreported
        await self.pay(lane, _UNTOLD, untold.since(noted))
        return untold

    async def _run_of(self, lane: Lane, prompt: str | None) -> Run:
        work, bounds = self.work, self.plan.bounds
        assert lane.model is not None
        context = await in_thread(self._context_of, lane, self._outputs.folder(self.session))
        return run_agent(
            lane.branch,
            prompt,
            model=lane.model,
            tools=self.tools_of(lane),
            approver=work.approver_for(lane) if work.approver_for is not None else None,
            settings=work.settings,
            context=context,
            system=self.system_in(context.workspace.root),
            thinking=work.thinking,
            limits=Limits(
                turns=None if bounds.turns is None else max(bounds.turns - lane.spent.turns, 0),
                seconds=self.budget.seconds_left,
                gate=LaneGate(self, lane),
            ),
            pending=await in_thread(self._pending_of, lane),
            summarizer=work.summarizer,
        )

    def _pending_of(self, lane: Lane) -> Decision | None:
        """What becomes of calls without a result. Sub-agents go on where they stood, which repeats nothing."""
        if self.work.pending != "skip":
            return self.work.pending
        calls = open_calls(live_context_of(lane.branch).messages())
        return {call.id: "run" if call.name == TASK_TOOL else "skip" for call in calls} or "skip"

    def tools_of(self, lane: Lane) -> Tools:
        """What a lane works with."""
        tools = self.work.tools if isinstance(self.work.tools, Tools) else self.work.tools(lane)
        return Tools([*tools, *(tool for hook in self.work.hooks for tool in hook.tools(self, lane))])

    def system_in(self, folder: str) -> str | None:
        """What a model is told before the conversation, in a folder."""
        return self.work.system(folder) if callable(self.work.system) else self.work.system

    def _context_of(self, lane: Lane, outputs: str) -> ToolContext:
        """What the tools of a lane are given to work with. For a thread: links are resolved."""
        unguarded = (lane.copy.path,) if lane.copy is not None else ()
        room = Workspace(self.folder(lane), guarded=(home(),), readable=(outputs,), unguarded=unguarded)
        return ToolContext(room, outputs=outputs)

    def folder(self, lane: Lane) -> str:
        """Where the tools of a lane work."""
        if lane.copy is not None and self.copies is not None:
            return self.copies.folder(lane.copy)
        return self.session.cwd or os.getcwd()

    async def _tell(self, lane: Lane, event: AnyEvent) -> None:
        await self._channel.send(LaneEvent(lane.number, event))

    def tell(self, lane: Lane, event: AnyEvent) -> None:
        """Hand an event to whoever looks, without waiting. For hooks."""
        self._channel.push(LaneEvent(lane.number, event))

    # Its end

    async def _end(self, lane: Lane, reason: EndReason, why: str) -> None:
        """Keep the folder's state, run the check, and write how it ended."""
        lane.why = why
        if lane.copy is not None and self.copies is not None:
            try:
                lane.saved = await uncancelled(in_background(self.copies.save, lane.copy))
            except SessionTreeError as error:
                lane.why = _and(why, f"its folder could not be saved: {error}")
        if self.plan.check is not None and reason in _CHECKED and not self._is_left:
            self._ending.add(lane.number)
            try:
                lane.check = await self.check(lane, self.plan.check)
            finally:
                self._ending.discard(lane.number)
            await self.write(lane, lane.check)
        end = End(reason, lane.why, lane.spent, lane.text, lane.saved)
        await self.write(lane, end)
        await in_thread(self.session.flush)
        lane.state = STATES[reason]
        self._told_end(lane)

    async def check(self, lane: Lane, command: str, seconds: float = SECONDS) -> Check:
        """Run a command in the folder of a lane. What it leaves there is no work of the lane's, and is taken away."""
        try:
            folder = await in_thread(self.folder, lane)
        except SessionTreeError as error:
            return Check(command, None, None, "", 0.0, f"not run: {error}")
        async with self._checked(lane):
            return await run_check(command, folder, seconds=seconds, left=self.budget.seconds_left)

    @contextlib.asynccontextmanager
    async def _checked(self, lane: Lane) -> AsyncIterator[None]:
        copy, copies = lane.copy, self.copies
        if copy is None or copies is None:
            yield
            return
        try:
            await uncancelled(in_background(copies.begin_check, copy))
        except (SessionTreeError, OSError):  # what cannot be saved cannot be put back; `_end` has told of it
            yield
            return
        try:
            yield
        finally:
            try:
                await uncancelled(in_background(copies.end_check, copy))
            except (SessionTreeError, OSError) as error:
                lane.why = _and(lane.why, f"what a check left in its folder could not be taken away: {error}")

    async def expect(self, lane: Lane, what: str, spent: RunUsage) -> str:
        """Write down what a request may use of which no entry shows that it is under way; that entry."""
        writing = asyncio.ensure_future(in_thread(write, lane.branch, Paid(what, spent, is_expected=True)))
        try:
            return (await uncancelled(writing)).id
        except asyncio.CancelledError:
            lane.settled.append(writing.result().id)
            raise

    async def pay(self, lane: Lane, what: str, spent: RunUsage) -> None:
        """Write down what was used for a lane, and counted, that no message tells; what was expected before is over."""
        settled, lane.settled = tuple(lane.settled), []
        if settled or spent != RunUsage():
            await self.write(lane, Paid(what, spent, settles=settled))

    async def _failed(self, lane: Lane, error: Exception) -> None:
        await self._end(lane, "error", f"{type(error).__name__}: {error}")

    async def _stopped(self, lane: Lane) -> None:
        """It was not begun, or its ending was interrupted."""
        if lane.number in self._stops:
            await self._end(lane, "interrupted", self._stops[lane.number])
        else:
            await self.let_go(lane, LEFT)

    async def _give_up(self, lane: Lane) -> None:
        """Another process has taken over this lane, or the whole exploration."""
        if self.holding.has(lane):
            await self.let_go(lane, TAKEN_OVER)
        else:
            self._lost(lane, TAKEN_OVER)

    async def let_go(self, lane: Lane, why: str, state: LaneState = "lost") -> None:
        """Say that nobody works on it any more; it can be resumed."""
        assert lane.lease is not None
        await self.write(lane, release(lane.lease))
        self._lost(lane, why, state)

    def _lost(self, lane: Lane, why: str, state: LaneState = "lost") -> None:
        lane.state, lane.why = state, why
        self._told_end(lane)

    def _told_end(self, lane: Lane) -> None:
        if lane.lease is not None:
            forget(lane.lease)
        self.budget.count(lane.number, lane.spent)
        self.tell(lane, LaneEnded(lane.state, lane.why, lane.text, lane.spent))

    async def _follow(self, lane: Lane) -> None:
        """Ask the hooks what follows from its end. That may take long, as a check does: an interrupt ends it."""
        self._ending.add(lane.number)
        try:
            for hook in self.work.hooks:
                try:
                    for job in await hook.ended(self, lane):
                        await self.add(job)
                except SessionTreeError:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever a hook or its model does, the others are asked
                    self.tell(lane, LaneRefused(f"{type(error).__name__}: {error}", lane.number))
        finally:
            self._ending.discard(lane.number)

    async def write(self, lane: Lane, record: Record) -> None:
        """Append a record to a lane. A cancel waits until it is written."""
        await uncancelled(in_thread(write, lane.branch, record))


def _is_answered(lane: Lane) -> bool:
    """Whether nothing is left to do on a lane: its process died between the last answer and its end. For a thread."""
    messages = live_context_of(lane.branch).messages()
    return bool(messages) and is_answered(messages) and not open_calls(messages)


def _and(why: str, more: str) -> str:
    return "; ".join(filter(None, (why, more)))


def text_of_prompt(prompt: Prompt) -> str:
    """What a prompt says in words; images are left out."""
    content = user_message(prompt)["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")
