"""The tool calls that wait for a result: those of the last answer without one, on this branch or another one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import Assistant, Message, ToolCall, ToolResult, User, tool_calls

if TYPE_CHECKING:
    from sessiontree.session.reader import Reader

_READ_AT_ONCE = 256


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls of the last answer that have no result; none if the user has written since."""
    answered: set[str] = set()
    for at in range(len(messages) - 1, -1, -1):
        match messages[at]:
            case ToolResult() as result:
                answered.add(result.tool_call_id)
            case Assistant() as answer:
                return [call for call in tool_calls(answer) if call.id not in answered]
            case User():
                return []
            case _:
                pass
    return []


def results_elsewhere(session: Reader, leaf: str | None, calls: Collection[str]) -> dict[str, tuple[str, ToolResult]]:
    """Results of calls on branches other than that of `leaf`: entry id and message by call id; the first one counts."""
    if not calls:
        return {}
    ids = [id for id in session.ids if id in session]
    after = ids.index(leaf) + 1 if leaf in ids else 0
    found: dict[str, tuple[str, ToolResult]] = {}
    for start in range(after, len(ids), _READ_AT_ONCE):
        for entry in session.entries(ids[start : start + _READ_AT_ONCE]):
            message = entry.message if isinstance(entry, MessageEntry) else None
            if isinstance(message, ToolResult) and message.tool_call_id in calls:
                found.setdefault(message.tool_call_id, (entry.id, message))
    return found
