"""An exploration that has ended in a repository: each lane wrote the files that its prompt is about."""

from __future__ import annotations

import asyncio
from pathlib import Path

import sessiontree
from sessiontree.agent.tools.base import load_tools
from sessiontree.core.messages import ToolCall
from sessiontree.explore import Exploration, explore
from sessiontree.explore.state import ExplorationState, find_exploration
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.session.session import Session
from tests.explore.lanes import Stepping
from tests.explore.repos import make_repository


class Explored:
    """The exploration as recorded in the file after its process has ended."""

    def __init__(
        self, root: Path, writes: dict[str, dict[str, str]], check: str | None = None, *, home: Path | None = None
    ) -> None:
        self.project = make_repository(root / "project")
        self.home = home or root / "home"
        session = sessiontree.create(self.project, home=self.home)
        session.set_config(approval_mode="yolo")
        session.append("user", "Where we begin.")
        session.append("assistant", [{"type": "text", "text": "Understood."}], stopReason="stop")
        self.location = session.location
        self.leaf_before = session.leaf
        self.worktrees = LaneWorktrees(str(self.home), session.id, str(self.project))
        asyncio.run(self._run(session, writes, check))
        session.close()
        self.session = sessiontree.open(self.location, home=self.home)

    async def _run(self, session: Session, writes: dict[str, dict[str, str]], check: str | None) -> None:
        def calls(prompt: str, step: int) -> list[ToolCall]:
            return [
                ToolCall(f"{prompt}-{at}", "write", {"path": path, "content": content})
                for at, (path, content) in enumerate(writes[prompt].items())
            ]

        self.exploration: Exploration
        async with explore(
            session,
            prompts=list(writes),
            models=[Stepping(1, calls=calls)],
            tools=load_tools(["write"]),
            names=list(writes),
            lane_worktrees=self.worktrees,
            check=check,
            keep_worktrees=True,
        ) as exploration:
            await exploration.finish()
        self.exploration = exploration

    @property
    def state(self) -> ExplorationState:
        return find_exploration(self.session)

    def reopened(self) -> Session:
        """The session, opened once more from the file. The first stays open: a test may continue to write to it."""
        self.session.flush()
        return sessiontree.open(self.location, home=self.home)
