"""Chats that run in the server: a page sends prompts, approves calls and interrupts; any number of pages watch.

Events are kept in order with a number. Parts of an answer (deltas) are dropped once the answer is in the session, so a
page that was slow gets the entry and not its parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from typing import Any

from sessiontree.agent.approval import Question
from sessiontree.agent.controller import Controller
from sessiontree.agent.events import Event, Persisted, Retry
from sessiontree.app.event_json import encode_event
from sessiontree.app.start import StartOptions, is_unsaved_demo, open_controller
from sessiontree.errors import NotFoundError, SessionTreeError, UsageError
from sessiontree.library.summary import Summary
from sessiontree.stores.repositories import home_folder
from sessiontree.web.live import Signal
from sessiontree.web.questions import Questions
from sessiontree.web.site import Site

MAX_CHATS = 8
_MAX_LOG = 5_000


class Chat:
    """One chat, its log of events and its open questions."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.controller: Controller | None = None
        self.signal = Signal()
        self.log: list[dict[str, Any] | None] = []
        """Events in order; None for a part of an answer that is complete now."""
        self.dropped = 0
        """Number of the first event in the log."""
        self.questions = Questions(
            lambda id, asked: self.add({"type": "question", "id": id, "question": asked}),
            lambda id: self.add({"type": "question_closed", "id": id}),
        )
        self.closing = asyncio.Event()
        self.is_running = False
        self.error = ""

    def add(self, fields: dict[str, Any]) -> None:
        self.log.append(fields)
        if len(self.log) > _MAX_LOG:
            excess = len(self.log) - _MAX_LOG
            del self.log[:excess]
            self.dropped += excess
        self.signal.fire()

    def note(self, event: Event) -> None:
        """Add an event of the run."""
        if isinstance(event, Persisted | Retry):
            for at, earlier in enumerate(self.log):
                if earlier is not None and earlier["type"] in ("text_delta", "thinking_delta"):
                    self.log[at] = None
        self.add(_brief(encode_event(event)))

    async def confirm(self, text: str) -> bool:
        """Ask a yes-or-no question about settings that a session file contains."""
        reply = await self.questions.ask(
            Question("session", text, "", ("recorded in the session file",), may_always=False)
        )
        return reply.answer != "no"

    async def events_from(self, position: int) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """The events from a number on, and each new one, until the chat is closed."""
        at = max(position, self.dropped)
        while True:
            while at - self.dropped < len(self.log):
                fields = self.log[max(0, at - self.dropped)]
                at = max(at, self.dropped) + 1
                if fields is not None:
                    yield at, fields
            if self.closing.is_set():
                return
            if not await self.signal.wait(15.0):
                yield at, {"type": "alive"}


def _brief(fields: dict[str, Any]) -> dict[str, Any]:
    """An entry is only named: the page reads it from the session."""
    if fields["type"] != "entry":
        return fields
    entry = fields["entry"]
    return {"type": "entry", "id": entry.get("id"), "kind": entry.get("type")}


class Chats:
    """All chats of the server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._chats: dict[str, Chat] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, id: str) -> Chat:
        found = self._chats.get(id)
        if found is None:
            raise NotFoundError("no such chat: it was closed, or the server was restarted")
        return found

    async def start(self, summary: Summary | None, model: str | None) -> Chat:
        """Open a chat with a session, or with a new one."""
        if len(self._chats) >= MAX_CHATS:
            raise UsageError(f"{MAX_CHATS} chats are open; close one first")
        workbench = self._site.workbench
        cwd = summary.cwd if summary is not None and os.path.isdir(summary.cwd) else workbench.cwd
        options = StartOptions(
            cwd=cwd,
            home=home_folder(workbench.library.home),
            settings=workbench.settings,
            model=model or workbench.settings.model,
            session=None if summary is None else summary.ref,
            in_memory=summary is None and is_unsaved_demo(model, workbench.settings),
        )
        chat = Chat(secrets.token_urlsafe(9))
        self._chats[chat.id] = chat
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._live(chat, options, ready))
        await ready
        return chat

    async def _live(self, chat: Chat, options: StartOptions, ready: asyncio.Future[None]) -> None:
        """Keep the controller open until the chat is closed."""
        try:
            async with open_controller(options, chat.questions, chat.confirm) as started:
                chat.controller = started.controller
                for note in started.notes:
                    chat.add({"type": "note", "text": note})
                ready.set_result(None)
                await chat.closing.wait()
        except SessionTreeError as error:
            if not ready.done():
                ready.set_exception(error)
            chat.add({"type": "error", "kind": type(error).__name__, "message": str(error)})
        finally:
            if not ready.done():
                ready.cancel()
            self._chats.pop(chat.id, None)
            chat.closing.set()
            chat.signal.fire()

    def send(self, chat: Chat, text: str) -> None:
        """Send a prompt; while a run is in progress, steer it."""
        controller = self._controller(chat)
        if chat.is_running:
            controller.steer(text)
            chat.add({"type": "steered", "text": text})
            return
        chat.is_running = True
        chat.add({"type": "prompt", "text": text})
        self._spawn(self._run(chat, controller, text))

    async def _run(self, chat: Chat, controller: Controller, text: str) -> None:
        try:
            pending = "skip" if controller.state.pending else None
            async with contextlib.aclosing(controller.send(text, pending=pending)) as events:  # type: ignore[arg-type]
                async for event in events:
                    chat.note(event)
        except SessionTreeError as error:
            chat.add({"type": "error", "kind": type(error).__name__, "message": str(error)})
        finally:
            chat.is_running = False
            chat.add({"type": "idle", "session": controller.session.location})

    def interrupt(self, chat: Chat) -> bool:
        return self._controller(chat).interrupt()

    def stop(self, chat: Chat) -> None:
        """Close a chat. A run in progress is interrupted."""
        if chat.controller is not None:
            chat.controller.interrupt()
        chat.closing.set()
        chat.signal.fire()

    def _controller(self, chat: Chat) -> Controller:
        if chat.controller is None:
            raise UsageError("the chat is still starting")
        return chat.controller

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop_all(self) -> None:
        for chat in list(self._chats.values()):
            self.stop(chat)

    async def close(self) -> None:
        self.stop_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
