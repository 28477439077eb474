"""Repair a file so that its client loads the complete history: make a plan, then write it.

Unchanged lines are copied byte for byte. Bytes that cannot stay go to a sidecar file with their offsets. The content
of entries never changes, only their position (a line of their own), their parent, and a duplicate id.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from sessiontree.core.entries import ForkOrigin, Header
from sessiontree.core.ids import new_entry_id, new_session_id, timestamp
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.errors import DamagedError, ReadOnlyError
from sessiontree.repair.findings import stale_leaf
from sessiontree.session.journal import Journal
from sessiontree.session.line_offsets import LineSpan
from sessiontree.session.session import Session
from sessiontree.stores.atomic_files import create_file
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.memory import MemoryStore

_REMOVED = frozenset({"torn-tail", "undecodable", "glued-stub", "not-an-object"})


class Change(Struct, frozen=True):
    """One change: the bytes at `start` before and after. None means nothing."""

    start: int
    line: int
    rule: str
    before: bytes | None
    after: bytes | None


class Plan(Struct, frozen=True):
    """The changes of a repair and the resulting file."""

    location: str
    size: int
    changes: tuple[Change, ...]
    content: bytes
    """The new content; empty if the repair writes a copy."""
    copy: SessionMeta | None = None
    """The new session that the repair writes, for clients whose files must not be changed."""

    @property
    def is_empty(self) -> bool:
        return not self.changes


class _Piece(Struct, frozen=True):
    """A part of the file that is kept: the header, an entry, or a fragment."""

    start: int
    end: int
    line: int
    kind: Literal["header", "entry", "fragment"]
    node: int = -1


def plan_repair(session: Session) -> Plan:
    """Plan a repair. Writes nothing; the plan of a healthy file is empty."""
    journal = session.journal
    if journal.dialect.traits.repairs_as_copy:
        return _plan_copy(session)
    data = read_bytes(journal.store, 0, journal.size)
    changes: list[Change] = []
    edits = _edited_lines(journal, data, changes)
    output: list[bytes] = []
    if journal.dialect.traits.has_header and journal.header is None:
        line = journal.dialect.render_header(_new_header(journal))
        changes.append(Change(0, 1, "no-header", None, line))
        output.append(line + b"\n")
    for piece in _header_first(_pieces(journal), data, changes):
        raw = data[piece.start : piece.end]
        output.append(edits.get(piece.start, raw) if piece.kind == "entry" else raw)
        output.append(b"\n")
    leaf_line = _leaf_line(session)
    if leaf_line is not None:
        changes.append(Change(journal.size, 0, "stale-leaf", None, leaf_line))
        output.append(leaf_line + b"\n")
    changes += [*_removed_fragments(journal), *_line_changes(session, data)]
    if not changes:
        return Plan(journal.location, journal.size, (), data)
    content = b"".join(output)
    _check(journal, content, added=int(leaf_line is not None))
    return Plan(journal.location, journal.size, tuple(sorted(changes, key=lambda change: change.start)), content)


def _plan_copy(session: Session) -> Plan:
    """Plan a new session with everything that can be read; the damaged file is not changed."""
    journal = session.journal
    changes = [Change(0, 1, "no-header", None, b"(a new header)")] if journal.header is None and len(journal) else []
    top = journal.header_span or LineSpan(0, 0, 1)
    for found in journal.dialect.find_problems(journal):
        span = top if found.node is None else journal.span(found.node)
        raw = b"" if found.node is None else next(journal.iter_lines([found.node]))
        is_repeated = found.rule == "duplicate-ordinal"
        changes.append(Change(span.start, span.line, found.rule, raw if is_repeated else None, found.effect.encode()))
    changes += _removed_fragments(journal)
    for problem in session.problems:
        if problem.kind in ("nul-run", "bom", "blank-line", "fused-records", "no-final-newline", "late-header"):
            changes.append(Change(problem.start, problem.line, problem.kind, None, problem.action.encode()))
    ordered = tuple(sorted(changes, key=lambda change: change.start))
    meta = SessionMeta(
        new_session_id(),
        timestamp(),
        session.cwd,
        session.given_name,
        forked_from=ForkOrigin(session.id) if session.id else None,
        origin=journal.location,
    )
    return Plan(journal.location, journal.size, ordered, b"", meta)


def _header_first(pieces: list[_Piece], data: bytes, changes: list[Change]) -> list[_Piece]:
    """Move a header that comes after entries to the top, where the client looks for it."""
    late = next((piece for piece in pieces[1:] if piece.kind == "header"), None)
    if late is None or all(piece.kind == "fragment" for piece in pieces[: pieces.index(late)]):
        return pieces
    changes.append(Change(late.start, late.line, "late-header", None, data[late.start : late.end]))
    return [late, *(piece for piece in pieces if piece is not late)]


def _leaf_line(session: Session) -> bytes | None:
    """A new last line on the branch of the newest messages, when bookkeeping on another branch hides them."""
    journal = session.journal
    if not journal.dialect.traits.is_writable or not any(
        finding.rule.id == "stale-leaf" for finding in stale_leaf(journal)
    ):
        return None
    newest = max(node for node, kind in enumerate(journal.types) if kind == "message")
    id = new_entry_id(journal.tree.node_of)
    fields = {"customType": "sessiontree.leaf", "data": {"targetId": journal.tree.ids[newest]}}
    return journal.dialect.render_entry("custom", id, journal.tree.ids[newest], timestamp(), fields)


def _pieces(journal: Journal) -> list[_Piece]:
    pieces: list[_Piece] = []
    if journal.header_span is not None:
        span = journal.header_span
        pieces.append(_Piece(span.start, span.end, span.line, "header"))
    for node in range(len(journal)):
        span = journal.span(node)
        pieces.append(_Piece(span.start, span.end, span.line, "entry", node))
    pieces += [
        _Piece(fragment.start, fragment.end, fragment.line, "fragment")
        for fragment in journal.fragments
        if fragment.kind not in _REMOVED
    ]
    return sorted(pieces, key=lambda piece: piece.start)


def _edited_lines(journal: Journal, data: bytes, changes: list[Change]) -> dict[int, bytes]:
    """Lines with a new parent or id, by their offset."""
    edits: dict[int, bytes] = {}
    dialect, tree = journal.dialect, journal.tree

    def edit(node: int, rule: str, after: bytes) -> None:
        span = journal.span(node)
        before = edits.get(span.start, data[span.start : span.end])
        if after != before:
            edits[span.start] = after
            changes.append(Change(span.start, span.line, rule, before, after))

    def line(node: int) -> bytes:
        span = journal.span(node)
        return edits.get(span.start, data[span.start : span.end])

    for reparenting in dialect.find_reparentings(journal):
        edit(
            reparenting.node,
            reparenting.rule,
            dialect.with_ids(line(reparenting.node), parent=tree.ids[reparenting.parent]),
        )
    for node in journal.generated_ids:
        parent = tree.parent(node)
        parent_id = None if parent is None else tree.ids[parent]
        edit(node, "no-id", dialect.with_ids(line(node), id=tree.ids[node], parent=parent_id))
    for problem in tree.problems():
        node = problem.node
        if problem.kind == "duplicate-id":
            edit(node, problem.kind, dialect.with_ids(line(node), id=_new_id(journal, node)))
        elif problem.kind in ("self-parent", "cycle"):
            before = _entry_before(journal, node)
            parent_id = None if before is None else tree.ids[before]
            edit(node, problem.kind, dialect.with_ids(line(node), parent=parent_id))
    return edits


def _entry_before(journal: Journal, node: int) -> int | None:
    for earlier in range(node - 1, -1, -1):
        if journal.types[earlier] not in journal.dialect.traits.bookkeeping:
            return earlier
    return None


def _new_id(journal: Journal, node: int) -> str:
    """A new id made from the entry's offset and id, so that repairing the same file twice gives the same result."""
    seed = f"{journal.span(node).start} {journal.tree.ids[node]}".encode("utf-8", "surrogatepass")
    id = hashlib.sha256(seed).hexdigest()[:8]
    while id in journal.tree.node_of:
        id = hashlib.sha256(id.encode()).hexdigest()[:8]
    return id


