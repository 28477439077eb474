"""Images for terminals: recognition, headers, escape sequences and sixels."""

from __future__ import annotations

import asyncio
import base64
import re

import pytest

from sessiontree.core.messages import Image
from sessiontree.tui import pictures, sixel
from sessiontree.tui.image_facts import describe_image
from sessiontree.tui.image_protocols import find_protocol, kitty_image, pass_through_tmux, sixel_image
from sessiontree.tui.image_size import image_size
from sessiontree.tui.pictures import Pictures, fit
from sessiontree.views.text import clean
from tests.tui.images import image, png

KITTY_TEXT = "\U0010eeee\u0305\u0305"


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "dumb"}, None),
        # Variables of the terminal that another one, or tmux, was started in.
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "tmux-256color", "LC_TERMINAL": "iTerm2"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-1/default,1,0"}, None),
    ],
)
def test_a_terminal_is_recognized_by_its_environment(environment: dict[str, str], protocol: str | None) -> None:
    assert find_protocol("auto", environment) == protocol
    assert find_protocol("off", environment) is None


def test_a_setting_forces_a_protocol_and_in_tmux_only_one_that_works_there() -> None:
    inside = {"TERM": "tmux-256color", "TMUX": "x"}
    assert [find_protocol(name, {"TERM": "xterm"}) for name in ("kitty", "iterm2", "sixel")] == [
        "kitty",
        "iterm2",
        "sixel",
    ]
    assert [find_protocol(name, inside) for name in ("kitty", "iterm2", "sixel")] == ["kitty", None, "sixel"]
    assert pass_through_tmux("\x1b_Gm=0;\x1b\\") == "\x1bPtmux;\x1b\x1b_Gm=0;\x1b\x1b\\\x1b\\"


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (png(640, 480), (640, 480)),
        (b"GIF89a" + bytes([16, 1, 9, 0]) + bytes(8), (272, 9)),
        (b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x20\x01\x00" + bytes(8), (256, 32)),
        (b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(8) + b"\x3f\x01\x00\xef\x00\x00", (320, 240)),
        (b"RIFF\x00\x00\x00\x00WEBPVP8L" + bytes(5) + (99 | 49 << 14).to_bytes(4, "little") + bytes(9), (100, 50)),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00", None),
        (png(1, 1)[:16] + bytes(8), None),
        (b"\xff\xd8" + b"\xff\xe0\x00\x00" * 500, None),
        (b"<svg xmlns=''>", None),
    ],
)
def test_the_size_of_an_image_is_read_from_its_header(data: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(data) == size


def test_an_image_is_described_by_a_line_that_contains_nothing_of_its_data() -> None:
    assert describe_image(image(png(640, 480)), "read a.png").plain.startswith("▣ image image/png · 640 × 480 pixels")
    for data in ("blob:sha256:\x1b[2J", "AAAA\x1b]0;x\x07", "A" * 20_000_000):
        line = describe_image(Image(data, "image/\x1b[31mpng")).plain
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)
        assert len(line) < 100


def test_data_reaches_kitty_as_base64_in_chunks_without_asking_for_an_answer() -> None:
    data = png(8, 8, more=b"\x1b\\\x1b[2J" * 2_000)
    sequences = list(kitty_image(7, data))
    assert len(sequences) > 1
    found = [
        re.fullmatch(r"\x1b_G([a-z0-9=,]*q=2[a-z0-9=,]*);([A-Za-z0-9+/=]{1,4096})\x1b\\", each) for each in sequences
    ]
    assert base64.b64decode("".join(match[2] for match in found if match is not None)) == data
    assert sequences[-1].startswith("\x1b_Gm=0")


def test_a_session_cannot_show_an_image_by_its_text() -> None:
    assert "\U0010eeee" not in clean(f"a{KITTY_TEXT}b")


def test_boxes_keep_proportions_and_are_not_larger_than_the_image() -> None:
    assert fit((800, 400), (8, 16), 50, 20) == (50, 13)
    assert fit((80, 1600), (8, 16), 50, 20) == (2, 20)
    assert fit((16, 16), (8, 16), 50, 20) == (2, 1)
    assert fit((1, 100_000), (8, 16), 50, 20) == (1, 20)


@pytest.mark.parametrize(
    ("protocol", "data", "is_shown"),
    [
        ("kitty", png(10, 10), True),
        ("kitty", b"GIF89a" + bytes([10, 0, 10, 0]), False),
        ("iterm2", b"GIF89a" + bytes([10, 0, 10, 0]), True),
        ("iterm2", b"<svg>", False),
        ("iterm2", png(10, 10, more=bytes(1_600_000)), False),
        ("kitty", png(10, 10)[:16] + b"\x00\x00\xff\xff\x00\x00\xff\xff" + png(10, 10)[24:], False),
        ("sixel", png(10, 10), True),
        ("sixel", png(10, 10)[:16] + b"\x00\x00\x10\x00\x00\x00\x10\x00" + png(10, 10)[24:], False),
    ],
)
def test_only_images_of_known_types_and_bounded_size_are_shown(protocol: str, data: bytes, is_shown: bool) -> None:
    shown = Pictures(protocol, str, lambda: None, cell_size=lambda: (8, 16))  # type: ignore[arg-type]
    assert (shown.box(image(data), 40, 20) is not None) is is_shown


@pytest.mark.parametrize(("filter", "depth"), [(0, 8), (1, 8), (2, 8), (4, 8), (0, 16)])
def test_a_png_image_is_converted_to_sixels(filter: int, depth: int) -> None:
    body = sixel.encode(png(40, 12, color=(255, 0, 0), filter=filter, depth=depth), 20, 100)
    assert body == '"1;1;20;6#180;2;100;0;0#180!20~'
    assert sixel_image(body) == f"\x1bP0;1q{body}\x1b\\"
    assert sixel_image(body + "\x1b[2J") is None


def test_conversion_is_a_process_that_refuses_what_it_cannot_decode() -> None:
    drawing = asyncio.run(pictures.convert(png(30, 30), 30, 30))
    assert drawing is not None
    assert drawing.startswith('\x1bP0;1q"1;1;30;30')
    for data in (b"", png(30, 30)[:60], png(5_000, 1)[:16] + bytes(100), b"\x89PNG\r\n\x1a\n" + b"\xff" * 100):
        assert asyncio.run(pictures.convert(data, 30, 30)) is None
