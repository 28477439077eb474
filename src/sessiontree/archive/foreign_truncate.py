"""Which lines of a huge Claude Code or Neovate session stay when it is reduced to its tail.

Both programs load what follows the last compaction and no more. So there must be one, and then stay: the lines that
its context is made of, the first lines (they tell folder, date, origin and, without a title, the name), and what is
said of the session. Types of lines that we do not know stay, all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sessiontree.core.ids import timestamp
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant
from sessiontree.dialects.canonical import CanonicalEntry, SessionMeta
from sessiontree.dialects.claude.records import SYNTHETIC
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.dialects.neovate.records import is_compaction
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.errors import UsageError
from sessiontree.session.session import Session

_REPEATED = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "atis-latch",
        "cost-state",
        "custom-title",
        "isolation-latch",
        "last-prompt",
        "mode",
        "permission-mode",
        "tag",
        "tools-used",
        "worktree-state",
    }
)
"""Lines that Claude Code writes again and again: of those before the compaction, the last one says it all."""
_LOGS = frozenset(
    {"api-request", "api-request-blob", "api-request-shape", "attribution-snapshot", "progress", "queue-operation"}
)
"""Lines that Claude Code writes and does not need to go on."""
_SNAPSHOTS = frozenset({"file-history-snapshot", "file-history-delta", "file_snapshot"})
_OF_SESSION = frozenset({"config", "custom", "session_info", "worktree"})
_FIRST = 32
"""Among how many messages the first prompt is looked for."""
_MODEL_WINDOW = 256
"""How many lines before a compaction Claude Code's model is looked for."""


def kept_nodes(session: Session) -> set[int]:
    """The lines that stay; `UsageError` when all of the conversation is needed."""
    journal = session.journal
    path = journal.dialect.find_path(journal, session.node_of(session.leaf), session.read_options)
    if not path or not _is_boundary(session, path[0]):
        raise UsageError(
            f"{session.location}: no compaction stands in for its older part, so {journal.dialect.name} needs all of "
            "the conversation; nothing was done. Compact it there first; `sessiontree shrink` without --to-tail takes "
            "out what repeats"
        )
    kept = {*path, *_head(session, path[0])}
    model = _earlier_model(session, path[0])
    if model is not None:
        kept.add(model)
    return kept | set(_iter_asides(session, path[0], kept))


def pointer_line(session: Session, data: JsonObject, kind: str) -> bytes:
    """A line that says where the rest is, in the way of the format for what its owner has no line for."""
    start = SessionMeta(session.id, timestamp(), session.cwd)
    encoder = session.dialect.encoder(start, session.journal)
    written = encoder.encode(CanonicalEntry("custom", {"customType": kind, "data": data}, timestamp=timestamp()), None)
    (line,) = written.lines
    return line


def _is_boundary(session: Session, node: int) -> bool:
    journal = session.journal
    if journal.dialect.name == "claude":
        return journal.types[node] == "compaction"
    return journal.tree.parent(node) is None and is_compaction(journal.fields([node])[0])


def _head(session: Session, boundary: int) -> set[int]:
    """The first line of the conversation, the first prompt, and the line where the session was forked."""
    journal = session.journal
    placed = (node for node in range(boundary) if not is_metadata_id(journal.tree.ids[node]))
    first = next(placed, None)
    if first is None:
        return set()
    found = {first}
    messages = [node for node in range(first, boundary) if journal.types[node] == "message"][:_FIRST]
    for node, fields in zip(messages, journal.fields(messages), strict=True):
        if "user" in (fields.get("type"), fields.get("role")) and not fields.get("isMeta"):
            found.add(node)
            break
    origin = session.header.forked_from
    copied = journal.tree.node_of.get(origin.entry) if origin is not None and origin.entry is not None else None
    return found if copied is None or copied >= boundary else found | {copied}


def _earlier_model(session: Session, boundary: int) -> int | None:
    """The last answer before the compaction, if none behind it says which model the session has."""
    journal = session.journal
    if journal.dialect.name != "claude" or any(
        isinstance(message, Assistant) and message.model not in (None, "", SYNTHETIC)
        for message in session.context().messages
    ):
        return None
    before = range(max(0, boundary - _MODEL_WINDOW), boundary)
    nodes = [node for node in before if journal.types[node] == "message"]
    for node, fields in zip(reversed(nodes), reversed(journal.fields(nodes)), strict=True):
        message = fields.get("message")
        model = message.get("model") if isinstance(message, dict) else None
        if model and model != SYNTHETIC and fields.get("isSidechain") is not True:
            return node
    return None


def _iter_asides(session: Session, boundary: int, kept: set[int]) -> Iterator[int]:
    """The lines beside the conversation that stay."""
    journal = session.journal
    ids = {journal.tree.ids[node] for node in kept}
    last: dict[str, int] = {}
    for node, id in enumerate(journal.tree.ids):
        kind = journal.types[node]
        if not is_metadata_id(id):
            continue
        if kind in _REPEATED and node < boundary:
            last[kind] = node
        elif kind in _LOGS and node < boundary:
            continue
        elif _is_about_kept(journal.fields([node])[0], kind, lambda name: name in ids):
            yield node
    yield from last.values()


def _is_about_kept(fields: JsonObject, kind: str, is_kept: Callable[[object], bool]) -> bool:
    """Whether what a line is about stays, or it is about all of the session."""
    if kind in _SNAPSHOTS and fields.get("type") != PASSTHROUGH:
        return any(is_kept(fields.get(name)) for name in ("messageId", "snapshotMessageId"))
    if fields.get("type") != PASSTHROUGH:
        return True
    inside = fields.get("entry")
    target = inside.get("targetId") if isinstance(inside, dict) else None
    if target is not None:
        return is_kept(target)
    return kind in _OF_SESSION or fields.get("parent") is None or is_kept(fields.get("parent"))
