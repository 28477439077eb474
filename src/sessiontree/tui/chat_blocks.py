"""The blocks of a chat: prompts, answers with their calls, the answer in progress, and notes. Rendered as rich text.

Everything that comes from a session or a model is sanitized here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct
from rich.console import RenderableType
from rich.text import Text

from sessiontree.chat.event_printer import describe_call, last_lines
from sessiontree.chat.styles import BOLD, CYAN, DIM, GREEN, RED
from sessiontree.core.entries import BranchSummary, Compaction, CustomMessage, Entry, MessageEntry
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Image,
    Message,
    Thinking,
    ToolCall,
    ToolResult,
    User,
    blocks_of,
    message_blocks,
    text_of,
)
from sessiontree.tui.entry_panel import edit_diff
from sessiontree.tui.image_facts import ImagePart
from sessiontree.tui.markdown import ends_block, render_markdown
from sessiontree.views.text import clean, one_line, plural

MAX_CHARACTERS = 40_000
"""Characters of one text that are shown; the tree and `sessiontree show` have all of them."""
_LIVE_LINES = 5
_FOLDED_DIFF = 12
_FOLDED_ERROR = 4
Part: TypeAlias = RenderableType | ImagePart
"""A part of a block."""
_STYLES = {DIM: "dim", BOLD: "bold", RED: "red", GREEN: "green", CYAN: "cyan"}


class Look(Struct, frozen=True):
    """How blocks are shown."""

    with_thinking: bool = True
    is_verbose: bool = False
    """Whether calls are unfolded."""


class CallStatus:
    """A call of the run in progress."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.printed = ""
        self.is_asked = False

    @property
    def is_running(self) -> bool:
        return self.seconds is None

    def end(self) -> None:
        self.seconds = time.monotonic() - self.began


class Block:
    """A part of the conversation. `version` changes with its content."""

    version = 0
    is_unfolded = False

    def touch(self) -> None:
        self.version += 1

    def render(self, look: Look) -> Iterator[Part]:
        raise NotImplementedError


