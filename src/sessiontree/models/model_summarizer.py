"""A summarizer that asks a model of a provider.

Summarizers are called from synchronous functions in any thread, so the request runs in its own event loop and thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sessiontree.compaction.summarizers import (
    Answer,
    Complete,
    FallbackSummarizer,
    ModelSummarizer,
    Summarizer,
    find_summarizer,
)
from sessiontree.core.messages import Assistant, Message, User, parse_message, text_of, tool_calls
from sessiontree.errors import ModelError
from sessiontree.models.base import Event, Model, Request
from sessiontree.models.facts import Facts
from sessiontree.models.open import open_model
from sessiontree.models.retry import RequestGate, ask, no_gate
from sessiontree.settings import Retry, Settings
from sessiontree.settings.known import AUTO

Ask: TypeAlias = Callable[[Model, Request, Retry | None], Assistant]
"""Sends a request to a model that was opened for it, and closes the model."""


def summarizer_for(
    settings: Settings,
    in_use: Model | None = None,
    *,
    ask: Ask | None = None,
    find_model: Callable[[str], Model] | None = None,
) -> Summarizer:
    """The summarizer of the settings: the model in use, a model as "provider:name", or an installed summarizer.

    `in_use` is the model of the conversation (default: the setting `model`). It stays open. `ask` sends the requests,
    in the event loop where that model is used. A model that only a session file names is never contacted.
    """
    name = settings.compaction.summarizer
    found = _named_summarizer(settings, name, in_use, ask, find_model)
    extractive = find_summarizer()
    if settings.compaction.fallback == "none" or found is extractive:
        return found
    return FallbackSummarizer(found, extractive)


def _named_summarizer(
    settings: Settings,
    name: str,
    in_use: Model | None,
    ask: Ask | None,
    find_model: Callable[[str], Model] | None,
) -> Summarizer:
    open_named = find_model or (lambda model: open_model(model, facts=settings.models))
    if name == AUTO and in_use is not None:
        return OpenedModelSummarizer(lambda: SharedModel(in_use), in_use.name, settings.retry, ask)
    chosen = settings.model if name == AUTO else name
    if chosen is None:
        return find_summarizer()
    if name == AUTO or ":" in chosen:
        return OpenedModelSummarizer(lambda: open_named(chosen), chosen, settings.retry, ask)
    return find_summarizer(chosen)


class SharedModel:
    """A Model that stays open when one of its users closes it."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def facts(self) -> Facts:
        return self._model.facts

    def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        return self._model.stream(request)

    async def close(self) -> None:
        """Nothing to close: the owner of the model closes it."""


class OpenedModelSummarizer(ModelSummarizer):
    """A ModelSummarizer that opens its model for each request and closes it afterwards."""

    def __init__(
        self, open_configured: Callable[[], Model], name: str, retry: Retry | None = None, ask: Ask | None = None
    ) -> None:
        super().__init__(complete_with(open_configured, retry, ask), name)
        self._open_one, self._retry = open_configured, retry

    def asking(self, ask: Ask) -> OpenedModelSummarizer:
        """Copy with another function for requests, which counts them against a budget."""
        return OpenedModelSummarizer(self._open_one, self.name, self._retry, ask)


def complete_with(open_configured: Callable[[], Model], retry: Retry | None = None, ask: Ask | None = None) -> Complete:
    """Wrap a model in a synchronous function, which reports failures in its answer instead of raising."""
    how = ask or _in_a_thread

    def complete(*, system: str, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> Answer:
        request = Request([_message(fields) for fields in messages], system, max_tokens=max_tokens)
        try:
            message = how(open_configured(), request, retry)
        except ModelError as error:
            return Answer("", "error", error=str(error))
        return Answer(
            text_of(message.content),
            message.stop_reason or "stop",
            tool_calls(message),
            message.usage,
            message.error_message,
        )

    return complete


def _message(fields: Mapping[str, Any]) -> Message:
    found = parse_message(dict(fields))
    return found if isinstance(found, User | Assistant) else User(content=str(fields.get("content", "")))


async def request_and_close(
    model: Model, request: Request, retry: Retry | None, gate: RequestGate = no_gate
) -> Assistant:
    """Request an answer, then close the model."""
    try:
        return await ask(model, request, retry, gate=gate)
    finally:
        await model.close()


def _in_a_thread(model: Model, request: Request, retry: Retry | None) -> Assistant:
    """Run a request in a thread with its own event loop. An interrupt of the caller cancels it."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(request_and_close(model, request, retry))
    outcome: list[Assistant | BaseException] = []

    def run() -> None:
        try:
            outcome.append(loop.run_until_complete(task))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            outcome.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    thread = threading.Thread(target=run, name="model", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:  # KeyboardInterrupt, in the main thread
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    (found,) = outcome
    if isinstance(found, BaseException):
        raise found
    return found
