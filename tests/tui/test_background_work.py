"""Background work of the terminal UI: no key waits for it, and no action is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from textual.pilot import Pilot

from sessiontree.app.actions.contract import ActionPlan, Description, Done
from sessiontree.app.workbench import Workbench
from sessiontree.tui.action_flow import ActionScreen
from sessiontree.tui.app import SessionTreeApp
from tests.tui.conftest import Running, settle, until
from tests.tui.test_sessions_screen import LOGIN, screen_of, titles


class SlowPlan(ActionPlan[None]):
    """An action that waits for a signal, and then fails."""

    action = "slow"

    def __init__(self) -> None:
        super().__init__()
        self.is_started, self.may_end = threading.Event(), threading.Event()

    def describe(self) -> Description:
        return Description(self.action, "a slow action")

    def _carry_out(self) -> Done[None]:
        self.is_started.set()
        assert self.may_end.wait(60)
        raise OSError("the disk is full")


def notes(pilot: Pilot[Any]) -> str:
    return "\n".join(note.message for note in pilot.app._notifications)


def test_an_action_is_not_lost_when_another_one_starts_and_its_error_is_shown(
    running: Running, workbench: Workbench
) -> None:
    slow = SlowPlan()

    async def run() -> None:
        async with running() as pilot:
            await pilot.press("down", "home")
            screen = screen_of(pilot)
            assert isinstance(screen, ActionScreen)
            screen.carry_out(slow)
            await until(pilot, slow.is_started.is_set)
            await pilot.press("p")
            await pilot.press("number_sign", *"wip", "enter")
            slow.may_end.set()
            await until(pilot, lambda: "the disk is full" in notes(pilot))
            await until(pilot, lambda: all(workbench.read_tags()))
            tags, pinned = workbench.read_tags()
            assert (list(tags.values()), len(pinned)) == ([("wip",)], 1)
            await until(pilot, lambda: len(screen._undo_plans) == 2)
            await pilot.press("u", "u")
            await until(pilot, lambda: not any(workbench.read_tags()))

    asyncio.run(run())


def test_an_error_after_the_screens_have_closed_is_kept_for_the_command_line(
    running: Running, workbench: Workbench
) -> None:
    slow = SlowPlan()
    apps: list[SessionTreeApp] = []

    async def run() -> None:
        async with running() as pilot:
            assert isinstance(pilot.app, SessionTreeApp)
            apps.append(pilot.app)
            screen_of(pilot).carry_out(slow)
            await until(pilot, slow.is_started.is_set)
            pilot.app.exit()
        slow.may_end.set()

    asyncio.run(run())
    assert apps[0].late_errors == ["the disk is full"]


def test_a_scan_that_takes_long_delays_no_key(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    workbench.library.refresh()
    may_end = threading.Event()

    def follow() -> Iterator[object]:
        assert may_end.wait(60)
        yield from ()

    monkeypatch.setattr(workbench.library.snapshot(), "follow", follow)

    async def run() -> None:
        app = SessionTreeApp(workbench, everywhere=True)
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.press(*"flaky")
            assert titles(pilot) == [LOGIN]
            await pilot.press("escape", "down", "down", "s")
            assert len(titles(pilot)) == 6
            assert screen_of(pilot)._is_scanning
            may_end.set()
            await until(pilot, lambda: not screen_of(pilot)._is_scanning)
            await settle(pilot)

    asyncio.run(run())
