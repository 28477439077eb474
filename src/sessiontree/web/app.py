"""The application: its routes, its error pages, and what it starts and stops."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

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


class SiteApp:
    """The routes of one library, and everything that they start and stop."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._live, self._chats = Live(site), Chats(site)
        self._running = Explorations(site, self._live)
        self.routes = Starlette(
            routes=self._list_routes(),
            exception_handlers={
                SessionTreeError: self._on_error,
                OSError: self._on_error,
                ClientDisconnect: _on_disconnect,
            },
        )

    def _list_routes(self) -> list[BaseRoute]:
        """Without the right to write, there is no route that changes anything; without an agent, none that runs one."""
        site, live = self._site, self._live
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
            Mount("/static/shared", StaticFiles(directory=os.path.dirname(static_path("x")))),
            Mount("/static", StaticFiles(directory=_STATIC)),
        ]
        # Lanes have worktrees on this machine, so even showing them is for its own user.
        explore = None if site.is_shared else ExploreRoutes(site, live, self._running)
        if explore is not None:
            routes += explore.reading_routes()
        if not site.read_only:
            actions = ActionRoutes(site, live)
            routes += [
                Route("/s/{key}/plan", actions.plan, methods=["POST"]),
                Route("/restore", actions.restore, methods=["POST"]),
                Route("/do", actions.do, methods=["POST"]),
            ]
            if explore is not None:
                routes += [
                    *ChatRoutes(site, self._chats).routes(),
                    *explore.changing_routes(),
                ]
        return routes

    def start(self) -> None:
        """Start to scan the library; called in the event loop."""
        self._live.start()

    def stop(self) -> None:
        """End what does not end by itself."""
        self._live.stop()
        self._chats.stop_all()
        self._running.stop_all()

    async def close(self) -> None:
        await self._chats.close()
        await self._running.close()
        await self._live.close()
        self._site.close()

    async def _on_error(self, request: Request, error: Exception) -> Response:
        return _error_response(self._site, request, error)


async def _on_disconnect(_request: Request, _error: Exception) -> Response:
    """A client that left before its request was complete: no one reads the answer, and it is no error of ours."""
    return PlainTextResponse("the request is incomplete\n", HTTPStatus.BAD_REQUEST)


def build_app(workbench: Workbench, access: Access, *, read_only: bool = False, limit: RateLimit | None = None) -> Gate:
    """The application of a server for one user. With `read_only` there is no route that changes anything."""
    app = SiteApp(Site(workbench, read_only=read_only))

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await run_lifespan(receive, send, app.start, app.close)
        else:
            await app.routes(scope, receive, send)

    return Gate(run, access, limit, app.stop)


async def run_lifespan(
    receive: Receive, send: Send, start: Callable[[], None], close: Callable[[], Awaitable[None]]
) -> None:
    """Start something with the server, and close it at the end."""
    await receive()
    start()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await close()
    await send({"type": "lifespan.shutdown.complete"})


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
