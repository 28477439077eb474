"""A chat on the screen with a scripted model, in a project of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from textual.pilot import Pilot

import sessiontree
from sessiontree.app.start import StartOptions
from sessiontree.app.workbench import Workbench
from sessiontree.library.library import Library
from sessiontree.models.scripted import ScriptTurn
from sessiontree.session.session import Session
from sessiontree.settings import Settings
from sessiontree.tui.app import SessionTreeApp
from sessiontree.tui.chat import ChatScreen
from tests.chat.terminals import Place, scripted
from tests.tui.conftest import until

Steps = Callable[[Pilot[Any]], Awaitable[None]]


class Chat:
    """Runs the chat in a temporary project."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def session(self, *texts: str) -> Session:
        """A stored session: prompts and answers by turns."""
        session = sessiontree.create(self.place.project, home=self.place.home)
        for at, text in enumerate(texts):
            session.append("assistant", [{"type": "text", "text": text}]) if at % 2 else session.append("user", text)
        return session

    def run(
        self,
        turns: Sequence[ScriptTurn],
        steps: Steps,
        *,
        session: Session | None = None,
        size: tuple[int, int] = (100, 30),
        **options: Any,
    ) -> SessionTreeApp:
        """Open the chat, and carry the steps out."""
        started = StartOptions(
            cwd=str(self.place.project),
            home=str(self.place.home),
            settings=options.pop("settings", Settings()),
            model=scripted(self.place, *turns),
            session=session.location if session is not None else None,
            **options,
        )

        async def run() -> SessionTreeApp:
            with Library(self.place.home, ()) as library:
                workbench = Workbench(library, str(self.place.project))
                app = SessionTreeApp(workbench, first=lambda: ChatScreen(started), start_options=lambda _: started)
                async with app.run_test(size=size) as pilot:
                    await until(pilot, lambda: screen_of(pilot).chat.is_open)
                    await steps(pilot)
                    if app.is_running and app.return_value is None and not app._exit:
                        await left(pilot)
            return app

        return asyncio.run(run())


def screen_of(pilot: Pilot[Any]) -> ChatScreen:
    return next(screen for screen in pilot.app.screen_stack if isinstance(screen, ChatScreen))


def shown(pilot: Pilot[Any]) -> str:
    """The visible conversation."""
    return screen_of(pilot).transcript.visible_text()


async def sent(pilot: Pilot[Any], text: str) -> None:
    """Type a prompt and send it."""
    screen_of(pilot).editor.set_text(text)
    await pilot.press("enter")


async def sees(pilot: Pilot[Any], text: str) -> None:
    """Wait until the conversation shows a text."""
    try:
        await until(pilot, lambda: text in shown(pilot))
    except AssertionError:
        notes = [note.message for note in pilot.app._notifications]
        raise AssertionError(f"{text!r} was not shown:\n{shown(pilot)}\n{pilot.app.screen_stack} {notes}") from None


async def idle(pilot: Pilot[Any]) -> None:
    """Wait until nothing is in progress."""
    chat = screen_of(pilot).chat
    await until(pilot, lambda: chat.is_open and not chat.is_busy and not chat.queue)


async def left(pilot: Pilot[Any]) -> None:
    """Leave the chat, and wait until the session is closed."""
    chat = screen_of(pilot)
    chat.leave()
    await until(pilot, lambda: pilot.app._exit)
