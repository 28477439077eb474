"""Escape sequences for terminals that display images: kitty's, iTerm2's and sixel.

Everything here is encoded by us: image data as base64, sixels by `sixel`. No sequence makes the terminal reply.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

ImageProtocol: TypeAlias = Literal["kitty", "iterm2", "sixel"]

_PROGRAMS: Mapping[str, ImageProtocol] = {
    "ghostty": "kitty",
    "iTerm.app": "iterm2",
    "WezTerm": "iterm2",
    "mintty": "sixel",
    "contour": "sixel",
}
"""By `TERM_PROGRAM`. WezTerm supports kitty's protocol without the placeholders that we need."""
_TERMS: Mapping[str, ImageProtocol] = {
    "xterm-kitty": "kitty",
    "xterm-ghostty": "kitty",
    "foot": "sixel",
    "foot-extra": "sixel",
    "mlterm": "sixel",
    "contour": "sixel",
}
_CHUNK = 4_096
"""Characters of base64 in one sequence; kitty accepts no more."""
_PLACEHOLDER = "\U0010eeee"
# Kitty's numbers: marks above a letter (combining class 230) that are part of no other character, by code point.
_COMPOSED = {0x306, 0x307, 0x308, 0x309, 0x30A, 0x30B, 0x30C, 0x30F, 0x311, 0x313, 0x314, 0x342, 0x653, 0x654}
_NUMBERS = [
    mark
    for code in range(0x305, 0x818)
    if unicodedata.combining(mark := chr(code)) == 230 and not unicodedata.decomposition(mark) and code not in _COMPOSED
]
MAX_CELLS = 100
"""The most columns or rows of a picture: kitty's numbers go further, but no screen needs them."""
_sixel_data = re.compile(r'[0-9;#!"$?-~-]*')


def find_protocol(wanted: str, environment: Mapping[str, str]) -> ImageProtocol | None:
    """The protocol of the terminal, from the environment; `wanted` is the setting `images`.

    A multiplexer hides the terminal, and drops or misplaces images unless it is set up for them. So inside one, only a
    protocol that the user has chosen is used.
    """
    match wanted:
        case "off":
            return None
        case "kitty" | "sixel":
            return wanted
        case "iterm2":
            return None if is_in_tmux(environment) else "iterm2"  # tmux would not know where the picture is
        case _:
            pass
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if is_in_tmux(environment) or "STY" in environment or term.startswith(("screen", "tmux")):
        return None
    if term in _TERMS:
        return _TERMS[term]
    if program:  # the variables below may come from a terminal that this one was started in
        return _PROGRAMS.get(program)
    if "KITTY_WINDOW_ID" in environment:
        return "kitty"
    return "iterm2" if environment.get("LC_TERMINAL") == "iTerm2" else None


def is_in_tmux(environment: Mapping[str, str]) -> bool:
    return "TMUX" in environment


def pass_through_tmux(sequence: str) -> str:
    """Wrap a sequence so that tmux sends it to the terminal, if its option `allow-passthrough` is on."""
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"


def kitty_image(id: int, data: bytes) -> Iterator[str]:
    """Sequences that store a PNG image in the terminal. Other text may be written between them."""
    encoded = base64.b64encode(data).decode("ascii")
    for at in range(0, len(encoded), _CHUNK):
        more = int(at + _CHUNK < len(encoded))
        # q=2: no reply, not even for errors.
        keys = f"a=t,f=100,i={id},q=2,m={more}" if at == 0 else f"m={more},q=2"
        yield f"\x1b_G{keys};{encoded[at : at + _CHUNK]}\x1b\\"


def kitty_placement(id: int, columns: int, rows: int) -> str:
    """A sequence that sets the size, in cells, at which placeholders show an image."""
    return f"\x1b_Ga=p,U=1,i={id},p=1,c={columns},r={rows},q=2\x1b\\"


def kitty_deletion(id: int) -> str:
    return f"\x1b_Ga=d,d=I,i={id},q=2\x1b\\"


def kitty_placeholders(row: int, columns: int) -> str:
    """The text that shows a row of an image whose id is the color of the text.

    Each cell has its row and column, so that any part of it can be covered.
    """
    return "".join(f"{_PLACEHOLDER}{_NUMBERS[row]}{_NUMBERS[column]}" for column in range(columns))


def iterm_image(data: bytes, columns: int, rows: int) -> str:
    """A sequence that draws an image at the cursor."""
    encoded = base64.b64encode(data).decode("ascii")
    size = f"width={columns};height={rows};preserveAspectRatio=1"
    return f"\x1b]1337;File=inline=1;doNotMoveCursor=1;size={len(data)};{size}:{encoded}\x07"


def sixel_image(body: str) -> str | None:
    """A sequence that draws sixels at the cursor; None if they contain anything else."""
    return f"\x1bP0;1q{body}\x1b\\" if body and _sixel_data.fullmatch(body) else None


def at_cell(sequence: str, x: int, y: int) -> str:
    """Draw at a cell, counted from zero, and leave the cursor where it was."""
    return f"\x1b7\x1b[{y + 1};{x + 1}H{sequence}\x1b8"
