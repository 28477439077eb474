"""What has come of an answer so far, out of its events: for an interrupt, and for whoever shows it while it comes."""

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


class Gathering:
    """Takes events in; gives a message at any time.

    A block that was cut off keeps its text. Its signature had not come, so it has none, and a call that was cut off is
    left out: what it would have asked for is not known.
    """

    def __init__(self, provider: str | None = None, model: str | None = None, api: str | None = None) -> None:
        self._origin = (api, provider, model)
        self._ended: dict[int, AnswerBlock] = {}
        self._open: dict[int, tuple[type[Text | Thinking], list[str]]] = {}
        self._calls: dict[int, list[str]] = {}
        self._whole: Assistant | None = None
        self.has_begun = False
        """Whether anything has come at all."""
        self.usage: Usage | None = None
        """What was reported so far."""

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
                self._whole = event.message
            case ToolCallStart():
                self._calls.setdefault(event.index, []).append(event.name)
            case ToolCallDelta():
                self._calls.setdefault(event.index, []).append(event.arguments)

    @property
    def cut_off(self) -> str:
        """What has come of calls that have not ended: no part of the message, and paid for."""
        if self._whole is not None:
            return ""
        return "".join(piece for at, pieces in self._calls.items() if at not in self._ended for piece in pieces)

    def message(self, stop_reason: str = "aborted", error: str | None = None) -> Assistant | None:
        """The message so far; None when nothing has come. One that ended is given as it ended."""
        if self._whole is not None:
            return self._whole
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
