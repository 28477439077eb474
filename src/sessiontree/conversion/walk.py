"""A session as stretches to be told one after the other: parents before children, the active branch last.

The active branch comes last because several programs take the last line of a file for where the session stands. Whether
neighbours must be told together (the shards of a response, with its results) is the dialect's knowledge; a stretch is
never cut there.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from sessiontree.conversion.roles import with_own_role
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.reader import Reader

REPORT = "sessiontree.conversion"
"""The custom entry that holds the report of a conversion. It is of that file alone, so it is never told."""


def iter_items(session: Reader, leaf: str | None, *, whole: bool) -> Iterator[tuple[CanonicalEntry, str | None]]:
    """A session in canonical form: the path to a leaf, or with `whole` every branch. Each item with its parent's id."""
    node = session.node_of(leaf)
    ids = session.journal.tree.ids
    told: dict[str, str] = {}  # what the lines of the file are called in canonical form
    for stretch in all_stretches(session, node) if whole else active_stretches(session, node):
        parent = None if stretch.parent is None else told.get(ids[stretch.parent], ids[stretch.parent]) or None
        for entry in map(with_own_role, session.dialect.decode(session.journal, stretch.nodes)):
            if entry.kind == "custom" and entry.fields.get("customType") == REPORT:
                told.update(dict.fromkeys((entry.id, *entry.aliases), parent or ""))
                continue
            yield entry, parent
            for line in entry.aliases:
                told[line] = entry.id
            parent = entry.id


class Stretch(Struct, frozen=True):
    """Nodes that follow each other without a fork between them, and the node they follow."""

    nodes: list[int]
    parent: int | None


def active_stretches(session: Reader, leaf: int | None) -> list[Stretch]:
    """The history of one leaf."""
    nodes = session.dialect.find_history(session.journal, leaf, session.read_options)
    return [Stretch(nodes, None)] if nodes else []


def all_stretches(session: Reader, leaf: int | None) -> list[Stretch]:
    """The histories of all leaves, what they share told once."""
    forest = _Forest(session, leaf)
    return list(forest.iter_stretches())


class _Forest:
    """Every node of a session under the node it follows in the conversation."""

    def __init__(self, session: Reader, leaf: int | None) -> None:
        self._dialect, self._lines = session.dialect, session.journal
        self._parents: dict[int, int | None] = {}
        history = session.dialect.find_history(session.journal, leaf, session.read_options)
        self._active = set(history)
        if session.dialect.one_line_per_entry and not session.read_options.recovered:
            # A history is a path of the tree here, so the tree says it all, however many branches there are.
            tree = session.journal.tree
            self._parents.update(
                (node, up) for node, up in enumerate(tree.parents()) if not is_metadata_id(tree.ids[node])
            )
        else:
            self._place(history)
            for other in _ends(session):
                if other not in self._parents:
                    self._place(session.dialect.find_history(session.journal, other, session.read_options))
        self._children: dict[int | None, list[int]] = {}
        for node in sorted(self._parents, key=lambda node: (node in self._active, node)):
            self._children.setdefault(self._parents[node], []).append(node)

    def _place(self, history: list[int]) -> None:
        before: int | None = None
        for node in history:
            self._parents.setdefault(node, before)
            before = node

    def iter_stretches(self) -> Iterator[Stretch]:
        pending: list[tuple[int, int | None]] = [(root, None) for root in reversed(self._children.get(None, []))]
        while pending:
            first, parent = pending.pop()
            run = [first]
            waiting: list[tuple[int, int | None]] = []
            while children := self._children.get(run[-1]):
                main = children[-1]
                if len(children) > 1:
                    waiting += [(other, run[-1]) for other in children[:-1]]
                if waiting and not self._belong_together(run[-1], main):
                    waiting.append((main, run[-1]))
                    break
                run.append(main)
            yield Stretch(run, parent)
            pending += reversed(waiting)

    def _belong_together(self, node: int, child: int) -> bool:
        return self._dialect.must_decode_together(self._lines, node, child)


def _ends(session: Reader) -> list[int]:
    """The nodes that nothing follows, in file order. What stands beside the tree may belong to a history, too."""
    return session.journal.tree.leaves()
