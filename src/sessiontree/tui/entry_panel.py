"""The selected entry in full: text as Markdown, edits as diffs, calls and results."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

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
from sessiontree.session.journal import Journal
from sessiontree.session.session import Session
from sessiontree.tui.image_facts import describe_image
from sessiontree.tui.rendered_panel import RenderedPanel
from sessiontree.views.text import clean, plural
from sessiontree.views.tree_rows import call_text

_DELAY = 0.05
_MAX_ENTRIES = 50
_MOST = 20_000
"""Characters of one block that are shown; a screen is not the place for more."""
_PIECE = 10
_OLD = ("old_text", "oldText", "old_string", "oldString")
_NEW = ("new_text", "newText", "new_string", "newString", "content")


class EntryPanel(RenderedPanel):
    """Shows one entry, or the entries of a folded row."""

    _content: tuple[Journal, tuple[int, ...], int] | None = None

    def show(self, session: Session, nodes: Sequence[int]) -> None:
        """Show some entries of a session, after a moment: a user who moves on does not need them."""
        shown = tuple(nodes[:_MAX_ENTRIES])
        more = len(nodes) - len(shown)
        content = (session.journal, shown, more)
        if content == self._content:
            return  # another view of the tree, with the same entry selected
        self._content = content

        def build() -> Iterator[RenderableType]:
            try:
                for entry in session.journal.iter_entries(shown):
                    yield from render_entry(entry)
            except (SessionTreeError, OSError) as error:
                yield Text(clean(str(error)), "red")
            if more:
                yield Text(f"⋯ {plural(more, 'more entry', 'more entries')}", "dim")

        self.show_content(build, delay=_DELAY)


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
            yield from _markdown(entry.summary)
        case CustomMessage():
            yield from _markdown(text_of(entry.content))
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
                yield describe_image(block)
            case _:
                text = getattr(block, "text", None)
                if isinstance(text, str):
                    is_prose = isinstance(message, Assistant | User)
                    yield from _markdown(text) if is_prose else _plain(text)


def _render_call(call: ToolCall) -> Iterator[RenderableType]:
    yield Text(f"→ {call_text(call)}", "bold")
    diff = edit_diff(call)
    if diff is not None:
        yield diff


def edit_diff(call: ToolCall) -> Text | None:
    """The change that a call makes to a file, from its arguments; None if it changes no file."""
    old = next((call.arguments[name] for name in _OLD if isinstance(call.arguments.get(name), str)), None)
    new = next((call.arguments[name] for name in _NEW if isinstance(call.arguments.get(name), str)), None)
    if new is None:
        return None
    diff = Text()
    lines = difflib.unified_diff((old or "")[:_MOST].splitlines(), new[:_MOST].splitlines(), n=2, lineterm="")
    for line in list(lines)[2:]:
        diff.append(clean(line) + "\n", {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim"))
    return diff


def _markdown(text: str) -> Iterator[RenderableType]:
    from sessiontree.tui.markdown import render_markdown  # not needed for the first frame

    return render_markdown(text[:_MOST])


def _plain(text: str) -> Iterator[Text]:
    """A text in pieces, because a panel renders those that are visible."""
    lines = clean(text[:_MOST]).split("\n")
    for start in range(0, len(lines), _PIECE):
        yield Text("\n".join(lines[start : start + _PIECE]))
