"""Images in a chat, on terminals that can display them.

With kitty's protocol, an image is sent once and shown by text cells, which Textual scrolls, covers and removes like any
other text. With iTerm2's protocol and sixel, it is drawn over blank cells, and only if nothing covers them: text that
is written there removes it, so it is drawn again when the screen is quiet. Nothing waits for a reply from the terminal.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import struct
import sys
import termios
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import ceil
from typing import NamedTuple

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from sessiontree.core.messages import Image
from sessiontree.tui import sixel
from sessiontree.tui.image_facts import ImageKey, ImagePart, decode_image, describe_image, image_facts, image_key
from sessiontree.tui.image_protocols import (
    MAX_CELLS,
    ImageProtocol,
    at_cell,
    iterm_image,
    kitty_deletion,
    kitty_image,
    kitty_placeholders,
    kitty_placement,
    sixel_image,
)

MAX_PIXELS = 50_000_000
_MAX_DRAWN_BYTES = 1_500_000
"""The largest image that is sent again whenever it is drawn."""
_MAX_KEPT = 64
_MAX_KEPT_BYTES = 48_000_000
_USUAL_CELL = (8, 16)
"""Pixels of a cell, where only the proportions matter."""
_AT_ONCE = 64_000
"""Characters that are written before the screen gets its turn."""
_PAUSE = 0.03
_QUIET = 0.1
"""Seconds without a change of the screen before pictures are drawn."""
_CONVERSION = 40.0
_MAX_SIXELS = 4_000_000


class PictureBox(NamedTuple):
    """Cells that show a picture."""

    key: tuple[ImageKey, int]
    columns: int
    rows: int


class Line(NamedTuple):
    """A line of a widget, which may be a row of a picture."""

    strip: Strip
    box: PictureBox | None = None
    row: int = 0


class _Picture:
    def __init__(self, id: int, data: bytes, size: tuple[int, int]) -> None:
        self.id, self.data, self.size = id, data, size
        self.sent: tuple[int, int] | None = None
        """The cells it has in a terminal that stores it."""
        self.drawing: tuple[PictureBox, str] | None = None
        """The last sequence that draws it."""


class Pictures:
    """The pictures that a terminal shows. All methods are called in the UI's thread."""

    def __init__(
        self,
        protocol: ImageProtocol,
        write: Callable[[str], object],
        changed: Callable[[], object],
        *,
        wrap: Callable[[str], str] = str,
        cell_size: Callable[[], tuple[int, int] | None] | None = None,
    ) -> None:
        """`changed` is called when pictures can be shown that could not be before, or vice versa."""
        self.protocol = protocol
        self._write, self._changed, self._wrap = write, changed, wrap
        self._cell_size = cell_size or terminal_cell_size
        self._kept: OrderedDict[tuple[ImageKey, int], _Picture] = OrderedDict()
        self._broken: set[ImageKey] = set()
        """Images that cannot be converted."""
        self._outgoing: deque[str] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_open = True

    # Boxes

    def box(self, image: Image, width: int, most_rows: int) -> PictureBox | None:
        """The cells for an image; None if it cannot be shown."""
        facts, cell = image_facts(image), self._cell_size()
        if facts.size is None or width <= 0 or image_key(image) in self._broken:
            return None
        pixels = facts.size[0] * facts.size[1]
        match self.protocol:
            case "kitty":
                is_shown = facts.kind == "image/png" and pixels <= MAX_PIXELS
            case "iterm2":
                is_shown = facts.kind is not None and facts.bytes <= _MAX_DRAWN_BYTES and pixels <= MAX_PIXELS
            case "sixel":
                is_shown = facts.kind == "image/png" and pixels <= sixel.MAX_PIXELS and cell is not None
        if not is_shown:
            return None
        key = (image_key(image), most_rows)
        if key not in self._kept:
            self._keep(key, _Picture(random.randrange(1 << 16, 1 << 24), decode_image(image), facts.size))
        self._kept.move_to_end(key)
        return PictureBox(key, *fit(facts.size, cell or _USUAL_CELL, min(width, MAX_CELLS), min(most_rows, MAX_CELLS)))

    def _keep(self, key: tuple[ImageKey, int], picture: _Picture) -> None:
        self._kept[key] = picture
        while len(self._kept) > _MAX_KEPT or (
            len(self._kept) > 1 and sum(len(each.data) for each in self._kept.values()) > _MAX_KEPT_BYTES
        ):
            _, old = self._kept.popitem(last=False)
            if old.sent is not None:
                self._send([kitty_deletion(old.id)])

    def keeps(self, box: PictureBox) -> bool:
        """Whether a box can still be shown; else it has to be made again."""
        return box.key in self._kept

    def lines(self, box: PictureBox) -> list[Line]:
        """The lines of a box."""
        style = None
        if self.protocol == "kitty":
            id = self._kept[box.key].id
            style = Style(color=Color.from_rgb(id >> 16, id >> 8 & 255, id & 255))
        texts = (kitty_placeholders(row, box.columns) if style else " " * box.columns for row in range(box.rows))
        return [Line(Strip([Segment(text, style)], box.columns), box, row) for row, text in enumerate(texts)]

    # Kitty: sent once

    def store(self, boxes: Iterable[PictureBox]) -> None:
        """Send the pictures of visible boxes to a terminal that stores them."""
        if self.protocol != "kitty":
            return
        for box in boxes:
            picture = self._kept.get(box.key)
            if picture is None:
                continue
            self._kept.move_to_end(box.key)
            if picture.sent is None:
                self._send(kitty_image(picture.id, picture.data))
            if picture.sent != (box.columns, box.rows):
                self._send([kitty_placement(picture.id, box.columns, box.rows)])
                picture.sent = (box.columns, box.rows)

    def _send(self, sequences: Iterable[str]) -> None:
        self._outgoing.extend(sequences)
        if self._task is None and self._is_open:
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        """Write what is to be sent in parts, so that keys need not wait for a slow connection."""
        while self._outgoing:
            part: list[str] = []
            while self._outgoing and sum(map(len, part)) < _AT_ONCE:
                part.append(self._wrap(self._outgoing.popleft()))
            self._write("".join(part))
            await asyncio.sleep(_PAUSE)
        self._task = None
        self._changed()

    def forget(self) -> None:
        """The terminal has lost its images, because another program used it."""
        for picture in self._kept.values():
            picture.sent = None
        self._outgoing.clear()

    def close(self) -> None:
        """Remove all pictures from the terminal."""
        self._is_open = False
        was_sending, self._task = self._task, None
        if was_sending is not None:
            was_sending.cancel()
        self._outgoing.clear()
        sent = [picture.id for picture in self._kept.values() if picture.sent is not None]
        if sent:
            # The first sequence ends an image that was being sent.
            ending = ["\x1b_Gm=0,q=2;\x1b\\"] if was_sending is not None and self.protocol == "kitty" else []
            self._write("".join(map(self._wrap, [*ending, *map(kitty_deletion, sent)])))

    # iTerm2 and sixel: drawn

    def draw(self, box: PictureBox, x: int, y: int) -> None:
        """Draw a picture at a cell of the screen. Sixels have to be made first."""
        picture = self._kept.get(box.key)
        if picture is None:
            return
        if picture.drawing is None or picture.drawing[0] != box:
            if self.protocol == "sixel":
                if self._task is None and self._is_open:
                    self._task = asyncio.get_running_loop().create_task(self._convert(picture, box))
                return
            picture.drawing = (box, iterm_image(picture.data, box.columns, box.rows))
        self._write(at_cell(picture.drawing[1], x, y))

    async def _convert(self, picture: _Picture, box: PictureBox) -> None:
        """Convert one picture to sixels; the others follow when the screen is drawn again."""
        cell = self._cell_size()
        try:
            drawing = None if cell is None else await convert(picture.data, box.columns * cell[0], box.rows * cell[1])
        finally:
            self._task = None
        if drawing is None:
            self._broken.add(box.key[0])
        else:
            picture.drawing = (box, drawing)
        self._changed()


