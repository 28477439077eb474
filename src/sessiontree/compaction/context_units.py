"""What a compaction works on: the entries that a context is made of, in the context's order, with what each says.

A session of any dialect comes out as the same plain values, so that everything behind this module is arithmetic. Where
the entries of a path are its lines (Pi, oh-my-pi, native), entries that say nothing are listed too, since a cut may
stand at one; elsewhere only those that speak, since the others may be parts of a message.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import overload

from msgspec import Struct

from sessiontree.compaction.token_estimate import MEASURED, PI, Estimator, Size, context_size, estimated_size, is_larger
from sessiontree.compaction.touched_files import FileLists
from sessiontree.core.context import Context, milliseconds
from sessiontree.core.entries import (
    BranchSummary,
    Compaction,
    ContextEdit,
    CustomMessage,
    Entry,
    MessageEntry,
)
from sessiontree.core.lazy_messages import LazyMessages
from sessiontree.core.messages import Assistant, Message, System
from sessiontree.session.session import Session

STOOD_AT = "stoodAt"
"""The field of a compaction's details that says where the session stood."""

_PLAUSIBLE = 2
"""An estimate is not off by more than this factor."""

_STEP = 64

_TOLD = frozenset({"message", "custom_message", "branch_summary", "context_edit"})
"""Entries of which it matters what they say, even when they say nothing in the context."""


class Unit(Struct, frozen=True, gc=False):
    """One entry of a context and what it says there: nothing, for labels, changes of model, edited-out messages."""

    id: str
    kind: str
    messages: tuple[Message, ...] = ()
    is_omitted: bool = False
    """It says something, and an edit of the context leaves it out."""
    is_answer: bool = False
    """It is, or was before it was left out, an answer of the model."""
    edits: str | None = None
    """For an edit that puts something in the place of an entry: that entry."""


class LazyUnits(Sequence[Unit]):
    """Units of entries that say one message each, which is decoded when the unit is looked at."""

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
            places = range(len(self))[at]
            assert places.step == 1
            return LazyUnits(self._ids[at], self.messages.part(places.start, max(places.start, places.stop)))
        return Unit(self._ids[at], "message", (self.messages[at],))


class Earlier(Struct, frozen=True):
    """The compaction that a context begins with."""

    id: str
    summary: str
    files: FileLists
    timestamp: str = ""
    stands_at: str | None = None
    """The entry that its message comes from, where that is another one than the compaction's own."""
    stood_at: str | None = None
    """Where the session stood when it was compacted, where the compaction's parent does not tell."""


class Projection(Struct, frozen=True):
    """A context as units, behind the summary that it begins with."""

    leaf: str | None
    units: Sequence[Unit]
    earlier: Earlier | None
    messages: Sequence[Message]
    """All messages of the context, the summary's too."""
    trusted_from: int
    """The first message whose usage tells of the context as it is now."""
    ends_compacted: bool
    """Whether the path ends with a compaction."""

    def ids_of(self, kind: str, end: int) -> list[str]:
        """The entries of a type other than messages among the first units."""
        return [] if isinstance(self.units, LazyUnits) else [unit.id for unit in self.units[:end] if unit.kind == kind]

    def size(self, estimate: Estimator = PI) -> Size:
        """As Pi sees it: whatever the provider counted last is believed."""
        return context_size(self.messages, self.trusted_from, estimate)

    def likely_size(self, estimate: Estimator = MEASURED) -> Size:
        """The same, unless the provider counted so little that it cannot have counted all (cached input, say)."""
        size = self.size(estimate)
        if not size.counted or not is_larger(self.messages, size.tokens * _PLAUSIBLE):
            return size
        return Size(0, estimated_size(self.messages, estimate))


def project(session: Session, leaf: str | None) -> Projection:
    """The context of an entry as units."""
    context = session.context(leaf) if leaf is not None else session.branch(None).context()
    ids = context.path
    journal = session.journal
    types, node_of = journal.types, journal.tree.node_of
    kinds = [types[node_of[id]] for id in (ids if session.dialect.one_line_per_entry else ids[-1:])]
    earlier = _find_earlier(session, ids, kinds, frozenset(context.sources))
    if session.dialect.one_line_per_entry:
        units: Sequence[Unit] = _plain_units(session, ids, kinds, _by_source(context), earlier)
    else:
        units = _told_units(context, frozenset({earlier.id, earlier.stands_at} if earlier is not None else ()))
    return Projection(
        leaf=leaf,
        units=units,
        earlier=earlier,
        messages=context.messages,
        trusted_from=_trusted_from(session, context, kinds, earlier),
        ends_compacted=bool(kinds) and kinds[-1] == "compaction",
    )


def _told_units(context: Context, beginning: frozenset[str | None]) -> Sequence[Unit]:
    """The units of a context behind the entries that it begins with."""
    messages, sources = context.messages, context.sources
    first = next((at for at, source in enumerate(sources) if source not in beginning), len(sources))
    ids = sources[first:]
    if isinstance(messages, LazyMessages) and len({*ids}) == len(ids) and beginning.isdisjoint(ids):
        return LazyUnits(ids, messages.part(first, len(messages)))
    return tuple([Unit(id, "message", said) for id, said in _by_source(context).items() if id not in beginning])


