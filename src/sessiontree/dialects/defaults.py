"""Default implementations of the dialect contract: one JSON line per entry, a tree by parent links, read-only."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.core.context import Context, Path, Rules, build_context
from sessiontree.core.entries import (
    CONVERSATION_TYPES,
    Config,
    ConfigChange,
    Entry,
    Header,
    MessageEntry,
    SessionInfo,
    Worktree,
)
from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import native_fields, parse_json, render_json
from sessiontree.core.layout import LayoutColumns
from sessiontree.core.messages import Assistant, Message, ToolResult, User, message_text, tool_calls
from sessiontree.core.tree import Tree
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoded, Encoder, LossNote, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.contract import (
    AS_CLIENT,
    UNCHANGED,
    UPDATE,
    ClientNotes,
    Columns,
    EntryKind,
    Envelope,
    Facts,
    HistoryLinks,
    IndexedLines,
    LineProblem,
    PartialReads,
    ReadOptions,
    RelatedFile,
    Reparenting,
    SessionFile,
    Traits,
    is_metadata_id,
    position_id,
)
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of, restore_entry
from sessiontree.dialects.storage import LINE_FILE, Storage
from sessiontree.errors import ReadOnlyError, ReplacedError, UsageError

RecordT = TypeVar("RecordT", bound=Struct)

DECODE_STEP = 256
"""Number of lines decoded at a time: bounds memory without a call for each line."""

_HEAD_LINES = 32
_ENVELOPE_FIELDS = frozenset({"type", "id", "parentId", "timestamp"})


class DefaultFacts:
    """Facts from the header and from canonical entries."""

    def __init__(self, lines: IndexedLines) -> None:
        self.lines = lines

    @property
    def title(self) -> str | None:
        """The last name in file order, on any branch; else the title in the header."""
        entry = self.last_of("session_info")
        name = entry.name if isinstance(entry, SessionInfo) else None
        return " ".join((name or "").split()) or (self.lines.header.title if self.lines.header else None)

    @property
    def given_title(self) -> str | None:
        return self.title

    @property
    def config(self) -> Config:
        entry = self.last_of("config")
        return entry.config if isinstance(entry, ConfigChange) else Config()

    @property
    def git_branch(self) -> str | None:
        entry = self.last_of("worktree")
        return entry.branch if isinstance(entry, Worktree) else None

    @property
    def client_notes(self) -> ClientNotes:
        return ClientNotes()

    @property
    def session_ids(self) -> list[str]:
        return [self.lines.header.id] if self.lines.header else []

    @property
    def related_files(self) -> list[RelatedFile]:
        return []

    def last_of(self, kind: str) -> Entry | None:
        """The last entry of a type in file order, on any branch."""
        types = self.lines.types
        for node in range(len(types) - 1, -1, -1):
            if types[node] == kind:
                return self.lines.entries([node])[0]
        return None


_KINDS_OF_TYPES: dict[str, EntryKind] = {
    "compaction": "summary",
    "branch_summary": "summary",
    "custom_message": "prompt",
}


def message_kind(message: Message) -> EntryKind:
    """What a message is in a conversation."""
    match message:
        case User():
            return "prompt"
        case Assistant():
            return "calls" if tool_calls(message) and not message_text(message).strip() else "answer"
        case ToolResult():
            return "result"
        case _:
            return "other"


class DialectBase:
    """The parts of the contract that most formats share. Subclasses add `recognize`, `decode_line` and `parse`."""

    name = ""
    traits = Traits()
    parent_key = "parentId"
    id_key = "id"
    rules = Rules()

    def decode_block(self, data: memoryview, first: int) -> Columns | None:
        return None

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        raise NotImplementedError

    def parse(self, raw: bytes) -> Entry:
        raise NotImplementedError

    def parse_usage(self, raw: bytes) -> Entry:
        return self.parse(raw)

    def is_record(self, fields: dict[str, Any]) -> bool:
        return self.decode_line(fields, 0) is not None

    def join_lines(self, raws: list[bytes]) -> bytes:
        return raws[-1]

    def find_header(self, lines: IndexedLines) -> Header | None:
        if lines.header is not None or self.traits.has_header or not lines.types:
            return lines.header
        (first,) = lines.entries([0])
        return Header(id=os.path.splitext(os.path.basename(lines.location))[0], timestamp=first.timestamp)

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        """The last entry that is not bookkeeping, as in a format without branches."""
        ids, types = lines.tree.ids, lines.types
        for node in range(len(types) - 1, -1, -1):
            if types[node] not in self.traits.bookkeeping and not is_metadata_id(ids[node]):
                return node
        return None

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        if not read_options.recovered:
            return lines.tree.path(leaf)
        return reparented_path(lines.tree, leaf, {found.node: found.parent for found in self.find_reparentings(lines)})

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        return build_context(path_of_nodes(lines, self.find_path(lines, leaf, read_options)), self.rules)

    def build_messages(
        self, lines: IndexedLines, nodes: list[int], read_options: ReadOptions
    ) -> Sequence[Message] | None:
        return None

    @property
    def partial_reads(self) -> PartialReads | None:
        return None

    def facts(self, lines: IndexedLines) -> Facts:
        return DefaultFacts(lines)

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        # A lost parent was most likely the line before its first child, so the nearest entry before that child replaces
        # it. All children of one lost parent get the same new parent: branches stay branches.
        found: list[Reparenting] = []
        replacements: dict[str, int] = {}
        before: int | None = None
        for node, kind in enumerate(lines.types):
            lost = lines.tree.missing_parent(node)
            if lost is not None and before is not None:
                parent = replacements.setdefault(lost, before)
                found.append(Reparenting(node, parent, "it comes before the first child of the lost parent"))
            if kind not in self.traits.bookkeeping:
                before = node
        return found

    def find_problems(self, lines: IndexedLines) -> list[LineProblem]:
        return []

    def why_read_only(self, lines: IndexedLines) -> str | None:
        return None

    def with_ids(self, raw: bytes, *, id: str = UNCHANGED, parent: str | None = UNCHANGED) -> bytes:
        if id != UNCHANGED:
            raw = replace_field(raw, self.id_key, id)
        return raw if parent == UNCHANGED else replace_field(raw, self.parent_key, parent)

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return self.find_path(lines, leaf, read_options)

    def find_history_links(self, lines: IndexedLines, read_options: ReadOptions) -> HistoryLinks | None:
        if not self.traits.follows_tree or read_options.recovered:
            return None
        return HistoryLinks(lines.tree.parents())

    def entry_kinds(self, lines: IndexedLines) -> list[EntryKind]:
        kinds = [_KINDS_OF_TYPES.get(type, "other") for type in lines.types]
        nodes = [node for node, type in enumerate(lines.types) if type == "message"]
        for node, raw in zip(nodes, lines.iter_raw(nodes), strict=True):
            kinds[node] = self.message_kind(raw)
        return kinds

    def message_kind(self, raw: bytes) -> EntryKind:
        """The kind of a message. Dialects that recognize it by a few bytes override this to avoid decoding the line."""
        entry = self.parse(raw)
        return message_kind(entry.message) if isinstance(entry, MessageEntry) else "other"

    def layout_columns(self, lines: IndexedLines) -> LayoutColumns:
        return LayoutColumns(lines.tree.earlier_parents(), placed_nodes(lines))

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        for start in range(0, len(nodes), DECODE_STEP):
            step = nodes[start : start + DECODE_STEP]
            for node, entry in zip(step, lines.entries(step), strict=True):
                if lines.types[node] == UPDATE:
                    continue  # the entry itself has this content already
                fields = {**native_fields(entry), "timestamp": entry.timestamp}
                messages = [fields.pop("message", {}), *fields.pop("moreMessages", ())]
                id, kind = lines.tree.ids[node], lines.types[node]
                if kind != "message":
                    yield native_entry(kind, id, fields)
                    continue
                for number, message in enumerate(messages):
                    yield native_entry(kind, f"{id}.{number}" if number else id, {**fields, "message": message})

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        # Formats that write all results of a response in one line need them in a row.
        if lines.types[child] != "message":
            return False
        (entry,) = lines.entries([child])
        return isinstance(entry, MessageEntry) and isinstance(entry.message, ToolResult)

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> Encoder:
        raise self._read_only()

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        """Encode the history again, for a format whose lines cannot be copied into another session."""
        encoder = self.encoder(meta)
        yield from encoder.prologue()
        parent: str | None = None
        for entry in self.decode(lines, self.find_history(lines, leaf, AS_CLIENT)):
            encoded = encoder.encode(entry, parent)
            yield from encoded.lines
            parent = encoded.id
        yield from encoder.epilogue(parent)

    def encode_repaired(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        return self.encode_fork(lines, leaf, meta)

    def render_header(self, header: Header) -> bytes:
        raise self._read_only()

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        raise self._read_only()

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        raise self._read_only()

    def locate(self, destination: Destination, meta: SessionMeta, read: Callable[[str], bytes | None]) -> Destination:
        return destination

    def blob_folder(self, location: str) -> str | None:
        return None

    @property
    def client(self) -> Client:
        return Client()

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return ()

    def storage(self, path: str) -> Storage:
        return LINE_FILE

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return SessionFile() if is_session_name(relative, self.traits.session_names) else None

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        return {}

    def session_titles(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        return {}

    def _read_only(self) -> ReadOnlyError:
        return ReadOnlyError(f"sessions of {self.name} cannot be written")


_NEVER_DROPPED = CONVERSATION_TYPES | {"context_edit", "label", "session_info"}
"""Types of entries that a user adds to a session on purpose. Others record the state of a run."""


class LinearEncoder:
    """Encodes sessions in a format without branches: each entry follows the one before it.

    Subclasses encode the header and each entry. The id of an entry is its own, if `keeps_ids`, or its position.
    """

    keeps_ids = False
    metadata_types: frozenset[str] = frozenset()
    """Types of entries that become metadata lines."""

    def __init__(self, meta: SessionMeta, lines: IndexedLines | None = None) -> None:
        self._meta = meta
        self._lines = lines
        self._nodes = 0 if lines is None else len(lines.types)
        entries = () if lines is None else lines.tree.ids
        self._last = next((id for id in reversed(entries) if not is_metadata_id(id)), None)

    def encode_header(self, meta: SessionMeta) -> bytes | None:
        """The line that starts a file; None if the format has none."""
        return None

    def encode_entry(self, entry: CanonicalEntry) -> bytes | None:
        """One line for an entry; None if the format cannot store it."""
        raise NotImplementedError

    def prologue(self) -> Sequence[bytes]:
        header = self.encode_header(self._meta)
        return [] if header is None else [header]

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded:
        if parent != self._last:
            raise UsageError("these sessions have no branches: only the last entry can be continued; fork instead")
        raw = self.encode_entry(entry)
        if raw is None:
            if self._lines is not None and entry.kind in _NEVER_DROPPED:
                raise UsageError(f"sessions of this client cannot hold this entry ({entry.kind}); nothing was written")
            return Encoded(
                parent, notes=[LossNote("dropped", f"{entry.kind} entries", "the client has no such entries")]
            )
        if entry.kind in self.metadata_types:
            self._nodes += 1
            return Encoded(parent, [raw])
        self._last = entry.id if self.keeps_ids and entry.id else position_id(self._nodes)
        self._nodes += 1
        return Encoded(self._last, [raw])

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        return []


def is_session_name(relative: str, names: tuple[str, ...] = (".jsonl",)) -> bool:
    """Whether a file is named like a session: not hidden, not a backup, not a file that is still being written."""
    return relative.endswith(names) and not relative.rpartition("/")[2].startswith(".")


def iter_resolved(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Iterate over nodes with their decoded lines, read in batches."""
    for start in range(0, len(nodes), DECODE_STEP):
        step = nodes[start : start + DECODE_STEP]
        yield from zip(step, lines.resolved_fields(step), strict=True)


