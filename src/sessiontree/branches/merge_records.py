"""Merge records: find the merges of a session, and everything that a path contains through them.

A merge is a `branch_summary` entry with a record in its `details`:

    "mergedFrom": {"entry": "8b01d2e4", "into": "40a5170c", "ancestor": "1c3f77aa", "how": "append", "brought": 3}

`entry` is the other parent, `into` the entry it was merged into, `ancestor` the common ancestor. `session` is the other
parent's session, if it is a different one. `brought` is the number of entries before the merge entry that were copied
with it, and `entries` lists the picked ones. Readers that do not know merges see an ordinary summary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import ToolResult
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.session.history import history_ids, history_nodes
from sessiontree.session.reader import Reader

MergeMethod = Literal["summary", "append", "pick"]
"""How a branch is merged: as a summary, by copying all messages, or by copying chosen entries."""

MERGED_FROM = "mergedFrom"
_MARK = b'"mergedFrom"'


class MergeRecord(Struct, frozen=True):
    """Origin of a merge entry."""

    entry: str
    """Tip of the merged branch, or the last picked entry."""
    into: str | None = None
    """The entry it was merged into."""
    ancestor: str | None = None
    session: str | None = None
    """Session of the other branch; None if it is the same one."""
    how: MergeMethod = "summary"
    brought: int = 0
    """Number of entries before the merge entry that were copied with it."""
    entries: tuple[str, ...] = ()
    """Ids of the picked entries in their own session."""
    conflicts: tuple[Mapping[str, Any], ...] = ()

    def fields(self) -> dict[str, Any]:
        """The record as JSON fields, without conflicts."""
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


def merge_record_of(entry: CanonicalEntry) -> MergeRecord | None:
    """The record of a merge entry; None for other entries."""
    return parse_merge_record(entry.fields.get("details")) if entry.kind == "branch_summary" else None


def parse_merge_record(details: Any) -> MergeRecord | None:
    """Parse the record in the details of a `branch_summary`, which may be any JSON value."""
    if not isinstance(details, dict):
        return None
    found, conflicts = details.get(MERGED_FROM), details.get("conflicts")
    if not isinstance(found, dict) or not isinstance(found.get("entry"), str):
        return None
    brought = found.get("brought")
    return MergeRecord(
        entry=found["entry"],
        into=_text(found.get("into")),
        ancestor=_text(found.get("ancestor")),
        session=_text(found.get("session")),
        how=next((how for how in get_args(MergeMethod) if how == found.get("how")), "summary"),
        brought=brought if isinstance(brought, int) and brought > 0 else 0,
        entries=tuple(id for id in _list(found.get("entries")) if isinstance(id, str)),
        conflicts=tuple(conflict for conflict in _list(conflicts) if isinstance(conflict, dict)),
    )


def find_merges(session: Reader) -> dict[str, MergeRecord]:
    """Merge records of a session by entry id, in file order."""
    journal = session.journal
    nodes: Sequence[int] = range(len(journal))
    if session.dialect.traits.one_line_per_entry:
        nodes = [node for node in nodes if journal.types[node] == "branch_summary"]
    elif not journal.has_bytes(_MARK):
        return {}
    marked = [node for node, raw in zip(nodes, journal.iter_raw(nodes), strict=True) if _MARK in raw]
    merges: dict[str, MergeRecord] = {}
    for node in marked:
        for entry in session.dialect.decode(journal, [node]):
            record = merge_record_of(entry)
            if record is not None:
                merges[journal.tree.ids[node]] = record
    return merges


def find_same_merge(session: Reader, wanted: MergeRecord) -> str | None:
    """The entry of an identical earlier merge, if there is one."""
    return next((id for id, record in find_merges(session).items() if _has_all_of(record, wanted)), None)


def _has_all_of(record: MergeRecord, wanted: MergeRecord) -> bool:
    if (record.into, record.session, record.how) != (wanted.into, wanted.session, wanted.how):
        return False
    return set(wanted.entries) <= set(record.entries) if record.how == "pick" else record.entry == wanted.entry


class MergedHistory(Struct, frozen=True):
    """Everything that the path to an entry contains, directly and through merges."""

    ids: frozenset[str]
    """Entries of the session: on the path, and on every branch that was merged into it."""
    foreign: Mapping[str, frozenset[str]]
    """Session id -> merged tips of that session."""
    picked: Mapping[str | None, frozenset[str]]
    """Session id (None: this one) -> picked entries."""


def merged_history(session: Reader, leaf: str | None, merges: Mapping[str, MergeRecord] | None = None) -> MergedHistory:
    """Find everything that the path to an entry contains, directly and through merges."""
    known = find_merges(session) if merges is None else merges
    ids: set[str] = set()
    foreign: dict[str, set[str]] = {}
    picked: dict[str | None, set[str]] = {}
    pending = [leaf]
    while pending:
        new = [id for id in history_ids(session, pending.pop()) if id not in ids]
        ids.update(new)
        for record in (known[id] for id in new if id in known):
            if record.how == "pick":
                picked.setdefault(record.session, set()).update(record.entries)
            elif record.session is not None:
                foreign.setdefault(record.session, set()).add(record.entry)
            elif record.entry in session:
                pending.append(record.entry)
    return MergedHistory(
        frozenset(ids),
        {name: frozenset(ends) for name, ends in foreign.items()},
        {name: frozenset(entries) for name, entries in picked.items()},
    )


def append_point(session: Reader, leaf: str) -> str:
    """The entry to append to in order to continue after `leaf`: the last one of parallel results."""
    tree = session.journal.tree
    nodes = [node for node in history_nodes(session, leaf) if not is_metadata_id(tree.ids[node])]
    if not nodes or not all(map(_is_result, session.journal.entries([tree.node_of[leaf], nodes[-1]]))):
        return leaf
    return tree.ids[nodes[-1]]


def _is_result(entry: Entry) -> bool:
    return isinstance(entry, MessageEntry) and all(isinstance(message, ToolResult) for message in entry.messages)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
