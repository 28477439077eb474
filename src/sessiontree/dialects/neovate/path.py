"""The leaf and the lines that belong to it: as Neovate loads them, or including what it loses.

Neovate continues from the last message of the file. A move is a metadata line of ours after it: Neovate, whose own
forks are not in the file either, follows with the next message.

A compaction is a new root. `find_history` continues from it to the messages it summarizes: at the line that a
compaction of ours names, else at the message before it in the file. With `ReadOptions.recovered` a path does so too,
and follows the links of `reparent`. Results of calls that were canceled together are siblings, and all of them belong
to the path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from sessiontree.core.context import Context, Rules, build_context
from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import ToolResult, tool_calls
from sessiontree.dialects.contract import HistoryLinks, IndexedLines, ReadOptions
from sessiontree.dialects.defaults import path_of_nodes, reparented_path
from sessiontree.dialects.neovate.metadata_lines import MetadataLine, MetadataLines, find_metadata_lines, marks_of
from sessiontree.dialects.neovate.records import MESSAGE, is_compaction, metadata_entry, string
from sessiontree.dialects.neovate.reparent import find_reparentings
from sessiontree.dialects.pi.encoder import BOOKKEEPING


class CurrentPosition(Struct, frozen=True):
    """The current message, and the line that made it current; None before the first message."""

    message: int | None
    since: int = -1
    """The move to it; -1 if it is the last message of the file."""


def find_leaf(lines: IndexedLines) -> int | None:
    """The current message."""
    return find_current(lines).message


def find_current(lines: IndexedLines) -> CurrentPosition:
    """The target of the last move, if no message follows it, else the last message."""
    for node in range(len(lines.types) - 1, -1, -1):
        if lines.types[node] == MESSAGE:
            return CurrentPosition(node)
        if lines.types[node] == "leaf":
            (fields,) = lines.fields([node])
            target = metadata_entry(fields).get("targetId", "")
            if target is None:
                return CurrentPosition(None, node)
            found = lines.tree.node_of.get(target) if isinstance(target, str) else None
            if found is not None and lines.types[found] == MESSAGE:
                return CurrentPosition(found, node)
    return CurrentPosition(None)


def find_path(lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
    if not read_options.recovered:
        return _in_file_order(lines, lines.tree.path(leaf))
    return _in_file_order(lines, _with_lost_results(lines, _chain(lines, leaf, _reparentings(lines))))


def find_history(lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
    """The messages of a leaf, including those before a compaction, and our metadata lines between them."""
    metadata = find_metadata_lines(lines)
    trail: list[int] = []
    if leaf is not None and lines.types[leaf] != MESSAGE:
        if leaf not in metadata.by_node:
            return []  # a snapshot or a title is not part of a history
        line = metadata.by_node[leaf]
        trail = metadata.chain(line.id) if line.id else [leaf]
        leaf = None if line.parent is None else lines.tree.node_of.get(line.parent)
    elif leaf is not None and metadata.by_node:
        uuid = lines.tree.ids[leaf]
        current = find_current(lines)
        trail = trailing_metadata(lines, metadata, uuid, current.since) if leaf == current.message else []
        trail = trail or _last_chain(metadata, [line for line in metadata.children_of(uuid) if line.is_between_results])
    chain = _chain(lines, leaf, _reparentings(lines) if read_options.recovered else {})
    if read_options.recovered:
        chain = _with_lost_results(lines, chain)
    nodes = _in_file_order(lines, chain)
    return [*(_with_metadata(lines, metadata, nodes) if metadata.by_node else nodes), *trail]


def find_history_links(lines: IndexedLines, read_options: ReadOptions) -> HistoryLinks | None:
    """The parents of messages and of our metadata lines. None where the order of the file matters."""
    tree, types = lines.tree, lines.types
    if read_options.recovered or len(tree.node_of) < len(tree.ids):
        return None
    parents = list(tree.parents())
    metadata = find_metadata_lines(lines)
    if not _link_metadata(lines, metadata, parents):
        return None
    hidden: set[int] = set()
    for node, kind in enumerate(types):
        if node in metadata.by_node:
            continue
        if kind != MESSAGE:
            parents[node] = None
            hidden.add(node)  # a snapshot or a title is not part of a history
            continue
        parent = find_summarized_end(lines, node) if parents[node] is None else parents[node]
        if parent is not None and (parent >= node or types[parent] != MESSAGE):
            return None
        for line in _metadata_before(lines, metadata, node) if metadata.by_node else ():
            if parents[line] != parent:
                return None
            parent = line
        parents[node] = parent
    return HistoryLinks(parents, _metadata_ends(lines, metadata), frozenset(hidden))


def _link_metadata(lines: IndexedLines, metadata: MetadataLines, parents: list[int | None]) -> bool:
    """Set the parents of our metadata lines; returns whether their histories follow from parents alone."""
    if len(metadata.by_id) < sum(1 for line in metadata.by_node.values() if line.id):
        return False
    for node, line in metadata.by_node.items():
        before = metadata.before_line(line)
        parent = before.node if before is not None else lines.tree.node_of.get(line.parent or "")
        if (before is not None and before.parent != line.parent) or (parent is not None and parent >= node):
            return False
        parents[node] = parent
    return True


def _metadata_ends(lines: IndexedLines, metadata: MetadataLines) -> dict[int, int]:
    """By message: the last of the metadata lines after it that belong to its history."""
    between = (line for line in metadata.by_node.values() if line.is_between_results and line.id)
    # Of several after one message, the last one counts.
    ends = {lines.tree.node_of[line.parent]: line.node for line in between if line.parent in lines.tree.node_of}
    current = find_current(lines)
    if current.message is not None:
        trail = trailing_metadata(lines, metadata, lines.tree.ids[current.message], current.since)
        ends |= {current.message: trail[-1]} if trail else {}
    return ends


def build_path_context(lines: IndexedLines, leaf: int | None, read_options: ReadOptions, rules: Rules) -> Context:
    nodes = find_path(lines, leaf, read_options)
    start = _last_compaction(lines, nodes) if read_options.recovered else 0
    context = build_context(path_of_nodes(lines, nodes[start:]), rules)
    return Context(tuple(lines.tree.ids[node] for node in nodes), context.messages, context.sources, context.state)


def _reparentings(lines: IndexedLines) -> dict[int, int]:
    return {reparenting.node: reparenting.parent for reparenting in find_reparentings(lines)}


def _chain(lines: IndexedLines, leaf: int | None, links: Mapping[int, int]) -> list[int]:
    """Root to leaf with some parents replaced, continued from each compaction to the messages it summarizes."""
    # The step beyond a compaction is only for reading: a parent link in the file would undo the compaction.
    parts: list[list[int]] = []
    seen: set[int] = set()
    node = leaf
    while node is not None and node not in seen:
        part = reparented_path(lines.tree, node, links) if links else lines.tree.path(node)
        part = [each for each in part if each not in seen] if seen else part
        parts.append(part)
        seen.update(part)
        top = part[0]
        node = find_summarized_end(lines, top) if links.get(top, lines.tree.parent(top)) is None else None
    return [each for part in reversed(parts) for each in part]


def find_summarized_end(lines: IndexedLines, root: int) -> int | None:
    """The last message that a compaction summarizes; None for any other root, or if it summarizes nothing."""
    (fields,) = lines.fields([root])
    if not is_compaction(fields) or lines.tree.missing_parent(root) is not None:
        return None
    marks = marks_of(fields)
    if "behind" in marks:
        previous = marks["behind"]
        return lines.tree.node_of.get(previous) if isinstance(previous, str) else None
    return next((node for node in range(root - 1, -1, -1) if lines.types[node] == MESSAGE), None)


def _in_file_order(lines: IndexedLines, chain: Sequence[int]) -> list[int]:
    """The lines of a chain in file order. If an id occurs twice, both of its lines are included."""
    ids, types = lines.tree.ids, lines.types
    wanted = {ids[node] for node in chain}
    if len(lines.tree.node_of) == len(ids):
        return sorted(node for node in chain if types[node] == MESSAGE)
    return [node for node, id in enumerate(ids) if id in wanted and types[node] == MESSAGE]


def _with_metadata(lines: IndexedLines, metadata: MetadataLines, nodes: Sequence[int]) -> list[int]:
    found: list[int] = []
    before = metadata.before
    for node in nodes:
        if node not in before:
            before[node] = _metadata_before(lines, metadata, node)
        found += before[node]
        found.append(node)
    return found


def _metadata_before(lines: IndexedLines, metadata: MetadataLines, node: int) -> list[int]:
    """Our metadata lines between a message and its parent. Only messages that may have some need to be read."""
    parent = lines.tree.parent(node)
    if parent is not None and lines.tree.ids[parent] not in metadata.parents:
        return []
    (fields,) = lines.fields([node])
    return metadata.chain(string(marks_of(fields), "after")) + list(metadata.splits_of(lines.tree.ids[node]).values())


def trailing_metadata(lines: IndexedLines, metadata: MetadataLines, uuid: str, since: int) -> list[int]:
    """The metadata lines after the current message, up to the last one that is not bookkeeping: the current entry."""
    # After a move, those written before it lead to another branch.
    passive = BOOKKEEPING | {"leaf"}
    children = metadata.children_of(uuid)
    found = [line for line in children if line.node > since and lines.types[line.node] not in passive]
    return _last_chain(metadata, found)


def _last_chain(metadata: MetadataLines, found: Sequence[MetadataLine]) -> list[int]:
    return metadata.chain(found[-1].id) if found else []


def _last_compaction(lines: IndexedLines, nodes: Sequence[int]) -> int:
    """The position of the last compaction on a path, where its context starts; 0 without one."""
    for at in range(len(nodes) - 1, 0, -1):
        # Only a root can be one, so the other lines need not be read.
        if lines.tree.parent(nodes[at]) is None and is_compaction(lines.fields([nodes[at]])[0]):
            return at
    return 0


def _with_lost_results(lines: IndexedLines, chain: list[int]) -> list[int]:
    """Return the chain with results off the path that answer its open calls."""
    entries = lines.entries(chain)
    messages = [message for entry in entries if isinstance(entry, MessageEntry) for message in entry.messages]
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolResult)}
    on_chain = set(chain)
    found: list[int] = []
    for node, entry in zip(chain, entries, strict=True):
        calls = tool_calls(entry.message) if isinstance(entry, MessageEntry) else ()
        open_calls = {call.id for call in calls} - answered
        others = [child for child in lines.tree.children(node) if child not in on_chain] if open_calls else []
        for child, sibling in zip(others, lines.entries(others), strict=True):
            given = _answered_by(sibling)
            if given and given <= open_calls:
                found.append(child)
                open_calls -= given
    return [*chain, *found]


def _answered_by(entry: Entry) -> set[str]:
    """The calls that a line answers, if it has only results."""
    messages = entry.messages if isinstance(entry, MessageEntry) else ()
    if not all(isinstance(message, ToolResult) for message in messages):
        return set()
    return {message.tool_call_id for message in messages if isinstance(message, ToolResult)}
