"""/explore: several ways at once from where the conversation stands, and the choice between them, at once or later."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessiontree import paths
from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.app.models import find_lane_model, no_model_error
from sessiontree.app.system_prompt import build_system_prompt
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.chat.lane_view import Choosing, is_left_open, show_results
from sessiontree.chat.terminal import DIM, RED
from sessiontree.core.entries import ApprovalMode
from sessiontree.errors import UsageError
from sessiontree.explore import decisions, explore
from sessiontree.explore.cleanup import is_worked_on
from sessiontree.explore.compare import HasLanes, compare
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.lane_messages import Talking
from sessiontree.explore.lane_table import shell_words
from sessiontree.explore.plan_parser import plan_lanes
from sessiontree.explore.records import Bounds
from sessiontree.explore.state import explorations
from sessiontree.explore.worktrees import Copies
from sessiontree.models import Model
from sessiontree.models.model_summarizer import summarizer_for
from sessiontree.views.text import one_line

if TYPE_CHECKING:
    from sessiontree.chat.conversation import Conversation
    from sessiontree.chat.lane_view import Watching

_USAGE = 'expected /explore N "what to do in N different ways", or /explore alone to decide about the last ones'
_MOST = Bounds().lanes


async def explore_ways(talk: Conversation, rest: str) -> None:
    """Let lanes grow, show them, compare them, and stand where the person wants to."""
    if not rest:
        await _decide_later(talk)
        return
    number, _, prompt = rest.partition(" ")
    prompt = prompt.strip()
    if len(prompt) > 1 and prompt[0] == prompt[-1] and prompt[0] in "\"'":
        prompt = prompt[1:-1].strip()
    if not number.isdecimal() or not prompt:
        raise UsageError(_USAGE)
    if len(number) > len(str(_MOST)) or int(number) > _MOST:
        raise UsageError(
            f"{number} lanes are wanted, and here there are {_MOST} at most; ask for fewer, or let "
            f"`sessiontree explore SESSION TEXT --n {number} --max-lanes {number}` make them"
        )
    controller, models = talk.controller, list[Model]()
    watching = talk.watching()
    copies = Copies(controller.home, controller.session.id, controller.cwd)
    exploration = _prepare(talk, watching, copies, prompt, int(number), models)
    why_not = await in_thread(copies.why_not)
    if why_not is not None:
        talk.screen.line(f"· all lanes work in the same folder, so changes are asked about: {one_line(why_not)}", RED)
    async with controller.occupied("an exploration"):
        try:
            await talk.watch(exploration, watching)
            await _decide(talk, exploration, exploration.copies)
        finally:  # also when the program is told to end, or the terminal is gone
            await uncancelled(_tidy(talk, exploration, models))


def _prepare(
    talk: Conversation, watching: Watching, copies: Copies, prompt: str, count: int, models: list[Model]
) -> Exploration:
    controller = talk.controller
    session, settings = controller.session, controller.settings
    if os.path.realpath(session.cwd or controller.cwd) != os.path.realpath(controller.cwd):
        raise UsageError(
            f"the session was held in {session.cwd}, and lanes work there; start the chat in that folder, or /fork"
        )
    if controller.state.model is None:
        raise no_model_error()

    def find_model(name: str, number: int) -> Model:
        models.append(find_lane_model(name, number, settings.models))
        return models[-1]

    plans = plan_lanes([prompt], [controller.state.model], count, find_model)
    mode: ApprovalMode = "yolo" if controller.state.approval == "yolo" else "autoEdit"
    return explore(
        session,
        prompts=plans.prompts,
        models=plans.models,
        tools=controller.tools,
        approver_for=watching.approver_for(mode, controller.tools),
        settings=settings,
        system=lambda folder: build_system_prompt(folder, controller.workspace.added),
        copies=copies,
        hooks=(Talking(),),
        summarizer=summarizer_for(settings),
        keep_worktrees=True,  # until everything is told: see `_tidy`
    )


async def _decide_later(talk: Conversation) -> None:
    """Show the last exploration of the session again, and ask what becomes of its lanes."""
    controller = talk.controller
    await controller.refresh()  # it may have been decided elsewhere meanwhile
    session = controller.session
    found = await in_thread(explorations, session)
    if not found:
        talk.screen.line('· no exploration in this session yet; /explore N "TEXT" begins one', DIM)
        return
    last = found[-1]
    if await in_thread(is_worked_on, session, last):
        raise UsageError(
            f"exploration {last.run}: another process works on it; stop it in its own terminal with Ctrl-C, or wait "
            "for its end, then decide here with /explore"
        )
    if last.open_lanes and not talk.is_in_memory:
        name = await in_thread(paths.name_of, controller.home, session.id, session.location)
        words = shell_words(name, None if controller.home == paths.home() else controller.home)
        talk.screen.line(f"· lanes without an end go on with `sessiontree explore {words} --resume {last.run}`", DIM)
    async with controller.occupied("a choice between lanes"):
        await _decide(talk, last, Copies(controller.home, session.id, session.cwd or controller.cwd))


async def _decide(talk: Conversation, exploration: HasLanes, copies: Copies | None) -> None:
    """Compare the lanes and ask what becomes of them."""
    controller = talk.controller
    show_results(talk.screen, await in_background(compare, exploration, copies))
    summary = SummaryOptions(
        controller.settings.branch_summary.instructions, summarizer=summarizer_for(controller.settings)
    )
    choosing = Choosing(talk.screen, talk.reader, controller.session, exploration, copies, summary=summary)
    decided = await choosing.choose()
    if is_left_open(exploration.lanes, decided):
        talk.screen.line("· decide later with /explore", DIM)


async def _tidy(talk: Conversation, exploration: Exploration, models: Sequence[Model]) -> None:
    """Let models go, and the folders of lanes that have ended; their work stays in git."""
    for model in models:
        await model.close()
    tidied = await in_background(decisions.tidy, decisions.closed(exploration.lanes), exploration.copies)
    with contextlib.suppress(OSError):  # nobody is there to see it
        talk.screen.lines(f"· {one_line(note)}" for note in tidied.stayed)
        talk.screen.lines((f"✗ {one_line(note)}" for note in tidied.failed), RED)
