"""/rewind: the conversation, files, or both. The changes are shown first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.agent.checkpoints import RewindPlan, RewindScope, Rewound
from sessiontree.app.actions.rewind import RewindAction, plan_rewind, plan_undo_rewind
from sessiontree.chat.commands.sessions import choose_prompt
from sessiontree.chat.commands.tree import current_entry
from sessiontree.chat.styles import DIM, RED
from sessiontree.views.text import one_line

if TYPE_CHECKING:
    from sessiontree.chat.base_chat import BaseChat


async def rewind(chat: BaseChat, rest: str) -> None:
    if rest == "undo":
        await _undo(chat)
        return
    if not rest and await chat.browse_rewinds():
        return
    controller, screen = chat.controller, chat.screen
    entry = rest or await choose_prompt(chat, "Rewind to just before which prompt?")
    if entry is None:
        return
    session, workspace = controller.session, controller.workspace
    action = await controller.plan(lambda: plan_rewind(session, workspace, session.find_entry(entry)))
    plan = action.expected
    _show_plan(chat, plan)
    scope = await _choose_scope(chat)
    if scope is None:
        screen.line("· cancelled", DIM)
        return
    await carry_out(chat, action, scope)


async def carry_out(chat: BaseChat, action: RewindAction, scope: RewindScope) -> None:
    """Carry out a rewind, after asking which conflicting files to overwrite. Its prompt returns to the input."""
    plan = action.expected
    overwrite = await _choose_overwrites(chat, plan) if scope != "conversation" else []
    prompt = plan.entry if plan.text is not None and scope != "files" else None
    done = await chat.controller.carry_out(action.choose(scope, overwrite), prompt=prompt)
    _show_rewound(chat, done.result)


async def _undo(chat: BaseChat) -> None:
    controller = chat.controller
    action = await controller.plan(lambda: plan_undo_rewind(controller.session, controller.workspace))
    _show_plan(chat, action.expected)
    if await chat.confirm("Undo the last rewind?"):
        await carry_out(chat, action, "both")


def _show_plan(chat: BaseChat, plan: RewindPlan) -> None:
    screen = chat.screen
    if not plan.changes:
        screen.line("· no file would change", DIM)
    chat.show_diff(plan.diff) if plan.diff else None
    screen.lines((f"· cannot be restored: {one_line(lost)}" for lost in plan.lost), RED)


async def _choose_scope(chat: BaseChat) -> RewindScope | None:
    while True:
        answer = await chat.ask_text("Rewind [c]onversation, [f]iles, or [b]oth? [Enter to cancel]")
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
                chat.screen.line("type c, f, b or Enter")


async def _choose_overwrites(chat: BaseChat, plan: RewindPlan) -> list[str]:
    """Ask which conflicting files to overwrite."""
    return [
        change.path
        for change in plan.conflicts
        if await chat.confirm(f"{one_line(change.shown)}: {one_line(change.conflict or '')}. Overwrite it?")
    ]


def _show_rewound(chat: BaseChat, done: Rewound) -> None:
    screen = chat.screen
    files = ", ".join(map(one_line, done.restored)) or "no files"
    screen.line(
        f"· restored {files}; now {current_entry(chat.controller.session, done.leaf)} (/rewind undo reverts this)", DIM
    )
    screen.lines((f"· not changed: {one_line(path)}" for path in done.skipped), RED)
    screen.lines((f"✗ {one_line(problem)}" for problem in done.failed), RED)
