"""Sessions for the OpenAI Agents SDK: `TreeSession` and, with named branches, `BranchingTreeSession`.

from agents import Agent, Runner
from sessiontree.adapters.openai_agents import TreeSession

result = await Runner.run(agent, "hello", session=TreeSession("user-123"))

Each item is an entry: an ordinary message that every command reads, with the original item as passthrough data. Nothing
is deleted: `pop_item` moves the current entry to the parent, and `clear_session` to before the first entry.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.adapters.named_session import NamedSession, session_id_of
from sessiontree.adapters.openai_branch_index import BRANCH, CLEAR, MAIN, BranchIndex
from sessiontree.adapters.openai_items import NAME, Item, carried_item, latest_items, message_of
from sessiontree.adapters.worker_threads import run_read, run_write
from sessiontree.core.ids import new_entry_id, now_ms
from sessiontree.core.jsonio import JsonObject
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.session.entry_input import Durability
from sessiontree.session.session import Session

if TYPE_CHECKING:
    from agents import RunResult, SessionSettings
    from agents.memory.session import _CompactionSnapshot

_CALL_NAMES_BACK = 64
"""Number of entries that are searched for the call of a result that another process wrote."""


class TreeSession:
    """A `Session` of the SDK, stored as an ordinary session of this package.

    `home` is a folder or an address such as `memory:team` or `postgresql://host/db`; by default the home folder.
    Objects with the same `session_id` and `home` share the history, even in several processes.
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
        try:
            from agents.memory.session_settings import SessionSettings, coerce_session_settings
        except ImportError as error:
            raise ImportError("this needs the SDK: pip install 'sessiontree[openai-agents]'") from error

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
            return [] if session is None else _limited_items(session, self._leaf_of(session), limit)

    def _write_items(self, items: Sequence[Item]) -> None:
        bodies = self._encode(items)
        self._named.append(lambda session: self._append(session, bodies))

    def _append(self, session: Session, bodies: list[JsonObject]) -> None:
        for body in bodies:
            self._set_tool_name(session, body["message"])
        if bodies:
            self._append_entries(session, [CanonicalEntry("message", body) for body in bodies])

    def _encode(self, items: Sequence[Item]) -> list[JsonObject]:
        """Entries for items. Rendering them, before anything is written, fails for an item that is not JSON."""
        now = now_ms()
        bodies: list[JsonObject] = []
        for item in items:
            message = message_of(item)
            message["timestamp"] = now
            if message.get("stopReason") == "toolUse":
                for call in message["content"]:
                    if call["type"] == "toolCall":
                        self._call_names[call["id"]] = call["name"]
            bodies.append({"message": message, PASSTHROUGH: {NAME: carried_item(item, message)}})
        return bodies

    def _set_tool_name(self, session: Session, message: JsonObject) -> None:
        """Complete a result with the name of its tool, which only the call has."""
        if message["role"] != "toolResult" or message["toolName"]:
            return
        call = message["toolCallId"]
        if call not in self._call_names:
            session.follow()
            for _, item in reversed(latest_items(session, self._leaf_of(session), _CALL_NAMES_BACK)):
                if isinstance(item, dict) and isinstance(item.get("call_id"), str) and "name" in item:
                    self._call_names.setdefault(item["call_id"], str(item["name"]))
        message["toolName"] = self._call_names.pop(call, "")

    def _pop(self) -> Item | None:
        with self._named.reading() as existing:  # first, because `writing` would create the session
            if existing is None:
                return None
        with self._named.writing() as session:
            pairs = latest_items(session, self._leaf_of(session), 1)
            if not pairs:
                return None
            source = pairs[-1][0]
            *others, popped = [item for id, item in pairs if id == source]
            self._move(session, session.parent(source))
            # An entry of another program may be several items; the ones before the popped one stay.
            self._append(session, self._encode(others))
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
            pairs = latest_items(session, leaf, len(expected) if prune is None else None)
            if [item for _, item in pairs[-len(expected) :]] != expected:
                return False
            before, first = pairs[: -len(expected)], pairs[-len(expected)][0]
            dropped = next((at for at, (_, item) in enumerate(before) if not prune(item)), len(before)) if prune else 0
            if dropped:
                self._move(session, None)
                bodies = self._encode([item for _, item in before[dropped:]]) + bodies
            else:
                self._move(session, session.parent(first))
            self._append(session, bodies)
            return True

    # Overridden by the session with branches

    def _leaf_of(self, session: Session) -> str | None:
        return session.leaf

    def _append_entries(self, session: Session, entries: list[CanonicalEntry]) -> None:
        session.append_following(entries)

    def _move(self, session: Session, to: str | None) -> None:
        session.move(to)


