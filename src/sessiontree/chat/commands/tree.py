"""/commands for the session tree: jump, switch, merge, compare, label, compact."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from sessiontree.app.actions.compact import plan_compact
from sessiontree.app.actions.diff import plan_diff
from sessiontree.app.actions.merge import plan_merge
from sessiontree.app.summaries import summary_options
from sessiontree.branches.list import list_branches
from sessiontree.chat.styles import DIM, RED
from sessiontree.errors import UsageError
from sessiontree.explore.branch_labels import find_branch_marks, find_marks
from sessiontree.views.branches import draw_branches
from sessiontree.views.diff import draw_diff
from sessiontree.views.graph import gist
from sessiontree.views.text import one_line, plural, short_entry_id
from sessiontree.views.tree_drawing import draw_tree
from sessiontree.views.tree_rows import TreeRows

if TYPE_CHECKING:
    from sessiontree.agent.controller import Selected
    from sessiontree.chat.base_chat import BaseChat
    from sessiontree.session.session import Session


async def tree(chat: BaseChat, rest: str) -> None:
    if not rest and await chat.browse_tree():
        return
    controller = chat.controller
    entry = controller.session.find_entry(rest) if rest else await _choose_node(chat)
    if entry is None:
        return
    _print_current(chat, await controller.select(entry, summary=await _choose_summary(chat)))


def _print_current(chat: BaseChat, selected: Selected) -> None:
    screen = chat.screen
    screen.line(f"· now {current_entry(chat.controller.session, selected.leaf)}", DIM)
    if selected.summary is not None:
        screen.line("· added a summary of the branch you left", DIM)
    screen.lines((f"· {one_line(report)}" for report in selected.reports), RED)


async def _choose_summary(chat: BaseChat) -> bool | str:
    """Ask whether to summarize the branch being left; a string is what the summary focuses on."""
    if chat.controller.settings.branch_summary.skip_prompt:
        return False
    answer = (await chat.ask_text("Summarize the branch you are leaving? [y/N, or type what to focus on]")).strip()
    match answer.lower():
        case "" | "n" | "no":
            return False
        case "y" | "yes":
            return True
        case _:
            return answer


async def _choose_node(chat: BaseChat) -> str | None:
    screen, session = chat.screen, chat.controller.session
    found = await asyncio.to_thread(lambda: TreeRows(session, find_marks(session), folds=False))
    if not found:
        raise UsageError("no messages yet")
    # One row per node, and empty rows between trees.
    rows = [row for row in draw_tree(found, screen.width - 4) if row]
    chosen = await chat.choose(rows, "Jump to", "; choosing a prompt goes to just before it:")
    return None if chosen is None else found.id_of(chosen)


def current_entry(session: Session, leaf: str | None) -> str:
    return "before the first message" if leaf is None else f"at {short_entry_id(leaf, session.id_prefixes)}"


async def branch(chat: BaseChat, rest: str) -> None:
    if not rest:
        _show_branches(chat)
        return
    entry, _, label = rest.partition(" ")
    leaf = await chat.controller.branch(entry, label.strip() or None)
    chat.screen.line(f"· now {current_entry(chat.controller.session, leaf)}; the next message starts a branch", DIM)


def _show_branches(chat: BaseChat) -> list[str]:
    session = chat.controller.session
    branches = list_branches(session)
    texts = [gist(entry) for entry in session.entries([branch.leaf for branch in branches])]
    marks = find_branch_marks(session, branches)
    chat.screen.lines(draw_branches(branches, texts, chat.screen.width, time.time(), session.id_prefixes, marks))
    return [branch.leaf for branch in branches]


async def _choose_branch(chat: BaseChat, question: str) -> str | None:
    """Let the user choose another branch; returns its last entry."""
    session = chat.controller.session
    others = [branch for branch in list_branches(session) if not branch.is_active]
    if not others:
        raise UsageError("no other branches; /tree jumps to any message, and your next message starts one")
    entries = session.entries([branch.leaf for branch in others])
    marks = {leaf: mark.texts[0] for leaf, mark in find_branch_marks(session, others).items()}
    names = [one_line(branch.name or "") or marks.get(branch.leaf, "") for branch in others]
    rows = [
        f"{short_entry_id(branch.leaf, session.id_prefixes)}  {name}  {gist(entry)}"
        for branch, name, entry in zip(others, names, entries, strict=True)
    ]
    chosen = await chat.choose(rows, question)
    return None if chosen is None else others[chosen].leaf


async def switch(chat: BaseChat, rest: str) -> None:
    """Switch to another branch. If the target continues the current branch, there is nothing to summarize."""
    wanted = rest or await _choose_branch(chat, "Which branch?")
    if wanted is None:
        return
    session = chat.controller.session
    is_ahead = session.leaf is None or session.common_ancestor(session.leaf, session.find_entry(wanted)) == session.leaf
    summary = False if is_ahead else await _choose_summary(chat)
    _print_current(chat, await chat.controller.switch(wanted, summary=summary))


async def merge_in(chat: BaseChat, rest: str) -> None:
    controller, session = chat.controller, chat.controller.session
    wanted = session.find_entry(rest) if rest else await _choose_branch(chat, "Merge which branch?")
    if wanted is None:
        return
    options = summary_options(controller.settings, summarizer=controller.summarizer())
    plan = await controller.plan(lambda: plan_merge(session, wanted, options=options))
    done = (await controller.carry_out(plan)).result
    if done.nothing is not None or done.entry is None:
        chat.screen.line(f"· {one_line(done.nothing or 'nothing to merge')}", DIM)
        return
    chat.screen.line(
        f"· summarized {plural(done.messages, 'message')} at {short_entry_id(done.entry, session.id_prefixes)}", DIM
    )
    chat.screen.lines((f"· conflict: {one_line(conflict.text)}" for conflict in done.conflicts), RED)
    chat.screen.lines((f"· {one_line(note)}" for note in done.notes), RED)


async def compare(chat: BaseChat, rest: str) -> None:
    session = chat.controller.session
    one, _, other = rest.partition(" ")
    first = session.find_entry(one) if other else session.leaf
    wanted = other.strip() or one
    second = session.find_entry(wanted) if wanted else await _choose_branch(chat, "Compare with which branch?")
    if first is None or second is None:
        return
    plan = await asyncio.to_thread(plan_diff, session, first, second)
    chat.screen.lines(draw_diff(plan.found, chat.screen.width, str, str))


async def label(chat: BaseChat, rest: str) -> None:
    controller = chat.controller
    if not rest:
        labels, ids = controller.session.labels.items(), controller.session.id_prefixes
        if not labels:
            chat.screen.line("· no labels yet; /label TEXT labels this message", DIM)
        chat.screen.lines(f"{short_entry_id(id, ids)}  {one_line(label)}" for id, label in labels)
        return
    text, _, entry = rest.rpartition("@") if " @" in rest else (rest, "", "")
    await controller.label(text.strip() or None, entry or None)
    chat.screen.line(f"· labeled {one_line(text)}" if text.strip() else "· label removed", DIM)


async def name(chat: BaseChat, rest: str) -> None:
    await chat.controller.rename(rest or None)
    chat.screen.line(f"· {one_line(chat.controller.state.title) or 'no name'}", DIM)


async def compact_older(chat: BaseChat, rest: str) -> None:
    controller, summarizer = chat.controller, chat.controller.summarizer()
    plan = await controller.plan(
        lambda: plan_compact(controller.session, controller.settings, instructions=rest or None, summarizer=summarizer)
    )
    done = (await controller.carry_out(plan)).result
    size = f"{done.tokens_before:,} -> {done.tokens_after:,} tokens"
    chat.screen.line(f"· summarized {plural(len(done.plan.summarized), 'message')}: {size}", DIM)
    chat.screen.lines((f"· {one_line(report)}" for report in done.reports), RED)
    chat.show_preview(done.summary)
