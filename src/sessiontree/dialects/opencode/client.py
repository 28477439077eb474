"""Facts about OpenCode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.core.jsonio import parse_object
from sessiontree.dialects.client import Client, PastPrompt, PromptFile

if TYPE_CHECKING:
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


def parse_prompts(data: bytes) -> Iterator[PastPrompt]:
    """Read `prompt-history.jsonl`, which has neither times nor folders."""
    for line in data.splitlines():
        if line.strip():
            yield PastPrompt(parse_object(line).get("input"), is_dated=False)


class OpenCodeClient(Client):
    name = "OpenCode"
    compaction_strategy = "segment"
    hides_system_messages = False
    sends_kept_summaries = True
    sends_thinking_as_text = True
    prompt_history = PromptFile("../state/opencode/prompt-history.jsonl", parse_prompts)

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.opencode.texts import TEXTS

        return TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.opencode.tools import TOOLS

        return TOOLS


CLIENT = OpenCodeClient()
