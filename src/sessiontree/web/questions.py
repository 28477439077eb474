"""Approval questions that a page answers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from sessiontree.agent.approval import Question, Reply
from sessiontree.errors import NotFoundError

_MAX_PREVIEW = 20_000


class Questions:
    """The open questions of a chat or an exploration (`Approver`)."""

    def __init__(self, on_open: Callable[[str, dict[str, Any]], None], on_close: Callable[[str], None]) -> None:
        """The functions are called with the id of a question, and its fields as JSON."""
        self._on_open, self._on_close = on_open, on_close
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self.shown: dict[str, dict[str, Any]] = {}
        """The fields of the open questions, by their ids."""

    async def ask(self, question: Question) -> Reply:
        """Ask on the page, and wait for the answer."""
        id = secrets.token_urlsafe(8)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        self.shown[id] = {
            "tool": question.tool,
            "title": question.title,
            "preview": question.preview[:_MAX_PREVIEW],
            "reasons": list(question.reasons),
            "mayAlways": question.may_always,
        }
        self._on_open(id, self.shown[id])
        try:
            return await future
        finally:
            del self._waiting[id], self.shown[id]
            self._on_close(id)

    def answer(self, id: str, reply: Reply) -> None:
        future = self._waiting.get(id)
        if future is None or future.done():
            raise NotFoundError("this question was already answered")
        future.set_result(reply)
