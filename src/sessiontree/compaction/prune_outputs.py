"""The cheaper step before a compaction: old outputs of tools make room, and nothing is summarised.

Each is replaced by a line that says so, as a `context_edit`: the result itself stays in the file, and `restore` puts it
back into the context. The last turns are left alone (two, unless settings say otherwise), and behind them the newest
outputs up to 40,000 tokens; and nothing is done unless it frees 20,000.

Only Pi's and native sessions know such edits. Others are not pruned: their programs would send what was said all the
same.
"""

from __future__ import annotations

from msgspec import Struct

from sessiontree.compaction.context_units import Projection, Unit, project
from sessiontree.compaction.token_estimate import MEASURED, Estimator
from sessiontree.core.entries import ContextEdit
from sessiontree.core.messages import Text, ToolResult, User, message_text
from sessiontree.errors import CompactionError
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Prune

AS_USUAL = Prune()
"""What is protected when nothing else is said."""

WORTH = 20_000
"""Tokens that have to become free, or nothing is done."""

_SMALL = 50
"""Outputs of fewer tokens are not worth a line."""

_EDITING = frozenset({"native", "pi"})
_PROTECTED_TOOLS = frozenset({"skill", "task", "Skill", "Task", "Agent"})
"""Tools whose outputs are instructions or reports, and not to be had again by calling them once more."""

_REASON = "pruned"


class Pruned(Struct, frozen=True):
    """What pruning did, or with `dry_run` would do."""

    entries: tuple[str, ...]
    """The results that make room."""
    freed: int
    """Tokens, by the measured estimate."""


def can_prune(session: Session) -> bool:
    return session.dialect.name in _EDITING


def find_prunable(
    projection: Projection, estimate: Estimator = MEASURED, protected_by: Prune = AS_USUAL
) -> list[tuple[Unit, int]]:
    """The results that may make room, oldest first, with what each would free; none when it is not worth it."""
    found: list[tuple[Unit, int]] = []
    turns = protected = freed = 0
    for unit in reversed(projection.units):
        turns += any(isinstance(message, User) for message in unit.messages)
        if turns < protected_by.protect_turns or len(unit.messages) != 1:
            continue
        (message,) = unit.messages
        if not isinstance(message, ToolResult) or message.tool_name in _PROTECTED_TOOLS:
            continue
        tokens = estimate(message)
        protected += tokens
        saved = tokens - estimate(ToolResult(content=(Text(_note(message)),)))
        if protected > protected_by.protect_tokens and tokens >= _SMALL and saved > 0:
            found.append((unit, saved))
            freed += saved
    return found[::-1] if freed >= WORTH else []


def prune(
    session: Session, *, branch: Branch | None = None, protected_by: Prune = AS_USUAL, dry_run: bool = False
) -> Pruned:
    """Let old outputs of tools make room. When it is not worth it, nothing is done, and that is no error."""
    if not can_prune(session):
        raise CompactionError(
            f"{session.location}: sessions of {session.dialect.name} cannot be pruned, only compacted"
        )
    place: Session | Branch = session if branch is None else branch
    found = find_prunable(project(session, place.leaf), protected_by=protected_by)
    if not dry_run:
        for unit, _ in found:
            (message,) = unit.messages
            replacement = {"content": [{"type": "text", "text": _note(message)}]}
            place.append({"type": "context_edit", "targetId": unit.id, "replacement": replacement, "reason": _REASON})
    return Pruned(tuple(unit.id for unit, _ in found), sum(saved for _, saved in found))


def restore(session: Session, *, branch: Branch | None = None) -> tuple[str, ...]:
    """Put pruned outputs back into the context; the ids of their entries."""
    place: Session | Branch = session if branch is None else branch
    path = place.path()
    edits = {entry.target_id: entry.id for entry in path if isinstance(entry, ContextEdit)}
    pruned = [target for target, edit in edits.items() if session.fields(edit).get("reason") == _REASON]
    nodes = [node for target in pruned if (node := session.node_of(target)) is not None]
    for target, line in zip(pruned, list(session.journal.resolved_fields(nodes)), strict=True):
        content = line.get("message", {}).get("content")
        place.append({"type": "context_edit", "targetId": target, "replacement": {"content": content}})
    return tuple(pruned)


def _note(message: object) -> str:
    assert isinstance(message, ToolResult)
    return (
        f"[this output of {message.tool_name or 'a tool'} was {len(message_text(message)):,} characters; it made room]"
    )
