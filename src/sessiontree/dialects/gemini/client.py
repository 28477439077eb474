"""Facts about Gemini CLI."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.client import Client

if TYPE_CHECKING:
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable

_DEFAULT_DAYS = 30


ANSWER_TO_SUMMARY = "Got it. Thanks for the additional context!"
"""The answer that the client has directly after a summary."""
INTERRUPTED = "[The previous response was interrupted before it completed.]"
"""The answer that the client sends after the results at the end of a session."""


class GeminiClient(Client):
    name = "Gemini CLI"
    compaction_strategy = "segment"
    hides_system_messages = False
    allows_flat_root = False

    def inserts(self, role: str, text: str) -> bool:
        return role == "assistant" and text in (ANSWER_TO_SUMMARY, INTERRUPTED)

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.gemini.texts import TEXTS

        return TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.gemini.tools import TOOLS

        return TOOLS

    def retention_days(self, location: str, read: Callable[[str], bytes | None]) -> int | None:
        base = location.partition("/.gemini/tmp/")[0]
        general = parse_object(read(os.path.join(base, ".gemini", "settings.json")) or b"").get("general")
        retention = general.get("sessionRetention") if isinstance(general, dict) else None
        if isinstance(retention, dict):
            age = retention.get("maxAge")
            if retention.get("enabled") is False:
                return None
            if isinstance(age, str) and age.endswith("d") and age[:-1].isdecimal():
                return int(age[:-1])
        return _DEFAULT_DAYS


CLIENT = GeminiClient()
