"""Map tool calls to the names and arguments of another agent, and back.

Where the target has a true equivalent (see `tools`), a call and its result are mapped to it. The original name and
arguments are carried as passthrough data under `tools`: the next conversion starts from those again. An unmapped call
carries the agent whose tool it names, so that it is never mistaken for a tool of the target.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from sessiontree.conversion.tools import map_call, map_name, share_tools
from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.passthrough import PASSTHROUGH, carried_data, with_carried_data

_TOOLS = "tools"


class ToolMapper:
    """Maps the entries of one session, in their order, to the tools of one target."""

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target
        self._is_shared = share_tools(source, target)
        self._names: dict[str, str] = {}
        """The target's tool name of each call so far, by call id: a result follows its call."""

    def map_entry(self, entry: CanonicalEntry) -> tuple[CanonicalEntry, list[LossNote]]:
        """Map the tool calls of an entry, or the tool name of a result, where the target has an equivalent."""
        message = entry.fields.get("message")
        if not isinstance(message, dict) or message.get("role") not in ("assistant", "toolResult"):
            return entry, []
        agent, is_shared = self._source, self._is_shared
        if PASSTHROUGH in entry.fields:
            agent = _agent(entry) or agent
            is_shared = share_tools(agent, self._target)
        if is_shared:
            return with_carried_data(entry, _TOOLS, None) if _tools(entry) else entry, []
        if message["role"] == "toolResult":
            return self._map_result(entry, message, agent), []
        return self._map_calls(entry, message, agent) if isinstance(message.get("content"), list) else (entry, [])

    def _map_calls(
        self, entry: CanonicalEntry, message: dict[str, Any], agent: str
    ) -> tuple[CanonicalEntry, list[LossNote]]:
        content: list[Any] = message["content"]
        originals: dict[str, Any] = {}
        has_calls = False
        notes: list[LossNote] = []
        for at, block in enumerate(content):
            if not isinstance(block, dict) or block.get("type") != "toolCall":
                continue
            name, arguments = block.get("name"), block.get("arguments")
            if not isinstance(name, str) or not isinstance(arguments, dict):
                continue
            has_calls = True
            mapped = map_call(name, arguments, agent, self._target)
            self._names[str(block.get("id"))] = mapped.name if mapped else name
            if mapped is None or (mapped.name == name and mapped.arguments == arguments):
                continue
            if not originals:
                content = list(content)
            originals[str(at)] = {"name": name, "arguments": arguments}
            content[at] = {**block, "name": mapped.name, "arguments": mapped.arguments}
            notes.append(_mapped_note(name, self._target, mapped.name))
            notes += [LossNote("changed", f"arguments of {name}", why) for why in mapped.changed]
        if not has_calls:
            return entry, notes
        tools = {"agent": agent, "calls": originals} if originals else {"agent": agent}
        return _with_message(entry, {**message, "content": content}, tools), notes

    def _map_result(self, entry: CanonicalEntry, message: dict[str, Any], agent: str) -> CanonicalEntry:
        name = message.get("toolName")
        if not isinstance(name, str):
            return entry
        mapped = self._names.get(str(message.get("toolCallId"))) or map_name(name, agent, self._target)
        if mapped is None or mapped == name:
            return _with_message(entry, message, {"agent": agent})
        return _with_message(entry, {**message, "toolName": mapped}, {"agent": agent, "name": name})


def with_original_tools(entry: CanonicalEntry) -> CanonicalEntry:
    """Return the entry with its tool calls as the agent made them, before any mapping."""
    if PASSTHROUGH not in entry.fields:
        return entry
    found = _tools(entry)
    message = entry.fields.get("message")
    if not found or not isinstance(message, dict):
        return entry
    calls, name, content = found.get("calls"), found.get("name"), message.get("content")
    if isinstance(name, str):
        message = {**message, "toolName": name}
    if isinstance(calls, dict) and isinstance(content, list):
        originals = [_original_call(block, calls.get(str(at))) for at, block in enumerate(content)]
        message = {**message, "content": originals}
    return _with_message(entry, message, {"agent": found.get("agent")})


def _original_call(block: Any, original: Any) -> Any:
    if not isinstance(original, dict) or not isinstance(block, dict) or block.get("type") != "toolCall":
        return block
    return {**block, "name": original.get("name"), "arguments": original.get("arguments")}


def _with_message(entry: CanonicalEntry, message: dict[str, Any], tools: dict[str, Any]) -> CanonicalEntry:
    mapped = msgspec.structs.replace(entry, fields={**entry.fields, "message": message})
    return with_carried_data(mapped, _TOOLS, tools)


@lru_cache(maxsize=64)  # nearly all calls are of a few tools
def _mapped_note(name: str, target: str, mapped: str) -> LossNote:
    return LossNote("mapped", f"calls of {name}", f"{target} calls this tool {mapped}")


def _tools(entry: CanonicalEntry) -> dict[str, Any]:
    found = carried_data(entry, _TOOLS)
    return found if isinstance(found, dict) else {}


def _agent(entry: CanonicalEntry) -> str | None:
    agent = _tools(entry).get("agent")
    return agent if isinstance(agent, str) else None
