"""The board of an exploration in the chat on the screen."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets._footer import FooterKey

from sessiontree.compaction.prompts import CARE
from sessiontree.tui.explore_board import DiffScreen, ExploreScreen, LaneColumn, LaneScreen
from tests.chat.terminals import Place, call, turn
from tests.tui.chats import Chat, idle, sees, sent
from tests.tui.conftest import until


@pytest.fixture
def chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chat:
    chat = chat_in_repository(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SESSIONTREE_HOME", str(chat.place.home))
    return chat


def chat_in_repository(folder: Path) -> Chat:
    """A chat in a project with a commit."""
    place = Place(folder)
    (place.project / "a.txt").write_text("a\n")
    for command in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "start"],
    ):
        subprocess.run(["git", *command], cwd=place.project, check=True)
    return Chat(place)


async def board(pilot: Pilot[Any], lanes: int = 2) -> ExploreScreen:
    """Wait until the lanes have ended and can be decided about."""

    def is_ready() -> bool:
        screen = pilot.app.screen
        return isinstance(screen, ExploreScreen) and screen._decider is not None and len(screen._results) == lanes

    await until(pilot, is_ready)
    screen = pilot.app.screen
    assert isinstance(screen, ExploreScreen)
    return screen


TURNS = (turn("", call("write", path="x.txt", content="one\n")), turn("Written."))


def columns(screen: ExploreScreen) -> list[str]:
    return [str(column.content) for column in screen.query(LaneColumn)]


def test_a_lane_is_opened_compared_and_kept(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, '/explore 2 "write a file"')
        screen = await board(pilot)
        await until(pilot, lambda: all("1 file +1 -0" in text for text in columns(screen)))
        await until(pilot, lambda: all("done" in text and "tokens" in text for text in columns(screen)))
        await pilot.press("right", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, LaneScreen))
        lane = pilot.app.screen
        assert isinstance(lane, LaneScreen)
        await until(pilot, lambda: "Written." in lane.transcript.visible_text())
        await pilot.press("escape", "d")
        await until(pilot, lambda: isinstance(pilot.app.screen, DiffScreen))
        await pilot.press("escape", "k")
        await sees(pilot, "kept: 2")
        await idle(pilot)
        await sees(pilot, "Written.")
        assert (chat.place.project / "x.txt").read_text() == "one\n"

    chat.run(TURNS, steps)


@pytest.mark.slow
def test_lanes_are_dropped_decided_about_later_and_merged(chat: Chat) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, '/explore 3 "write a file"')
        screen = await board(pilot, 3)
        await pilot.press("x")
        await until(pilot, lambda: "(dropped)" in columns(screen)[0])
        await pilot.press("escape")
        await sees(pilot, "decide later with /explore")
        await idle(pilot)
        await sent(pilot, "/explore")
        await board(pilot, 3)
        await pilot.press("right", "space", "right", "space", "m")
        await sees(pilot, "merged: 2, 3")
        await idle(pilot)

    chat.run([turn("A summary.", when=CARE, repeat=True), *TURNS], steps)


def footer(pilot: Pilot[Any]) -> list[str]:
    """The labels of the keys that are shown."""
    return [key.description for key in pilot.app.screen.query(FooterKey)]


def test_running_lanes_are_watched_live_and_stopped(chat: Chat) -> None:
    slow = turn("word " * 4_000, delay=0.02, piece=5)

    async def steps(pilot: Pilot[Any]) -> None:
        await sent(pilot, '/explore 2 "go"')

        def is_running() -> bool:
            screen = pilot.app.screen
            return isinstance(screen, ExploreScreen) and sum("word" in text for text in columns(screen)) == 2

        await until(pilot, is_running)
        assert "Stop" in footer(pilot)
        assert "Keep" not in footer(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, LaneScreen))
        lane = pilot.app.screen
        assert isinstance(lane, LaneScreen)
        await until(pilot, lambda: "word word" in lane.transcript.visible_text())
        await pilot.press("escape", "S")
        screen = await board(pilot)
        await until(pilot, lambda: sum("stopped" in text for text in columns(screen)) == 2)
        await until(pilot, lambda: "Keep" in footer(pilot))
        assert "Stop" not in footer(pilot)
        await pilot.press("escape")
        await idle(pilot)

    chat.run([slow], steps)