_PROTOCOL = ("get_items", "add_items", "pop_item", "clear_session")


def _limited_items(session: Session, leaf: str | None, limit: int | None) -> list[Item]:
    """The last items before an entry; all of them without a limit or with a negative one."""
    if limit == 0:
        return []
    wanted = None if limit is None or limit < 0 else limit
    items = [item for _, item in latest_items(session, leaf, wanted)]
    return items if wanted is None else items[-wanted:]


class BranchingTreeSession(TreeSession):
    """A `TreeSession` with named branches and usage by turn, with the methods of the SDK's `AdvancedSQLiteSession`.

    An object starts on the branch `main`. Creating a branch copies nothing: it is a position in the session's tree.
    """

    def __init__(
        self,
        session_id: str,
        home: str | os.PathLike[str] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        durability: Durability = "turn",
        logger: logging.Logger | None = None,
    ) -> None:
        super().__init__(session_id, home, cwd=cwd, session_settings=session_settings, durability=durability)
        self._logger = logger or logging.getLogger(__name__)
        self._index: BranchIndex | None = None
        self._branch = MAIN
        self._clears: int | None = None

    # Items

    async def get_items(self, limit: int | None = None, branch_id: str | None = None) -> list[Item]:
        """The latest items of a branch (default: the current one), oldest first."""
        from agents.memory.session_settings import resolve_session_limit

        resolved = resolve_session_limit(limit, self.session_settings)

        def read() -> list[Item]:
            with self._named.reading() as session:
                index = self._indexed(session)
                name = self._branch if branch_id is None else branch_id
                if session is None or name not in index.branches:
                    return []
                return _limited_items(session, index.tip_of(name), resolved)

        return await run_read(read)

    # Branches

    async def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Start a branch before the user message of a turn, switch to it, and return its name."""
        if branch_name is not None and not branch_name.strip():
            raise ValueError("Branch name cannot be empty")
        return await run_write(lambda: self._create_branch(turn_number, branch_name))

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Start a branch before the first user message that contains a text."""
        found = await self.find_turns_by_content(search_term)
        if not found:
            raise ValueError(f"No user turns found containing '{search_term}'")
        return await self.create_branch_from_turn(found[0]["turn"], branch_name)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Switch to a branch; its tip becomes the session's current entry."""

        def switch() -> None:
            with self._named.reading() as existing:
                self._check_branch(self._indexed(existing), branch_id)
            with self._named.writing() as session:
                index = self._indexed(session)
                self._check_branch(index, branch_id)
                self._branch = branch_id
                if session.leaf != index.tip_of(branch_id):
                    session.move(index.tip_of(branch_id))

        await run_write(switch)

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """End a branch. Its entries stay in the tree; its name cannot be used again."""
        if not branch_id or not branch_id.strip():
            raise ValueError("Branch ID cannot be empty")
        if branch_id == MAIN:
            raise ValueError("Cannot delete the 'main' branch")

        def delete() -> None:
            with self._named.reading() as existing:
                self._check_branch(self._indexed(existing), branch_id)
                if branch_id == self._branch and not force:
                    raise ValueError(
                        f"Cannot delete current branch '{branch_id}'. Use force=True or switch branches first"
                    )
            with self._named.writing() as session:
                index = self._indexed(session)
                self._check_branch(index, branch_id)
                if branch_id == self._branch:
                    self._branch = MAIN
                    session.move(index.tip_of(MAIN))
                data = {"name": branch_id, "deleted": True}
                session.branch(index.tip_of(MAIN)).append({"type": "custom", "customType": BRANCH, "data": data})

        await run_write(delete)

    async def list_branches(self) -> list[dict[str, Any]]:
        """Name, number of messages and of user turns, and creation time of each branch, oldest first."""

        def read() -> list[dict[str, Any]]:
            with self._named.reading() as session:
                index = self._indexed(session)
                return [
                    {
                        "branch_id": name,
                        "message_count": index.message_count(name),
                        "user_turns": index.turn_count(name),
                        "is_current": name == self._branch,
                        "created_at": branch.created_at or ("" if session is None else session.header.timestamp),
                    }
                    for name, branch in index.branches.items()
                    if name != MAIN or index.message_count(name)
                ]

        return await run_read(read)

    # Turns

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """The user messages of a branch, with a preview."""
        return await run_read(lambda: [_turn(*found, 100) for found in self._turns(branch_id)])

    async def find_turns_by_content(self, search_term: str, branch_id: str | None = None) -> list[dict[str, Any]]:
        """The user messages of a branch that contain a text, ignoring case."""
        pattern = re.compile(re.escape(search_term), re.IGNORECASE | re.ASCII)

        def read() -> list[dict[str, Any]]:
            found = [turn for turn in self._turns(branch_id) if any(map(pattern.search, _texts(turn[1])))]
            return [_turn(*turn, None) for turn in found]

        return await run_read(read)

    async def get_conversation_by_turns(self, branch_id: str | None = None) -> dict[int, list[dict[str, str | None]]]:
        """Type and tool of each item of a branch, by turn."""

        def read() -> dict[int, list[dict[str, str | None]]]:
            turns: dict[int, list[dict[str, str | None]]] = {}
            for number, item in self._numbered_items(branch_id):
                turns.setdefault(number, []).append({"type": _item_type(item), "tool_name": _tool_name(item)})
            return turns

        return await run_read(read)

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """Tool, number of calls and turn, for each tool and turn of a branch."""

        def read() -> list[tuple[str, int, int]]:
            items = [(number, _item_type(item), item) for number, item in self._numbered_items(branch_id)]
            searches = {number for number, kind, _ in items if kind == "tool_search_call"}
            counts: Counter[tuple[int, str]] = Counter()
            for number, kind, item in items:
                name = _tool_name(item)
                is_search = kind == "tool_search_output" and number not in searches
                if name is not None and (kind in _TOOL_CALLS or is_search):
                    counts[number, name] += 1
            return [(name, count, number) for (number, name), count in sorted(counts.items())]

        return await run_read(read)

    # Usage

    async def store_run_usage(self, result: RunResult) -> None:
        """Store the usage of a run with the last turn of the current branch."""
        usage = result.context_wrapper.usage
        if usage is None:
            return
        details = {
            name: None if found is None else dict(vars(found))
            for name in ("input_tokens_details", "output_tokens_details")
            for found in [getattr(usage, name, None)]
        }
        totals = {name: getattr(usage, name) or 0 for name in _USAGE_TOTALS}
        await run_write(lambda: self._store_usage({**totals, **details}))

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """The sum of the usage of all turns of a branch, or of all branches."""

        def read() -> dict[str, int] | None:
            with self._named.reading() as session:
                index = self._indexed(session)
                names = [*index.branches] if not branch_id else [branch_id]
                used = [usage for name in names for usage in index.usage_by_turn(name).values()]
            totals = {name: sum(usage[name] for usage in used) for name in _USAGE_TOTALS}
            return {**totals, "total_turns": len(used)} if used else None

        return await run_read(read)

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """The usage of a turn of a branch, or of each turn."""

        def read() -> list[dict[str, Any]] | dict[str, Any]:
            with self._named.reading() as session:
                found = self._indexed(session).usage_by_turn(self._branch if branch_id is None else branch_id)
            rows = {number: {name: usage.get(name) for name in _USAGE_FIELDS} for number, usage in found.items()}
            if user_turn_number is not None:
                return rows.get(user_turn_number, {})
            return [{"user_turn_number": number, **row} for number, row in rows.items()]

        return await run_read(read)

    # Blocking parts

    def _indexed(self, session: Session | None) -> BranchIndex:
        """The index of a session. If all branches or the current one were ended, `main` becomes the current one."""
        if session is None:
            return BranchIndex(None)
        index = self._index
        if index is None or index.tree is not session.journal.tree:
            index = self._index = BranchIndex(session.journal)
        index.update()
        if (self._clears is not None and self._clears != index.clears) or self._branch not in index.branches:
            self._branch = MAIN
        self._clears = index.clears
        return index

    def _check_branch(self, index: BranchIndex, name: str) -> None:
        if name not in index.branches or (name == MAIN and not index.message_count(MAIN)):
            raise ValueError(f"Branch '{name}' does not exist")

    def _leaf_of(self, session: Session) -> str | None:
        return self._indexed(session).tip_of(self._branch)

    def _append_entries(self, session: Session, entries: list[CanonicalEntry]) -> None:
        session.append_following(entries, lambda: self._leaf_of(session))

    def _move(self, session: Session, to: str | None) -> None:
        index = self._indexed(session)
        if index.branch_of(to) == self._branch:
            session.move(to)
        else:  # before the start of the branch
            self._start_branch(session, self._branch, to)

    def _start_branch(self, session: Session, name: str, at: str | None) -> None:
        """Write the entry that a branch starts with and make it the current entry, in one write."""
        id = new_entry_id(session.journal.tree.node_of)
        start = CanonicalEntry("custom", {"customType": BRANCH, "data": {"name": name}}, id)
        session.append_all([start, CanonicalEntry("leaf", {"targetId": id})], at)
        session.follow()

    def _create_branch(self, turn_number: int, name: str | None) -> str:
        with self._named.reading() as existing:
            self._check_turn(self._indexed(existing), turn_number)
        with self._named.writing() as session:
            index = self._indexed(session)
            turn = self._check_turn(index, turn_number)
            if name is not None and name in index.used_names:
                raise ValueError(f"Branch ID '{name}' has already been used. Choose a new branch ID.")
            base, number = f"branch_from_turn_{turn_number}_{int(time.time())}", 1
            chosen = name or base
            while chosen in index.used_names:
                number += 1
                chosen = f"{base}_{number}"
            self._start_branch(session, chosen, session.parent(turn))
            self._logger.debug("Created branch '%s' from turn %s in '%s'", chosen, turn_number, self._branch)
            self._branch = chosen
            return chosen

    def _check_turn(self, index: BranchIndex, number: int) -> str:
        turn = index.find_turn(self._branch, number)
        if turn is None:
            raise ValueError(f"Turn {number} does not contain a user message in branch '{self._branch}'")
        return turn

    def _clear(self) -> None:
        with self._named.reading() as existing:
            if existing is None:
                return
        with self._named.writing() as session:
            session.branch(None).append({"type": "custom", "customType": CLEAR})
            session.reset()
            self._indexed(session)

    def _turns(self, branch_id: str | None) -> list[tuple[int, Any, str]]:
        """Number, content and time of the user messages of a branch."""
        with self._named.reading() as session:
            if session is None:
                return []
            index = self._indexed(session)
            found: list[tuple[int, Any, str]] = []
            for number, id in index.turns(self._branch if branch_id is None else branch_id):
                items = [item for source, item in latest_items(session, id, 1) if source == id]
                content = items[0].get("content", "") if items else ""
                found.append((number, content, session.entry(id).timestamp or ""))
            return found

    def _numbered_items(self, branch_id: str | None) -> list[tuple[int, Item]]:
        """The items of a branch, each with the number of its turn."""
        with self._named.reading() as session:
            index = self._indexed(session)
            name = self._branch if branch_id is None else branch_id
            if session is None or name not in index.branches:
                return []
            return [(index.turn_number(id), item) for id, item in latest_items(session, index.tip_of(name), None)]

    def _store_usage(self, used: JsonObject) -> None:
        with self._named.reading() as existing:
            if self._indexed(existing).last_turn(self._branch) is None:
                return
        with self._named.writing() as session:
            index = self._indexed(session)
            turn = index.last_turn(self._branch)
            if turn is None:
                return
            cached = (used.get("input_tokens_details") or {}).get("cached_tokens") or 0
            usage = {
                "input": max(0, used["input_tokens"] - cached),
                "output": used["output_tokens"],
                "cacheRead": cached,
                "totalTokens": used["total_tokens"],
            }
            carried = {NAME: {"branch": self._branch, "turn": turn, **used}}
            entry = {"type": "usage", "kind": "turn", "usage": usage, PASSTHROUGH: carried}
            session.branch(index.tip_of(self._branch)).append(entry)


