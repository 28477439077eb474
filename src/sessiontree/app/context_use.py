"""The context size for a status line, and the size at which it is compacted."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.agent.controller import Controller
from sessiontree.agent.live_context import live_context_of
from sessiontree.branches.tips import count_tips
from sessiontree.compaction import Window, policy_of
from sessiontree.errors import SessionTreeError
from sessiontree.git.command import query

_BAR = 8


class ContextUse(Struct, frozen=True):
    """Tokens of the context, and facts about where the session is."""

    tokens: int = 0
    limit: int | None = None
    """The size at which auto-compaction starts; None if it is off, or the window is unknown."""
    branches: int = 1
    git_branch: str = ""

    def bar(self) -> str:
        """The size as a bar up to the compaction point; empty without one."""
        if not self.limit:
            return ""
        filled = min(round(_BAR * self.tokens / self.limit), _BAR)
        return "▰" * filled + "▱" * (_BAR - filled)


def measure_context(controller: Controller) -> ContextUse:
    """Measure the context of the current branch. May read the session: call it in a thread."""
    session = controller.session
    live = live_context_of(session)
    live.messages()
    tokens = max(live.sizes())
    limit: int | None = None
    try:
        model = controller.model
    except SessionTreeError:  # no model is chosen
        pass
    else:
        policy = policy_of(controller.settings.compaction.for_model(model.name))
        window = Window(model.facts.window, model.facts.output, model.name.replace(":", "/", 1))
        limit = policy.limit(window) if model.facts.window else None
    branch = query(controller.cwd, "symbolic-ref", "--short", "-q", "HEAD")
    return ContextUse(tokens, limit, count_tips(session), branch)
