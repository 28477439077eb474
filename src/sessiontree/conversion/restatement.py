"""Restate a branch's context at its end, where the target would send something different from the source.

Clients differ in what they send for the same entries: results far from their calls, results without a call, summaries
after the messages they keep, edits of another branch. Only the messages that a client sends count, so the copy is read
with the target's rules and compared with the source, branch by branch. Where they differ, a reset follows the branch,
and after it the messages of the source's context in a form that every client sends unchanged: each result directly
after its call, and results without a call as text.

Restated entries are marked, and no conversion decodes them again: the entries before them hold the conversation.
Reading the copy costs as much as the conversion, so `ContextRisks` finds the sessions that need it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.context import Context
from sessiontree.core.entries import CONTEXT_TYPES
from sessiontree.core.jsonio import native_fields
from sessiontree.core.messages import (
    Assistant,
    Block,
    BranchSummaryText,
    CompactionSummary,
    Content,
    CustomText,
    Image,
    Message,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    blocks_of,
    message_blocks,
    tool_calls,
)
from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.passthrough import PASSTHROUGH, RESTATED
from sessiontree.providers.templates import NO_OUTPUT, stray_result_text
from sessiontree.providers.tool_calls import match_results
from sessiontree.providers.turns import AssistantTurn, ResultsTurn, UserTurn, to_turn

RESTATED_NOTE = LossNote(
    "changed", "contexts", "the client would send them differently, so their messages are repeated after a reset"
)
REPLACED_NOTE = LossNote(
    "changed", "contexts", "the client would send other messages, so its session has those, and the entries as data"
)
UNLIKE_NOTE = LossNote("changed", "contexts", "the client sends them differently")

_NO_CALLS: tuple[int, tuple[str, ...]] = (0, ())
_RISKY_KINDS = frozenset({"context_edit", "reset_boundary"})
_FAILED = ("aborted", "error")

Token: TypeAlias = tuple[str, ...]
"""A part of a context that two clients must both send, in a form that does not depend on their wording."""
Entries: TypeAlias = Mapping[str, CanonicalEntry]
"""By the ids of their lines: the entries that each client introduces in its own words (`has_own_wording`)."""
IsInserted: TypeAlias = Callable[[str, str], bool]
"""Whether a client inserts a text by itself into messages of a role."""


class ContextRisks:
    """Watches the entries of a conversion, parents first, for those that some clients send differently.

    `types` are the types of all lines of the source. `repeats_ids`: several of its lines have the same id.
    """

    def __init__(self, source: Dialect, target: Dialect, types: Collection[str], *, repeats_ids: bool = False) -> None:
        # Only where each entry is a line, a compaction has exactly the canonical meaning: a summary, and the entries
        # from a certain one on.
        self._is_canonical = source.traits.one_line_per_entry
        self._is_everywhere = repeats_ids or (not self._is_canonical and "compaction" in types)
        """Whether the contexts of all branches may differ: an edit, for example, can be on another branch, and the
        parent of an entry is ambiguous if two lines have its id."""
        self._custom_types = source.client.sent_custom_types
        self._closing_kinds = CONTEXT_TYPES - target.client.kinds_before_results
        """Entries after which the results of earlier calls may be sent differently."""
        self._count = 0
        self._risky: dict[str | None, int] = {}
        """Entries whose contexts may differ -> the number of the last entry that is a reason."""
        self._open_calls: dict[str | None, tuple[int, tuple[str, ...]]] = {}
        """By entry: the calls of the last answer that have no result yet, if nothing that separates them came
        after it; and the number of that answer."""
        self._continued: set[str | None] = set()
        """Entries with open calls that have a child."""
        self._calls: set[str] = set()
        self._shared_calls: set[str] = set()
        """Calls that have a result on one branch and may have none on another, or that have the id of another call."""
        self._answered: set[str] = set()
        self._starts: dict[str, int] = {}
        """Entries from which a compaction can keep everything in each client: messages other than results."""

    @property
    def found(self) -> bool:
        return self._is_everywhere or bool(self._risky)

    def is_risky(self, end: str) -> bool:
        """Whether the context at an entry may differ, also by the results of its open calls on other branches."""
        _, open_calls = self._open_calls.get(end, _NO_CALLS)
        return self._is_everywhere or end in self._risky or not self._answered.isdisjoint(open_calls)

    def may_answer_others(self, context: Context, current: str | None) -> bool:
        """Whether a result in a context may be sent for a call on another branch, if it is restated."""
        _, open_calls = self._open_calls.get(current, _NO_CALLS)
        shared = self._shared_calls.union(open_calls)
        return bool(shared) and any(
            isinstance(message, ToolResult) and message.tool_call_id in shared for message in context.messages
        )

    def watch_restated(self) -> None:
        """Watch an entry that only repeats others."""
        self._is_everywhere = True

    def watch(self, entry: CanonicalEntry, parent: str | None) -> None:
        self._count += 1
        kind, fields = entry.kind, entry.fields
        risk = self._risky.get(parent, 0)
        answer, open_calls = self._open_calls.get(parent, _NO_CALLS)
        if open_calls:
            if parent in self._continued:
                self._shared_calls.update(open_calls)
            self._continued.add(parent)
        message = fields.get("message") if kind == "message" else None
        message = message if isinstance(message, dict) else {}
        role = message.get("role")
        if role == "toolResult":
            call = str(message.get("toolCallId"))
            self._answered.add(call)
            if call not in open_calls:
                risk = self._count
                # A client may send a late result on every branch with its call.
                if call in self._calls:
                    self._is_everywhere = True
                    self._shared_calls.add(call)
            open_calls = tuple(other for other in open_calls if other != call)
        elif role == "assistant":
            answer, open_calls = self._count, tuple(_call_ids(message.get("content")))
            self._shared_calls.update(self._calls.intersection(open_calls))
            self._calls.update(open_calls)
        elif kind == "compaction":
            kept = fields.get("firstKeptEntryId")
            # Neovate repeats what is kept on lines after the summary, and a branch may start before the last of them.
            self._is_everywhere |= "preserveData" in fields or (kept is not None and not self._is_canonical)
            first = self._count if kept is None else self._starts.get(str(kept), 0)
            if not first:
                risk = self._count
            elif risk < first:
                risk = 0  # the contexts after it do not have that entry
            if answer < first or kind in self._closing_kinds:
                open_calls = ()
        elif kind in self._closing_kinds:
            open_calls = ()
        elif kind == "custom":
            self._is_everywhere |= fields.get("customType") in self._custom_types
        if kind in _RISKY_KINDS:
            self._is_everywhere = True
        for name in (entry.id, *entry.aliases):
            if role is not None and role != "toolResult":
                self._starts[name] = self._count
            if open_calls:
                self._open_calls[name] = answer, open_calls
            if risk:
                self._risky[name] = risk


def _call_ids(content: Any) -> Iterator[str]:
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "toolCall":
            yield str(block.get("id"))


# Comparing


def is_same_context(
    context: Context,
    entries: Entries,
    other: Context,
    others: Entries,
    *,
    skips_failed: bool,
    sends_thinking: bool,
    is_inserted: IsInserted,
) -> bool:
    """Whether two contexts are the same for a model.

    `skips_failed`: the client sends no failed answers. `sends_thinking`: it sends the thinking of other models as text.
    `is_inserted`: whether a client inserts a text by itself into messages of a role.
    """
    tokens = partial(_tokens, skips_failed=skips_failed, sends_thinking=sends_thinking, is_inserted=is_inserted)
    return tokens(context, entries) == tokens(other, others)


def _tokens(
    context: Context, entries: Entries, *, skips_failed: bool, sends_thinking: bool, is_inserted: IsInserted
) -> list[Token]:
    messages = list(context.messages)
    answers, strays = match_results(messages)
    recorded = _find_recorded(context, entries)
    found: list[Token] = []
    for at, message in enumerate(messages):
        if at in recorded:
            if (parts := recorded[at].parts) is not None and any(parts):
                found.append(("recorded", str(recorded[at].is_complete), *parts))
        elif isinstance(message, Assistant):
            if not (skips_failed and message.stop_reason in _FAILED):
                if sends_thinking:
                    found += (("thinking", part) for part in _thoughts(message))
                found += _answer_tokens(messages, at, message, answers, is_inserted)
        elif isinstance(message, ToolResult):
            found += [("stray", *_content_parts(message.content))] if at in strays else []
        elif not isinstance(message, System) and to_turn(message, []) is not None:
            parts = [part for part in _content_parts(message_blocks(message)) if not is_inserted("user", part)]
            found += [("user", *parts)] if parts else []
    return found


class _Recorded(Struct):
    """An entry that each client introduces in its own words, some of them in several messages."""

    entry: CanonicalEntry
    parts: list[str] | None
    """What was recorded; None for the second message of an entry."""
    words: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether the messages have all that was recorded: an edit may have replaced it."""
        return all(part in self.words for part in self.parts or ())


