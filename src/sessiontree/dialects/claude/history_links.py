"""Links that describe the histories of all leaves of a transcript at once.

The history of a leaf is found by a walk, and by a search of the whole file for lines of parallel calls. For thousands
of branches that takes too long. In an ordinary transcript the same histories follow from links: a boundary continues
the line that was current before it, a line after a preserved one continues the summary of its boundary (see
`preserved_links`), and all lines of a response follow each other, whichever of them the conversation continued from.
The entries on our own metadata lines are between the lines that they follow and precede. There are no links where
something else decides: missing parents, repeated uuids, responses in several places.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from sessiontree.dialects.claude.boundaries import (
    compacts_nothing,
    find_leaf_before,
    find_loaded_lines,
    find_preserved,
    find_splices,
    is_separator,
)
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.history import find_end_of_conversion, link_metadata_entries
from sessiontree.dialects.claude.loose_lines import find_loose_lines, is_note
from sessiontree.dialects.claude.path import has_lines_beside_leaf
from sessiontree.dialects.claude.preserved_links import Forest, PreservedLinks, find_order, link_preserved_lines
from sessiontree.dialects.contract import HistoryLinks, ReadOptions, is_metadata_id


def find_history_links(chain: Chain, read_options: ReadOptions) -> HistoryLinks | None:
    """Return the links of a transcript; None if only a walk from each leaf finds its history."""
    if read_options.recovered or read_options.snips or chain.tree.problems() or has_lines_beside_leaf(chain):
        return None
    loaded = find_loaded_lines(chain)
    boundaries = sorted(chain.iter_boundaries(len(chain) - 1))
    parents = _without_progress(chain)
    if loaded.copies or not all(_only_compacts(chain, boundary, parents) for boundary in boundaries):
        return None
    preserved: PreservedLinks | None = PreservedLinks()
    if any(find_preserved(chain, boundary).nodes for boundary in boundaries):
        preserved = link_preserved_lines(chain, loaded, boundaries, parents)
    elif loaded.preserved or loaded.links:
        return None
    compacted = {find_leaf_before(chain, boundary) for boundary in boundaries}
    groups = None if preserved is None else _find_groups(chain, parents, compacted)
    if preserved is None or groups is None:
        return None
    end = find_end_of_conversion(chain)
    if any(group[0] <= end < max(group) for group in groups):
        return None
    groups = [group for group in groups if group[0] > end]  # the lines of a conversion follow what they name
    ends: dict[int, int] = {}
    for group in groups:
        ends.update(dict.fromkeys(group[:-1], group[-1]))
    for boundary in boundaries:
        parents[boundary] = find_leaf_before(chain, boundary)
    parents = [parent if parent is None else ends.get(parent, parent) for parent in parents]
    for group in groups:
        for node, previous in zip(group[1:], group, strict=False):
            parents[node] = previous
    if not link_metadata_entries(chain, parents, ends):
        return None
    order = find_order(parents)
    if order is None:
        return None
    if preserved.repeated:
        forest = Forest(parents, order)
        if not all(forest.is_above(node, ends.get(leaf, leaf)) for node, leaf in preserved.repeated):
            return None
    ends.update(preserved.ends)
    return HistoryLinks(parents, ends, _hidden_leaves(chain), preserved.nodes, frozenset(preserved.in_part))


def _without_progress(chain: Chain) -> list[int | None]:
    """Return the parents of all lines. Children of a progress line are children of the line before it."""
    parents = list(chain.parents)
    if "progress" not in chain.types:
        return parents
    above: dict[int, int | None] = {}
    for node, parent in enumerate(chain.parents):
        passed: list[int] = []
        while parent is not None and chain.types[parent] == "progress":
            if parent in above:
                parent = above[parent]
                break
            passed.append(parent)
            parent = chain.parents[parent]
        above.update(dict.fromkeys(passed, parent))
        parents[node] = parent
    return parents


def _only_compacts(chain: Chain, boundary: int, parents: Sequence[int | None]) -> bool:
    """Whether a boundary is an ordinary one: a root that compacts what precedes it."""
    if parents[boundary] is not None:
        return False
    return not is_separator(chain, boundary) and not compacts_nothing(chain, boundary)


def _find_groups(
    chain: Chain, parents: Sequence[int | None], compacted: Container[int | None]
) -> list[list[int]] | None:
    """Return the lines of each response that has several, in the order of histories; None if a path decides that.

    `compacted` are the lines that boundaries continue.
    """
    nodes = [
        node for node, kind in enumerate(chain.types) if kind == "message" and not is_metadata_id(chain.tree.ids[node])
    ]
    chain.load_summaries(nodes)
    shards: dict[str, int | list[int]] = {}
    response_of: dict[str, str] = {}
    for node in nodes:
        summary = chain.summary(node)
        if not summary.response:
            continue
        _add_line(shards, summary.response, node)
        for call in summary.calls:
            if response_of.setdefault(call, summary.response) != summary.response:
                return None
    results: dict[str, int | list[int]] = {}
    for node in nodes:
        answered = {response_of[call] for call in chain.summary(node).results if call in response_of}
        if len(answered) > 1:
            return None
        for response in answered:
            _add_line(results, response, node)
    del response_of, nodes  # a huge transcript has hundreds of thousands
    lines_beside = _find_lines_beside(chain, parents)
    if lines_beside is None:
        return None
    loose, followed = lines_beside
    children = _Children(parents)
    groups: list[list[int]] = []
    for response, of_response in shards.items():
        if isinstance(of_response, int) and response not in results and of_response not in loose:
            continue
        first, others = _lines_of(of_response), _lines_of(results.get(response, ()))
        beside = [line for node in (*first, *others) for line in loose.get(node, ())]
        if not any(chain.summary(node).calls for node in first):
            beside = []
        group = [*first, *sorted([*others, *beside])]
        last = max(group)
        is_left_inside = any(node in compacted for node in group if node != last)
        if beside or is_left_inside or not _is_plain_chain(chain, group, parents, children):
            # Lines of the client between those of a response are only on some paths, or separate its shards.
            is_mixed = any(followed.get(node, len(parents)) < last for node in group)
            if is_mixed or min(beside, default=len(parents)) < max(first):
                return None
            if not _can_be_linked(chain, group, len(first), parents):
                return None
            groups.append(group)
    return groups


def _find_lines_beside(
    chain: Chain, parents: Sequence[int | None]
) -> tuple[dict[int, list[int]], dict[int, int]] | None:
    """Return loose lines by the line that they follow, and by line the first line of the client after it that is not
    loose; None if only some paths have the loose ones, because they follow one of the latter, or a preserved line."""
    rows = find_loose_lines(chain, range(len(chain)), {}, within_responses=False).rows
    loose = {node: [note for row in found for note in row] for node, found in rows.items()}
    is_loose = {node for nodes in loose.values() for node in nodes}
    if any(is_note(chain, node) for node in loose) or not is_loose.isdisjoint(find_splices(chain)):
        return None
    followed: dict[int, int] = {}
    for node in range(len(chain)):
        parent = parents[node]
        if parent is not None and node not in is_loose and is_note(chain, node):
            followed.setdefault(parent, node)
    return loose, followed


def _add_line(found: dict[str, int | list[int]], key: str, node: int) -> None:
    """Add a line to those of a key. Most have one: a list for each would take 90 bytes."""
    known = found.setdefault(key, node)
    if isinstance(known, list):
        known.append(node)
    elif known != node:
        found[key] = [known, node]


def _lines_of(found: int | Sequence[int]) -> Sequence[int]:
    return (found,) if isinstance(found, int) else found


class _Children:
    """The number of children of each line."""

    def __init__(self, parents: Sequence[int | None]) -> None:
        self.counts = bytearray(len(parents))
        """At most two are counted."""
        for parent in parents:
            if parent is not None and self.counts[parent] < 2:
                self.counts[parent] += 1


def _is_plain_chain(chain: Chain, group: Sequence[int], parents: Sequence[int | None], children: _Children) -> bool:
    """Whether the lines of a response follow each other, perhaps with attachments between them, and never branch."""
    members = set(group)
    node: int | None = max(group)
    members.discard(max(group))
    while members:
        node = parents[node] if node is not None else None
        if node is None or children.counts[node] > 1:
            return False
        if node not in members and (chain.types[node] == "compaction" or chain.summary(node).is_message):
            return False
        members.discard(node)
    return True


def _can_be_linked(chain: Chain, group: Sequence[int], shards: int, parents: Sequence[int | None]) -> bool:
    """Whether every path through a response has all of its lines, in the order given: shards first, then results."""
    seen = {group[0]}
    if parents[group[0]] in group:
        return False
    for node in group[1:]:
        if parents[node] not in seen:
            return False
        seen.add(node)
    answered = [call for node in group[shards:] for call in chain.summary(node).results]
    calls = {call for node in group[:shards] for call in chain.summary(node).calls}
    return len(answered) == len(set(answered)) and calls.issubset(answered)


def _hidden_leaves(chain: Chain) -> frozenset[int]:
    inner = bytearray(len(chain))  # a set of a huge transcript would take 30 MB
    for parent in chain.parents:
        if parent is not None:
            inner[parent] = 1
    leaves = [node for node in range(len(chain)) if not inner[node] and chain.is_link(node)]
    chain.load_facts(leaves)
    return frozenset(node for node in leaves if not chain.can_be_leaf(node))
