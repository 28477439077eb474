"""A summarizer that asks a model of a provider.

Summarizers are called from synchronous functions in any thread, so the request runs in its own event loop and thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sessiontree.compaction.summarizers import Answer, Complete, ModelSummarizer, Summarizer, find_summarizer
from sessiontree.core.messages import Assistant, Message, User, parse_message, text_of, tool_calls
from sessiontree.errors import ModelError
from sessiontree.models.base import Model, Request
from sessiontree.models.open import open_model
from sessiontree.models.retry import RequestGate, ask, no_gate
from sessiontree.settings import Compaction, Retry, Settings

Ask: TypeAlias = Callable[[Model, Request, Retry | None], Assistant]
"""Sends a request to a model that was opened for it, and closes the model."""


def summarizer_for(settings: Settings) -> Summarizer:
    """The summarizer of the settings: a model as "provider:name", else an installed summarizer."""
    name = settings.compaction.summarizer
    if ":" in name:
        return OpenedModelSummarizer(lambda: open_model(name, facts=settings.models), name, settings.retry)
    return find_summarizer(None if name == Compaction().summarizer else name)


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
    except BaseException:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
    (found,) = outcome
    if isinstance(found, BaseException):
        raise found
    return found
