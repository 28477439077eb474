"""Detect that a context is too large, and compact it. For programs that send requests to a model.

Call `should_compact` between two requests, or let `make_room` do the necessary steps. When the provider rejects a
request as too long, call `after_overflow` and retry. It gives up if the model has not answered since the last
compaction.
"""

from __future__ import annotations

from typing import Any

from sessiontree.compaction.compact import Compacted, compact
from sessiontree.compaction.context_units import ContextUnits, build_units
from sessiontree.compaction.policies import Policy, Reserve, Window, is_due
from sessiontree.compaction.prune_outputs import DEFAULT_PRUNE, Pruned, can_prune, find_prunable, prune
from sessiontree.compaction.token_estimate import MEASURED, Estimator, Size
from sessiontree.core.messages import Assistant, Message, ToolResult, message_text, tool_calls
from sessiontree.errors import CompactionError
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Prune

_FAILED = ("error", "length", "aborted")


def measure(session: Session, *, branch: Branch | None = None, estimate: Estimator = MEASURED) -> Size:
    """Size of the context: the provider's count, as far as it still applies, and an estimate of the rest."""
    return build_units(session, _leaf(session, branch)).plausible_size(estimate)


def should_compact(
    session: Session,
    window: Window | int,
    *,
    policy: Policy | None = None,
    branch: Branch | None = None,
    estimate: Estimator = MEASURED,
) -> bool:
    """Whether a policy (default: a reserve) asks for a compaction now.

    Usage from before the last compaction does not describe the current context, and is ignored.
    """
    return _is_due(build_units(session, _leaf(session, branch)), _window(window), policy, estimate)


def make_room(
    session: Session,
    window: Window | int,
    *,
    policy: Policy | None = None,
    branch: Branch | None = None,
    estimate: Estimator = MEASURED,
    pruning: Prune = DEFAULT_PRUNE,
    **options: Any,
) -> Pruned | Compacted | None:
    """Prune old tool outputs or compact, if needed. `options` are arguments of `compact`."""
    context_units = build_units(session, _leaf(session, branch))
    known = _window(window)
    if not _is_due(context_units, known, policy, estimate):
        return None
    if pruning.enabled and can_prune(session):
        freed = sum(saved for _, saved in find_prunable(context_units, settings=pruning))
        left = context_units.plausible_size(estimate).tokens - freed
        if freed and not is_due(_policy(policy), left, known):
            return prune(session, branch=branch, settings=pruning)
    return compact(session, branch=branch, policy=policy, window=known, **options)


def after_overflow(session: Session, *, branch: Branch | None = None, **options: Any) -> Compacted:
    """Compact after a provider rejected a request as too long. `options` are arguments of `compact`.

    A failed attempt at the end of the path is removed from the context first. If the model has not answered since the
    last compaction, another one would not help, so this raises `CompactionError`.
    """
    target: Session | Branch = session if branch is None else branch
    context_units = build_units(session, target.leaf)
    if context_units.previous is not None and not _has_answered_since(context_units):
        raise CompactionError(
            f"{session.location}: the request is still too long after a compaction; use a model with a larger window, "
            "or `sessiontree compact --undo` and keep less"
        )
    leaf_before = target.leaf
    _remove_failed_attempt(target, context_units, edits=can_prune(session))
    try:
        return compact(session, branch=branch, **options)
    except Exception:
        if target.leaf != leaf_before:
            target.move(leaf_before)  # restore the context, including the failed attempt
        raise


def _has_answered_since(context_units: ContextUnits) -> bool:
    since = context_units.messages[context_units.trusted_from :]
    return any(isinstance(message, Assistant) and not _has_failed(message) for message in since)


def _remove_failed_attempt(target: Session | Branch, context_units: ContextUnits, *, edits: bool) -> None:
    """Remove a failed attempt at the end, and its tool results, from the context."""
    attempt: list[str] = []
    for unit in reversed(context_units.units):
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
            target.append({"type": "context_edit", "targetId": id, "replacement": None})
        return
    before = [unit.id for unit in context_units.units if unit.messages and unit.id not in attempt]
    if before:
        target.move(before[-1])


def _has_failed(message: Message) -> bool:
    """Whether an answer failed. Not every format records that, but an answer without text and calls did."""
    if not isinstance(message, Assistant):
        return False
    return message.stop_reason in _FAILED or not (message_text(message).strip() or tool_calls(message))


def _is_due(context_units: ContextUnits, window: Window, policy: Policy | None, estimate: Estimator) -> bool:
    return is_due(_policy(policy), context_units.plausible_size(estimate).tokens, window)


def _leaf(session: Session, branch: Branch | None) -> str | None:
    return session.leaf if branch is None else branch.leaf


def _policy(policy: Policy | None) -> Policy:
    return Reserve() if policy is None else policy


def _window(window: Window | int) -> Window:
    return Window(window) if isinstance(window, int) else window
