"""A model as the summarizers want it: one question, one answer, no events.

Summarizers are called from ordinary functions, in any thread, so the request runs in a loop and a thread of its own.
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
from sessiontree.models.retry import Door, ask, open_door
from sessiontree.settings import Compaction, Retry, Settings

Ask: TypeAlias = Callable[[Model, Request, Retry | None], Assistant]
"""Asks a model that was opened for it, and closes it."""


def summarizer_for(settings: Settings) -> Summarizer:
    """Whoever the settings name: a model as "provider:name", else a summarizer that is installed under the name."""
    name = settings.compaction.summarizer
    if ":" in name:
        return AskingSummarizer(lambda: open_model(name, facts=settings.models), name, settings.retry)
    return find_summarizer(None if name == Compaction().summarizer else name)


class AskingSummarizer(ModelSummarizer):
    """Lets a model write the summaries. The model is opened for each, and closed behind it."""

    def __init__(
        self, open_one: Callable[[], Model], name: str, retry: Retry | None = None, ask: Ask | None = None
    ) -> None:
        super().__init__(complete_with(open_one, retry, ask), name)
        self._open_one, self._retry = open_one, retry

    def asking(self, ask: Ask) -> AskingSummarizer:
        """The same one, whose requests are made by someone else: who counts them."""
        return AskingSummarizer(self._open_one, self.name, self._retry, ask)


def complete_with(open_one: Callable[[], Model], retry: Retry | None = None, ask: Ask | None = None) -> Complete:
    """A model as a plain function. It never raises for what the model does: the answer says what went wrong."""
    how = ask or _in_a_thread

    def complete(*, system: str, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> Answer:
        request = Request([_message(fields) for fields in messages], system, max_tokens=max_tokens)
        try:
            message = how(open_one(), request, retry)
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


async def ask_and_close(model: Model, request: Request, retry: Retry | None, door: Door = open_door) -> Assistant:
    """The whole answer of a model that is asked nothing else."""
    try:
        return await ask(model, request, retry, door=door)
    finally:
        await model.close()


def _in_a_thread(model: Model, request: Request, retry: Retry | None) -> Assistant:
    """Run the request to its end, whatever loop the caller may be in. An interrupt of the caller ends it."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(ask_and_close(model, request, retry))
    outcome: list[Assistant | BaseException] = []

    def run() -> None:
        try:
            outcome.append(loop.run_until_complete(task))
        except BaseException as error:  # noqa: BLE001 - it is raised again where it can be handled
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
