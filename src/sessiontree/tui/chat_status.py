"""The status line of a chat: model, thinking, mode, branch, tokens, cost, other writers."""

from __future__ import annotations

from sessiontree.agent.state import State
from sessiontree.app.context_use import ContextUse
from sessiontree.explore.lane_table import cut_middle
from sessiontree.models.cost_estimate import cost_total
from sessiontree.views.listing import amount, dollars
from sessiontree.views.text import one_line, plural

_MAX_MODEL = 36


def status_text(
    state: State, use: ContextUse, *, seconds: float | None = None, queued: int = 0, is_asking: bool = False
) -> str:
    """The status as one line; what matters most is first. `seconds` is the time of the run so far."""
    parts: list[str] = []
    if is_asking:
        parts.append("? waiting for your answer")
    elif seconds is not None:
        parts.append(f"● working {seconds:.0f} s (Esc interrupts)")
    parts.append(cut_middle(one_line(state.model or "no model"), _MAX_MODEL))
    if state.thinking:
        parts.append(f"thinking {one_line(state.thinking)}")
    parts.append({"plan": "plan mode", "default": "asks first", "autoEdit": "edits freely"}.get(state.approval, "YOLO"))
    if state.approved:
        parts.append(f"approved: {one_line(', '.join(state.approved))}")
    if use.tokens:
        bar = use.bar()
        limit = f" {bar} {amount(use.limit)}" if use.limit else ""
        parts.append(f"{amount(use.tokens)} tokens{limit}")
    if state.usage.requests:
        parts.append(dollars(cost_total(state.usage.cost, state.usage.unpriced).text(4)))
    if use.branches > 1:
        parts.append(plural(use.branches, "branch", "branches"))
    if use.git_branch:
        parts.append(f"⎇ {one_line(use.git_branch)}")
    if state.writers:
        parts.append(f"⚠ {plural(len(state.writers), 'other writer')}")
    if queued:
        parts.append(f"{queued} queued")
    if state.status_line:
        parts.append(one_line(state.status_line))
    return " · ".join(parts)
