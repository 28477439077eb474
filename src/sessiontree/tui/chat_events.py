"""Shows the events of a run in a transcript: of the chat, or of a lane."""

from __future__ import annotations

from collections.abc import Callable

from sessiontree.agent.events import (
    AgentEnd,
    ApprovalAnswered,
    ApprovalAsked,
    Compacting,
    Failed,
    Persisted,
    Retry,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    ToolUpdate,
)
from sessiontree.chat.event_printer import compaction_lines, describe_usage
from sessiontree.chat.styles import DIM, RED
from sessiontree.core.entries import CONVERSATION_TYPES, MessageEntry, type_of
from sessiontree.core.messages import ToolResult
from sessiontree.session.session import Session
from sessiontree.tui.chat_blocks import AnswerBlock, CallStatus
from sessiontree.tui.chat_transcript import Transcript
from sessiontree.views.text import one_line

_KEPT = 4_000
"""Characters of a call's live output that are kept."""


class EventView:
    """Adds what happens in a run to a transcript."""

    def __init__(self, transcript: Transcript, session: Callable[[], Session]) -> None:
        self._transcript, self._session = transcript, session
        self._answer: AnswerBlock | None = None

    def end(self) -> None:
        """Remove the answer in progress: it was written, or is void."""
        if self._answer is not None:
            self._transcript.remove_block(self._answer)
            self._answer = None

    def _add_text(self, text: str, *, is_thinking: bool) -> None:
        if self._answer is None:
            self._answer = AnswerBlock()
            self._transcript.add(self._answer)
        self._answer.add(text, is_thinking=is_thinking)
        self._transcript.redraw()

    def show(self, event: object) -> None:
        transcript, calls = self._transcript, self._transcript.calls
        match event:
            case TextDelta():
                self._add_text(event.text, is_thinking=False)
            case ThinkingDelta():
                self._add_text(event.text, is_thinking=True)
            case Retry():
                self.end()
                text = f"attempt {event.attempt} failed, retrying in {event.delay:.0f} s: {one_line(event.error)}"
                transcript.note(f"· {text}", RED)
            case Persisted():
                self.end()
                entry = event.entry
                is_result = isinstance(entry, MessageEntry) and isinstance(entry.message, ToolResult)
                is_shown = type_of(entry) in CONVERSATION_TYPES
                transcript.add_entry(self._session(), entry.id, is_result=is_result, is_shown=is_shown)
            case ToolStart():
                calls[event.call.id] = CallStatus()
                transcript.touch_calls()
            case ToolUpdate() if event.call_id in calls:
                calls[event.call_id].printed = (calls[event.call_id].printed + event.text)[-_KEPT:]
                transcript.touch_calls()
            case ApprovalAsked() if event.question.call_id in calls:
                calls[event.question.call_id].is_asked = True
                transcript.touch_calls()
            case ApprovalAnswered() if event.call_id in calls:
                calls[event.call_id].is_asked = False
                transcript.touch_calls()
            case ToolEnd() if event.call.id in calls:
                calls[event.call.id].end()
                transcript.touch_calls()
            case Compacting():
                for text, style in compaction_lines(event):
                    transcript.note(text, style)
            case Failed():
                transcript.note(f"✗ {one_line(event.message)}", RED)
            case AgentEnd():
                self.end()
                self._show_end(event)
            case _:
                pass

    def _show_end(self, event: AgentEnd) -> None:
        if event.reason == "interrupted":
            self._transcript.note("· Interrupted. Unfinished tool calls were recorded as not run.", RED)
        elif event.reason == "limit":
            self._transcript.note(f"· stopped: {one_line(event.why)}", RED)
        if event.spent.turns:
            self._transcript.note(f"· {describe_usage(event.spent)}", DIM)
