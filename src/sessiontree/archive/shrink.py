"""Making a huge session file small: what repeats, what is too large for a line, and branches that nobody stands on.

Everything that leaves the file is in the archive. The conversation of every branch that stays is compared before the
file is replaced. An entry whose parent leaves the file hangs on the nearest one that stays, as the owners read it, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from sessiontree.archive.archive import Archive
from sessiontree.archive.catalog import Item
from sessiontree.archive.rewrite import Change, check_same, line_of, rewrite
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.contract import AS_CLIENT, is_metadata_id
from sessiontree.errors import UsageError
from sessiontree.session.blob_refs import BLOB_POINTERS, externalize, may_hold_large_content
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session

Put = Callable[[bytes], str]

_SNAPSHOTS = frozenset({"file-history-snapshot", "attribution-snapshot", "snapshot"})
_KEPT_ON_DEAD_BRANCHES = frozenset({"session_info", "label"})
_STEP = 256


class Saving(Struct, frozen=True):
    """What one kind of change saves."""

    what: str
    lines: int
    size: int


class Shrinking(Struct, frozen=True):
    """What shrinking would do."""

    before: int
    after: int
    savings: tuple[Saving, ...]
    changes: tuple[Change, ...]
    removed: frozenset[int]

    @property
    def is_empty(self) -> bool:
        return not self.changes


def plan_shrinking(session: Session, *, dead_branches: bool = False, put: Put | None = None) -> Shrinking:
    """What can be saved. Without `put` nothing is written, and the plan is the same to the byte."""
    journal = session.journal
    removed: set[int] = set()
    savings: list[Saving] = []
    kinds: list[tuple[str, Callable[[], set[int]]]] = [
        ("repeated progress", lambda: repeated_progress(session)),
        ("duplicate snapshots", lambda: duplicate_snapshots(session)),
    ]
    if dead_branches:
        kinds.append(("dead branches", lambda: dead_nodes(session)))
    for what, find in kinds:
        found = find() - removed
        if found:
            size = sum(end - start for start, end in (line_of(session, node) for node in found))
            savings.append(Saving(what, len(found), size))
            removed |= found
    smaller = _without_large_content(journal, removed, put or _name_of)
    if smaller:
        size = sum(journal.span(node).end - journal.span(node).start - len(raw) for node, raw in smaller.items())
        savings.append(Saving("inline images and long texts", len(smaller), size))
    changes = changed_lines(session, removed, smaller)
    after = journal.size + sum(len(change.new) - (change.end - change.start) for change in changes)
    return Shrinking(journal.size, after, tuple(savings), tuple(changes), frozenset(removed))


def shrink(archive: Archive, session: Session, *, dead_branches: bool = False) -> tuple[Shrinking, Item | None]:
    """Carry it out: what was done, and the item in the archive that undoes it; None when there was nothing to do."""
    blobs = session.journal.blobs
    plan = plan_shrinking(session, dead_branches=dead_branches, put=blobs.put if blobs is not None else None)
    if plan.is_empty:
        return plan, None

    def check(after: Reader) -> None:
        check_same(session, after, leaves_left(session, plan.removed))

    return plan, rewrite(archive, session, plan.changes, "shrink", check)


def leaves_left(session: Reader, removed: frozenset[int] | set[int]) -> list[str]:
    """The ends of the branches that stay."""
    return [leaf for leaf in session.leaves() if session.node_of(leaf) not in removed]


def changed_lines(
    session: Session, removed: set[int], lines: Mapping[int, bytes], root: str | None = None
) -> list[Change]:
    """The changes that take entries out and put new lines in place of others; children are hung up anew.

    What loses all of its ancestors hangs on `root`.
    """
    journal, tree = session.journal, session.journal.tree
    changes = [Change(*line_of(session, node)) for node in sorted(removed)]
    parents = tree.parents()
    new = dict(lines)
    for node, parent in enumerate(parents):
        if node in removed or parent is None or parent not in removed:
            continue
        while parent is not None and parent in removed:
            parent = parents[parent]
        raw = new.get(node) or next(journal.iter_raw([node]))
        new[node] = journal.dialect.with_parent(raw, root if parent is None else tree.ids[parent])
    for node, raw in new.items():
        place = journal.span(node)
        changes.append(Change(place.start, place.end, raw))
    return sorted(changes)


# What can go


def repeated_progress(session: Session) -> set[int]:
    """Claude Code's lines about the progress of a call, but for the last one about each."""
    journal = session.journal
    if journal.dialect.name != "claude":
        return set()
    nodes = [node for node, kind in enumerate(journal.types) if kind == "progress"]
    last: dict[tuple[str, ...], int] = {}
    for node, fields in _iter_fields(journal, nodes):
        data = fields.get("data")
        kind = data.get("type") if isinstance(data, dict) else None
        last[str(fields.get("toolUseID")), str(fields.get("parentToolUseID")), str(kind)] = node
    return set(nodes) - set(last.values())