def native_entry(kind: str, id: str, line: dict[str, Any]) -> CanonicalEntry:
    """Decode a line in the native form, and restore its passthrough data."""
    fields = {name: value for name, value in line.items() if name not in _ENVELOPE_FIELDS}
    fields.pop(PASSTHROUGH, None)
    entry = CanonicalEntry(kind, fields, id, iso_time(line.get("timestamp")))
    return restore_entry(entry, passthrough_of(line))


def placed_nodes(lines: IndexedLines) -> list[bool]:
    """By node: whether an entry has its own position in the layout of the tree."""
    kinds = zip(lines.types, lines.tree.ids, strict=True)
    return [kind in CONVERSATION_TYPES and not is_metadata_id(id) for kind, id in kinds]


def reparented_path(tree: Tree, leaf: int | None, parents: Mapping[int, int]) -> list[int]:
    """The path from the root to a leaf with some parents replaced; stops where that would make a cycle."""
    path: list[int] = []
    seen: set[int] = set()
    node = leaf
    while node is not None and node not in seen:
        seen.add(node)
        path.append(node)
        node = parents.get(node, tree.parent(node))
    path.reverse()
    return path


def path_of_nodes(lines: IndexedLines, nodes: list[int]) -> Path:
    """Return a path of nodes that loads its entries on demand."""
    types = lines.types
    ids = [lines.tree.ids[node] for node in nodes]

    def load(positions: Sequence[int]) -> list[Entry]:
        entries = lines.entries([nodes[at] for at in positions])
        for at, entry in zip(positions, entries, strict=True):
            if entry.id and entry.id != ids[at]:
                raise ReplacedError(f"{lines.location}: was rewritten while it was being read. Open it again.")
        return entries

    return Path(
        ids, [types[node] for node in nodes], load, lambda positions: lines.sizes([nodes[at] for at in positions])
    )


