"""Markdown is rendered in pieces, and looks as if it were rendered at once."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.markdown import Markdown

from sessiontree.tui.markdown import render_markdown
from sessiontree.tui.rendered_panel import render_lines

PARAGRAPH = "Some *words* that fill a line or two of a narrow panel, and `code`.\n\n"
CODE = "```python\n" + "x = 1\n\n    y = 2\n\n" * 60 + "```\n\n"
LIST = "* an item\n\n  with a second paragraph\n\n" * 30


def test_pieces_look_like_the_whole_text() -> None:
    text = PARAGRAPH * 20 + CODE + LIST + PARAGRAPH
    assert len(list(render_markdown(text))) > 3
    pieces = ["".join(part.text for part in line).rstrip() for line in render_lines(render_markdown(text), 60)]
    whole = ["".join(part.text for part in line).rstrip() for line in render_lines([Markdown(text)], 60)]
    assert pieces == whole


def test_pieces_that_are_not_asked_for_are_not_parsed() -> None:
    taken: list[RenderableType] = []

    def content() -> Iterator[RenderableType]:
        for part in render_markdown(PARAGRAPH * 500):
            taken.append(part)
            yield part

    lines = render_lines(content(), 60, 20)
    assert len(lines) > 20
    assert len(taken) < 10 < len(list(render_markdown(PARAGRAPH * 500)))
