"""The complete conversation of a leaf, including what preceded the compactions on its path.

Lines that a compaction preserved appear once, at their original position. The only metadata lines included are our own,
which hold an entry. Each names the chain line it follows, and the metadata line between the two, if there is one. A
chain line that follows metadata lines names the last of them in its passthrough data.

The lines of a conversion, up to its report, name exactly what each of them follows in the source. So their history is
what they name. The client puts results next to their calls, but in the source other entries may separate the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from sessiontree.core.entries import ENTRY_TYPES
from sessiontree.core.tree import Tree
from sessiontree.dialects.claude.boundaries import (
    compacts_nothing,
    find_leaf_before,
    find_loaded_lines,
    is_separator,
)
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.path import Path, find_earlier_path, find_path
from sessiontree.dialects.claude.records import AFTER, Fields, object_in, string_in
from sessiontree.dialects.contract import IndexedLines, ReadOptions, is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH, REPORT, passthrough_of

START = "start"
"""Marks a metadata line that describes the session, and not an entry at some position in it."""

_BATCH = 256

# A caller that needs the history of one leaf usually needs those of all leaves.
_metadata_entries: WeakKeyDictionary[Tree, _MetadataEntries] = WeakKeyDictionary()


def find_history(lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
    """Return the nodes of a conversation from the very beginning, in its order."""
    chain = Chain(lines)
    is_metadata = leaf is not None and is_metadata_id(lines.tree.ids[leaf])
    if is_metadata and leaf not in _metadata_entries_of(lines).parents:
        return []  # the client's own metadata lines belong to no conversation
    if leaf is not None and chain.is_link(leaf) and not chain.can_be_leaf(leaf):
        return []  # a sub-agent's line, which belongs to another conversation
    end = -1 if read_options.snips else find_end_of_conversion(chain)
    loaded = find_loaded_lines(chain)
    # A later boundary may have put a preserved line after its summary.
    if leaf is not None and leaf <= end and not (leaf in loaded.preserved and loaded.start > end):
        return [*_find_converted_history(chain, leaf), *_find_entries_after(chain, leaf)]
    if leaf is not None and is_metadata:
        history = _find_metadata_history(chain, leaf, read_options)
    else:
        history = _with_metadata_entries(chain, find_chain_history(chain, leaf, read_options))
    if end < 0:
        return history
    added = [node for node in history if node > end]
    # Later lines may follow several lines of the conversion, such as results the call of each: the last one counts.
    followed = [leaf, *(_find_node_before(chain, node) for node in added)]
    last = max((node for node in followed if node is not None and node <= end), default=None)
    return history if last is None else [*_find_converted_history(chain, last), *added]


def find_end_of_conversion(chain: Chain) -> int:
    """Return the line with the report of a conversion, if no line up to it is damaged; -1 if there is none."""
    end = _metadata_entries_of(chain.lines).report
    return -1 if any(problem.node <= end for problem in chain.tree.problems()) else end


def _find_converted_history(chain: Chain, leaf: int) -> list[int]:
    found = [leaf]
    while (before := _find_node_before(chain, found[-1])) is not None and before < found[-1]:
        found.append(before)
    return found[::-1]


def _find_node_before(chain: Chain, node: int) -> int | None:
    """Return the chain line or metadata entry that a line names as the one before it; separators are skipped."""
    entries = _metadata_entries_of(chain.lines)
    if node in entries.parents:
        previous = entries.previous(node)
        return chain.find_link(entries.parents[node]) if previous is None else previous
    parent = _find_line_before(chain, node)
    while parent is not None and is_separator(chain, parent):
        parent = _find_line_before(chain, parent)
    here = entries.by_parent.get(None if parent is None else chain.tree.ids[parent])
    between = entries.before(chain.lines, node, here) if here else ()
    return between[-1] if between else parent


def _find_line_before(chain: Chain, node: int) -> int | None:
    if chain.types[node] != "compaction":
        return chain.parents[node]
    return None if compacts_nothing(chain, node) else find_leaf_before(chain, node)


def _find_metadata_history(chain: Chain, leaf: int, read_options: ReadOptions) -> list[int]:
    """Return the nodes up to a metadata line of ours."""
    entries = _metadata_entries_of(chain.lines)
    # A boundary after the metadata line changed nothing about it, even if it preserved the line before it.
    find = find_earlier_history if leaf < find_loaded_lines(chain).start else find_chain_history
    history = find(chain, chain.find_link(entries.parents[leaf]), read_options)
    return [*_with_metadata_entries(chain, history, at_end=False), *entries.leading_to(leaf)]


def find_chain_history(chain: Chain, leaf: int | None, read_options: ReadOptions) -> list[int]:
    """Return the chain lines of a conversation from the very beginning."""
    return _find_chain_history(chain, leaf, find_path(chain, leaf, read_options), read_options)


def find_earlier_history(
    chain: Chain, leaf: int | None, read_options: ReadOptions, since: frozenset[int] = frozenset()
) -> list[int]:
    """Return the chain lines of a conversation as it was when a line was the last one.

    With `since`, it starts with the first of these lines, if all of them are part of it.
    """
    return _find_chain_history(chain, leaf, find_earlier_path(chain, leaf, read_options), read_options, since)


def _find_chain_history(
    chain: Chain, leaf: int | None, path: Path, read_options: ReadOptions, since: frozenset[int] = frozenset()
) -> list[int]:
    paths: list[list[int]] = []
    boundaries: set[int] = set()
    original: set[int] = set()
    """With `since`: the lines on these paths that were written there. Preserved ones have another position."""
    while leaf is not None:
        nodes = path.nodes
        if nodes and nodes[0] != leaf and is_separator(chain, nodes[0]):
            nodes = _with_compaction(chain, nodes[1:])
        paths.append(nodes)
        if since:
            original.update(node for node in nodes if node not in path.preserved)
            history = _join(paths) if original >= since else []
            tail = history[min(map(history.index, since)) :] if history else []
            if tail and original.issuperset(tail):
                return tail
        first = nodes[0] if nodes else leaf
        if chain.types[first] != "compaction" or first == leaf or first in boundaries:
            break
        boundaries.add(first)
        leaf = None if compacts_nothing(chain, first) else find_leaf_before(chain, first)
        path = find_earlier_path(chain, leaf, read_options)
    return _join(paths)


def _join(paths: Sequence[list[int]]) -> list[int]:
    """Return the lines of several paths of a conversation, of which the last one is the earliest."""
    if len(paths) == 1:
        return paths[0]
    history: dict[int, None] = {}
    for nodes in reversed(paths):
        history.update(dict.fromkeys(nodes))  # preserved lines are already there, at their original position
    return list(history)


def _with_compaction(chain: Chain, nodes: list[int]) -> list[int]:
    # The preserved lines of a separator start with the summary of an earlier compaction, if there was one.
    parent = chain.parents[nodes[0]] if nodes else None
    return [parent, *nodes] if parent is not None and chain.types[parent] == "compaction" else nodes


def _with_metadata_entries(chain: Chain, history: list[int], *, at_end: bool = True) -> list[int]:
    entries = _metadata_entries_of(chain.lines)
    if not entries.parents:
        return history
    ids = chain.tree.ids
    found: list[int] = []
    # Results that were inserted after a line separate it from the one that names the entries between the two.
    placed: set[int] = set()
    done = 0
    for at, node in enumerate([None, *history]):
        here = entries.by_parent.get(None if node is None else ids[node])
        if not here:
            continue
        between: Sequence[int] = ()
        if at < len(history):
            between = entries.before(chain.lines, history[at], here)
        elif at_end:
            between = _find_entries_after(chain, node)
        found += history[done:at]
        found += [entry for entry in between if entry not in placed]
        placed.update(between)
        done = at
    return found + history[done:]


def _find_entries_after(chain: Chain, leaf: int | None) -> list[int]:
    """Return the metadata entries after a leaf. If the conversation went on after them, they belong to that branch."""
    entries = _metadata_entries_of(chain.lines)
    here = entries.by_parent.get(None if leaf is None else chain.tree.ids[leaf])
    return entries.leading_to(here[-1]) if here and here[-1] > entries.last_child(chain, leaf) else []


def link_metadata_entries(chain: Chain, parents: list[int | None], ends: dict[int, int]) -> bool:
    """Insert the entries on our metadata lines into links of histories; False if they are at several positions."""
    entries = _metadata_entries_of(chain.lines)
    if not entries.parents:
        return True
    ids = chain.tree.ids
    for node, parent in enumerate(list(parents)):
        if not is_metadata_id(ids[node]):
            here = entries.by_parent.get(None if parent is None else ids[parent])
            before = entries.before(chain.lines, node, here) if here else ()
            if before:
                parents[node] = before[-1]
    for entry, line in entries.parents.items():
        parent = chain.find_link(line)
        if parent in ends or (line is not None and (parent is None or not chain.is_link(parent))):
            return False  # at the end of a response it is elsewhere than before its next line
        entry_before = entries.previous(entry)
        parents[entry] = parent if entry_before is None else entry_before
    last: dict[int, int] = {}
    for line, here in entries.by_parent.items():
        parent = chain.find_link(line)
        if parent is not None and here[-1] > entries.last_child(chain, parent):
            last[parent] = here[-1]
    ends.update({node: last.get(end, end) for node, end in ends.items()})
    ends.update(last)
    return True


def _metadata_entries_of(lines: IndexedLines) -> _MetadataEntries:
    found = _metadata_entries.get(lines.tree)
    if found is None or found.line_count != len(lines.types):
        found = _metadata_entries[lines.tree] = _MetadataEntries(lines)
    return found


class _MetadataEntries:
    """The entries on our own metadata lines, and their order."""

    def __init__(self, lines: IndexedLines) -> None:
        self.line_count = len(lines.types)
        self.parents: dict[int, str | None] = {}
        """The uuid of the chain line that each entry follows."""
        self.by_parent: dict[str | None, list[int]] = {}
        """The entries that follow each chain line, in file order."""
        self._by_id: dict[str, list[int]] = {}
        """Nearly always one for each id; older conversions repeated some on several branches."""
        self._previous: dict[int, str] = {}
        """The id of the metadata entry before each one; empty for the first after a chain line."""
        self.report = -1
        """The report of a conversion; -1 if the session was not converted."""
        self._named_by_line: dict[int, object] = {}
        """The metadata entry that a chain line names as the one before it, for lines that were read."""
        types = lines.types
        nodes = [
            node
            for node, id in enumerate(lines.tree.ids)
            if is_metadata_id(id) and (types[node] in ENTRY_TYPES or types[node] == PASSTHROUGH)
        ]
        for start in range(0, len(nodes), _BATCH):
            batch = nodes[start : start + _BATCH]
            for node, line in zip(batch, lines.fields(batch), strict=True):
                self._add(node, line)

    def _add(self, node: int, line: Fields) -> None:
        is_entry = line.get("type") == PASSTHROUGH and bool(string_in(object_in(line, "entry"), "type"))
        if not is_entry or line.get(START) is True:
            return
        parent = string_in(line, "parent")
        self.parents[node] = parent
        self.by_parent.setdefault(parent, []).append(node)
        self._by_id.setdefault(string_in(line, "id") or "", []).append(node)
        self._previous[node] = string_in(line, AFTER) or ""
        if object_in(line, "entry").get("customType") == REPORT:
            self.report = node

    def leading_to(self, entry: int) -> list[int]:
        """Return a metadata entry and those before it after the same chain line, in their order."""
        found: dict[int, None] = {}
        at: int | None = entry
        while at is not None and at not in found:
            found[at] = None
            at = self.previous(at)
        return list(found)[::-1]

    def previous(self, entry: int) -> int | None:
        """Return the metadata entry before one, after the same chain line."""
        before = self._find(self._previous[entry], self.parents[entry])
        return before if before is not None and self.parents[before] == self.parents[entry] else None

    def _find(self, id: str, parent: str | None) -> int | None:
        """Return the metadata entry with an id, if possible the one after a certain chain line."""
        found = self._by_id.get(id, ()) if id else ()
        return next((entry for entry in found if self.parents[entry] == parent), found[-1] if found else None)

    def last_child(self, chain: Chain, node: int | None) -> int:
        """Return the last chain line after a line; -1 if there is none."""
        return max((child for child in chain.tree.children(node) if chain.is_link(child)), default=-1)

    def before(self, lines: IndexedLines, node: int, here: list[int]) -> list[int]:
        """Return those of some metadata entries that precede a chain line.

        The line names the last of them. If it does not, they are those before it in the file.
        """
        if node not in self._named_by_line:
            (line,) = lines.fields([node])
            self._named_by_line[node] = passthrough_of(line).get(AFTER)
        named = self._named_by_line[node]
        if isinstance(named, str):
            last = self._find(named, self.parents[here[0]])
        else:
            last = max((entry for entry in here if entry < node), default=None)
        return self.leading_to(last) if last is not None else []
