"""The current leaf of a transcript, and the lines that belong to a leaf in the order of the conversation.

The rules are those of client 2.1.150 and newer, as measured:

* Lines that a boundary hides do not exist, and preserved lines have their new parents (see `boundaries`).
* The leaf is the last chain line of the file. It can have descendants, because a child may precede its parent and a
  uuid may occur twice. Then the leaf is the newest of them by timestamp, unless the file has a pin, or that last line
  is the newest of all.
* If that last line has no user or assistant line above it, the leaf is the newest end of a branch instead.
* With preserved lines, the user and assistant lines at the ends of branches decide: those without children, and those
  with only system lines and attachments after them, of which one has no children. If there is only one, it is the leaf.
* The last `last-prompt` line after the last boundary is a pin. If the candidate descends from the pinned line over
  recorded parents, or shares a response with it, the candidate is the leaf; otherwise the pinned line is. If the file
  ends with a boundary, or with a note that has no user or assistant line above it, that line has to descend. After an
  explicit pin only descendants that were written later count; it stays explicit if the next pins name the same line. A
  pin that names a boundary, or a line that does not exist, has no effect. An explicit one that names nothing, with no
  chain line after it, is before the first line: the history is empty.
  If there are preserved lines, neither has a pin on any other line than such an end, except for an explicit one at the
  end of the file.
* The path is followed past a boundary that names a parent, and cut there once its responses are complete. So lines
  above the boundary do not come back as parts of a response below it.
* The system lines and attachments after the last user or assistant line are sent with it (see `loose_lines`).
* Clients up to 2.1.87 took the leaf with the newest timestamp and ignored pins (`ReadOptions.as_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain as concat

from msgspec import Struct

from sessiontree.dialects.claude.boundaries import (
    LoadedLines,
    Preserved,
    find_leaf_before,
    find_loaded_lines,
    find_preserved,
    find_splices,
    has_summary,
)
from sessiontree.dialects.claude.chain import LINK_TYPES, Chain, walk
from sessiontree.dialects.claude.loose_lines import find_trailing_lines, is_turn
from sessiontree.dialects.claude.parallel_calls import insert_parallel_lines
from sessiontree.dialects.claude.records import object_in, string_in
from sessiontree.dialects.claude.reparent import client_bridge, find_reparentings, recovery_bridge
from sessiontree.dialects.claude.shard_order import order_shards
from sessiontree.dialects.contract import ReadOptions

_BATCH = 256


class Path(Struct, frozen=True):
    """The lines that belong to a leaf, and those among them that a compaction preserved."""

    nodes: list[int]
    preserved: frozenset[int] = frozenset()
    unsent: frozenset[int] | None = None
    """The lines that are not sent because of open calls; None if the order of `nodes` decides that."""
    has_late_results: bool = False
    """Whether results that preceded their call were moved after it (see `shard_order`)."""


def find_path(chain: Chain, leaf: int | None, read_options: ReadOptions) -> Path:
    """Return the path from the root, or from the last boundary, to a leaf."""
    if leaf is None:
        return Path([])
    if not chain.is_in_tree(leaf):
        return Path([leaf])
    loaded = find_loaded_lines(chain)
    if read_options.recovered or not is_reached(chain, loaded, leaf):
        return find_earlier_path(chain, leaf, read_options)
    # The client walks up from the last user or assistant line, and then adds the notes after it. In a cycle of parents
    # that includes a note, a walk from the note would end elsewhere.
    *notes, last = _find_row(chain, loaded, leaf)
    if not is_turn(chain, last) or any(chain.types[note] == "compaction" for note in notes):
        notes, last = [], leaf
    nodes = walk(chain, last, loaded.links, client_bridge(chain, loaded), past_boundaries=True)
    nodes += [note for note in reversed(notes) if note not in nodes]
    # Preserved lines may include an older boundary: the context begins at the last one on the path.
    start = max((at for at, node in enumerate(nodes) if chain.types[node] == "compaction"), default=0)
    return _with_parallel_lines(chain, nodes, leaf, loaded, loaded.preserved, read_options, start)


def is_reached(chain: Chain, loaded: LoadedLines, leaf: int) -> bool:
    """Whether the client reaches a line, by the path that we give it, when it is pinned or appended to."""
    # A preserved line has two paths: the one before the compaction, and the one after the summary. The second one
    # counts if it is the current line, where a pin or the end of the file has put the client.
    # The client inserts preserved lines between their anchor and its children, so a child of the anchor is elsewhere.
    # A boundary itself cannot be pinned; the path to it is the history that it compacts.
    if chain.types[leaf] == "compaction" or leaf not in loaded or leaf in loaded.anchors:
        return False
    return leaf >= loaded.start or leaf == find_client_leaf(chain)


def is_followed_by_boundary(chain: Chain, leaf: int) -> bool:
    """Whether a boundary names a line as its parent, directly or through notes.

    The client sends what follows the last user or assistant line with it. If that includes a boundary, it sends nothing
    that precedes the boundary.
    """
    turns = chain.once(_find_turns_before_boundaries)
    return bool(turns) and _find_turn(chain, find_loaded_lines(chain), leaf) in turns


def _find_turns_before_boundaries(chain: Chain) -> frozenset[int]:
    loaded = find_loaded_lines(chain)
    turns = (_find_turn(chain, loaded, node) for node in chain.iter_boundaries(len(chain) - 1) if node in loaded)
    return frozenset(turn for turn in turns if turn is not None)


def find_earlier_path(chain: Chain, leaf: int | None, read_options: ReadOptions) -> Path:
    """Return the path that a line had when it was the last one: later boundaries do not change it."""
    if leaf is None:
        return Path([])
    nodes, preserved = _walk_to_boundary(chain, leaf, read_options)
    eligible = LoadedLines(nodes[0], preserved.nodes, preserved.links) if preserved.nodes else LoadedLines()
    return _with_parallel_lines(chain, nodes, leaf, eligible, preserved.nodes, read_options)


def _with_parallel_lines(
    chain: Chain,
    nodes: list[int],
    leaf: int,
    eligible: LoadedLines,
    preserved: frozenset[int],
    read_options: ReadOptions,
    start: int = 0,
) -> Path:
    """Return the path from the line at `start` on. What precedes it is not sent, nor inserted after it."""
    trailing: list[int] = []
    first = nodes[start] if start else None
    if leaf == find_client_leaf(chain):
        head, after = _split_trailing_lines(chain, nodes, eligible)
        if len(head) > start:  # else there is no user or assistant line after the boundary
            nodes, trailing = head, after
    gathered = insert_parallel_lines(chain, nodes, eligible, read_options.recovered)
    above: list[int] = []
    if first is not None:
        above = gathered.nodes[: gathered.nodes.index(first)]
        gathered = gathered.since(first)
    ordered = order_shards(
        chain, gathered.nodes, gathered.spans, recovered=read_options.recovered, above=above, trailing=trailing
    )
    nodes = ordered.nodes
    if trailing:
        known = set(trailing).intersection(nodes)  # of a huge path, no set is created
        nodes += [node for node in trailing if node not in known]
    if read_options.snips:
        removed = chain.once(_snipped_ids)
        nodes = [node for node in nodes if chain.tree.ids[node] not in removed]
    return Path(nodes, preserved, ordered.unsent, ordered.has_late_results)


def _split_trailing_lines(chain: Chain, nodes: list[int], loaded: LoadedLines) -> tuple[list[int], list[int]]:
    """Return a path up to its last user or assistant line, and the lines that the client sends after it."""
    end = next((at for at in range(len(nodes), 0, -1) if is_turn(chain, nodes[at - 1])), 0)
    trailing = find_trailing_lines(chain, nodes[end - 1], loaded) if end else []
    # A boundary at the end compacts nothing, so the lines beside it are sent, too.
    boundaries = [node for node in nodes[end:] if chain.types[node] == "compaction"]
    # Where a missing parent was bridged, the lines at the end do not follow that line.
    is_connected = set(nodes[end:]) <= {*trailing, *boundaries}
    return (nodes[:end], [*trailing, *boundaries]) if is_connected else (nodes, [])


def _walk_to_boundary(chain: Chain, leaf: int, read_options: ReadOptions) -> tuple[list[int], Preserved]:
    """Return a path without parallel lines, and what its boundary preserved."""
    links: dict[int, int | None] = {}
    bridge = client_bridge(chain, LoadedLines())
    if read_options.recovered:
        links = {found.node: found.parent for found in chain.once(find_reparentings)}
        bridge = recovery_bridge(chain)
    nodes = walk(chain, leaf, links, bridge)
    pending = _find_candidates(chain, leaf, nodes)
    while pending:
        boundary = pending.pop(0)
        if boundary == leaf:  # nothing follows it, so nothing was compacted: the client sends the full history
            links[boundary] = find_leaf_before(chain, boundary)
        else:
            # Only the last boundary on the path counts. Its splices change the path, so each one is tried in turn.
            preserved = find_preserved(chain, boundary)
            if links.get(leaf) == preserved.anchor is not None:
                links[leaf] = preserved.last  # the lines were preserved after the summary that was compacted
            spliced = walk(chain, leaf, {**links, **preserved.links}, bridge) if preserved.links else nodes
            if boundary not in spliced:
                continue
            if not read_options.recovered or has_summary(chain, spliced, boundary):
                return spliced[spliced.index(boundary) :], preserved
            # The summary was lost, so the history before the boundary is better than nothing.
            links[boundary] = find_leaf_before(chain, boundary)
        nodes = walk(chain, leaf, links, bridge)
        last = chain.position(boundary)
        pending = [other for other in _find_candidates(chain, leaf, nodes) if chain.position(other) < last]
    return nodes, Preserved({})


def _find_candidates(chain: Chain, leaf: int, nodes: Sequence[int]) -> list[int]:
    """Return the boundaries up to a leaf that are on its path, or change a line of it, the last one first.

    `nodes` is the path without boundaries' changes. All other boundaries leave it as it is.
    """
    found = {node for node in nodes if chain.types[node] == "compaction"}
    splices = find_splices(chain)
    if splices:
        found.update(boundary for node in _with_progress(chain, nodes) for boundary in splices.get(node, ()))
    return chain.in_order(node for node in found if node <= leaf and chain.is_in_tree(node))[::-1]


def _with_progress(chain: Chain, nodes: Sequence[int]) -> Iterator[int]:
    """Iterate over the lines of a path and the progress lines between them."""
    for node in nodes:
        yield node
        parent = chain.parents[node]
        while parent is not None and chain.types[parent] == "progress":
            yield from {parent, chain.position(parent)}
            parent = chain.parents[parent]


def _snipped_ids(chain: Chain) -> set[str]:
    """Return the uuids that snip markers name; client 2.1.325 ignores these markers."""
    markers = [node for node, kind in enumerate(chain.types) if kind in ("system", "compaction")]
    removed: set[str] = set()
    for start in range(0, len(markers), _BATCH):
        for line in chain.lines.fields(markers[start : start + _BATCH]):
            uuids = object_in(line, "snipMetadata").get("removedUuids")
            if isinstance(uuids, list):
                removed.update(uuid for uuid in uuids if isinstance(uuid, str))
    return removed


# The leaf


def find_leaf(chain: Chain, read_options: ReadOptions) -> int | None:
    """Return the current leaf of the session; None when there is no chain line."""
    return _find_newest_leaf(chain) if read_options.as_of == "timestamps" else find_client_leaf(chain)


def find_client_leaf(chain: Chain) -> int | None:
    """Return the current leaf for the client, whatever the options of a reader are."""
    return chain.once(_find_client_leaf)


def _find_client_leaf(chain: Chain) -> int | None:
    loaded = find_loaded_lines(chain)
    last = _find_last_line(chain, loaded)
    if last is None:
        return None
    # A boundary or a note without a user or assistant line above it is never current, but here it is the last line.
    latest = next((node for node in chain.iter_links_before(len(chain)) if _is_loaded_leaf(chain, loaded, node)), last)
    pin, pinned, is_explicit = _find_pin(chain, loaded)
    if is_explicit and pin > latest and _find_pin_line(chain)[1] is None:
        return None  # before the first line
    newest = _find_newest_end(chain, loaded) if latest > last else None
    candidate = _find_candidate(chain, loaded, last) if newest is None else newest
    if chain.types[candidate] == "compaction":
        candidate = _find_turn_of_boundary(chain, loaded, candidate)
    if pinned is None or pinned == candidate:
        return candidate
    if loaded.preserved and not (is_explicit and pin > last) and pinned not in chain.once(_find_loaded_ends):
        return candidate
    followed = latest if latest > last else candidate
    if is_explicit:
        leads_on = last > pin and pinned in _recorded_path(chain, loaded, followed)
    else:
        leads_on = _is_on_pinned_branch(chain, loaded, followed, pinned)
    return candidate if leads_on else pinned


def _find_turn_of_boundary(chain: Chain, loaded: LoadedLines, boundary: int) -> int:
    """Return the user or assistant line that a boundary at the end of a file is at, if it is also above that line.

    Otherwise nothing is compacted, and the boundary itself has the history before it.
    """
    turn = _find_turn(chain, loaded, boundary)
    if turn is None:
        return boundary
    is_above = bool(loaded.preserved) or boundary in walk(
        chain, turn, loaded.links, client_bridge(chain, loaded), past_boundaries=True
    )
    return turn if is_above else boundary


def has_lines_beside_leaf(chain: Chain) -> bool:
    """Whether the client sends lines with the current one that are neither it nor above it."""
    leaf, loaded = find_client_leaf(chain), find_loaded_lines(chain)
    turn = None if leaf is None else _find_turn(chain, loaded, leaf)
    if leaf is None or turn is None:
        return False
    path = walk(chain, leaf, loaded.links, lambda *_: None)
    return not set(find_trailing_lines(chain, turn, loaded)).issubset(path)


def is_pinned_elsewhere(chain: Chain, id: str | None) -> bool:
    """Whether the last pin would keep the current leaf when a child of this line is appended."""
    _, leaf, _ = _find_pin_line(chain)
    pinned = chain.find_link(leaf)
    if pinned is None:
        return False
    if chain.is_link(pinned) and not chain.can_be_leaf(pinned):
        return True  # only a later pin lets the client read the file
    start = None if id is None else chain.find_link(id)
    return _can_be_pinned(chain, find_loaded_lines(chain), pinned) and pinned not in chain.iter_ancestors(start)


def _find_last_line(chain: Chain, loaded: LoadedLines) -> int | None:
    fallback: int | None = None
    for node in chain.iter_links_before(len(chain)):
        if not _is_loaded_leaf(chain, loaded, node):
            continue
        # A branch without a user or assistant line is the current one only if there is no other. This is why a boundary
        # with nothing after it compacts nothing.
        if has_turn(chain, loaded, node):
            return node
        if fallback is None:
            fallback = node
    return fallback


def _is_loaded_leaf(chain: Chain, loaded: LoadedLines, node: int) -> bool:
    return node in loaded and chain.can_be_leaf(node)


def has_turn(chain: Chain, loaded: LoadedLines, node: int) -> bool:
    """Whether a line, or a line above it, is a user or assistant line: the client ignores a pin on any other."""
    return _find_turn(chain, loaded, node) is not None


def _find_turn(chain: Chain, loaded: LoadedLines, node: int) -> int | None:
    """Return the nearest user or assistant line at or above a line."""
    last = _find_row(chain, loaded, node)[-1]
    return last if is_turn(chain, last) else None


def _find_row(chain: Chain, loaded: LoadedLines, node: int) -> list[int]:
    """Return a line and those above it, up to a user or assistant line. Missing parents are not bridged for this."""
    row: dict[int, None] = {}
    at: int | None = node
    while at is not None and at not in row:
        row[at] = None
        if is_turn(chain, at):
            break
        at = loaded.links[at] if at in loaded.links else chain.recorded_parent(at)
    return list(row)


def _find_candidate(chain: Chain, loaded: LoadedLines, last: int) -> int:
    """Return the leaf before pins are considered, given the last line of the file."""
    if loaded.preserved:
        ends = chain.once(_find_loaded_ends)
        if len(ends) != 1 or _find_turn(chain, loaded, last) in ends:
            return last
        (end,) = ends
        return _with_lines_after(chain, loaded, end)
    if "last-prompt" in chain.types:  # even one that has no effect
        return last
    below, pending = {last}, [last]
    while pending:
        for child in chain.children(pending.pop()):
            if child not in below and (chain.types[child] == "progress" or chain.can_be_leaf(child)):
                below.add(child)
                pending.append(child)
    candidates = chain.in_order(node for node in below if node != last and chain.types[node] != "progress")
    if not candidates or _is_newest(chain, last):
        return last
    # The client compares timestamps as text. Of lines with the same one, the last counts.
    _, at = max(zip(chain.iter_timestamps(candidates), range(len(candidates)), strict=True))
    return candidates[at]


def _find_newest_end(chain: Chain, loaded: LoadedLines) -> int | None:
    """Return the newest end of a branch, which is the leaf if the last line has no user or assistant line above it."""
    ends = chain.in_order(node for node in chain.once(_find_loaded_ends) if chain.can_be_leaf(node))
    newest = max(ends, key=lambda node: _time_of(chain, node), default=None)  # of several, the first
    return None if newest is None else _with_lines_after(chain, loaded, newest)


def _with_lines_after(chain: Chain, loaded: LoadedLines, end: int) -> int:
    """Return the last of the lines that are sent with the end of a branch."""
    return [end, *find_trailing_lines(chain, end, loaded)][-1]


def _is_newest(chain: Chain, node: int) -> bool:
    """Whether no other chain line has a later timestamp, or has the same one before it in the file.

    The client finds the newest line while it reads, so hidden and replaced lines count.
    """
    ids = chain.tree.ids
    nodes = [other for other, kind in enumerate(chain.types) if kind in LINK_TYPES and ids[other] != f"@{other}"]
    newest, latest = node, ""
    for other, timestamp in zip(nodes, chain.iter_timestamps(nodes), strict=True):
        if timestamp > latest:
            newest, latest = other, timestamp
    return ids[newest] == ids[node]


def _find_loaded_ends(chain: Chain) -> set[int]:
    """Return the user and assistant lines that the loaded branches end with."""
    loaded = find_loaded_lines(chain)
    ends = _find_ends(chain, loaded, chain.is_link)
    if len(ends) == 1 and not any(map(chain.can_be_leaf, ends)):
        # Lines of sub-agents count as ends, too. The client refuses a file that has no other end.
        ends = _find_ends(chain, loaded, chain.can_be_leaf)
    return ends


def _find_ends(chain: Chain, loaded: LoadedLines, counts: Callable[[int], bool]) -> set[int]:
    inner, before_turn = bytearray(len(chain)), bytearray(len(chain))  # sets of a huge transcript would take 50 MB
    for node in _iter_loaded(chain, loaded, counts):
        parent = _loaded_parent(chain, loaded, node)
        if parent is not None:
            inner[parent] = 1
            before_turn[parent] |= is_turn(chain, node)
    terminal = (node for node in _iter_loaded(chain, loaded, counts) if not inner[node])
    turns = (_find_turn(chain, loaded, node) for node in terminal)
    return {turn for turn in turns if turn is not None and not before_turn[turn]}


def _iter_loaded(chain: Chain, loaded: LoadedLines, counts: Callable[[int], bool]) -> Iterator[int]:
    return (
        node for node in concat(loaded.preserved, range(loaded.start, len(chain))) if node in loaded and counts(node)
    )


def _loaded_parent(chain: Chain, loaded: LoadedLines, node: int) -> int | None:
    """Return the parent of a loaded line. Progress lines count as their nearest ancestor of another type."""
    parent = loaded.links[node] if node in loaded.links else chain.recorded_parent(node)
    while parent is not None and chain.types[parent] == "progress":
        parent = loaded.links.get(parent, chain.parents[parent])
    return parent


def _find_pin(chain: Chain, loaded: LoadedLines) -> tuple[int, int | None, bool]:
    """Return the last pin: its own line, the line that it names if that exists, and whether it is explicit."""
    pin, leaf, is_explicit = _find_pin_line(chain)
    pinned = chain.find_link(leaf)
    if pinned is not None and not _can_be_pinned(chain, loaded, pinned):
        pinned = None
    return pin, pinned, is_explicit


def _find_pin_line(chain: Chain) -> tuple[int, str | None, bool]:
    """Return the last pin: its line, the uuid that it names, and whether it is explicit."""
    found, leaf = -1, None
    for node in range(len(chain) - 1, -1, -1):
        if chain.types[node] == "compaction":
            break  # a pin from before the last boundary is ignored: it names a line of the compacted conversation
        if chain.types[node] == "last-prompt":
            (pin,) = chain.lines.fields([node])
            named = string_in(pin, "leafUuid")
            if named is None and not (pin.get("explicit") is True and "leafUuid" in pin):
                continue
            if leaf is not None and named != leaf:
                break
            if found < 0:
                found, leaf = node, named
            if pin.get("explicit") is True:  # it stays explicit where the client repeats it
                return node, leaf, True
    return found, leaf, False


def _can_be_pinned(chain: Chain, loaded: LoadedLines, node: int) -> bool:
    # The client fails on a pin that names a line of a sub-agent; here it has no effect.
    is_possible = node in loaded and chain.types[node] != "compaction" and chain.can_be_leaf(node)
    return is_possible and has_turn(chain, loaded, node)


def _is_on_pinned_branch(chain: Chain, loaded: LoadedLines, candidate: int, pinned: int) -> bool:
    """Whether a line descends from the pinned one, or from a call that was made in parallel with it."""
    # The client pins a line while it writes, often one of several parallel results, and is killed before the next pin.
    # What follows another of these results still is the same conversation.
    nodes = _recorded_path(chain, loaded, candidate)
    if pinned in nodes:
        return True
    # A result counts as the shard that is its parent. One that follows another result does not belong to the response
    # here, although it is sent with it.
    turn = _find_turn(chain, loaded, pinned)
    if turn is not None and chain.summary(turn).results:
        pinned = turn  # a note after a result counts as the result; one after a shard does not count as the shard
    shard = _parent_link(chain, pinned) if chain.summary(pinned).results else pinned
    if shard is None or not chain.summary(shard).calls:
        return False
    response = chain.summary(shard).response
    # A line may have several calls: then the result of another one leads on, too, if it is a child of that line.
    parallel = set(chain.summary(shard).calls).difference(chain.summary(pinned).results)
    # Another shard leads on if one of the two is above the other.
    above = nodes if shard in nodes else _recorded_path(chain, loaded, shard)
    for node in nodes:
        other = chain.summary(node)
        if node != shard and response and other.response == response and other.calls and node in above:
            return True
        if not parallel.isdisjoint(other.results) and _parent_link(chain, node) == shard:
            return True
    return False


def _recorded_path(chain: Chain, loaded: LoadedLines, leaf: int) -> list[int]:
    """Return the path to a line over recorded parents.

    Missing parents are bridged only afterwards: where one is between a line and the pin, the client stays at the pin.
    """
    return walk(chain, leaf, loaded.links, lambda *_: None, past_boundaries=True)


def _find_newest_leaf(chain: Chain) -> int | None:
    links = [node for node in range(len(chain)) if chain.is_link(node)]
    chain.load_facts(links)
    candidates = [node for node in links if chain.can_be_leaf(node)]
    inner = {_parent_link(chain, node) for node in candidates}
    leaves = [node for node in candidates if node not in inner]
    return max(leaves, key=lambda node: (_time_of(chain, node), node), default=None)


def _parent_link(chain: Chain, node: int) -> int | None:
    ancestors = chain.iter_ancestors(chain.parents[node])
    return next((other for other in ancestors if chain.types[other] != "progress"), None)


def _time_of(chain: Chain, node: int) -> float:
    time = chain.facts(node).time
    return float("-inf") if time is None else time
