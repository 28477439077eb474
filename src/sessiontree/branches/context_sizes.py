"""Sizes of the contexts of many branches, in tokens."""

from __future__ import annotations

from sessiontree.branches.tips import histories_are_paths
from sessiontree.compaction.token_estimate import PI, context_size, trusted_usage, used_tokens
from sessiontree.core.context import entry_messages
from sessiontree.core.entries import CONTEXT_TYPES
from sessiontree.core.messages import System
from sessiontree.session.reader import Reader

_BOUNDARIES = frozenset({"compaction", "reset_boundary"})


class ContextSizes:
    """Computes the sizes that `context_size` finds, and reads each entry once for all branches.

    The context of an entry is that of its parent and its own messages. So its size is what the provider counted for
    it, or else the size at its parent and an estimate of its own messages. Where that rule does not hold (compactions,
    resets, edits, system prompts, formats with rules of their own), the context is built.
    """

    def __init__(self, session: Reader) -> None:
        self._session = session
        types = session.journal.types
        self._is_additive = histories_are_paths(session) and "context_edit" not in types
        self._known: dict[int, int] = {}

    def tokens(self, tip: int) -> int:
        """Size of the context of an entry."""
        found = self._add_up(tip) if self._is_additive else None
        return self._measure(tip) if found is None else found

    def _measure(self, node: int) -> int:
        return context_size(self._session.context(self._session.journal.tree.ids[node]).messages).tokens

    def _add_up(self, tip: int) -> int | None:
        """Add up the estimates from an entry whose size is known; None if there is a system prompt after it."""
        journal = self._session.journal
        parents, types = journal.tree.parents(), journal.types
        walked: list[tuple[int, int]] = []
        node: int | None = tip
        total = 0
        while node is not None:
            if node in self._known:
                total = self._known[node]
                break
            if types[node] in _BOUNDARIES:
                total = self._known[node] = self._measure(node)
                break
            added = 0
            if types[node] in CONTEXT_TYPES:
                (entry,) = journal.entries([node])
                messages = list(entry_messages(entry))
                if any(isinstance(message, System) for message in messages):
                    return None
                counted = [at for at, message in enumerate(messages) if trusted_usage(message) is not None]
                added = sum(map(PI, messages[counted[-1] + 1 :] if counted else messages))
                if counted:
                    usage = trusted_usage(messages[counted[-1]])
                    assert usage is not None
                    total = self._known[node] = used_tokens(usage) + added
                    break
            walked.append((node, added))
            node = parents[node]
        for each, added in reversed(walked):
            total = self._known[each] = total + added
        return total
