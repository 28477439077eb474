"""Which lines of a Claude Code transcript can be left out: when it is truncated to its last compaction, or shrunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sessiontree.dialects.claude.boundaries import find_loaded_lines
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.context import find_model_before
from sessiontree.dialects.claude.records import SYNTHETIC
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import DECODE_STEP
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


def find_kept_lines(lines: IndexedLines, path: Sequence[int], models: Iterable[str | None]) -> set[int] | None:
    """Find the lines that must stay for a path; None if it does not start at a compaction.

    `models` are those of the answers on the path.
    """
    if not path or lines.types[path[0]] != "compaction":
        return None
    kept = {*path, *find_head(lines, path[0]), *_find_structure(lines)}
    if all(model in (None, "", SYNTHETIC) for model in models):
        # No answer after the compaction: the client takes the model from the last one before it.
        found = find_model_before(lines, path[0])
        if found is not None:
            kept.add(found[0])
    return kept | set(iter_metadata(lines, path[0], kept, repeated=_REPEATED, logs=_LOGS))


def _find_structure(lines: IndexedLines) -> set[int]:
    """Find the last boundary, the lines that it preserves and their new parents: on the path or not, they decide it."""
    loaded = find_loaded_lines(Chain(lines))
    if not loaded.preserved:
        return set()
    parents = {parent for node in loaded.preserved if (parent := loaded.links.get(node)) is not None}
    return {loaded.start, *loaded.preserved, *parents}


def find_repeated_progress(lines: IndexedLines) -> set[int]:
    """The `progress` lines, except the last one of each tool call."""
    nodes = [node for node, kind in enumerate(lines.types) if kind == "progress"]
    last: dict[tuple[str, ...], int] = {}
    for start in range(0, len(nodes), DECODE_STEP):
        batch = nodes[start : start + DECODE_STEP]
        for node, fields in zip(batch, lines.fields(batch), strict=True):
            data = fields.get("data")
            kind = data.get("type") if isinstance(data, dict) else None
            last[str(fields.get("toolUseID")), str(fields.get("parentToolUseID")), str(kind)] = node
    return set(nodes) - set(last.values())
