"""Session content that attacks a terminal leaves the list, the preview, the tree and the entry beside it intact."""

from __future__ import annotations

import asyncio
import unicodedata
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

import sessiontree
from sessiontree.tui.rendered_panel import RenderedPanel
from sessiontree.tui.tree import TreeScreen
from tests.tui.conftest import Running, settle, until
from tests.tui.snapshots import capture

NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2066 速い👩‍👩‍👧 é\u200b\r\b\x00 [bold]markup[/] # *x* "
LONG = "word " * 200_000


def write_hostile_session(home: Path) -> None:
    """Make a native session the newest one, with hostile text wherever text can be."""
    (path,) = (home / ".local" / "share" / "sessiontree").rglob("*.jsonl")
    with sessiontree.open(path) as session:
        session.rename(NASTY)
        prompt = session.append("user", NASTY + LONG)
        call = {"type": "toolCall", "id": "c1", "name": NASTY, "arguments": {"path": NASTY, "content": NASTY + LONG}}
        thinking = {"type": "thinking", "thinking": NASTY}
        content: list[Any] = [thinking, {"type": "text", "text": f"# {NASTY}\n\n```\n{NASTY}\n```\n" + LONG}, call]
        session.append("assistant", content)
        session.append("toolResult", NASTY + LONG, toolCallId="c1", toolName=NASTY)
        session.append("user", "x" * 1_000_000)
        session.label(prompt.id, NASTY)


def check_screen(pilot: Pilot[Any]) -> str:
    """All rows have the width of the terminal, and no character can control it."""
    width = pilot.app.size.width
    captured = capture(pilot.app)
    assert all(sum(run[1] for run in row) == width for row in captured.styles)
    text = "\n".join(captured.rows)
    assert not [mark for mark in text if mark != "\n" and unicodedata.category(mark) in ("Cc", "Cs")]
    assert not set(text) & set("\u202e\u2066\u202a\u200e")
    return text


async def is_painted(pilot: Pilot[Any]) -> None:
    for panel in pilot.app.screen.query(RenderedPanel):
        await until(pilot, lambda panel=panel: panel.is_done)  # type: ignore[misc]
    await settle(pilot)


def test_control_sequences_long_lines_and_wide_characters_leave_every_screen_intact(
    running: Running, home: Path
) -> None:
    write_hostile_session(home)

    async def run() -> None:
        async with running((120, 30), everywhere=True) as pilot:
            await pilot.press("down", "home")
            await is_painted(pilot)
            assert "␛[2J" in check_screen(pilot)
            await pilot.press("t")
            await until(pilot, lambda: isinstance(pilot.app.screen, TreeScreen) and pilot.app.screen._source)
            for _ in range(6):
                await pilot.press("up")
                await is_painted(pilot)
                check_screen(pilot)
            await pilot.press("slash", *"owned", "enter", "L")
            await settle(pilot)
            check_screen(pilot)

    asyncio.run(run())
