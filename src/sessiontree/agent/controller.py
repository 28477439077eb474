"""The actions of a user, for every front end.

A front end shows `state`, calls actions, and iterates over the events of `send`. It has no session and no rules of its
own. Actions that read or write a lot do so in threads. During a run, actions that would move its branch are refused.
Changes of model, thinking level and mode are accepted, and written before the next prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from sessiontree.agent.approval import PLAN_INSTRUCTIONS, Approvals, Approver, CompactionConsent
from sessiontree.agent.async_bridge import LoopCalls, in_background, in_thread, uncancelled
from sessiontree.agent.events import AgentEnd, Event
from sessiontree.agent.limits import Limits
from sessiontree.agent.live_context import live_context_of
from sessiontree.agent.loop import Run, run
from sessiontree.agent.mcp_client import McpServers
from sessiontree.agent.pastes import Pastes
from sessiontree.agent.prompt_points import ForkPoint, find_fork_points, selection_target, typed_prompt, visible_entry
from sessiontree.agent.recorded_choices import RecordedChoices, read_choices
from sessiontree.agent.shell_commands import UserCommand, run_user_command
from sessiontree.agent.state import ExpandedView, McpClient, Source, State, Store, apply_event
from sessiontree.agent.tool_calls import PendingDecision, pending_calls
from sessiontree.agent.tool_output import remove_spill_of_draft, spill_target
from sessiontree.agent.tools.base import ToolContext, Tools, load_tools
from sessiontree.agent.workspace import Workspace
from sessiontree.branches.leave import LeaveResult, leave
from sessiontree.branches.open_files import Writer, find_writers
from sessiontree.branches.summarize import SummaryOptions, budget_of
from sessiontree.compaction.summarizers import Summarizer
from sessiontree.conversion.fork import fork, is_only_readable, writable_fork_dialect
from sessiontree.core.entries import ApprovalMode, Entry
from sessiontree.core.messages import Assistant, Image
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.errors import NotFoundError, SessionTreeError, StoreError, SummaryError, UsageError
from sessiontree.library import Library
from sessiontree.library.partial_reader import session_description, session_title
from sessiontree.models import Model, Request, ThinkingLevel, open_model
from sessiontree.models.model_summarizer import request_and_close, summarizer_for
from sessiontree.paths import home as default_home
from sessiontree.search.prompt_spool import remember
from sessiontree.secrets.environment import Mask
from sessiontree.session.open import create
from sessiontree.session.open import open as open_session
from sessiontree.session.session import Session
from sessiontree.settings import Retry, Settings
from sessiontree.stores.repositories import find_ref

T = TypeVar("T")


class Selected(Struct, frozen=True):
    """The result of a selection in the tree."""

    leaf: str | None
    text: str | None = None
    """The prompt that was returned to the input for editing."""
    summary: str | None = None
    """The entry with the summary of the branch that was left."""
    reports: tuple[str, ...] = ()
    """Problems with that summary."""


class Outcome(Protocol):
    """The result of an action. `session` is the one to continue with; None for the current one."""

    @property
    def session(self) -> Session | None: ...


OutcomeT = TypeVar("OutcomeT", bound=Outcome)
OutcomeT_co = TypeVar("OutcomeT_co", bound=Outcome, covariant=True)


class Doable(Protocol[OutcomeT_co]):
    """An action that was planned."""

    def do(self) -> OutcomeT_co: ...


class Controller:
    """The current session and options of one app, and its actions."""

    def __init__(
        self,
        cwd: str | os.PathLike[str],
        *,
        home: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        model: Model | None = None,
        find_model: Callable[[str], Model] | None = None,
        tools: Tools | None = None,
        approver: Approver | None = None,
        added: Sequence[str] = (),
        system: str | None = None,
        limits: Limits | None = None,
        environment: Mapping[str, str] = os.environ,
        in_memory: bool = False,
        repository: str | None = None,
        read_options: ReadOptions = AS_CLIENT,
        confirm: Callable[[str], Awaitable[bool]] | None = None,
        has_approval_mode: bool = False,
        mcp: McpServers | None = None,
        unsaved_models: Collection[str] = (),
    ) -> None:
        """`repository` is the address where new sessions are created, such as `memory:team`; default: `home`.

        `read_options` apply to sessions that are resumed. `confirm` asks the user whether to use settings that a
        session file contains; without it they are not used. With `has_approval_mode`, the caller chooses the approval
        mode, and approvals in a session file are neither used nor asked about. `unsaved_models` only answer in sessions
        that are not saved.
        """
        self._has_approval_mode = has_approval_mode
        self._read_options = read_options
        self._mcp = mcp
        self.cwd = os.path.abspath(os.fspath(cwd))
        self.home = os.path.abspath(os.fspath(home)) if home is not None else default_home()
        self.settings = settings or Settings()
        self.tools = load_tools() if tools is None else tools
        self.workspace = Workspace(self.cwd, added, guarded=(self.home,))
        """Where tools may work. With a session, its command outputs are also readable."""
        self.store: Store[State] = Store(State(model=model.name if model is not None else self.settings.model))
        self._model, self._find_model = model, find_model or self._open_model
        self._keeps_model = model is not None
        self._unsaved_models = frozenset(unsaved_models)
        self._recorded = RecordedChoices()
        self._approver, self._system, self._limits = approver, system, limits
        self._confirm = confirm
        self._environment, self._in_memory = environment, in_memory
        self.repository = repository or self.home
        """The address where sessions are created and searched for."""
        self._mask = Mask(environment)
        self._session: Session | None = None
        self._pastes = Pastes()
        self._consent = CompactionConsent()
        self._run: Run | None = None
        self._occupied_by: str | None = None
        self._has_plan = False
        self._calls = LoopCalls()

    @property
    def state(self) -> State:
        return self.store.get()

    @property
    def session(self) -> Session:
        if self._session is None:
            raise UsageError("there is no session yet: start or resume one")
        return self._session

    @property
    def run(self) -> Run | None:
        """The run in progress."""
        return self._run

    @property
    def has_plan(self) -> bool:
        """Whether the last run ended with an answer in plan mode, which the user may approve."""
        return self._has_plan and self.state.approval == "plan"

    @property
    def model(self) -> Model:
        """The current model; `UsageError` explains how to choose one."""
        if self._model is None:
            name = self.state.model
            if name is None:
                raise UsageError(
                    "no model is chosen: use provider:name (anthropic:..., openai:..., ollama:...), "
                    "or set one with `sessiontree config set model NAME`"
                )
            self._model = self._find_model(name)
        return self._model

    def _open_model(self, name: str) -> Model:
        return open_model(name, environment=self._environment, facts=self.settings.models)

    # Sessions. Each action changes the state once, and preserves what is typed

    async def new(self, name: str | None = None) -> Session:
        """Start a session. Its file is created with the first prompt."""
        self._check_idle()
        session = create(self.cwd, home=self.repository, in_memory=self._in_memory, large_content="inline")
        if name:
            session.rename(name)
        await self._use(session, source="new")
        return session

    async def resume(self, wanted: str, *, to_fork: bool = False) -> Session:
        """Resume a session of any agent, by path, reference, id, title, or part of those.

        If its client's storage can only be read, the chat continues in a copy. With `to_fork`, the user is not asked
        about its approvals and its model: a fork follows, which asks.
        """
        self._check_idle()
        self._check_can_be_saved(self.state.model)
        session = await in_thread(self._open_session, wanted)
        needs_copy = not to_fork and await in_thread(is_only_readable, session)
        await self._use(session, asks=not to_fork and not needs_copy)
        return await self._continue_in_copy() if needs_copy else session

    async def resume_last(self) -> Session:
        """Resume the most recent session of this project."""
        self._check_idle()
        path = await in_thread(self._newest)
        if path is None:
            raise NotFoundError(f"{self.cwd}: no session found for this project; start a new one")
        return await self.resume(path)

    async def _continue_in_copy(self) -> Session:
        agent = self.session.dialect.name
        copy = await self.clone()
        notices = (self.state.notice, f"this {agent} session can only be read; the chat continues in a copy, {copy.id}")
        self.store.set(notice="; ".join(filter(None, notices)))
        return copy

    async def fork(self, at: str | None = None, *, to: str | None = None) -> Session:
        """Continue in a new session: forked before a prompt, which is returned to the input, or after another entry.

        Approvals are not copied; a notice reports that. The fork is a native session if its client's storage can only
        be read.
        """
        self._check_idle()
        approvals = Approvals(self.session)
        approved = approvals.in_force or approvals.claimed
        chosen = self.session.find_entry(at) if at is not None else None
        to = to or writable_fork_dialect(self.session)
        forked = await in_thread(lambda: fork(self.session, chosen, to=to))
        text = typed_prompt(self.session, chosen) if forked.prompt is not None and chosen is not None else None
        await self._use(forked.session, text, source="forked")
        if approved is not None:
            self.store.set(notice=f"approvals were not copied ({approved}): this session asks again")
        return forked.session

    async def clone(self) -> Session:
        """Continue in a copy of the session up to the current entry. Its name is copied, with a suffix."""
        name = self.session.given_name
        cloned = await self.fork()
        if name and not cloned.given_name:  # some formats copy it themselves
            await self.rename(f"{name} (branch)")
        return cloned

    def _open_session(self, wanted: str) -> Session:
        path = wanted
        if not os.path.isfile(wanted) and not find_ref(wanted).home:
            with Library(self.repository, environment=self._environment) as library:
                path = library.find(wanted).ref
        session = open_session(path, home=self.home, read_options=self._read_options)
        if session.dialect.traits.uses_home_blobs and session.header.large_content is None:
            session.large_content = "inline"  # like new sessions: Pi must be able to read what is added here
        return session

    def _newest(self) -> str | None:
        with Library(self.repository, environment=self._environment) as library:
            found = library.newest(self.cwd)
            return None if found is None else found.ref

    async def _use(
        self, session: Session, text: str | None = None, source: Source | None = "resumed", *, asks: bool = True
    ) -> None:
        """Make another session the current one. The user is asked about settings that only its file contains."""
        loop = asyncio.get_running_loop()
        session.notify = lambda text: loop.call_soon_threadsafe(self._add_notice, text)
        outputs = spill_target(session)
        old, self._session = self._session, session
        if old is not None and old.id == session.id:
            session.granted = old.granted  # the same session, whose file was rewritten
        if asks:
            await self._ask_about_approvals(session)
        fresh = await in_thread(self._describe, session)
        readable = (outputs,) if isinstance(outputs, str) else ()
        self.workspace = Workspace(self.cwd, self.workspace.added, guarded=(self.home,), readable=readable)
        self._pastes = Pastes(session.config)
        self._consent = CompactionConsent()
        fresh["usage"] = await in_thread(session.usage)
        if asks and await self._ask_about_model(self._recorded.model):
            fresh["model"] = self._recorded.model
        self.store.set(**fresh, source=source or self.state.source, input=self._with_text(text))
        if old is not None and old is not session:
            await in_thread(self._release, old)

    def _add_notice(self, text: str) -> None:
        earlier = self.state.notice
        self.store.set(notice=f"{earlier}; {text}" if earlier else text)

    async def _ask_about_approvals(self, session: Session) -> None:
        approvals = Approvals(session)
        claimed = await in_thread(lambda: approvals.claimed)
        if claimed is None or self._has_approval_mode:
            return
        if await self._confirms(f"This session skips approvals ({claimed}). Allow that again?"):
            await in_thread(approvals.accept)
        else:
            self._add_notice(f"approvals in the session file are not used: {claimed}")

    async def _ask_about_model(self, name: str | None) -> bool:
        """Whether to use the model that last answered. A file may name any model, even a script by its author."""
        if name is None or self._keeps_model or name == self.state.model:
            return False
        if await self._confirms(f"This session was last answered by {name}. Use it?"):
            return self._can_be_opened(name)
        if self.state.model is not None:
            self._add_notice(f"{name} answered last in this session; {self.state.model} answers now")
        return False

    async def _confirms(self, question: str) -> bool:
        return self._confirm is not None and await self._confirm(question)

    def _release(self, session: Session) -> None:
        remove_spill_of_draft(session)
        session.close()

    def _check_can_be_saved(self, model: str | None) -> None:
        """Refuse a model whose answers belong into no saved session, such as the script of a demonstration."""
        if model in self._unsaved_models:
            raise UsageError(f"the {model} model is only for new chats, which it does not save; choose another model")

    def _can_be_opened(self, name: str) -> bool:
        try:
            self._check_can_be_saved(name)
            self._model = self._find_model(name)
        except SessionTreeError as error:
            self.store.set(notice=f"{name}, the last model of this session, cannot be opened: {error}")
            return False
        return True

    def _describe(self, session: Session) -> dict[str, Any]:
        """The state of a session, without its usage."""
        recorded = self._recorded = read_choices(session)
        approvals = Approvals(session)
        return {
            "session": session,
            "leaf": session.leaf,
            "title": session_title(session),
            "description": session_description(session),
            "mcp": _mcp_clients(self._mcp) if self._mcp is not None else (),
            "messages": live_context_of(session).messages(),
            "thinking": recorded.thinking,
            "mode": recorded.mode,
            "approval": approvals.mode,
            "approved": approvals.tools,
            "pending": tuple(pending.call for pending in pending_calls(session)),
            "writers": _writers(session),
        }

    # The tree

    async def select(self, entry: str | None, *, summary: bool | str = False) -> Selected:
        """Switch to an entry; to a prompt, to just before it, with its text in the input; to None, to the beginning.

        With `summary`, a summary of the branch being left is added there; a string is what to focus on.
        """
        self._check_idle()
        session = self.session
        leaf, text = (None, None) if entry is None else selection_target(session, session.find_entry(entry))
        left = await self._move(leaf, summary)
        await self._update_state(text)
        return Selected(session.leaf, text, left.entry, left.reports)

    async def _move(self, leaf: str | None, summary: bool | str) -> LeaveResult:
        """Move to a leaf, with a summary of the branch being left if one is wanted."""
        session = self.session
        if summary:
            focus = summary if isinstance(summary, str) else self.settings.branch_summary.instructions
            budget = budget_of(self.settings.branch_summary.reserve_tokens)
            ask = SummaryOptions(focus, summarizer=self.summarizer(), budget=budget)
            return await self._in_background(leave, session, leaf, ask)
        left = LeaveResult(session.leaf, leaf)
        if leaf != session.leaf:
            await in_thread(session.move, leaf)
        return left

    async def branch(self, at: str | None = None, label: str | None = None) -> str | None:
        """Start a branch at an entry (default: the current one), and label that entry; returns it."""
        selected = await self.select(at) if at is not None else Selected(self.session.leaf)
        target = visible_entry(self.session, selected.leaf)
        if label and target is not None:
            await self.label(label, target)
        return selected.leaf

    async def switch(self, wanted: str, *, summary: bool | str = False) -> Selected:
        """Switch to another branch, by the id or label of an entry. `summary` as for `select`."""
        self._check_idle()
        left = await self._move(self.session.find_entry(wanted), summary)
        await self._update_state()
        return Selected(self.session.leaf, None, left.entry, left.reports)

    def fork_points(self) -> list[ForkPoint]:
        """The prompts on the current branch, newest first."""
        return find_fork_points(self.session)

    async def label(self, text: str | None, entry: str | None = None) -> None:
        """Label an entry (default: the last message, command or summary); None removes the label."""
        target = visible_entry(self.session, self.session.leaf) if entry is None else self.session.find_entry(entry)
        if target is None:
            raise UsageError("the session is empty: there is no entry to label")
        await in_thread(self.session.label, target, text)

    async def rename(self, name: str | None) -> None:
        await in_thread(self.session.rename, name)
        self.store.set(title=session_title(self.session))

    # Actions (`sessiontree.app.actions`)

    async def plan(self, make: Callable[[], T]) -> T:
        """Plan an action without blocking the event loop. A cancellation also ends requests for its summary."""
        self._check_idle()
        return await self._in_background(make)

    async def _in_background(self, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return await in_background(work, *arguments)
        except asyncio.CancelledError:
            await self._calls.stop()
            # `interrupt` cancels only the request. Its error arrives here like a cancellation of this task.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise SummaryError("the summary was interrupted; nothing was written") from None

    def summarizer(self) -> Summarizer:
        """The summarizer of the settings, by default the current model. It is called in threads."""
        self._calls.start()
        in_use = self.model if self.state.model is not None else None
        return summarizer_for(self.settings, in_use, ask=self._ask, find_model=self._find_model)

    def _ask(self, model: Model, request: Request, retry: Retry | None) -> Assistant:
        # A model's connections belong to the event loop that it is used in.
        return self._calls.run(request_and_close(model, request, retry))

    async def carry_out(self, plan: Doable[OutcomeT], *, prompt: str | None = None) -> OutcomeT:
        """Carry out an action on the session, and update the state.

        `prompt` is the entry of a prompt that is returned to the input.
        """
        self._check_idle()
        done = await uncancelled(in_background(plan.do))
        if done.session is not None and done.session is not self._session:
            await self._use(done.session, source=None)  # its file was rewritten
        else:
            await self._update_state(typed_prompt(self.session, prompt) if prompt is not None else None)
            self.store.set(usage=await in_thread(self.session.usage))
        return done

    # Settings of the session

    async def set_model(self, name: str) -> None:
        """Use another model from the next run on."""
        if self._session is not None and not self._session.repository.is_volatile:
            self._check_can_be_saved(name)
        model = self._find_model(name)
        old, self._model = self._model, model
        self.store.set(model=name)
        await self._record_choices()
        if old is not None and self._run is None:
            await old.close()

    async def set_thinking(self, level: ThinkingLevel) -> None:
        self.store.set(thinking=level)
        await self._record_choices()

    async def set_mode(self, mode: str) -> None:
        self.store.set(mode=mode)
        await self._record_choices()

    async def choose_mode(self, mode: ApprovalMode) -> None:
        """Set the approval mode, and record it as an entry."""
        is_new = mode != self.state.approval
        await self.set_approval(mode)
        if is_new:
            await self.set_mode(mode)

    async def set_approval(self, mode: ApprovalMode) -> None:
        """Set the approval mode. It applies immediately, even to a run in progress."""
        await in_thread(Approvals(self.session).set_mode, mode)
        self.store.set(approval=mode)

    async def approve(self, *tools: str) -> None:
        await in_thread(Approvals(self.session).approve, *tools)
        self.store.set(approved=Approvals(self.session).tools)

    async def revoke(self, *tools: str) -> None:
        """Revoke approvals; without names, all of them."""
        await in_thread(Approvals(self.session).revoke, *tools)
        self.store.set(approved=Approvals(self.session).tools)

    async def _record_choices(self) -> None:
        """Append entries for choices that the session does not record yet; during a run, later."""
        if self._session is None or self._run is not None or self._occupied_by is not None:
            return
        session, state = self.session, self.state
        chosen = RecordedChoices(state.model, state.thinking, state.mode)
        for entry in self._recorded.changes_to(chosen):
            await in_thread(session.append, entry)
        self._recorded = chosen
        self.store.set(leaf=session.leaf)

    # What front ends show

    def set_verbose(self, verbose: bool) -> None:
        """Show the complete output of tools, or only its beginning."""
        self.store.set(verbose=verbose)

    def set_status_line(self, text: str) -> None:
        """Show the user a line, for example from a program that embeds the agent; empty to remove it."""
        self.store.set(status_line=text)

    def expand(self, view: ExpandedView) -> None:
        self.store.set(expanded_view=view)

    # Prompts

    def paste_text(self, text: str) -> str:
        """Store a pasted text; returns what to insert into the input."""
        return self._pastes.add_text(text)

    def paste_image(self, data: bytes) -> str:
        """Store a pasted image; returns what to insert into the input."""
        return self._pastes.add_image(data)

    def pasted_keys(self, text: str) -> tuple[str, ...]:
        """The pasted images that an input contains."""
        return self._pastes.image_keys(text)

    def pasted_image(self, key: str) -> Image | None:
        return self._pastes.image(key)

    def set_input(self, text: str) -> None:
        self.store.set(input=text)

    async def send(self, prompt: str | None, *, pending: PendingDecision | None = None) -> AsyncGenerator[Event, None]:
        """Send a prompt, or continue with None; yields the events of the run, and updates the state.

        `pending` decides on calls that an earlier run left without a result. Leaving the loop interrupts the run.
        An exception in a model or a hook ends the run, not the app: the events report it like any other failure.
        """
        self._check_idle()
        if self._session is None:
            await self.new()
        session, model = self.session, self.model
        message = self._pastes.message(prompt) if prompt is not None else None
        if not self.state.pending or pending is not None:  # otherwise the run only reports them and ends
            await self._record_choices()
            if prompt is not None:
                await in_thread(self._save_pastes, prompt)
                await self._remember(prompt)
                self._clear_input(prompt)
        current = self._run = run(
            session,
            message,
            model=model,
            tools=self.tools,
            approver=self._approver,
            settings=self.settings,
            context=self.tool_context(),
            system=self._system_prompt(),
            thinking=_level(self.state.thinking),
            limits=self._limits,
            pending=pending,
            consent=None if session.dialect.name == DEFAULT_DIALECT else self._consent,
        )
        try:
            async for event in current:
                if isinstance(event, AgentEnd):
                    self._on_end(current)
                apply_event(self.store, session, event)
                self.store.set(queued=len(current.undelivered) if self._run is current else 0)
                yield event
        except Exception as error:
            if error is not current.bug:  # a bug of the run is in its end event: it ends the run, not the chat
                raise
        finally:
            current.interrupt("the run was interrupted")
            try:
                await current.finish()
            except Exception as error:
                if error is not current.bug:
                    raise
            self._on_end(current)
            if current.end is not None:
                apply_event(self.store, session, current.end)

    def _on_end(self, current: Run) -> None:
        if self._run is not current:
            return
        self._run = None
        self._has_plan = current.end is not None and current.end.reason == "done" and bool(current.end.text.strip())
        # Queued messages that were not sent return to the input.
        unsent = "\n\n".join(
            str(prompt.get("displayText") or prompt["content"])
            for prompt in current.undelivered
            if isinstance(prompt, Mapping)
        )
        self.store.set(
            queued=0, title=self.state.title or session_title(self.session), input=self._with_text(unsent or None)
        )

    def _system_prompt(self) -> str | None:
        if self.state.approval != "plan":
            return self._system
        return f"{self._system}\n\n{PLAN_INSTRUCTIONS}" if self._system else PLAN_INSTRUCTIONS

    def steer(self, text: str) -> None:
        """Queue a message for the run in progress, to be sent with the results of its calls."""
        self._queue(text, is_last=False)

    def follow_up(self, text: str) -> None:
        """Queue a message for when the run in progress has ended."""
        self._queue(text, is_last=True)

    def _queue(self, text: str, *, is_last: bool) -> None:
        if self._run is None:
            raise UsageError("no run is in progress; send it as a prompt")
        message = self._pastes.message(text)
        self._save_pastes(text)
        (self._run.follow_up if is_last else self._run.steer)(message)
        self.store.set(queued=len(self._run.undelivered))
        self._clear_input(text)

    def interrupt(self) -> bool:
        """Interrupt the run in progress, or the request for a summary; returns whether there was one."""
        if self._run is None:
            return self._calls.cancel()
        self._run.interrupt()
        return True

    async def command(self, command: UserCommand, update: Callable[[str], None] | None = None) -> Entry:
        """Run a command of the user and record it. A cancellation ends the command; its output so far is recorded.

        `update` receives output while it runs.
        """
        self._check_idle()
        if self._session is None:
            await self.new()
        _, entry = await run_user_command(command, self.session, self.tool_context(update))
        await self._update_state()
        return entry

    def tool_context(self, update: Callable[[str], None] | None = None) -> ToolContext:
        outputs = spill_target(self.session)
        return ToolContext(
            self.workspace,
            self._environment,
            outputs=outputs,
            mask=self._mask,
            update=update,
            sandbox=self.settings.sandbox,
        )

    def _save_pastes(self, prompt: str) -> None:
        if self._pastes.used_in(prompt):
            self._pastes.save(self.session)

    async def keep_draft(self, text: str) -> None:
        """Keep a text that was typed but not sent in the history of prompts, where it can be recalled."""
        if text.strip() and self._session is not None:
            await self._remember(text)

    async def _remember(self, prompt: str) -> None:
        """Add a prompt to the history. A failure is only a notice: the prompt is answered all the same."""
        session = self.session
        if session.ref.home:  # the history of a repository is made of its sessions
            return
        try:
            await in_thread(
                lambda: remember(self.home, prompt, cwd=self.cwd, session=session.id, agent=session.dialect.name)
            )
        except StoreError as error:
            self.store.set(notice=f"the prompt was not added to the history: {error}")

    # Other processes

    async def refresh(self) -> list[str]:
        """Read entries written by other processes, and find those processes; returns the ids of new entries."""
        if self._run is not None or self._occupied_by is not None or self._session is None:
            return []
        session = self.session
        arrived = await in_thread(session.refresh)
        writers = await in_thread(_writers, session)
        self.store.set(writers=writers)
        if arrived:
            self.store.set(title=session_title(session), usage=await in_thread(session.usage))
        return arrived

    async def close(self) -> None:
        """Interrupt the run in progress and close everything."""
        if self._run is not None:
            self._run.interrupt("the program is exiting")
            await self._run.finish()
        await self._calls.stop()
        if self._session is not None:
            await in_thread(self._release, self._session)
        if self._model is not None:
            await self._model.close()

    async def adopt(self, session: Session) -> None:
        """Update the state after a front end has changed the session, or rewritten its file."""
        self._check_idle()
        if session is not self._session:
            await self._use(session, source=None)
        else:
            await self._update_state()

    async def _update_state(self, text: str | None = None) -> None:
        """Update the state after the session was moved or written."""
        fresh = await in_thread(self._describe, self.session)
        self.store.set(**fresh, input=self._with_text(text))

    def _clear_input(self, sent: str) -> None:
        """Clear the input, unless the user has typed something else since."""
        if self.state.input.strip() == sent.strip():
            self.store.set(input="")

    def _with_text(self, text: str | None) -> str:
        """The input with text returned to it, followed by what the user had typed."""
        typed = self.state.input
        return typed if text is None else f"{text}\n\n{typed}" if typed else text

    @contextlib.asynccontextmanager
    async def occupied(self, by: str) -> AsyncIterator[None]:
        """Reserve the session for other work: actions that write to the current branch are refused meanwhile.

        The state is updated afterwards.
        """
        self._check_idle()
        self._occupied_by = by
        self.store.set(is_running=True)
        try:
            yield
        finally:
            self._occupied_by = None
            self.store.set(is_running=False)
            await self._update_state()
            self.store.set(usage=await in_thread(self.session.usage))

    def _check_idle(self) -> None:
        if self._run is not None:
            raise UsageError("a run is in progress; interrupt it first, or wait")
        if self._occupied_by is not None:
            raise UsageError(f"{self._occupied_by} is in progress; stop it first, or wait")


def _level(text: str | None) -> ThinkingLevel | None:
    match text:
        case "off" | "minimal" | "low" | "medium" | "high" | "xhigh":
            return text
        case _:
            return None


def _mcp_clients(servers: McpServers) -> tuple[McpClient, ...]:
    return tuple(
        McpClient(
            connection.name,
            connection.is_alive,
            tuple(tool.name for tool in servers.tools_of(connection)),
            servers.problems.get(connection.name, ""),
        )
        for connection in servers.connections
    )


def _writers(session: Session) -> tuple[Writer, ...]:
    if session.is_pending or not session.ref.is_file or not os.path.exists(session.location):
        return ()
    return tuple(find_writers(session.location) or ())
