"""When a context is too large: is it, and what to do about it. For whoever runs a model.

Ask `should_compact` between two requests, or let `make_room` do what is needed. When the provider refuses a request as
too long, `after_overflow` compacts and says that the request may be tried again; when that happens again before the
model has answered once, it gives up.
"""

from __future__ import annotations

from typing import Any

from sessiontree.compaction.compact import Compacted, compact
from sessiontree.compaction.context_units import Projection, project
from sessiontree.compaction.policies import Policy, Reserve, Window, is_due
from sessiontree.compaction.prune_outputs import AS_USUAL, Pruned, can_prune, find_prunable, prune
from sessiontree.compaction.token_estimate import MEASURED, Estimator, Size
from sessiontree.core.messages import Assistant, Message, ToolResult, message_text, tool_calls
from sessiontree.errors import CompactionError
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Prune

_FAILED = ("error", "length", "aborted")


def measure(session: Session, *, branch: Branch | None = None, estimate: Estimator = MEASURED) -> Size:
    """How large the context is: what the provider counted, as far as that still holds, and an estimate of the rest."""
    return project(session, _leaf(session, branch)).likely_size(estimate)


def should_compact(
    session: Session,
    window: Window | int,
    *,
    policy: Policy | None = None,
    branch: Branch | None = None,
    estimate: Estimator = MEASURED,
) -> bool:
    """Whether a policy (default: a reserve) wants the context to be compacted now.

    Usage that was counted before the last compaction says nothing about the context as it is, and never counts.
    """
    return _is_due(project(session, _leaf(session, branch)), _window(window), policy, estimate)


def make_room(
    session: Session,
    window: Window | int,
    *,
    policy: Policy | None = None,
    branch: Branch | None = None,
    estimate: Estimator = MEASURED,
    pruning: Prune = AS_USUAL,
    **how: Any,
) -> Pruned | Compacted | None:
    """Do what is needed, and no more: nothing, prune old outputs of tools, or compact. `how` is for `compact`."""
    projection = project(session, _leaf(session, branch))
    known = _window(window)
    if not _is_due(projection, known, policy, estimate):
        return None
    if pruning.enabled and can_prune(session):
        freed = sum(saved for _, saved in find_prunable(projection, protected_by=pruning))
        left = projection.likely_size(estimate).tokens - freed
        if freed and not is_due(_policy(policy), left, known):
            return prune(session, branch=branch, protected_by=pruning)
    return compact(session, branch=branch, policy=policy, window=known, **how)


def after_overflow(session: Session, *, branch: Branch | None = None, **how: Any) -> Compacted:
    """Compact after a provider refused a request as too long. `how` is for `compact`.

    An attempt that failed and stands at the end of the path is left out of the context first. If the model has not
    answered once since the last compaction, compacting again would not help: a `CompactionError` says so.
    """
    place: Session | Branch = session if branch is None else branch
    projection = project(session, place.leaf)
    if projection.earlier is not None and not _has_answered_since(projection):
        raise CompactionError(
            f"{session.location}: the request is still too long after a compaction; what is left does not fit this "
            "model: use one with a larger window, or `sessiontree compact --undo` and keep less"
        )
    stood_at = place.leaf
    _leave_out(place, projection, edits=can_prune(session))
    try:
        return compact(session, branch=branch, **how)
    except Exception:
        if place.leaf != stood_at:
            place.move(stood_at)  # as it was, with the attempt that failed
        raise


def _has_answered_since(projection: Projection) -> bool:
    since = projection.messages[projection.trusted_from :]
    return any(isinstance(message, Assistant) and not _has_failed(message) for message in since)


def _leave_out(place: Session | Branch, projection: Projection, *, edits: bool) -> None:
    """Take a failed attempt at the end, and its results, out of what is sent."""
    attempt: list[str] = []
    for unit in reversed(projection.units):
        if not unit.messages:
            continue
        attempt.append(unit.id)
        message = unit.messages[0]
        if not isinstance(message, ToolResult):
            break
    else:
        return
    if not _has_failed(message):
        return
    if edits:
        for id in reversed(attempt):
            place.append({"type": "context_edit", "targetId": id, "replacement": None})
        return
    before = [unit.id for unit in projection.units if unit.messages and unit.id not in attempt]
    if before:
        place.move(before[-1])


def _has_failed(message: Message) -> bool:
    """Whether an attempt came to nothing. Not every format says so, but an answer without words or calls did."""
    if not isinstance(message, Assistant):
        return False
    return message.stop_reason in _FAILED or not (message_text(message).strip() or tool_calls(message))


def _is_due(projection: Projection, window: Window, policy: Policy | None, estimate: Estimator) -> bool:
    return is_due(_policy(policy), projection.likely_size(estimate).tokens, window)


def _leaf(session: Session, branch: Branch | None) -> str | None:
    return session.leaf if branch is None else branch.leaf


def _policy(policy: Policy | None) -> Policy:
    return Reserve() if policy is None else policy


def _window(window: Window | int) -> Window:
    return Window(window) if isinstance(window, int) else window
