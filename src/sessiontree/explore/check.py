"""Checks: a command that says by its exit code whether a lane's files are right."""

from __future__ import annotations

import os

from sessiontree.agent.process import run_command
from sessiontree.explore.records import Check
from sessiontree.secrets.environment import Mask

SECONDS = 600.0
"""How long a check may take."""
NOT_RUN = "not run: the time of the exploration was over"
CUT_OFF = "ended before it was through: the time of the exploration was over"


async def run_check(command: str, folder: str, *, seconds: float = SECONDS, left: float | None = None) -> Check:
    """Run a command in a folder. It comes from the user, so it has their environment; what it prints is masked.

    `left` is how much time the exploration has; when that ends it, it has neither passed nor failed.
    """
    if left is not None and left <= 0:
        return Check(command, None, None, "", 0.0, NOT_RUN)
    most = seconds if left is None else min(seconds, left)
    ran = await run_command(command, cwd=folder, environment=os.environ, mask=Mask(os.environ), seconds=most)
    is_cut_off = ran.timed_out and most < seconds
    passed = None if is_cut_off else ran.exit_code == 0
    return Check(command, passed, ran.exit_code, ran.output, ran.seconds, CUT_OFF if is_cut_off else "")
