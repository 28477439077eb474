"""What one branch has that another has not, told in shared words, whatever the dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.branches.merge_records import Join, Taken, history_ids, history_nodes, join_of, taken_by
from sessiontree.branches.tips import SPEAKING
from sessiontree.conversion.roles import with_original_role
from sessiontree.conversion.walk import REPORT
from sessiontree.core.context import milliseconds
from sessiontree.core.entries import Entry
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
from sessiontree.session.reader import Reader


class Side(Struct, frozen=True):
    """One branch, from where it parted from another."""

    session: Reader
    leaf: str | None
    ancestor: str | None
    """The last entry that both have."""
    nodes: tuple[int, ...]
    items: tuple[CanonicalEntry, ...]
    lead: tuple[CanonicalEntry, ...] = ()
    """The answer that both have, if its results are the first thing on this side."""

    @property
    def messages(self) -> list[Message]:
        """What is said on this side, edits of the context applied."""
        return messages_in(edited(self.items))

    def entries(self) -> list[Entry]:
        """Its lines, as entries."""
        return self.session.journal.entries(self.nodes)


def tell_side(session: Reader, leaf: str | None, known: AbstractSet[str]) -> Side:
    """What leads to an entry and is not among some known ids."""
    journal = session.journal
    ids = journal.tree.ids
    nodes = history_nodes(session, leaf)
    first = next((at for at, node in enumerate(nodes) if ids[node] not in known), len(nodes))
    begin = first
    while 0 < begin < len(nodes) and session.dialect.must_decode_together(journal, nodes[begin - 1], nodes[begin]):
        begin -= 1
    told = _told(session, nodes[begin:])
    entries = [entry for entry in told if known.isdisjoint((entry.id, *entry.aliases))]
    lead: list[CanonicalEntry] = []
    if any(map(_is_result, entries[:1])):
        shared = [entry for entry in (*_told(session, nodes[:begin]), *told) if entry not in entries]
        lead = [entry for entry in shared if entry.kind == "message" and not _is_result(entry)][-1:]
    return Side(
        session=session,
        leaf=leaf,
        ancestor=next((ids[node] for node in reversed(nodes[:first]) if not is_metadata_id(ids[node])), None),
        nodes=tuple(node for node in nodes[first:] if ids[node] not in known),
        items=tuple(entries),
        lead=tuple(lead),
    )


def _told(session: Reader, nodes: Sequence[int]) -> list[CanonicalEntry]:
    entries = map(with_original_role, session.dialect.decode(session.journal, nodes))
    return [entry for entry in entries if not (entry.kind == "custom" and entry.fields.get("customType") == REPORT)]


def _is_result(entry: CanonicalEntry) -> bool:
    message = entry.fields.get("message")
    return entry.kind == "message" and isinstance(message, dict) and message.get("role") == "toolResult"


def parted(session: Reader, one: str | None, other: str | None) -> tuple[Side, Side]:
    """Two branches of a session, each from where they parted."""
    ids = [frozenset(history_ids(session, leaf)) for leaf in (one, other)]
    return tell_side(session, one, ids[1]), tell_side(session, other, ids[0])


def parted_sessions(one: Reader, leaf: str | None, other: Reader, other_leaf: str | None) -> tuple[Side, Side]:
    """The same for two sessions: a fork and its origin share their beginning, others share nothing."""
    if is_same(one, other):
        return parted(one, leaf, other_leaf)
    shared = shared_beginning(one, leaf, other, other_leaf)
    return tell_side(one, leaf, shared), tell_side(other, other_leaf, shared)


def is_same(one: Reader, other: Reader) -> bool:
    return one is other or (one.id == other.id and one.location == other.location)


def shared_beginning(one: Reader, leaf: str | None, other: Reader, other_leaf: str | None) -> frozenset[str]:
    """The ids of the entries with which two sessions begin alike: a fork has the entries of its origin."""
    pairs = zip(history_ids(one, leaf), history_ids(other, other_leaf), strict=False)
    alike: list[str] = []
    for id, theirs in pairs:
        if id != theirs or one.entry(id) != other.entry(id):
            break
        alike.append(id)
    return frozenset(alike)


def tell_news(
    session: Reader, leaf: str | None, source: Reader, source_leaf: str, *, with_picked: bool = False
) -> tuple[Side, Side]:
    """What `source` has at its leaf that `session` has not taken in at its own, and the other way round.

    Unlike `parted` this knows of joins: what was brought before is not news, nor is what the source has from us.
    """
    ours = taken_by(session, leaf)
    if is_same(session, source):
        known = ours.ids
        theirs = taken_by(source, source_leaf)
        picked = ours.picked.get(None, frozenset())
        back = tell_side(session, leaf, theirs.ids)
    else:
        beginning = shared_beginning(session, leaf, source, source_leaf)
        taken = [taken_by(source, end).ids for end in ours.foreign.get(source.id, ()) if end in source]
        known = beginning.union(*taken)
        picked = ours.picked.get(source.id, frozenset())
        back = tell_side(session, leaf, beginning)
    side = tell_side(source, source_leaf, known if with_picked else known | picked)
    entries = _without_ours(side.items, ours, None if is_same(session, source) else session.id)
    return msgspec.structs.replace(side, items=entries), back


def _without_ours(entries: Sequence[CanonicalEntry], ours: Taken, name: str | None) -> tuple[CanonicalEntry, ...]:
    """Items without what came from our own branch: joins that took it, and what they brought along."""
    left_out: set[int] = set()
    speaking = [at for at, entry in enumerate(entries) if entry.kind in SPEAKING]
    for place, at in enumerate(speaking):
        join = join_of(entries[at])
        if join is not None and join.session == name and _is_taken_from(join, ours):
            left_out.update(speaking[max(0, place - join.brought) : place + 1])
    return tuple(entry for at, entry in enumerate(entries) if at not in left_out)


def _is_taken_from(join: Join, ours: Taken) -> bool:
    if join.how == "pick":
        return ours.ids.issuperset(join.entries)
    return join.entry in ours.ids


def edited(entries: Iterable[CanonicalEntry]) -> list[CanonicalEntry]:
    """Items as a context has them: what an edit leaves out is left out, what it replaces is replaced."""
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
    """What an item says, if it says something."""
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
