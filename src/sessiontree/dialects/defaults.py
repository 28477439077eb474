"""Default implementations of the dialect contract: one JSON line per entry, a tree by parent links, read-only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.core.context import Context, Path, Rules, build_context
from sessiontree.core.entries import Config, ConfigChange, Header, Worktree
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.core.tree import Tree
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoder, SessionMeta
from sessiontree.dialects.contract import IndexedLines, ReadOptions, RelatedFile, Reparenting, SessionFile
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of, restore_entry
from sessiontree.errors import ReadOnlyError

RecordT = TypeVar("RecordT", bound=Struct)

DECODE_STEP = 256
"""Number of lines decoded at a time: bounds memory without a call for each line."""

_ENVELOPE_FIELDS = frozenset({"type", "id", "parentId", "timestamp"})


class DialectBase:
    """The parts of the contract that most formats share. Subclasses add `recognize`, `decode_block`, `envelope`..."""

    name = ""
    version = 1
    has_header = False
    is_writable = False
    one_line_per_entry = False
    encoder_types: frozenset[str] = frozenset()
    parent_key = "parentId"
    id_key = "id"
    bookkeeping: frozenset[str] = frozenset()
    may_refer_to_blobs = True
    uses_home_blobs = False
    path_markers: tuple[str, ...] = ()
    supports_partial_read = False
    title_types: frozenset[str] = frozenset()
    title_window = 0
    skipped_folders: frozenset[str] = frozenset()
    rules = Rules()

    def is_header(self, fields: dict[str, Any]) -> bool:
        return False

    def header(self, fields: dict[str, Any]) -> Header:
        return Header(id="")

    def find_header(self, lines: IndexedLines) -> Header | None:
        return lines.header

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        if not read_options.recovered:
            return lines.tree.path(leaf)
        return reparented_path(lines.tree, leaf, {found.node: found.parent for found in self.find_reparentings(lines)})

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        return build_context(path_of_nodes(lines, self.find_path(lines, leaf, read_options)), self.rules)

    def find_context_ranges(self, size: int, read: Callable[[int, int], bytes]) -> list[tuple[int, int]] | None:
        return None

    def is_partial_context_exact(self, lines: IndexedLines, context: Context) -> bool:
        return False

    def find_title(self, lines: IndexedLines) -> str | None:
        return lines.header.title if lines.header else None

    def find_given_title(self, lines: IndexedLines) -> str | None:
        return self.find_title(lines)

    def find_config(self, lines: IndexedLines) -> Config:
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "config":
                (entry,) = lines.entries([node])
                return entry.config if isinstance(entry, ConfigChange) else Config()
        return Config()

    def find_git_branch(self, lines: IndexedLines) -> str | None:
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "worktree":
                (entry,) = lines.entries([node])
                return entry.branch if isinstance(entry, Worktree) else None
        return None

    def find_session_ids(self, lines: IndexedLines) -> list[str]:
        return [lines.header.id] if lines.header else []

    def find_related_files(self, lines: IndexedLines) -> list[RelatedFile]:
        return []

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
            if kind not in self.bookkeeping:
                before = node
        return found

    def with_parent(self, raw: bytes, parent: str | None) -> bytes:
        return replace_field(raw, self.parent_key, parent)

    def with_id(self, raw: bytes, id: str) -> bytes:
        return replace_field(raw, self.id_key, id)

    def is_truncated(self, text: str) -> bool:
        return False

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return self.find_path(lines, leaf, read_options)

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        for node, fields in iter_resolved(lines, nodes):
            yield native_entry(lines.types[node], lines.tree.ids[node], fields)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        # Formats that write all results of a response in one line need them in a row.
        if lines.types[child] != "message":
            return False
        (fields,) = lines.fields([child])
        message = fields.get("message")
        return isinstance(message, dict) and message.get("role") == "toolResult"

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> Encoder:
        raise self._read_only()

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        raise self._read_only()

    def render_header(self, header: Header) -> bytes:
        raise self._read_only()

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        raise self._read_only()

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        raise self._read_only()

    def blob_folder(self, location: str) -> str | None:
        return None

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return ()

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return SessionFile() if is_session_name(relative) else None

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        return {}

    def _read_only(self) -> ReadOnlyError:
        return ReadOnlyError(f"sessions of {self.name} cannot be written")


def is_session_name(relative: str) -> bool:
    """Whether a file is named like a session: not hidden, not a backup, not a file that is still being written."""
    return relative.endswith(".jsonl") and not relative.rpartition("/")[2].startswith(".")


def iter_resolved(lines: IndexedLines, nodes: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Iterate over nodes with their decoded lines, read in batches."""
    for start in range(0, len(nodes), DECODE_STEP):
        step = nodes[start : start + DECODE_STEP]
        yield from zip(step, lines.resolved_fields(step), strict=True)


def native_entry(kind: str, id: str, line: dict[str, Any]) -> CanonicalEntry:
    """Decode a line in the native form, and restore its passthrough data."""
    fields = {name: value for name, value in line.items() if name not in _ENVELOPE_FIELDS}
    timestamp = line.get("timestamp")
    fields.pop(PASSTHROUGH, None)
    entry = CanonicalEntry(kind, fields, id, timestamp if isinstance(timestamp, str) else "")
    return restore_entry(entry, passthrough_of(line))


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
    ids, types = lines.tree.ids, lines.types
    return Path(
        [ids[node] for node in nodes],
        [types[node] for node in nodes],
        lambda positions: lines.entries([nodes[at] for at in positions]),
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
