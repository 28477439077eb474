"""Where a session stands, and the lines that belong to a leaf: as Neovate loads them, or with what it has lost.

A compaction is a new root. `find_history` follows it back to what it summarises: to the line that a compaction of ours
names, else to the message before it in the file. With `Reading.recovered` a path does so too, and goes on over the
better links of `relinks`; results of calls that were cancelled together stand side by side, and all of them belong to
the path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sessiontree.core.context import Context, Rules, build_context
from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import ToolResult, tool_calls
from sessiontree.dialects.contract import IndexedLines, ReadOptions
from sessiontree.dialects.defaults import path_of_nodes, reparented_path
from sessiontree.dialects.native.dialect import BOOKKEEPING
from sessiontree.dialects.neovate.metadata_lines import Aside, Asides, asides_in, marks_of
from sessiontree.dialects.neovate.records import MESSAGE, is_compaction, string
from sessiontree.dialects.neovate.reparent import find_reparentings


def find_leaf(lines: IndexedLines) -> int | None:
    """The last message in the file."""
    for node in range(len(lines.types) - 1, -1, -1):
        if lines.types[node] == MESSAGE:
            return node
    return None


def find_path(lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
    if not read_options.recovered:
        return _in_file_order(lines, lines.tree.path(leaf))
    return _in_file_order(lines, _with_lost_results(lines, _chain(lines, leaf, _better_links(lines))))


def find_history(lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
    """The messages of a leaf, those before a compaction too, and our own asides that they stand behind."""
    asides = asides_in(lines)
    trail: list[int] = []
    if leaf is not None and lines.types[leaf] != MESSAGE:
        if leaf not in asides.by_node:
            return []  # a snapshot, a title: no part of any history
        aside = asides.by_node[leaf]
        trail = asides.chain(aside.id) if aside.id else [leaf]
        leaf = None if aside.parent is None else lines.tree.node_of.get(aside.parent)
    elif leaf is not None and asides.by_node:
        uuid = lines.tree.ids[leaf]
        trail = standing_behind(lines, asides, uuid) if leaf == find_leaf(lines) else []
        trail = trail or _last_chain(asides, [aside for aside in asides.behind(uuid) if aside.is_within])
    chain = _chain(lines, leaf, _better_links(lines) if read_options.recovered else {})
    if read_options.recovered:
        chain = _with_lost_results(lines, chain)
    nodes = _in_file_order(lines, chain)
    return [*(_with_asides(lines, asides, nodes) if asides.by_node else nodes), *trail]


def build(lines: IndexedLines, leaf: int | None, read_options: ReadOptions, rules: Rules) -> Context:
    nodes = find_path(lines, leaf, read_options)
    start = _last_compaction(lines, nodes) if read_options.recovered else 0
    context = build_context(path_of_nodes(lines, nodes[start:]), rules)
    return Context(tuple(lines.tree.ids[node] for node in nodes), context.messages, context.sources, context.state)


def _better_links(lines: IndexedLines) -> dict[int, int]:
    return {relink.node: relink.parent for relink in find_reparentings(lines)}


def _chain(lines: IndexedLines, leaf: int | None, links: Mapping[int, int]) -> list[int]:
    """Leaf to root over some better links, and from each compaction on to what it summarises.

    That last step is to be read along, never to be written: the history would return. A link that would lead in a
    circle is not taken.
    """
    parts: list[list[int]] = []
    seen: set[int] = set()
    node = leaf
    while node is not None and node not in seen:
        part = reparented_path(lines.tree, node, links) if links else lines.tree.path(node)
        part = [each for each in part if each not in seen] if seen else part
        parts.append(part)
        seen.update(part)
        top = part[0]
        node = find_summarised(lines, top) if links.get(top, lines.tree.parent(top)) is None else None
    return [each for part in reversed(parts) for each in part]


def find_summarised(lines: IndexedLines, root: int) -> int | None:
    """The last message that a compaction stands for; None when the root is no compaction, or stands for nothing."""
    (fields,) = lines.fields([root])
    if not is_compaction(fields) or lines.tree.missing_parent(root) is not None:
        return None
    marks = marks_of(fields)
    if "behind" in marks:
        behind = marks["behind"]
        return lines.tree.node_of.get(behind) if isinstance(behind, str) else None
    return next((node for node in range(root - 1, -1, -1) if lines.types[node] == MESSAGE), None)


def _in_file_order(lines: IndexedLines, chain: Sequence[int]) -> list[int]:
    """The lines of a chain as they stand in the file. An id that stands there twice brings both of its lines."""
    ids, types = lines.tree.ids, lines.types
    wanted = {ids[node] for node in chain}
    if len(lines.tree.node_of) == len(ids):
        return sorted(node for node in chain if types[node] == MESSAGE)
    return [node for node, id in enumerate(ids) if id in wanted and types[node] == MESSAGE]


def _with_asides(lines: IndexedLines, asides: Asides, nodes: Sequence[int]) -> list[int]:
    found: list[int] = []
    before = asides.before
    for node in nodes:
        if node not in before:
            before[node] = _asides_before(lines, asides, node)
        found += before[node]
        found.append(node)
    return found


def _asides_before(lines: IndexedLines, asides: Asides, node: int) -> list[int]:
    """The asides of ours between a message and its parent. Only those that may have some need to be read."""
    parent = lines.tree.parent(node)
    if parent is not None and lines.tree.ids[parent] not in asides.parents:
        return []
    (fields,) = lines.fields([node])
    return asides.chain(string(marks_of(fields), "after")) + list(asides.splits_of(lines.tree.ids[node]).values())


def standing_behind(lines: IndexedLines, asides: Asides, uuid: str) -> list[int]:
    """The asides behind the last message that a session stands behind: up to the last that is more than bookkeeping."""
    quiet = BOOKKEEPING | {"leaf"}
    return _last_chain(asides, [aside for aside in asides.behind(uuid) if lines.types[aside.node] not in quiet])


def _last_chain(asides: Asides, found: Sequence[Aside]) -> list[int]:
    return asides.chain(found[-1].id) if found else []


def _last_compaction(lines: IndexedLines, nodes: Sequence[int]) -> int:
    """The position of the last compaction on a path, where its context begins; 0 when there is none."""
    for at in range(len(nodes) - 1, 0, -1):
        # Only a root can be one, so the other lines need not be read.
        if lines.tree.parent(nodes[at]) is None and is_compaction(lines.fields([nodes[at]])[0]):
            return at
    return 0


def _with_lost_results(lines: IndexedLines, chain: list[int]) -> list[int]:
    """The chain with results that stand beside it and answer calls in it that nothing else answers."""
    entries = lines.entries(chain)
    messages = [message for entry in entries if isinstance(entry, MessageEntry) for message in entry.messages]
    answered = {message.tool_call_id for message in messages if isinstance(message, ToolResult)}
    on_chain = set(chain)
    found: list[int] = []
    for node, entry in zip(chain, entries, strict=True):
        calls = tool_calls(entry.message) if isinstance(entry, MessageEntry) else ()
        open_calls = {call.id for call in calls} - answered
        beside = [child for child in lines.tree.children(node) if child not in on_chain] if open_calls else []
        for child, sibling in zip(beside, lines.entries(beside), strict=True):
            given = _answered_by(sibling)
            if given and given <= open_calls:
                found.append(child)
                open_calls -= given
    return [*chain, *found]


def _answered_by(entry: Entry) -> set[str]:
    """The calls that a line answers, if results are all it holds."""
    messages = entry.messages if isinstance(entry, MessageEntry) else ()
    if not all(isinstance(message, ToolResult) for message in messages):
        return set()
    return {message.tool_call_id for message in messages if isinstance(message, ToolResult)}
