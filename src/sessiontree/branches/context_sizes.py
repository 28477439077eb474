"""Sizes of the contexts of many branches, in tokens."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.compaction.token_estimate import PI, context_size, trusted_usage, used_tokens
from sessiontree.core.context import entry_messages
from sessiontree.core.entries import BOUNDARY_TYPES, CONTEXT_TYPES, MessageEntry
from sessiontree.core.messages import System, ToolResult, User, tool_calls
from sessiontree.dialects.contract import HistoryLinks, is_metadata_id
from sessiontree.session.reader import Reader


class ContextSizes:
    """Computes the sizes that `context_size` finds, and reads each entry once for all branches.

    The size of a context is the provider's last count plus an estimate of the messages since. So the size at an entry
    is that at its parent plus an estimate of its own messages; where messages depend on their neighbors, the size
    before the last prompt and that of the part since. Where that does not hold (compactions, resets, edits, system
    prompts, formats with rules of their own), the context is built.
    """

    def __init__(self, session: Reader, links: HistoryLinks | None) -> None:
        self._session = session
        self._links = links
        self._is_additive = session.dialect.traits.follows_tree and "context_edit" not in session.journal.types
        self._known: dict[int, int] = {}
        self._with_preserved: dict[int, int | None] = {}
        """By node that preserved ones follow: the size of a context that ends with them, if it can be added to."""

    def tokens(self, tip: int) -> int:
        """Size of the context of an entry."""
        if self._links is None or not self._is_last(tip, self._links):
            return self._measure(tip)
        if not self._session.dialect.traits.follows_tree:
            return self._add_parts(tip, self._links)
        found = self._add_up(tip) if self._is_additive else None
        return self._measure(tip) if found is None else found

    def _is_last(self, tip: int, links: HistoryLinks) -> bool:
        """Whether an entry is the last one of its history, apart from metadata lines."""
        end = links.ends.get(tip)
        return end is None or is_metadata_id(self._session.journal.tree.ids[end])

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
            if types[node] in BOUNDARY_TYPES:
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

    def _add_parts(self, tip: int, links: HistoryLinks) -> int:
        """Add up the sizes of parts between prompts, from an entry whose size is known."""
        session = self._session
        walked: list[tuple[int, int]] = []
        node: int | None = tip
        total = 0
        while node is not None:
            if node in self._known:
                total = self._known[node]
                break
            part = self._find_part(node, links)
            messages = None
            if part is not None:
                messages = session.dialect.build_messages(session.journal, part.nodes, session.read_options)
            if part is None or messages is None or any(isinstance(message, System) for message in messages):
                total = self._known[node] = self._measure(node)
                break
            size = context_size(messages)
            if size.counted_until is not None:
                total = self._known[node] = size.tokens
                break
            if part.follows_preserved:
                before = self._measure_preserved(part.before, links)
                total = self._known[node] = self._measure(node) if before is None else before + size.tokens
                break
            walked.append((node, size.tokens))
            node = part.before
        for each, added in reversed(walked):
            total = self._known[each] = total + added
        return total

    def _measure_preserved(self, anchor: int | None, links: HistoryLinks) -> int | None:
        """Size of a context that ends with preserved entries; None if it depends on what follows."""
        assert anchor is not None
        if anchor not in self._with_preserved:
            session = self._session
            types = session.journal.types
            above = links.parents[anchor]
            start = [anchor] if types[anchor] in BOUNDARY_TYPES or above is None else [above, anchor]
            nodes = [*start, *links.preserved[anchor]]
            messages = session.dialect.build_messages(session.journal, nodes, session.read_options)
            found = None
            if messages is not None and not any(isinstance(message, System) for message in messages):
                results = {message.tool_call_id for message in messages if isinstance(message, ToolResult)}
                if results.issuperset(call.id for message in messages for call in tool_calls(message)):
                    found = context_size(messages).tokens
            self._with_preserved[anchor] = found
        return self._with_preserved[anchor]

    def _find_part(self, end: int, links: HistoryLinks) -> _Part | None:
        """Find the last part of the path to an entry; None if it cannot be separated from the rest."""
        journal = self._session.journal
        tree, types = journal.tree, journal.types
        nodes: list[int] = []
        unanswered = set[str]()
        """Calls of the results found so far."""
        node: int | None = end
        is_separable = False
        while node is not None:
            if is_metadata_id(tree.ids[node]):  # part of the history, and not of the context
                node = links.parents[node]
                continue
            is_root = tree.parent(node) is None
            if types[node] in BOUNDARY_TYPES and (node == end or not is_root):
                return None if node == end or unanswered else _Part(nodes[::-1], node)
            # A boundary without a parent starts the context, so it belongs to the first part.
            if is_separable and not (is_root and types[node] in BOUNDARY_TYPES):
                return _Part(nodes[::-1], node)
            nodes.append(node)
            if is_root:
                break
            if types[node] in CONTEXT_TYPES:
                (entry,) = journal.entries([node])
                messages = entry.messages if isinstance(entry, MessageEntry) else ()
                for message in reversed(messages):
                    if isinstance(message, ToolResult):
                        unanswered.add(message.tool_call_id)
                    unanswered.difference_update(call.id for call in tool_calls(message))
                is_prompt = bool(messages) and all(isinstance(message, User) for message in messages)
                is_separable = is_prompt and not unanswered
            if node in links.preserved_in_part:
                return None
            node = links.parents[node]
            if node is not None and node in links.preserved:
                if is_separable:
                    return _Part(nodes[::-1], node, follows_preserved=True)
                nodes += reversed(links.preserved[node])
        return _Part(nodes[::-1], None)


class _Part(Struct, frozen=True):
    """A part of a path, and the entry before it."""

    nodes: list[int]
    before: int | None
    follows_preserved: bool = False
    """Whether entries that a compaction preserved are between the two."""
