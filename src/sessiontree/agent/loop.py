"""The run loop: a prompt goes in, events come out, and the session records each message as soon as it is complete.

    request -> write the answer -> run its calls in parallel -> write each result as it arrives -> next request

Invariants:

* An `entry` event is sent after the entry is in the file, never before.
* However a run ends, every call that was written gets a result. Only `_settle` ensures that.
* The session is read, written and summarized in threads; a cancelled task waits until its thread is done.
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

from sessiontree.agent.approval import Approver, CompactionConsent, DenyAll
from sessiontree.agent.async_bridge import in_thread, uncancelled, with_cancel_timeout
from sessiontree.agent.auto_compaction import AutoCompactor
from sessiontree.agent.branch_writer import SerializedBranch, answer_fields
from sessiontree.agent.checkpoints import Checkpoints
from sessiontree.agent.event_channel import EventChannel
from sessiontree.agent.events import (
    AgentEnd,
    AgentStart,
    EndReason,
    Event,
    Failed,
    Persisted,
    Retry,
    TextDelta,
    ThinkingDelta,
    TurnEnd,
    TurnStart,
    Used,
)
from sessiontree.agent.limits import Limits, RunUsage, reached_text
from sessiontree.agent.live_context import LiveApprovals, live_context_of
from sessiontree.agent.request_meter import LimitReached, Meter, MeteredSummarizer
from sessiontree.agent.tool_calls import (
    OpenCall,
    ParallelCalls,
    PendingDecision,
    ToolRunner,
    decided,
    find_open_calls,
    result_without_running,
)
from sessiontree.agent.tool_output import interrupted, result_message
from sessiontree.agent.tools.base import Tool, ToolContext, ToolOutput, Tools
from sessiontree.agent.workspace import Workspace
from sessiontree.compaction import Summarizer
from sessiontree.compaction.token_estimate import Size, measured_tokens, trusted_usage
from sessiontree.core.entries import Entry
from sessiontree.core.jsonio import JsonObject, native_fields
from sessiontree.core.messages import Assistant, Block, Message, text_of, tool_calls
from sessiontree.errors import CompactionError, ContextOverflowError, ModelError, SessionTreeError, UsageError
from sessiontree.models import AnswerAccumulator, Model, Request, Stop, ThinkingLevel, with_retries
from sessiontree.models import TextDelta as ModelText
from sessiontree.models import ThinkingDelta as ModelThinking
from sessiontree.models import Tool as ToolDefinition
from sessiontree.models.model_summarizer import summarizer_for
from sessiontree.models.retry import Attempt, RetryEvent
from sessiontree.paths import home
from sessiontree.session.pending_calls import open_calls
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Settings

Prompt: TypeAlias = str | Sequence[Block] | Mapping[str, Any]
"""Text, a list of text and image blocks, or a complete user message."""

_INCOMPLETE = {
    "length": "the answer was cut off at its maximum length, so the call may be incomplete",
    "error": "the answer ended with an error",
    "aborted": "the answer was interrupted",
}

_CANCEL_TIMEOUT = 2.0
"""Seconds a cancelled request may take to end. One that does not is abandoned and its output ignored."""


class Setup(Struct, frozen=True):
    """The options of a run."""

    model: Model
    tools: Tools
    approver: Approver
    settings: Settings
    context: ToolContext
    checkpoints: Checkpoints | None = None
    system: str | None = None
    thinking: ThinkingLevel | None = None
    limits: Limits = Limits()
    pending: PendingDecision | None = None
    """What to do with calls that an earlier run left without a result."""
    summarizer: Summarizer | None = None
    """Writes the summaries of auto-compaction; None for the one of the settings, by default the model of the run."""
    consent: CompactionConsent | None = None
    """Asks the user before the session is compacted; None to compact without asking."""


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
    pending: PendingDecision | None = None,
    summarizer: Summarizer | None = None,
    consent: CompactionConsent | None = None,
) -> Run:
    """Answer a prompt on a branch, or with None continue it. Iterate over the returned run for its events.

    Without an approver, calls that need approval are denied. `context` determines where tools may work (default: the
    session's folder), `checkpoints` stores what they overwrite (default: in the session's blob store).
    """
    session = branch if isinstance(branch, Session) else branch.session
    if context is None:
        workspace = Workspace(session.cwd or os.getcwd(), guarded=(home(),))
        context = ToolContext(workspace, sandbox=settings is None or settings.sandbox)
    if checkpoints is None and session.journal.blobs is not None:
        checkpoints = Checkpoints(session, context.workspace, session.journal.blobs)
    return Run(
        branch,
        prompt,
        Setup(
            model=model,
            tools=tools if isinstance(tools, Tools) else Tools(tools),
            approver=approver or DenyAll(),
            settings=settings or Settings(),
            context=context,
            checkpoints=checkpoints,
            system=system,
            thinking=thinking,
            limits=limits or Limits(),
            pending=pending,
            summarizer=summarizer,
            consent=consent,
        ),
    )


_busy: weakref.WeakSet[Branch | Session] = weakref.WeakSet()
"""Branches with a run in progress: two runs that append after the same leaf would answer each other's prompts."""


