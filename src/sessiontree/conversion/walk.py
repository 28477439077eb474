"""Walk a session in segments that can be decoded one after the other: parents first, the active branch last.

The active branch comes last because several clients use the last line of a file as the current entry. A segment is
never cut where the dialect has to decode neighbors together (the shards of a response, with its results).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import msgspec
from msgspec import Struct

from sessiontree.conversion.replaced_entries import with_replaced
from sessiontree.core.entries import CONTEXT_TYPES, Custom, Entry
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import HistoryLinks, is_metadata_id
from sessiontree.dialects.passthrough import LEFT_OUT, REPORT, is_restated
from sessiontree.dialects.roles import with_original_role
from sessiontree.session.reader import Reader

LEAF = "leaf"
"""Not converted: the encoder writes the current entry at the end, and earlier moves have no meaning in another file."""
_CONVERSATION = CONTEXT_TYPES | {"context_edit", "reset_boundary"}


def iter_entries(
    session: Reader,
    leaf: str | None,
    *,
    all_branches: bool,
    on_restated: Callable[[CanonicalEntry], None] | None = None,
) -> Iterator[tuple[CanonicalEntry, str | None]]:
    """Iterate over the canonical entries of the path to a leaf, or of every branch, each with its parent's id.

    Entries that only restate others are left out, and passed to `on_restated`. A compaction that keeps from an entry
    that is not converted keeps from the next one.
    """
    node = end_of_history(session, leaf)
    ids = session.journal.tree.ids
    omitted: set[str] = set()
    entry_ids: dict[str, str] = {}  # id of a line -> id of the canonical entry it became a part of
    for segment in _all_segments(session, node) if all_branches else _active_segments(session, node):
        parent = None if segment.parent is None else entry_ids.get(ids[segment.parent], ids[segment.parent]) or None
        decoded = map(with_replaced, session.dialect.decode(session.journal, segment.nodes))
        for entry in map(with_original_role, decoded):
            is_report = entry.kind == "custom" and entry.fields.get("customType") == REPORT
            if is_report or is_restated(entry):
                if on_restated is not None and not is_report:
                    on_restated(entry)
                entry_ids.update(dict.fromkeys((entry.id, *entry.aliases), parent or ""))
                omitted.add(entry.id)
                continue
            if entry.kind == LEAF:
                omitted.add(entry.id)
            elif entry.kind == "compaction":
                entry = _with_converted_bound(session, entry, omitted)
            yield entry, parent
            for alias in entry.aliases:
                entry_ids[alias] = entry.id
            parent = entry.id
        # A result that was recorded between the lines of a response is an entry after the response.
        entry_ids[ids[segment.nodes[-1]]] = parent or ""


def _with_converted_bound(session: Reader, entry: CanonicalEntry, omitted: Container[str]) -> CanonicalEntry:
    """Return a compaction whose first kept entry is converted, if one of the kept entries is."""
    kept = entry.fields.get("firstKeptEntryId")
    if not isinstance(kept, str) or kept not in omitted or not session.dialect.traits.one_line_per_entry:
        return entry
    tree = session.journal.tree
    first, node = None, tree.node_of.get(entry.id)
    node = None if node is None else tree.parent(node)
    while node is not None and tree.ids[node] != kept:
        if tree.ids[node] not in omitted:
            first = tree.ids[node]
        node = tree.parent(node)
    if node is None or first is None:
        return entry
    return msgspec.structs.replace(entry, fields={**entry.fields, "firstKeptEntryId": first})


def is_of_conversation(entry: CanonicalEntry) -> bool:
    """Whether an entry has a message or changes one, or had one before it was left out."""
    return entry.kind in _CONVERSATION or entry.fields.get("customType") == LEFT_OUT


class Segment(Struct, frozen=True):
    """Nodes that follow each other without a fork between them, and the node before them."""

    nodes: list[int]
    parent: int | None


def end_of_history(session: Reader, leaf: str | None) -> int | None:
    """The node of a leaf, or of the last message after it that is only stored as data.

    In some formats, such an entry is never the current one.
    """
    end = session.node_of(leaf)  # None too if all messages are such entries
    lines = session.journal

    def find_history(node: int | None) -> list[int]:
        return session.dialect.find_history(lines, node, session.read_options)

    for node in range(0 if end is None else end + 1, len(lines.types)):
        if lines.types[node] in CONTEXT_TYPES:
            break
        # In Claude Code, the history of the last line already has the entries on metadata lines after it.
        if lines.types[node] == "custom" and _is_left_out(*lines.entries([node])) and node not in find_history(end):
            history = find_history(node)
            start = 0 if end is None else history.index(end) + 1 if end in history else len(history)
            between = history[start:]
            if between and not any(lines.types[at] in CONTEXT_TYPES for at in between):
                end = node
    return end


def _is_left_out(entry: Entry) -> bool:
    return isinstance(entry, Custom) and entry.custom_type == LEFT_OUT


def _active_segments(session: Reader, leaf: int | None) -> list[Segment]:
    nodes = session.dialect.find_history(session.journal, leaf, session.read_options)
    return [Segment(nodes, None)] if nodes else []


def _all_segments(session: Reader, leaf: int | None) -> list[Segment]:
    return list(_ConversationTree(session, leaf).iter_segments())


class _ConversationTree:
    """Every node of a session below the node it follows in the conversation."""

    def __init__(self, session: Reader, leaf: int | None) -> None:
        self._dialect, self._lines = session.dialect, session.journal
        self._parents: dict[int, int | None] = {}
        history = session.dialect.find_history(session.journal, leaf, session.read_options)
        self._active = set(history)
        tree = session.journal.tree
        if session.dialect.traits.one_line_per_entry and not session.read_options.recovered:
            # A history is a path of the tree here, so there is no need to find it for each of many branches.
            self._parents.update(
                (node, up) for node, up in enumerate(tree.parents()) if not is_metadata_id(tree.ids[node])
            )
        else:
            self._add_history(history)
            links = session.dialect.find_history_links(session.journal, session.read_options)
            for other in tree.leaves():  # metadata lines too: they may belong to a history
                if other in self._parents:
                    continue
                if links is None or is_metadata_id(tree.ids[other]):
                    self._add_history(session.dialect.find_history(session.journal, other, session.read_options))
                elif other not in links.hidden:
                    self._add_linked(links, other)
        self._children: dict[int | None, list[int]] = {}
        for node in sorted(self._parents, key=lambda node: (node in self._active, node)):
            self._children.setdefault(self._parents[node], []).append(node)

    def _add_history(self, history: list[int]) -> None:
        before: int | None = None
        for node in history:
            self._parents.setdefault(node, before)
            before = node

    def _add_linked(self, links: HistoryLinks, leaf: int) -> None:
        """Add the part of a history that is not known yet: branches share the rest."""
        node: int | None = links.ends.get(leaf, leaf)
        while node is not None and node not in self._parents:
            self._parents[node] = links.parents[node]
            node = links.parents[node]

    def iter_segments(self) -> Iterator[Segment]:
        pending: list[tuple[int, int | None]] = [(root, None) for root in reversed(self._children.get(None, []))]
        while pending:
            first, parent = pending.pop()
            nodes = [first]
            forks: list[tuple[int, int | None]] = []
            while children := self._children.get(nodes[-1]):
                main = children[-1]
                if len(children) > 1:
                    forks += [(other, nodes[-1]) for other in children[:-1]]
                if forks and not self._dialect.must_decode_together(self._lines, nodes[-1], main):
                    forks.append((main, nodes[-1]))
                    break
                nodes.append(main)
            yield Segment(nodes, parent)
            pending += reversed(forks)