def duplicate_snapshots(session: Session) -> set[int]:
    """Lines with snapshots that stand there again, byte for byte, further down."""
    journal = session.journal
    nodes = [
        node for node, id in enumerate(journal.tree.ids) if is_metadata_id(id) or journal.types[node] in _SNAPSHOTS
    ]
    last: dict[bytes, int] = {}
    found: set[int] = set()
    for start in range(0, len(nodes), _STEP):
        step = nodes[start : start + _STEP]
        for node, raw in zip(step, journal.iter_raw(step), strict=True):
            if b"snapshot" not in raw or journal.fields_of(raw).get("type") not in _SNAPSHOTS:
                continue
            digest = hashlib.sha256(raw).digest()
            if digest in last:
                found.add(last[digest])
            last[digest] = node
    return found


def dead_nodes(session: Session) -> set[int]:
    """What hangs on the conversation but belongs to no branch that is kept.

    Kept are the branch where the session stands, and those that lead to an entry with a label. What says something
    about the session stays, and so do trees with roots of their own: sub-agents' lines may be such.
    """
    journal = session.journal
    kept: set[int] = set()
    for end in (session.leaf, *session.labels):
        if end is not None and end in session:
            kept.update(journal.dialect.find_history(journal, session.node_of(end), AS_CLIENT))
            kept.update(journal.tree.path(session.node_of(end)))
    if not kept:
        return set()
    quiet = _KEPT_ON_DEAD_BRANCHES | journal.dialect.bookkeeping
    parents = journal.tree.parents()
    hangs: dict[int, bool] = {}

    def hangs_on_kept(node: int) -> bool:
        walked: list[int] = []
        at: int | None = node
        while at is not None and at not in hangs and at not in kept:
            walked.append(at)
            at = parents[at]
        answer = at is not None and (at in kept or hangs[at])
        hangs.update(dict.fromkeys(walked, answer))
        return answer

    return {
        node
        for node, kind in enumerate(journal.types)
        if node not in kept and kind not in quiet and not is_metadata_id(journal.tree.ids[node]) and hangs_on_kept(node)
    }


def _without_large_content(journal: Journal, removed: set[int], put: Put) -> dict[int, bytes]:
    """Lines with images and long texts in blobs instead, for the formats that have blobs."""
    if journal.dialect.name not in ("native", "omp") or journal.blobs is None:
        return {}
    found: dict[int, bytes] = {}
    nodes = [node for node in range(len(journal)) if node not in removed]
    for start in range(0, len(nodes), _STEP):
        step = nodes[start : start + _STEP]
        for node, raw in zip(step, journal.iter_raw(step), strict=True):
            if not may_hold_large_content(raw):
                continue
            fields = journal.fields_of(raw)
            small = externalize(fields, _name_of)
            if (
                small == fields
                or BLOB_POINTERS in fields
                or (BLOB_POINTERS in small and journal.dialect.name != "native")
            ):
                continue  # nothing large, or large text, which only the native format has blobs for
            found[node] = render_json(small if put is _name_of else externalize(fields, put))
    return found


def _name_of(data: bytes) -> str:
    """What a blob would be called."""
    return hashlib.sha256(data).hexdigest()


def _iter_fields(journal: Journal, nodes: Sequence[int]) -> Iterable[tuple[int, dict[str, object]]]:
    for start in range(0, len(nodes), _STEP):
        step = nodes[start : start + _STEP]
        yield from zip(step, journal.fields(step), strict=True)


def check_size(session: Session, least: int) -> None:
    """Only huge sessions are reduced to their tail."""
    if session.journal.size < least:
        raise UsageError(
            f"{session.location}: has {session.journal.size:,} bytes; only sessions of {least:,} bytes and more are "
            "reduced to their tail"
        )
