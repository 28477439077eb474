"""Compaction boundaries: where the context starts over, and which earlier lines a boundary preserves.

A boundary names the preserved lines in a list (`preservedMessages`) or by the ends of a segment (`preservedSegment`),
and an anchor. As measured with client 2.1.325:

* Preserved lines stay where they are in the file, with their old parents. On the path they follow the anchor and
  precede its former children. The anchor is the summary for `/compact` (summary, then the preserved tail), and the
  boundary itself for "Summarize from here" (the preserved start, then the summary).
* The list takes precedence over the segment, and may have gaps.
* Only the last boundary of the file that names preserved lines counts. If one of these lines is missing, nothing is
  preserved, and if no other boundary follows, nothing is hidden. If only the anchor is missing or hidden, the preserved
  lines are a conversation of their own, which the lines that name the anchor as their parent continue.
* As soon as a boundary preserves lines, all other lines before the last boundary of the file do not exist for the
  client. Later user and assistant lines that name one of them as their parent follow the last preserved line; others
  have a missing parent. In a file of 5 MiB or more the client reads nothing before the last boundary at all, except for
  preserved lines.
* A boundary that no user or assistant line follows, without preserved lines, compacts nothing: the full history is
  sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from msgspec import Struct

from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.records import Fields, object_in
from sessiontree.dialects.passthrough import PART, passthrough_of

LARGE_FILE = 5 << 20
"""Size in bytes from which the client skips what precedes the last boundary; measured between 5,000 and 5,200 KiB."""

_BATCH = 64


class Preserved(Struct, frozen=True):
    """The lines that a boundary preserves, and the parents they have on paths through it."""

    links: dict[int, int | None]
    nodes: frozenset[int] = frozenset()
    anchor: int | None = None
    """The line that they follow."""
    last: int | None = None


class LoadedLines(Struct, frozen=True):
    """The lines that exist for the client when it resumes a transcript, and the parents it gives them."""

    start: int = 0
    """The last boundary, if it hides what precedes it: earlier lines exist only if they are preserved."""
    preserved: frozenset[int] = frozenset()
    links: dict[int, int | None] = {}
    """New parents; None for a line whose parent does not exist."""
    copies: frozenset[int] = frozenset()
    """Lines after the boundary that repeat the uuid of a hidden line: they take its place, so they are hidden too."""

    @property
    def anchors(self) -> set[int]:
        """The line that the preserved lines follow, if it exists."""
        return {parent for node in self.preserved if (parent := self.links.get(node)) is not None} - self.preserved

    def __contains__(self, node: int) -> bool:
        return (node >= self.start and node not in self.copies) or node in self.preserved


def find_loaded_lines(chain: Chain) -> LoadedLines:
    """Return the lines that exist for the client."""
    return chain.once(_find_loaded_lines)


def _find_loaded_lines(chain: Chain) -> LoadedLines:
    boundaries = chain.iter_boundaries(len(chain) - 1)
    last = next(boundaries, None)
    if last is None:
        return LoadedLines()
    boundary, metadata = _find_naming(chain, last, boundaries)
    if boundary is not None and boundary != last:
        # A later boundary without preserved lines hides the preserved ones as well, whether or not they exist.
        return _hide_earlier(chain, last, [])
    nodes = None if boundary is None else _preserved_nodes(chain, metadata)
    if nodes is None:
        return _hide_earlier(chain, last, []) if _is_large(chain) else LoadedLines()
    return _hide_earlier(chain, last, nodes, metadata.get("anchorUuid"))


def _find_naming(chain: Chain, last: int, earlier: Iterator[int]) -> tuple[int | None, Fields]:
    """Return the last boundary that names lines to preserve, and where it names them."""
    batch = [last]
    while batch:
        for boundary, line in zip(batch, chain.lines.fields(batch), strict=True):
            metadata = _preserved_metadata(line)
            if metadata is not None:
                return boundary, metadata
        batch = list(islice(earlier, _BATCH))
    return None, {}


def _is_large(chain: Chain) -> bool:
    return sum(chain.lines.sizes()) + len(chain) >= LARGE_FILE


def _hide_earlier(chain: Chain, last: int, preserved: list[int], anchor: object = None) -> LoadedLines:
    links = _splice(chain, preserved, anchor)
    visible = frozenset(preserved)
    start = chain.position(last)
    copies = frozenset(node for node, first in chain.repeated_lines().items() if first < start) - visible
    loaded = LoadedLines(start, visible, links, copies)
    fallback = preserved[-1] if preserved else None
    if preserved and (above := links[preserved[0]]) is not None and above not in loaded:
        links[preserved[0]] = fallback  # the anchor itself is hidden: the rule below holds for preserved lines as well
    parents = chain.parents
    for node in range(start, len(parents)):
        parent = parents[node]
        if parent is not None and (parent < start or parent in copies) and parent not in visible:
            # Only for user and assistant lines: the missing parent of others is bridged by time, as elsewhere.
            links.setdefault(node, fallback if chain.facts(node).is_turn else None)
    return loaded


class _Boundary(Struct, frozen=True):
    """What the line of a boundary names."""

    preserved: Preserved
    leaf_before: int | None
    is_separator: bool
    compacts_nothing: bool


_NO_LINES = Preserved({})


def _read_boundaries(chain: Chain) -> dict[int, _Boundary]:
    """Read all boundaries. A path may pass any of them, and a history passes all that precede it."""
    nodes = [node for node, kind in enumerate(chain.types) if kind == "compaction"]
    found: dict[int, _Boundary] = {}
    for start in range(0, len(nodes), _BATCH):
        batch = nodes[start : start + _BATCH]
        for node, line in zip(batch, chain.lines.fields(batch), strict=True):
            passthrough = passthrough_of(line)
            found[node] = _Boundary(
                _find_preserved(chain, line),
                _find_leaf_before(chain, node, line),
                PART in passthrough,
                # The client's own boundaries always name the line before them; ours do not if they are the first entry.
                bool(passthrough) and line.get("logicalParentUuid") is None,
            )
    return found


def find_preserved(chain: Chain, boundary: int) -> Preserved:
    """Return what a boundary preserves of the lines before it, for paths that pass through it."""
    return chain.once(_read_boundaries)[boundary].preserved


def _find_preserved(chain: Chain, line: Fields) -> Preserved:
    metadata = _preserved_metadata(line)
    nodes = None if metadata is None else _preserved_nodes(chain, metadata)
    anchor = None if metadata is None else chain.find_link(metadata.get("anchorUuid"))
    if metadata is None or not nodes or anchor is None:
        return _NO_LINES
    return Preserved(_splice(chain, nodes, metadata.get("anchorUuid")), frozenset(nodes), anchor, nodes[-1])


def find_splices(chain: Chain) -> Mapping[int, Sequence[int]]:
    """Return, for each line that boundaries give another parent, these boundaries."""
    return chain.once(_find_splices)


def _find_splices(chain: Chain) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for boundary, facts in chain.once(_read_boundaries).items():
        for node in facts.preserved.links:
            found.setdefault(node, []).append(boundary)
    return found


def is_separator(chain: Chain, boundary: int) -> bool:
    """Whether our encoder wrote a boundary only to separate branches: it preserves its path and compacts nothing."""
    return chain.types[boundary] == "compaction" and chain.once(_read_boundaries)[boundary].is_separator


def compacts_nothing(chain: Chain, boundary: int) -> bool:
    """Whether our encoder wrote a boundary before all other lines."""
    return chain.once(_read_boundaries)[boundary].compacts_nothing


def _splice(chain: Chain, preserved: Sequence[int], anchor: object) -> dict[int, int | None]:
    """Return the parents of preserved lines, which follow the anchor, and of the anchor's other children."""
    if not preserved:
        return {}
    node = chain.find_link(anchor)
    links: dict[int, int | None] = dict(zip(preserved, [node, *preserved[:-1]], strict=True))
    # What followed the anchor now follows the preserved lines, so that the conversation goes on after them. Where the
    # list names the anchor, that includes the next line of the list.
    links.update(
        {line: preserved[-1] for line in preserved if links[line] == node is not None and line != preserved[0]}
    )
    for child in chain.children(node) if node is not None else _find_orphans(chain, anchor):
        links.setdefault(child, preserved[-1])
    return links


