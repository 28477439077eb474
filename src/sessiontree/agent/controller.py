"""RewindScope a person can do with the agent, for every front end: line mode, full screen, anything else.

A front end shows `state`, calls actions, and goes through the events of `send`. It holds no session and no rule.
Actions that read or write much do so in threads. While a run is under way, what would move the ground under it is
refused; changes of model, thinking and mode are taken, and written before the next prompt.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from sessiontree.agent.approval import Approvals, Approver
from sessiontree.agent.async_bridge import in_background, in_thread
from sessiontree.agent.checkpoints import Checkpoints, RewindPlan, RewindScope, Rewound
from sessiontree.agent.events import AgentEnd, Event
from sessiontree.agent.limits import Limits
from sessiontree.agent.live_context import live_context_of
from sessiontree.agent.loop import Run, run
from sessiontree.agent.pastes import Pastes
from sessiontree.agent.pending import Decision, pending_calls
from sessiontree.agent.shell_commands import UserCommand, run_user_command
from sessiontree.agent.spill_files import SpillFolders
from sessiontree.agent.state import State, Store, apply_event
from sessiontree.agent.tools.base import ToolContext
from sessiontree.agent.tools.registry import Tools, load_tools
from sessiontree.agent.workspace import Workspace
from sessiontree.branches.leave import leave
from sessiontree.branches.open_files import Writer, find_writers
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.compaction import Compacted, compact
from sessiontree.conversion.fork import fork
from sessiontree.core.entries import ApprovalMode, CustomMessage, Entry, MessageEntry
from sessiontree.core.messages import User, text_of
from sessiontree.errors import NotFoundError, SessionTreeError, StoreError, UsageError
from sessiontree.library import Library
from sessiontree.library.partial_reader import session_title
from sessiontree.library.summary import cut_at_word
from sessiontree.models import Model, ThinkingLevel, open_model
from sessiontree.models.model_summarizer import summarizer_for
from sessiontree.paths import home as default_home
from sessiontree.search.prompt_spool import remember
from sessiontree.secrets.environment import Mask
from sessiontree.session.open import create
from sessiontree.session.open import open as open_session
from sessiontree.session.session import Session
from sessiontree.settings import Settings

PREVIEW = 80
"""Characters of a prompt that the list of prompts shows."""
_SPEAKING = frozenset({"message", "custom_message", "branch_summary", "compaction"})


class ForkPoint(Struct, frozen=True):
    """A prompt of the user that a fork can be taken before."""

    id: str
    preview: str
    time: str


class Selected(Struct, frozen=True):
    """Where a selection in the tree led."""

    leaf: str | None
    text: str | None = None
    """The prompt that stands in the input now, to be said otherwise."""
    summary: str | None = None
    """The entry that says what happened on the branch that was left."""


class Controller:
    """One app: the session in hand, what it works with, and what can be done."""

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
    ) -> None:
        self.cwd = os.path.abspath(os.fspath(cwd))
        self.home = os.path.abspath(os.fspath(home)) if home is not None else default_home()
        self.settings = settings or Settings()
        self.tools = load_tools() if tools is None else tools
        self.workspace = Workspace(self.cwd, added, guarded=(self.home,))
        """Where tools may go; with a session in hand, its outputs may be read, too."""
        self.store: Store[State] = Store(State(model=model.name if model is not None else self.settings.model))
        self._model, self._find_model = model, find_model or self._open_model
        self._keeps_model = model is not None
        self._told: tuple[str | None, str | None, str] = (None, None, "none")
        """The model, the thinking and the mode that the session tells of."""
        self._approver, self._system, self._limits = approver, system, limits
        self._environment, self._in_memory = environment, in_memory
        self._mask = Mask(environment)
        self._session: Session | None = None
        self._outputs = SpillFolders()
        self._pastes = Pastes()
        self._run: Run | None = None
        self._occupied_by: str | None = None

    @property
    def state(self) -> State:
        return self.store.get()

    @property
    def session(self) -> Session:
        if self._session is None:
            raise UsageError("there is no session yet: start one, or resume one")
        return self._session

    @property
    def run(self) -> Run | None:
        """The run that is under way."""
        return self._run

    @property
    def model(self) -> Model:
        """The model that answers; `UsageError` says how to choose one."""
        if self._model is None:
            name = self.state.model
            if name is None:
                raise UsageError(
                    "no model is chosen: name one as provider:name (anthropic:..., openai:..., ollama:...), "
                    "or set it with `sessiontree config set model NAME`"
                )
            self._model = self._find_model(name)
        return self._model

    def _open_model(self, name: str) -> Model:
        return open_model(name, environment=self._environment, facts=self.settings.models)

    # Sessions: each of these is one change of the state, and what is typed stays

    async def new(self, name: str | None = None) -> Session:
        """Start a session. Its file appears with the first prompt."""
        self._check_idle()
        session = create(self.cwd, home=self.home, in_memory=self._in_memory, large_content="inline")
        if name:
            session.rename(name)
        await self._take(session)
        return session

    async def resume(self, wanted: str) -> Session:
        """Go on with a session of any agent: by path, id, title, or a part of those."""
        self._check_idle()
        session = await in_thread(self._opened, wanted)
        await self._take(session)
        return session

    async def resume_last(self) -> Session:
        """Go on with the session of this project that was last worked on."""
        self._check_idle()
        path = await in_thread(self._newest)
        if path is None:
            raise NotFoundError(f"{self.cwd}: no session of this project was found; start a new one")
        session = await in_thread(self._opened, path)
        await self._take(session)
        return session

    async def fork(self, at: str | None = None, *, to: str | None = None) -> Session:
        """Go on in a new session: before a prompt, whose text comes back to the input, or behind any other entry.

        RewindScope was approved stays with the session that is left, and that is said.
        """
        self._check_idle()
        approved = Approvals(self.session).restored
        chosen = self.session.find_entry(at) if at is not None else None
        forked = await in_thread(lambda: fork(self.session, chosen, to=to))
        text = _typed(self.session, chosen) if forked.prompt is not None and chosen is not None else None
        await self._take(forked.session, text)
        if approved is not None:
            self.store.set(
                notice=f"approvals are not taken along to a copy ({approved}): everything is asked again here"
            )
        return forked.session

    async def clone(self) -> Session:
        """Go on in a copy of the session up to where it stands. A name that was given goes along, with a mark."""
        name = self.session.given_name
        cloned = await self.fork()
        if name and not cloned.given_name:  # some formats carry it over by themselves
            await self.rename(f"{name} (branch)")
        return cloned

    def _opened(self, wanted: str) -> Session:
        path = wanted
        if not os.path.isfile(wanted):
            with Library(self.home, environment=self._environment) as library:
                path = library.find(wanted).path
        session = open_session(path, home=self.home)
        if session.dialect.uses_home_blobs and session.header.large_content is None:
            session.large_content = "inline"  # as in a session of our own: Pi shall read what is said here, too
        return session

    def _newest(self) -> str | None:
        with Library(self.home, environment=self._environment) as library:
            found = library.newest(self.cwd)
            return None if found is None else found.path

    async def _take(self, session: Session, text: str | None = None) -> None:
        """Have another session in hand, with the model it was last answered by, if that can be had."""
        fresh = await in_thread(self._described, session)
        old, self._session = self._session, session
        self.workspace = Workspace(
            self.cwd, self.workspace.added, guarded=(self.home,), readable=(self._outputs.folder(session),)
        )
        self._pastes = Pastes(session.config)
        fresh["usage"] = await in_thread(session.usage)
        if self._told[0] is not None and not self._keeps_model and self._can_be_opened(self._told[0]):
            fresh["model"] = self._told[0]
        self.store.set(**fresh, input=self._with_text(text))
        if old is not None and old is not session:
            await in_thread(self._let_go, old)

    def _let_go(self, session: Session) -> None:
        self._outputs.leave(session)
        session.close()

    def _can_be_opened(self, name: str) -> bool:
        try:
            self._model = self._find_model(name)
        except SessionTreeError as error:
            self.store.set(notice=f"the session was answered by {name}, which cannot be asked here: {error}")
            return False
        return True

    def _described(self, session: Session) -> dict[str, Any]:
        """RewindScope the state says of a session, but for its usage."""
        told = session.context().state
        config = session.config
        model = f"{told.model.provider}:{told.model.model_id}" if told.model and told.model.provider else None
        level = told.thinking_level if session.count("thinking_level_change") else None
        self._told = (model, level, told.mode)
        return {
            "session": session,
            "leaf": session.leaf,
            "title": session_title(session),
            "messages": live_context_of(session).messages(),
            "thinking": level,
            "mode": told.mode,
            "approval": config.approval_mode,
            "approved": config.approval_tools,
            "pending": tuple(one.call for one in pending_calls(session)),
            "writers": _writers(session),
        }

    # The tree

    async def select(self, entry: str | None, *, summary: bool | str = False) -> Selected:
        """Stand at an entry: before a prompt, whose text comes back to the input; at any other; None: start anew.

        With `summary`, what happened on the branch that is left is summed up there; a text says what to look for.
        """
        self._check_idle()
        session = self.session
        leaf, text = (None, None) if entry is None else _standing_for(session, session.find_entry(entry))
        written = await self._go(leaf, summary)
        await self._look_again(text)
        return Selected(session.leaf, text, written)

    async def _go(self, leaf: str | None, summary: bool | str) -> str | None:
        """Leave where the session stands; the entry of the summary, if there is one."""
        session = self.session
        if summary:
            focus = summary if isinstance(summary, str) else self.settings.branch_summary.instructions
            ask = SummaryOptions(focus, summarizer=summarizer_for(self.settings))
            return (await in_background(leave, session, leaf, ask)).entry
        if leaf != session.leaf:
            await in_thread(session.move, leaf)
        return None

    async def branch(self, at: str | None = None, label: str | None = None) -> str | None:
        """Begin a branch at an entry, or here, and name the place if that is wished. Where it stands."""
        selected = await self.select(at) if at is not None else Selected(self.session.leaf)
        if label and selected.leaf is not None:
            await self.label(label, selected.leaf)
        return selected.leaf

    async def switch(self, wanted: str, *, summary: bool | str = False) -> Selected:
        """Stand at the end of another branch, or at any entry, by id or label. `summary` is as with `select`."""
        self._check_idle()
        written = await self._go(self.session.find_entry(wanted), summary)
        await self._look_again()
        return Selected(self.session.leaf, summary=written)

    def fork_points(self) -> list[ForkPoint]:
        """The prompts on the way to where the session stands, the newest first."""
        return [
            ForkPoint(entry.id, cut_at_word(_shown(self.session, entry), PREVIEW), entry.timestamp)
            for entry in reversed(self.session.path())
            if isinstance(entry, MessageEntry) and isinstance(entry.message, User)
        ]

    async def label(self, text: str | None, entry: str | None = None) -> None:
        """Name an entry, or the one where the session stands; None takes the name away."""
        target = self.session.leaf if entry is None else self.session.find_entry(entry)
        if target is None:
            raise UsageError("nothing was said yet that could be labelled")
        await in_thread(self.session.label, target, text)

    async def rename(self, name: str | None) -> None:
        await in_thread(self.session.rename, name)
        self.store.set(title=session_title(self.session))

    async def compact(self, focus: str | None = None) -> Compacted:
        """Let a summary stand for the older part of the branch."""
        self._check_idle()
        settings = self.settings.compaction
        done = await in_background(
            lambda: compact(
                self.session,
                instructions=focus or settings.instructions,
                keep=settings.keep_recent_tokens,
                summarizer=summarizer_for(self.settings),
            )
        )
        await self._look_again()
        self.store.set(usage=await in_thread(self.session.usage))
        return done

    # Rewinding

    async def plan_rewind(self, entry: str | None) -> RewindPlan:
        """RewindScope going back to an entry means for files; nothing is done."""
        found = self.session.find_entry(entry) if entry is not None else None
        return await in_thread(self._checkpoints().plan, found)

    async def rewind(self, plan: RewindPlan, what: RewindScope = "both", overwrite: Collection[str] = ()) -> Rewound:
        """Go back as planned: conversation, files, or both. The prompt that was gone back to comes to the input."""
        self._check_idle()
        done = await in_thread(lambda: self._checkpoints().rewind(plan, what, overwrite=overwrite))
        text = _typed(self.session, plan.entry) if plan.text is not None and what != "files" and plan.entry else None
        await self._look_again(text)
        return done

    async def undo_rewind(self, overwrite: Collection[str] = ()) -> Rewound:
        """Undo the last rewind."""
        self._check_idle()
        checkpoints = self._checkpoints()
        plan = await in_thread(checkpoints.plan_undo)
        done = await in_thread(lambda: checkpoints.undo(plan, overwrite=overwrite))
        await self._look_again()
        return done

    def _checkpoints(self) -> Checkpoints:
        blobs = self.session.journal.blobs
        if blobs is None:
            raise UsageError(f"{self.session.location}: this session keeps no contents of files")
        return Checkpoints(self.session, self.workspace, blobs)

    # Choices

    async def set_model(self, name: str) -> None:
        """Let another model answer from the next request on."""
        model = self._find_model(name)
        old, self._model = self._model, model
        self.store.set(model=name)
        await self._say_choices()
        if old is not None and self._run is None:
            await old.close()

    async def set_thinking(self, level: ThinkingLevel) -> None:
        self.store.set(thinking=level)
        await self._say_choices()

    async def set_mode(self, mode: str) -> None:
        self.store.set(mode=mode)
        await self._say_choices()

    async def choose_mode(self, mode: ApprovalMode) -> None:
        """Choose what has to be asked, and let an entry say so."""
        is_new = mode != self.state.approval
        await self.set_approval(mode)
        if is_new:
            await self.set_mode(mode)

    async def set_approval(self, mode: ApprovalMode) -> None:
        """Choose what has to be asked. Holds at once, also for a run that is under way."""
        await in_thread(Approvals(self.session).set_mode, mode)
        self.store.set(approval=mode)

    async def approve(self, *tools: str) -> None:
        await in_thread(Approvals(self.session).approve, *tools)
        self.store.set(approved=self.session.config.approval_tools)

    async def revoke(self, *tools: str) -> None:
        """Take approvals back; without names, all of them."""
        await in_thread(Approvals(self.session).revoke, *tools)
        self.store.set(approved=self.session.config.approval_tools)

    async def _say_choices(self) -> None:
        """Write what was chosen and is not in the session yet; while a run goes, later."""
        if self._session is None or self._run is not None or self._occupied_by is not None:
            return
        session, state = self.session, self.state
        model, thinking, mode = self._told
        provider, _, name = (state.model or "").partition(":")
        if name and state.model != model:
            await in_thread(session.append, {"type": "model_change", "provider": provider, "modelId": name})
        if state.thinking is not None and state.thinking != thinking:
            await in_thread(session.append, {"type": "thinking_level_change", "thinkingLevel": state.thinking})
        if state.mode != mode:
            await in_thread(session.append, {"type": "mode_change", "mode": state.mode})
        self._told = (state.model, state.thinking, state.mode)
        self.store.set(leaf=session.leaf)

    # Talking

    def paste_text(self, text: str) -> str:
        """RewindScope stands in the input for a pasted text."""
        return self._pastes.add_text(text)

    def paste_image(self, data: bytes) -> str:
        """RewindScope stands in the input for a pasted image."""
        return self._pastes.add_image(data)

    def set_input(self, text: str) -> None:
        """RewindScope is typed and not sent."""
        self.store.set(input=text)

    async def send(self, prompt: str | None, *, pending: Decision | None = None) -> AsyncGenerator[Event, None]:
        """Say something, or with None go on; the events of the run. The state follows them.

        `pending` decides about calls that an earlier run left without a result. Leaving the loop interrupts the run.
        """
        self._check_idle()
        if self._session is None:
            await self.new()
        session, model = self.session, self.model
        message = self._pastes.message(prompt) if prompt is not None else None
        if not self.state.pending or pending is not None:  # else the run will only say what it waits for
            await self._say_choices()
            if prompt is not None:
                await in_thread(self._save_pastes, prompt)
                await self._remember(prompt)
                self.store.set(input="")
        going = self._run = run(
            session,
            message,
            model=model,
            tools=self.tools,
            approver=self._approver,
            settings=self.settings,
            context=self.tool_context(),
            system=self._system,
            thinking=_level(self.state.thinking),
            limits=self._limits,
            pending=pending,
            summarizer=summarizer_for(self.settings),
        )
        try:
            async for event in going:
                if isinstance(event, AgentEnd):
                    self._ended(going)
                apply_event(self.store, session, event)
                self.store.set(queued=len(going.undelivered) if self._run is going else 0)
                yield event
        finally:
            going.interrupt("the run was interrupted")
            await going.finish()
            self._ended(going)
            if going.end is not None:
                apply_event(self.store, session, going.end)

    def _ended(self, going: Run) -> None:
        if self._run is not going:
            return
        self._run = None
        unsaid = "\n\n".join(
            str(one.get("displayText") or one["content"]) for one in going.undelivered if isinstance(one, Mapping)
        )
        self.store.set(
            queued=0, title=self.state.title or session_title(self.session), input=self._with_text(unsaid or None)
        )

    def steer(self, text: str) -> None:
        """Say something to the run that is under way, as soon as its calls have their results."""
        self._queue(text, is_last=False)

    def follow_up(self, text: str) -> None:
        """Say something when the run that is under way has ended."""
        self._queue(text, is_last=True)

    def _queue(self, text: str, *, is_last: bool) -> None:
        if self._run is None:
            raise UsageError("nothing is under way; just say it")
        message = self._pastes.message(text)
        self._save_pastes(text)
        (self._run.follow_up if is_last else self._run.steer)(message)
        self.store.set(queued=len(self._run.undelivered), input="")

    def interrupt(self) -> bool:
        """End the run that is under way; whether there was one."""
        if self._run is None:
            return False
        self._run.interrupt()
        return True

    async def command(self, command: UserCommand, update: Callable[[str], None] | None = None) -> Entry:
        """Run a command of the user, and keep it. A cancel ends the command, and what it printed is kept.

        `update` hears what it prints while it runs.
        """
        self._check_idle()
        if self._session is None:
            await self.new()
        _, entry = await run_user_command(command, self.session, self.tool_context(update))
        await self._look_again()
        return entry

    def tool_context(self, update: Callable[[str], None] | None = None) -> ToolContext:
        """RewindScope tools are given to work with."""
        outputs = self._outputs.folder(self.session)
        return ToolContext(self.workspace, self._environment, outputs=outputs, mask=self._mask, update=update)

    def _save_pastes(self, prompt: str) -> None:
        if self._pastes.used_in(prompt):
            self._pastes.save(self.session)

    async def _remember(self, prompt: str) -> None:
        """Leave a prompt for the history. That it cannot be written is no reason not to answer it."""
        if self._in_memory:
            return
        session = self.session
        try:
            await in_thread(
                lambda: remember(self.home, prompt, cwd=self.cwd, session=session.id, agent=session.dialect.name)
            )
        except StoreError as error:
            self.store.set(notice=f"the prompt was not kept in the history: {error}")

    # Others

    async def refresh(self) -> list[str]:
        """Read what others wrote, and see who they are; the ids of new entries."""
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
        """End what is under way, and let go of everything."""
        if self._run is not None:
            self._run.interrupt("the program is being ended")
            await self._run.finish()
        if self._session is not None:
            await in_thread(self._let_go, self._session)
        self._outputs.close()
        if self._model is not None:
            await self._model.close()

    async def _look_again(self, text: str | None = None) -> None:
        """The state after the session was moved or written."""
        fresh = await in_thread(self._described, self.session)
        self.store.set(**fresh, input=self._with_text(text))

    def _with_text(self, text: str | None) -> str:
        """The input with a text that comes back to it; what was typed stays, behind it."""
        typed = self.state.input
        return typed if text is None else f"{text}\n\n{typed}" if typed else text

    @contextlib.asynccontextmanager
    async def occupied(self, by: str) -> AsyncIterator[None]:
        """While something else works on the session: nothing is taken that would write where it stands.

        Afterwards the state is what the session says then.
        """
        self._check_idle()
        self._occupied_by = by
        self.store.set(is_running=True)
        try:
            yield
        finally:
            self._occupied_by = None
            self.store.set(is_running=False)
            await self._look_again()
            self.store.set(usage=await in_thread(self.session.usage))

    def _check_idle(self) -> None:
        if self._run is not None:
            raise UsageError("a run is under way; interrupt it first, or wait")
        if self._occupied_by is not None:
            raise UsageError(f"{self._occupied_by} is under way; stop it first, or wait")


def _standing_for(session: Session, entry: str) -> tuple[str | None, str | None]:
    """Where choosing an entry means to stand, and the text that it gives back."""
    found = session.entry(entry)
    is_prompt = isinstance(found, CustomMessage) or (
        isinstance(found, MessageEntry) and isinstance(found.message, User)
    )
    if not is_prompt:
        return entry, None
    before = session.path_ids(entry)[:-1]
    has_said = any(session.type_of(id) in _SPEAKING for id in before)  # a choice of model alone is no beginning
    return (before[-1] if has_said else None), _typed(session, entry)


def _typed(session: Session, entry: str) -> str:
    """A prompt the way it was typed."""
    return _shown(session, session.entry(entry))


def _shown(session: Session, entry: Entry) -> str:
    if isinstance(entry, CustomMessage):
        return text_of(entry.content)
    if not isinstance(entry, MessageEntry) or not isinstance(entry.message, User):
        return ""
    message = session.fields(entry.id).get("message")
    typed = message.get("displayText") if isinstance(message, dict) else None
    return typed if isinstance(typed, str) else text_of(entry.message.content)


def _level(text: str | None) -> ThinkingLevel | None:
    match text:
        case "off" | "minimal" | "low" | "medium" | "high" | "xhigh":
            return text
        case _:
            return None


def _writers(session: Session) -> tuple[Writer, ...]:
    if session.is_pending or not os.path.exists(session.location):
        return ()
    return tuple(find_writers(session.location) or ())
