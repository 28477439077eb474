"""/words that take another session in hand."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import TYPE_CHECKING

from sessiontree.app.start import find_unfinished_subagents
from sessiontree.chat.terminal import DIM
from sessiontree.chat.user_prompts import choose
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.library import Library
from sessiontree.library.threads import ThreadMember
from sessiontree.views.listing import draw_listing, short_ids
from sessiontree.views.text import one_line

if TYPE_CHECKING:
    from sessiontree.chat.conversation import Conversation

_SHOWN = 20


async def new(talk: Conversation, rest: str) -> None:
    await talk.controller.new(rest or None)
    talk.show_session()


async def resume(talk: Conversation, rest: str) -> None:
    wanted = rest or await _choose_session(talk)
    if wanted is None:
        return
    await talk.controller.resume(wanted)
    await _show_resumed(talk)
    await talk.offer_pending()


async def _choose_session(talk: Conversation) -> str | None:
    controller, screen = talk.controller, talk.screen

    def look() -> tuple[list[str], list[str]]:
        with Library(controller.home) as library:
            found = library.sessions(project=controller.cwd)[:_SHOWN]
            ids = short_ids(library.everything())
        rows = list(
            draw_listing([ThreadMember(one) for one in found], screen.width - 4, time.time(), ids, with_project=False)
        )
        return [one.path for one in found], rows

    paths, rows = await asyncio.to_thread(look)
    if not paths:
        raise NotFoundError("no session of this project was found; /resume ID takes one of any project")
    screen.line(f"    {rows[0]}", DIM)
    chosen = await choose(screen, talk.reader, rows[1:], "Which session?")
    return None if chosen is None else paths[chosen]


async def go_on(talk: Conversation, _: str) -> None:
    await talk.controller.resume_last()
    await _show_resumed(talk)
    await talk.offer_pending()


async def _show_resumed(talk: Conversation) -> None:
    notes = await find_unfinished_subagents(talk.controller)
    talk.show_session()
    for note in notes:
        talk.screen.line(f"· {note}", DIM)


async def fork_before(talk: Conversation, rest: str) -> None:
    wanted = rest or await choose_prompt(talk, "Fork before which one?")
    if wanted is None:
        return
    await talk.controller.fork(wanted)
    talk.show_session()


async def choose_prompt(talk: Conversation, question: str) -> str | None:
    """A prompt out of those on this branch, the newest first."""
    points = await asyncio.to_thread(talk.controller.fork_points)
    if not points:
        raise UsageError("nothing was said yet")
    rows = [f"{_clock(point.time)}  {one_line(point.preview)}" for point in points]
    chosen = await choose(talk.screen, talk.reader, rows, question)
    return None if chosen is None else points[chosen].id


def _clock(timestamp: str) -> str:
    try:
        return datetime.fromisoformat(timestamp).astimezone().strftime("%m-%d %H:%M")
    except ValueError:
        return " " * 11


async def clone(talk: Conversation, _: str) -> None:
    await talk.controller.clone()
    talk.show_session()
