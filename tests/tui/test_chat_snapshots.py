"""Snapshots of the chat, of its approval menu and of the explore board: dark, light and without color."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sessiontree.models.scripted import ScriptTurn
from sessiontree.tui.chat_dialogs import ApprovalDialog
from sessiontree.tui.chat_status import status_text
from tests.chat.terminals import Place, call, scripted, turn
from tests.tui import test_explore_board
from tests.tui.chats import Chat, idle, screen_of, sees, sent
from tests.tui.conftest import until
from tests.tui.snapshots import Capture, capture, check_snapshot

SIZES = [(80, 24), pytest.param((120, 40), marks=pytest.mark.slow), pytest.param((200, 60), marks=pytest.mark.slow)]
Take = Callable[[Pilot[Any], str], Awaitable[None]]

MARKDOWN = """# The lexer

It reads *one* token at a time:

```python
def tokens(text: str) -> list[str]:
    return text.split()
```

1. names
2. numbers

| token | kind |
|-------|------|
| `x`   | name |
"""


@pytest.fixture(autouse=True)
def _same_on_every_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing on the screen depends on the clock, on a folder or on the terminal."""
    for variable in ("COLORFGBG", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sessiontree.tui.chat_blocks._seconds", lambda *_: "")
    for module in ("start", "exploration"):
        monkeypatch.setattr(f"sessiontree.app.{module}.build_system_prompt", lambda *_: "You are a coding agent.")
    monkeypatch.setattr("sessiontree.tui.explore_board.duration", lambda _: "1s")
    monkeypatch.setattr("sessiontree.tui.chat_events.describe_usage", lambda *_, **__: "the usage of the run")
    monkeypatch.setattr("sessiontree.tui.chat.status_text", lambda *facts, **_: status_text(*facts))

    def named(place: Place, *turns: ScriptTurn) -> str:
        kind, _, path = scripted(place, *turns).partition(":")
        monkeypatch.chdir(place.project)
        return f"{kind}:{os.path.relpath(path)}"

    monkeypatch.setattr("tests.tui.chats.scripted", named)


def check(
    make: Callable[[Path], Chat],
    turns: Sequence[ScriptTurn],
    steps: Callable[[Pilot[Any], Take], Awaitable[None]],
    size: tuple[int, int],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    rewrite: bool,
) -> None:
    """Run a chat twice, with and without color, and compare what it shows."""
    found: dict[str, dict[str, Capture]] = {}
    for themes in (("dark", "light"), ("no color",)):
        if len(themes) == 1:
            monkeypatch.setenv("NO_COLOR", "1")

        async def take(pilot: Pilot[Any], name: str, themes: tuple[str, ...] = themes) -> None:
            for theme in themes:
                await settle_screen(pilot)
                found.setdefault(name, {})[theme] = capture(pilot.app)
                if len(themes) > 1:
                    await pilot.press("f2")

        shutil.rmtree(folder / "chat", ignore_errors=True)
        (folder / "chat").mkdir()
        chat = make(folder / "chat")
        monkeypatch.setenv("SESSIONTREE_HOME", str(chat.place.home))
        chat.run(turns, lambda pilot, take=take: steps(pilot, take), size=size)  # type: ignore[misc]
    for name, captures in found.items():
        check_snapshot(f"{name}-{size[0]}x{size[1]}", captures, rewrite=rewrite)


async def settle_screen(pilot: Pilot[Any]) -> None:
    await pilot.pause()
    await pilot.pause()


@pytest.mark.parametrize("size", SIZES)
def test_the_chat_looks_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite_snapshots: bool, size: tuple[int, int]
) -> None:
    def make(folder: Path) -> Chat:
        place = Place(folder)
        (place.project / "notes.txt").write_text("alpha\nbeta\n")
        return Chat(place)

    async def steps(pilot: Pilot[Any], take: Take) -> None:
        screen_of(pilot).editor.cursor_blink = False
        await sent(pilot, "what does the lexer do?")
        await sees(pilot, "x      name")
        await idle(pilot)
        await until(pilot, lambda: "tokens" in screen_of(pilot)._status_row._text)
        await take(pilot, "chat")
        await sent(pilot, "write a file")
        await until(pilot, lambda: isinstance(pilot.app.screen, ApprovalDialog) and pilot.app.screen.is_ready)
        await take(pilot, "approval")
        await pilot.press("y")
        await sees(pilot, "Written.")
        await idle(pilot)

    read = turn("I look at the notes first.", call("read", path="notes.txt"))
    write = turn("", call("write", path="x.txt", content="one\ntwo\n"))
    turns = [read, turn(MARKDOWN), write, turn("Written.")]
    check(make, turns, steps, size, tmp_path, monkeypatch, rewrite_snapshots)


@pytest.mark.parametrize("size", SIZES)
def test_the_explore_board_looks_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite_snapshots: bool, size: tuple[int, int]
) -> None:
    async def steps(pilot: Pilot[Any], take: Take) -> None:
        screen_of(pilot).editor.cursor_blink = False
        await sent(pilot, '/explore 2 "write a file"')
        screen = await test_explore_board.board(pilot)
        await until(pilot, lambda: all("1 file +1 -0" in text for text in test_explore_board.columns(screen)))
        await until(pilot, lambda: all("done" in text for text in test_explore_board.columns(screen)))
        await pilot.press("right", "space")
        await take(pilot, "explore")
        await pilot.press("escape")
        await idle(pilot)

    def make(folder: Path) -> Chat:
        return test_explore_board.chat_in_repository(folder)

    check(make, test_explore_board.TURNS, steps, size, tmp_path, monkeypatch, rewrite_snapshots)
