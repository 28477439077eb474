"""The /explore command: run several lanes from the current entry, then choose between them, now or later."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessiontree import paths
from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.app.models import find_lane_model, no_model_error
from sessiontree.app.start import build_system_prompt
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.chat.lane_view import LaneChooser, is_undecided, show_results
from sessiontree.chat.terminal import DIM, RED
from sessiontree.core.entries import ApprovalMode
from sessiontree.errors import UsageError
from sessiontree.explore import explore
from sessiontree.explore.compare import compare
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.lane_messages import LaneMessages
from sessiontree.explore.lane_table import shell_words
from sessiontree.explore.plan_parser import plan_lanes
from sessiontree.explore.records import Bounds
from sessiontree.explore.state import ExplorationLike, explorations, is_active
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.models import Model
from sessiontree.models.model_summarizer import summarizer_for
from sessiontree.views.text import one_line

if TYPE_CHECKING:
    from sessiontree.chat.conversation import Conversation
    from sessiontree.chat.lane_view import LaneView

_USAGE = 'expected /explore N "PROMPT", or /explore alone to decide about the last lanes'
_MAX_LANES = Bounds().lanes


async def explore_ways(talk: Conversation, rest: str) -> None:
    """Run lanes, show and compare them, and let the user decide."""
    if not rest:
        await _decide_later(talk)
        return
    number, _, prompt = rest.partition(" ")
    prompt = prompt.strip()
    if len(prompt) > 1 and prompt[0] == prompt[-1] and prompt[0] in "\"'":
        prompt = prompt[1:-1].strip()
    if not number.isdecimal() or not prompt:
        raise UsageError(_USAGE)
    if len(number) > len(str(_MAX_LANES)) or int(number) > _MAX_LANES:
        raise UsageError(
            f"{number} lanes requested, but at most {_MAX_LANES} are allowed here; request fewer, or run "
            f"`sessiontree explore SESSION PROMPT --n {number} --max-lanes {number}`"
        )
    controller, models = talk.controller, list[Model]()
    view = talk.watching()
    worktrees = LaneWorktrees(controller.home, controller.session.id, controller.cwd)
    exploration = _prepare(talk, view, worktrees, prompt, int(number), models)
    why_not = await in_thread(worktrees.why_not)
    if why_not is not None:
        talk.screen.line(f"· lanes share the project's folder, so changes need approval: {one_line(why_not)}", RED)
    async with controller.occupied("an exploration"):
        try:
            await talk.watch(exploration, view)
            await _decide(talk, exploration, exploration.worktrees)
        finally:  # also after a signal, or when the terminal is gone
            await uncancelled(_clean_up(talk, exploration, models))


def _prepare(
    talk: Conversation, view: LaneView, worktrees: LaneWorktrees, prompt: str, count: int, models: list[Model]
) -> Exploration:
    controller = talk.controller
    session, settings = controller.session, controller.settings
    if os.path.realpath(session.cwd or controller.cwd) != os.path.realpath(controller.cwd):
        raise UsageError(f"lanes work in the session's folder, {session.cwd}; start the chat there, or /fork")
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
        approver_for=view.approver_for(mode, controller.tools),
        settings=settings,
        system=lambda folder: build_system_prompt(folder, controller.workspace.added),
        lane_worktrees=worktrees,
        hooks=(LaneMessages(),),
        summarizer=summarizer_for(settings),
        keep_worktrees=True,  # removed by `_clean_up` once the user has decided
    )


async def _decide_later(talk: Conversation) -> None:
    """Show the last exploration of the session again, and let the user decide."""
    controller = talk.controller
    await controller.refresh()  # another process may have decided meanwhile
    session = controller.session
    found = await in_thread(explorations, session)
    if not found:
        talk.screen.line('· no exploration in this session yet; start one with /explore N "PROMPT"', DIM)
        return
    last = found[-1]
    if await in_thread(is_active, session, last):
        raise UsageError(
            f"exploration {last.run}: another process works on it; wait until it has ended, or stop it there with "
            "Ctrl-C, then decide with /explore"
        )
    if last.open_lanes and not talk.is_in_memory:
        name = await in_thread(paths.name_of, controller.home, session.id, session.location)
        words = shell_words(name, None if controller.home == paths.home() else controller.home)
        command = f"sessiontree explore resume {words} --run {last.run}"
        talk.screen.line(f"· some lanes did not finish; continue them with `{command}`", DIM)
    async with controller.occupied("a choice between lanes"):
        await _decide(talk, last, LaneWorktrees(controller.home, session.id, session.cwd or controller.cwd))


async def _decide(talk: Conversation, exploration: ExplorationLike, worktrees: LaneWorktrees | None) -> None:
    """Compare the lanes and let the user decide."""
    controller = talk.controller
    show_results(talk.screen, await in_background(compare, exploration, worktrees))
    summary = SummaryOptions(
        controller.settings.branch_summary.instructions, summarizer=summarizer_for(controller.settings)
    )
    chooser = LaneChooser(talk.screen, talk.reader, controller.session, exploration, worktrees, summary=summary)
    result = await chooser.choose()
    if is_undecided(exploration.lanes, result):
        talk.screen.line("· decide later with /explore", DIM)


async def _clean_up(talk: Conversation, exploration: Exploration, models: Sequence[Model]) -> None:
    """Close models and remove the folders of lanes that have ended; their work stays in git."""
    for model in models:
        await model.close()
    result = await in_background(exploration.remove_worktrees)
    with contextlib.suppress(OSError):  # the terminal is gone
        talk.screen.lines(f"· {one_line(note)}" for note in result.stayed)
        talk.screen.lines((f"✗ {one_line(note)}" for note in result.failed), RED)
