"""Escape session text for HTML and Markdown, and name the elements of a page."""

from __future__ import annotations

import re

from sessiontree.export.sanitize import safe

_PLAIN = re.compile(r"[A-Za-z0-9 .:,/_-]{0,60}")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")


def esc(text: str) -> str:
    """Escape a text between tags."""
    if _PLAIN.fullmatch(text):
        return text
    text = safe(text)
    if "&" in text:
        text = text.replace("&", "&amp;")
    if "<" in text:
        text = text.replace("<", "&lt;")
    return text.replace(">", "&gt;") if ">" in text else text


def anchor(id: str) -> str:
    """The element id of an entry; different entry ids never collide."""
    if id.isascii() and id.replace("-", "").isalnum():
        return f"entry-{id}"
    return "entry-" + _NOT_IN_IDS.sub(lambda found: f".{ord(found[0]):x}.", id)


def stamp(time: str) -> str:
    """Format a timestamp for people."""
    return f"{time[:10]} {time[11:16]}" if len(time) > 15 and time[10] == "T" else time[:40]