def _find_orphans(chain: Chain, parent: object) -> list[int]:
    """Return the lines that name a missing line as their parent."""
    return [
        problem.node for problem in chain.tree.problems() if (problem.kind, problem.id) == ("missing-parent", parent)
    ]


def _preserved_metadata(line: Fields) -> Fields | None:
    """Return the list of preserved lines, else the segment; None if a boundary has neither."""
    metadata = object_in(line, "compactMetadata")
    by_list = object_in(metadata, "preservedMessages")
    if isinstance(by_list.get("uuids"), list):
        return by_list
    return object_in(metadata, "preservedSegment") or None


def _preserved_nodes(chain: Chain, metadata: Fields) -> list[int] | None:
    """Return the preserved lines in their order; None if one of them is missing."""
    uuids = metadata.get("uuids")
    nodes = [chain.find_link(uuid) for uuid in uuids] if isinstance(uuids, list) else _segment_nodes(chain, metadata)
    found = [node for node in nodes if node is not None]
    if len(found) != len(nodes) or (not found and not isinstance(uuids, list)):
        return None
    return found


def _segment_nodes(chain: Chain, segment: Fields) -> list[int]:
    """Return the lines from head to tail; none when the head is not an ancestor of the tail."""
    head = chain.find_link(segment.get("headUuid"))
    if head is None:
        return []
    found: dict[int, None] = {}
    node = chain.find_link(segment.get("tailUuid"))
    while node is not None and node not in found:
        found[node] = None
        if node == head:
            return [other for other in reversed(found) if chain.types[other] != "progress"]
        parent = chain.recorded_parent(node)  # a line that was repeated later can be above itself
        if parent is not None and parent > node and chain.types[parent] == "progress":
            parent = min(parent, chain.position(parent))  # bridged while the file is read, see `chain.walk`
        node = parent
    return []


def has_summary(chain: Chain, path: Sequence[int], boundary: int) -> bool:
    """Whether the summary of a boundary follows it on the path.

    A child of the boundary counts as its summary even if it is not marked as one.
    """
    for node in path[path.index(boundary) + 1 :]:
        if chain.types[node] == "message" and (chain.facts(node).is_summary or chain.parents[node] == boundary):
            return True
    return False


def find_leaf_before(chain: Chain, boundary: int) -> int | None:
    """Return the line that was the leaf when the conversation was compacted."""
    return chain.once(_read_boundaries)[boundary].leaf_before


def _find_leaf_before(chain: Chain, boundary: int, line: Fields) -> int | None:
    logical_parent = chain.find_link(line.get("logicalParentUuid"))
    if logical_parent is not None and logical_parent < boundary:
        return logical_parent
    parent = chain.parents[boundary]
    return parent if parent is not None else next(chain.iter_links_before(boundary), None)
