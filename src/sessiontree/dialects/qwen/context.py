"""The messages that Qwen Code sends to the model when it resumes a session.

It starts with the contents of the last compression on the chain. The results of a response are sent right after it: the
ones in the first record, then an error for each call without a result, then the others in the order of the calls. A
second result of one call is left out, and so is a result without a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sessiontree.core.context import Context, Rules, State, build_context, entry_messages
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import Assistant, Message, Text, ToolResult, User, tool_calls
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.defaults import DECODE_STEP, path_of_nodes
from sessiontree.dialects.qwen.content import list_of, parse_content
from sessiontree.dialects.qwen.records import COMPACTION, MESSAGE

NOT_RECORDED = (
    "Tool execution result was not recorded — likely interrupted by network failure, abort, or process exit. Treat as "
    "failure and retry if needed."
)
"""The error that Qwen Code 0.24.4 sends for a call without a result."""
_SLASH_COMMAND = "qwen:slash_command"

_Sent = tuple[int, Message]
"""A message and the node of its record."""


def build_qwen_context(lines: IndexedLines, path: list[int], rules: Rules) -> Context:
    ids, types = lines.tree.ids, lines.types
    start = next((at for at in range(len(path) - 1, -1, -1) if types[path[at]] == COMPACTION), -1)
    records: list[list[_Sent]] = []
    if start >= 0:
        records += _compressed(lines, path[start])
    records += _recorded(lines, path[start + 1 :])
    sent = [found for turn in _paired(records) for found in turn]
    state = _find_state(lines, path, rules)
    messages = tuple(message for _, message in sent)
    return Context(tuple(ids[node] for node in path), messages, tuple(ids[node] for node, _ in sent), state)


def _find_state(lines: IndexedLines, path: list[int], rules: Rules) -> State:
    """The settings at the end of a path: those of lines of ours, and the model of the last answer."""
    kinds = {"model_change", "thinking_level_change", "mode_change"}
    wanted = [node for node in path if lines.types[node] in kinds]
    wanted += [node for node in path if lines.types[node] == MESSAGE][-DECODE_STEP:]
    return build_context(path_of_nodes(lines, sorted(wanted)), rules).state


def _compressed(lines: IndexedLines, node: int) -> Iterator[list[_Sent]]:
    (fields,) = lines.fields([node])
    payload: dict[str, Any] = fields["systemPayload"] if isinstance(fields.get("systemPayload"), dict) else {}
    for content in list_of(payload.get("compressedHistory")):
        yield [(node, message) for message in parse_content(content, None)]


def _recorded(lines: IndexedLines, nodes: list[int]) -> Iterator[list[_Sent]]:
    """The messages of each record. A command that only the client answered is not sent."""
    wanted = [node for node in nodes if lines.types[node] in (MESSAGE, _SLASH_COMMAND)]
    found: list[list[_Sent]] = []
    before: dict[str, Any] | None = None
    for start in range(0, len(wanted), DECODE_STEP):
        step = wanted[start : start + DECODE_STEP]
        for node, entry, fields in zip(step, lines.entries(step), lines.fields(step), strict=True):
            if isinstance(entry, MessageEntry):
                found.append([(node, message) for message in entry_messages(entry)])
                before = fields
            elif before is not None:
                if _is_local_command(before, fields):
                    found.pop()
                before = None
    return iter(found)


def _is_local_command(prompt: dict[str, Any], command: dict[str, Any]) -> bool:
    """Whether a prompt is a command that the client answered itself, by the record of its result."""
    payload, message = command.get("systemPayload"), prompt.get("message")
    if prompt.get("type") != "user" or "subtype" in prompt:
        return False
    if not isinstance(payload, dict) or not isinstance(message, dict):
        return False
    items = list_of(payload.get("outputHistoryItems"))
    is_answered = bool(items) and all(isinstance(item, dict) and item.get("type") == "assistant" for item in items)
    is_result = payload.get("phase") == "result" and payload.get("sentToModel") is not True
    return is_answered and is_result and message.get("parts") == [{"text": payload.get("rawCommand")}]


def _paired(records: list[list[_Sent]]) -> Iterator[list[_Sent]]:
    """The records with the results of each response right after it."""
    at = 0
    while at < len(records):
        turn = records[at]
        at += 1
        calls = [(node, call) for node, message in turn for call in tool_calls(message) if call.id]
        if not turn or not isinstance(turn[0][1], Assistant):
            yield [found for found in turn if isinstance(found[1], User)]  # a result without a call is not sent
            continue
        yield turn
        if not calls:
            continue
        end = at
        while end < len(records) and not any(isinstance(message, Assistant) for _, message in records[end]):
            end += 1
        following, at = records[at:end], end
        results: dict[str, _Sent] = {}
        for found in (found for record in following for found in record):
            if isinstance(found[1], ToolResult):
                results.setdefault(found[1].tool_call_id, found)
        first = [found for found in (following[0] if following else []) if _is_kept(found, results)]
        adjacent = {found[1].tool_call_id for found in first if isinstance(found[1], ToolResult)}
        expected = {call.id for _, call in calls}
        missing = [
            (node, ToolResult(tool_call_id=call.id, tool_name=call.name, content=(Text(NOT_RECORDED),), is_error=True))
            for node, call in calls
            if call.id not in results
        ]
        others = [results[call.id] for _, call in calls if call.id in results and call.id not in adjacent]
        yield [found for found in first if isinstance(found[1], ToolResult) and found[1].tool_call_id in expected]
        yield [*missing, *others]
        for record in following:
            yield [found for found in record if isinstance(found[1], User)]


def _is_kept(found: _Sent, results: dict[str, _Sent]) -> bool:
    message = found[1]
    return isinstance(message, ToolResult) and results.get(message.tool_call_id) is found
