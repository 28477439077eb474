"""Facts about Qwen Code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.dialects.client import Client

if TYPE_CHECKING:
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


class QwenClient(Client):
    name = "Qwen Code"
    encodes_resets = True
    compaction_strategy = "replace"
    snapshot_types = frozenset({"qwen:attribution_snapshot"})
    allows_flat_root = False

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.qwen.texts import TEXTS

        return TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.qwen.tools import TOOLS

        return TOOLS


CLIENT = QwenClient()
