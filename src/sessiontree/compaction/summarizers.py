"""Summarizers: callables that turn a `Request` into a `Summary`, or raise `SummaryError`.

`find_summarizer` finds one by name, including those of other packages (see `plugins`). The default is the extractive
one, which needs no model. `ModelSummarizer` asks a model. An answer that failed, is empty or truncated, or calls a tool
is an error, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, cast

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.compaction.prompts import SYSTEM, branch_prompt, history_prompt, turn_prompt
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.messages import Cost, Message, Usage
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.errors import SummaryError

Kind = Literal["history", "turn", "branch"]
"""The older part of a conversation; the first part of a split turn; another branch."""


class Request(Struct, frozen=True):
    """Messages to summarize, with options."""

    kind: Kind
    messages: Sequence[Message]
    previous: str | None = None
    """For a history: the summary of what came before these messages, to be updated."""
    instructions: str | None = None
    """What the user wants the summary to focus on."""
    only_instructions: bool = False
    """The instructions replace our own prompt."""
    files: FileLists = FileLists()
    agent: str = DEFAULT_DIALECT
    """The agent whose tools are called in the messages."""
    max_tokens: int = 13_000
    """Largest size of the summary."""


class Summary(Struct, frozen=True):
    """A summary and the usage of its request."""

    text: str
    usage: Usage | None = None
    by: str | None = None
    """Name of the summarizer that wrote it, if another one was called."""
    reports: tuple[str, ...] = ()
    """Failures that the user must know about."""


class Summarizer(Protocol):
    """Writes summaries.

    Contract: returns a text that is not blank, or raises `SummaryError`. It may be called from any thread, and may be
    interrupted by any exception: nothing has been written to the session then.
    """

    @property
    def name(self) -> str:
        """Name recorded with its summaries."""
        ...

    def __call__(self, request: Request, /) -> Summary: ...


class Answer(Struct, frozen=True):
    """Answer of a model."""

    text: str
    stop_reason: str = "stop"
    """One of Pi's values: stop, length, toolUse, error, aborted."""
    tool_calls: Sequence[Any] = ()
    usage: Usage | None = None
    error: str | None = None


class Complete(Protocol):
    """Sends one request to a model. The messages are `{"role": ..., "content": text}`."""

    def __call__(self, *, system: str, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> Answer: ...


class ModelSummarizer:
    """A Summarizer that asks a model."""

    def __init__(self, complete: Complete, name: str = "model") -> None:
        self._complete = complete
        self.name = name

    def __call__(self, request: Request, /) -> Summary:
        messages = [{"role": "user", "content": _prompt(request)}]
        answer = self._complete(system=SYSTEM, messages=messages, max_tokens=request.max_tokens)
        if answer.stop_reason in ("error", "aborted"):
            raise SummaryError(f"{self.name} returned no summary: {answer.error or answer.stop_reason}")
        if answer.stop_reason == "length":
            raise SummaryError(f"{self.name} reached {request.max_tokens:,} tokens, so the summary is incomplete")
        if answer.tool_calls or answer.stop_reason == "toolUse":
            raise SummaryError(f"{self.name} called a tool instead of writing a summary")
        text = answer.text.strip()
        if not text:
            raise SummaryError(f"{self.name} returned an empty summary")
        return Summary(text, answer.usage)


class FallbackSummarizer:
    """A Summarizer that calls a second one if the first fails, and reports the failure."""

    def __init__(self, first: Summarizer, second: Summarizer) -> None:
        self.first, self.second = first, second

    @property
    def name(self) -> str:
        return self.first.name

    def __call__(self, request: Request, /) -> Summary:
        try:
            return self.first(request)
        except SummaryError as error:
            summary = self.second(request)
            report = f"{error}; the summary is {self.second.name} instead"
            return msgspec.structs.replace(summary, by=self.second.name, reports=(*summary.reports, report))


def _prompt(request: Request) -> str:
    match request.kind:
        case "history":
            return history_prompt(request.messages, request.previous, request.instructions)
        case "turn":
            return turn_prompt(request.messages, request.instructions)
        case "branch":
            alone = request.only_instructions
            return branch_prompt(request.messages, request.instructions, only_instructions=alone)


def find_summarizer(name: str | None = None) -> Summarizer:
    """Find a summarizer by the name of its plugin; the default needs no model."""
    if name is None:
        from sessiontree.compaction.extractive import EXTRACTIVE

        return EXTRACTIVE
    return cast("Summarizer", plugins.load("summarizers", name))


def add_usage(first: Usage | None, second: Usage | None) -> Usage | None:
    """Add the usage of two requests."""
    if first is None or second is None:
        return first or second
    fields = ("input", "output", "cache_read", "cache_write", "total_tokens")
    sums = {name: getattr(first, name) + getattr(second, name) for name in fields}
    costs = [msgspec.structs.asdict(usage.cost) for usage in (first, second) if usage.cost is not None]
    cost = Cost(**{name: sum(each[name] for each in costs) for name in costs[0]}) if costs else None
    return Usage(**sums, cost=cost)