def _new_header(journal: Journal) -> Header:
    """Make a header for a session without one: the id from the file's name, the time from the first entry, if any."""
    stem = os.path.splitext(os.path.basename(journal.location))[0]
    times = (entry.timestamp for entry in journal.entries(range(len(journal))[:1]))
    return Header(
        id=stem.partition("_")[2] or new_session_id(),
        version=journal.dialect.traits.version,
        timestamp=next(times, "") or timestamp(),
        cwd="",
    )


def _removed_fragments(journal: Journal) -> Iterator[Change]:
    for fragment in journal.fragments:
        if fragment.kind in _REMOVED:
            yield Change(fragment.start, fragment.line, fragment.kind, fragment.raw, None)


def _line_changes(session: Session, data: bytes) -> Iterator[Change]:
    """Changes of line structure: split fused lines, remove empty bytes, end the last line."""
    for problem in session.problems:
        before = data[problem.start : problem.end]
        if problem.kind in ("nul-run", "bom", "blank-line") or problem.kind == "fused-records":
            yield Change(problem.start, problem.line, problem.kind, before, None)
        elif problem.kind == "no-final-newline":
            yield Change(problem.end, problem.line, problem.kind, None, b"\n")


def _check(journal: Journal, content: bytes, *, added: int) -> None:
    """Check that the new file has all entries and none of the repaired damage."""
    after = Journal(MemoryStore(content, journal.location), journal.dialect, journal.find_repository)
    after.refresh()
    expected = len(journal) + added
    if len(after) != expected or any(fragment.kind in _REMOVED for fragment in after.fragments):
        raise DamagedError(
            f"{journal.location}: repair failed its check: {len(after)} entries instead of {expected}; "
            "nothing was written"
        )