_USAGE_TOTALS = ("requests", "input_tokens", "output_tokens", "total_tokens")
_USAGE_FIELDS = (*_USAGE_TOTALS, "input_tokens_details", "output_tokens_details")
_TOOL_CALLS = frozenset(
    {
        *("tool_call", "function_call", "computer_call", "file_search_call", "web_search_call"),
        *("code_interpreter_call", "tool_search_call", "custom_tool_call", "mcp_call", "mcp_approval_request"),
        *("shell_call", "apply_patch_call"),
    }
)
_TOOL_TYPES = _TOOL_CALLS - {"tool_call", "function_call", "custom_tool_call", "mcp_call", "mcp_approval_request"}
"""Types of calls whose name is their type."""


def _turn(number: int, content: Any, timestamp: str, longest: int | None) -> dict[str, Any]:
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    preview = text if longest is None or len(text) <= longest else text[:longest] + "..."
    return {
        "turn": number,
        "content": preview,
        "full_content": content,
        "timestamp": timestamp,
        "can_branch": True,
    }


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(part.get("text") or "") for part in content if isinstance(part, dict)]


def _item_type(item: Item) -> str:
    if not isinstance(item, dict):
        return "other"
    role = item.get("role")
    return role if role in ("user", "assistant") else str(item.get("type") or "other")


def _tool_name(item: Item) -> str | None:
    """The name of the tool of a call or result; with its server or namespace, if it has one."""
    if not isinstance(item, dict):
        return None
    kind, name = item.get("type"), item.get("name")
    if kind in ("tool_search_call", "tool_search_output"):
        return "tool_search"
    if kind in _TOOL_TYPES:
        return str(kind)
    outer = item.get("server_label") if kind in ("mcp_call", "mcp_approval_request") else item.get("namespace")
    parts = [str(part) for part in (outer if outer != name else None, name) if part]
    return ".".join(parts) or None
