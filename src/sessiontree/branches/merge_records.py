"""Joins: entries that bring one branch into another. Reading them, and what a path took in through them.

A join is a `branch_summary` whose `details` say where it came from:

    "mergedFrom": {"entry": "8b01d2e4", "into": "40a5170c", "ancestor": "1c3f77aa", "how": "append", "brought": 3}

`entry` is the other parent, `into` the entry it was brought behind, `ancestor` where the two had parted. A `session`
stands there if the other branch is in another one. `brought` counts the entries right before the join that came with
it, and `entries` names the chosen ones where only some came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import ToolResult
from sessiontree.core.tree import Tree
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.reader import Reader

How = Literal["summary", "append", "pick"]
"""A summary of what was done; all messages; chosen entries."""

MERGED_FROM = "mergedFrom"
_MARK = b'"mergedFrom"'


class Join(Struct, frozen=True):
    """Where a join came from."""

    entry: str
    """The end of the branch that was brought in, or the last of the chosen entries."""
    into: str | None = None
    """The entry it was brought behind."""
    ancestor: str | None = None
    session: str | None = None
    """The session of the other branch; None when it is the same one."""
    how: How = "summary"
    brought: int = 0
    """How many entries right before the join came with it."""
    entries: tuple[str, ...] = ()
    """The entries that were chosen, by the ids they have where they come from."""
    conflicts: tuple[Mapping[str, Any], ...] = ()

    def fields(self) -> dict[str, Any]:
        """As it stands in a line, conflicts apart."""
        found: dict[str, Any] = {
            "entry": self.entry,
            "into": self.into,
            "ancestor": self.ancestor,
            "how": self.how,
        }
        if self.session is not None:
            found["session"] = self.session
        if self.brought:
            found["brought"] = self.brought
        if self.entries:
            found["entries"] = list(self.entries)
        return found


def join_of(entry: CanonicalEntry) -> Join | None:
    """The join that an entry is; None for any other entry."""
    return join_in(entry.fields.get("details")) if entry.kind == "branch_summary" else None


def join_in(details: Any) -> Join | None:
    """The join that the details of a `branch_summary` tell of, whatever those are."""
    if not isinstance(details, dict):
        return None
    found, conflicts = details.get(MERGED_FROM), details.get("conflicts")
    if not isinstance(found, dict) or not isinstance(found.get("entry"), str):
        return None
    brought = found.get("brought")
    return Join(
        entry=found["entry"],
        into=_text(found.get("into")),
        ancestor=_text(found.get("ancestor")),
        session=_text(found.get("session")),
        how=next((how for how in get_args(How) if how == found.get("how")), "summary"),
        brought=brought if isinstance(brought, int) and brought > 0 else 0,
        entries=tuple(id for id in _list(found.get("entries")) if isinstance(id, str)),
        conflicts=tuple(conflict for conflict in _list(conflicts) if isinstance(conflict, dict)),
    )


def find_joins(session: Reader) -> dict[str, Join]:
    """Every join of a session by its id, in file order."""
    journal = session.journal
    nodes: Sequence[int] = range(len(journal))
    if session.dialect.one_line_per_entry:
        nodes = [node for node in nodes if journal.types[node] == "branch_summary"]
    elif not journal.has_bytes(_MARK):
        return {}
    marked = [node for node, raw in zip(nodes, journal.iter_raw(nodes), strict=True) if _MARK in raw]
    joins: dict[str, Join] = {}
    for node in marked:
        for entry in session.dialect.decode(journal, [node]):
            join = join_of(entry)
            if join is not None:
                joins[journal.tree.ids[node]] = join
    return joins


def find_same_join(session: Reader, wanted: Join) -> str | None:
    """The join that brought the same to the same place in the same way, if there is one."""
    return next((id for id, join in find_joins(session).items() if _has_all_of(join, wanted)), None)


def _has_all_of(join: Join, wanted: Join) -> bool:
    if (join.into, join.session, join.how) != (wanted.into, wanted.session, wanted.how):
        return False
    return set(wanted.entries) <= set(join.entries) if join.how == "pick" else join.entry == wanted.entry


class Taken(Struct, frozen=True):
    """What the path to an entry has, and what it took in by joins."""

    ids: frozenset[str]
    """Entries of the session itself: those of the path, and of every branch that was brought into it."""
    foreign: Mapping[str, frozenset[str]]
    """Session -> ends of its branches that were brought in."""
    picked: Mapping[str | None, frozenset[str]]
    """Session (None: this one) -> entries that were brought one by one."""


def taken_by(session: Reader, leaf: str | None, joins: Mapping[str, Join] | None = None) -> Taken:
    """What the path to an entry has in it, directly and by way of joins."""
    known = find_joins(session) if joins is None else joins
    ids: set[str] = set()
    foreign: dict[str, set[str]] = {}
    picked: dict[str | None, set[str]] = {}
    pending = [leaf]
    while pending:
        new = [id for id in history_ids(session, pending.pop()) if id not in ids]
        ids.update(new)
        for join in (known[id] for id in new if id in known):
            if join.how == "pick":
                picked.setdefault(join.session, set()).update(join.entries)
            elif join.session is not None:
                foreign.setdefault(join.session, set()).add(join.entry)
            elif join.entry in session:
                pending.append(join.entry)
    return Taken(
        frozenset(ids),
        {name: frozenset(ends) for name, ends in foreign.items()},
        {name: frozenset(entries) for name, entries in picked.items()},
    )


def history_ids(session: Reader, leaf: str | None) -> list[str]:
    """The ids of what leads to an entry from the very beginning, also what stood before a compaction."""
    tree = session.journal.tree
    return [tree.ids[node] for node in history_nodes(session, leaf)]


def history_nodes(session: Reader, leaf: str | None) -> list[int]:
    """The same by their numbers, in the order in which it was said.

    Where a program goes by the order of lines, and lines were put in another order since, a path reads otherwise.
    """
    end = session.node_of(leaf)
    nodes = session.dialect.find_history(session.journal, end, session.read_options)
    return nodes if session.dialect.one_line_per_entry else _in_order(nodes, session.journal.tree, end)


def end_at(session: Reader, leaf: str) -> str:
    """The entry behind which one goes on from an entry: of results that stand side by side, the last."""
    tree = session.journal.tree
    nodes = [node for node in history_nodes(session, leaf) if not is_metadata_id(tree.ids[node])]
    if not nodes or not all(map(_is_result, session.journal.entries([tree.node_of[leaf], nodes[-1]]))):
        return leaf
    return tree.ids[nodes[-1]]


def _is_result(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry) and all(isinstance(message, ToolResult) for message in entry.messages)


def _in_order(nodes: Sequence[int], tree: Tree, end: int | None) -> list[int]:
    """Nodes of a history with parents before children, and what hangs on no entry of the path before the path."""
    groups: dict[int, list[int]] = {}
    """Each node of the tree with the lines beside the tree that stand before it."""
    beside: list[int] = []
    for node in nodes:
        beside.append(node)
        if not is_metadata_id(tree.ids[node]):
            groups[node] = beside
            beside = []
    of_path = set(tree.path(end))
    for node in _parents_first(list(groups), tree):
        if tree.parent(node) in of_path:
            of_path.add(node)
    ordered = _parents_first([node for node in groups if node not in of_path], tree)
    ordered += _parents_first([node for node in groups if node in of_path], tree)
    return [each for node in ordered for each in groups[node]] + beside


def _parents_first(nodes: Sequence[int], tree: Tree) -> list[int]:
    """Nodes in an order in which each stands behind its parent; as they are, if they do."""
    given, done = set(nodes), set[int]()
    waiting: dict[int, list[int]] = {}
    ordered: list[int] = []
    for node in nodes:
        parent = tree.parent(node)
        if parent is not None and parent in given and parent not in done:
            waiting.setdefault(parent, []).append(node)
            continue
        ready = [node]
        while ready:
            ordered.append(ready.pop())
            done.add(ordered[-1])
            ready += reversed(waiting.pop(ordered[-1], []))
    return ordered


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
