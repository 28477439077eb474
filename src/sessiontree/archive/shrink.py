"""Shrink a session file: remove repeated lines, move large content to blobs, and drop dead branches.

The archive keeps the whole old file, and the context of every remaining branch is compared before the file is replaced.
A child of a removed entry becomes a child of the nearest remaining ancestor, just as clients would resolve it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from msgspec import Struct

from sessiontree.archive.archive import SessionArchive
from sessiontree.archive.catalog import ArchiveItem
from sessiontree.archive.rewrite import ByteChange, check_unchanged, line_range, removal_changes, rewrite
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.contract import AS_CLIENT, is_metadata_id
from sessiontree.session.blob_refs import BLOB_POINTERS, externalize, may_hold_large_content
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session

PutBlob = Callable[[bytes], str]

_KEPT_ON_DEAD_BRANCHES = frozenset({"session_info", "label"})
_BATCH = 256


class Saving(Struct, frozen=True):
    """What one kind of change saves."""

    what: str
    lines: int
    size: int


class ShrinkPlan(Struct, frozen=True):
    """What shrinking would do."""

    before: int
    after: int
    savings: tuple[Saving, ...]
    changes: tuple[ByteChange, ...]
    removed: frozenset[int]

    @property
    def is_empty(self) -> bool:
        return not self.changes


def plan_shrink(session: Session, *, dead_branches: bool = False, put: PutBlob | None = None) -> ShrinkPlan:
    """Plan what can be saved. Without `put` no blob is written, and the plan is the same to the byte."""
    journal = session.journal
    removed: set[int] = set()
    savings: list[Saving] = []
    kinds: list[tuple[str, Callable[[Session], set[int]]]] = [
        ("repeated progress", lambda session: session.dialect.client.find_redundant_lines(session.journal)),
        ("duplicate snapshots", find_duplicate_snapshots),
    ]
    if dead_branches:
        kinds.append(("dead branches", find_dead_nodes))
    for what, find in kinds:
        found = find(session) - removed
        if found:
            size = sum(end - start for start, end in (line_range(session, node) for node in found))
            savings.append(Saving(what, len(found), size))
            removed |= found
    smaller = _externalize_large_content(journal, removed, put or _blob_name)
    if smaller:
        size = sum(journal.span(node).end - journal.span(node).start - len(raw) for node, raw in smaller.items())
        savings.append(Saving("inline images and long texts", len(smaller), size))
    changes = line_changes(session, removed, smaller)
    after = journal.size + sum(len(change.new) - (change.end - change.start) for change in changes)
    return ShrinkPlan(journal.size, after, tuple(savings), tuple(changes), frozenset(removed))


def shrink(
    archive: SessionArchive, session: Session, *, dead_branches: bool = False
) -> tuple[ShrinkPlan, ArchiveItem | None]:
    """Shrink a session; returns the plan and the archive item that undoes it, None if nothing could be saved."""
    blobs = session.journal.blobs
    plan = plan_shrink(session, dead_branches=dead_branches, put=blobs.put if blobs is not None else None)
    if plan.is_empty:
        return plan, None

    def check(after: Reader) -> None:
        check_unchanged(session, after, remaining_leaves(session, plan.removed))

    return plan, rewrite(archive, session, plan.changes, "shrink", check)


def remaining_leaves(session: Reader, removed: frozenset[int] | set[int]) -> list[str]:
    """The tips of the branches that remain."""
    return [leaf for leaf in session.leaves() if session.node_of(leaf) not in removed]


def line_changes(
    session: Session, removed: set[int], lines: Mapping[int, bytes], root: str | None = None
) -> list[ByteChange]:
    """The changes that remove some lines, replace others, and give orphaned lines a remaining parent.

    A line that loses all of its ancestors becomes a child of `root`.
    """
    journal, tree = session.journal, session.journal.tree
    changes = removal_changes(session, removed)
    parents = tree.parents()
    new = dict(lines)
    for node, parent in enumerate(parents):
        if node in removed or parent is None or parent not in removed:
            continue
        while parent is not None and parent in removed:
            parent = parents[parent]
        raw = new.get(node) or next(journal.iter_raw([node]))
        new[node] = journal.dialect.with_ids(raw, parent=root if parent is None else tree.ids[parent])
    for node, raw in new.items():
        span = journal.span(node)
        changes.append(ByteChange(span.start, span.end, raw))
    return sorted(changes)


# What can be removed


def find_duplicate_snapshots(session: Session) -> set[int]:
    """Snapshot lines that occur again, byte for byte, further down."""
    journal, types = session.journal, session.dialect.client.snapshot_types
    if not types:
        return set()
    nodes = [node for node, id in enumerate(journal.tree.ids) if is_metadata_id(id) or journal.types[node] in types]
    last: dict[bytes, int] = {}
    found: set[int] = set()
    for start in range(0, len(nodes), _BATCH):
        batch = nodes[start : start + _BATCH]
        for node, raw in zip(batch, journal.iter_raw(batch), strict=True):
            if b"snapshot" not in raw or journal.fields_of(raw).get("type") not in types:
                continue
            digest = hashlib.sha256(raw).digest()
            if digest in last:
                found.add(last[digest])
            last[digest] = node
    return found


def find_dead_nodes(session: Session) -> set[int]:
    """Nodes that branch off the conversation and lead neither to the current entry nor to a labeled one.

    Bookkeeping entries stay, and so do separate trees: the lines of sub-agents may be such.
    """
    journal = session.journal
    kept: set[int] = set()
    for end in (session.leaf, *session.labels):
        if end is not None and end in session:
            kept.update(journal.dialect.find_history(journal, session.node_of(end), AS_CLIENT))
            kept.update(journal.tree.path(session.node_of(end)))
    if not kept:
        return set()
    always_kept = _KEPT_ON_DEAD_BRANCHES | journal.dialect.traits.bookkeeping
    parents = journal.tree.parents()
    # Memoized per node: walking to the root from every node of a long dead branch would be quadratic.
    descends: dict[int, bool] = {}

    def descends_from_kept(node: int) -> bool:
        walked: list[int] = []
        current: int | None = node
        while current is not None and current not in descends and current not in kept:
            walked.append(current)
            current = parents[current]
        answer = current is not None and (current in kept or descends[current])
        descends.update(dict.fromkeys(walked, answer))
        return answer

    return {
        node
        for node, kind in enumerate(journal.types)
        if node not in kept
        and kind not in always_kept
        and not is_metadata_id(journal.tree.ids[node])
        and descends_from_kept(node)
    }


def _externalize_large_content(journal: Journal, removed: set[int], put: PutBlob) -> dict[int, bytes]:
    """Node -> its line with images and long texts moved to blobs, for the formats that have blobs."""
    dialect = journal.dialect
    has_blobs = dialect.traits.uses_home_blobs or dialect.blob_folder(journal.location) is not None
    if not has_blobs or journal.blobs is None:
        return {}
    found: dict[int, bytes] = {}
    nodes = [node for node in range(len(journal)) if node not in removed]
    for start in range(0, len(nodes), _BATCH):
        batch = nodes[start : start + _BATCH]
        for node, raw in zip(batch, journal.iter_raw(batch), strict=True):
            if not may_hold_large_content(raw):
                continue
            fields = journal.fields_of(raw)
            small = externalize(fields, _blob_name)
            if (
                small == fields
                or BLOB_POINTERS in fields
                or (BLOB_POINTERS in small and not dialect.traits.uses_home_blobs)
            ):
                continue  # nothing large, or long text, which only our own blobs hold
            found[node] = render_json(small if put is _blob_name else externalize(fields, put))
    return found


def _blob_name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
