"""Facts about oh-my-pi and xcsh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sessiontree.dialects.client import Client, PastPrompt, PromptDatabase
from sessiontree.dialects.pi.client import CONTEXT_NOTES

if TYPE_CHECKING:
    import sqlite3

    from sessiontree.dialects.canonical import CanonicalEntry
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable


def query_prompts(database: sqlite3.Connection) -> Iterator[PastPrompt]:
    """Read the table `history`, oldest first. In xcsh it has no column for the session."""
    columns = {row[1] for row in database.execute("PRAGMA table_info(history)")}
    if "session_id" in columns:
        rows = database.execute("SELECT prompt, created_at, cwd, session_id FROM history ORDER BY created_at, id")
    else:
        rows = database.execute("SELECT prompt, created_at, cwd, NULL FROM history ORDER BY created_at, id")
    for prompt, seconds, cwd, session in rows:
        time = seconds * 1000 if isinstance(seconds, int | float) else None
        yield PastPrompt(prompt, cwd, session, time)


class OhMyPiClient(Client):
    name = "oh-my-pi"
    kinds_before_results = frozenset({"branch_summary", "compaction"})
    applies_resets = True
    encodes_resets = True
    drops_failed_turns = True
    sent_custom_types = frozenset({CONTEXT_NOTES})
    knows_all_roles = True
    records_terminals = True
    prompt_history = PromptDatabase("history.db", query_prompts)

    @property
    def own_line_types(self) -> frozenset[str]:
        from sessiontree.dialects.omp.header import SLOT

        return frozenset({SLOT})

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.omp.texts import TEXTS

        return TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.omp.tools import TOOLS

        return TOOLS

    def never_sends(self, entry: CanonicalEntry) -> bool:
        from sessiontree.dialects.pi.content import is_never_sent

        return is_never_sent(entry)


CLIENT = OhMyPiClient()
