"""The lines of one write: messages that are not stored yet, then one of our entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sessiontree.adapters.langgraph.values import BareMessage, MessageKey, Ref
from sessiontree.core.ids import is_session_id, new_entry_id, timestamp
from sessiontree.errors import InvalidEntryError
from sessiontree.session.entry_input import parse_timestamp

if TYPE_CHECKING:
    from sessiontree.adapters.langgraph.thread import Thread


class Batch:
    def __init__(self, thread: Thread, *, adds_messages: bool = True) -> None:
        self._thread = thread
        self._adds_messages = adds_messages
        """Whether new messages become entries: not where their place in the tree is unknown."""
        self._new: dict[MessageKey, tuple[str, dict[str, Any]]] = {}
        """Id and fields of new entries."""
        self._named: dict[str, str | None] = {}
        """Ids of messages that were stored without one."""
        self.bare: dict[int, BareMessage] = {}
        """By the identity of their originals: a message is serialized once."""
        self.digests: dict[int, tuple[Any, str]] = {}
        """Messages and their hashes, by identity. Messages are kept, so that no other object gets the same identity."""
        self.position: str | None = None
        """The entry that the lines follow."""

    @property
    def has_new(self) -> bool:
        """Whether the batch contains messages that were not stored before."""
        return bool(self._new)

    def message(self, key: MessageKey, fields: Callable[[], dict[str, Any]], path: list[str] | None) -> Ref | None:
        """Refer to a message that is stored, or that this batch stores. With a path, it is one of these entries.

        Entries of the path up to the message are removed from it, so that the next one follows. None if the message
        cannot be an entry.
        """
        if key in self._new:
            return {"message": self._new[key][0]}
        stored = self._thread.messages
        # LangGraph stores an input before its messages get ids: the same message, with another id.
        candidates = path if path is not None else [stored[one] for one in (key, (key[0], None)) if one in stored]
        for at, entry in enumerate(candidates):
            digest, id = self._thread.keys[entry]
            if digest == key[0] and (id == key[1] or (id is None and self._can_name(entry, key))):
                if path is not None:
                    del path[: at + 1]
                return {"message": entry} if id == key[1] else {"message": entry, "id": key[1]}
        if not self._adds_messages:
            return None
        self._new[key] = (self._free_id(), fields())
        return {"message": self._new[key][0]}

    def _can_name(self, entry: str, key: MessageKey) -> bool:
        """Whether an entry without an id is the message with this id: no other message was."""
        stored = self._thread.messages
        is_free = stored.get(key) == entry or stored.get((key[0], None)) == entry
        return is_free and self._named.setdefault(entry, key[1]) == key[1]

    def render(self, kind: str, fields: dict[str, Any], id: str = "", time: str = "") -> list[bytes]:
        """The lines: a chain of the new messages, then an entry with an id and time, if possible."""
        render, now, parent = self._thread.session.dialect.render_entry, timestamp(), self.position
        lines: list[bytes] = []
        for entry, message in self._new.values():
            lines.append(render("message", entry, parent, now, message))
            parent = entry
        if id and (id in self._thread.session or not is_session_id(id)):
            id, fields = "", {"checkpoint": id, **fields}
        if time and not _is_time(time):
            time, fields = "", {**fields, "ts": time}
        return [*lines, render(kind, id or self._free_id(), parent, time or now, fields)]

    def _free_id(self) -> str:
        used = {entry for entry, _ in self._new.values()}
        while (id := new_entry_id(self._thread.session.journal.tree.node_of)) in used:
            pass  # this batch has already used that id
        return id


def _is_time(text: object) -> bool:
    try:
        return isinstance(text, str) and parse_timestamp(text) is not None
    except InvalidEntryError:
        return False
