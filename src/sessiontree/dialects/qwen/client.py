"""Facts about Qwen Code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.dialects.client import Client

if TYPE_CHECKING:
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


ANSWER_TO_SUMMARY = "Got it. Thanks for the additional context!"
"""The answer that the client has directly after a summary."""


class QwenClient(Client):
    name = "Qwen Code"
    encodes_resets = True
    compaction_strategy = "replace"
    snapshot_types = frozenset({"qwen:attribution_snapshot"})
    allows_flat_root = False

    def inserts(self, role: str, text: str) -> bool:
        return role == "assistant" and text == ANSWER_TO_SUMMARY

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.qwen.texts import TEXTS

        return TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.qwen.tools import TOOLS

        return TOOLS


CLIENT = QwenClient()
