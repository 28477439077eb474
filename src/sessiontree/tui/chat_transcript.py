"""The conversation on the screen: a column of blocks; only the visible ones are rendered.

The height of blocks above the screen is never computed: the position is a block and a line in it, or the end. Blocks
are created at the end and, when the user goes there, at the beginning; between them is a gap that is filled from the
side that the user scrolls from. So a session with 50,000 entries opens as fast as a short one, and shows its first
entry as fast as its last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from textual.events import Click
from textual.strip import Strip

from sessiontree.core.entries import CONVERSATION_TYPES, Entry, MessageEntry
from sessiontree.dialects.contract import EntryKind
from sessiontree.dialects.defaults import message_kind
from sessiontree.session.session import Session
from sessiontree.tui.chat_blocks import Block, CallStatus, EntryBlock, Look, NoteBlock
from sessiontree.tui.image_facts import ImagePart
from sessiontree.tui.line_widget import WheelScrolled
from sessiontree.tui.pictures import Line, PictureView

_KEPT = 512
"""Blocks whose lines are kept."""
_RECENT = 64
_STEP = 100
"""Entries that are read at a time."""


class Transcript(PictureView, WheelScrolled, can_focus=False):
    """Shows blocks. It stays at the end until the user scrolls back."""

    DEFAULT_CSS = "Transcript { height: 1fr; padding: 0 1; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.blocks: list[Block] = []
        self.look = Look()
        self.calls: dict[str, CallStatus] = {}
        self._ids: list[str] = []
        self._gap = range(0)
        """The entries of the branch that have no block yet."""
        self._gap_block = 0
        """The block after the gap."""
        self._session: Session | None = None
        self._top: tuple[int, int] | None = None
        """The first visible block and line; None at the end."""
        self._lines: OrderedDict[Block, tuple[object, list[Line]]] = OrderedDict()
        self._visible: list[tuple[Line, int]] | None = None
        """The lines on the screen, each with its block."""

    # Content

    def show_session(self, session: Session, leaf: str | None) -> None:
        """Show the conversation of a branch. If it continues the one that is shown, only new entries are added."""
        ids = session.path_ids(leaf) if leaf is not None else []
        continues = session is self._session and ids[: len(self._ids)] == self._ids
        self._session = session
        if continues:
            self._add_ids(self.blocks, ids[len(self._ids) :])
            self._ids = ids
        else:
            self.blocks, self._ids, self._top = [], ids, None
            self._gap, self._gap_block = range(len(ids)), 0
            self.calls.clear()
            self._lines.clear()
            self._load_older()
        self.redraw()

    def _load_older(self) -> int:
        """Add blocks for the last entries of the gap; returns their number."""
        blocks: list[Block] = []
        start, end = self._gap.stop, self._gap.stop
        while start > self._gap.start and not self._begins_with_answer(blocks):
            # Results belong to the block of their calls, so the first entry is one that begins a block.
            start = max(start - _STEP, self._gap.start)
            blocks = []
            self._add_ids(blocks, self._ids[start:end])
        if start == self._gap.start:
            return self._load_newer(len(self._gap))  # results may belong to the block before the gap
        self._gap = range(self._gap.start, start)
        self._insert(blocks)
        return len(blocks)

    def _load_newer(self, count: int = _STEP) -> int:
        """Add blocks for the first entries of the gap; returns their number."""
        blocks = self.blocks[: self._gap_block]
        ids = self._gap[:count]
        self._add_ids(blocks, self._ids[ids.start : ids.stop])
        added = blocks[self._gap_block :]
        self._gap = self._gap[count:]
        self._insert(added)
        self._gap_block += len(added)
        return len(added)

    def _insert(self, blocks: Sequence[Block]) -> None:
        """Put blocks where the gap is; what is on the screen stays there."""
        self.blocks[self._gap_block : self._gap_block] = blocks
        if self._top is not None and self._top[0] >= self._gap_block:
            self._top = (self._top[0] + len(blocks), self._top[1])

    def _before(self, block: int) -> int | None:
        """The block before one; entries of the gap get theirs."""
        while block == self._gap_block and self._gap:
            block += self._load_older()
        return block - 1 if block else None

    def _after(self, block: int) -> int | None:
        """The block after one; entries of the gap get theirs."""
        while block + 1 == self._gap_block and self._gap:
            self._load_newer()
        return block + 1 if block + 1 < len(self.blocks) else None

    @staticmethod
    def _begins_with_answer(blocks: Sequence[Block]) -> bool:
        return bool(blocks) and isinstance(blocks[0], EntryBlock) and blocks[0].begins_turn

    def _add_ids(self, blocks: list[Block], ids: Sequence[str]) -> None:
        """Add the entries of the conversation among some entries."""
        session = self._session
        assert session is not None
        shown = [id for id in ids if session.type_of(id) in CONVERSATION_TYPES]
        for id, kind in zip(shown, _find_kinds(session, shown), strict=True):
            self._add_id(blocks, id, is_result=kind == "result", is_calls=kind == "calls")

    def add_entry(self, session: Session, id: str, *, is_result: bool, is_shown: bool) -> None:
        """Add an entry that a run has written."""
        self._session = session
        if id in self._ids[-_RECENT:]:  # read from the session already
            return
        self._ids.append(id)
        if is_shown:
            self._add_id(self.blocks, id, is_result=is_result)
        self.redraw()

    def _add_id(self, blocks: list[Block], id: str, *, is_result: bool, is_calls: bool = False) -> None:
        group = next((block for block in reversed(blocks) if not isinstance(block, NoteBlock)), None)
        if isinstance(group, EntryBlock) and (is_result or (is_calls and group.takes_calls)):
            group.add(id, is_calls=is_calls)
        else:
            begins_turn = not is_result and not is_calls
            blocks.append(EntryBlock(self._load, id, self.calls, takes_calls=is_calls, begins_turn=begins_turn))

    def _load(self, ids: Sequence[str]) -> list[Entry]:
        assert self._session is not None
        return list(self._session.entries(list(ids)))

    def add(self, block: Block) -> None:
        self.blocks.append(block)
        self.redraw()

    def remove_block(self, block: Block) -> None:
        if block in self.blocks:
            self.blocks.remove(block)
            self.redraw()

    def note(self, text: str, style: str) -> None:
        """Add a line of a command."""
        if not self.blocks or not isinstance(self.blocks[-1], NoteBlock):
            self.blocks.append(NoteBlock())
        last = self.blocks[-1]
        assert isinstance(last, NoteBlock)
        last.add(text, style)
        self.redraw()

    def set_look(self, look: Look) -> None:
        self.look = look
        self.redraw()

    def touch_calls(self) -> None:
        """Redraw the calls in progress, whose times advance."""
        for block in self.blocks[-8:]:  # calls in progress belong to the last answer
            if isinstance(block, EntryBlock):
                block.touch()
        self.redraw()

    def redraw(self) -> None:
        self._visible = None
        self.refresh()

    # Position

    def scroll_rows(self, lines: int) -> None:
        """Scroll; a negative number goes back."""
        if lines < 0:
            self._top = self._top or self._top_at_end()
            line = self._top[1] + lines
            while line < 0 and (before := self._before(self._top[0])) is not None:
                line += len(self._render_block(before))
                self._top = (before, 0)
            self._top = (self._top[0], max(line, 0))
        elif self._top is not None:
            block: int | None = self._top[0]
            line = self._top[1] + lines
            while block is not None and line >= (height := len(self._render_block(block))):
                line -= height
                block = self._after(block)
            self._top = (block, line) if block is not None else None
        self.redraw()

    def scroll_pages(self, pages: int) -> None:
        self.scroll_rows(pages * max(self.size.height - 2, 1))

    def go_to_start(self) -> None:
        while self._gap and not self._gap_block:
            self._load_newer()
        self._top = (0, 0)
        self.redraw()

    def go_to_end(self) -> None:
        self._top = None
        self.redraw()

    def _top_at_end(self) -> tuple[int, int]:
        """The first visible block and line when the end is shown."""
        room = self.size.height
        at = self._before(len(self.blocks))
        while at is not None:
            height = len(self._render_block(at))
            if height >= room:
                return at, height - room
            room -= height
            at = self._before(at)
        return 0, 0

    # Lines

    def _render_block(self, at: int) -> list[Line]:
        block, width = self.blocks[at], self.size.width
        key = (width, block.version, self.look, block.is_unfolded)
        known = self._lines.get(block)
        if known is not None and known[0] == key and self._keeps_pictures(known[1]):
            self._lines.move_to_end(block)
            return known[1]
        lines: list[Line] = []
        for is_image, parts in groupby(block.render(self.look), lambda part: isinstance(part, ImagePart)):
            if width > 0 and is_image:
                lines += [
                    line for part in parts if isinstance(part, ImagePart) for line in self.image_lines(part, width)
                ]
            elif width > 0:
                lines += self._render_text([part for part in parts if not isinstance(part, ImagePart)], width)
        if lines:
            lines.append(Line(Strip([])))
        self._lines[block] = (key, lines)
        while len(self._lines) > _KEPT:
            self._lines.popitem(last=False)
        return lines

    def _render_text(self, parts: Sequence[RenderableType], width: int) -> list[Line]:
        console = self.app.console
        rendered = console.render_lines(Group(*parts), console.options.update(width=width, height=None), pad=False)
        return [Line(Strip(line).crop(0, width).simplify()) for line in rendered]

    def _keeps_pictures(self, lines: Sequence[Line]) -> bool:
        return all(line.box is None or (self.pictures is not None and self.pictures.keeps(line.box)) for line in lines)

    def redraw_pictures(self) -> None:
        """Render the lines of images again, after a change in which images can be shown."""
        for block, (_, lines) in list(self._lines.items()):
            if any(line.box is not None for line in lines):
                del self._lines[block]
        self.redraw()

    def _layout(self) -> list[tuple[Line, int]]:
        room = self.size.height
        found: list[tuple[Line, int]] = []
        if self._top is not None:
            at: int | None
            at, start = self._top
            while at is not None:
                found += [(line, at) for line in self._render_block(at)[start:]]
                if len(found) > room:
                    return found[:room]
                at, start = self._after(at), 0
            self._top, found = None, []  # the end is on the screen
        block, start = self._top_at_end()
        found = [(line, block) for line in self._render_block(block)[start:]] if self.blocks else []
        for at in range(block + 1, len(self.blocks)):
            found += [(line, at) for line in self._render_block(at)]
        return found[:room]

    def render_line(self, y: int) -> Strip:
        if self._visible is None:
            # The session of a chat that ends is closed before its screen is gone, which may be drawn once more.
            is_closed = self._session is not None and self._session.is_closed
            self._visible = [] if is_closed else self._layout()
            self.place_pictures([line for line, _ in self._visible])
        width, base = self.size.width, self.rich_style
        if y >= len(self._visible):
            return Strip.blank(width, base)
        return self._visible[y][0].strip.adjust_cell_length(width).apply_style(base)

    def visible_text(self) -> str:
        """The visible lines as text."""
        return "\n".join(self.render_line(y).text.rstrip() for y in range(self.size.height))

    # Mouse and size

    def on_resize(self) -> None:
        self.redraw()

    def on_click(self, event: Click) -> None:
        """Unfold or fold the calls of a block."""
        if self._visible is not None and event.y < len(self._visible):
            block = self.blocks[self._visible[event.y][1]]
            if isinstance(block, EntryBlock):
                block.is_unfolded = not block.is_unfolded
                self.redraw()


def _find_kinds(session: Session, ids: Sequence[str]) -> list[EntryKind]:
    """The kinds of some entries. A few are decoded; for many, the dialect reads the whole file without decoding it."""
    if len(ids) <= 2 * _STEP:
        entries = session.entries(list(ids))
        return [message_kind(entry.message) if isinstance(entry, MessageEntry) else "other" for entry in entries]
    kinds = session.dialect.entry_kinds(session.journal)
    nodes = map(session.node_of, ids)
    return [kinds[node] if node is not None else "other" for node in nodes]