def fit(size: tuple[int, int], cell: tuple[int, int], columns: int, rows: int) -> tuple[int, int]:
    """Columns and rows of an image that keeps its proportions and is not enlarged."""
    width, height = size[0] / cell[0], size[1] / cell[1]
    factor = min(1.0, columns / width, rows / height)
    return min(max(ceil(width * factor), 1), columns), min(max(ceil(height * factor), 1), rows)


def terminal_cell_size() -> tuple[int, int] | None:
    """Pixels of a cell, if the kernel knows them: terminals report their size to it."""
    if sys.__stderr__ is None:
        return None
    try:
        found = fcntl.ioctl(sys.__stderr__.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
    except (OSError, ValueError):
        return None
    rows, columns, width, height = struct.unpack("HHHH", found)
    return (width // columns, height // rows) if columns and rows and width >= columns and height >= rows else None


async def convert(data: bytes, width: int, height: int) -> str | None:
    """A sequence that draws a PNG image of at most some pixels; None if it cannot be decoded."""
    # -I: no module of the current folder or the user's environment is imported.
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        sixel.__file__,
        str(width),
        str(height),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(data), _CONVERSION)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0 or len(output) > _MAX_SIXELS:
        return None
    return sixel_image(output.decode("ascii", "replace"))


class PictureView(Widget):
    """A widget with lines of pictures."""

    pictures: Pictures | None = None
    """Set by the screen, if the terminal can show pictures."""
    most_rows = 20
    """The most rows of a picture."""
    _drawn: Sequence[tuple[PictureBox, int]] = ()
    """Pictures that have to be drawn, each with its first line."""
    _draw_timer: Timer | None = None

    def image_lines(self, part: ImagePart, width: int) -> list[Line]:
        """An image: a line that describes it, and the picture if the terminal can show it."""
        console = self.app.console
        described = console.render_lines(
            describe_image(part.image, part.source), console.options.update(width=width, height=None), pad=False
        )
        lines = [Line(Strip(line).crop(0, width).simplify()) for line in described]
        if self.pictures is not None:
            box = self.pictures.box(part.image, width, self.most_rows)
            lines += self.pictures.lines(box) if box is not None else []
        return lines

    def place_pictures(self, lines: Sequence[Line]) -> None:
        """Take note of the visible lines. A picture of which a part is outside cannot be drawn."""
        if self.pictures is None:
            return
        self.pictures.store(line.box for line in lines if line.box is not None)
        if self.pictures.protocol == "kitty":
            return
        self._drawn = [
            (line.box, y)
            for y, line in enumerate(lines)
            if line.box is not None
            and line.row == 0
            and y + line.box.rows <= len(lines)
            and lines[y + line.box.rows - 1][1:] == (line.box, line.box.rows - 1)
        ]

    def render_lines(self, crop: Region) -> list[Strip]:
        lines = super().render_lines(crop)
        if self._drawn:
            self._draw_later()
        return lines

    def _draw_later(self) -> None:
        if self._draw_timer is not None:
            self._draw_timer.stop()
        self._draw_timer = self.set_timer(_QUIET, self._draw_pictures)

    def _draw_pictures(self) -> None:
        self._draw_timer = None
        if self.pictures is None or not self.is_attached or self.app.screen is not self.screen:
            return  # another screen is on top; this one is painted again when that is closed
        if self.screen.query("Toast"):
            self._draw_later()  # a message may cover the picture
            return
        region = self.content_region
        for box, y in self._drawn:
            self.pictures.draw(box, region.x, region.y + y)


class PastedImages(PictureView, can_focus=False):
    """The images that were pasted into the input."""

    DEFAULT_CSS = "PastedImages { height: auto; max-height: 12; padding: 0 2; display: none; }"
    most_rows = 5

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._images: Sequence[Image] = ()
        self._lines: list[Line] = []
        self._width = 0

    def show(self, images: Sequence[Image]) -> None:
        if images != self._images:
            self._images = images
            self.display = bool(images)
            self.redraw()

    def redraw(self) -> None:
        self._width, self._drawn = 0, ()
        self.refresh(layout=True)

    def _layout(self, width: int) -> list[Line]:
        if width != self._width:
            self._width = width
            self._lines = [line for image in self._images for line in self.image_lines(ImagePart(image), width)]
        return self._lines

    def get_content_height(self, container: object, viewport: object, width: int) -> int:  # noqa: ARG002 - Textual's
        return len(self._layout(width))

    def render_line(self, y: int) -> Strip:
        lines = self._layout(self.size.width)[: self.size.height]
        if y == 0:
            self.place_pictures(lines)
        strip = lines[y].strip if y < len(lines) else Strip([])
        return strip.adjust_cell_length(self.size.width).apply_style(self.rich_style)

    def visible_text(self) -> str:
        """The visible lines as text."""
        return "\n".join(self.render_line(y).text.rstrip() for y in range(self.size.height))
