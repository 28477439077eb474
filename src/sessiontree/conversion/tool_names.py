"""Tool calls in the words of another agent, and back.

Agents name the same tools differently. Where there is a true equivalent (see `tools`), a call and its result are said
in the target's words, and the words they had ride along under `tools`: going on to a third agent, or back, starts from
those again. A call that is kept as it is says whose words it uses, so that nobody takes them for the target's own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sessiontree.conversion.tools import map_call, map_name, share_tools
from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.passthrough import PASSTHROUGH

_TOOLS = "tools"


class ToolWords:
    """The words of one target, for the items of one session in their order."""

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target
        self._is_shared = share_tools(source, target)
        self._names: dict[str, str] = {}
        """What the target calls the tool of each call told so far: a result follows its call."""

    def said(self, entry: CanonicalEntry) -> tuple[CanonicalEntry, list[LossNote]]:
        """An item with its tool calls, or the tool it is a result of, in the target's words where it has them."""
        message = entry.fields.get("message")
        if not isinstance(message, dict) or message.get("role") not in ("assistant", "toolResult"):
            return entry, []
        agent, is_shared = self._source, self._is_shared
        if PASSTHROUGH in entry.fields:
            agent = _agent(entry) or agent
            is_shared = share_tools(agent, self._target)
        if is_shared:
            return _without_tools(entry), []
        if message["role"] == "toolResult":
            return self._result_said(entry, message, agent), []
        return self._calls_said(entry, message, agent) if isinstance(message.get("content"), list) else (entry, [])

    def _calls_said(
        self, entry: CanonicalEntry, message: dict[str, Any], agent: str
    ) -> tuple[CanonicalEntry, list[LossNote]]:
        content: list[Any] = message["content"]
        own: dict[str, Any] = {}
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
            if not own:
                content = list(content)
            own[str(at)] = {"name": name, "arguments": arguments}
            content[at] = {**block, "name": mapped.name, "arguments": mapped.arguments}
            notes.append(_mapped_note(name, self._target, mapped.name))
            notes += [LossNote("changed", f"arguments of {name}", why) for why in mapped.changed]
        if not has_calls:
            return entry, notes
        tools = {"agent": agent, "calls": own} if own else {"agent": agent}
        return _with(entry, {**message, "content": content}, tools), notes

    def _result_said(self, entry: CanonicalEntry, message: dict[str, Any], agent: str) -> CanonicalEntry:
        name = message.get("toolName")
        if not isinstance(name, str):
            return entry
        mapped = self._names.get(str(message.get("toolCallId"))) or map_name(name, agent, self._target)
        if mapped is None or mapped == name:
            return _with(entry, message, {"agent": agent})
        return _with(entry, {**message, "toolName": mapped}, {"agent": agent, "name": name})


def with_own_words(entry: CanonicalEntry) -> CanonicalEntry:
    """The item with its tools in the words of the agent that used them, if they were said in another's."""
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
        message = {**message, "content": [_own_call(block, calls.get(str(at))) for at, block in enumerate(content)]}
    return _with(entry, message, {"agent": found.get("agent")})


def _own_call(block: Any, own: Any) -> Any:
    if not isinstance(own, dict) or not isinstance(block, dict) or block.get("type") != "toolCall":
        return block
    return {**block, "name": own.get("name"), "arguments": own.get("arguments")}


def _with(entry: CanonicalEntry, message: dict[str, Any], tools: dict[str, Any]) -> CanonicalEntry:
    found = entry.fields.get(PASSTHROUGH)
    passthrough = {**found, _TOOLS: tools} if isinstance(found, dict) else {_TOOLS: tools}
    return _with_fields(entry, {**entry.fields, "message": message, PASSTHROUGH: passthrough})


def _without_tools(entry: CanonicalEntry) -> CanonicalEntry:
    """The item without a word about whose tools it uses: they are the target's own."""
    if not _tools(entry):
        return entry
    passthrough = {name: value for name, value in entry.fields[PASSTHROUGH].items() if name != _TOOLS}
    fields = {name: value for name, value in entry.fields.items() if name != PASSTHROUGH}
    return _with_fields(entry, {**fields, PASSTHROUGH: passthrough} if passthrough else fields)


def _with_fields(entry: CanonicalEntry, fields: dict[str, Any]) -> CanonicalEntry:
    return CanonicalEntry(entry.kind, fields, entry.id, entry.timestamp, entry.aliases)


@lru_cache(maxsize=64)
def _mapped_note(name: str, target: str, called: str) -> LossNote:
    """Nearly all calls are of a few tools."""
    return LossNote("mapped", f"calls of {name}", f"{target} calls this tool {called}")


def _tools(entry: CanonicalEntry) -> dict[str, Any]:
    passthrough = entry.fields.get(PASSTHROUGH)
    found = passthrough.get(_TOOLS) if isinstance(passthrough, dict) else None
    return found if isinstance(found, dict) else {}


def _agent(entry: CanonicalEntry) -> str | None:
    agent = _tools(entry).get("agent")
    return agent if isinstance(agent, str) else None
