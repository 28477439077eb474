"""The application: its routes, its error pages, and what it starts and stops."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from sessiontree.app.workbench import Workbench
from sessiontree.errors import ConflictError, NotFoundError, SessionTreeError, UsageError
from sessiontree.export.html.environment import static_path
from sessiontree.web.action_routes import ActionRoutes
from sessiontree.web.chat_routes import ChatRoutes
from sessiontree.web.chats import Chats
from sessiontree.web.explorations import Explorations
from sessiontree.web.explore_routes import ExploreRoutes
from sessiontree.web.list_pages import ListPages
from sessiontree.web.live import Live
from sessiontree.web.report_pages import ReportPages
from sessiontree.web.security import Access, Gate, RateLimit
from sessiontree.web.session_pages import SessionPages
from sessiontree.web.site import Site

_STATIC = os.path.join(os.path.dirname(__file__), "static")


def build_app(workbench: Workbench, access: Access, *, read_only: bool = False, limit: RateLimit | None = None) -> Gate:
    """The application of one server. With `read_only` there is no route that changes anything."""
    site = Site(workbench, read_only=read_only)
    live, chats = Live(site), Chats(site)
    running = Explorations(site, live)
    explore = ExploreRoutes(site, live, running)
    sessions, pages, reports = SessionPages(site), ListPages(site), ReportPages(site)
    routes: list[BaseRoute] = [
        Route("/", pages.page),
        Route("/rows", pages.rows),
        Route("/complete", pages.completion),
        Route("/events", live.library_events),
        Route("/stats", reports.statistics),
        Route("/archive", reports.archive),
        Route("/s/{key}", sessions.page),
        Route("/s/{key}/preview", pages.preview),
        Route("/s/{key}/cards", sessions.cards),
        Route("/s/{key}/graph", sessions.graph),
        Route("/s/{key}/rows", sessions.rows),
        Route("/s/{key}/outline", sessions.outline),
        Route("/s/{key}/find", sessions.find),
        Route("/s/{key}/download", sessions.download),
        Route("/s/{key}/events", live.session_events),
        Route("/s/{key}/compare", reports.compare),
        Route("/s/{key}/context", reports.context),
        Route("/s/{key}/health", reports.health),
        *explore.reading_routes(),
        Mount("/static/shared", StaticFiles(directory=os.path.dirname(static_path("x")))),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
    if not read_only:
        actions, talk = ActionRoutes(site, live), ChatRoutes(site, chats)
        routes += [
            Route("/s/{key}/plan", actions.plan, methods=["POST"]),
            Route("/restore", actions.restore, methods=["POST"]),
            Route("/do", actions.do, methods=["POST"]),
            *talk.routes(),
            *explore.changing_routes(),
        ]

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        live.start()
        try:
            yield
        finally:
            await chats.close()
            await running.close()
            await live.close()
            site.close()

    def stop() -> None:
        live.stop()
        chats.stop_all()
        running.stop_all()

    async def on_error(request: Request, error: Exception) -> Response:
        return _error_response(site, request, error)

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={SessionTreeError: on_error, OSError: on_error},
    )
    return Gate(app, access, limit, stop)


def _error_response(site: Site, request: Request, error: Exception) -> Response:
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    match error:
        case NotFoundError():
            status = HTTPStatus.NOT_FOUND
        case ConflictError():
            status = HTTPStatus.CONFLICT
        case UsageError() | SessionTreeError():
            status = HTTPStatus.BAD_REQUEST
    if request.method == "POST":
        return JSONResponse({"error": str(error)}, status.value)
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(f"{error}\n", status.value)
    page = site.render("error.html", message=str(error))
    return HTMLResponse(page.body, status.value)
