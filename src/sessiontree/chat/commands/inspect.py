"""/words that look at something and change nothing."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from sessiontree.chat.commands.tree import standing
from sessiontree.chat.terminal import BOLD, DIM, GREEN, RED
from sessiontree.core.ids import is_session_id
from sessiontree.errors import ExistsError, UsageError
from sessiontree.export import FORMATS, export
from sessiontree.library import Library
from sessiontree.repair import examine
from sessiontree.search import search
from sessiontree.search.prompt_history import PromptHistory
from sessiontree.settings import load_settings
from sessiontree.settings.keys import render_key
from sessiontree.settings.known import iter_settings
from sessiontree.stores.atomic_files import create_file
from sessiontree.views.listing import age, short_ids
from sessiontree.views.search_results import draw_place, draw_session, draw_snippet, grouped
from sessiontree.views.text import clean, cut, one_line

if TYPE_CHECKING:
    from sessiontree.chat.conversation import Conversation

_SHOWN = 20
_ENDINGS = {".md": "md", ".html": "html", ".json": "json", ".jsonl": "jsonl", ".txt": "text"}


async def usage(talk: Conversation, _: str) -> None:
    used = talk.controller.session.usage()
    rows = {
        "requests": f"{used.requests:,}",
        "input": f"{used.input:,} tokens, {used.cached:,} more from the cache",
        "output": f"{used.output:,} tokens",
        "cost": f"${used.cost:.4f}, as far as prices are known",
    }
    talk.screen.lines(f"{name:10} {value}" for name, value in rows.items())


async def show(talk: Conversation, _: str) -> None:
    talk.show_session()
    session = talk.controller.session
    counts = f"entries: {len(session):,}, branches: {len(session.leaves())}"
    talk.screen.line(f"· {counts} · stands {standing(session.leaf)} · {clean(session.location)}", DIM)


async def history(talk: Conversation, rest: str) -> None:
    with PromptHistory(talk.controller.home) as history:
        found = history.search(rest, here=None if rest else talk.controller.cwd, limit=_SHOWN)
    now = time.time()
    rows = (f"{age(one.time, now):>5}  {one_line(one.prompt)}" for one in found)
    talk.screen.lines(cut(row, talk.screen.width) for row in rows)
    if not found:
        talk.screen.line("· no prompt of the history fits", DIM)


async def find(talk: Conversation, rest: str) -> None:
    if not rest:
        raise UsageError("/search needs words to look for")
    screen, now = talk.screen, time.time()
    with Library(talk.controller.home) as library:
        hits = list(search(library, rest, limit=_SHOWN))
        ids = short_ids(library.everything())
    for one, found in grouped(hits):
        title, facts = draw_session(one, screen.width, now, ids.get(one.path, one.id))
        screen.line(f"{title}  {facts}", BOLD)
        for hit in found:
            place, notes = draw_place(hit, now)
            screen.line(f"  {place} {notes}".rstrip(), DIM)
            screen.line(f"    {draw_snippet(hit.snippet, screen.width - 4, str)}")
    if not hits:
        screen.line("· nothing was found", DIM)


async def write_document(talk: Conversation, rest: str) -> None:
    session = talk.controller.session
    # Its id comes out of a file, and may be anything.
    name = f"session-{session.id[:8]}.html" if is_session_id(session.id) else "session.html"
    path = os.path.join(talk.controller.cwd, os.path.expanduser(rest) if rest else name)
    ending = os.path.splitext(path)[1].lower()
    format = next((one for one in FORMATS if _ENDINGS.get(ending) == one), None)
    if format is None:
        raise UsageError(f"{path}: what to write is told by the ending: {', '.join(_ENDINGS)}")
    if os.path.lexists(path):
        raise ExistsError(f"{path}: there is a file already; it was not touched")
    await asyncio.to_thread(create_file, path, export(session, format))
    talk.screen.line(f"· {clean(path)}", DIM)


async def doctor(talk: Conversation, _: str) -> None:
    session = talk.controller.session
    findings = await asyncio.to_thread(examine, session)
    for finding in findings:
        talk.screen.line(f"✗ {finding.rule.id}  {finding.count:,} ×: {one_line(finding.rule.meaning)}", RED)
    if not findings:
        talk.screen.line(f"✓ {len(session):,} entries, nothing is wrong", GREEN)


async def config(talk: Conversation, rest: str) -> None:
    loaded = load_settings(talk.controller.cwd, talk.controller.home)
    for setting in iter_settings():
        key = render_key(setting.path)
        if rest in key and setting.variable is not None:
            value: object = loaded.settings
            for name in setting.path:
                value = getattr(value, _field(name))
            where = loaded.sources.get(key)
            origin = "default" if where is None else where.where or where.layer
            talk.screen.line(cut(f"{key:36} {one_line(str(value)):16} {one_line(origin)}", talk.screen.width))


def _field(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
