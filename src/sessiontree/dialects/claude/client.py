"""Facts about Claude Code."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.core.jsonio import parse_json
from sessiontree.dialects.claude import worktree_notes
from sessiontree.dialects.client import Client, FileBackups, PastPrompt, PromptFile, WorktreeNote

if TYPE_CHECKING:
    from sessiontree.dialects.contract import IndexedLines
    from sessiontree.dialects.texts import TextReader
    from sessiontree.dialects.tool_table import ToolTable

RETENTION_DAYS = 30
"""The client deletes transcripts whose file is older than this, unless `cleanupPeriodDays` is set."""


def parse_prompts(data: bytes) -> Iterator[PastPrompt]:
    """Read `history.jsonl`: one object per line."""
    for raw in data.split(b"\n"):
        if raw.strip():
            fields = _parse_object(raw)
            yield PastPrompt(
                fields.get("display"), fields.get("project"), fields.get("sessionId"), fields.get("timestamp")
            )


def _parse_object(raw: bytes | None) -> dict[str, Any]:
    try:
        value = parse_json(raw or b"")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


class ClaudeClient(Client):
    name = "Claude Code"
    kinds_before_results = frozenset({"branch_summary", "compaction"})
    compaction_strategy = "segment"
    encodes_resets = True
    records_commands = True
    extending_types = frozenset({"message", "attachment", "system"})
    moving_types = frozenset({"last-prompt"})
    snapshot_types = frozenset({"file-history-snapshot", "attribution-snapshot"})
    loads_from_compaction = True
    prompt_history = PromptFile("history.jsonl", parse_prompts)
    worktree_type = worktree_notes.WORKTREE_STATE

    def inserts(self, role: str, text: str) -> bool:
        from sessiontree.dialects.claude.messages import NO_CONTENT, is_reminder_text

        return text == NO_CONTENT or (role == "user" and is_reminder_text(text))

    @property
    def texts(self) -> TextReader:
        from sessiontree.dialects.claude.texts import TEXTS

        return TEXTS

    @property
    def tools(self) -> ToolTable:
        from sessiontree.dialects.claude.tools import TOOLS

        return TOOLS

    def find_kept_lines(
        self, lines: IndexedLines, path: Sequence[int], models: Iterable[str | None]
    ) -> set[int] | None:
        from sessiontree.dialects.claude import truncate

        return truncate.find_kept_lines(lines, path, models)

    def find_redundant_lines(self, lines: IndexedLines) -> set[int]:
        from sessiontree.dialects.claude import truncate

        return truncate.find_repeated_progress(lines)

    def retention_days(self, location: str, read: Callable[[str], bytes | None]) -> int | None:
        # <config>/projects/<project>/<session>.jsonl
        config = os.path.dirname(os.path.dirname(os.path.dirname(location)))
        days = _parse_object(read(os.path.join(config, "settings.json"))).get("cleanupPeriodDays")
        return days if isinstance(days, int) and days >= 0 else RETENTION_DAYS

    def parse_worktree(self, fields: Mapping[str, Any]) -> WorktreeNote | None:
        return worktree_notes.parse_worktree_state(fields)

    def file_history(self, lines: IndexedLines) -> list[FileBackups]:
        return worktree_notes.find_file_history(lines)

    def find_backups(self, lines: IndexedLines) -> dict[str, str]:
        return worktree_notes.find_backups(lines)


CLIENT = ClaudeClient()
