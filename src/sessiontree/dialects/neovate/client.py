"""Facts about Neovate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.client import Client, PastPrompt, PromptFile

if TYPE_CHECKING:
    from sessiontree.dialects.contract import IndexedLines
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


def parse_prompts(data: bytes) -> Iterator[PastPrompt]:
    """Read `data.json`, which has a `history` for each folder in `projects`, without times."""
    try:
        value = parse_json(data)
    except ValueError:
        value = None
    projects = value.get("projects") if isinstance(value, dict) else None
    if not isinstance(projects, dict):
        yield PastPrompt(None)
        return
    for cwd, notes in projects.items():
        history = notes.get("history", []) if isinstance(notes, dict) else None
        for prompt in history if isinstance(history, list) else [None]:
            yield PastPrompt(prompt, cwd, is_dated=False)


class NeovateClient(Client):
    name = "Neovate"
    kinds_before_results = frozenset({"branch_summary"})
    records_commands = True
    compaction_strategy = "replace"
    encodes_resets = True
    snapshot_types = frozenset({"snapshot"})
    loads_from_compaction = True
    allows_flat_root = False  # sessions of the working directory `/` are directly in the root
    prompt_history = PromptFile("data.json", parse_prompts)

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.neovate.texts import TEXTS

        return TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.neovate.tools import TOOLS

        return TOOLS

    def find_kept_lines(
        self, lines: IndexedLines, path: Sequence[int], models: Iterable[str | None]
    ) -> set[int] | None:
        from sessiontree.dialects.neovate import truncate

        return truncate.find_kept_lines(lines, path)


CLIENT = NeovateClient()
