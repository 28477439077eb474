"""Facts about Codex CLI."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.client import Client, PastPrompt, PromptFile

if TYPE_CHECKING:
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


def parse_prompts(data: bytes) -> Iterator[PastPrompt]:
    """Read `history.jsonl`: one object per line, with the time in seconds and no folder."""
    for raw in data.split(b"\n"):
        if raw.strip():
            fields = parse_object(raw)
            seconds = fields.get("ts")
            time = seconds * 1000 if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None
            yield PastPrompt(fields.get("text"), "", fields.get("session_id"), time)


class CodexClient(Client):
    name = "Codex"
    encodes_resets = True
    kinds_before_results = frozenset({"branch_summary", "compaction"})
    compaction_strategy = "replace"
    moving_types = frozenset({"codex:rollback"})
    prompt_history = PromptFile("history.jsonl", parse_prompts)

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.codex.texts import TEXTS

        return TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.codex.tools import TOOLS

        return TOOLS


CLIENT = CodexClient()