def carry_out(plan: Plan, session: Session, out: str | None = None) -> tuple[str, str | None, str | None]:
    """Write a plan and return the paths of the repaired file, the sidecar and the backup (None if not needed).

    With `out` the original is not changed; else it is replaced atomically and kept as a backup.
    """
    if plan.is_empty:
        return plan.location, None, None
    if session.journal.size != plan.size:
        raise ReadOnlyError(f"{plan.location}: changed since the repair was planned; try again")
    if plan.copy is not None:
        return _write_copy(plan.copy, session, out), None, None
    # The sidecar first: a crash after it leaves the original file and a harmless copy, never lost bytes.
    sidecar = _write_sidecar(plan, session, out)
    if out is not None:
        create_file(os.path.abspath(out), [plan.content])
        return os.path.abspath(out), sidecar, None
    return plan.location, sidecar, session.journal.store.replace([plan.content], expected_size=plan.size)


def _write_copy(meta: SessionMeta, session: Session, out: str | None) -> str:
    """Write a new session with the history of the damaged one, where its client finds it."""
    journal = session.journal
    leaf = journal.dialect.find_leaf(journal, session.read_options)
    lines = (line + b"\n" for line in journal.dialect.encode_repaired(journal, leaf, meta))
    if out is not None:
        create_file(os.path.abspath(out), lines)
        return os.path.abspath(out)
    store = session.repository.new(meta.id, timestamp=meta.timestamp, cwd=meta.cwd)
    store.create(lines)
    return store.location


def _write_sidecar(plan: Plan, session: Session, out: str | None) -> str | None:
    """Write the removed and changed bytes with their offsets, to a file or to a document of the session's repository.

    Never overwrites an earlier sidecar.
    """
    removed = [change for change in plan.changes if change.before is not None]
    if not removed:
        return None
    digest = hashlib.sha256(b"".join(change.before or b"" for change in removed)).hexdigest()[:8]
    lines = [
        render_json(
            {
                "offset": change.start,
                "line": change.line,
                "rule": change.rule,
                "bytes": base64.b64encode(change.before or b"").decode("ascii"),
                "text": (change.before or b"").decode("utf-8", "replace"),
            }
        )
        + b"\n"
        for change in removed
    ]
    if out is None and session.ref.home:
        name, documents = f"quarantine-{session.ref.name}-{digest}.ndjson", session.repository.documents
        documents.update(name, lambda earlier: earlier or b"".join(lines))
        return documents.location(name)
    path = f"{os.path.realpath(out or plan.location)}.quarantine-{digest}.ndjson"
    if not os.path.exists(path):  # else the same bytes were removed before
        create_file(path, lines)
    return path
