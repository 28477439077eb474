"""The context as units: its entries in order, each with its messages. Compaction works on these values only.

Units are the same for every dialect. In formats with one line per entry (Pi, oh-my-pi, native), entries without
messages are units too, because a cut may be at one of them. In other formats only entries with messages are units,
because other lines may be parts of a message.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import overload

from msgspec import Struct

from sessiontree.compaction.token_estimate import MEASURED, PI, Estimator, Size, context_size, estimated_size, is_larger
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.context import Context
from sessiontree.core.entries import (
    MESSAGE_TYPES,
    BranchSummary,
    Compaction,
    ContextEdit,
    CustomMessage,
    Entry,
    MessageEntry,
    milliseconds,
)
from sessiontree.core.messages import Assistant, LazyMessages, Message, System
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.session.session import Session

LEAF_BEFORE_KEY = "stoodAt"
"""Field of a compaction's details: the current entry before it."""

SUMMARIZER_KEY = "summarizer"
"""Field of a compaction's details: the name of the summarizer. Compactions of other programs do not have it."""

_PLAUSIBLE = 2
"""Largest error factor of an estimate."""

_STEP = 64

_CONTENT_TYPES = MESSAGE_TYPES | {"context_edit"}
"""Types of entries that have to be read even if they add no message to the context."""


class Unit(Struct, frozen=True, gc=False):
    """An entry of a context and its messages there: none for labels, model changes and edited-out messages."""

    id: str
    kind: str
    messages: tuple[Message, ...] = ()
    is_omitted: bool = False
    """A context edit removes its message."""
    is_answer: bool = False
    """It is an assistant message, even if an edit removes it."""
    edits: str | None = None
    """For a context edit with a replacement: the edited entry."""


class LazyUnits(Sequence[Unit]):
    """Units of entries with one message each, decoded on access."""

    def __init__(self, ids: Sequence[str], messages: LazyMessages) -> None:
        self._ids = ids
        self.messages = messages

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, at: int) -> Unit: ...
    @overload
    def __getitem__(self, at: slice) -> LazyUnits: ...
    def __getitem__(self, at: int | slice) -> Unit | LazyUnits:
        if isinstance(at, slice):
            indexes = range(len(self))[at]
            assert indexes.step == 1
            return LazyUnits(self._ids[at], self.messages.part(indexes.start, max(indexes.start, indexes.stop)))
        return Unit(self._ids[at], "message", (self.messages[at],))


class PreviousCompaction(Struct, frozen=True):
    """The compaction at the start of a context."""

    id: str
    summary: str
    files: FileLists
    timestamp: str = ""
    message_id: str | None = None
    """The entry with the summary's message, if it is not the compaction entry itself."""
    leaf_before: str | None = None
    """The current entry before the compaction, if it is not the compaction's parent."""
    is_own: bool = False
    """Whether this package wrote it, and not the session's agent."""


class ContextUnits(Struct, frozen=True):
    """A context as units, without the summary at its start."""

    leaf: str | None
    units: Sequence[Unit]
    previous: PreviousCompaction | None
    messages: Sequence[Message]
    """All messages of the context, including the summary."""
    trusted_from: int
    """Index of the first message whose usage still counts for the current context."""
    ends_compacted: bool
    """Whether the path ends with a compaction."""

    def ids_of(self, kind: str, end: int) -> list[str]:
        """Entries of a type other than `message` among the first `end` units."""
        return [] if isinstance(self.units, LazyUnits) else [unit.id for unit in self.units[:end] if unit.kind == kind]

    def size(self, estimate: Estimator = PI) -> Size:
        """Size as Pi computes it, which always trusts the provider's last count."""
        return context_size(self.messages, self.trusted_from, estimate)

    def plausible_size(self, estimate: Estimator = MEASURED) -> Size:
        """The same, unless the provider counted so little that it cannot have counted all (cached input, say)."""
        size = self.size(estimate)
        if not size.counted or not is_larger(self.messages, size.tokens * _PLAUSIBLE):
            return size
        return Size(0, estimated_size(self.messages, estimate))


