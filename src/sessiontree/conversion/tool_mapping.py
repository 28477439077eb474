"""Map tool calls to the names and arguments of another client, and back.

A call is parsed into an intent (`Read`, `Bash`, `Edit` ...) and rendered for the target. So each dialect has one table
of tools, and pairs of them need no code of their own.

Where the target has a true equivalent, a call and its result are mapped to it. The original name and arguments are
carried as passthrough data under `tools`: the next conversion starts from those again. An unmapped call carries the
client whose tool it names, so that it is never mistaken for a tool of the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from sessiontree import plugins
from sessiontree.clients import client_of
from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.passthrough import PASSTHROUGH, carried_data, with_carried_data
from sessiontree.dialects.tool_intents import Bash, Intent
from sessiontree.dialects.tool_table import FileUse, NoEquivalentError, ToolTable

_TOOLS = "tools"


class Mapped(Struct, frozen=True):
    """A call for the target. `changed` lists what was left out or changed because the target has no argument for it."""

    name: str
    arguments: dict[str, Any]
    changed: tuple[str, ...] = ()


@lru_cache(maxsize=64)  # called for each tool call of a session
def tools_of(agent: str) -> ToolTable | None:
    """The tools of a dialect's client; None if they are unknown, or no such dialect is installed."""
    return client_of(agent).tools


@lru_cache(maxsize=64)
def tool_tables(agent: str) -> tuple[ToolTable, ...]:
    """The tools of all clients, those of the given one first: a session may hold calls of another client."""
    found = (tools_of(name) for name in (agent, *plugins.names("dialects")))
    return tuple(dict.fromkeys(tools for tools in found if tools is not None))


def map_call(name: str, arguments: Mapping[str, Any], source: str, target: str) -> Mapped | None:
    """The equivalent call for the target; None when there is none, and the caller keeps the call unchanged.

    Clients that share their tools need no mapping, so the result is also None for them.
    """
    pair = _find_pair(source, target)
    if pair is None:
        return None
    ours, theirs = pair
    try:
        intent, changed = ours.parse(name, arguments)
        new_name, new_arguments, lost = theirs.render(intent)
    except NoEquivalentError:
        return None
    if isinstance(intent, Bash) and intent.timeout_ms is not None and ours.timeout_unit != theirs.timeout_unit:
        changed.append(f"timeout in {ours.timeout_unit} became {theirs.timeout_unit}")
    changed += lost
    return Mapped(new_name, new_arguments, tuple(dict.fromkeys(changed)) if changed else ())


def map_name(name: str, source: str, target: str) -> str | None:
    """The name of the target's equivalent tool; None when it has none.

    For results whose call is unknown. A result with a known call takes the name that `map_call` gave the call, which is
    the old one if the call's arguments had no equivalent.
    """
    pair = _find_pair(source, target)
    if pair is None:
        return None
    ours, theirs = pair
    tool = ours.find_by_name(name)
    if tool is None or not tool.is_unambiguous:
        return None
    equivalent = theirs.find_current(tool.intent)
    return None if equivalent is None else equivalent.name


def share_tools(one: str, other: str) -> bool:
    """Whether two clients have the same tools under the same names."""
    if one == other:
        return True
    tools = tools_of(one)
    return tools is not None and tools is tools_of(other)


def find_intent(name: str, arguments: Mapping[str, Any], agent: str) -> Intent | None:
    """The intent of a client's call; None when no intent can express it."""
    tools = tools_of(agent)
    return None if tools is None else tools.find_intent(name, arguments)


def find_file(name: str, arguments: Mapping[str, Any], agent: str) -> tuple[FileUse, str] | None:
    """The file that a client's call reads, writes or edits, as named in the call; None for any other call.

    Works for more calls than `map_call`: the other arguments do not matter.
    """
    tools = tools_of(agent)
    found = None if tools is None else tools.file_argument(name)
    return None if found is None else found.find_in(arguments)


def _find_pair(source: str, target: str) -> tuple[ToolTable, ToolTable] | None:
    ours, theirs = tools_of(source), tools_of(target)
    return None if ours is None or theirs is None or ours is theirs else (ours, theirs)


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
    return with_carried_data(entry, _TOOLS, tools, message=message)


@lru_cache(maxsize=64)  # nearly all calls are of a few tools
def _mapped_note(name: str, target: str, mapped: str) -> LossNote:
    why = f"{target} calls this tool {mapped}" if mapped != name else f"{target} has other arguments for this tool"
    return LossNote("mapped", f"calls of {name}", why)


def _tools(entry: CanonicalEntry) -> dict[str, Any]:
    found = carried_data(entry, _TOOLS)
    return found if isinstance(found, dict) else {}


def _agent(entry: CanonicalEntry) -> str | None:
    agent = _tools(entry).get("agent")
    return agent if isinstance(agent, str) else None
