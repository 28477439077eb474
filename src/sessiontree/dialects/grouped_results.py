"""Formats that store an answer and the results of its calls in one message, without branches.

`decode_grouped` splits such a message into canonical entries. `GroupedEncoder` collects them: an answer is written when
its results are known. What the format has no field for is passthrough data, a list with one item per entry
(`entries`), the `order` of the results, where it is not that of the calls, and custom entries that follow and have only
passthrough data, such as messages that are not sent: those that follow (`following`; `places` has the numbers of
results before them, where not all of them follow the last one), and those before the first message (`preceding`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.entries import Entry
from sessiontree.core.jsonio import native_fields, render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import IndexedLines, is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH, build_passthrough, restore_entry
from sessiontree.errors import UsageError

_FOLLOWING = "following"
_PLACES = "places"
_PRECEDING = "preceding"
_CONTEXT_KINDS = ("message", "compaction", "custom_message", "branch_summary")


def decode_grouped(entry: Entry, stored: Mapping[str, Any]) -> Iterator[CanonicalEntry]:
    """The canonical entries of a line: an answer and each of its results, or a single entry."""
    entries, order = stored.get("entries"), stored.get("order")
    for number, fields in enumerate(_objects(stored.get(_PRECEDING))):
        yield CanonicalEntry("custom", fields, f"{entry.id}.before{number}", entry.timestamp)
    native = native_fields(entry)
    kind = native.pop("type", "message")
    for name in ("id", "parentId", "timestamp"):
        native.pop(name, None)
    messages = [native.pop("message", None), *native.pop("moreMessages", ())]
    if isinstance(order, list) and all(type(at) is int for at in order) and sorted(order) == [*range(1, len(messages))]:
        messages = [messages[0], *(messages[at] for at in order)]
    following = _following(stored, len(messages) - 1)
    for number, message in enumerate(messages):
        body = native if message is None else {**native, "message": message}
        decoded = CanonicalEntry(kind, body, f"{entry.id}.{number}" if number else entry.id, entry.timestamp)
        found = entries[number] if isinstance(entries, list) and number < len(entries) else None
        yield restore_entry(decoded, found) if isinstance(found, dict) else decoded
        for at, fields in following.get(number, ()):
            yield CanonicalEntry("custom", fields, f"{entry.id}.{len(messages) + at}", entry.timestamp)


def _following(stored: Mapping[str, Any], last: int) -> dict[int, list[tuple[int, dict[str, Any]]]]:
    """The entries that follow each message of a line, with their numbers. Without a place, they follow the last one."""
    places = stored.get(_PLACES)
    found: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    for number, fields in enumerate(_objects(stored.get(_FOLLOWING))):
        place = places[number] if isinstance(places, list) and number < len(places) else last
        place = place if isinstance(place, int) and 0 <= place <= last else last
        found.setdefault(place, []).append((number, fields))
    return found


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class Answer:
    """An answer whose results may follow."""

    def __init__(self, entry: CanonicalEntry, id: str) -> None:
        self.entry, self.id = entry, id
        self.message: dict[str, Any] = entry.fields["message"]
        self.blocks = content_blocks(self.message.get("content"))
        self.calls = {block["id"] for block in self.blocks if is_call(block)}
        self.results: dict[str, CanonicalEntry] = {}
        self.following: list[dict[str, Any]] = []
        self.places: list[int] = []
        """For each of them, the number of results before it."""

    def takes(self, call: object) -> bool:
        return isinstance(call, str) and call in self.calls and call not in self.results


class Built(Struct, frozen=True):
    """A message in the format's form, and what it leaves out."""

    fields: dict[str, Any]
    left_out: Sequence[int] = ()
    """Positions of content blocks that it does not have."""
    order: Sequence[int] | None = None
    """Positions of the blocks that it has, if their order is another one."""
    is_reworded: bool = False
    calls: Sequence[str] = ()
    """The ids of the calls, in the order of their results."""
    notes: Sequence[LossNote] = ()