def has_own_wording(entry: CanonicalEntry) -> bool:
    """Whether each client introduces an entry in its own words, so that only what was recorded can be compared."""
    return _recorded_parts(entry) is not None


def _find_recorded(context: Context, entries: Entries) -> dict[int, _Recorded]:
    places: dict[str, list[int]] = {}
    for at, source in enumerate(context.sources):
        if source in entries:
            places.setdefault(entries[source].id, []).append(at)
    found: dict[int, _Recorded] = {}
    for numbers in places.values():
        entry = entries[context.sources[numbers[0]]]
        parts = _recorded_parts(entry)
        if parts is not None:
            found.update(_place_recorded(entry, parts, {at: context.messages[at] for at in numbers}))
    return found


def _place_recorded(entry: CanonicalEntry, parts: list[str], messages: Mapping[int, Message]) -> dict[int, _Recorded]:
    """Find which of the messages of an entry have what was recorded."""
    texts = {at: _sent_text(message) for at, message in messages.items()}
    first, *others = messages
    if entry.kind != "message":
        # A compaction may also repeat messages that it kept, before and after its summary.
        if not any(parts) and (others or isinstance(messages[first], Assistant)):
            return {}  # it has no summary, only those
        at = next((at for at, text in texts.items() if all(part in text for part in parts)), first)
        is_answer = isinstance(messages[at], Assistant) and at - 1 in messages  # to a question, in OpenCode
        first, others = (at - 1, [at]) if is_answer else (at, [])
    words = "".join(texts[at] for at in (first, *others))
    return {first: _Recorded(entry, parts, words)} | {at: _Recorded(entry, None) for at in others}


