"""Native sessions: sessiontree reads and writes them itself, with Pi's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.dialects.client import Client

if TYPE_CHECKING:
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


class NativeClient(Client):
    name = "sessiontree"
    kinds_before_results = frozenset({"branch_summary", "compaction"})
    applies_context_edits = True
    applies_resets = True
    encodes_resets = True
    knows_all_roles = True
    allows_flat_root = False

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.texts import NATIVE_TEXTS

        return NATIVE_TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.pi.tools import TOOLS

        return TOOLS


CLIENT = NativeClient()
