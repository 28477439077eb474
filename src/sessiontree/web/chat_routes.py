"""Chats on a page: start, watch, prompt, approve, interrupt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Literal

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sessiontree.agent.approval import Reply
from sessiontree.errors import UsageError
from sessiontree.web.action_routes import decode
from sessiontree.web.chats import Chats
from sessiontree.web.site import Site, key_of

MAX_PROMPT = 200_000


class StartRequest(msgspec.Struct, forbid_unknown_fields=True):
    session: str | None = None
    """The address of a session; None starts a new one."""
    model: str | None = None


class PromptRequest(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class AnswerRequest(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    answer: Literal["once", "always", "no"]
    reason: str = ""


class ChatRoutes:
    def __init__(self, site: Site, chats: Chats) -> None:
        self._site, self._chats = site, chats

    def routes(self) -> list[Route]:
        return [
            Route("/chat", self.start, methods=["POST"]),
            Route("/chat/new", self.new_page),
            Route("/chat/{id}", self.page),
            Route("/chat/{id}/events", self.events),
            Route("/chat/{id}/session", self.session),
            Route("/chat/{id}/prompt", self.prompt, methods=["POST"]),
            Route("/chat/{id}/answer", self.answer, methods=["POST"]),
            Route("/chat/{id}/interrupt", self.interrupt, methods=["POST"]),
            Route("/chat/{id}/close", self.close, methods=["POST"]),
        ]

    def new_page(self, _request: Request) -> Response:
        return self._site.render("chat.html", chat=None, title="New chat", model=self._site.workbench.settings.model)

    async def start(self, request: Request) -> Response:
        wanted = decode(await request.body(), StartRequest)
        summary = self._site.find(wanted.session) if wanted.session else None
        chat = await self._chats.start(summary, wanted.model)
        return JSONResponse({"chat": chat.id})

    def page(self, request: Request) -> Response:
        chat = self._chats.find(request.path_params["id"])
        controller = chat.controller
        title = (controller.state.title if controller is not None else None) or "Chat"
        model = None if controller is None else controller.state.model
        return self._site.render("chat.html", chat=chat.id, title=title, model=model)

    async def events(self, request: Request) -> Response:
        chat = self._chats.find(request.path_params["id"])
        last = request.headers.get("last-event-id") or request.query_params.get("from", "0")
        position = int(last) if last.isdecimal() and len(last) < 12 else 0

        async def stream() -> AsyncIterator[str]:
            async for number, fields in chat.events_from(position):
                yield f"id: {number}\nevent: chat\ndata: {json.dumps(fields)}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def session(self, request: Request) -> Response:
        """The address of the chat's session, once it is in the library."""
        chat = self._chats.find(request.path_params["id"])
        location = chat.controller.session.location if chat.controller is not None else ""

        def scan() -> bool:
            for _ in self._site.workbench.library.snapshot().follow():
                pass
            return self._site.workbench.library.snapshot().find(location) is not None

        is_known = await run_in_threadpool(scan)
        return JSONResponse({"key": key_of(location) if is_known else None})

    async def prompt(self, request: Request) -> Response:
        text = decode(await request.body(), PromptRequest).text
        if not text.strip() or len(text) > MAX_PROMPT:
            raise UsageError(f"a prompt has 1 to {MAX_PROMPT:,} characters")
        self._chats.send(self._chats.find(request.path_params["id"]), text)
        return JSONResponse({"sent": True})

    async def answer(self, request: Request) -> Response:
        wanted = decode(await request.body(), AnswerRequest)
        reply = Reply(wanted.answer, wanted.reason)
        self._chats.find(request.path_params["id"]).questions.answer(wanted.id, reply)
        return JSONResponse({"answered": True})

    async def interrupt(self, request: Request) -> Response:
        found = self._chats.interrupt(self._chats.find(request.path_params["id"]))
        return JSONResponse({"interrupted": found})

    async def close(self, request: Request) -> Response:
        self._chats.stop(self._chats.find(request.path_params["id"]))
        return JSONResponse({"closed": True})
