"""Reducing a huge session to what tells about it, its last part, and a pointer to the archive.

Where a compaction stands in for the older part, what a model is sent stays the same. Where there is none, it becomes
shorter; that is said before it is done. Sessions of Claude Code and Neovate (see `foreign_tail`) are then left alone:
their programs would take what is left for all there ever was. The whole session is in the archive.
"""

from __future__ import annotations

from msgspec import Struct

from sessiontree.archive.archive import Archive, hash_of
from sessiontree.archive.catalog import Item
from sessiontree.archive.foreign_truncate import kept_nodes, pointer_line
from sessiontree.archive.rewrite import Change, check_same, line_of, rewrite
from sessiontree.archive.shrink import changed_lines, check_size
from sessiontree.core.ids import new_entry_id, timestamp
from sessiontree.core.jsonio import JsonObject
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.dialects.side_branches import Sides
from sessiontree.errors import UsageError
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session

LEAST = 50_000_000
"""From how many bytes on a session may be reduced to its tail."""
TAIL = 1_000_000
"""About how many bytes stay when no compaction says where the tail begins."""
POINTER = "sessiontree.archived"
"""The custom entry that says where the rest is."""

_FOREIGN = frozenset({"claude", "neovate"})
_STATE = frozenset({"model_change", "thinking_level_change", "mode_change", "session_info", "config", "worktree"})


class Tail(Struct, frozen=True):
    """What would stay."""

    before: int
    after: int
    entries: int
    is_same: bool
    """Whether a model is sent the same as before."""
    removed: frozenset[int]
    changes: tuple[Change, ...]


def plan_tail(session: Session, *, least: int = LEAST, tail: int = TAIL, sha256: str | None = None) -> Tail:
    """What reducing a session to its tail would leave."""
    journal = session.journal
    is_foreign = journal.dialect.name in _FOREIGN
    if session.leaf is None or not (is_foreign or (journal.dialect.one_line_per_entry and journal.header_span)):
        raise UsageError(f"{session.location}: sessions of {journal.dialect.name} cannot be reduced to their tail")
    check_size(session, least)
    data = {"sha256": sha256 or "0" * 64, "size": journal.size, "entries": len(journal)}
    return _foreign_tail(session, data) if is_foreign else _native_tail(session, data, tail)


def _foreign_tail(session: Session, data: JsonObject) -> Tail:
    journal = session.journal
    kept = kept_nodes(session)
    removed = set(range(len(journal))) - kept
    if not removed:
        return Tail(journal.size, journal.size, len(kept), True, frozenset(), ())
    first = min(node for node in kept if not is_metadata_id(journal.tree.ids[node]))
    behind = line_of(session, first)[1]
    pointer = Change(behind, behind, pointer_line(session, data, POINTER) + b"\n")
    # What was kept of the older part hangs on the first line, not on nothing: a root in the middle looks like damage.
    changes = [pointer, *changed_lines(session, removed, {}, root=journal.tree.ids[first])]
    return _tail(session, kept, removed, changes, is_same=True)


def _native_tail(session: Session, data: JsonObject, tail: int) -> Tail:
    """Only formats with a header line and custom entries have one."""
    journal = session.journal
    assert journal.header_span is not None
    path = journal.tree.path(session.node_of(session.leaf))
    first, is_same = _beginning(session, path, tail)
    kept = {node for at, node in enumerate(path) if at >= first or journal.types[node] in _STATE}
    kept |= {node for node, kind in enumerate(journal.types) if kind in _STATE or kind in journal.dialect.bookkeeping}
    kept |= {max((node for node, kind in enumerate(journal.types) if kind == "file_snapshot"), default=path[-1])}
    if Sides(journal).start_of(path[-1]) is not None:  # then it stands there only because someone moved there
        kept |= {
            node for node, kind in enumerate(journal.types) if kind == "leaf" and journal.tree.parent(node) in kept
        }
    removed = set(range(len(journal))) - kept
    pointer = new_entry_id(journal.tree.node_of)
    line = journal.dialect.render_entry("custom", pointer, None, timestamp(), {"customType": POINTER, "data": data})
    behind = journal.header_span.end + 1
    changes = [Change(behind, behind, line + b"\n"), *changed_lines(session, removed, {}, root=pointer)]
    return _tail(session, kept, removed, changes, is_same=is_same)


def _tail(session: Session, kept: set[int], removed: set[int], changes: list[Change], *, is_same: bool) -> Tail:
    before = session.journal.size
    after = before + sum(len(change.new) - (change.end - change.start) for change in changes)
    return Tail(before, after, len(kept), is_same, frozenset(removed), tuple(sorted(changes)))


def _beginning(session: Session, path: list[int], tail: int) -> tuple[int, bool]:
    """The position on the path where the tail begins, and whether a model is then sent the same as before."""
    journal = session.journal
    sources = {session.node_of(source) for source in session.context().sources if source in session}
    needed = [at for at, node in enumerate(path) if node in sources]
    if needed and any(journal.types[node] == "message" for node in path[: needed[0]]):
        return needed[0], True
    size, best = 0, len(path) - 1
    for at in range(len(path) - 1, -1, -1):
        place = journal.span(path[at])
        size += place.end - place.start
        if size > tail and best < len(path) - 1:
            break
        if journal.types[path[at]] == "message" and _is_prompt(session, path[at]):
            best = at
    return best, False


def _is_prompt(session: Session, node: int) -> bool:
    (fields,) = session.journal.fields([node])
    message = fields.get("message")
    return isinstance(message, dict) and message.get("role") == "user"


def reduce_to_tail(
    archive: Archive, session: Session, *, least: int = LEAST, tail: int = TAIL
) -> tuple[Tail, Item | None]:
    """Carry it out: what stays, and the item in the archive that undoes it."""
    plan = plan_tail(session, least=least, tail=tail, sha256=hash_of(session.location, session.journal.size))
    if not plan.removed:
        return plan, None

    def check(after: Reader) -> None:
        check_same(session, after, [session.leaf] if plan.is_same and session.leaf else [])

    return plan, rewrite(archive, session, plan.changes, "to-tail", check)