def content_blocks(content: object) -> list[Any]:
    """Content as blocks: a text becomes one, an empty one none."""
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def is_call(block: object) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") == "toolCall"
        and isinstance(block.get("id"), str)
        and isinstance(block.get("name"), str)
    )


def result_text(message: Mapping[str, Any]) -> str:
    """The text of content, or of a message without blocks."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = [block for block in content_blocks(content) if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(str(block.get("text") or "") for block in blocks)


def text_for_model(entry: CanonicalEntry) -> str:
    """The text that a model receives for an entry that the format does not have."""
    message = entry.fields.get("message")
    fields = message if isinstance(message, dict) else entry.fields
    summary = fields.get("summary")
    return result_text(fields) or (summary if isinstance(summary, str) else "")


class GroupedEncoder:
    """Encodes one session, entry by entry. Each entry follows the one before it. Subclasses build the messages."""

    client = ""
    own_types: frozenset[str] = frozenset()
    """Custom types of entries that are written with others."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self.meta = meta
        self._is_new = lines is None
        ids = [] if lines is None else [id for id in lines.tree.ids if not is_metadata_id(id)]
        self._last = ids[-1] if ids else None
        self._answer: Answer | None = None
        self._held: tuple[dict[str, Any], dict[str, Any]] | None = None
        """The last message of a new file with its passthrough data, until the next message or the end."""
        self._preceding: list[dict[str, Any]] = []
        """Entries with nothing but passthrough data before the first message of a new file."""
        self.ids = {id: id for id in ids}
        """Id of an entry -> id of its message."""

    # For subclasses

    def header(self) -> dict[str, Any]:
        raise NotImplementedError

    def build_prompt(self, entry: CanonicalEntry, blocks: list[Any]) -> Built:
        raise NotImplementedError

    def build_text(self, entry: CanonicalEntry, text: str) -> Built:
        """A prompt with the text of an entry that the format does not have."""
        raise NotImplementedError

    def build_compaction(self, entry: CanonicalEntry, kept: str | None) -> tuple[list[bytes], Built]:
        """Lines before the summary, and the summary."""
        raise NotImplementedError

    def start_answer(self, entry: CanonicalEntry) -> str:
        """The id of the answer, which is built when its results are known."""
        raise NotImplementedError

    def build_answer(self, answer: Answer) -> Built:
        raise NotImplementedError

    def decode(self, fields: dict[str, Any]) -> Iterator[CanonicalEntry]:
        raise NotImplementedError

    def attach(self, fields: dict[str, Any], passthrough: dict[str, Any]) -> dict[str, Any]:
        """The message with passthrough data."""
        raise NotImplementedError

    # The contract

    def prologue(self) -> Sequence[bytes]:
        return [render_json(self.header())]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        if parent != self._last:
            raise UsageError("these sessions have no branches: only the last entry can be continued; fork instead")
        message = entry.fields.get("message") if entry.kind == "message" else None
        role = message.get("role") if isinstance(message, dict) else None
        answer = self._answer
        if isinstance(message, dict) and role == "toolResult" and answer is not None:
            call = message.get("toolCallId")
            if answer.takes(call):
                answer.results[str(call)] = entry
                return self._encoded(entry, f"{answer.id}.{len(answer.results)}", [])
        if entry.kind not in _CONTEXT_KINDS or role == "system":  # a client builds its own system prompt
            return self._leave_out(entry, parent)
        lines = self._flush()
        if role == "assistant":
            self._answer = Answer(entry, self.start_answer(entry))
            return self._encoded(entry, self._answer.id, lines)
        if isinstance(message, dict) and role == "user":
            return self._finish(entry, self.build_prompt(entry, content_blocks(message.get("content"))), lines)
        if entry.kind == "compaction":
            before, built = self.build_compaction(entry, self.ids.get(str(entry.fields.get("firstKeptEntryId"))))
            return self._finish(entry, built, [*lines, *self._release(), *before])
        if entry.kind == "custom_message":
            built = self.build_prompt(entry, content_blocks(entry.fields.get("content")))
            return self._finish(entry, msgspec.structs.replace(built, is_reworded=True), lines)
        return self._finish(entry, self.build_text(entry, text_for_model(entry)), lines)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        return [*self._flush(), *self._release()]

    def _leave_out(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        if entry.kind == "custom" and entry.fields.get("customType") in self.own_types:
            return Encoded(parent)
        if entry.kind == "session_info" and entry.fields.get("name") == self.meta.title:
            return Encoded(parent)  # in the first line
        if entry.kind == "custom" and PASSTHROUGH in entry.fields and self._store_following(entry):
            return Encoded(parent)
        kind = "system" if entry.kind == "message" else entry.kind
        if not self._is_new:
            raise UsageError(f"sessions of this client cannot hold this entry ({kind}); nothing was written")
        why = f"{self.client} has no such entries"
        return Encoded(parent, notes=[LossNote("dropped", f"{kind} entries", why)])

    def _store_following(self, entry: CanonicalEntry) -> bool:
        """Store an entry with the message before it, if that is not written yet, or with the first message."""
        if self._answer is not None:
            self._answer.following.append(entry.fields)
            self._answer.places.append(len(self._answer.results))
        elif self._held is not None:
            self._held[1].setdefault(_FOLLOWING, []).append(entry.fields)
        elif self._is_new and self._last is None:
            self._preceding.append(entry.fields)
        else:
            return False
        return True

    def _encoded(self, entry: CanonicalEntry, id: str, lines: list[bytes], notes: Sequence[LossNote] = ()) -> Encoded:
        for name in (entry.id, *entry.aliases, id):
            if name:
                self.ids[name] = id.partition(".")[0]
        self._last = id
        return Encoded(id, lines, notes)

    def _finish(self, entry: CanonicalEntry, built: Built, lines: list[bytes]) -> Encoded:
        decoded = next(self.decode(built.fields))
        found = build_passthrough(entry, decoded, left_out=built.left_out, is_reworded=built.is_reworded)
        lines += self._hold(built.fields, {"entries": [found]} if found else {})
        return self._encoded(entry, decoded.id, lines, built.notes)

    def _hold(self, fields: dict[str, Any], passthrough: dict[str, Any]) -> list[bytes]:
        """Write the message before this one, and this one too if the file exists."""
        lines = self._release()
        if self._preceding:
            passthrough = {**passthrough, _PRECEDING: self._preceding}
            self._preceding = []
        self._held = (fields, passthrough)
        return lines if self._is_new else [*lines, *self._release()]

    def _release(self) -> list[bytes]:
        held, self._held = self._held, None
        if held is None:
            return []
        fields, passthrough = held
        return [render_json(self.attach(fields, passthrough) if passthrough else fields)]

    def _flush(self) -> list[bytes]:
        """Write the answer whose results are complete now."""
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        built = self.build_answer(answer)
        decoded = [*self.decode(built.fields)]
        order = [1 + built.calls.index(call) for call in answer.results]
        found = [build_passthrough(answer.entry, decoded[0], left_out=built.left_out, order=built.order)]
        for number, (result, at) in enumerate(zip(answer.results.values(), order, strict=True), 1):
            renumbered = msgspec.structs.replace(decoded[at], id=f"{answer.id}.{number}")
            found.append(build_passthrough(result, renumbered))
        passthrough: dict[str, Any] = {"entries": found} if any(found) else {}
        if order != sorted(order):
            passthrough["order"] = order
        if answer.following:
            passthrough[_FOLLOWING] = answer.following
            if any(place < len(answer.results) for place in answer.places):
                passthrough[_PLACES] = answer.places
        return self._hold(built.fields, passthrough)