def build_units(session: Session, leaf: str | None) -> ContextUnits:
    """Build the units of an entry's context."""
    context = session.context(leaf) if leaf is not None else session.branch(None).context()
    ids = context.path
    journal = session.journal
    types, node_of = journal.types, journal.tree.node_of
    kinds = [types[node_of[id]] for id in (ids if session.dialect.traits.one_line_per_entry else ids[-1:])]
    previous = _find_previous(session, ids, kinds, frozenset(context.sources))
    if session.dialect.traits.one_line_per_entry:
        units: Sequence[Unit] = _line_units(session, ids, kinds, _by_source(context), previous)
    else:
        units = _decoded_units(context, frozenset({previous.id, previous.message_id} if previous is not None else ()))
    return ContextUnits(
        leaf=leaf,
        units=units,
        previous=previous,
        messages=context.messages,
        trusted_from=_trusted_from(session, context, kinds, previous),
        ends_compacted=bool(kinds) and kinds[-1] == "compaction",
    )


def _decoded_units(context: Context, beginning: frozenset[str | None]) -> Sequence[Unit]:
    """Units of a context, without the entries at its start."""
    messages, sources = context.messages, context.sources
    first = next((at for at, source in enumerate(sources) if source not in beginning), len(sources))
    ids = sources[first:]
    if isinstance(messages, LazyMessages) and len({*ids}) == len(ids) and beginning.isdisjoint(ids):
        return LazyUnits(ids, messages.part(first, len(messages)))
    return tuple([Unit(id, "message", messages) for id, messages in _by_source(context).items() if id not in beginning])


def _by_source(context: Context) -> dict[str, tuple[Message, ...]]:
    """Messages of a context by their entry."""
    by_source: dict[str, tuple[Message, ...]] = dict(zip(context.sources, zip(context.messages), strict=True))
    if len(by_source) == len(context.sources):
        return by_source
    by_source = {}
    for message, source in zip(context.messages, context.sources, strict=True):
        by_source[source] = (*by_source.get(source, ()), message)
    return by_source


def _find_previous(
    session: Session, ids: Sequence[str], kinds: Sequence[str], by_source: Container[str]
) -> PreviousCompaction | None:
    if session.dialect.traits.one_line_per_entry:
        at = _last(kinds, "compaction")
        if at < 0 or ids[at] not in by_source:  # none, or a reset after it
            return None
        (entry,) = session.entries([ids[at]])
        assert isinstance(entry, Compaction)
        files = FileLists() if entry.from_hook else FileLists.of_details(entry.details)
        is_own = session.dialect.name == DEFAULT_DIALECT or _names_summarizer(entry.details)
        return PreviousCompaction(entry.id, entry.summary, files, entry.timestamp, is_own=is_own)
    return decode_previous(session, ids, by_source) if ids else None


def decode_previous(session: Session, ids: Sequence[str], by_source: Container[str]) -> PreviousCompaction | None:
    """Decode the compaction from the first lines of a path."""
    journal = session.journal
    nodes = [node for id in ids[:2] if (node := session.node_of(id)) is not None]
    first = next(iter(session.dialect.decode(journal, nodes)), None)
    if first is None or first.kind != "compaction":
        return None
    summary, details = first.fields.get("summary"), first.fields.get("details")
    files = FileLists() if first.fields.get("fromHook") else FileLists.of_details(details)
    message_id = ids[1] if ids[0] not in by_source and len(ids) > 1 and ids[1] in first.aliases else None
    leaf_before = details.get(LEAF_BEFORE_KEY) if isinstance(details, dict) else None
    text = summary if isinstance(summary, str) else ""
    return PreviousCompaction(
        ids[0],
        text,
        files,
        first.timestamp,
        message_id,
        leaf_before if isinstance(leaf_before, str) else None,
        _names_summarizer(details),
    )


