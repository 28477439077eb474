"""The /explore command: run several lanes from the current entry, then choose between them, now or later."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sessiontree import paths
from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.app.exploration import (
    LaneOptions,
    OpenedExploration,
    find_refused_models,
    resume_command,
    start_exploration,
)
from sessiontree.app.start import no_model_error
from sessiontree.chat.styles import DIM, RED
from sessiontree.errors import UsageError
from sessiontree.explore.lane_table import shell_words
from sessiontree.explore.records import Bounds
from sessiontree.explore.state import explorations, is_active
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.views.text import one_line

if TYPE_CHECKING:
    from sessiontree.chat.base_chat import BaseChat, LaneBoard

_USAGE = 'expected /explore N "PROMPT", or /explore alone to decide about the last lanes'
_MAX_LANES = Bounds().lanes


async def explore_ways(talk: BaseChat, rest: str) -> None:
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
    controller = talk.controller
    board = talk.open_board()
    worktrees = LaneWorktrees(controller.home, controller.session.id, controller.cwd)
    opened = _prepare(talk, board, prompt, int(number))
    exploration = opened.exploration
    why_not = await in_thread(worktrees.why_not)
    if why_not is not None:
        talk.screen.line(f"· lanes share the project's folder, so changes need approval: {one_line(why_not)}", RED)
    async with controller.occupied("an exploration"):
        try:
            await board.watch(exploration)
            await talk.decide_lanes(exploration, exploration.worktrees)
        finally:  # also after a signal, or when the terminal is gone
            await uncancelled(_clean_up(talk, opened))


def _prepare(talk: BaseChat, board: LaneBoard, prompt: str, count: int) -> OpenedExploration:
    controller = talk.controller
    session = controller.session
    if not paths.is_same_folder(session.cwd or controller.cwd, controller.cwd):
        raise UsageError(f"lanes work in the session's folder, {session.cwd}; start the chat there, or /fork")
    if controller.state.model is None:
        raise no_model_error()
    options = LaneOptions(
        home=controller.home,
        settings=controller.settings,
        cwd=controller.cwd,
        approver_for=board.approver_for,
        approval="yolo" if controller.state.approval == "yolo" else "autoEdit",
        tools=controller.tools,
        added=controller.workspace.added,
    )
    return start_exploration(session, options, [prompt], models=[controller.state.model], count=count)


async def _decide_later(talk: BaseChat) -> None:
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
            f"exploration {last.run}: another process is working on it; wait until it has ended, or stop it there with "
            "Ctrl-C, then decide with /explore"
        )
    if last.open_lanes and not session.repository.is_volatile:
        name = session.location
        if session.ref.is_file:
            name = await in_thread(paths.name_of, controller.home, session.id, session.location)
        words = shell_words(name, None if controller.home == paths.home() else controller.home)
        command = resume_command(words, last.run, find_refused_models(last, controller.settings))
        talk.screen.line(f"· some lanes did not finish; continue them with `{command}`", DIM)
    async with controller.occupied("a choice between lanes"):
        await talk.decide_lanes(last, LaneWorktrees(controller.home, session.id, session.cwd or controller.cwd))


async def _clean_up(talk: BaseChat, opened: OpenedExploration) -> None:
    """Close models and remove the folders of lanes that have ended; their work stays in git."""
    await opened.close()
    result = await in_background(opened.exploration.remove_worktrees)
    with contextlib.suppress(OSError):  # the terminal is gone
        talk.screen.lines(f"· {one_line(note)}" for note in result.stayed)
        talk.screen.lines((f"✗ {one_line(note)}" for note in result.failed), RED)
