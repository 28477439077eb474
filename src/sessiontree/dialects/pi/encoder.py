"""Encoder for Pi's line format, which native files and those of oh-my-pi share: one line for each entry.

Common to the three: ids and references to them, required fields, passthrough data, and the lines at the end that set
the session's name, settings and current entry. Subclasses override `encode_line` for what their client stores
differently. Only ids are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from sessiontree.core.entries import PASSIVE_TYPES, Config, Header
from sessiontree.core.ids import new_entry_id, timestamp
from sessiontree.core.jsonio import convert_fields
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, LossNote, SessionMeta
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.passthrough import PART, PASSTHROUGH, build_passthrough
from sessiontree.dialects.side_branches import is_start

if TYPE_CHECKING:
    from sessiontree.dialects.pi.dialect import PiFamily

BOOKKEEPING = PASSIVE_TYPES | {"model_usage", "title_change"}
"""Types of lines that never move the leaf of a native file: canonical ones, and two of oh-my-pi."""
TRAILING_TYPES = BOOKKEEPING | {"credential_pin"}
"""Types of last lines that hide the newest branch from a client whose leaf is the last line."""
_ENVELOPE = frozenset({"type", "id", "parentId", "timestamp"})
_REFERENCES = {
    "branch_summary": ("fromId",),
    "compaction": ("firstKeptEntryId", "providerReplayThroughEntryId"),
    "context_edit": ("targetId",),
    "label": ("targetId",),
    "leaf": ("targetId",),
}
"""Fields that hold ids of other entries."""

_BLOCK_FIELDS: Mapping[str, tuple[str, Any]] = {
    "image": ("mimeType", "image/png"),
    "text": ("text", ""),
    "thinking": ("thinking", ""),
    "toolCall": ("arguments", {}),
}
"""By type of a block, the field that it has to have, and its value if it is unknown."""

_NO_TOKENS = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
_NO_COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}

_TOO_DEEP = LossNote("dropped", "entries nested too deeply", "no line can hold them; an empty line replaces them")


class EncodedLine(Struct, frozen=True):
    """Type and fields of the line for an entry."""

    kind: str
    fields: Mapping[str, Any]
    notes: tuple[LossNote, ...] = ()
    is_hidden: bool = False
    """Whether a `context_edit` has to follow, because the client would send the line although it must not be sent."""


class PiFamilyEncoder:
    """Encodes one session; its client uses the last line of the file as the current entry."""

    passive_types = BOOKKEEPING - {"custom"} | {"leaf"}
    """Types of lines that may follow the leaf at the end of the file without changing the context."""

    has_name_entries = True
    """Whether the client reads the name of the session from an entry."""

    def __init__(self, dialect: PiFamily, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._dialect = dialect
        self._meta = meta
        self._lines = lines
        self._existing: Mapping[str, int] = {} if lines is None else lines.tree.node_of
        self._parents: dict[str, str | None] = {}
        """The ids written so far, each with that of its parent."""
        self._passive: set[str] = set()
        self._new_ids: dict[str, str] = {}
        """Ids that had to change: old -> new."""
        self._last: str | None = None
        self._has_side_branches = False
        self._time = meta.timestamp
        self._name: str | None = None
        self._config = Config()

    def prologue(self) -> Sequence[bytes]:
        meta = self._meta
        header = Header(
            id=meta.id,
            version=self._dialect.traits.version,
            timestamp=meta.timestamp,
            cwd=meta.cwd,
            title=meta.title or None,
            parent_session=meta.origin,
            forked_from=meta.forked_from,
            large_content=meta.large_content,
        )
        return [self._dialect.render_header(header)]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        id = entry.id if entry.id and not self._is_taken(entry.id) else self._derive_id(entry.id)
        self._new_ids.pop(id, None)
        if id != entry.id or entry.aliases:
            self._new_ids.update((old, id) for old in (entry.id, *entry.aliases) if old and old != id)
        self._track_metadata(entry)
        try:
            line = self._complete_line(self._with_valid_bound(self._with_new_references(entry), id, parent))
            raw = self._render(line.kind, id, parent, entry.timestamp, line.fields)
        except RecursionError:
            line = EncodedLine(PASSTHROUGH, {}, (_TOO_DEEP,))
            raw = self._render(line.kind, id, parent, entry.timestamp, line.fields)
        if not line.is_hidden:
            return Encoded(id, [raw], line.notes)
        edit = self._derive_id(id)
        fields = {"targetId": id, "replacement": None, PASSTHROUGH: {PART: True}}
        return Encoded(edit, [raw, self._render("context_edit", edit, id, entry.timestamp, fields)], line.notes)

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        lines = [self._render(kind, self._derive_id(kind), leaf, "", fields) for kind, fields in self._final_metadata()]
        if self._has_side_branches or not self.is_current(leaf):
            lines.append(self._render("leaf", self._derive_id("leaf"), leaf, "", {"targetId": leaf}))
        return lines

    # Overridden by the dialects

    def encode_line(self, entry: CanonicalEntry) -> EncodedLine:
        """Encode an entry in the client's own form. What the line loses becomes passthrough data."""
        return EncodedLine(entry.kind, entry.fields)

    def is_current(self, leaf: str | None) -> bool:
        """Whether this is the client's current entry, with the lines written so far."""
        node = self._last
        while node != leaf and node in self._passive:
            node = self._parents[node]
        return node == leaf

    def track_line(self, kind: str, id: str, parent: str | None) -> None:
        """Called for each line that is written."""
        self._parents[id] = parent
        self._last = id
        if kind in self.passive_types:
            self._passive.add(id)

    # Internal

    def _complete_line(self, entry: CanonicalEntry) -> EncodedLine:
        """Encode an entry, with passthrough data for what decoding the line would lose."""
        has_message = entry.kind != "message" or isinstance(entry.fields.get("message"), dict)
        if not has_message or entry.kind in ("", "session"):
            line = ignored_line()  # clients fail on such lines or misread them
        else:
            line = self.encode_line(entry)
        if line.kind == entry.kind and line.fields is entry.fields and _ENVELOPE.isdisjoint(line.fields):
            return line  # nothing lost, the usual case
        fields = {name: value for name, value in line.fields.items() if name not in _ENVELOPE and name != PASSTHROUGH}
        # `render_entry` completes a line too, but its passthrough data would replace that of this one.
        fields |= find_missing(line.kind, fields)
        kind, decoded = self._dialect.to_canonical({"type": line.kind, **fields})
        decoded = {name: value for name, value in decoded.items() if name != "type"}
        passthrough = build_passthrough(entry, CanonicalEntry(kind, decoded, entry.id))
        return msgspec.structs.replace(line, fields={**fields, PASSTHROUGH: passthrough} if passthrough else fields)

    def _render(self, kind: str, id: str, parent: str | None, time: str, fields: Mapping[str, Any]) -> bytes:
        if time:
            self._time = time
        elif self._lines is not None:
            self._time = timestamp()
        self.track_line(kind, id, parent)
        is_side_branch = kind == "custom" and is_start(fields.get("customType"))
        self._has_side_branches = self._has_side_branches or is_side_branch
        return self._dialect.render_entry(kind, id, parent, self._time, fields)

    def _is_taken(self, id: str) -> bool:
        return id in self._parents or id in self._existing

    def _derive_id(self, old: str) -> str:
        """Return an unused id of eight hex digits: random in an existing file, else reproducible."""
        if self._lines is not None:
            while True:
                id = new_entry_id(self._existing)
                if id not in self._parents:
                    return id
        from hashlib import blake2b

        seed = f"{self._meta.id} {len(self._parents)} {old}".encode("utf-8", "surrogatepass")
        id = blake2b(seed, digest_size=4).hexdigest()
        while self._is_taken(id):
            id = blake2b(id.encode() + seed, digest_size=4).hexdigest()
        return id

    def _with_new_references(self, entry: CanonicalEntry) -> CanonicalEntry:
        """Return the entry with updated references to entries whose id had to change."""
        changed: dict[str, str] = {}
        for name in _REFERENCES.get(entry.kind, ()):
            target = entry.fields.get(name)
            if isinstance(target, str) and target in self._new_ids:
                changed[name] = self._new_ids[target]
        return msgspec.structs.replace(entry, fields={**entry.fields, **changed}) if changed else entry

    def _with_valid_bound(self, entry: CanonicalEntry, id: str, parent: str | None) -> CanonicalEntry:
        """Return a compaction of a new file that names its first kept entry, or itself if it keeps nothing.

        Clients keep nothing if the named entry is not on the path before the compaction.
        """
        kept = entry.fields.get("firstKeptEntryId") if entry.kind == "compaction" else None
        if not isinstance(kept, str) or not kept or self._lines is not None:
            return entry
        node = parent if kept in self._parents else None
        while node is not None and node != kept:
            node = self._parents.get(node)
        if node is not None:
            return entry
        return msgspec.structs.replace(entry, fields={**entry.fields, "firstKeptEntryId": id})

    def _track_metadata(self, entry: CanonicalEntry) -> None:
        if entry.kind == "session_info":
            self._name = " ".join(session_name(entry).split())
        elif entry.kind == "config":
            config = entry.fields.get("config")
            self._config = convert_fields(Config, config) if isinstance(config, dict) else Config()

    def _final_metadata(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name and settings of the session that no entry has set."""
        title = " ".join((self._meta.title or "").split())
        if self.has_name_entries and title and title != self._name:
            yield "session_info", {"name": title}
        config = self._meta.config
        if config is not None and config != self._config:
            yield "config", {"config": msgspec.to_builtins(config)}


def session_name(entry: CanonicalEntry) -> str:
    """The name that a `session_info` entry sets; empty when it removes the name."""
    name = entry.fields.get("name")
    return name if isinstance(name, str) else ""


def ignored_line(*notes: LossNote) -> EncodedLine:
    """A line that clients ignore: the complete entry becomes passthrough data."""
    return EncodedLine(PASSTHROUGH, {}, notes)


# Fields without which Pi or oh-my-pi fails to open a session or to send it, added to every line that is written:
# * Both need the content of responses and results as blocks, and Pi that of system prompts.
# * oh-my-pi needs the text of each block of text and thinking, even an empty one.
# * Both send the type of an image and the arguments of a call as they are, and providers refuse requests without them.
# * Pi adds up the tokens of every response, oh-my-pi the cost of every usage.
# Counts nobody has reported are zero, as in the clients' own lines of aborted responses. `core.usage` ignores such
# zeros, so they never reach statistics.


def _complete_message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message with its required fields; the same object if it has them."""
    role, content, usage = message.get("role"), message.get("content"), message.get("usage")
    required: dict[str, Any] = {}
    if type(content) is list:
        if not all(map(_is_complete_block, content)):
            required["content"] = [block if _is_complete_block(block) else _complete_block(block) for block in content]
    elif role in ("assistant", "toolResult"):
        required["content"] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    elif role == "system" and not isinstance(content, str):
        required["content"] = ""
    if isinstance(usage, dict) or role == "assistant":
        completed = _complete_usage(usage)
        if completed is not usage:
            required["usage"] = completed
    return {**message, **required} if required else message


def complete_fields(kind: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of a line with the required ones; the same object if it has them.

    Passthrough data restores the entry when the line is decoded.
    """
    completed = find_missing(kind, fields)
    if not completed:
        return fields
    decoded = {name: value for name, value in {**fields, **completed}.items() if name != PASSTHROUGH}
    passthrough = build_passthrough(CanonicalEntry(kind, {**fields}), CanonicalEntry(kind, decoded))
    return {**decoded, PASSTHROUGH: passthrough}


def find_missing(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a line that have to change, so that it has the required ones."""
    if kind == "message":
        message = fields.get("message")
        # Every append comes here, and isinstance is several times as fast for a dict as for a Mapping.
        if isinstance(message, dict) or isinstance(message, Mapping):  # noqa: SIM101
            found = _complete_message(message)
            return {} if found is message else {"message": found}
        return {}
    completed: dict[str, Any] = {}
    usage, system = fields.get("usage"), fields.get("systemMessage")
    if isinstance(usage, dict) and (counted := _complete_usage(usage)) is not usage:
        completed["usage"] = counted
    if isinstance(system, dict) and kind == "compaction":
        prompt = _complete_message({"role": "system", **system})
        if prompt != system:
            completed["systemMessage"] = prompt
    return completed


def _is_complete_block(block: Any) -> bool:
    """Whether a block has the field that its type requires; true for blocks of other types."""
    found = _BLOCK_FIELDS.get(kind) if isinstance(block, dict) and isinstance(kind := block.get("type"), str) else None
    return found is None or isinstance(block.get(found[0]), type(found[1]))


def _complete_block(block: dict[str, Any]) -> dict[str, Any]:
    name, default = _BLOCK_FIELDS[block["type"]]
    return {**block, name: default}


def _complete_usage(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, dict):
        return {**_NO_TOKENS, "cost": _NO_COST}
    if isinstance(usage.get("cost"), dict) and _NO_TOKENS.keys() <= usage.keys():
        return usage
    counted = {**_NO_TOKENS, **usage}
    if not isinstance(usage.get("cost"), dict):
        counted["cost"] = _NO_COST
    return counted
