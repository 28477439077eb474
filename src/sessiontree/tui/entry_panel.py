"""The selected entry in full: text as Markdown, edits as diffs, calls and results."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.text import Text
from textual import work
from textual.events import Resize
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.worker import get_current_worker

from sessiontree.core.entries import BranchSummary, Compaction, CustomMessage, Entry, MessageEntry, type_of
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Image,
    Message,
    Thinking,
    ToolCall,
    User,
    message_blocks,
    message_text,
    text_of,
)
from sessiontree.errors import SessionTreeError
from sessiontree.session.session import Session
from sessiontree.views.text import clean, plural
from sessiontree.views.tree_rows import call_text

_DELAY = 0.05
_MAX_ENTRIES = 50
_MAX_LINES = 4_000
_MOST = 20_000
"""Characters of one block that are shown; a screen is not the place for more."""
_OLD = ("old_text", "oldText", "old_string", "oldString")
_NEW = ("new_text", "newText", "new_string", "newString", "content")


class EntryPanel(ScrollView, can_focus=False):
    """Shows one entry, or the entries of a folded row. It is read and rendered in the background."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._wanted: tuple[Session, tuple[int, ...]] | None = None
        self._lines: list[Strip] = []

    def show(self, session: Session, nodes: Sequence[int]) -> None:
        """Show some entries of a session, after a moment: a user who moves on does not need them."""
        wanted = self._wanted = (session, tuple(nodes[: _MAX_ENTRIES + 1]))
        self.set_timer(_DELAY, lambda: self._start(wanted))

    def on_resize(self, event: Resize) -> None:  # noqa: ARG002 - the size is the panel's own
        if self._wanted is not None:
            self._start(self._wanted)

    def _start(self, wanted: tuple[Session, tuple[int, ...]]) -> None:
        width = self.scrollable_content_region.width
        if wanted is self._wanted and self.display and width > 0:
            self._render_entries(*wanted, width)

    @work(thread=True, exclusive=True, group="entry")
    def _render_entries(self, session: Session, nodes: tuple[int, ...], width: int) -> None:
        worker = get_current_worker()
        try:
            entries = session.journal.entries(nodes[:_MAX_ENTRIES])
            parts = [part for entry in entries for part in render_entry(entry)]
        except (SessionTreeError, OSError) as error:
            parts = [Text(clean(str(error)), "red")]
        if len(nodes) > _MAX_ENTRIES:
            parts.append(Text(f"⋯ more than {plural(_MAX_ENTRIES, 'entry', 'entries')}", "dim"))
        lines = render_lines(Group(*parts), width)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._show_lines, lines, width)

    def _show_lines(self, lines: list[Strip], width: int) -> None:
        if not self.is_attached:
            return
        self._lines = lines
        self.virtual_size = Size(width, len(lines))
        self.scroll_to(0, 0, animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width, at = self.scrollable_content_region.width, y + self.scroll_offset.y
        if at >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        return self._lines[at].adjust_cell_length(width).apply_style(self.rich_style)


def render_lines(content: RenderableType, width: int) -> list[Strip]:
    """Render rich content to lines. May run in any thread."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(
            file=nowhere, width=width, force_terminal=True, color_system="truecolor", legacy_windows=False
        )
        rendered = console.render_lines(content, console.options, pad=False)
    return [Strip(line) for line in rendered[:_MAX_LINES]]


def plain_text(entry: Entry) -> str:
    """The text of an entry, for the clipboard."""
    match entry:
        case MessageEntry():
            return "\n\n".join(filter(None, map(message_text, entry.messages)))
        case Compaction() | BranchSummary():
            return entry.summary
        case CustomMessage():
            return text_of(entry.content)
        case _:
            return type_of(entry)


def render_entry(entry: Entry) -> Iterator[RenderableType]:
    """An entry as rich text; everything of the session is sanitized."""
    role = entry.message.role if isinstance(entry, MessageEntry) else type_of(entry)
    yield Text(clean(f"{role} · {entry.id} · {entry.timestamp}"), "dim")
    match entry:
        case MessageEntry():
            for message in entry.messages:
                yield from _render_message(message)
        case Compaction() | BranchSummary():
            yield _markdown(entry.summary)
        case CustomMessage():
            yield _markdown(text_of(entry.content))
        case _:
            pass
    yield Text()


def _render_message(message: Message) -> Iterator[RenderableType]:
    if isinstance(message, BashExecution):
        yield Text(clean(f"$ {message.command}\n{message.output[:_MOST]}"))
        return
    for block in message_blocks(message):
        match block:
            case Thinking():
                yield Text(clean(block.thinking[:_MOST]), "italic dim")
            case ToolCall():
                yield from _render_call(block)
            case Image():
                yield Text("(image)", "dim")
            case _:
                text = getattr(block, "text", None)
                if isinstance(text, str):
                    is_prose = isinstance(message, Assistant | User)
                    yield _markdown(text) if is_prose else Text(clean(text[:_MOST]))


def _render_call(call: ToolCall) -> Iterator[RenderableType]:
    yield Text(f"→ {call_text(call)}", "bold")
    old = next((call.arguments[name] for name in _OLD if isinstance(call.arguments.get(name), str)), None)
    new = next((call.arguments[name] for name in _NEW if isinstance(call.arguments.get(name), str)), None)
    if new is None:
        return
    diff = Text()
    lines = difflib.unified_diff((old or "")[:_MOST].splitlines(), new[:_MOST].splitlines(), n=2, lineterm="")
    for line in list(lines)[2:]:
        diff.append(clean(line) + "\n", {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim"))
    yield diff


def _markdown(text: str) -> RenderableType:
    return Markdown(clean(text[:_MOST]), hyperlinks=False)
