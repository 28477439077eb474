"""Which lines of a Claude Code transcript stay when it is truncated to its last compaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessiontree.dialects.claude.records import SYNTHETIC
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.truncation import find_head, iter_metadata

_REPEATED = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "atis-latch",
        "cost-state",
        "custom-title",
        "isolation-latch",
        "last-prompt",
        "mode",
        "permission-mode",
        "tag",
        "tools-used",
        "worktree-state",
    }
)
"""Lines that Claude Code writes again and again; only the last one counts."""
_LOGS = frozenset(
    {"api-request", "api-request-blob", "api-request-shape", "attribution-snapshot", "progress", "queue-operation"}
)
"""Lines that Claude Code does not need to resume."""
_MODEL_WINDOW = 256
"""How many lines before a compaction Claude Code searches for the model."""


def find_kept_lines(lines: IndexedLines, path: Sequence[int], models: Iterable[str | None]) -> set[int] | None:
    """The lines that must stay for a path; None if it does not start at a compaction.

    `models` are those of the answers on the path.
    """
    if not path or lines.types[path[0]] != "compaction":
        return None
    kept = {*path, *find_head(lines, path[0])}
    if all(model in (None, "", SYNTHETIC) for model in models):
        # No answer after the compaction: the client takes the model from the last one before it.
        model_line = _find_model_line(lines, path[0])
        if model_line is not None:
            kept.add(model_line)
    return kept | set(iter_metadata(lines, path[0], kept, repeated=_REPEATED, logs=_LOGS))


def _find_model_line(lines: IndexedLines, boundary: int) -> int | None:
    window = range(max(0, boundary - _MODEL_WINDOW), boundary)
    nodes = [node for node in window if lines.types[node] == "message"]
    for node, fields in zip(reversed(nodes), reversed(lines.fields(nodes)), strict=True):
        message = fields.get("message")
        model = message.get("model") if isinstance(message, dict) else None
        if model and model != SYNTHETIC and fields.get("isSidechain") is not True:
            return node
    return None
