"""/words for the tree of a session: going to another place, bringing branches together, naming."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from sessiontree.branches.diff import diff
from sessiontree.branches.list import list_branches
from sessiontree.branches.merge import merge
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.chat.terminal import DIM, RED
from sessiontree.chat.user_prompts import choose
from sessiontree.errors import UsageError
from sessiontree.explore.branch_labels import find_branch_marks, find_marks
from sessiontree.models.model_summarizer import summarizer_for
from sessiontree.views.branches import draw_branches
from sessiontree.views.diff import draw_diff
from sessiontree.views.graph import build_graph, draw, gist
from sessiontree.views.text import clean, one_line

if TYPE_CHECKING:
    from sessiontree.agent.controller import Selected
    from sessiontree.chat.conversation import Conversation
    from sessiontree.chat.terminal import Screen


async def tree(talk: Conversation, rest: str) -> None:
    controller, screen = talk.controller, talk.screen
    entry = controller.session.find_entry(rest) if rest else await _choose_node(talk)
    if entry is None:
        return
    _show_standing(screen, await controller.select(entry, summary=await _choose_summary(talk)))


def _show_standing(screen: Screen, selected: Selected) -> None:
    screen.line(f"· stands {standing(selected.leaf)}", DIM)
    if selected.summary is not None:
        screen.line("· what was done on the branch that was left is summarised here", DIM)


async def _choose_summary(talk: Conversation) -> bool | str:
    """Whether the branch that is left shall be summarised; a text says what the summary shall keep."""
    if talk.controller.settings.branch_summary.skip_prompt:
        return False
    answer = (await talk.reader.ask("Summarise the branch that is left? [y/N], or what to keep above all:")).strip()
    match answer.lower():
        case "" | "n" | "no":
            return False
        case "y" | "yes":
            return True
        case _:
            return answer


async def _choose_node(talk: Conversation) -> str | None:
    screen, session = talk.screen, talk.controller.session
    nodes = await asyncio.to_thread(lambda: build_graph(session, marks=find_marks(session)))
    if not nodes:
        raise UsageError("nothing was said yet")
    # One row for each node, and empty ones between trees.
    rows = [row for row in draw(nodes, screen.width - 4) if row]
    chosen = await choose(screen, talk.reader, rows, "Go where? (a prompt: before it)")
    return None if chosen is None else nodes[chosen].entry.id


def standing(leaf: str | None) -> str:
    return "before the first message" if leaf is None else f"at {clean(leaf)[:8]}"


async def branch(talk: Conversation, rest: str) -> None:
    if not rest:
        _show_branches(talk)
        return
    entry, _, label = rest.partition(" ")
    leaf = await talk.controller.branch(entry, label.strip() or None)
    talk.screen.line(f"· stands {standing(leaf)}; the next message begins a branch", DIM)


def _show_branches(talk: Conversation) -> list[str]:
    session = talk.controller.session
    branches = list_branches(session)
    sayings = [gist(entry) for entry in session.entries([branch.leaf for branch in branches])]
    marks = find_branch_marks(session, branches)
    talk.screen.lines(draw_branches(branches, sayings, talk.screen.width, time.time(), marks))
    return [branch.leaf for branch in branches]


async def _choose_branch(talk: Conversation, question: str) -> str | None:
    """The end of another branch."""
    session = talk.controller.session
    others = [one for one in list_branches(session) if not one.is_active]
    if not others:
        raise UsageError("there is no other branch; /tree goes back to any message, and what is said there begins one")
    entries = session.entries([one.leaf for one in others])
    marks = {leaf: mark.texts[0] for leaf, mark in find_branch_marks(session, others).items()}
    rows = [
        f"{clean(one.leaf)[:8]}  {one_line(one.name or '') or marks.get(one.leaf, '')}  {gist(entry)}"
        for one, entry in zip(others, entries, strict=True)
    ]
    chosen = await choose(talk.screen, talk.reader, rows, question)
    return None if chosen is None else others[chosen].leaf


async def switch(talk: Conversation, rest: str) -> None:
    """Go to another branch. Whoever only goes on along the same one leaves nothing that could be summarised."""
    wanted = rest or await _choose_branch(talk, "Which branch?")
    if wanted is None:
        return
    session = talk.controller.session
    goes_on = session.leaf is None or session.common_ancestor(session.leaf, session.find_entry(wanted)) == session.leaf
    summary = False if goes_on else await _choose_summary(talk)
    _show_standing(talk.screen, await talk.controller.switch(wanted, summary=summary))


async def merge_in(talk: Conversation, rest: str) -> None:
    controller, session = talk.controller, talk.controller.session
    wanted = session.find_entry(rest) if rest else await _choose_branch(talk, "Bring in which branch?")
    if wanted is None:
        return
    ask = SummaryOptions(
        controller.settings.branch_summary.instructions, summarizer=summarizer_for(controller.settings)
    )
    done = await asyncio.to_thread(lambda: merge(session, wanted, options=ask))
    if done.nothing is not None or done.entry is None:
        talk.screen.line(f"· {one_line(done.nothing or 'nothing was added')}", DIM)
        return
    await controller.switch(done.entry)
    talk.screen.line(f"· messages summarised here: {done.messages}, at {clean(done.entry)[:8]}", DIM)
    talk.screen.lines((f"· conflict: {one_line(conflict.text)}" for conflict in done.conflicts), RED)


async def compare(talk: Conversation, rest: str) -> None:
    session = talk.controller.session
    one, _, other = rest.partition(" ")
    first = session.find_entry(one) if other else session.leaf
    wanted = other.strip() or one
    second = session.find_entry(wanted) if wanted else await _choose_branch(talk, "Compare with which branch?")
    if first is None or second is None:
        return
    found = await asyncio.to_thread(diff, session, first, second)
    talk.screen.lines(draw_diff(found, talk.screen.width, str, str))


async def label(talk: Conversation, rest: str) -> None:
    controller = talk.controller
    if not rest:
        labels = controller.session.labels.items()
        talk.screen.lines(f"{clean(id)[:8]}  {one_line(label)}" for id, label in labels)
        return
    text, _, entry = rest.rpartition("@") if " @" in rest else (rest, "", "")
    await controller.label(text.strip() or None, entry or None)
    talk.screen.line(f"· labelled {one_line(text)}" if text.strip() else "· the label is gone", DIM)


async def name(talk: Conversation, rest: str) -> None:
    await talk.controller.rename(rest or None)
    talk.screen.line(f"· {one_line(talk.controller.state.title) or 'no name'}", DIM)


async def compact_older(talk: Conversation, rest: str) -> None:
    done = await talk.controller.compact(rest or None)
    size = f"{done.tokens_before:,} -> {done.tokens_after:,} tokens"
    talk.screen.line(f"· {len(done.plan.summarized):,} messages are summarised: {size}", DIM)
    talk.show_preview(done.summary)