def _names_summarizer(details: object) -> bool:
    """Whether a compaction names its summarizer, as those of this package do."""
    return isinstance(details, Mapping) and SUMMARIZER_KEY in details


def _line_units(
    session: Session,
    ids: Sequence[str],
    kinds: Sequence[str],
    by_source: Mapping[str, tuple[Message, ...]],
    previous: PreviousCompaction | None,
) -> Sequence[Unit]:
    compaction_at = ids.index(previous.id) if previous is not None else -1
    first = _first(session, ids, kinds, compaction_at, by_source)
    omitted = _omitted_entries(session, ids[first:], kinds[first:], by_source)
    units: list[Unit] = []
    for at, (id, kind) in enumerate(zip(ids[first:], kinds[first:], strict=True), first):
        messages = by_source.get(id)
        if at == compaction_at:
            continue
        if messages is not None:
            units.append(Unit(id, kind, messages, False, isinstance(messages[0], Assistant)))
            continue
        entry = omitted.get(id)
        if at < compaction_at and _is_system(entry):
            continue  # the compaction entry contains the system prompt
        units.append(_empty_unit(id, kind, entry))
    return tuple(units)


def _omitted_entries(
    session: Session, ids: Sequence[str], kinds: Sequence[str], by_source: Mapping[str, object]
) -> dict[str, Entry]:
    """Entries with content that adds no message to the context."""
    silent = [id for id, kind in zip(ids, kinds, strict=True) if id not in by_source and kind in _CONTENT_TYPES]
    return dict(zip(silent, session.entries(silent), strict=True))


def _first(
    session: Session, ids: Sequence[str], kinds: Sequence[str], compaction_at: int, by_source: Mapping[str, object]
) -> int:
    """Position on the path at which the context starts."""
    if compaction_at < 0:
        if "compaction" not in kinds and "reset_boundary" not in kinds:
            return 0
        return next((at for at, id in enumerate(ids) if id in by_source), len(ids))
    (entry,) = session.entries([ids[compaction_at]])
    bound = entry.first_kept_entry_id if isinstance(entry, Compaction) else None
    return ids.index(bound) if bound is not None and bound in ids[:compaction_at] else compaction_at


def _empty_unit(id: str, kind: str, entry: Entry | None) -> Unit:
    match entry:
        case ContextEdit():
            return Unit(id, kind, edits=None if entry.replacement is None else entry.target_id)
        case MessageEntry():
            return Unit(id, kind, is_omitted=True, is_answer=isinstance(entry.message, Assistant))
        case CustomMessage():
            return Unit(id, kind, is_omitted=True)
        case BranchSummary():
            return Unit(id, kind, is_omitted=bool(entry.summary))
        case _:
            return Unit(id, kind)


def _is_system(entry: Entry | None) -> bool:
    return isinstance(entry, MessageEntry) and isinstance(entry.message, System)


def _trusted_from(session: Session, context: Context, kinds: Sequence[str], previous: PreviousCompaction | None) -> int:
    """Index of the first message after the last change to what is sent of earlier messages."""
    if session.dialect.traits.one_line_per_entry:
        changed_at = max(_last(kinds, "context_edit"), _last(kinds, "compaction"))
        if changed_at < 0:
            return 0
        after = set(context.path[changed_at + 1 :])
        return next((at for at, source in enumerate(context.sources) if source in after), len(context.sources))
    # Kept messages are older than the compaction, or repeated with its time.
    since = milliseconds(previous.timestamp) if previous is not None else None
    if since is None:
        return 0
    sources = context.sources
    for start in range(0, len(sources), _STEP):  # the first newer message is usually near the start
        for at, entry in enumerate(session.entries(list(sources[start : start + _STEP])), start):
            time = milliseconds(entry.timestamp)
            if time is not None and time > since:
                return at
    return len(sources)


def _last(kinds: Sequence[str], kind: str) -> int:
    """Last position of a type, or -1."""
    return len(kinds) - 1 - kinds[::-1].index(kind) if kind in kinds else -1