class NoteBlock(Block):
    """Lines that commands print."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def add(self, text: str, style: str) -> None:
        self.lines.append((clean(text[:MAX_CHARACTERS]), _STYLES.get(style, "")))
        self.touch()

    def render(self, look: Look) -> Iterator[Part]:  # noqa: ARG002 - of all blocks
        for text, style in self.lines:
            yield Text(text, style)


class EntryBlock(Block):
    """A message, or an answer with its calls and their results. Entries are read when the block is visible."""

    def __init__(
        self,
        load: Callable[[Sequence[str]], list[Entry]],
        id: str,
        calls: dict[str, CallStatus],
        *,
        takes_calls: bool = False,
        begins_turn: bool = True,
    ) -> None:
        self.ids = [id]
        self.begins_turn = begins_turn
        """Whether it cannot belong to the block before it."""
        self.takes_calls = takes_calls
        """Whether further calls belong to this answer: some clients write each of its calls as a separate entry."""
        self._load, self._calls = load, calls

    def add(self, id: str, *, is_calls: bool) -> None:
        """Add a result, or further calls of the same answer; the results follow after all of its calls."""
        self.ids.append(id)
        self.takes_calls = is_calls
        self.touch()

    def render(self, look: Look) -> Iterator[Part]:
        entries = self._load(self.ids)
        calls = {call.id for entry in entries for call in _calls_of(entry)}
        results: dict[str, tuple[ToolResult, str]] = {}
        for entry in entries:
            if isinstance(entry, MessageEntry):
                for message in entry.messages:
                    if isinstance(message, ToolResult) and message.tool_call_id in calls:
                        results[message.tool_call_id] = (message, entry.timestamp)
        shown_look = look if not self.is_unfolded else Look(look.with_thinking, True)
        for entry in entries:
            yield from self._render_entry(entry, results, shown_look)

    def _render_entry(self, entry: Entry, results: dict[str, tuple[ToolResult, str]], look: Look) -> Iterator[Part]:
        match entry:
            case MessageEntry():
                for message in entry.messages:
                    # The result of a call is shown with it.
                    if not isinstance(message, ToolResult) or message.tool_call_id not in results:
                        yield from self._render_message(message, entry, results, look)
            case Compaction() | BranchSummary():
                what = "summary of older messages" if isinstance(entry, Compaction) else "summary of another branch"
                yield Text(f"── {what} ──", "dim")
                yield from _markdown(entry.summary)
            case CustomMessage():
                yield from _markdown(text_of(entry.content))
            case _:
                pass

    def _render_message(
        self, message: Message, entry: Entry, results: dict[str, tuple[ToolResult, str]], look: Look
    ) -> Iterator[Part]:
        match message:
            case BashExecution():
                yield Text(clean(f"! {message.command}"), "bold")
                yield from _output(message.output, look, 20)
            case User():
                yield from _render_prompt(message)
            case ToolResult():  # without the call that it answers
                yield Text(f"✓ {one_line(message.tool_name)}", "red" if message.is_error else "green")
                yield from _output(text_of(message.content), look, _FOLDED_ERROR)
            case _:
                for block in message_blocks(message):
                    match block:
                        case Thinking():
                            if look.with_thinking and block.thinking.strip():
                                yield Text(clean(_limited(block.thinking.strip())), "italic dim")
                        case ToolCall():
                            yield from self._render_call(block, results.get(block.id), entry.timestamp, look)
                        case Image():
                            yield ImagePart(block)
                        case _:
                            text = getattr(block, "text", None)
                            if isinstance(text, str) and text.strip():
                                yield from _markdown(text)
                if isinstance(message, Assistant) and message.error_message:
                    yield Text(f"✗ {one_line(message.error_message)}", "red")

    def _render_call(
        self, call: ToolCall, answered: tuple[ToolResult, str] | None, began: str, look: Look
    ) -> Iterator[Part]:
        status = self._calls.get(call.id)
        result = answered[0] if answered is not None else None
        text = Text(no_wrap=True, overflow="ellipsis")
        if result is not None:
            text.append("✗ " if result.is_error else "✓ ", "red" if result.is_error else "green")
        elif status is not None and status.is_running:
            text.append("? " if status.is_asked else "● ", "yellow")
        else:
            text.append("○ ", "dim")
        text.append(describe_call(call), "bold")
        seconds = _seconds(status, began, answered[1] if answered is not None else None)
        text.append(f"  {seconds}" if seconds else "", "dim")
        output = text_of(result.content) if result is not None else ""
        if output.strip() and not look.is_verbose:
            text.append(f"  {plural(output.strip().count(chr(10)) + 1, 'line')}", "dim")
        yield text
        yield from _limit_lines(edit_diff(call), None if look.is_verbose else _FOLDED_DIFF)
        if result is None and status is not None and status.printed:
            for line in last_lines(status.printed, _LIVE_LINES):
                yield Text(f"  {clean(line[:MAX_CHARACTERS])}", "dim", no_wrap=True, overflow="ellipsis")
        elif result is not None:
            if look.is_verbose or result.is_error:
                yield from _output(output, look, _FOLDED_ERROR)
            for block in blocks_of(result.content):
                if isinstance(block, Image):
                    yield ImagePart(block, one_line(describe_call(call)))


def _calls_of(entry: Entry) -> Iterator[ToolCall]:
    if isinstance(entry, MessageEntry):
        for message in entry.messages:
            yield from (block for block in message_blocks(message) if isinstance(block, ToolCall))


class AnswerBlock(Block):
    """The answer in progress. Finished paragraphs are rendered once."""

    def __init__(self) -> None:
        self.text, self.thinking = "", ""
        self._parts: list[RenderableType] = []
        self._done = 0

    def add(self, text: str, *, is_thinking: bool) -> None:
        if is_thinking:
            self.thinking += text
        else:
            self.text += text
        self.touch()

    def render(self, look: Look) -> Iterator[Part]:
        if look.with_thinking and self.thinking.strip():
            yield Text(clean(self.thinking.strip()[-MAX_CHARACTERS:]), "italic dim")
        end = _last_paragraph(self.text, self._done)
        if end > self._done:
            self._parts += [*_markdown(self.text[self._done : end]), Text()]
            self._done = end
        yield from self._parts
        if self.text[self._done :].strip():
            yield from _markdown(self.text[self._done :])


def _last_paragraph(text: str, start: int) -> int:
    """Where the last paragraph begins, unless it is inside a code block."""
    end = text.rfind("\n\n", start)
    return end + 2 if end >= 0 and ends_block(text, start, end) else start


def _render_prompt(message: User) -> Iterator[Part]:
    text = Text(style="bold cyan")
    lines = clean(_limited(text_of(message.content))).split("\n")
    text.append("\n".join(f"▌ {line}" for line in lines))
    yield text
    for block in blocks_of(message.content):
        if isinstance(block, Image):
            yield ImagePart(block)


def _output(text: str, look: Look, folded: int) -> Iterator[RenderableType]:
    lines = clean(_limited(text.rstrip())).split("\n") if text.strip() else []
    shown = lines if look.is_verbose else lines[:folded]
    for line in shown:
        yield Text(f"  {line}", "dim")
    if len(lines) > len(shown):
        yield Text(f"  … {plural(len(lines) - len(shown), 'more line')} (Ctrl+O)", "dim")


def _limit_lines(diff: Text | None, most: int | None) -> Iterator[RenderableType]:
    if diff is None:
        return
    lines = diff.split("\n")
    yield from (Text("  ").append_text(line) for line in (lines if most is None else lines[:most]) if line.plain)
    if most is not None and len(lines) > most:
        yield Text(f"  … {plural(len(lines) - most, 'more line')} (Ctrl+O)", "dim")


def _seconds(status: CallStatus | None, began: str, ended: str | None) -> str:
    if status is not None:
        seconds = status.seconds if status.seconds is not None else time.monotonic() - status.began
    elif ended is not None:
        try:
            seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
        except (ValueError, TypeError):
            return ""
    else:
        return ""
    return f"{seconds:.1f} s" if seconds >= 0.1 else ""


def _limited(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return text
    return f"{text[:MAX_CHARACTERS]}\n… {len(text) - MAX_CHARACTERS:,} more characters (/tree shows the entry)"


def _markdown(text: str) -> Iterator[RenderableType]:
    return render_markdown(_limited(text))
