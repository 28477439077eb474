"""Which lines stay when a session is truncated to its last compaction: the part that several dialects share.

A client that loads only what follows the last compaction still needs the metadata lines and the first lines: they have
the folder, the date and, without a title, the name of the session. Unknown line types always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sessiontree.core.jsonio import JsonObject
from sessiontree.dialects.contract import IndexedLines, is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH

_SNAPSHOTS = frozenset({"file-history-snapshot", "file-history-delta", "file_snapshot"})
_SESSION_TYPES = frozenset({"config", "custom", "session_info", "worktree"})
_MAX_MESSAGES = 32
"""Number of messages searched for the first prompt."""


def find_head(lines: IndexedLines, boundary: int) -> set[int]:
    """Find the first line of the conversation, the first prompt, and the entry at which the session was forked."""
    in_tree = (node for node in range(boundary) if not is_metadata_id(lines.tree.ids[node]))
    first = next(in_tree, None)
    if first is None:
        return set()
    found = {first}
    messages = [node for node in range(first, boundary) if lines.types[node] == "message"][:_MAX_MESSAGES]
    for node, fields in zip(messages, lines.fields(messages), strict=True):
        if "user" in (fields.get("type"), fields.get("role")) and not fields.get("isMeta"):
            found.add(node)
            break
    origin = lines.header.forked_from if lines.header is not None else None
    fork = lines.tree.node_of.get(origin.entry) if origin is not None and origin.entry is not None else None
    return found if fork is None or fork >= boundary else found | {fork}


def iter_metadata(
    lines: IndexedLines,
    boundary: int,
    kept: set[int],
    *,
    repeated: frozenset[str] = frozenset(),
    logs: frozenset[str] = frozenset(),
) -> Iterator[int]:
    """Iterate over the metadata lines that stay.

    Before the boundary, only the last line of each type in `repeated` stays, and none of a type in `logs`.
    """
    ids = {lines.tree.ids[node] for node in kept}
    last: dict[str, int] = {}
    for node, id in enumerate(lines.tree.ids):
        kind = lines.types[node]
        if not is_metadata_id(id):
            continue
        if kind in repeated and node < boundary:
            last[kind] = node
        elif kind in logs and node < boundary:
            continue
        elif _refers_to_kept(lines.fields([node])[0], kind, lambda id: id in ids):
            yield node
    yield from last.values()


def _refers_to_kept(fields: JsonObject, kind: str, is_kept: Callable[[object], bool]) -> bool:
    """Whether the entry that a line refers to stays, or the line is about the whole session."""
    if kind in _SNAPSHOTS and fields.get("type") != PASSTHROUGH:
        return any(is_kept(fields.get(name)) for name in ("messageId", "snapshotMessageId"))
    if fields.get("type") != PASSTHROUGH:
        return True
    entry = fields.get("entry")
    target = entry.get("targetId") if isinstance(entry, dict) else None
    if target is not None:
        return is_kept(target)
    return kind in _SESSION_TYPES or fields.get("parent") is None or is_kept(fields.get("parent"))
