"""An open thread: its session, and an index of its checkpoints, writes and messages."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from sessiontree.adapters.file_identity import file_identity
from sessiontree.adapters.langgraph.values import EXACT, MessageKey, Ref, Values, messages_in
from sessiontree.errors import DamagedError, ReplacedError
from sessiontree.session.session import Session

if TYPE_CHECKING:
    from sessiontree.adapters.langgraph.batch import Batch

Name: TypeAlias = tuple[str, str]
"""Namespace and id of a checkpoint."""

_log = logging.getLogger("sessiontree")

CHECKPOINT = "langgraph_checkpoint"
WRITES = "langgraph_writes"
DELETED = "langgraph_deleted"
THREAD = "langgraph_thread"
"""The name of a thread, where it cannot be the id of a session."""
_TYPES = frozenset({CHECKPOINT, WRITES, DELETED, THREAD})
_KEPT_LISTS = 8


class StoredWrite(Struct, frozen=True):
    channel: str
    value: Ref
    path: str


class StoredValue(Struct, frozen=True):
    """The value of a channel, and the entry that contains it."""

    entry: str
    version: Any
    value: Ref


class StoredCheckpoint(Struct):
    """A checkpoint: its entry, and where the parts of its state are stored."""

    entry: str
    parent: str | None
    ts: str
    versions: dict[str, Any]
    seen: Ref
    rest: Ref
    metadata: Ref
    values: dict[str, StoredValue] = field(default_factory=dict)
    """By channel, those of earlier checkpoints included."""


class Thread:
    """An open thread: its session and an index of its entries. Callers hold the lock."""

    def __init__(self, name: str, session: Session, serde: Any) -> None:
        self.name = name
        self.session = session
        self._identity = file_identity(session)
        self.lock = threading.RLock()
        self.values = Values(self, serde)
        self.checkpoints: dict[Name, StoredCheckpoint] = {}
        self.writes: dict[Name, dict[tuple[str, int], StoredWrite]] = {}
        self.deleted: set[Name] = set()
        self.succeeded: set[Name] = set()
        """Checkpoints that have children."""
        self.messages: dict[MessageKey, str] = {}
        """Entry of each message."""
        self.keys: dict[str, MessageKey] = {}
        """By entry."""
        self.by_id: dict[str | None, str] = {}
        """Entry of the last message with an id."""
        self._by_version: dict[tuple[str, str, Any], StoredValue] = {}
        self._owners: dict[str, Name] = {}
        """The checkpoint that an entry follows."""
        self._tails: dict[Name, list[str]] = {}
        """Entries that follow a checkpoint, up to the next ones."""
        self._lists: OrderedDict[tuple[str, str], list[Ref]] = OrderedDict()
        """Items of lists by entry and channel, for those used last."""
        self._stored: dict[tuple[str, str], Ref] = {}
        """Values by entry and channel."""
        self._read = 0

    def refresh(self) -> None:
        """Index the entries that were appended since the last call, by any process."""
        if file_identity(self.session) != self._identity:
            raise ReplacedError(f"{self.session.location}: was deleted or replaced. Open it again.")
        self.session.refresh()
        journal = self.session.journal
        nodes = [node for node in range(self._read, len(journal)) if journal.types[node] in _TYPES | {"message"}]
        self._read = len(journal)
        for node, fields in zip(nodes, journal.fields(nodes), strict=True):
            try:
                self._index(journal.types[node], journal.tree.ids[node], fields)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # Another program wrote it, or a line that it needs is lost: the rest of the thread is still there.
                place = f"{self.session.location}: {journal.tree.ids[node]}"
                _log.warning("%s: not a valid %s entry (%r); it is ignored", place, journal.types[node], error)

    def _index(self, kind: str, entry: str, fields: dict[str, Any]) -> None:
        namespace = fields.get("namespace", "")
        owner = self._owners.get(fields.get("parentId") or "")
        match kind:
            case "message":
                exact = fields.get(EXACT)
                if exact:
                    self.keys[entry] = (exact["hash"], exact.get("id"))
                    self.messages[self.keys[entry]] = self.by_id[exact.get("id")] = entry
                    self.values.forget(entry)
            case "langgraph_checkpoint":
                owner = (namespace, fields.get("checkpoint", entry))
                self._index_checkpoint(owner, entry, fields)
            case "langgraph_writes":
                name = (namespace, fields["checkpoint"]) if "checkpoint" in fields else owner
                if name is None:
                    raise ValueError("its checkpoint is missing")
                stored = self.writes.setdefault(name, {})
                for number, channel, value in fields["writes"]:
                    self._index_messages(value)
                    stored[fields["task"], number] = StoredWrite(channel, value, fields.get("path", ""))
            case "langgraph_deleted":
                self.deleted.update((one[0], one[1]) for one in fields["checkpoints"])
        if owner is not None:
            self._owners[entry] = owner
            if kind in ("message", WRITES):
                self._tails.setdefault(owner, []).append(entry)

    def _index_checkpoint(self, name: Name, entry: str, fields: dict[str, Any]) -> None:
        parent = fields.get("parent")
        stored = StoredCheckpoint(
            entry,
            parent,
            fields.get("ts") or fields["timestamp"],
            fields["versions"],
            fields["seen"],
            fields["rest"],
            fields["metadata"],
        )
        before = self.checkpoints.get((name[0], parent)) if parent else None
        if parent:
            self.succeeded.add((name[0], parent))
        stored.values = {} if before is None else {**before.values}
        for channel, value in fields["values"].items():
            if "keep" in value:
                value["base"] = "" if before is None else before.values[channel].entry
            self._index_messages(value)
            version = stored.versions.get(channel)
            stored.values[channel] = self._by_version[name[0], channel, version] = StoredValue(entry, version, value)
            self._stored[entry, channel] = value
        self.checkpoints[name] = stored
        self.deleted.discard(name)
        self._tails[name] = []

    def _index_messages(self, value: Ref) -> None:
        """Note the ids that messages got after they were stored without one."""
        for one in messages_in(value):
            if "id" in one and one["message"] in self.keys:
                digest = self.keys[one["message"]][0]
                self.messages[digest, one["id"]] = self.by_id[one["id"]] = one["message"]
                if self.messages.get((digest, None)) == one["message"]:
                    del self.messages[digest, None]  # an equal message without an id is another one from now on

    def damaged(self, what: str) -> DamagedError:
        return DamagedError(
            f"{self.session.location}: {what}; run `sessiontree doctor` on it, or use an older checkpoint"
        )

    # Queries

    def latest(self, namespace: str) -> str | None:
        names = (name for name in self.checkpoints if name[0] == namespace and name not in self.deleted)
        return max((id for _, id in names), default=None)

    def visible(self, namespace: str | None) -> list[Name]:
        """The checkpoints of a namespace, or of all, newest first."""
        names = (name for name in self.checkpoints if name not in self.deleted)
        return sorted(
            (name for name in names if namespace is None or name[0] == namespace), key=lambda one: one[1], reverse=True
        )

    def matches(self, name: Name, wanted: Mapping[str, Any]) -> bool:
        metadata = self.values.decode(self.checkpoints[name].metadata)
        return all(metadata.get(key) == value for key, value in wanted.items())

    def value_of(self, name: Name, channel: str, version: Any) -> StoredValue | None:
        """The value of a channel at a version, which the checkpoint or an earlier one stores."""
        known = self.checkpoints[name].values.get(channel)
        if known is not None and known.version == version:
            return known
        return self._by_version.get((name[0], channel, version))

    def complete(self, stored: StoredValue, channel: str) -> Ref:
        """A value that depends on no other checkpoint."""
        return {"list": self.expand(stored.entry, channel)} if "keep" in stored.value else stored.value

    def tail(self, name: Name) -> str:
        """The last entry that follows a checkpoint."""
        following = self._tails[name]
        return following[-1] if following else self.checkpoints[name].entry

    def position(self, parent: Name | None, metadata: Mapping[str, Any], hashes: set[str]) -> str | None:
        """The entry that a new checkpoint follows: the last message of its parent's that it contains."""
        if parent is None:
            # The first checkpoint of a subgraph follows the one of the graph around it.
            around = [*(metadata.get("parents") or {}).items()]
            found = self.checkpoints.get(around[-1]) if around else None
            if found is not None:
                return found.entry
            return None if self.checkpoints else self.session.leaf
        stored = self.checkpoints.get(parent)
        if stored is None:
            return None
        last = stored.entry
        for entry in self._tails.get(parent, []):
            if entry in self.keys and self.keys[entry][0] not in hashes:
                break
            last = entry
        return last

    # Lists

    def encode_channel(self, batch: Batch, channel: str, parent: Name | None, values: Mapping[str, Any]) -> Ref:
        """The value of a channel; a list as its difference from the one in the parent checkpoint."""
        if channel not in values:
            return {}
        value = values[channel]
        if type(value) is not list or not self.values.is_open:
            return self.values.encode(batch, value)
        before = self.checkpoints.get(parent) if parent else None
        stored = before.values.get(channel) if before is not None else None
        base = stored.entry if stored is not None and "list" in stored.value else None
        known = [] if base is None else [self.key_of(ref) for ref in self.expand(base, channel)]
        keep = 0
        for item, key in zip(value, known, strict=False):
            if (self.values.message_key(batch, item) or self.values.encode(batch, item)) != key:
                break
            keep += 1
        # The messages of a list are on the path of its checkpoint, in order: those of the base are by induction.
        path = self._messages_between(base, batch.position)
        items = [self.values.encode(batch, item, path) for item in value[keep:]]
        return {"list": items, "keep": keep} if keep else {"list": items}

    def key_of(self, ref: Ref) -> MessageKey | Ref:
        """The key by which items of lists are compared."""
        if "message" not in ref:
            return ref
        digest, id = self.keys.get(ref["message"], ("", None))
        return digest, ref.get("id", id)

    def _messages_between(self, start: str | None, end: str | None) -> list[str]:
        """Entries of messages after one entry of a path, up to another."""
        found: list[str] = []
        while end is not None and end != start:
            if end in self.keys:
                found.append(end)
            end = self.session.parent(end)
        return found[::-1]

    def expand(self, entry: str, channel: str) -> list[Ref]:
        """All items of the list that an entry stores for a channel."""
        parts: list[Ref] = []
        key = (entry, channel)
        while key not in self._lists:
            part = self._stored.get(key)
            if part is None:
                raise self.damaged(f"the channel {channel!r} continues a checkpoint that is missing")
            parts.append(part)
            if "keep" not in part:
                break
            key = (part["base"], channel)
        items = [*self._lists.get(key, ())]
        for part in reversed(parts):
            items = [*items[: part.get("keep", 0)], *part["list"]]
        self._lists[entry, channel] = items
        while len(self._lists) > _KEPT_LISTS:
            self._lists.popitem(last=False)
        return items
