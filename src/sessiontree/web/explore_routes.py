"""Explorations on a page: lanes with their state, live; start, steer and stop them. Decisions are actions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from sessiontree.agent.approval import Reply
from sessiontree.app.actions.lanes import find_worktrees
from sessiontree.app.exploration import find_refused_models, resume_command
from sessiontree.app.lane_progress import LaneProgress
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.errors import UsageError
from sessiontree.explore.compare import Result
from sessiontree.explore.lane import find_lane
from sessiontree.explore.lane_table import cost, duration
from sessiontree.explore.plan_parser import parse_prompts
from sessiontree.explore.records import Bounds
from sessiontree.explore.start import check_can_explore
from sessiontree.explore.state import ExplorationLog, ExplorationState, explorations, find_exploration
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.export.html.markdown_renderer import render_message
from sessiontree.library.summary import Summary
from sessiontree.session.session import Session
from sessiontree.stores.repositories import home_folder
from sessiontree.web.action_routes import decode
from sessiontree.web.chat_routes import MAX_PROMPT, AnswerRequest, PromptRequest
from sessiontree.web.explorations import Explorations, RunningExploration, Wanted
from sessiontree.web.live import KEEP_ALIVE, Live, event_text
from sessiontree.web.open_sessions import OpenSession
from sessiontree.web.site import Site, key_of

_MAX_CHECK = 2_000


class StartRequest(msgspec.Struct, forbid_unknown_fields=True):
    prompts: str
    """One prompt for each lane (lines, or blocks separated by `---`), or a single one for all."""
    models: list[str] = []
    count: int | None = None
    check: str = ""
    at: str | None = None


class LaneRequest(msgspec.Struct, forbid_unknown_fields=True):
    lane: int | None = None
    """None for all lanes."""


class Board(Struct, frozen=True):
    """What a page shows of an exploration."""

    run: str
    lanes: list[Result]
    tools: dict[int, str]
    """The last calls of running lanes, by their numbers."""
    is_here: bool
    """Whether this server runs it, so that it can be steered."""
    questions: dict[str, dict[str, Any]]
    resume: str
    """The command that continues lanes that did not finish; empty if there are none."""

    @property
    def is_running(self) -> bool:
        return self.is_here or any(lane.state in ("running", "waiting") for lane in self.lanes)


class ExploreRoutes:
    def __init__(self, site: Site, live: Live, running: Explorations) -> None:
        self._site, self._live, self._running = site, live, running
        site.templates.filters |= {"duration": duration}
        site.templates.globals |= {"lane_cost": cost, "render_message": render_message}

    def reading_routes(self) -> list[Route]:
        return [
            Route("/s/{key}/explore", self.page),
            Route("/s/{key}/explore/{run}/events", self.events),
            Route("/s/{key}/explore/{run}/diff", self.diff),
        ]

    def changing_routes(self) -> list[Route]:
        return [
            Route("/s/{key}/explore", self.start, methods=["POST"]),
            Route("/s/{key}/explore/{run}/stop", self.stop, methods=["POST"]),
            Route("/s/{key}/explore/{run}/steer/{lane}", self.steer, methods=["POST"]),
            Route("/s/{key}/explore/{run}/answer", self.answer, methods=["POST"]),
        ]

    def page(self, request: Request) -> Response:
        """The lanes of an exploration, by default of the last one, and a form for the next one."""
        summary, query = self._site.summary_of(request), request.query_params
        with self._site.sessions.use(summary) as opened:
            session = opened.session
            found = explorations(session, _log_of(opened))
            at = session.find_entry(query["at"]) if query.get("at") else None
            why_not = _why_not(session)
        wanted = query.get("run") or (found[-1].run if found and at is None else None)
        board = self._board(summary, wanted) if wanted else None
        return self._site.render(
            "explore.html",
            summary=summary,
            key=key_of(summary.ref),
            runs=[state.run for state in found],
            board=board,
            at=at,
            model=self._site.workbench.settings.model,
            why_not=why_not,
            fork_to=DEFAULT_DIALECT,
        )

    async def events(self, request: Request) -> Response:
        """The lanes whenever they change. A slow client misses intermediate states, never the last one."""
        summary, run = self._site.summary_of(request), request.path_params["run"]
        return self._live.stream(lambda: self._follow(summary, run))

    async def _follow(self, summary: Summary, run: str) -> AsyncIterator[str]:
        shown = ""
        async with self._live.watching(summary) as watcher:
            while not self._live.is_closing:
                seen = watcher.signal.count
                text = await run_in_threadpool(self._render, summary, run)
                if text != shown:
                    shown = text
                    yield event_text("board", {"html": text})
                if not await watcher.signal.wait(KEEP_ALIVE, seen):
                    yield ": alive\n\n"

    def _render(self, summary: Summary, run: str) -> str:
        board = self._board(summary, run)
        return str(self._site.fragment("lanes.html", "lanes", board, key_of(summary.ref)))

    def _board(self, summary: Summary, run: str) -> Board:
        here = self._running.find(summary.ref, run)
        if here is not None:
            exploration = here.exploration
            results = here.progress.results(exploration)
            tools = {lane.number: lane.last_tool for lane in exploration.lanes if lane.state == "running"}
            return Board(run, results, tools, True, dict(here.questions.shown), "")
        with self._site.sessions.use(summary) as opened:
            session = opened.session
            state = find_exploration(session, run, _log_of(opened))
            progress = opened.lasting.setdefault(f"lanes {state.run}", LaneProgress(self._worktrees(session)))
            results = progress.results(state)
        return Board(state.run, results, {}, False, {}, self._resume_command(summary, state))

    def _resume_command(self, summary: Summary, state: ExplorationState) -> str:
        if not state.open_lanes:
            return ""
        return resume_command(summary.id, state.run, find_refused_models(state, self._site.workbench.settings))

    def _worktrees(self, session: Session) -> LaneWorktrees:
        return find_worktrees(session, home_folder(self._site.workbench.library.home))

    def diff(self, request: Request) -> Response:
        """The changes of a lane."""
        summary, run = self._site.summary_of(request), request.path_params["run"]
        number = request.query_params.get("lane", "")
        here = self._running.find(summary.ref, run)
        with self._site.sessions.use(summary) as opened:
            lanes = find_exploration(opened.session, run, _log_of(opened)).lanes
            lane = find_lane(lanes if here is None else here.exploration.lanes, number)
            text = "" if lane.worktree is None else self._worktrees(opened.session).diff(lane.worktree)
        return HTMLResponse(self._site.fragment("lanes.html", "changes", text))

    # Changes

    async def start(self, request: Request) -> Response:
        asked = decode(await request.body(), StartRequest)
        prompts = parse_prompts(asked.prompts) if asked.count is None else [asked.prompts.strip()]
        if not any(prompts) or len(asked.prompts) > MAX_PROMPT or len(asked.check) > _MAX_CHECK:
            raise UsageError(f"prompts have 1 to {MAX_PROMPT:,} characters, a check at most {_MAX_CHECK:,}")
        if asked.count is not None and asked.count > Bounds().lanes:
            raise UsageError(f"{asked.count} lanes requested, but at most {Bounds().lanes} are allowed")
        wanted = Wanted(prompts, asked.models, asked.count, asked.check.strip() or None, asked.at)
        running = await self._running.start(self._site.summary_of(request), wanted)
        return JSONResponse({"run": running.exploration.run})

    async def stop(self, request: Request) -> Response:
        lane = decode(await request.body(), LaneRequest).lane
        self._find(request).exploration.stop(lane)
        return JSONResponse({"stopped": True})

    async def steer(self, request: Request) -> Response:
        text = decode(await request.body(), PromptRequest).text
        if not text.strip() or len(text) > MAX_PROMPT:
            raise UsageError(f"a message has 1 to {MAX_PROMPT:,} characters")
        self._find(request).exploration.steer(request.path_params["lane"], text)
        return JSONResponse({"sent": True})

    async def answer(self, request: Request) -> Response:
        wanted = decode(await request.body(), AnswerRequest)
        self._find(request).questions.answer(wanted.id, Reply(wanted.answer, wanted.reason))
        return JSONResponse({"answered": True})

    def _find(self, request: Request) -> RunningExploration:
        return self._running.get(self._site.summary_of(request).ref, request.path_params["run"])


def _why_not(session: Session) -> str | None:
    """Why no exploration can be started in a session; None if one can."""
    if session.read_only is not None:
        return session.read_only
    try:
        check_can_explore(session)
    except UsageError:
        return f"{session.dialect.name} sessions cannot hold lanes"
    return None


def _log_of(opened: OpenSession) -> ExplorationLog:
    found: ExplorationLog = opened.lasting.setdefault("explorations", ExplorationLog(opened.session))
    return found
