"""The template environment. Every text is sanitized (`safe`) and escaped, unless a renderer here made it."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from typing import Any

from jinja2 import BaseLoader, ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sessiontree.export.escape import anchor, stamp
from sessiontree.export.html.template_cache import TemplateCache
from sessiontree.export.record_builder import first_words
from sessiontree.export.sanitize import safe
from sessiontree.views.text import human_size, plural

_HERE = os.path.dirname(__file__)


def _finalize(value: Any) -> Any:
    """Sanitize a value before it is escaped. Markup comes from our own renderers, which sanitize what they read."""
    if value.__class__ is str:
        return value if value.isascii() and value.isprintable() else safe(value)
    return "" if value is None else value


def build_environment(folder: str | None = None) -> Environment:
    """An environment with the shared templates and, first, those of another folder."""
    loaders: list[BaseLoader] = [FileSystemLoader(os.path.join(_HERE, "templates"))]
    if folder is not None:
        loaders.insert(0, FileSystemLoader(folder))
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        bytecode_cache=TemplateCache(__file__),
    )
    environment.filters |= {
        "anchor": anchor,
        "stamp": stamp,
        "size": human_size,
        "first_words": first_words,
        "plural": plural,
        "number": lambda number: f"{number:,}",
    }
    return environment


@functools.cache
def environment() -> Environment:
    """The environment of exported files."""
    return build_environment()


@functools.cache
def static_text(name: str) -> Markup:
    """A static file that is embedded in exported pages."""
    with open(static_path(name), encoding="utf-8") as file:
        return Markup(file.read())  # noqa: S704 - our own file


def static_path(name: str) -> str:
    return os.path.join(_HERE, "static", name)


def content_hash(text: str) -> str:
    """The source expression of a content security policy that allows exactly this text."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
