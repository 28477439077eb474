"""JSON renderings of contexts, problems and entries: the stable shapes that `--json` prints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sessiontree.core.context import State
from sessiontree.core.entries import (
    BranchSummary,
    Compaction,
    CustomMessage,
    Entry,
    Fragment,
    MessageEntry,
    Problem,
    type_of,
)
from sessiontree.core.jsonio import native_fields
from sessiontree.core.messages import Message, OtherMessage, ToolResult, message_text, text_of, tool_calls
from sessiontree.session.reader import Reader


def describe_message(message: Message) -> dict[str, Any]:
    """A message in canonical form: role, text, tool calls, and the call that a result belongs to."""
    result = message if isinstance(message, ToolResult) else None
    return {
        "role": message.role,
        "text": message_text(message),
        "toolCalls": _calls(message),
        "toolCallId": result.tool_call_id if result else None,
        "isError": result.is_error if result else False,
    }


def describe_own_message(session: Reader, entry_id: str, message: Message) -> dict[str, Any]:
    """A message in its dialect's own form, with text and calls added."""
    entry = session.entry(entry_id)
    if isinstance(entry, MessageEntry) and entry.message == message:
        line = session.fields(entry_id)
        own = line.get("message", line if "content" in line else None)  # in Neovate the line is the message
    else:
        own = native_fields(message)
    if not isinstance(own, dict):
        own = message.fields if isinstance(message, OtherMessage) else {"content": own}
    return {**own, "role": message.role, "text": message_text(message), "toolCalls": _calls(message)}


def _calls(message: Message) -> list[dict[str, Any]]:
    return [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in tool_calls(message)]


def describe_state(state: State) -> dict[str, Any]:
    return {
        "thinkingLevel": state.thinking_level,
        "model": None if state.model is None else {"provider": state.model.provider, "modelId": state.model.model_id},
        "models": state.models,
        "mode": state.mode,
        "modeData": state.mode_data,
        "rules": list(state.rules),
    }


def describe_problem(problem: Problem) -> dict[str, Any]:
    return {
        "line": problem.line,
        "start": problem.start,
        "end": problem.end,
        "kind": problem.kind,
        "action": problem.action,
    }


def iter_problems(session: Reader) -> Iterator[dict[str, Any]]:
    """The problems found so far. Reading entries finds more, so print these after them."""
    for problem in session.known_problems:
        yield describe_problem(problem)


def describe_entry(entry: Entry) -> dict[str, Any]:
    """Metadata of an entry, and its role if it is a message."""
    return {
        "id": entry.id,
        "parent": entry.parent_id,
        "type": type_of(entry),
        "role": entry.message.role if isinstance(entry, MessageEntry) else None,
        "time": entry.timestamp,
    }


def describe_shown(entry: Entry) -> dict[str, Any]:
    """An entry with its text."""
    content = {"text": ""}
    match entry:
        case MessageEntry():
            content = describe_message(entry.message)
            content["text"] = "\n".join(message_text(message) for message in entry.messages)
        case CustomMessage():
            content = {"text": text_of(entry.content)}
        case Compaction() | BranchSummary():
            content = {"text": entry.summary}
        case _:
            pass
    return {**describe_entry(entry), **content}


def describe_fragment(fragment: Fragment) -> dict[str, Any]:
    return {
        "line": fragment.line,
        "start": fragment.start,
        "end": fragment.end,
        "kind": fragment.kind,
        "text": fragment.raw.decode("utf-8", "replace"),
    }
