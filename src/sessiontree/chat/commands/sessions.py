"""/commands that switch to another session."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING

from sessiontree.app.start import find_unfinished_subagents
from sessiontree.chat.styles import DIM
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.library import Library
from sessiontree.library.threads import ThreadMember
from sessiontree.views.listing import draw_listing, short_ids
from sessiontree.views.text import one_line

if TYPE_CHECKING:
    from sessiontree.chat.base_chat import BaseChat

_SHOWN = 20


async def new(chat: BaseChat, rest: str) -> None:
    await chat.controller.new(rest or None)
    chat.show_session()


async def resume(chat: BaseChat, rest: str) -> None:
    wanted = rest or await chat.choose_session()
    if wanted is None:
        return
    await chat.controller.resume(wanted)
    await _show_resumed(chat)
    await chat.resolve_pending()


async def choose_from_list(chat: BaseChat) -> str | None:
    """Let the user choose from a list of this project's newest sessions; returns its reference."""
    controller, screen = chat.controller, chat.screen

    def look() -> tuple[list[str], list[str]]:
        with Library(controller.repository) as library:
            found = library.sessions(project=controller.cwd)[:_SHOWN]
            ids = short_ids(library.everything())
        rows = list(
            draw_listing(
                [ThreadMember(summary) for summary in found], screen.width - 4, time.time(), ids, with_project=False
            )
        )
        return [summary.ref for summary in found], rows

    paths, rows = await asyncio.to_thread(look)
    if not paths:
        raise NotFoundError("no sessions for this project; /resume ID resumes one of another project")
    screen.line(f"    {rows[0]}", DIM)
    chosen = await chat.choose(rows[1:], "Which session?")
    return None if chosen is None else paths[chosen]


async def continue_last(chat: BaseChat, _: str) -> None:
    await chat.controller.resume_last()
    await _show_resumed(chat)
    await chat.resolve_pending()


async def _show_resumed(chat: BaseChat) -> None:
    notes = await find_unfinished_subagents(chat.controller)
    chat.show_session()
    for note in notes:
        chat.screen.line(f"· {note}", DIM)


async def fork_before(chat: BaseChat, rest: str) -> None:
    wanted = rest or await choose_prompt(chat, "Fork just before which prompt?")
    if wanted is None:
        return
    await chat.controller.fork(wanted)
    chat.show_session()


async def choose_prompt(chat: BaseChat, question: str) -> str | None:
    """Let the user choose a prompt of this branch; the newest is first."""
    points = await asyncio.to_thread(chat.controller.fork_points)
    if not points:
        raise UsageError("no messages yet")
    rows = [f"{_clock(point.time)}  {one_line(point.preview)}" for point in points]
    chosen = await chat.choose(rows, question)
    return None if chosen is None else points[chosen].id


def _clock(timestamp: str) -> str:
    try:
        return datetime.fromisoformat(timestamp).astimezone().strftime("%m-%d %H:%M")
    except ValueError:
        return " " * 11


async def clone(chat: BaseChat, _: str) -> None:
    await chat.controller.clone()
    chat.show_session()
