"""Writing lines of the shape that Pi, native and oh-my-pi share: one line for each item, its fields as they are.

What the three have in common is here: ids and the references to them, what rides along, and the lines at the end that
name the session and make it stand where it should. What each says in words of its own is the business of `say`.

Nothing is held but ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.entries import Config, Header
from sessiontree.core.ids import new_entry_id, timestamp
from sessiontree.core.jsonio import convert_fields
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import Dialect, IndexedLines
from sessiontree.dialects.passthrough import PASSTHROUGH, new_passthrough
from sessiontree.dialects.side_branches import is_start

_ENVELOPE = frozenset({"type", "id", "parentId", "timestamp"})
_REFERENCES = {
    "branch_summary": ("fromId",),
    "compaction": ("firstKeptEntryId", "providerReplayThroughEntryId"),
    "context_edit": ("targetId",),
    "label": ("targetId",),
    "leaf": ("targetId",),
}
"""Fields that hold ids of other entries."""

_TOO_DEEP = LossNote(
    "dropped", "entries nested too deeply", "no line can hold them; an empty link stands in their place"
)


class Said(Struct, frozen=True):
    """An item in the words of a target."""

    kind: str
    fields: Mapping[str, Any]
    notes: tuple[LossNote, ...] = ()
    is_hidden: bool = False
    """Whether the line shall add nothing to the context, although it looks as if it did."""


class ShapeEncoder:
    """Writes one session in the shape; its client takes the last line for where the session stands."""

    quiet = frozenset({"config", "label", "leaf", "model_usage", "session_info", "title_change", "usage"})
    """Types of lines that may hang below the leaf at the end of the file: they change nothing there."""

    names_by_entry = True
    """Whether the client finds the name of the session in an entry."""

    def __init__(self, dialect: Dialect, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._dialect = dialect
        self._meta = meta
        self._lines = lines
        self._held: Mapping[str, int] = {} if lines is None else lines.tree.node_of
        self._parents: dict[str, str | None] = {}
        """The ids written so far, each with that of its parent."""
        self._quiet: set[str] = set()
        self._names: dict[str, str] = {}
        """What entries are called here that are called otherwise where they come from."""
        self._last: str | None = None
        self._has_sides = False
        self._time = meta.timestamp
        self._name: str | None = None
        self._config = Config()

    # The contract

    def prologue(self) -> Sequence[bytes]:
        start = self._meta
        header = Header(
            id=start.id,
            version=self._dialect.version,
            timestamp=start.timestamp,
            cwd=start.cwd,
            title=start.title or None,
            parent_session=start.origin,
            forked_from=start.forked_from,
            large_content=start.large_content,
        )
        return [self._dialect.render_header(header)]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        id = self._id_for(entry)
        self._names.pop(id, None)
        self._names.update((name, id) for name in (entry.id, *entry.aliases) if name and name != id)
        self._listen(entry)
        said = self._said(msgspec.structs.replace(entry, fields=self._with_references(entry)))
        try:
            lines = [self._line(said.kind, id, parent, entry.timestamp, said.fields)]
        except RecursionError:
            said = Said(PASSTHROUGH, {}, (_TOO_DEEP,))
            lines = [self._line(said.kind, id, parent, entry.timestamp, said.fields)]
        if said.is_hidden:
            edit = self._made_id(id)
            lines.append(self._line("context_edit", edit, id, entry.timestamp, {"targetId": id, "replacement": None}))
            id = edit
        return Encoded(id, lines, said.notes)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        lines = [self._line(kind, self._made_id(kind), leaf, "", fields) for kind, fields in self._still_to_say()]
        if self._has_sides or not self.stands_at(leaf):
            lines.append(self._line("leaf", self._made_id("leaf"), leaf, "", {"targetId": leaf}))
        return lines

    # What differs

    def say(self, entry: CanonicalEntry) -> Said:
        """The item in the target's own words: by default, in those it has."""
        return Said(entry.kind, entry.fields)

    def stands_at(self, leaf: str | None) -> bool:
        """Whether the client finds the session at this entry, as the lines are now."""
        node = self._last
        while node != leaf and node in self._quiet:
            node = self._parents[node]
        return node == leaf

    def wrote(self, kind: str, id: str, parent: str | None) -> None:
        """Called for each line."""
        self._parents[id] = parent
        self._last = id
        if kind in self.quiet:
            self._quiet.add(id)

    # Inside

    def _said(self, entry: CanonicalEntry) -> Said:
        is_speechless = entry.kind == "message" and not isinstance(entry.fields.get("message"), dict)
        if is_speechless or entry.kind in ("", "session"):
            return unsaid(entry)  # clients stumble over such lines, or take them for something else
        said = self.say(entry)
        if _ENVELOPE.isdisjoint(said.fields):
            return said
        outside = {name: value for name, value in entry.fields.items() if name in _ENVELOPE}
        inside = {name: value for name, value in said.fields.items() if name not in _ENVELOPE}
        return msgspec.structs.replace(said, fields=riding(entry, inside, fields=outside))

    def _line(self, kind: str, id: str, parent: str | None, time: str, fields: Mapping[str, Any]) -> bytes:
        if time:
            self._time = time
        elif self._lines is not None:
            self._time = timestamp()
        self.wrote(kind, id, parent)
        self._has_sides = self._has_sides or (kind == "custom" and is_start(fields.get("customType")))
        return self._dialect.render_entry(kind, id, parent, self._time, fields)

    def _is_taken(self, id: str) -> bool:
        return id in self._parents or id in self._held

    def _id_for(self, entry: CanonicalEntry) -> str:
        return entry.id if entry.id and not self._is_taken(entry.id) else self._made_id(entry.id)

    def _made_id(self, old: str) -> str:
        """Eight hex digits that are free: random in a file that is there, else the same each time."""
        if self._lines is not None:
            while True:
                id = new_entry_id(self._held)
                if id not in self._parents:
                    return id
        from hashlib import blake2b

        seed = f"{self._meta.id} {len(self._parents)} {old}".encode("utf-8", "surrogatepass")
        id = blake2b(seed, digest_size=4).hexdigest()
        while self._is_taken(id):
            id = blake2b(id.encode() + seed, digest_size=4).hexdigest()
        return id

    def _with_references(self, entry: CanonicalEntry) -> dict[str, Any]:
        """The fields with the ids of other entries as those are called here."""
        changed: dict[str, str] = {}
        for name in _REFERENCES.get(entry.kind, ()):
            target = entry.fields.get(name)
            if isinstance(target, str) and target in self._names:
                changed[name] = self._names[target]
        return {**entry.fields, **changed} if changed else entry.fields

    def _listen(self, entry: CanonicalEntry) -> None:
        """Remember what the session is called and set to, as far as it was said."""
        if entry.kind == "session_info":
            self._name = " ".join(name_of(entry).split())
        elif entry.kind == "config":
            config = entry.fields.get("config")
            self._config = convert_fields(Config, config) if isinstance(config, dict) else Config()

    def _still_to_say(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What is known of the session and was said by no entry."""
        title = " ".join((self._meta.title or "").split())
        if self.names_by_entry and title and title != self._name:
            yield "session_info", {"name": title}
        config = self._meta.config
        if config is not None and config != self._config:
            yield "config", {"config": msgspec.to_builtins(config)}


def name_of(entry: CanonicalEntry) -> str:
    """The name that an item gives the session; empty when it takes the name away."""
    name = entry.fields.get("name")
    return name if isinstance(name, str) else ""


def unsaid(entry: CanonicalEntry, *notes: LossNote) -> Said:
    """An item on a line that its client passes over, whole."""
    return Said(PASSTHROUGH, riding(entry, {}, whole=True), notes)


def riding(entry: CanonicalEntry, line: Mapping[str, Any], /, **parts: Any) -> dict[str, Any]:
    """The fields of an entry's line with its passthrough data (see `passthrough`) added."""
    rode = entry.fields.get(PASSTHROUGH)
    bare = {name: value for name, value in entry.fields.items() if name != PASSTHROUGH}
    found = new_passthrough(msgspec.structs.replace(entry, fields=bare), entry.id, **parts)
    plain = {name: value for name, value in line.items() if name != PASSTHROUGH}
    merged = {**(rode if isinstance(rode, dict) else {}), **found}
    return {**plain, PASSTHROUGH: merged} if merged else plain