def _by_source(context: Context) -> dict[str, tuple[Message, ...]]:
    """What each entry of a context says in it."""
    spoken: dict[str, tuple[Message, ...]] = dict(zip(context.sources, zip(context.messages), strict=True))
    if len(spoken) == len(context.sources):
        return spoken
    spoken = {}
    for message, source in zip(context.messages, context.sources, strict=True):
        spoken[source] = (*spoken.get(source, ()), message)
    return spoken


def _find_earlier(session: Session, ids: Sequence[str], kinds: Sequence[str], spoken: Container[str]) -> Earlier | None:
    if session.dialect.one_line_per_entry:
        at = _last(kinds, "compaction")
        if at < 0 or ids[at] not in spoken:  # none, or a reset behind it
            return None
        (entry,) = session.entries([ids[at]])
        assert isinstance(entry, Compaction)
        files = FileLists() if entry.from_hook else FileLists.of_details(entry.details)
        return Earlier(entry.id, entry.summary, files, entry.timestamp)
    return _told_earlier(session, ids, spoken) if ids else None


def _told_earlier(session: Session, ids: Sequence[str], spoken: Container[str]) -> Earlier | None:
    """The compaction that the lines at the beginning of a path tell of, in shared words."""
    journal = session.journal
    nodes = [node for id in ids[:2] if (node := session.node_of(id)) is not None]
    first = next(iter(session.dialect.decode(journal, nodes)), None)
    if first is None or first.kind != "compaction":
        return None
    summary, details = first.fields.get("summary"), first.fields.get("details")
    files = FileLists() if first.fields.get("fromHook") else FileLists.of_details(details)
    stands_at = ids[1] if ids[0] not in spoken and len(ids) > 1 and ids[1] in first.aliases else None
    stood_at = details.get(STOOD_AT) if isinstance(details, dict) else None
    text = summary if isinstance(summary, str) else ""
    return Earlier(ids[0], text, files, first.timestamp, stands_at, stood_at if isinstance(stood_at, str) else None)


def _plain_units(
    session: Session,
    ids: Sequence[str],
    kinds: Sequence[str],
    spoken: Mapping[str, tuple[Message, ...]],
    earlier: Earlier | None,
) -> Sequence[Unit]:
    compaction_at = ids.index(earlier.id) if earlier is not None else -1
    first = _first(session, ids, kinds, compaction_at, spoken)
    unheard = _unheard(session, ids[first:], kinds[first:], spoken)
    units: list[Unit] = []
    for at, (id, kind) in enumerate(zip(ids[first:], kinds[first:], strict=True), first):
        said = spoken.get(id)
        if at == compaction_at:
            continue
        if said is not None:
            units.append(Unit(id, kind, said, False, isinstance(said[0], Assistant)))
            continue
        entry = unheard.get(id)
        if at < compaction_at and _is_system(entry):
            continue  # a compaction carries the system prompt itself
        units.append(_silent_unit(id, kind, entry))
    return tuple(units)


def _unheard(
    session: Session, ids: Sequence[str], kinds: Sequence[str], spoken: Mapping[str, object]
) -> dict[str, Entry]:
    """The entries that say something, but not in the context."""
    silent = [id for id, kind in zip(ids, kinds, strict=True) if id not in spoken and kind in _TOLD]
    return dict(zip(silent, session.entries(silent), strict=True))


def _first(
    session: Session, ids: Sequence[str], kinds: Sequence[str], compaction_at: int, spoken: Mapping[str, object]
) -> int:
    """Where on a path the context begins."""
    if compaction_at < 0:
        if "compaction" not in kinds and "reset_boundary" not in kinds:
            return 0
        return next((at for at, id in enumerate(ids) if id in spoken), len(ids))
    (entry,) = session.entries([ids[compaction_at]])
    bound = entry.first_kept_entry_id if isinstance(entry, Compaction) else None
    return ids.index(bound) if bound is not None and bound in ids[:compaction_at] else compaction_at


def _silent_unit(id: str, kind: str, entry: Entry | None) -> Unit:
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


def _trusted_from(session: Session, context: Context, kinds: Sequence[str], earlier: Earlier | None) -> int:
    """The first message behind everything that changed what is sent of the messages before it."""
    if session.dialect.one_line_per_entry:
        changed_at = max(_last(kinds, "context_edit"), _last(kinds, "compaction"))
        if changed_at < 0:
            return 0
        behind = set(context.path[changed_at + 1 :])
        return next((at for at, source in enumerate(context.sources) if source in behind), len(context.sources))
    # What a compaction kept was said before it, or stands once more with its time.
    since = milliseconds(earlier.timestamp) if earlier is not None else None
    if since is None:
        return 0
    sources = context.sources
    for start in range(0, len(sources), _STEP):  # what was said since stands near the beginning
        for at, entry in enumerate(session.entries(list(sources[start : start + _STEP])), start):
            time = milliseconds(entry.timestamp)
            if time is not None and time > since:
                return at
    return len(sources)


def _last(kinds: Sequence[str], kind: str) -> int:
    """The last position of a type, or -1."""
    return len(kinds) - 1 - kinds[::-1].index(kind) if kind in kinds else -1
