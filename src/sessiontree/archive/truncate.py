"""Truncate a huge session to its last part, with a pointer to the archive, which keeps the whole file.

If a compaction replaces the older messages, the context of a model stays the same; otherwise it gets shorter, and the
plan reports that. If the client loads only what follows the last compaction, as Claude Code and Neovate do, a session
without one is rejected: the client loads its complete conversation, and would silently continue without the beginning.
"""

from __future__ import annotations

from msgspec import Struct

from sessiontree.archive.archive import SessionArchive, hash_file
from sessiontree.archive.catalog import ArchiveItem
from sessiontree.archive.rewrite import ByteChange, check_unchanged, line_range, rewrite
from sessiontree.archive.shrink import line_changes
from sessiontree.core.ids import new_entry_id, timestamp
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.dialects.side_branches import SideBranches
from sessiontree.errors import UsageError
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session

MIN_SIZE = 50_000_000
"""Smaller sessions are not truncated."""
TAIL_SIZE = 1_000_000
"""About how many bytes stay if there is no compaction to start at."""
POINTER = "sessiontree.archived"
"""The type of the custom entry that points to the archive."""

_STATE = frozenset({"model_change", "thinking_level_change", "mode_change", "session_info", "config", "worktree"})


class TruncatePlan(Struct, frozen=True):
    """What truncating would leave."""

    before: int
    after: int
    entries: int
    is_same: bool
    """Whether the context stays the same."""
    removed: frozenset[int]
    changes: tuple[ByteChange, ...]


def plan_truncate(
    session: Session, *, min_size: int = MIN_SIZE, tail_size: int = TAIL_SIZE, sha256: str | None = None
) -> TruncatePlan:
    """Plan what would stay of a session."""
    journal = session.journal
    is_foreign = journal.dialect.client.loads_from_compaction
    if session.leaf is None or not (is_foreign or (journal.dialect.traits.one_line_per_entry and journal.header_span)):
        raise UsageError(f"{session.location}: {journal.dialect.name} sessions cannot be truncated")
    if journal.size < min_size:
        raise UsageError(
            f"{session.location}: {journal.size:,} bytes; only sessions of at least {min_size:,} bytes are truncated"
        )
    data = {"sha256": sha256 or "0" * 64, "size": journal.size, "entries": len(journal)}
    return _plan_foreign(session, data) if is_foreign else _plan_native(session, data, tail_size)


def _plan_foreign(session: Session, data: JsonObject) -> TruncatePlan:
    journal = session.journal
    kept = _find_kept_lines(session)
    removed = set(range(len(journal))) - kept
    if not removed:
        return TruncatePlan(journal.size, journal.size, len(kept), True, frozenset(), ())
    first = min(node for node in kept if not is_metadata_id(journal.tree.ids[node]))
    end = line_range(session, first)[1]
    pointer = ByteChange(end, end, _pointer_line(session, data) + b"\n")
    # Older lines that stay become children of the first line: a second root in the middle would look like damage.
    changes = [pointer, *line_changes(session, removed, {}, root=journal.tree.ids[first])]
    return _build_plan(session, kept, removed, changes, is_same=True)


def _find_kept_lines(session: Session) -> set[int]:
    journal = session.journal
    path = journal.dialect.find_path(journal, session.node_of(session.leaf), session.read_options)
    models = (message.model for message in session.context().messages if isinstance(message, Assistant))
    kept = journal.dialect.client.find_kept_lines(journal, path, models)
    if kept is None:
        raise UsageError(
            f"{session.location}: without a compaction {journal.dialect.name} needs the whole conversation; "
            "compact it there first, or use `sessiontree shrink` without --to-tail"
        )
    return kept


def _pointer_line(session: Session, data: JsonObject) -> bytes:
    """The pointer entry, encoded as the dialect encodes entries that its client does not know."""
    meta = SessionMeta(session.id, timestamp(), session.cwd)
    encoder = session.dialect.encoder(meta, session.journal)
    entry = CanonicalEntry("custom", {"customType": POINTER, "data": data}, timestamp=timestamp())
    (line,) = encoder.encode(entry, None).lines
    return line


def _plan_native(session: Session, data: JsonObject, tail_size: int) -> TruncatePlan:
    """Plan for formats with a header line and custom entries."""
    journal = session.journal
    assert journal.header_span is not None
    path = journal.tree.path(session.node_of(session.leaf))
    first, is_same = _find_start(session, path, tail_size)
    kept = {node for position, node in enumerate(path) if position >= first or journal.types[node] in _STATE}
    kept |= {
        node for node, kind in enumerate(journal.types) if kind in _STATE or kind in journal.dialect.traits.bookkeeping
    }
    kept |= {max((node for node, kind in enumerate(journal.types) if kind == "file_snapshot"), default=path[-1])}
    if SideBranches(journal).start_of(path[-1]) is not None:
        # A side branch only has the current entry because it was moved there, so those `leaf` entries must stay.
        kept |= {
            node for node, kind in enumerate(journal.types) if kind == "leaf" and journal.tree.parent(node) in kept
        }
    removed = set(range(len(journal))) - kept
    pointer = new_entry_id(journal.tree.node_of)
    line = journal.dialect.render_entry("custom", pointer, None, timestamp(), {"customType": POINTER, "data": data})
    end = journal.header_span.end + 1
    changes = [ByteChange(end, end, line + b"\n"), *line_changes(session, removed, {}, root=pointer)]
    return _build_plan(session, kept, removed, changes, is_same=is_same)


def _build_plan(
    session: Session, kept: set[int], removed: set[int], changes: list[ByteChange], *, is_same: bool
) -> TruncatePlan:
    before = session.journal.size
    after = before + sum(len(change.new) - (change.end - change.start) for change in changes)
    return TruncatePlan(before, after, len(kept), is_same, frozenset(removed), tuple(sorted(changes)))


def _find_start(session: Session, path: list[int], tail_size: int) -> tuple[int, bool]:
    """The position on the path where the tail starts, and whether the context stays the same."""
    journal = session.journal
    sources = {session.node_of(source) for source in session.context().sources if source in session}
    needed = [position for position, node in enumerate(path) if node in sources]
    if needed and any(journal.types[node] == "message" for node in path[: needed[0]]):
        return needed[0], True
    size, start = 0, len(path) - 1
    for position in range(len(path) - 1, -1, -1):
        span = journal.span(path[position])
        size += span.end - span.start
        if size > tail_size and start < len(path) - 1:
            break
        if journal.types[path[position]] == "message" and _is_prompt(session, path[position]):
            start = position
    return start, False


def _is_prompt(session: Session, node: int) -> bool:
    (fields,) = session.journal.fields([node])
    message = fields.get("message")
    return isinstance(message, dict) and message.get("role") == "user"


def truncate(
    archive: SessionArchive, session: Session, *, min_size: int = MIN_SIZE, tail_size: int = TAIL_SIZE
) -> tuple[TruncatePlan, ArchiveItem | None]:
    """Truncate a session; returns the plan and the archive item that undoes it."""
    sha256 = hash_file(session.location, session.journal.size)
    plan = plan_truncate(session, min_size=min_size, tail_size=tail_size, sha256=sha256)
    if not plan.removed:
        return plan, None

    def check(after: Reader) -> None:
        check_unchanged(session, after, [session.leaf] if plan.is_same and session.leaf else [])

    return plan, rewrite(archive, session, plan.changes, "to-tail", check)
