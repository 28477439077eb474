"""Snapshots of the screens in three sizes: dark, light and without color."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from sessiontree.tui.rendered_panel import RenderedPanel
from sessiontree.tui.sessions import SessionsScreen
from sessiontree.tui.tree import TreeScreen
from tests.tui.conftest import Running, settle, until
from tests.tui.snapshots import Capture, capture, check_snapshot


async def visit_screens(pilot: Pilot[Any]) -> AsyncIterator[str]:
    """Walk through the screens; each name is that of the screen that is shown then."""
    for box in pilot.app.screen.query(Input):
        box.cursor_blink = False
    await pilot.press("down", "home")
    yield "sessions"
    await pilot.press("question_mark")
    yield "help"
    await pilot.press("escape", "t")
    await _tree_is_shown(pilot)
    await pilot.press("home", "down", "down", "right", "space")
    yield "tree"
    await pilot.press("escape", "escape")
    await until(pilot, lambda: isinstance(pilot.app.screen, SessionsScreen))
    await settle(pilot)
    await pilot.press("down", "down", "t")
    await _tree_is_shown(pilot)
    await pilot.press("up", "up")
    yield "compaction"


async def _tree_is_shown(pilot: Pilot[Any]) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, TreeScreen) and pilot.app.screen._source is not None)


@pytest.mark.parametrize(
    "size", [(80, 24), pytest.param((120, 40), marks=pytest.mark.slow), pytest.param((200, 60), marks=pytest.mark.slow)]
)
def test_screens_look_as_before(
    running: Running, monkeypatch: pytest.MonkeyPatch, rewrite_snapshots: bool, size: tuple[int, int]
) -> None:
    for variable in ("COLORFGBG", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    found: dict[str, dict[str, Capture]] = {}

    async def run(*themes: str) -> None:
        async with running(size, everywhere=True) as pilot:
            async for screen in visit_screens(pilot):
                for theme in themes:
                    await _is_painted(pilot)
                    found.setdefault(screen, {})[theme] = capture(pilot.app)
                    if len(themes) > 1:
                        await pilot.press("f2")

    asyncio.run(run("dark", "light"))
    monkeypatch.setenv("NO_COLOR", "1")
    asyncio.run(run("no color"))
    for screen, captures in found.items():
        check_snapshot(f"{screen}-{size[0]}x{size[1]}", captures, rewrite=rewrite_snapshots)


async def _is_painted(pilot: Pilot[Any]) -> None:
    for panel in pilot.app.screen.query(RenderedPanel):
        await until(pilot, lambda panel=panel: panel.is_done)  # type: ignore[misc]
    await settle(pilot)
