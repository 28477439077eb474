"""The target of a tool call: the argument that best identifies it to a reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAIN_ARGUMENTS = (
    "command",
    "file_path",
    "path",
    "filePath",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
    "name",
)
"""Arguments that identify a call in the tools of most clients, most important first."""


def call_target(arguments: Mapping[str, Any]) -> str:
    """The most informative argument of a call; empty if it has none. The text is untrusted."""
    for name in MAIN_ARGUMENTS:
        value = arguments.get(name)
        if value and isinstance(value, str):
            return value
    return next((value for value in arguments.values() if value and isinstance(value, str)), "")
