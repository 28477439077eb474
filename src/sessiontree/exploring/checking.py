"""Checks: a command that says by its exit code whether a lane's files are right."""

from __future__ import annotations

import os

from sessiontree.agent.running import run_command
from sessiontree.agent.secrets import Mask
from sessiontree.exploring.records import Check

SECONDS = 600.0
"""How long a check may take."""


async def run_check(command: str, folder: str, *, seconds: float = SECONDS) -> Check:
    """Run a command in a folder. It comes from the user, so it has their environment; what it prints is masked."""
    ran = await run_command(command, cwd=folder, environment=os.environ, mask=Mask(os.environ), seconds=seconds)
    return Check(command, ran.exit_code == 0, ran.exit_code, ran.output, ran.seconds)
