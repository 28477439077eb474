"""/rewind: conversation, files, or both; what changes is shown first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sessiontree.agent.checkpoints import Checkpoints, RewindPlan, RewindScope, Rewound
from sessiontree.chat.commands.sessions import choose_prompt
from sessiontree.chat.commands.tree import standing
from sessiontree.chat.terminal import DIM, RED
from sessiontree.chat.user_prompts import confirm, show_diff
from sessiontree.errors import UsageError
from sessiontree.views.text import one_line

if TYPE_CHECKING:
    from sessiontree.chat.conversation import Conversation


async def rewind(talk: Conversation, rest: str) -> None:
    if rest == "undo":
        await _undo(talk)
        return
    controller, screen = talk.controller, talk.screen
    entry = rest or await choose_prompt(talk, "Rewind to before which one?")
    if entry is None:
        return
    plan = await controller.plan_rewind(entry)
    _show_plan(talk, plan)
    what = await _choose_what(talk)
    if what is None:
        screen.line("· nothing was done", DIM)
        return
    overwrite = await _choose_overwrites(talk, plan) if what != "conversation" else []
    _show_rewound(talk, await controller.rewind(plan, what, overwrite))


async def _undo(talk: Conversation) -> None:
    controller = talk.controller
    blobs = controller.session.journal.blobs
    if blobs is None:
        raise UsageError("this session keeps no contents of files")
    plan = await asyncio.to_thread(Checkpoints(controller.session, controller.workspace, blobs).plan_undo)
    _show_plan(talk, plan)
    if await confirm(talk.reader, "Undo the last rewind?"):
        _show_rewound(talk, await controller.undo_rewind(await _choose_overwrites(talk, plan)))


def _show_plan(talk: Conversation, plan: RewindPlan) -> None:
    screen = talk.screen
    if not plan.changes:
        screen.line("· no file would change", DIM)
    show_diff(screen, plan.diff) if plan.diff else None
    screen.lines((f"· cannot be brought back: {one_line(lost)}" for lost in plan.lost), RED)


async def _choose_what(talk: Conversation) -> RewindScope | None:
    while True:
        answer = await talk.reader.ask("Rewind [c]onversation, [f]iles, or [b]oth? Nothing leaves it:")
        match answer.strip().lower():
            case "c" | "conversation":
                return "conversation"
            case "f" | "files":
                return "files"
            case "b" | "both":
                return "both"
            case "":
                return None
            case _:
                talk.screen.line("c, f, b or nothing")


async def _choose_overwrites(talk: Conversation, plan: RewindPlan) -> list[str]:
    """The files among those with a conflict that are to be overwritten all the same."""
    return [
        change.path
        for change in plan.conflicts
        if await confirm(talk.reader, f"{one_line(change.shown)}: {one_line(change.conflict or '')}. Overwrite it?")
    ]


def _show_rewound(talk: Conversation, done: Rewound) -> None:
    screen = talk.screen
    files = ", ".join(map(one_line, done.restored)) or "no file"
    screen.line(f"· {files} brought back; stands {standing(done.leaf)} (/rewind undo takes it back)", DIM)
    screen.lines((f"· left as it is: {one_line(path)}" for path in done.skipped), RED)
    screen.lines((f"✗ {one_line(problem)}" for problem in done.failed), RED)
