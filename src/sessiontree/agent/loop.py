"""The run loop: a prompt goes in, events come out, and the session has everything the moment it is complete.

    ask the model -> keep its answer -> run its calls side by side -> keep each result as it comes -> ask again

Rules of this file:

* What is told as an `entry` is in the file. Nothing is told before, and nothing is kept that was not said.
* However a run ends, every call that was kept has a result. `_settle` sees to that, and nothing else.
* Writing, reading and summarising happen in threads; whoever is cancelled meanwhile waits until they are done.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.agent.approval import Approver, NobodyToAsk, Question, Reply
from sessiontree.agent.auto_compaction import AutoCompactor
from sessiontree.agent.branch_writer import SerializedBranch, in_thread, uncancelled, with_patience
from sessiontree.agent.checkpoints import Checkpoints
from sessiontree.agent.event_channel import Channel
from sessiontree.agent.events import (
    AgentEnd,
    AgentStart,
    ApprovalAnswered,
    ApprovalAsked,
    EndReason,
    Event,
    Failed,
    Persisted,
    Retry,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnEnd,
    TurnStart,
    Used,
)
from sessiontree.agent.limits import Limits, RunUsage, reached_text
from sessiontree.agent.live_context import LiveApprovals, live_of
from sessiontree.agent.metered_summarizer import Metered
from sessiontree.agent.metering import Account, LimitReached
from sessiontree.agent.output_throttle import Updates
from sessiontree.agent.pending import Decision, decided, open_calls, pending_calls, result_without_running
from sessiontree.agent.result_messages import answer_fields, interrupted, not_run
from sessiontree.agent.tool_calls import Calls, result_message
from sessiontree.agent.tools.base import Tool, ToolContext, ToolOutput
from sessiontree.agent.tools.registry import Tools
from sessiontree.agent.workspace import Workspace
from sessiontree.compaction import Summarizer
from sessiontree.compaction.token_estimate import Size, measured_tokens, trusted_usage
from sessiontree.core.entries import Entry
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, Block, Message, ToolCall, text_of, tool_calls
from sessiontree.errors import CompactionError, ContextOverflowError, ModelError, SessionTreeError, UsageError
from sessiontree.models import Gathering, Model, Request, Stop, ThinkingLevel, with_retries
from sessiontree.models import TextDelta as ModelText
from sessiontree.models import ThinkingDelta as ModelThinking
from sessiontree.models import Tool as OfferedTool
from sessiontree.models.retry import Passage, Retrying
from sessiontree.paths import home
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Settings

Prompt: TypeAlias = str | Sequence[Block] | Mapping[str, Any]
"""A text, blocks of text and images, or a whole message of the user."""

_CUT_SHORT = {
    "length": "the answer was cut off at its greatest length, so the call may not be whole",
    "error": "the answer ended with an error",
    "aborted": "the answer was interrupted",
}


_PATIENCE = 2.0
"""Seconds that a request which is dropped may take to end; one that does not goes on, and nobody listens."""


class Setup(Struct, frozen=True):
    """What a run works with."""

    model: Model
    tools: Tools
    approver: Approver
    settings: Settings
    context: ToolContext
    checkpoints: Checkpoints | None = None
    system: str | None = None
    thinking: ThinkingLevel | None = None
    limits: Limits = Limits()
    pending: Decision | None = None
    """What becomes of calls that an earlier run left without a result."""
    summarizer: Summarizer | None = None
    """Who summarises when room has to be made; None: the one that needs no model."""


def run(
    branch: Branch | Session,
    prompt: Prompt | None,
    *,
    model: Model,
    tools: Tools | Iterable[Tool] = (),
    approver: Approver | None = None,
    settings: Settings | None = None,
    context: ToolContext | None = None,
    checkpoints: Checkpoints | None = None,
    system: str | None = None,
    thinking: ThinkingLevel | None = None,
    limits: Limits | None = None,
    pending: Decision | None = None,
    summarizer: Summarizer | None = None,
) -> Run:
    """Answer a prompt on a branch, or with None go on where it stands. Iterate over what is given back.

    Without an approver, whatever has to be asked is denied. `context` says where tools may work (default: the session's
    folder), `checkpoints` keeps what they overwrite (default: with the session's large content).
    """
    session = branch if isinstance(branch, Session) else branch.session
    where = ToolContext(Workspace(session.cwd or os.getcwd(), guarded=(home(),))) if context is None else context
    if checkpoints is None and session.journal.blobs is not None:
        checkpoints = Checkpoints(session, where.room, session.journal.blobs)
    return Run(
        branch,
        prompt,
        Setup(
            model=model,
            tools=tools if isinstance(tools, Tools) else Tools(tools),
            approver=approver or NobodyToAsk(),
            settings=settings or Settings(),
            context=where,
            checkpoints=checkpoints,
            system=system,
            thinking=thinking,
            limits=limits or Limits(),
            pending=pending,
            summarizer=summarizer,
        ),
    )


_busy: weakref.WeakSet[Branch | Session] = weakref.WeakSet()
"""Where runs are under way: two that write behind the same leaf would answer each other's prompts."""


class _Open:
    """A call that is kept and has no result yet."""

    def __init__(self, call: ToolCall, channel: Channel[Event]) -> None:
        self.call = call
        self.had_begun = False
        self.is_asked = False
        self.updates = Updates(lambda text: channel.push(ToolUpdate(call.id, text)), lambda: channel.is_empty)


class Run:
    """One run, from a prompt to the end of the last answer. Iterate over it once; leaving early interrupts it."""

    def __init__(self, branch: Branch | Session, prompt: Prompt | None, setup: Setup) -> None:
        self._prompt, self._setup = prompt, setup
        self._live = live_of(branch)
        self._hand = SerializedBranch(branch, self._heard)
        self._branch = branch
        self._session = self._hand.session
        self._account = Account(setup.limits, self._size)
        self._relief = AutoCompactor(
            branch,
            self._live,
            setup.model,
            setup.settings,
            Metered(setup.summarizer, self._account, setup.model, counts_cost=setup.limits.counts_cost),
            self._send,
            self._account.told,
        )
        self._calls = Calls(
            setup.tools,
            msgspec.structs.replace(setup.context, run=self),
            LiveApprovals(self._session),
            approver=_Asking(self, setup.approver),
            checkpoints=setup.checkpoints,
        )
        self._offered = offered(setup.tools)
        self._channel: Channel[Event] = Channel()
        self._task: asyncio.Task[None] | None = None
        self._is_driving = False
        self._stopped: tuple[EndReason, str] | None = None
        self._steering: list[Prompt] = []
        self._following: list[Prompt] = []
        self._gathering: Gathering | None = None
        self._open: list[_Open] = []
        self._said = ""
        self._has_counted = False
        self.end: AgentEnd | None = None
        """How it ended; None while it runs."""

    # For whoever looks

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    async def _events(self) -> AsyncGenerator[Event, None]:
        task = self._start()
        try:
            while (event := await self._channel.next()) is not None:
                yield event
        finally:
            self.interrupt("the run was interrupted")
            await uncancelled(asyncio.wait([task]))
        await task

    async def finish(self) -> AgentEnd:
        """Wait for the end without looking at the events."""
        task = self._start()
        self._channel.loosen()
        try:
            await asyncio.wait([task])
        finally:
            self.interrupt()
            await uncancelled(asyncio.wait([task]))
        await task
        assert self.end is not None
        return self.end

    def interrupt(self, why: str = "the user interrupted it") -> None:
        """End it soon: the request is dropped, processes are ended, and what is open is settled in the session."""
        self._stop("interrupted", why)

    def steer(self, prompt: Prompt) -> None:
        """Say something as soon as the calls that run have their results, before the model is asked again."""
        self._queue(self._steering, prompt)

    def follow_up(self, prompt: Prompt) -> None:
        """Say something when the run would end."""
        self._queue(self._following, prompt)

    @property
    def session(self) -> Session:
        return self._session

    @property
    def setup(self) -> Setup:
        """What it works with."""
        return self._setup

    @property
    def leaf(self) -> str | None:
        """Where its branch stands."""
        return self._hand.leaf

    @property
    def is_calling(self) -> bool:
        """Whether calls of it have no result yet."""
        return bool(self._open)

    def charge(self, spent: RunUsage) -> None:
        """Count what a run has used that one of its tools started."""
        self._account.charge(spent)
        if spent.tokens or spent.cost:
            self._channel.push(Used(spent.usage, self.spent))

    @property
    def undelivered(self) -> tuple[Prompt, ...]:
        """What was queued and not said, as when it was interrupted."""
        return (*self._steering, *self._following)

    @property
    def spent(self) -> RunUsage:
        return self._account.spent

    @property
    def untold(self) -> RunUsage:
        """What is among `spent` and stands nowhere in the session: requests whose usage nobody told."""
        return self._account.untold

    def _queue(self, queue: list[Prompt], prompt: Prompt) -> None:
        if self.end is not None:
            raise UsageError("the run has ended; start another one with this prompt")
        queue.append(prompt)

    def _stop(self, reason: EndReason, why: str) -> None:
        if self._stopped is not None or self.end is not None:
            return
        self._stopped = (reason, why)
        self._channel.loosen()
        if self._task is not None and self._is_driving:  # else it sees for itself that there is nothing to begin
            self._task.cancel()

    # From the beginning to the end

    def _start(self) -> asyncio.Task[None]:
        if self._task is None:
            self._account.begin()
            self._relief.begin()
            self._task = asyncio.create_task(self._drive())
            self._task.add_done_callback(lambda _: self._channel.end())
        return self._task

    async def _drive(self) -> None:
        """The whole run, whatever happens in it."""
        self._is_driving = True
        seconds = self._setup.limits.seconds
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(
                seconds, self._stop, "limit", reached_text(f"{seconds:g} seconds")
            )
        reason: EndReason = "error"
        why = ""
        try:
            await self._send(AgentStart(self._session.id, self._hand.leaf, self._setup.model.name))
            reason, why = await self._work()
        except asyncio.CancelledError:
            reason, why = self._stopped or ("interrupted", "the run was interrupted")
        except SessionTreeError as error:
            why = str(error)
            self._channel.push(Failed(type(error).__name__, why))
        except Exception as error:  # a fault of ours, or of a model or hook: the session is settled before it is raised
            why = f"{type(error).__name__}: {error}"
            self._channel.push(Failed(type(error).__name__, why))
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._channel.loosen()
            self._account.close()
            self.end = AgentEnd(reason, self._hand.leaf, self.spent, self._said, why)
            self._channel.push(self.end)
            self._channel.end()

    async def _work(self) -> tuple[EndReason, str]:
        if self._stopped is not None:
            return self._stopped
        if self._branch in _busy:
            raise UsageError("another run is under way on this branch; begin a branch of its own for this one")
        _busy.add(self._branch)
        try:
            return await self._turns()
        except LimitReached as reached:
            return "limit", str(reached)
        finally:
            self._channel.loosen()
            why = self._stopped[1] if self._stopped is not None else "the run ended"
            try:
                await uncancelled(self._relief.end())
                await uncancelled(in_thread(self._settle, why))
            finally:
                _busy.discard(self._branch)

    async def _turns(self) -> tuple[EndReason, str]:
        await self._live.gather()
        waiting = await self._resolve_pending()
        if waiting:
            return "pending", waiting
        if self._prompt is not None:
            await self._relief.make_room("before")
            await self._say(self._prompt)
        elif not self._live.look() or is_answered(self._live.look()):
            raise UsageError("there is nothing to go on with: the last word is the model's; say something")
        turn = 0
        while True:
            turn += 1
            self._check_wanted()
            answer = await self._answer(turn)
            calls = list(self._open)
            if calls:
                await self._call_all(calls, _CUT_SHORT.get(answer.stop_reason or ""))
            await self._send(TurnEnd(turn, answer.stop_reason or "stop", len(calls)))
            if answer.stop_reason == "error":
                return "error", answer.error_message or "the model gave no answer"
            prompts = self._next_prompts(is_last=not calls)
            if not calls and not prompts:
                break
            for prompt in prompts:
                await self._say(prompt)
            await self._relief.make_room("between")
        await self._relief.make_room("after")
        return "done", ""

    def _next_prompts(self, *, is_last: bool) -> list[Prompt]:
        """What was queued and is to be said now: what steers, or at the end, the first that follows."""
        prompts, self._steering = self._steering, []
        if is_last and not prompts and self._following:
            prompts = [self._following.pop(0)]
        return prompts

    async def _size(self) -> Size:
        """The tokens that a request made now sends. What a provider counted for an earlier run may have been another
        model, with other tools."""
        await self._live.gather()
        size = self._live.size()
        if size.counted and self._has_counted:
            return size
        return Size(0, max(self._live.sizes()) + self._size_around)

    @functools.cached_property
    def _size_around(self) -> int:
        """The tokens of what is sent beside the conversation."""
        return size_around(self._setup.system, self._offered)

    def _settle(self, why: str) -> None:
        """Keep what had come of an answer, and give every open call a result that says what is known. For a thread."""
        partial = self._gathering.message("aborted", why) if self._gathering is not None else None
        try:
            if partial is not None:
                self._write_answer(partial)
            for one in list(self._open):
                begun = one.had_begun and not one.is_asked
                output = interrupted(why, had_begun=begun, printed=one.updates.tail)
                self._write(result_message(one.call, output), answers=one)
        except SessionTreeError as error:  # the store failed: what is open stays open, and the next run will see it
            failed = Failed(type(error).__name__, f"the end could not be written: {error}")
            self._loop().call_soon_threadsafe(self._channel.push, failed)

    # The model

    async def _answer(self, turn: int) -> Assistant:
        """The model's answer, kept. One that failed is kept as such, with the reason."""
        try:
            return await self._keep_answer(await with_patience(self._ask(turn), _PATIENCE))
        except ContextOverflowError as error:
            self._gathering = None
            overflow = error
        except ModelError as error:
            return await self._keep_failure(error)
        try:
            await self._relief.after_overflow(overflow)
        except (ContextOverflowError, CompactionError) as error:
            return await self._keep_failure(error)
        try:
            return await self._keep_answer(await with_patience(self._ask_again(), _PATIENCE))
        except ModelError as error:
            return await self._keep_failure(error)

    async def _keep_failure(self, error: ModelError | CompactionError) -> Assistant:
        await self._send(Failed(type(error).__name__, str(error)))
        partial = getattr(error, "partial", None)
        came = partial if isinstance(partial, Assistant) else self._gathered()
        return await self._keep(msgspec.structs.replace(came, stop_reason="error", error_message=str(error)))

    async def _keep_answer(self, answer: Assistant) -> Assistant:
        if answer.stop_reason == "error":  # it came to its end, and the end is a refusal
            await self._send(Failed("ModelError", answer.error_message or "the model refused to answer"))
        return await self._keep(answer)

    async def _keep(self, answer: Assistant) -> Assistant:
        await uncancelled(in_thread(self._write_answer, answer))
        await self._channel.taken()
        if answer.usage is not None:
            await self._send(Used(answer.usage, self.spent))
        return answer

    async def _ask_again(self) -> Assistant:
        try:
            return await self._ask()
        except ContextOverflowError as error:
            said = "still too long after a compaction: use a model with a larger window, or start a new session"
            raise ContextOverflowError(f"{error}; {said}", error.partial) from None

    def _gathered(self) -> Assistant:
        provider, _, name = self._setup.model.name.partition(":")
        came = self._gathering.message() if self._gathering is not None else None
        return came or Assistant(provider=provider, model=name)

    async def _ask(self, turn: int | None = None) -> Assistant:
        """The model's answer; with a turn, whoever looks is told that it begins."""
        setup = self._setup
        self._account.check()
        if setup.limits.gate is not None:
            await setup.limits.gate.before_turn()
        request = Request(await self._live.gather(), setup.system, self._offered, thinking=setup.thinking)
        begins = TurnStart(turn) if turn is not None else None

        @contextlib.asynccontextmanager
        async def door(model: Model, request: Request) -> AsyncIterator[Passage]:
            nonlocal begins
            async with self._account.turn(model, request) as passage:
                if begins is not None:
                    await self._send(begins)
                    begins = None
                self._check_wanted()
                self._gathering = passage.came
                yield passage

        async with contextlib.aclosing(with_retries(setup.model, request, setup.settings.retry, door=door)) as stream:
            async for event in stream:
                match event:
                    case Retrying():
                        self._gathering = None
                        self._check_wanted()
                        await self._send(Retry(event.attempt, event.delay, str(event.error)))
                    case ModelText():
                        await self._send(TextDelta(event.text))
                    case ModelThinking():
                        await self._send(ThinkingDelta(event.text))
                    case Stop():
                        return event.message
                    case _:
                        pass
        came = self._gathering.message("error") if self._gathering is not None else None
        raise ModelError(f"{setup.model.name}: the answer ended without an end", came)

    def _check_wanted(self) -> None:
        """A model that takes an interrupt for a failure of its own does not make the run go on."""
        if self._stopped is not None:
            raise asyncio.CancelledError

    def _write_answer(self, answer: Assistant) -> None:
        self._gathering = None
        self._said = text_of(answer.content) or self._said
        self._account.told(answer.usage, turns=1)
        self._has_counted |= trusted_usage(answer) is not None
        self._write(answer_fields(answer), opens=[_Open(call, self._channel) for call in tool_calls(answer)])

    # Calls

    async def _call_all(self, calls: Sequence[_Open], why_not: str | None = None) -> None:
        """Run calls side by side, and keep each result as it comes."""
        if why_not is not None:
            for one in calls:
                await self._keep_result(one, not_run(why_not))
            return
        tasks = [asyncio.create_task(self._call(one)) for one in calls]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            await uncancelled(asyncio.gather(*tasks, return_exceptions=True))
        for task in tasks:
            task.result()

    async def _call(self, one: _Open) -> None:
        call = one.call
        gate = self._setup.limits.gate
        why_not = await gate.before_call() if gate is not None else None
        if why_not is not None:
            await self._keep_result(one, not_run(why_not))
            return
        await self._send(ToolStart(call))
        one.had_begun = True
        try:
            output = await self._calls.call(call, branch=self._hand, update=lambda text: self._hear(one, text))
        except Exception as error:  # noqa: BLE001 - a tool of someone else may fail in any way; the model is told
            output = ToolOutput(f"{call.name} failed: {type(error).__name__}: {error}", is_error=True)
        finally:
            one.updates.close()
        await self._keep_result(one, output)
        one.updates.tell_rest()
        await self._send(ToolEnd(call, output))

    def _hear(self, one: _Open, text: str) -> None:
        """What a tool prints, from whichever thread it prints."""
        self._loop().call_soon_threadsafe(one.updates.add, text)

    def _loop(self) -> asyncio.AbstractEventLoop:
        assert self._task is not None
        return self._task.get_loop()

    async def _keep_result(self, one: _Open, output: ToolOutput) -> None:
        await self._append(result_message(one.call, output), one)

    def asked(self, question: Question, *, is_open: bool) -> None:
        """Note that a person is being asked about a call, or has allowed it: until then it has not begun."""
        for one in self._open:
            if one.call.id == question.call_id:
                one.is_asked = is_open

    async def _resolve_pending(self) -> str:
        """Do what was decided about calls from before; what waits for a decision, in words."""
        if not open_calls(self._live.look()):
            return ""
        waiting = await in_thread(pending_calls, self._branch)
        if self._setup.pending is None:
            names = ", ".join(dict.fromkeys(one.call.name for one in waiting))
            said = (
                f"{len(waiting)} calls of an earlier run have no result ({names}): run them again, skip or answer them"
            )
            await self._send(Failed("PendingCalls", said))
            return said
        choices = [(_Open(one.call, self._channel), one, decided(self._setup.pending, one.call)) for one in waiting]
        self._open = [opened for opened, _, how in choices if how == "run"]
        for opened, one, how in choices:
            if how != "run":
                await self._keep_result(opened, result_without_running(one, how))
        await self._call_all(list(self._open))
        return ""

    # The session

    async def _say(self, prompt: Prompt) -> None:
        await self._append(as_message(prompt))

    async def _append(self, message: JsonObject, answers: _Open | None = None) -> None:
        """Write a message. A cancel waits until it is written."""
        await uncancelled(in_thread(self._write, message, (), answers))
        await self._channel.taken()

    def _write(self, message: JsonObject, opens: Sequence[_Open] = (), answers: _Open | None = None) -> None:
        """Runs in a thread, to its end whoever is cancelled: what is in the file and what is open belong together."""
        self._hand.append(message)
        self._open += opens
        if answers in self._open:
            self._open.remove(answers)

    def _heard(self, entry: Entry) -> None:
        """Called with everything that is written through the hand, in the order of the file, from any thread."""
        self._live.hear(entry)
        self._loop().call_soon_threadsafe(self._channel.push, Persisted(entry))

    async def _send(self, event: Event) -> None:
        await self._channel.send(event)


class _Asking:
    """Puts questions to the approver of a run, and tells whoever looks."""

    def __init__(self, run: Run, approver: Approver) -> None:
        self._run, self._approver = run, approver

    async def ask(self, question: Question) -> Reply:
        self._run.asked(question, is_open=True)
        await self._run._send(ApprovalAsked(question))
        reply = await self._approver.ask(question)
        self._run.asked(question, is_open=reply.answer == "no")
        await self._run._send(ApprovalAnswered(question.call_id, reply))
        return reply


def offered(tools: Tools) -> list[OfferedTool]:
    """Tools as a model is told of them."""
    return [OfferedTool(tool.name, tool.description, tool.schema) for tool in tools]


def size_around(system: str | None, tools: Sequence[OfferedTool]) -> int:
    """The tokens of what is sent with each request, whatever was said."""
    return measured_tokens((system or "") + "".join(f"{tool.description}{tool.parameters}" for tool in tools))


def as_message(prompt: Prompt) -> JsonObject:
    if isinstance(prompt, str):
        return {"role": "user", "content": prompt}
    if isinstance(prompt, Mapping):
        return {"role": "user", **prompt}
    return {"role": "user", "content": [msgspec.to_builtins(block) for block in prompt]}


def is_answered(messages: Sequence[Message]) -> bool:
    """Whether the last word is an answer that came to its end."""
    last = messages[-1]
    return isinstance(last, Assistant) and last.stop_reason not in ("aborted", "error")
