"""Who writes a summary. A summarizer is a callable: a request in, a summary out, or a `SummaryError`.

`find_summarizer` gives one by name, ours and other packages' alike (see `plugins`); without a name it is the extractive
one, which needs no model. `ModelSummarizer` asks a model. What it answers is stored only when it is whole: an answer
that failed, is empty, was cut off or calls a tool is an error, and the session stays as it was.
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
from sessiontree.errors import SummaryError

Kind = Literal["history", "turn", "branch"]
"""The older part of a conversation; the beginning of a turn that is cut; a branch that is left."""


class Request(Struct, frozen=True):
    """What is to be summarised."""

    kind: Kind
    messages: Sequence[Message]
    previous: str | None = None
    """For a history: the summary that stands before these messages and is to be built on."""
    instructions: str | None = None
    """What the user wants to be kept above all."""
    only_instructions: bool = False
    """The instructions take the place of our own, where a model is asked."""
    files: FileLists = FileLists()
    agent: str = "native"
    """Whose words the tools are called in."""
    max_tokens: int = 13_000
    """How long the summary may be."""


class Summary(Struct, frozen=True):
    """A summary, and what it cost."""

    text: str
    usage: Usage | None = None


class Summarizer(Protocol):
    """Writes summaries.

    Contract: gives a text that is not blank, or raises `SummaryError`. Nothing is written while it works; it may be
    called from any thread, and may be interrupted by any exception.
    """

    @property
    def name(self) -> str:
        """What it is called where a summary says who wrote it."""
        ...

    def __call__(self, request: Request, /) -> Summary: ...


class Answer(Struct, frozen=True):
    """What a model answered."""

    text: str
    stop_reason: str = "stop"
    """Pi's words: stop, length, toolUse, error, aborted."""
    tool_calls: Sequence[Any] = ()
    usage: Usage | None = None
    error: str | None = None


class Complete(Protocol):
    """Asks a model once. The messages are `{"role": ..., "content": text}`."""

    def __call__(self, *, system: str, messages: Sequence[Mapping[str, Any]], max_tokens: int) -> Answer: ...


class ModelSummarizer:
    """Lets a model write the summaries."""

    def __init__(self, complete: Complete, name: str = "model") -> None:
        self._complete = complete
        self.name = name

    def __call__(self, request: Request, /) -> Summary:
        asked = [{"role": "user", "content": _prompt(request)}]
        answer = self._complete(system=SYSTEM, messages=asked, max_tokens=request.max_tokens)
        if answer.stop_reason in ("error", "aborted"):
            raise SummaryError(f"{self.name} gave no summary: {answer.error or answer.stop_reason}")
        if answer.stop_reason == "length":
            raise SummaryError(f"{self.name} was cut off at {request.max_tokens:,} tokens, so the summary is not whole")
        if answer.tool_calls or answer.stop_reason == "toolUse":
            raise SummaryError(f"{self.name} called a tool instead of writing a summary")
        text = answer.text.strip()
        if not text:
            raise SummaryError(f"{self.name} gave an empty summary")
        return Summary(text, answer.usage)


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
    """A summarizer by the name it is installed under; without one, that which needs no model."""
    if name is None:
        from sessiontree.compaction.extractive import EXTRACTIVE

        return EXTRACTIVE
    return cast("Summarizer", plugins.load("summarizers", name))


def added_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """What two requests used together."""
    if one is None or other is None:
        return one or other
    fields = ("input", "output", "cache_read", "cache_write", "total_tokens")
    sums = {name: getattr(one, name) + getattr(other, name) for name in fields}
    costs = [msgspec.structs.asdict(usage.cost) for usage in (one, other) if usage.cost is not None]
    cost = Cost(**{name: sum(each[name] for each in costs) for name in costs[0]}) if costs else None
    return Usage(**sums, cost=cost)
