"""/commands that change nothing: usage, history, search, export, doctor, config."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

from sessiontree.app.actions.export import plan_export
from sessiontree.branches.tips import count_tips
from sessiontree.chat.commands.tree import current_entry
from sessiontree.chat.styles import BOLD, DIM, GREEN, RED
from sessiontree.core.ids import is_session_id
from sessiontree.errors import UsageError
from sessiontree.library import Library
from sessiontree.models.cost_estimate import cost_total, describe_cost
from sessiontree.repair import examine
from sessiontree.search import search
from sessiontree.settings import load_settings
from sessiontree.settings.keys import render_key
from sessiontree.settings.known import iter_settings
from sessiontree.views.listing import age, short_ids
from sessiontree.views.search_results import draw_place, draw_session, draw_snippet, grouped
from sessiontree.views.text import clean, cut, one_line, plural

if TYPE_CHECKING:
    from sessiontree.chat.base_chat import BaseChat

_SHOWN = 20


async def usage(chat: BaseChat, _: str) -> None:
    used = chat.controller.session.usage()
    rows = {
        "requests": f"{used.requests:,}",
        "input": f"{used.input:,} tokens, plus {used.cached:,} cached",
        "output": f"{used.output:,} tokens",
        "cost": describe_cost(cost_total(used.cost, used.unpriced)) if used.requests else "",
    }
    chat.screen.lines(f"{name:10} {value}" for name, value in rows.items() if value)


async def show(chat: BaseChat, _: str) -> None:
    chat.show_session()
    session = chat.controller.session
    counts = f"entries: {len(session):,}, branches: {count_tips(session)}"
    chat.screen.line(f"· {counts} · {current_entry(session, session.leaf)} · {clean(session.location)}", DIM)


async def history(chat: BaseChat, rest: str) -> None:
    with chat.open_history() as history:
        found = history.search(rest, here=None if rest else chat.controller.cwd, limit=_SHOWN)
    now = time.time()
    rows = (f"{age(prompt.time, now):>5}  {one_line(prompt.prompt)}" for prompt in found)
    chat.screen.lines(cut(row, chat.screen.width) for row in rows)
    if not found:
        chat.screen.line("· no matching prompt", DIM)


async def find(chat: BaseChat, rest: str) -> None:
    if not rest:
        raise UsageError("usage: /search WORDS")
    screen, now = chat.screen, time.time()
    with Library(chat.controller.repository) as library:
        hits = list(search(library, rest, limit=_SHOWN))
        ids = short_ids(library.everything())
    for one, found in grouped(hits):
        title, facts = draw_session(one, screen.width, now, ids.get(one.ref, one.id))
        screen.line(f"{title}  {facts}", BOLD)
        for hit in found:
            place, notes = draw_place(hit, now)
            screen.line(f"  {place} {notes}".rstrip(), DIM)
            screen.line(f"    {draw_snippet(hit.snippet, screen.width - 4, str)}")
    if not hits:
        screen.line("· no match", DIM)


async def write_document(chat: BaseChat, rest: str) -> None:
    session = chat.controller.session
    # The id comes from a file, so it may not be safe in a file name.
    name = f"session-{session.id[:8]}.html" if is_session_id(session.id) else "session.html"
    path = os.path.join(chat.controller.cwd, os.path.expanduser(rest) if rest else name)
    plan = plan_export(session, path)
    await asyncio.to_thread(plan.do)
    chat.screen.line(f"· {clean(path)}", DIM)


async def doctor(chat: BaseChat, _: str) -> None:
    session = chat.controller.session
    findings = await asyncio.to_thread(examine, session)
    for finding in findings:
        chat.screen.line(f"✗ {finding.rule.id}  {finding.count:,} ×: {one_line(finding.rule.meaning)}", RED)
    if not findings:
        chat.screen.line(f"✓ {plural(len(session), 'entry', 'entries')}, no problems found", GREEN)


async def config(chat: BaseChat, rest: str) -> None:
    loaded = load_settings(chat.controller.cwd, chat.controller.home)
    for setting in iter_settings():
        key = render_key(setting.path)
        if rest in key and setting.variable is not None:
            value: object = loaded.settings
            for name in setting.path:
                value = getattr(value, _field(name))
            where = loaded.sources.get(key)
            origin = "default" if where is None else where.where or where.layer
            chat.screen.line(cut(f"{key:36} {one_line(str(value)):16} {one_line(origin)}", chat.screen.width))


def _field(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