def replace_field(raw: bytes, key: str, value: str | None) -> bytes:
    """Change one top-level field of a line in place; render the line again only if that is not possible."""
    fields = parse_json(raw)
    wanted = {**fields, key: value}
    pattern = re.compile(rb'("%b"\s*:\s*)(?:null|"(?:[^"\\]|\\.)*")' % re.escape(render_json(key)[1:-1]))
    for found in pattern.finditer(raw):
        changed = raw[: found.start()] + found[1] + render_json(value) + raw[found.end() :]
        try:
            if parse_json(changed) == wanted:
                return changed
        except ValueError:
            continue  # a match inside a string or a nested object
    return render_json(wanted)


def decode_records(decode_lines: Callable[[memoryview], list[RecordT]], data: memoryview) -> list[RecordT] | None:
    """Decode the records of a block of lines in one call; None when the decoder rejects a line."""
    try:
        return decode_lines(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


@functools.lru_cache(1)
def head_records(head: bytes) -> tuple[dict[str, Any], ...]:
    """The JSON objects among the first lines of a file. Cached, because every dialect needs the same ones."""
    return tuple(_iter_records(head))


def _iter_records(head: bytes) -> Iterator[dict[str, Any]]:
    for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n", _HEAD_LINES)[:_HEAD_LINES]:
        line = line.strip(b"\x00 \t\r")
        if not line.endswith(b"}"):
            continue  # not an object, or one that continues beyond the head
        try:
            fields = parse_json(line)
        except ValueError:
            continue
        if isinstance(fields, dict):
            yield fields
