"""The whole conversation that belongs to a leaf: also what stood before the compactions on its path.

Lines that a compaction kept stand at their old place and nowhere else. Among the asides only those count that we wrote
ourselves: each says which line it stands behind and, if there is one, which aside between them; and so does a line that
follows asides.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from sessiontree.core.entries import ENTRY_TYPES
from sessiontree.core.tree import Tree
from sessiontree.dialects.claude.boundaries import stood_before
from sessiontree.dialects.claude.chain import Chain
from sessiontree.dialects.claude.differences import AFTER, PART
from sessiontree.dialects.claude.path import find_trail
from sessiontree.dialects.claude.records import Fields, object_in, string_in
from sessiontree.dialects.contract import IndexedLines, ReadOptions, is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of

START = "start"
"""Marks an aside that tells of the session and not of a place in it."""

_STEP = 256
_known: WeakKeyDictionary[Tree, _Asides] = WeakKeyDictionary()
"""The asides of the sessions in hand: whoever asks for the history of one leaf asks for those of all."""


def find_history(lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
    """The nodes of a conversation from the very beginning, in its order."""
    chain = Chain(lines)
    if leaf is not None and is_metadata_id(lines.tree.ids[leaf]):
        return _history_of_aside(chain, leaf, read_options)
    if leaf is not None and chain.is_link(leaf) and not chain.counts(leaf):
        return []  # a sub-agent's, whose conversation is another one
    return _with_asides(chain, spoken_history(chain, leaf, read_options))


def _history_of_aside(chain: Chain, aside: int, read_options: ReadOptions) -> list[int]:
    """What leads to an aside of ours; those of the client belong to no conversation."""
    asides = _asides_of(chain.lines)
    if aside not in asides.parents:
        return []
    before = spoken_history(chain, chain.node(asides.parents[aside]), read_options)
    return [*_with_asides(chain, before, at_end=False), *asides.leading_to(aside)]


def spoken_history(chain: Chain, leaf: int | None, read_options: ReadOptions) -> list[int]:
    """The same without asides."""
    stretches: list[list[int]] = []
    boundaries: set[int] = set()
    while leaf is not None:
        nodes = find_trail(chain, leaf, read_options).nodes
        if nodes and nodes[0] != leaf and _is_ours_alone(chain, nodes[0]):
            nodes = _from_compaction(chain, nodes[1:])
        stretches.append(nodes)
        first = nodes[0] if nodes else leaf
        if chain.types[first] != "compaction" or first == leaf or first in boundaries:
            break
        boundaries.add(first)
        leaf = None if _follows_nothing(chain, first) else stood_before(chain, first)
    history: dict[int, None] = {}
    for nodes in reversed(stretches):
        history.update(dict.fromkeys(nodes))  # what was kept is there already, at its old place
    return list(history)


def _is_ours_alone(chain: Chain, boundary: int) -> bool:
    """Whether we wrote a boundary only to part branches: it kept all that was sent, and compacts nothing."""
    if chain.types[boundary] != "compaction":
        return False
    (fields,) = chain.lines.fields([boundary])
    return PART in passthrough_of(fields)


def _from_compaction(chain: Chain, nodes: list[int]) -> list[int]:
    """What such a boundary kept begins with the summary of an earlier compaction, if there was one."""
    above = chain.parents[nodes[0]] if nodes else None
    return [above, *nodes] if above is not None and chain.types[above] == "compaction" else nodes


def _follows_nothing(chain: Chain, boundary: int) -> bool:
    """Whether we wrote a boundary that compacts nothing: one of the client's always follows what stands before it."""
    (fields,) = chain.lines.fields([boundary])
    return bool(passthrough_of(fields)) and fields.get("logicalParentUuid") is None


def _with_asides(chain: Chain, history: list[int], *, at_end: bool = True) -> list[int]:
    asides = _asides_of(chain.lines)
    if not asides.parents:
        return history
    ids, behind = chain.tree.ids, asides.behind
    found: list[int] = []
    done = 0
    for at, node in enumerate([None, *history]):
        here = behind.get(None if node is None else ids[node])
        if not here:
            continue
        found += history[done:at]
        done = at
        if at < len(history):
            found += asides.before(chain.lines, history[at], here)
        elif at_end:
            went_on = max((child for child in chain.tree.children(node) if chain.is_link(child)), default=-1)
            found += asides.leading_to(here[-1]) if here[-1] > went_on else []
    return found + history[done:]


def _asides_of(lines: IndexedLines) -> _Asides:
    found = _known.get(lines.tree)
    if found is None or found.count != len(lines.types):
        found = _known[lines.tree] = _Asides(lines)
    return found


class _Asides:
    """Our own asides, and how they stand behind each other."""

    def __init__(self, lines: IndexedLines) -> None:
        self.count = len(lines.types)
        """How many lines there were."""
        self.parents: dict[int, str | None] = {}
        """The line that each stands behind."""
        self.behind: dict[str | None, list[int]] = {}
        """The same the other way round, in file order."""
        self._by_id: dict[str, int] = {}
        self._after: dict[int, str] = {}
        self._said_after: dict[int, object] = {}
        """What lines that follow asides say of them, as far as they were asked."""
        types = lines.types
        nodes = [
            node
            for node, id in enumerate(lines.tree.ids)
            if is_metadata_id(id) and (types[node] in ENTRY_TYPES or types[node] == PASSTHROUGH)
        ]
        for start in range(0, len(nodes), _STEP):
            step = nodes[start : start + _STEP]
            for node, fields in zip(step, lines.fields(step), strict=True):
                self._take(node, fields)

    def _take(self, node: int, fields: Fields) -> None:
        is_entry = fields.get("type") == PASSTHROUGH and bool(string_in(object_in(fields, "entry"), "type"))
        if not is_entry or fields.get(START) is True:
            return
        parent = string_in(fields, "parent")
        self.parents[node] = parent
        self.behind.setdefault(parent, []).append(node)
        self._by_id[string_in(fields, "id") or ""] = node
        self._after[node] = string_in(fields, AFTER) or ""

    def leading_to(self, aside: int) -> list[int]:
        """An aside and those it stands behind, in their order."""
        found: list[int] = []
        at: int | None = aside
        while at is not None and at not in found and self.parents[at] == self.parents[aside]:
            found.append(at)
            at = self._by_id.get(self._after[at])
        return found[::-1]

    def before(self, lines: IndexedLines, node: int, here: list[int]) -> list[int]:
        """Those among some asides that a line stands behind: the line says so, or else it stands behind the last."""
        if node not in self._said_after:
            (fields,) = lines.fields([node])
            self._said_after[node] = passthrough_of(fields).get(AFTER)
        after = self._said_after[node]
        if isinstance(after, str):
            last = self._by_id.get(after)
        else:
            last = max((aside for aside in here if aside < node), default=None)
        return self.leading_to(last) if last is not None else []