def _sent_text(message: Message) -> str:
    turn = to_turn(message, [])
    blocks = turn.blocks if isinstance(turn, UserTurn | AssistantTurn) else ()
    return "".join(f" {_folded(block.text)}" for block in blocks if isinstance(block, Text))


def _answer_tokens(
    messages: Sequence[Message],
    at: int,
    message: Assistant,
    answers: Mapping[tuple[int, int], int],
    is_inserted: IsInserted,
) -> Iterator[Token]:
    """The texts of an answer and the results of its calls. Calls without a result are sent by few clients."""
    for part in _content_parts(message.content):
        if not is_inserted("assistant", part):
            yield ("answer", part)
    for number in range(len(tool_calls(message))):
        if (at, number) in answers:
            result = messages[answers[at, number]]
            assert isinstance(result, ToolResult)
            yield ("result", str(result.is_error), *_content_parts(result.content))


def _thoughts(message: Assistant) -> list[str]:
    thoughts = (block.thinking for block in message_blocks(message) if isinstance(block, Thinking))
    return [part for thought in thoughts if (part := _folded(thought))]


def _content_parts(content: Content) -> list[str]:
    """The texts of some content without differences in white space, and digests of its images."""
    parts: list[str] = []
    for block in blocks_of(content):
        if isinstance(block, Text):
            parts.append(_folded(block.text))
        elif isinstance(block, Image):
            parts.append(hashlib.sha256(block.data.encode("utf-8", "surrogatepass")).hexdigest())
    return [part for part in parts if part]


