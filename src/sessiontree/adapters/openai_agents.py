"""Sessions for the OpenAI Agents SDK: `TreeSession` and, with named branches, `BranchingTreeSession`.

from agents import Agent, Runner
from sessiontree.adapters.openai_agents import TreeSession

result = await Runner.run(agent, "hello", session=TreeSession("user-123"))

Each item is an entry: an ordinary message that every command reads, with the original item as passthrough data. Nothing
is deleted: `pop_item` moves the current entry to the parent, and `clear_session` to before the first entry.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from sessiontree.adapters.named_session import NamedSession, session_id_of
from sessiontree.adapters.worker_threads import run_read, run_write
from sessiontree.core.entries import CONVERSATION_TYPES, ContextEdit
from sessiontree.core.ids import now_ms
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, User, message_blocks
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of
from sessiontree.session.entry_input import Durability
from sessiontree.session.session import Session

if TYPE_CHECKING:
    from agents import SessionSettings
    from agents.memory.session import _CompactionSnapshot

Item: TypeAlias = Any
"""An input item of the SDK: a dict, typed there as a union of many."""

_NAME = "openai-agents"
"""The name under which passthrough data holds an item."""
_CONTEXT_CHANGES = CONVERSATION_TYPES - {"message"} | {"context_edit"}
"""Types of entries that change the context otherwise than by one more message."""
_CALL_NAMES_BACK = 64
"""Number of entries that are searched for the call of a result that another process wrote."""


class TreeSession:
    """A `Session` of the SDK, stored as an ordinary session of this package.

    `home` is a folder or an address such as `memory:team` or `postgresql://host/db`; by default the home folder.
    Objects with the same `session_id` and `home` share the history, also in several processes.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        home: str | os.PathLike[str] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        durability: Durability = "turn",
    ) -> None:
        from agents.memory.session_settings import SessionSettings, coerce_session_settings

        self.session_id = session_id
        self.session_settings = (
            SessionSettings() if session_settings is None else coerce_session_settings(session_settings)
        )
        self._named = NamedSession(session_id_of(session_id), home, cwd=cwd, durability=durability)
        self._call_names: dict[str, str] = {}

    # The SDK's protocol

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The latest items, oldest first; all of them without a limit or with a negative one."""
        from agents.memory.session_settings import resolve_session_limit

        resolved = resolve_session_limit(limit, self.session_settings)
        return await run_read(lambda: self._read_items(resolved))

    async def add_items(self, items: list[Item]) -> None:
        """Append items in one write: all of them or none."""
        self._named.check_open()
        if items:
            await run_write(lambda: self._write_items(items))

    async def pop_item(self) -> Item | None:
        """Return the latest item and switch to the entry before it, durably."""
        return await run_write(self._pop)

    async def clear_session(self) -> None:
        """Switch to before the first entry, durably: the session is empty, and its history stays in the tree."""
        await run_write(self._clear)

    def close(self) -> None:
        """Sync and close the session. Later calls are refused."""
        self._named.close()

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Item], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """The SDK's private hook for replacing the last items by compacted ones in one step.

        Without it, the SDK clears the session and adds all items again.
        """
        if any(getattr(type(self), name) is not getattr(TreeSession, name) for name in _PROTOCOL):
            return None  # a subclass that transforms items
        try:
            from agents.memory.session import _CompactionSnapshot
        except ImportError:  # another version of the SDK
            return None
        latest = await run_read(lambda: self._read_items(limit + 1))
        items = latest[-limit:] if limit > 0 else []

        async def replace_suffix(start: int, output: list[Item]) -> bool:
            return await run_write(lambda: self._replace_suffix(items[start:], output, prune_prefix))

        return _CompactionSnapshot(items, len(latest) <= limit, replace_suffix)

    # Blocking parts, which run in worker threads

    def _read_items(self, limit: int | None) -> list[Item]:
        with self._named.reading() as session:
            if session is None or limit == 0:
                return []
            wanted = None if limit is None or limit < 0 else limit
            items = [item for _, item in _latest_items(session, self._leaf_of(session), wanted)]
            return items if wanted is None else items[-wanted:]

    def _write_items(self, items: Sequence[Item]) -> None:
        bodies = self._encode(items)
        with self._named.writing() as session:
            self._append(session, self._leaf_of(session), bodies)

    def _append(self, session: Session, leaf: str | None, bodies: list[JsonObject]) -> None:
        for body in bodies:
            self._set_tool_name(session, leaf, body["message"])
        if len(bodies) == 1:
            if leaf != session.leaf:
                branch = session.branch(leaf)
                branch.append({"type": "message", **bodies[0]})
            else:
                session.append({"type": "message", **bodies[0]})
        elif bodies:
            session.append_all([CanonicalEntry("message", body) for body in bodies], leaf)

    def _encode(self, items: Sequence[Item]) -> list[JsonObject]:
        """Entries for items. Raises before anything is written if an item is not JSON."""
        now = now_ms()
        bodies: list[JsonObject] = []
        for item in items:
            kept = json.loads(json.dumps(item))
            message = {**_message_of(kept), "timestamp": now}
            for call in message["content"] if message["role"] == "assistant" else ():
                if call["type"] == "toolCall":
                    self._call_names[call["id"]] = call["name"]
            bodies.append({"message": message, PASSTHROUGH: {_NAME: kept}})
        return bodies

    def _set_tool_name(self, session: Session, leaf: str | None, message: JsonObject) -> None:
        """Complete a result with the name of its tool, which only the call has."""
        if message["role"] != "toolResult" or message["toolName"]:
            return
        call = message["toolCallId"]
        if call not in self._call_names:
            for _, item in reversed(_latest_items(session, leaf, _CALL_NAMES_BACK)):
                if isinstance(item, dict) and isinstance(item.get("call_id"), str) and "name" in item:
                    self._call_names.setdefault(item["call_id"], str(item["name"]))
        message["toolName"] = self._call_names.pop(call, "")

    def _pop(self) -> Item | None:
        with self._named.reading() as existing:
            if existing is None:
                return None
        with self._named.writing() as session:
            pairs = _latest_items(session, self._leaf_of(session), 1)
            if not pairs:
                return None
            source = pairs[-1][0]
            *others, popped = [item for id, item in pairs if id == source]
            self._move(session, session.parent(source))
            # An entry of another program may be several items; the ones before the popped one stay.
            self._append(session, self._leaf_of(session), self._encode(others))
            return popped

    def _clear(self) -> None:
        with self._named.reading() as existing:
            if existing is None:
                return
        with self._named.writing() as session:
            session.reset()

    def _replace_suffix(self, expected: list[Item], output: list[Item], prune: Callable[[Item], bool] | None) -> bool:
        """Replace the last items, if they are still the expected ones, and drop the first ones that `prune` accepts."""
        if not expected:
            return False
        bodies = self._encode(output)
        with self._named.writing() as session:
            leaf = self._leaf_of(session)
            pairs = _latest_items(session, leaf, len(expected) if prune is None else None)
            if [item for _, item in pairs[-len(expected) :]] != expected:
                return False
            before, first = pairs[: -len(expected)], pairs[-len(expected)][0]
            dropped = next((at for at, (_, item) in enumerate(before) if not prune(item)), len(before)) if prune else 0
            if dropped:
                self._move(session, None)
                bodies = self._encode([item for _, item in before[dropped:]]) + bodies
            else:
                self._move(session, session.parent(first))
            self._append(session, self._leaf_of(session), bodies)
            return True

    # Overridden by the session with branches

    def _leaf_of(self, session: Session) -> str | None:
        return session.leaf

    def _move(self, session: Session, to: str | None) -> None:
        session.move(to)


_PROTOCOL = ("get_items", "add_items", "pop_item", "clear_session")


# Reading


def _latest_items(session: Session, leaf: str | None, limit: int | None) -> list[tuple[str, Item]]:
    """At least `limit` last items before an entry, oldest first, with the ids of their entries; None: all items."""
    journal = session.journal
    parents, types, node = journal.tree.parents(), journal.types, session.node_of(leaf)
    nodes: list[int] = []
    while node is not None and (limit is None or len(nodes) < limit):
        if types[node] == "message":
            nodes.append(node)
        elif types[node] in _CONTEXT_CHANGES:
            return _context_items(session, leaf)
        node = parents[node]
    nodes.reverse()
    ids = journal.tree.ids
    lines = zip(nodes, journal.resolved_fields(nodes), strict=True)
    found = [(ids[node], item) for node, fields in lines for item in _items_of(session, ids[node], fields)]
    if node is not None and limit is not None and len(found) < limit:  # entries without items do not count
        return _latest_items(session, leaf, 2 * limit)
    return found


def _context_items(session: Session, leaf: str | None) -> list[tuple[str, Item]]:
    """The items of a context with compactions or edits: those of unchanged entries, and messages for the others."""
    context = session.context(leaf)
    plain = [id for id in context.path if session.type_of(id) == "message"]
    fields = dict(zip(plain, session.journal.resolved_fields([session.node_of(id) or 0 for id in plain]), strict=True))
    edited = {entry.target_id for entry in session.path(leaf) if isinstance(entry, ContextEdit)}
    found: list[tuple[str, Item]] = []
    for id, message in zip(context.sources, context.messages, strict=True):
        if id in fields and id not in edited:
            found += [(id, item) for item in _items_of(session, id, fields[id])]
        else:
            found += [(id, item) for item in _rendered_items(message)]
    return found


def _items_of(session: Session, id: str, fields: JsonObject) -> list[Item]:
    carried = passthrough_of(fields)
    if _NAME in carried:
        return [carried[_NAME]]
    entry = session.entry(id)
    message = getattr(entry, "message", None)
    return [] if message is None else _rendered_items(message)


def _rendered_items(message: Message) -> list[Item]:
    """Items for a message that another program wrote."""
    if isinstance(message, ToolResult):
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}]
    role = "assistant" if message.role == "assistant" else "user"
    items: list[Item] = []
    for block in message_blocks(message):
        match block:
            case ToolCall():
                arguments = json.dumps(block.arguments, ensure_ascii=False)
                items.append({"type": "function_call", "call_id": block.id, "name": block.name, "arguments": arguments})
            case Text(text=text) if text:
                kind = "output_text" if role == "assistant" else "input_text"
                items.append({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})
            case Image() if isinstance(message, User):
                url = f"data:{block.mime_type};base64,{block.data}"
                items.append(
                    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}]}
                )
            case Thinking() | _:
                pass  # the API accepts no reasoning that it did not write itself
    return items


# Messages for items

_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/=]+)\Z")
_CALLS_WITH_OUTPUT = frozenset(
    {"function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
"""Types of calls whose result is an item of its own. Hosted tools have their results in the call."""
_CALL_FIELDS = frozenset({"type", "id", "call_id", "status", "name", "namespace", "arguments", "input"})
_OPAQUE_FIELDS = frozenset({"encrypted_content", "result", "status", "id"})


def _message_of(item: Any) -> JsonObject:
    """The ordinary message that shows an item to all other programs."""
    if not isinstance(item, dict):
        return _custom("item", json.dumps(item, ensure_ascii=False))
    kind, role = str(item.get("type") or "message"), item.get("role")
    if kind == "message" and role == "user":
        return {"role": "user", "content": _blocks(item.get("content"))}
    if kind == "message" and role == "assistant":
        return {"role": "assistant", "content": _blocks(item.get("content")), "stopReason": "stop"}
    if kind == "message" and isinstance(role, str):
        return _custom(role, _blocks(item.get("content")))
    if kind == "reasoning":
        parts = [*_list(item.get("summary")), *_list(item.get("content"))]
        text = "\n\n".join([str(part.get("text") or "") for part in parts if isinstance(part, dict)])
        return {"role": "assistant", "content": [{"type": "thinking", "thinking": text}], "stopReason": "toolUse"}
    call = item.get("call_id")
    if kind in _CALLS_WITH_OUTPUT and isinstance(call, str) and call:
        block = {"type": "toolCall", "id": call, "name": _tool_name(kind, item), "arguments": _arguments(item)}
        return {"role": "assistant", "content": [block], "stopReason": "toolUse"}
    if kind.endswith("_output") and kind.removesuffix("_output") in _CALLS_WITH_OUTPUT and isinstance(call, str):
        return {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": "" if kind in ("function_call_output", "custom_tool_call_output") else kind[: -len("_output")],
            "content": _blocks(item.get("output")),
            "isError": item.get("status") in ("failed", "incomplete"),
        }
    shown = {name: value for name, value in item.items() if name not in _OPAQUE_FIELDS}
    return _custom(kind, json.dumps(shown, ensure_ascii=False))


def _custom(kind: str, content: str | list[JsonObject]) -> JsonObject:
    return {"role": "custom", "customType": f"{_NAME}.{kind}", "content": content, "display": True}


def _blocks(content: Any) -> list[JsonObject]:
    """Content blocks for the parts of an item."""
    parts = [{"text": content}] if isinstance(content, str) else _list(content)
    if isinstance(content, dict):
        parts = [content]
    blocks: list[JsonObject] = []
    for part in parts:
        if not isinstance(part, dict):
            blocks.append({"type": "text", "text": part if isinstance(part, str) else json.dumps(part)})
            continue
        text = part.get("text", part.get("refusal"))
        image = part.get("image_url")
        data = _DATA_URL.match(image) if isinstance(image, str) else None
        if isinstance(text, str):
            blocks.append({"type": "text", "text": text})
        elif data is not None:
            blocks.append({"type": "image", "mimeType": data[1], "data": data[2]})
        else:
            shown = {name: value for name, value in part.items() if name not in ("file_data", "data")}
            blocks.append({"type": "text", "text": json.dumps(shown, ensure_ascii=False)})
    return blocks


def _tool_name(kind: str, item: Mapping[str, Any]) -> str:
    name = item.get("name")
    return name if isinstance(name, str) and name else kind


def _arguments(item: Mapping[str, Any]) -> JsonObject:
    given = item.get("arguments", item.get("input"))
    if isinstance(given, str):
        try:
            found = json.loads(given)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"input": given}
    if isinstance(given, dict):
        return given
    return {name: value for name, value in item.items() if name not in _CALL_FIELDS}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
