"""Check commands: the exit code shows whether a lane's files pass."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from sessiontree.agent.async_bridge import in_background, in_thread, uncancelled
from sessiontree.agent.process import run_command
from sessiontree.errors import SessionTreeError
from sessiontree.explore.lane import Lane
from sessiontree.explore.records import Check
from sessiontree.secrets.environment import Mask

if TYPE_CHECKING:
    from sessiontree.explore.exploration import Exploration

SECONDS = 600.0
"""How long a check may take."""
NOT_RUN = "not run: the exploration's time limit was reached"
CUT_OFF = "stopped early: the exploration's time limit was reached"


async def run_check(command: str, folder: str, *, seconds: float = SECONDS, left: float | None = None) -> Check:
    """Run a command in a folder, with the user's environment; secrets in its output are masked.

    `left` is the time left to the exploration; a check that is cut short by it has neither passed nor failed.
    """
    if left is not None and left <= 0:
        return Check(command, None, None, "", 0.0, NOT_RUN)
    limit = seconds if left is None else min(seconds, left)
    ran = await run_command(command, cwd=folder, environment=os.environ, mask=Mask(os.environ), seconds=limit)
    is_cut_off = ran.timed_out and limit < seconds
    passed = None if is_cut_off else ran.exit_code == 0
    return Check(command, passed, ran.exit_code, ran.output, ran.seconds, CUT_OFF if is_cut_off else "")


async def check_lane(exploration: Exploration, lane: Lane, command: str, seconds: float = SECONDS) -> Check:
    """Run a command in the folder of a lane, then undo what it changed there: that is not the lane's work."""
    try:
        folder = await in_thread(exploration.folder, lane)
    except SessionTreeError as error:
        return Check(command, None, None, "", 0.0, f"not run: {error}")
    async with _files_restored(exploration, lane):
        return await run_check(command, folder, seconds=seconds, left=exploration.budget.seconds_left)


@contextlib.asynccontextmanager
async def _files_restored(exploration: Exploration, lane: Lane) -> AsyncIterator[None]:
    worktree, worktrees = lane.worktree, exploration.worktrees
    if worktree is None or worktrees is None:
        yield
        return
    try:
        await uncancelled(in_background(worktrees.begin_check, worktree))
    except (SessionTreeError, OSError):  # files that cannot be saved cannot be restored; the lane's end reports it
        yield
        return
    try:
        yield
    finally:
        try:
            await uncancelled(in_background(worktrees.end_check, worktree))
        except (SessionTreeError, OSError) as error:
            lane.why = join_reasons(lane.why, f"files left by a check could not be removed: {error}")


def join_reasons(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))
