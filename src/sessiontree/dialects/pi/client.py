"""Facts about Pi."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sessiontree.dialects.client import Client

if TYPE_CHECKING:
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


CONTEXT_NOTES = "experimental_context_notes"
"""The type of oh-my-pi's `custom` entries with notes that it sends before everything else."""


class PiClient(Client):
    name = "Pi"
    kinds_before_results = frozenset({"branch_summary", "compaction"})
    applies_context_edits = True
    encodes_resets = True
    knows_all_roles = True

    @property
    def trailing_types(self) -> frozenset[str]:
        from sessiontree.dialects.pi.encoder import TRAILING_TYPES

        return TRAILING_TYPES

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.texts import NATIVE_TEXTS

        return NATIVE_TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.pi.tools import TOOLS

        return TOOLS


CLIENT = PiClient()
