"""The entries that only one of two branches has, as canonical entries of any dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.branches.merge_records import (
    MergedHistory,
    MergeRecord,
    merge_record_of,
    merged_history,
)
from sessiontree.core.entries import MESSAGE_TYPES, Entry, milliseconds
from sessiontree.core.messages import (
    BranchSummaryText,
    CompactionSummary,
    CustomText,
    Message,
    OtherMessage,
    parse_content,
    parse_message,
)
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.dialects.passthrough import REPORT
from sessiontree.dialects.roles import with_original_role
from sessiontree.session.history import history_ids, history_nodes
from sessiontree.session.reader import Reader


class BranchDelta(Struct, frozen=True):
    """The part of a branch after it diverged from another."""

    session: Reader
    leaf: str | None
    ancestor: str | None
    """The last entry that both branches have."""
    nodes: tuple[int, ...]
    items: tuple[CanonicalEntry, ...]
    lead: tuple[CanonicalEntry, ...] = ()
    """The shared assistant message, if this part starts with results of its calls."""

    @property
    def messages(self) -> list[Message]:
        """Messages of this part, with context edits applied."""
        return messages_in(apply_edits(self.items))

    def entries(self) -> list[Entry]:
        """Entries of this part, parsed from its lines."""
        return self.session.journal.entries(self.nodes)


def find_delta(session: Reader, leaf: str | None, known: AbstractSet[str]) -> BranchDelta:
    """Find the entries in the history of a leaf whose ids are not in `known`."""
    journal = session.journal
    ids = journal.tree.ids
    nodes = history_nodes(session, leaf)
    first = next((at for at, node in enumerate(nodes) if ids[node] not in known), len(nodes))
    begin = first
    # Several lines may form one entry, such as the shards of a response, and the first of them may be shared.
    while 0 < begin < len(nodes) and session.dialect.must_decode_together(journal, nodes[begin - 1], nodes[begin]):
        begin -= 1
    decoded = _decode(session, nodes[begin:])
    entries = [entry for entry in decoded if known.isdisjoint((entry.id, *entry.aliases))]
    lead: list[CanonicalEntry] = []
    if any(map(_is_result, entries[:1])):
        shared = [entry for entry in (*_decode(session, nodes[:begin]), *decoded) if entry not in entries]
        lead = [entry for entry in shared if entry.kind == "message" and not _is_result(entry)][-1:]
    return BranchDelta(
        session=session,
        leaf=leaf,
        ancestor=next((ids[node] for node in reversed(nodes[:first]) if not is_metadata_id(ids[node])), None),
        nodes=tuple(node for node in nodes[first:] if ids[node] not in known),
        items=tuple(entries),
        lead=tuple(lead),
    )


def _decode(session: Reader, nodes: Sequence[int]) -> list[CanonicalEntry]:
    entries = map(with_original_role, session.dialect.decode(session.journal, nodes))
    return [entry for entry in entries if not (entry.kind == "custom" and entry.fields.get("customType") == REPORT)]


def _is_result(entry: CanonicalEntry) -> bool:
    message = entry.fields.get("message")
    return entry.kind == "message" and isinstance(message, dict) and message.get("role") == "toolResult"


def find_deltas(session: Reader, one: str | None, other: str | None) -> tuple[BranchDelta, BranchDelta]:
    """Find the parts of two branches of a session after their common ancestor."""
    ids = [frozenset(history_ids(session, leaf)) for leaf in (one, other)]
    return find_delta(session, one, ids[1]), find_delta(session, other, ids[0])


def find_session_deltas(
    one: Reader, leaf: str | None, other: Reader, other_leaf: str | None
) -> tuple[BranchDelta, BranchDelta]:
    """Find the different parts of branches of two sessions: a fork and its origin share a prefix, others nothing."""
    if is_same(one, other):
        return find_deltas(one, leaf, other_leaf)
    shared = shared_prefix(one, leaf, other, other_leaf)
    return find_delta(one, leaf, shared), find_delta(other, other_leaf, shared)


def is_same(one: Reader, other: Reader) -> bool:
    return one is other or (one.id == other.id and one.location == other.location)


def shared_prefix(one: Reader, leaf: str | None, other: Reader, other_leaf: str | None) -> frozenset[str]:
    """Ids of the entries at the start of both sessions, as in a fork and its origin."""
    pairs = zip(history_ids(one, leaf), history_ids(other, other_leaf), strict=False)
    alike: list[str] = []
    for id, theirs in pairs:
        if id != theirs or one.entry(id) != other.entry(id):
            break
        alike.append(id)
    return frozenset(alike)


def find_unmerged(
    session: Reader, leaf: str | None, source: Reader, source_leaf: str, *, with_picked: bool = False
) -> tuple[BranchDelta, BranchDelta]:
    """Find the entries of `source` that were not merged into `session` yet, and vice versa.

    Unlike `find_deltas` this takes merges into account, in both directions.
    """
    ours = merged_history(session, leaf)
    if is_same(session, source):
        known = ours.ids
        theirs = merged_history(source, source_leaf)
        picked = ours.picked.get(None, frozenset())
        back = find_delta(session, leaf, theirs.ids)
    else:
        beginning = shared_prefix(session, leaf, source, source_leaf)
        taken = [merged_history(source, end).ids for end in ours.foreign.get(source.id, ()) if end in source]
        known = beginning.union(*taken)
        picked = ours.picked.get(source.id, frozenset())
        back = find_delta(session, leaf, beginning)
    side = find_delta(source, source_leaf, known if with_picked else known | picked)
    entries = _without_ours(side.items, ours, None if is_same(session, source) else session.id)
    return msgspec.structs.replace(side, items=entries), back


def _without_ours(
    entries: Sequence[CanonicalEntry], ours: MergedHistory, name: str | None
) -> tuple[CanonicalEntry, ...]:
    """Remove entries copied from our own branch: merge entries, and the messages copied with them."""
    left_out: set[int] = set()
    replayable = [at for at, entry in enumerate(entries) if entry.kind in MESSAGE_TYPES]
    for target, at in enumerate(replayable):
        record = merge_record_of(entries[at])
        if record is not None and record.session == name and _is_taken_from(record, ours):
            # A merge entry comes after the messages that it copied.
            left_out.update(replayable[max(0, target - record.brought) : target + 1])
    return tuple(entry for at, entry in enumerate(entries) if at not in left_out)


def _is_taken_from(record: MergeRecord, ours: MergedHistory) -> bool:
    if record.how == "pick":
        return ours.ids.issuperset(record.entries)
    return record.entry in ours.ids


def apply_edits(entries: Iterable[CanonicalEntry]) -> list[CanonicalEntry]:
    """Apply context edits to canonical entries."""
    listed = list(entries)
    edits = {
        entry.fields.get("targetId"): entry.fields.get("replacement")
        for entry in listed
        if entry.kind == "context_edit"
    }
    if not edits:
        return listed
    found: list[CanonicalEntry] = []
    for entry in listed:
        target = next((id for id in (entry.id, *entry.aliases) if id in edits), None)
        if target is None:
            found.append(entry)
            continue
        replacement = edits[target]
        if isinstance(replacement, dict):
            found.append(_with_content(entry, replacement.get("content")))
    return found


def _with_content(entry: CanonicalEntry, content: Any) -> CanonicalEntry:
    message = entry.fields.get("message")
    if entry.kind == "custom_message":
        return msgspec.structs.replace(entry, fields={**entry.fields, "content": content})
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "toolResult", "custom"):
        return entry
    if isinstance(content, str) and message["role"] in ("assistant", "toolResult"):
        content = [{"type": "text", "text": content}]
    return msgspec.structs.replace(entry, fields={**entry.fields, "message": {**message, "content": content}})


def message_of(entry: CanonicalEntry) -> Message | None:
    """The message of a canonical entry, if it has one."""
    fields, time = entry.fields, milliseconds(entry.timestamp)
    match entry.kind:
        case "message":
            message = parse_message(fields.get("message"))
            return None if isinstance(message, OtherMessage) and message.is_empty else message
        case "custom_message":
            return CustomText(
                timestamp=time,
                custom_type=_text(fields.get("customType")),
                content=parse_content(fields.get("content")),
                display=fields.get("display") is not False,
            )
        case "branch_summary" if summary := _text(fields.get("summary")):
            return BranchSummaryText(timestamp=time, summary=summary, from_id=_text(fields.get("fromId")) or None)
        case "compaction" if summary := _text(fields.get("summary")):
            return CompactionSummary(timestamp=time, summary=summary)
        case _:
            return None


def messages_in(entries: Iterable[CanonicalEntry]) -> list[Message]:
    return [message for entry in entries if (message := message_of(entry)) is not None]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
