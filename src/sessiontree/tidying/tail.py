"""Reducing a huge session to what tells about it, its last part, and a pointer to the archive.

Where a compaction stands in for the older part, what a model is sent stays the same. Where there is none, it becomes
shorter; that is said before it is done. The whole session is in the archive.
"""

from __future__ import annotations

from msgspec import Struct

from sessiontree.errors import UsageError
from sessiontree.ids import new_entry_id, timestamp
from sessiontree.reader import Reader
from sessiontree.session import Session
from sessiontree.tidying.archive import Archive, hash_of
from sessiontree.tidying.index import Item
from sessiontree.tidying.rewriting import Change, check_same, rewrite
from sessiontree.tidying.shrinking import changed_lines, check_size

LEAST = 50_000_000
"""From how many bytes on a session may be reduced to its tail."""
TAIL = 1_000_000
"""About how many bytes stay when no compaction says where the tail begins."""
POINTER = "sessiontree.archived"
"""The custom entry that says where the rest is."""

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
    """What reducing a session to its tail would leave. Only formats with a header line and custom entries have one."""
    journal = session.journal
    if not journal.dialect.writes_plainly or journal.header_place is None or session.leaf is None:
        raise UsageError(f"{session.location}: sessions of {journal.dialect.name} cannot be reduced to their tail")
    check_size(session, least)
    path = journal.tree.path(session.node_of(session.leaf))
    first, is_same = _beginning(session, path, tail)
    kept = {node for at, node in enumerate(path) if at >= first or journal.types[node] in _STATE}
    kept |= {node for node, kind in enumerate(journal.types) if kind in _STATE or kind in journal.dialect.bookkeeping}
    removed = set(range(len(journal))) - kept
    pointer = new_entry_id(journal.tree.node_of)
    data = {"sha256": sha256 or "0" * 64, "size": journal.size, "entries": len(journal)}
    line = journal.dialect.render_entry("custom", pointer, None, timestamp(), {"customType": POINTER, "data": data})
    behind = journal.header_place.end + 1
    changes = [Change(behind, behind, line + b"\n"), *changed_lines(session, removed, {}, root=pointer)]
    after = journal.size + sum(len(change.new) - (change.end - change.start) for change in changes)
    return Tail(journal.size, after, len(kept), is_same, frozenset(removed), tuple(sorted(changes)))


def _beginning(session: Session, path: list[int], tail: int) -> tuple[int, bool]:
    """The position on the path where the tail begins, and whether a model is then sent the same as before."""
    journal = session.journal
    sources = {session.node_of(source) for source in session.context().sources if source in session}
    needed = [at for at, node in enumerate(path) if node in sources]
    if needed and any(journal.types[node] == "message" for node in path[: needed[0]]):
        return needed[0], True
    size, best = 0, len(path) - 1
    for at in range(len(path) - 1, -1, -1):
        place = journal.place(path[at])
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
