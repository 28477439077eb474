"""Markdown of sessions and models as rich text."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import lru_cache

from markdown_it import MarkdownIt
from rich.console import RenderableType
from rich.markdown import Markdown
from rich.text import Text

from sessiontree.views.text import clean

_PIECE = 500
"""Characters of a piece; it ends with the paragraph."""


def render_markdown(text: str) -> Iterator[RenderableType]:
    """Render a text in pieces of some paragraphs, when they are asked for: parsing a long text takes long.

    The text is sanitized, and links are shown as text.
    """
    start = 0
    while text[start:].strip():
        end = _find_end(text, start)
        if start:
            yield Text()
        yield _parse(text[start:end])
        start = end


def _find_end(text: str, start: int) -> int:
    """Where a piece ends: between two blocks."""
    end = text.find("\n\n", start + _PIECE)
    while end >= 0 and not ends_block(text, start, end):
        end = text.find("\n\n", end + 1)
    return len(text) if end < 0 else end + 2


def ends_block(text: str, start: int, end: int) -> bool:
    """Whether the empty line at `end` is between two blocks, if a block begins at `start`.

    It is not inside a code block, and not before an indented line or an item, which may belong to a list.
    """
    following = text[end + 2 : end + 3]
    return text.count("```", start, end) % 2 == 0 and not (
        following.isspace() or following.isdigit() or following in tuple("*-+")
    )


def _parse(text: str) -> Markdown:
    parser, template = _parser()
    found = copy(template)
    found.markup = clean(text)
    found.parsed = parser.parse(found.markup)
    return found


@lru_cache(1)
def _parser() -> tuple[MarkdownIt, Markdown]:
    """A parser, and an empty Markdown to copy. Rich creates a parser for each text, which takes longer than parsing."""
    return MarkdownIt().enable("strikethrough").enable("table"), Markdown("", hyperlinks=False)
