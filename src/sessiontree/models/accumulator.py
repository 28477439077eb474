"""Accumulate the events of an answer, even a partial one, into a message."""

from __future__ import annotations

from sessiontree.core.messages import Assistant, Text, Thinking, Usage
from sessiontree.models.base import (
    AnswerBlock,
    BlockEnd,
    Event,
    Stop,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
    UsageReport,
)


class AnswerAccumulator:
    """Builds a message from events, at any time.

    An incomplete block keeps its text but has no signature yet. An incomplete call is left out, because its arguments
    are not known.
    """

    def __init__(self, provider: str | None = None, model: str | None = None, api: str | None = None) -> None:
        self._origin = (api, provider, model)
        self._ended: dict[int, AnswerBlock] = {}
        self._open: dict[int, tuple[type[Text | Thinking], list[str]]] = {}
        self._calls: dict[int, list[str]] = {}
        self._complete: Assistant | None = None
        self.has_begun = False
        """Whether any event has arrived."""
        self.usage: Usage | None = None
        """Usage reported so far."""

    def add(self, event: Event) -> None:
        self.has_begun = True
        match event:
            case TextDelta():
                self._open.setdefault(event.index, (Text, []))[1].append(event.text)
            case ThinkingDelta():
                self._open.setdefault(event.index, (Thinking, []))[1].append(event.text)
            case BlockEnd():
                self._ended[event.index] = event.block
            case UsageReport():
                self.usage = event.usage
            case Stop():
                self._complete = event.message
            case ToolCallStart():
                self._calls.setdefault(event.index, []).append(event.name)
            case ToolCallDelta():
                self._calls.setdefault(event.index, []).append(event.arguments)

    @property
    def incomplete_calls(self) -> str:
        """Text of incomplete calls: not part of the message, but billed."""
        if self._complete is not None:
            return ""
        return "".join(piece for at, pieces in self._calls.items() if at not in self._ended for piece in pieces)

    def message(self, stop_reason: str = "aborted", error: str | None = None) -> Assistant | None:
        """The message so far, or the complete one; None when nothing has arrived."""
        if self._complete is not None:
            return self._complete
        texts: dict[int, AnswerBlock] = {
            index: kind("".join(pieces)) for index, (kind, pieces) in self._open.items() if any(pieces)
        }
        blocks = {**texts, **self._ended}
        if not blocks:
            return None
        api, provider, model = self._origin
        return Assistant(
            content=tuple(blocks[index] for index in sorted(blocks)),
            api=api,
            provider=provider,
            model=model,
            usage=self.usage,
            stop_reason=stop_reason,
            error_message=error,
        )