class Run:
    """One run, from a prompt to the end of the last answer. Iterate over it once; leaving early interrupts it."""

    def __init__(self, branch: Branch | Session, prompt: Prompt | None, setup: Setup) -> None:
        self._branch, self._prompt, self._setup = branch, prompt, setup
        self._live = live_context_of(branch)
        self._writer = SerializedBranch(branch, self._on_append)
        self._session = self._writer.session
        self._meter = Meter(setup.limits, self._request_size)
        self._compactor = AutoCompactor(
            branch,
            self._live,
            setup.model,
            setup.settings,
            MeteredSummarizer(
                setup.summarizer or summarizer_for(setup.settings, setup.model),
                self._meter,
                setup.model,
                counts_cost=setup.limits.counts_cost,
            ),
            self._send,
            self._meter.record,
            self._compaction_refusal,
        )
        self._channel: EventChannel[Event] = EventChannel()
        self._calls = ParallelCalls(self._writer, self._channel, self._keep_result, setup.limits.gate)
        self._runner = ToolRunner(
            setup.tools,
            msgspec.structs.replace(setup.context, run=self),
            LiveApprovals(self._session),
            approver=self._calls.approver(setup.approver),
            checkpoints=setup.checkpoints,
            agent=self._session.dialect.name,
        )
        self._tool_definitions = tool_definitions(setup.tools)
        self._task: asyncio.Task[None] | None = None
        self._is_driving = False
        self._stopped: tuple[EndReason, str] | None = None
        self._steering: list[Prompt] = []
        self._follow_ups: list[Prompt] = []
        self._partial: AnswerAccumulator | None = None
        """What has arrived of the answer in progress."""
        self._last_text = ""
        self._has_counted = False
        self.end: AgentEnd | None = None
        """How it ended; None while it runs."""
        self.bug: Exception | None = None
        """An exception that is not ours: of a model, a hook or this package. Iterating and `finish` raise it."""

    # For the consumer

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
        """Wait for the end without consuming events."""
        task = self._start()
        self._channel.unblock()
        try:
            await asyncio.wait([task])
        finally:
            self.interrupt()
            await uncancelled(asyncio.wait([task]))
        await task
        assert self.end is not None
        return self.end

    def interrupt(self, why: str = "the user interrupted it") -> None:
        """End it soon: cancel the request, end processes, and record unfinished calls as not run or interrupted."""
        self._stop("interrupted", why)

    def steer(self, prompt: Prompt) -> None:
        """Queue a message for the next request, after the results of the calls in progress."""
        self._queue(self._steering, prompt)

    def follow_up(self, prompt: Prompt) -> None:
        """Queue a message for when the run would end."""
        self._queue(self._follow_ups, prompt)

    @property
    def session(self) -> Session:
        return self._session

    @property
    def setup(self) -> Setup:
        return self._setup

    @property
    def leaf(self) -> str | None:
        """The current entry of its branch."""
        return self._writer.leaf

    def charge(self, usage: RunUsage) -> None:
        """Count the usage of a run that one of its tools started."""
        self._meter.charge(usage)
        if usage.tokens or usage.cost:
            self._channel.push(Used(usage.usage, self.usage))

    @property
    def undelivered(self) -> tuple[Prompt, ...]:
        """Queued messages that were not sent, as after an interrupt."""
        return (*self._steering, *self._follow_ups)

    @property
    def usage(self) -> RunUsage:
        return self._meter.usage

    @property
    def unreported(self) -> RunUsage:
        """The part of `usage` that no entry of the session records: requests without a usage report."""
        return self._meter.unreported

    def _queue(self, queue: list[Prompt], prompt: Prompt) -> None:
        if self.end is not None:
            raise UsageError("the run has ended; start another one with this prompt")
        queue.append(prompt)

    def _stop(self, reason: EndReason, why: str) -> None:
        if self._stopped is not None or self.end is not None:
            return
        self._stopped = (reason, why)
        self._channel.unblock()
        if self._task is not None and self._is_driving:  # otherwise `_work` finds `_stopped` set and starts nothing
            self._task.cancel()

    # From start to end

    def _start(self) -> asyncio.Task[None]:
        if self._task is None:
            self._meter.start()
            self._compactor.start()
            self._task = asyncio.create_task(self._drive())
            self._task.add_done_callback(lambda _: self._channel.end())
        return self._task

    async def _drive(self) -> None:
        """Run from start to end. `AgentEnd` is the last event, whatever happens."""
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
            await self._send(AgentStart(self._session.id, self._writer.leaf, self._setup.model.name))
            reason, why = await self._work()
        except asyncio.CancelledError:
            reason, why = self._stopped or ("interrupted", "the run was interrupted")
        except SessionTreeError as error:
            why = str(error)
            self._channel.push(Failed(type(error).__name__, why))
        except Exception as error:  # a bug here, in a model or in a hook: raised, but after the session is settled
            why = f"{type(error).__name__}: {error}"
            self.bug = error
            self._channel.push(Failed(type(error).__name__, why))
            raise
        finally:
            if timer is not None:
                timer.cancel()
            self._channel.unblock()
            self._meter.stop()
            self.end = AgentEnd(reason, self._writer.leaf, self.usage, self._last_text, why)
            self._channel.push(self.end)
            self._channel.end()

    async def _work(self) -> tuple[EndReason, str]:
        if self._stopped is not None:
            return self._stopped
        if self._branch in _busy:
            raise UsageError("another run is in progress on this branch; start this one on a separate branch")
        _busy.add(self._branch)
        try:
            return await self._turns()
        except LimitReached as reached:
            return "limit", str(reached)
        finally:
            self._channel.unblock()
            why = self._stopped[1] if self._stopped is not None else "the run ended"
            try:
                # The compactor first: a summary that ends late must not be written after the settled calls.
                await uncancelled(self._compactor.stop())
                await uncancelled(in_thread(self._settle, why))
            finally:
                _busy.discard(self._branch)

    async def _turns(self) -> tuple[EndReason, str]:
        await self._live.load()
        undecided = await self._resolve_pending()
        if undecided:
            return "pending", undecided
        if self._prompt is not None:
            await self._compactor.compact_if_needed("before")
            await self._append(user_message(self._prompt))
        else:
            messages = self._live.messages()
            if not messages:
                raise UsageError("nothing to continue: the branch has no messages; pass a prompt")
            if is_answered(messages):
                raise UsageError("nothing to continue: the last message is from the assistant; pass a prompt")
        turn = 0
        while True:
            turn += 1
            self._check_stopped()
            answer = await self._answer(turn)
            calls = list(self._calls.open)
            if calls:
                await self._calls.run_all(self._runner, calls, _INCOMPLETE.get(answer.stop_reason or ""))
            await self._send(TurnEnd(turn, answer.stop_reason or "stop", len(calls)))
            if answer.stop_reason == "error":
                return "error", answer.error_message or "the model gave no answer"
            prompts = self._next_prompts(is_last=not calls)
            if not calls and not prompts:
                break
            for prompt in prompts:
                await self._append(user_message(prompt))
            await self._compactor.compact_if_needed("between")
        await self._compactor.compact_if_needed("after")
        return "done", ""

    def _next_prompts(self, *, is_last: bool) -> list[Prompt]:
        """Take queued messages: all steering ones, or at the end the first follow-up."""
        prompts, self._steering = self._steering, []
        if is_last and not prompts and self._follow_ups:
            prompts = [self._follow_ups.pop(0)]
        return prompts

    async def _compaction_refusal(self) -> str | None:
        """Why this session may not be compacted; None if it may."""
        consent = self._setup.consent
        return None if consent is None else await consent.ask(self._setup.approver, self._session)

    async def _request_size(self) -> Size:
        await self._live.load()
        size = self._live.size()
        # A provider's count from an earlier run may be of another model, with other tools.
        if size.counted and self._has_counted:
            return size
        return Size(0, max(self._live.sizes()) + self._overhead)

    @functools.cached_property
    def _overhead(self) -> int:
        return overhead_tokens(self._setup.system, self._tool_definitions)

    def _settle(self, why: str) -> None:
        """Write what had arrived of an answer, and give every open call a result. Runs in a thread."""
        partial = self._partial.message("aborted", why) if self._partial is not None else None
        try:
            if partial is not None:
                self._write_answer(partial)
            for opened in list(self._calls.open):
                output = interrupted(why, had_begun=opened.had_begun, printed=opened.throttle.tail)
                self._write(result_message(opened.call, output), answers=opened)
        except SessionTreeError as error:  # the store failed: calls stay open, and the next run reports them as pending
            failed = Failed(type(error).__name__, f"the end of the run could not be written: {error}")
            self._loop().call_soon_threadsafe(self._channel.push, failed)

    # The model

    async def _answer(self, turn: int) -> Assistant:
        """Request an answer and write it; a failed one is written with the error."""
        try:
            return await self._keep_answer(await with_cancel_timeout(self._request(turn), _CANCEL_TIMEOUT))
        except ContextOverflowError as error:
            self._partial = None
            overflow = error
        except ModelError as error:
            return await self._keep_failure(error)
        try:
            await self._compactor.after_overflow(overflow)
        except (ContextOverflowError, CompactionError) as error:
            return await self._keep_failure(error)
        try:
            return await self._keep_answer(await with_cancel_timeout(self._request_again(), _CANCEL_TIMEOUT))
        except ModelError as error:
            return await self._keep_failure(error)

    async def _keep_failure(self, error: ModelError | CompactionError) -> Assistant:
        await self._send(Failed(type(error).__name__, str(error)))
        partial = getattr(error, "partial", None)
        received = partial if isinstance(partial, Assistant) else self._received()
        return await self._keep(msgspec.structs.replace(received, stop_reason="error", error_message=str(error)))

    async def _keep_answer(self, answer: Assistant) -> Assistant:
        if answer.stop_reason == "error":  # a complete answer that is a refusal
            await self._send(Failed("ModelError", answer.error_message or "the model refused to answer"))
        return await self._keep(answer)

    async def _keep(self, answer: Assistant) -> Assistant:
        await uncancelled(in_thread(self._write_answer, answer))
        await self._channel.drained()
        if answer.usage is not None:
            await self._send(Used(answer.usage, self.usage))
        return answer

    async def _request_again(self) -> Assistant:
        try:
            return await self._request()
        except ContextOverflowError as error:
            hint = "still too long after a compaction: use a model with a larger window, or start a new session"
            raise ContextOverflowError(f"{error}; {hint}", error.partial) from None

    def _received(self) -> Assistant:
        provider, _, name = self._setup.model.name.partition(":")
        received = self._partial.message() if self._partial is not None else None
        return received or Assistant(provider=provider, model=name)

    async def _request(self, turn: int | None = None) -> Assistant:
        """Stream an answer from the model. With a turn, `TurnStart` is sent once the gate is passed."""
        setup = self._setup
        self._meter.check_limits()
        if setup.limits.gate is not None:
            await setup.limits.gate.before_turn()
        request = Request(await self._live.load(), setup.system, self._tool_definitions, thinking=setup.thinking)
        turn_start = TurnStart(turn) if turn is not None else None

        @contextlib.asynccontextmanager
        async def gate(model: Model, request: Request) -> AsyncIterator[Attempt]:
            nonlocal turn_start
            async with self._meter.turn(model, request) as attempt:
                if turn_start is not None:
                    await self._send(turn_start)
                    turn_start = None
                self._check_stopped()
                self._partial = attempt.answer
                yield attempt

        async with contextlib.aclosing(with_retries(setup.model, request, setup.settings.retry, gate=gate)) as stream:
            async for event in stream:
                match event:
                    case RetryEvent():
                        self._partial = None
                        self._check_stopped()
                        await self._send(Retry(event.attempt, event.delay, str(event.error)))
                    case ModelText():
                        await self._send(TextDelta(event.text))
                    case ModelThinking():
                        await self._send(ThinkingDelta(event.text))
                    case Stop():
                        return event.message
                    case _:
                        pass
        received = self._partial.message("error") if self._partial is not None else None
        raise ModelError(f"{setup.model.name}: the stream ended without a final message", received)

    def _check_stopped(self) -> None:
        # A model may swallow the cancellation, or raise an error of its own instead: the run must end all the same.
        if self._stopped is not None:
            raise asyncio.CancelledError

    def _write_answer(self, answer: Assistant) -> None:
        self._partial = None
        self._last_text = text_of(answer.content) or self._last_text
        self._meter.record(answer.usage, turns=1)
        self._has_counted |= trusted_usage(answer) is not None
        self._write(answer_fields(answer), opens=[OpenCall(call, self._channel) for call in tool_calls(answer)])

    # Pending calls

    async def _resolve_pending(self) -> str:
        """Resolve calls without a result as decided; returns a message if a decision is missing.

        A call with a result on another branch gets a copy of it.
        """
        if not open_calls(self._live.messages()):
            return ""
        waiting, answered = await in_thread(find_open_calls, self._branch)
        if waiting and self._setup.pending is None:
            names = ", ".join(dict.fromkeys(pending.call.name for pending in waiting))
            which = "1 call has" if len(waiting) == 1 else f"{len(waiting)} calls have"
            message = f"{which} no result ({names}): run again, skip or answer"
            await self._send(Failed("PendingCalls", message))
            return message
        for known in answered:
            await self._keep_result(OpenCall(known.call, self._channel), known.output)
        if self._setup.pending is None:
            return ""
        decisions = [
            (OpenCall(pending.call, self._channel), pending, decided(self._setup.pending, pending.call))
            for pending in waiting
        ]
        self._calls.open = [opened for opened, _, resolution in decisions if resolution == "run"]
        for opened, pending, resolution in decisions:
            if resolution != "run":
                await self._keep_result(opened, result_without_running(pending, resolution))
        await self._calls.run_all(self._runner, list(self._calls.open))
        return ""

    # The session

    async def _keep_result(self, opened: OpenCall, output: ToolOutput) -> None:
        await self._append(result_message(opened.call, output), opened)

    async def _append(self, message: JsonObject, answers: OpenCall | None = None) -> None:
        await uncancelled(in_thread(self._write, message, (), answers))
        await self._channel.drained()

    def _write(self, message: JsonObject, opens: Sequence[OpenCall] = (), answers: OpenCall | None = None) -> None:
        # In a thread that no cancellation interrupts: the file and the list of open calls must not diverge.
        self._writer.append(message)
        self._calls.open += opens
        if answers in self._calls.open:
            self._calls.open.remove(answers)

    def _on_append(self, entry: Entry) -> None:
        """Called for every entry written by this run, in file order, from any thread."""
        self._live.add(entry)
        self._loop().call_soon_threadsafe(self._channel.push, Persisted(entry))

    def _loop(self) -> asyncio.AbstractEventLoop:
        assert self._task is not None
        return self._task.get_loop()

    async def _send(self, event: Event) -> None:
        await self._channel.send(event)


def tool_definitions(tools: Tools) -> list[ToolDefinition]:
    """Tools as they are described to a model."""
    return [ToolDefinition(tool.name, tool.description, tool.schema) for tool in tools]


def overhead_tokens(system: str | None, tools: Sequence[ToolDefinition]) -> int:
    """Tokens of the system prompt and the tool definitions, which every request includes."""
    return measured_tokens((system or "") + "".join(f"{tool.description}{tool.parameters}" for tool in tools))


def user_message(prompt: Prompt) -> JsonObject:
    if isinstance(prompt, str):
        return {"role": "user", "content": prompt}
    if isinstance(prompt, Mapping):
        return {"role": "user", **prompt}
    return {"role": "user", "content": [native_fields(block) for block in prompt]}


def is_answered(messages: Sequence[Message]) -> bool:
    """Whether the last message is a complete answer."""
    last = messages[-1]
    return isinstance(last, Assistant) and last.stop_reason not in ("aborted", "error")
