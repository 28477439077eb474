"""Highlight code: Pygments finds the tokens, which get one of six classes. Large code is only escaped."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from sessiontree.export.sanitize import safe

if TYPE_CHECKING:
    from pygments.lexer import Lexer

MAX_CODE = 40_000
"""Characters of code that are highlighted; lexers can be slow."""
_LONGEST_LINE = 2_000
_CLASSES = (
    ("Comment", "hc"),
    ("Keyword", "hk"),
    ("Literal.String", "hs"),
    ("Literal.Number", "hn"),
    ("Name.Function", "hf"),
    ("Name.Class", "hf"),
    ("Name.Builtin", "hb"),
    ("Generic.Deleted", "hd"),
    ("Generic.Inserted", "hi"),
)


def highlight(code: str, language: str) -> Markup:
    """The markup of code in a language that a fence or the extension of a file names; escaped if it is unknown."""
    code = safe(code)
    lexer = _find_lexer(language.strip().lower()[:40]) if language else None
    if lexer is None or len(code) > MAX_CODE or any(len(line) > _LONGEST_LINE for line in code.split("\n")):
        return escape(code)
    parts: list[str] = []
    open_class, waiting = "", ""
    for kind, text in lexer.get_tokens(code):
        name = _class_of(kind)
        if name != open_class and text.strip():
            parts.append(_span(open_class, waiting))
            open_class, waiting = name, ""
        waiting += text
    parts.append(_span(open_class, waiting))
    return Markup("".join(parts))  # noqa: S704 - every part is escaped


def _span(name: str, text: str) -> str:
    shown = str(escape(text))
    return f'<span class="{name}">{shown}</span>' if name and shown else shown


@functools.lru_cache(256)
def _class_of(kind: object) -> str:
    text = str(kind).removeprefix("Token.")
    return next((name for prefix, name in _CLASSES if text.startswith(prefix)), "")


@functools.lru_cache(64)
def _find_lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name

    if language not in _known_languages():  # for others, Pygments would search all installed packages for plugins
        return None
    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


@functools.cache
def _known_languages() -> frozenset[str]:
    from pygments.lexers import LEXERS

    return frozenset(alias.lower() for _, _, aliases, _, _ in LEXERS.values() for alias in aliases)


@functools.lru_cache(256)
def language_of(path: str) -> str:
    """The language of a file by its extension; empty if it is unknown."""
    extension = path.rpartition("/")[2].rpartition(".")[2].lower()
    return extension if extension.isalnum() and _find_lexer(extension) is not None else ""
