"""Messages as HTML: CommonMark with tables, without raw HTML, images or links other than to the web and to e-mail.

The parser is markdown-it-py. Text that it could be slow on is shown as it was typed: huge messages, very long lines,
and many characters that open brackets or emphasis.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from sessiontree.export.html.code_highlighter import highlight
from sessiontree.export.sanitize import safe

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token

MAX_TEXT = 200_000
_LONGEST_LINE = 20_000
_MOST_OPENERS = 4_000
_LINK = re.compile(r"(?:https?://|mailto:)[^\s]*\Z", re.IGNORECASE)
_MARKUP = re.compile(r"[*_`#\[\]~|>\\&<]|^\s*(?:[-+]|\d{1,9}[.)])\s|^\s*(?:=+|-+)\s*$|^(?: {4}|\t)|  $", re.MULTILINE)
_OPENERS = re.compile(r"[\[*_~`<]")
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


def render_message(text: str) -> Markup:
    """The markup of a message."""
    text = safe(text)
    if not text.strip():
        return Markup("")
    if _MARKUP.search(text) is None:
        return _render_plain(text)
    if _is_slow(text):
        return Markup('<div class="text">{}</div>').format(text)
    return Markup(_parser().render(text))  # noqa: S704 - raw HTML is disabled, everything else is escaped


def _render_plain(text: str) -> Markup:
    paragraphs = _PARAGRAPH.split(str(escape(text.strip())))
    return Markup("".join(f"<p>{'<br>'.join(each.splitlines())}</p>" for each in paragraphs))  # noqa: S704 - escaped


def _is_slow(text: str) -> bool:
    return (
        len(text) > MAX_TEXT
        or (len(text) > _LONGEST_LINE and any(len(line) > _LONGEST_LINE for line in text.split("\n")))
        or (len(text) > _MOST_OPENERS and len(_OPENERS.findall(text)) > _MOST_OPENERS)
    )


def is_allowed_link(url: str) -> bool:
    return _LINK.match(url.strip()) is not None


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 40})
    parser.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    parser.validateLink = is_allowed_link  # type: ignore[method-assign]
    for name, rule in (
        ("fence", _fence),
        ("code_block", _fence),
        ("heading_open", _heading),
        ("heading_close", _heading),
        ("link_open", _link),
        ("table_open", _table),
        ("table_close", _table_end),
    ):
        parser.add_render_rule(name, rule)
    return parser


def _fence(_self: RendererHTML, tokens: Sequence[Token], at: int, _options: Any, _env: Any) -> str:
    token = tokens[at]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    return f"<pre><code>{highlight(token.content.removesuffix(chr(10)), language)}</code></pre>\n"


def _heading(self: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    """Headings of messages are below those of the page."""
    token = tokens[at]
    token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
    return self.renderToken(tokens, at, options, env)


def _link(self: RendererHTML, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    tokens[at].attrSet("rel", "noopener noreferrer nofollow")
    tokens[at].attrSet("target", "_blank")
    return self.renderToken(tokens, at, options, env)


def _table(_self: RendererHTML, _tokens: Sequence[Token], _at: int, _options: Any, _env: Any) -> str:
    return '<div class="wide" tabindex="0"><table>\n'


def _table_end(_self: RendererHTML, _tokens: Sequence[Token], _at: int, _options: Any, _env: Any) -> str:
    return "</table></div>\n"
