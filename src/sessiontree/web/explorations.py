"""Explorations that run in the server: pages start, watch, steer and stop them. They run to their end even if no page
is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct
from starlette.concurrency import run_in_threadpool

from sessiontree.agent.async_bridge import in_background, uncancelled
from sessiontree.agent.tools.base import Tools
from sessiontree.app.exploration import LaneApprover, LaneOptions, OpenedExploration, start_exploration
from sessiontree.app.lane_progress import LaneProgress
from sessiontree.core.entries import ApprovalMode
from sessiontree.errors import NotFoundError, SessionTreeError, UsageError
from sessiontree.explore.exploration import Exploration
from sessiontree.explore.lane import Lane
from sessiontree.library.summary import Summary
from sessiontree.session.reader import CURRENT
from sessiontree.session.session import Session
from sessiontree.stores.repositories import home_folder
from sessiontree.web.live import Live
from sessiontree.web.questions import Questions
from sessiontree.web.site import Site

MAX_RUNNING = 4
_SHOW_SECONDS = 0.25
"""Minimum interval between updates to pages."""


class Wanted(Struct, frozen=True):
    """What a page asked for."""

    prompts: Sequence[str]
    models: Sequence[str] = ()
    count: int | None = None
    check: str | None = None
    at: str | None = None
    """The entry to start from; default: the current one."""


class RunningExploration:
    """An exploration in this process, and its open questions."""

    def __init__(self, summary: Summary, session: Session, live: Live) -> None:
        self.summary, self._session, self._live = summary, session, live
        self.questions = Questions(lambda _id, _asked: self.change(), lambda _id: self.change())
        self.error = ""
        self._opened: OpenedExploration | None = None
        self._progress: LaneProgress | None = None
        self._is_changed = asyncio.Event()

    @property
    def exploration(self) -> Exploration:
        assert self._opened is not None
        return self._opened.exploration

    @property
    def progress(self) -> LaneProgress:
        assert self._progress is not None
        return self._progress

    def prepare(self, options: LaneOptions, wanted: Wanted) -> None:
        """Plan the lanes. Blocking; writes nothing."""
        at = CURRENT if wanted.at is None else self._session.find_entry(wanted.at)
        models = wanted.models or ()
        self._opened = start_exploration(
            self._session, options, wanted.prompts, models=models, count=wanted.count, at=at
        )
        self._progress = LaneProgress(self.exploration.worktrees)

    def approver_for(self, mode: ApprovalMode, tools: Tools) -> Callable[[Lane], LaneApprover]:
        return lambda lane: LaneApprover(lane, mode, tools, self.questions.ask)

    def change(self) -> None:
        """Schedule an update of the pages."""
        self._is_changed.set()

    async def run(self, is_begun: asyncio.Future[None]) -> None:
        """Run all lanes to their end. `is_begun` is set when the first lanes are written."""
        showing = asyncio.create_task(self._show())
        try:
            async with self.exploration as exploration:
                is_begun.set_result(None)
                async for _ in exploration:
                    self.change()
        except SessionTreeError as error:
            self.error = str(error)
            if not is_begun.done():
                is_begun.set_exception(error)
        finally:
            showing.cancel()
            await uncancelled(self._close())
            if not is_begun.done():
                is_begun.cancel()

    async def _show(self) -> None:
        while True:
            await self._is_changed.wait()
            self._is_changed.clear()
            self._live.fire(self.summary.ref)
            await asyncio.sleep(_SHOW_SECONDS)

    async def _close(self) -> None:
        """Remove the folders of ended lanes, whose work is in git, and close models and session."""
        await in_background(self.exploration.remove_worktrees)
        assert self._opened is not None
        await self._opened.close()
        self._session.close()


class Explorations:
    """All explorations of the server."""

    def __init__(self, site: Site, live: Live) -> None:
        self._site, self._live = site, live
        self._running: dict[tuple[str, str], RunningExploration] = {}
        """By the reference of the session and the id of the exploration."""
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, ref: str, run: str) -> RunningExploration | None:
        """The exploration, if this process runs it."""
        return self._running.get((ref, run))

    def get(self, ref: str, run: str) -> RunningExploration:
        found = self.find(ref, run)
        if found is None:
            raise NotFoundError("this exploration is not running here: it has ended, or another process is running it")
        return found

    async def start(self, summary: Summary, wanted: Wanted) -> RunningExploration:
        """Start lanes; returns when the first are written."""
        if len(self._running) >= MAX_RUNNING:
            raise UsageError(f"{MAX_RUNNING} explorations are running; wait for one to end, or stop it")
        session = await run_in_threadpool(self._site.workbench.open_session, summary)
        running = RunningExploration(summary, session, self._live)
        workbench = self._site.workbench
        options = LaneOptions(
            home=home_folder(workbench.library.home),
            settings=workbench.settings,
            cwd=session.cwd or workbench.cwd,
            approver_for=running.approver_for,
            check=wanted.check,
        )
        try:
            running.prepare(options, wanted)
        except SessionTreeError:
            session.close()
            raise
        key = (summary.ref, running.exploration.run)
        self._running[key] = running
        is_begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._live_until_end(key, running, is_begun))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await is_begun
        return running

    async def _live_until_end(
        self, key: tuple[str, str], running: RunningExploration, is_begun: asyncio.Future[None]
    ) -> None:
        try:
            await running.run(is_begun)
        finally:
            del self._running[key]
            self._site.changed(running.summary.ref)
            self._live.fire(running.summary.ref)

    def stop_all(self) -> None:
        for running in self._running.values():
            running.exploration.stop()

    async def close(self) -> None:
        """Stop all lanes, and wait until their ends are written."""
        self.stop_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)
