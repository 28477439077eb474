"""Prune old tool outputs from the context: cheaper than a compaction, and no summary is needed.

A `context_edit` entry replaces each output with a short note. The output itself stays in the file, and `restore` adds
it to the context again. The last turns (by default two) are protected, and before them the newest outputs up to 40,000
tokens. Nothing is done unless it frees 20,000 tokens.

Only for clients that apply context edits, as Pi does. Others would ignore them and send the full outputs.
"""

from __future__ import annotations

import functools

from msgspec import Struct

from sessiontree.compaction.context_units import ContextUnits, Unit, build_units
from sessiontree.compaction.token_estimate import MEASURED, Estimator
from sessiontree.conversion.tool_mapping import tool_tables
from sessiontree.core.entries import ContextEdit
from sessiontree.core.messages import Text, ToolResult, User, message_text
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.errors import CompactionError
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Prune

DEFAULT_PRUNE = Prune()
"""Default protection."""

MIN_FREED_TOKENS = 20_000
"""Pruning has to free at least this many tokens, or nothing is done."""

_SMALL_OUTPUT = 50
"""Outputs of fewer tokens are not pruned."""

_REASON = "pruned"


class Pruned(Struct, frozen=True):
    """Result of pruning, or with `dry_run` what it would be."""

    entries: tuple[str, ...]
    """Ids of the pruned tool results."""
    freed: int
    """Freed tokens, by the measured estimate."""


@functools.cache
def _is_report(tool: str) -> bool:
    """Whether the outputs of a tool of any client are instructions or reports."""
    return any(tool in tools.reports for tools in tool_tables(DEFAULT_DIALECT))


def can_prune(session: Session) -> bool:
    return session.dialect.client.applies_context_edits


def find_prunable(
    context_units: ContextUnits, estimate: Estimator = MEASURED, settings: Prune = DEFAULT_PRUNE
) -> list[tuple[Unit, int]]:
    """Find prunable tool results, oldest first, with the tokens each would free; empty if that is not enough."""
    found: list[tuple[Unit, int]] = []
    turns = protected = freed = 0
    for unit in reversed(context_units.units):
        turns += any(isinstance(message, User) for message in unit.messages)
        if turns < settings.protect_turns or len(unit.messages) != 1:
            continue
        (message,) = unit.messages
        if not isinstance(message, ToolResult) or _is_report(message.tool_name):
            continue
        tokens = estimate(message)
        protected += tokens
        saved = tokens - estimate(ToolResult(content=(Text(_note(message)),)))
        if protected > settings.protect_tokens and tokens >= _SMALL_OUTPUT and saved > 0:
            found.append((unit, saved))
            freed += saved
    return found[::-1] if freed >= MIN_FREED_TOKENS else []


def prune(
    session: Session, *, branch: Branch | None = None, settings: Prune = DEFAULT_PRUNE, dry_run: bool = False
) -> Pruned:
    """Prune old tool outputs. If that would not free enough, nothing is done."""
    if not can_prune(session):
        raise CompactionError(
            f"{session.location}: cannot prune sessions of {session.dialect.name}; compact it instead"
        )
    target: Session | Branch = session if branch is None else branch
    found = find_prunable(build_units(session, target.leaf), settings=settings)
    if not dry_run:
        for unit, _ in found:
            (message,) = unit.messages
            replacement = {"content": [{"type": "text", "text": _note(message)}]}
            target.append({"type": "context_edit", "targetId": unit.id, "replacement": replacement, "reason": _REASON})
    return Pruned(tuple(unit.id for unit, _ in found), sum(saved for _, saved in found))


def restore(session: Session, *, branch: Branch | None = None) -> tuple[str, ...]:
    """Add pruned outputs to the context again and return the ids of their entries."""
    target: Session | Branch = session if branch is None else branch
    path = target.path()
    edits = {entry.target_id: entry.id for entry in path if isinstance(entry, ContextEdit)}
    pruned = [target for target, edit in edits.items() if session.fields(edit).get("reason") == _REASON]
    nodes = [node for target in pruned if (node := session.node_of(target)) is not None]
    for pruned_id, line in zip(pruned, list(session.journal.resolved_fields(nodes)), strict=True):
        content = line.get("message", {}).get("content")
        target.append({"type": "context_edit", "targetId": pruned_id, "replacement": {"content": content}})
    return tuple(pruned)


def _note(message: object) -> str:
    assert isinstance(message, ToolResult)
    tool, length = message.tool_name or "a tool", len(message_text(message))
    return f"[output of {tool} removed to save context: {length:,} characters]"
