"""Messages of one branch made fit to stand on another, in another session or even another dialect.

What comes out says the same, with tool calls and results whole: a call that was never answered stays behind, since
nothing would ever answer it there, and so does a result whose call is nowhere. What a request used stays behind, too:
saying something again costs nothing, and the numbers tell of another context.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.branches.branch_delta import edited, is_same
from sessiontree.branches.merge_records import MERGED_FROM, find_joins, history_nodes
from sessiontree.branches.tips import SPEAKING
from sessiontree.conversion.roles import with_common_role
from sessiontree.conversion.tool_names import ToolMapper, with_original_tools
from sessiontree.core.context import entry_messages
from sessiontree.core.ids import timestamp
from sessiontree.core.messages import Assistant, Message, ToolResult, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.errors import UsageError
from sessiontree.session.reader import Reader

_NO_COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
_NOTHING_USED = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0, "cost": _NO_COST}
"""Pi does not resume a session with an answer that says nothing about usage."""

_TAIL = 256
"""Entries at the end of a path among which the last answer is looked for, with its results."""

_OF_A_JOIN = frozenset({MERGED_FROM, "conflicts"})


class Whole(Struct, frozen=True):
    """Items with their calls and results whole, and how much had to stay behind for that."""

    items: tuple[CanonicalEntry, ...]
    calls_left: int = 0
    results_left: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        found = []
        if self.calls_left:
            found.append(f"{self.calls_left} tool calls that have no result stay behind")
        if self.results_left:
            found.append(f"{self.results_left} results that have no call stay behind")
        return tuple(found)


def check_is_whole(session: Reader, leaf: str | None) -> None:
    """Refuse a place where calls wait for their results: what is put there would come between the two."""
    if leaf is None:
        return
    journal = session.journal
    nodes = history_nodes(session, leaf)[-_TAIL:]
    waiting = _waiting([message for entry in journal.entries(nodes) for message in entry_messages(entry)])
    if waiting:
        raise UsageError(
            f"{session.location}: at {leaf} {len(waiting)} tool calls ({', '.join(waiting[:3])}) wait for their "
            "results; choose an entry behind those, or one before the calls"
        )


def _waiting(messages: Sequence[Message]) -> list[str]:
    """The tools of the last answer that have not answered yet. An answer may be told in several messages."""
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


def pair_up(entries: Sequence[CanonicalEntry]) -> dict[int, int]:
    """The position of each result among some items -> that of the answer that called for it."""
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


def whole(entries: Iterable[CanonicalEntry], lead: Sequence[CanonicalEntry] = ()) -> Whole:
    """What of some items can be said again, results right behind the answers that called for them.

    `lead` may hold the answer that the first results belong to.
    """
    speaking = [entry for entry in (*lead, *edited(entries)) if can_be_said(entry)]
    first = sum(map(can_be_said, lead))
    pairs = pair_up(speaking)
    answered: dict[int, set[str]] = {}
    for result, call in pairs.items():
        if result >= first:
            answered.setdefault(call, set()).add(_id(speaking[result].fields["message"].get("toolCallId")))
    results: dict[int, list[CanonicalEntry]] = {}
    for result, call in pairs.items():
        if result >= first:
            results.setdefault(call, []).append(speaking[result])
    kept: list[CanonicalEntry] = []
    calls_left = results_left = 0
    for at, entry in enumerate(speaking):
        if at < first and at not in answered:
            continue
        message = entry.fields.get("message") if entry.kind == "message" else None
        if not isinstance(message, dict):
            kept.append(entry)
        elif message.get("role") == "toolResult":
            results_left += at not in pairs  # the others stand right behind their call
        else:
            unanswered = {id for id in _call_ids(message) if id not in answered.get(at, ())}
            calls_left += len(unanswered) if at >= first else 0
            said = _without_calls(entry, message, unanswered) if unanswered else entry
            if said is not None:
                kept += [said, *results.get(at, ())]
    return Whole(tuple(kept), calls_left, results_left)


def fit_for(entries: Sequence[CanonicalEntry], source: Reader, target: Reader, leaf: str) -> list[CanonicalEntry]:
    """Items of a session as new entries behind an entry of another, or of the same: its words, its roles, free ids.

    Calls get another id if the path has theirs, or the file: some programs take a call by its id wherever it stands.
    """
    tools = ToolMapper(source.dialect.name, target.dialect.name)
    used = {call.id for message in target.messages_to(leaf) for call in tool_calls(message)}
    if is_same(source, target):
        used |= {id for entry in entries for id in _call_ids(entry.fields.get("message"))}
    number = len(find_joins(target)) + 2  # another one for each merge of a session
    renamed: dict[str, str] = {}
    now = timestamp()
    fitted: list[CanonicalEntry] = []
    for entry in entries:
        bare = CanonicalEntry(
            entry.kind, _bare_fields(entry, keeps_responses=target.dialect.one_line_per_entry), timestamp=now
        )
        mapped, _ = tools.map_entry(with_original_tools(bare))
        mapped, _ = with_common_role(mapped, target.dialect.name)
        fitted.append(_with_free_ids(mapped, used, renamed, number))
    return fitted


def can_be_said(entry: CanonicalEntry) -> bool:
    """Whether an item says something that can be said elsewhere. A system prompt belongs to the path it stands on."""
    if entry.kind not in SPEAKING:
        return False
    message = entry.fields.get("message")
    return entry.kind != "message" or (isinstance(message, dict) and message.get("role") != "system")


def _bare_fields(entry: CanonicalEntry, *, keeps_responses: bool) -> dict[str, Any]:
    """The fields without what is true only where the item comes from.

    By the name of its response an answer is known to be the same one, and counted once. Where lines of one response are
    put together it has to go: they would be taken for parts of that answer.
    """
    fields = {name: value for name, value in entry.fields.items() if name != PASSTHROUGH}
    passthrough = entry.fields.get(PASSTHROUGH)
    if isinstance(passthrough, dict) and "tools" in passthrough:
        fields[PASSTHROUGH] = {"tools": passthrough["tools"]}
    message, details = fields.get("message"), fields.get("details")
    if isinstance(message, dict) and message.get("role") in ("assistant", "toolResult"):
        left_out = {"usage", "diagnostics"} if keeps_responses else {"usage", "diagnostics", "responseId"}
        used = {"usage": _NOTHING_USED} if message["role"] == "assistant" else {}
        fields["message"] = {name: value for name, value in message.items() if name not in left_out} | used
    if entry.kind == "branch_summary":
        fields.pop("usage", None)
        if isinstance(details, dict):
            fields["details"] = {name: value for name, value in details.items() if name not in _OF_A_JOIN}
    return fields


def _with_free_ids(entry: CanonicalEntry, used: set[str], renamed: dict[str, str], number: int) -> CanonicalEntry:
    """The item with other ids for calls whose ids the path has already; a result follows its call."""
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
    """An answer without some of its calls; None when nothing is left that says something."""
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
