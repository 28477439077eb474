"""Remove shell quotes from a word, for the shell that cannot do that itself (bash)."""

from __future__ import annotations

_KEPT_BY_DOUBLE = '$`"\\'


def unquote(typed: str) -> str:
    """The word without quotes and backslashes. The last quote may be open; nothing is expanded."""
    plain = ""
    quote = ""
    at = 0
    while at < len(typed):
        character = typed[at]
        following = typed[at + 1 : at + 2]
        if character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        elif character == "\\" and quote != "'" and (not quote or following in _KEPT_BY_DOUBLE):
            plain += following
            at += 1
        else:
            plain += character
        at += 1
    return plain
