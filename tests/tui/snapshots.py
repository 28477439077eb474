"""Snapshots of screens: the text of a terminal and its styles, in a compact form that can be read and compared.

    async with running((120, 40)) as pilot:
        check_snapshot("sessions-120x40", {"dark": capture(pilot.app)}, rewrite=rewrite_snapshots)

A snapshot has the text once, and for each theme the styles: a legend with one letter for each style, and for each row
the lengths of its runs (`80a` is 80 columns of style `a`). `pytest --rewrite-snapshots` writes the files anew.
"""

from __future__ import annotations

import difflib
import string
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.cells import cell_len
from rich.style import Style
from textual.app import App

FOLDER = Path(__file__).parent / "snapshots"
_LETTERS = string.ascii_letters


class Capture(Struct, frozen=True):
    """What a screen shows."""

    rows: tuple[str, ...]
    styles: tuple[tuple[tuple[str, int], ...], ...]
    """By row: runs of a style and their widths."""


def capture(app: App[Any]) -> Capture:
    """The text and the styles of the current screen."""
    rows, styles = [], []
    for strip in app.screen._compositor.render_strips(app.size):
        rows.append(strip.text.rstrip())
        cells = [(_describe(style), cell_len(text)) for text, style, control in strip if text and not control]
        styles.append(
            tuple((name, sum(width for _, width in runs)) for name, runs in groupby(cells, key=lambda cell: cell[0]))
        )
    return Capture(tuple(rows), tuple(styles))


def check_snapshot(name: str, themes: Mapping[str, Capture], *, rewrite: bool) -> None:
    """Compare captures of one screen in several themes with the stored snapshot. Their texts have to be equal."""
    first, *others = themes.values()
    for other in others:
        assert other.rows == first.rows, "the text depends on the theme"
    found = "\n".join([*(f"|{row}" for row in first.rows), *_style_lines(themes)]) + "\n"
    path = FOLDER / f"{name}.txt"
    if rewrite:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    changes = list(difflib.unified_diff(stored.splitlines(), found.splitlines(), "stored", "found", n=0, lineterm=""))
    assert not changes, "\n".join([f"{name} has changed; look at it, then: pytest --rewrite-snapshots", *changes[:40]])


def _style_lines(themes: Mapping[str, Capture]) -> list[str]:
    lines: list[str] = []
    before: list[str] = []
    for theme, captured in themes.items():
        names: dict[str, str] = {}
        rows = [
            "".join(f"{width}{names.setdefault(name, _LETTERS[len(names)])}" for name, width in runs)
            for runs in captured.styles
        ]
        lines += ["", f"# {theme}", *(f"{letter} = {name}" for name, letter in names.items())]
        if rows == before:
            lines.append("(rows as above)")
            continue
        before = rows
        for row, same in groupby(rows):
            count = len(list(same))
            lines.append(row if count == 1 else f"{row} ×{count}")
    return lines


def _describe(style: Style | None) -> str:
    if style is None:
        return "plain"
    words = [
        word
        for word, is_set in (
            ("bold", style.bold),
            ("dim", style.dim),
            ("italic", style.italic),
            ("underline", style.underline),
            ("reverse", style.reverse),
        )
        if is_set
    ]
    color = style.color.name if style.color is not None else "default"
    background = style.bgcolor.name if style.bgcolor is not None else "default"
    return " ".join([*words, f"{color} on {background}"])
