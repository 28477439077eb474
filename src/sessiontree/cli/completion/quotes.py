"""A word as it stands on a command line, without its quotes; for the shell that cannot take them away itself."""

from __future__ import annotations

_KEPT_BY_DOUBLE = '$`"\\'


def unquoted(typed: str) -> str:
    """What a shell makes of a word; the last quote may be open. Nothing is expanded."""
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
