"""Adapt messages of one branch for another, in the same or another session or dialect.

Tool calls and results are always complete pairs. A call without a result is dropped, because it can never get one on
the other branch, and so is a result without a call. Usage is also dropped: a copy costs nothing, and the numbers
describe another context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import apply_edits, is_same
from sessiontree.branches.merge_records import MERGED_FROM, find_merges
from sessiontree.conversion.tool_mapping import ToolMapper, with_original_tools
from sessiontree.core.context import entry_messages
from sessiontree.core.entries import MESSAGE_TYPES
from sessiontree.core.ids import timestamp
from sessiontree.core.messages import Assistant, Message, ToolResult, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.dialects.roles import with_common_role
from sessiontree.errors import UsageError
from sessiontree.session.history import history_nodes
from sessiontree.session.reader import Reader

_NO_COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
_ZERO_USAGE = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": _NO_COST}
"""Pi does not resume a session with an assistant message without usage."""

_TAIL = 256
"""Entries at the end of a path that are searched for the last answer and its results."""

_MERGE_DETAILS = frozenset({MERGED_FROM, "conflicts"})


class CompletePairs(Struct, frozen=True):
    """Entries with complete pairs of calls and results, and the number of dropped ones."""

    items: tuple[CanonicalEntry, ...]
    calls_left: int = 0
    results_left: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        found = []
        if self.calls_left:
            found.append(f"{_plural(self.calls_left, 'tool call')} without a result not copied")
        if self.results_left:
            found.append(f"{_plural(self.results_left, 'tool result')} without a call not copied")
        return tuple(found)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def check_no_open_calls(session: Reader, leaf: str | None) -> None:
    """Raise `UsageError` if the last calls have no results yet: new entries would come between calls and results."""
    if leaf is None:
        return
    journal = session.journal
    nodes = history_nodes(session, leaf)[-_TAIL:]
    waiting = _waiting([message for entry in journal.entries(nodes) for message in entry_messages(entry)])
    if waiting:
        raise UsageError(
            f"{session.location}: {_plural(len(waiting), 'tool call')} at {leaf} ({', '.join(waiting[:3])}) without "
            "results; choose an entry after the results or before the calls"
        )


def _waiting(messages: Sequence[Message]) -> list[str]:
    """Names of the tools in the last response without results. A response may have several messages."""
    answered: set[str] = set()
    waiting: list[str] = []
    last: Assistant | None = None
    for message in reversed(messages):
        if isinstance(message, ToolResult):
            answered.add(message.tool_call_id)
        elif isinstance(message, Assistant) and (last is None or _is_same_response(message, last)):
            last = message
            waiting += [call.name for call in tool_calls(message) if call.id not in answered]
        else:
            break
    return waiting


def _is_same_response(one: Assistant, other: Assistant) -> bool:
    return one.response_id is not None and one.response_id == other.response_id


def pair_results(entries: Sequence[CanonicalEntry]) -> dict[int, int]:
    """Position of each result -> position of the message with its call."""
    open_calls: dict[str, int] = {}
    pairs: dict[int, int] = {}
    for at, entry in enumerate(entries):
        message = entry.fields.get("message") if entry.kind == "message" else None
        if not isinstance(message, dict):
            continue
        if message.get("role") == "toolResult":
            call = open_calls.pop(_id(message.get("toolCallId")), None)
            if call is not None:
                pairs[at] = call
        else:
            open_calls.update((id, at) for id in _call_ids(message))
    return pairs


def complete_pairs(entries: Iterable[CanonicalEntry], lead: Sequence[CanonicalEntry] = ()) -> CompletePairs:
    """Entries that can be copied, with results directly after their calls.

    `lead` may contain the message with the calls of the first results.
    """
    replayable = [entry for entry in (*lead, *apply_edits(entries)) if is_replayable(entry)]
    first = sum(map(is_replayable, lead))
    pairs = pair_results(replayable)
    answered: dict[int, set[str]] = {}
    for result, call in pairs.items():
        if result >= first:
            answered.setdefault(call, set()).add(_id(replayable[result].fields["message"].get("toolCallId")))
    results: dict[int, list[CanonicalEntry]] = {}
    for result, call in pairs.items():
        if result >= first:
            results.setdefault(call, []).append(replayable[result])
    kept: list[CanonicalEntry] = []
    calls_left = results_left = 0
    for at, entry in enumerate(replayable):
        if at < first and at not in answered:
            continue
        message = entry.fields.get("message") if entry.kind == "message" else None
        if not isinstance(message, dict):
            kept.append(entry)
        elif message.get("role") == "toolResult":
            results_left += at not in pairs  # the others are added directly after their call
        else:
            unanswered = {id for id in _call_ids(message) if id not in answered.get(at, ())}
            calls_left += len(unanswered) if at >= first else 0
            messages = _without_calls(entry, message, unanswered) if unanswered else entry
            if messages is not None:
                kept += [messages, *results.get(at, ())]
    return CompletePairs(tuple(kept), calls_left, results_left)


def adapt_entries(entries: Sequence[CanonicalEntry], source: Reader, target: Reader, leaf: str) -> list[CanonicalEntry]:
    """Adapt entries to a target session: its tool names, its roles, unused call ids.

    A call gets another id if the path or the file already has its id: some clients find calls by id anywhere in a file.
    """
    words = ToolMapper(source.dialect.name, target.dialect.name)
    used = {call.id for message in target.messages_to(leaf) for call in tool_calls(message)}
    if is_same(source, target):
        used |= {id for entry in entries for id in _call_ids(entry.fields.get("message"))}
    number = len(find_merges(target)) + 2  # a different suffix for each merge into this session
    renamed: dict[str, str] = {}
    now = timestamp()
    fitted: list[CanonicalEntry] = []
    for entry in entries:
        bare = CanonicalEntry(
            entry.kind, _bare_fields(entry, keeps_responses=target.dialect.traits.one_line_per_entry), timestamp=now
        )
        adapted, _ = words.map_entry(with_original_tools(bare))
        adapted, _ = with_common_role(adapted, target.dialect)
        fitted.append(_with_free_ids(adapted, used, renamed, number))
    return fitted


def is_replayable(entry: CanonicalEntry) -> bool:
    """Whether an entry can be copied to another branch. A system prompt cannot: it belongs to its own path."""
    if entry.kind not in MESSAGE_TYPES:
        return False
    message = entry.fields.get("message")
    return entry.kind != "message" or (isinstance(message, dict) and message.get("role") != "system")


def _bare_fields(entry: CanonicalEntry, *, keeps_responses: bool) -> dict[str, Any]:
    """Remove fields that apply only to the original.

    The response id normally stays, so that usage counts once. In dialects that join lines with the same response id it
    is removed, or the copy would become part of the original answer.
    """
    fields = {name: value for name, value in entry.fields.items() if name != PASSTHROUGH}
    passthrough = entry.fields.get(PASSTHROUGH)
    if isinstance(passthrough, dict) and "tools" in passthrough:
        fields[PASSTHROUGH] = {"tools": passthrough["tools"]}
    message, details = fields.get("message"), fields.get("details")
    if isinstance(message, dict) and message.get("role") in ("assistant", "toolResult"):
        left_out = {"usage", "diagnostics"} if keeps_responses else {"usage", "diagnostics", "responseId"}
        used = {"usage": _ZERO_USAGE} if message["role"] == "assistant" else {}
        fields["message"] = {name: value for name, value in message.items() if name not in left_out} | used
    if entry.kind == "branch_summary":
        fields.pop("usage", None)
        if isinstance(details, dict):
            fields["details"] = {name: value for name, value in details.items() if name not in _MERGE_DETAILS}
    return fields


def _with_free_ids(entry: CanonicalEntry, used: set[str], renamed: dict[str, str], number: int) -> CanonicalEntry:
    """Replace ids of calls that are already in use, and those of their results."""
    message = entry.fields.get("message")
    if not isinstance(message, dict):
        return entry
    if message.get("role") == "toolResult":
        id = message.get("toolCallId")
        if not isinstance(id, str) or id not in renamed:
            return entry
        return _with_message(entry, {**message, "toolCallId": renamed[id]})
    content = message.get("content")
    if not isinstance(content, list):
        return entry
    return _with_message(entry, {**message, "content": [_freed(block, used, renamed, number) for block in content]})


def _freed(block: Any, used: set[str], renamed: dict[str, str], number: int) -> Any:
    if not _is_call(block) or not isinstance(block.get("id"), str):
        return block
    wanted = id = block["id"]
    while id in used:
        id, number = f"{wanted}_{number}", number + 1
    used.add(id)
    renamed.pop(wanted, None)
    if id == wanted:
        return block
    renamed[wanted] = id
    return {**block, "id": id}


def _without_calls(entry: CanonicalEntry, message: dict[str, Any], left_out: set[str]) -> CanonicalEntry | None:
    """Remove calls from an assistant message; None when no content is left."""
    content = [block for block in message["content"] if not (_is_call(block) and _id(block.get("id")) in left_out)]
    if not any(
        isinstance(block, dict) and block.get("type") not in ("thinking", "redactedThinking") for block in content
    ):
        return None
    has_calls = any(map(_is_call, content))
    reason = message.get("stopReason")
    stopped = {} if has_calls or reason != "toolUse" else {"stopReason": "stop"}
    return _with_message(entry, {**message, "content": content, **stopped})


def _with_message(entry: CanonicalEntry, message: dict[str, Any]) -> CanonicalEntry:
    return msgspec.structs.replace(entry, fields={**entry.fields, "message": message})


def _is_call(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "toolCall"


def _call_ids(message: Any) -> list[str]:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return []
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [_id(block.get("id")) for block in content if _is_call(block)]


def _id(value: object) -> str:
    return value if isinstance(value, str) else ""