def _recorded_parts(entry: CanonicalEntry) -> list[str] | None:
    """The recorded texts of an entry that each client introduces in its own words; None for any other entry."""
    if entry.kind in ("compaction", "branch_summary"):
        return _folded_values(entry.fields, ("summary",))
    message = entry.fields.get("message") if entry.kind == "message" else None
    if not isinstance(message, dict):
        return None
    role = message.get("role")
    if role in ("bashExecution", "pythonExecution") and message.get("excludeFromContext") is not True:
        return _folded_values(message, ("command", "code", "output"))
    if role == "fileMention":
        files = message.get("files")
        found = [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
        return [_folded(str(file.get(name) or "")) for file in found for name in ("path", "content")]
    return None


def _folded_values(fields: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [_folded(value) for name in names if isinstance(value := fields.get(name), str)]


def _folded(text: str) -> str:
    return " ".join(text.split())


# Restating


def restate(
    context: Context,
    entries: Entries,
    *,
    is_inserted: IsInserted,
    renames_calls: bool = True,
    with_usage: bool = False,
) -> Iterator[CanonicalEntry]:
    """Return entries that start a new context and repeat the messages of another one in it.

    `is_inserted`: whether the source's client inserts a text by itself into messages of a role; it is not repeated.
    `renames_calls`: a call without a result gets another id, because it may have a result on another branch, which
    Claude Code would find. `with_usage`: the client does not count the usage of the originals.
    """
    messages = list(context.messages)
    recorded = {at: found for at, found in _find_recorded(context, entries).items() if found.is_complete}
    summary = _summary(messages[0], recorded.get(0)) if messages else None
    yield _marked("reset_boundary", {}) if summary is None else _marked("compaction", {"summary": summary})
    answers, strays = match_results(messages)
    for at, message in enumerate(messages):
        if at == 0 and summary is not None:
            continue
        if at in recorded:
            if any(recorded[at].parts or ()):
                yield _restated_entry(recorded[at].entry)
        elif isinstance(message, Assistant):
            found = [answers.get((at, number)) for number in range(len(tool_calls(message)))]
            usage = message.usage if with_usage else None
            content = _with_open_ids(message, found) if renames_calls else message.content
            kept = tuple(block for block in blocks_of(content) if not _is_inserted_text(block, is_inserted))
            if not kept and blocks_of(content):
                continue
            yield _restated(msgspec.structs.replace(message, content=kept, usage=usage))
            for result in sorted(number for number in found if number is not None):
                yield _restated(messages[result])
        elif at in strays and isinstance(message, ToolResult):
            yield _restated_stray(message)
        elif isinstance(message, System) or (
            not isinstance(message, ToolResult) and to_turn(message, []) is not None  # not a blank one
        ):
            yield _restated(message)


def _is_inserted_text(block: Block, is_inserted: IsInserted) -> bool:
    return isinstance(block, Text) and is_inserted("assistant", _folded(block.text))


def _summary(message: Message, recorded: _Recorded | None) -> str | None:
    """The summary of a compaction that starts a context; None if it is blank, or something else starts it."""
    summary = message.summary if isinstance(message, CompactionSummary) else None
    if recorded is not None and recorded.entry.kind == "compaction":
        summary = str(recorded.entry.fields.get("summary") or "")
    return summary if summary and summary.strip() else None


def _restated_entry(entry: CanonicalEntry) -> CanonicalEntry:
    """Repeat an entry whose wording is up to each client."""
    if entry.kind == "compaction":  # in the middle of a context, only its text can stay where it is
        return _marked("message", {"message": {"role": "user", "content": str(entry.fields.get("summary") or "")}})
    return _marked(entry.kind, {name: value for name, value in entry.fields.items() if name != PASSTHROUGH})


def _with_open_ids(message: Assistant, results: Sequence[int | None]) -> Content:
    """The content of an answer with another id for each call without a result."""
    has_result = iter(results)
    return tuple(
        msgspec.structs.replace(block, id=f"{block.id}_open")
        if isinstance(block, ToolCall) and next(has_result) is None
        else block
        for block in blocks_of(message.content)
    )


def _restated_stray(result: ToolResult) -> CanonicalEntry:
    opening = Text(stray_result_text(result.tool_name, is_error=result.is_error))
    turn = to_turn(result, [])
    sent = turn.answers[0].blocks if isinstance(turn, ResultsTurn) else ()
    blocks = (opening, *(sent or (Text(NO_OUTPUT),)))
    return _marked("message", {"message": {"role": "user", "content": list(map(native_fields, blocks))}})


def _restated(message: Message) -> CanonicalEntry:
    match message:
        case CompactionSummary():
            return _marked("branch_summary", {"summary": message.summary})
        case BranchSummaryText():
            return _marked("branch_summary", {"summary": message.summary, "fromId": message.from_id})
        case CustomText():
            fields = native_fields(message)
            return _marked("custom_message", {name: fields[name] for name in ("customType", "content", "display")})
        case _:
            return _marked("message", {"message": native_fields(message)})


def _marked(kind: str, fields: dict[str, Any]) -> CanonicalEntry:
    return CanonicalEntry(kind, {**fields, PASSTHROUGH: {RESTATED: True}})
