"""From the list of sessions to a chat in the same app."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sessiontree.app.start import StartOptions
from sessiontree.app.workbench import Workbench
from sessiontree.library.library import Library
from sessiontree.settings import Settings
from sessiontree.tui.app import SessionTreeApp
from sessiontree.tui.chat import ChatScreen
from sessiontree.tui.requests import Chat as ChatRequest
from sessiontree.tui.sessions import SessionsScreen
from tests.chat.terminals import Place, scripted, turn
from tests.tui.chats import Chat, left, screen_of, sees
from tests.tui.conftest import until


@pytest.mark.parametrize("has_model", [True, False])
def test_enter_continues_a_session_in_the_same_app_or_reports_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_model: bool
) -> None:
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SESSIONTREE_HOME", str(place.home))
    Chat(place).session("about apples", "Yes.").close()

    def start_options(request: ChatRequest) -> StartOptions:
        return StartOptions(
            cwd=str(place.project),
            home=str(place.home),
            settings=Settings(),
            model=scripted(place, turn("Hi.")) if has_model else None,
            session=request.ref,
        )

    async def run() -> None:
        with Library(place.home, ()) as library:
            app = SessionTreeApp(Workbench(library, str(place.project)), start_options=start_options)
            async with app.run_test(size=(100, 30)) as pilot:
                await until(pilot, lambda: isinstance(app.screen, SessionsScreen) and app.screen.selected)
                await pilot.press("enter")
                if has_model:
                    await until(pilot, lambda: isinstance(app.screen, ChatScreen))
                    await sees(pilot, "about apples")
                    await until(pilot, lambda: screen_of(pilot).chat.is_open)
                    await left(pilot)
                else:
                    notes = app._notifications
                    await until(pilot, lambda: any("no model is configured" in note.message for note in notes))
                    await until(pilot, lambda: isinstance(app.screen, SessionsScreen))

    asyncio.run(run())
