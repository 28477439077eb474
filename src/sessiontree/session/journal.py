"""Index of a session's lines: reads a store through a dialect.

For every entry the journal stores its span in the file, its type and its node in the tree. These are columns, not
objects, so memory grows with the number of entries and not with their size. Bodies are read on request. `refresh`
indexes lines of other writers, `index_appended` those of this process.

Reading is tolerant. A block of well-formed lines is decoded in one call; a block with any other line in it is decoded
line by line. Damage becomes a `Problem` (and a `Fragment`, for bytes that belong to no entry). It raises no error, and
no byte is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from sys import intern
from typing import TYPE_CHECKING, Any

import msgspec

from sessiontree.core.entries import Compaction, Entry, Fragment, Header, Problem, Unknown
from sessiontree.core.jsonio import (
    describe_odd_json,
    is_utf8,
    parse_object,
    parse_odd_json,
    render_json,
    structural_error,
)
from sessiontree.core.lines import Block, ReadInto, iter_blocks, iter_lines, line_ends
from sessiontree.core.tree import Tree, TreeProblem
from sessiontree.dialects.contract import PREVIOUS, UPDATE, Columns, Dialect, Envelope, is_metadata_id, metadata_id
from sessiontree.errors import DamagedError, ReplacedError, StoreError
from sessiontree.session.blob_refs import PREFIX, restore
from sessiontree.session.line_offsets import LineOffsets, LineSpan
from sessiontree.session.stored_index import (
    ENCODING_ERRORS,
    GROWTH,
    STORED_SIZE,
    IndexColumns,
    decode_index,
    decode_notes,
    index_name,
    iter_index,
    number_bytes,
    numbers_of,
)
from sessiontree.stores.contract import (
    BlobStore,
    IndexStore,
    SessionRepository,
    SessionStore,
    StoredIndex,
    read_bytes,
    read_into,
)

if TYPE_CHECKING:
    from sessiontree.core.salvage import Piece

_STATE_TYPES = frozenset({"model_change", "thinking_level_change", "mode_change", "ttsr_injection"})
"""Types that every context needs from the whole path. Their few short lines stay in memory: reading each one would be a
round trip to the store.
"""
_MAX_STATE_LINE = 1024

_OPEN, _CLOSE = b"{}"
_BLOB_PREFIX = PREFIX.encode()
_OWN_PREFIX = b"sessiontree."
_KEPT_AS_FRAGMENT = "kept as a fragment"

_OTHER_HEADER = "session_meta"
_NOT_AN_ENTRY = "kept as a fragment; not an entry"
_NO_REPLACEMENT = "kept as a fragment; an intact entry has its id"

_TREE_PROBLEM_ACTIONS = {
    "duplicate-id": "the later entry with this id is used; the earlier one is kept and shown",
    "missing-parent": "kept as a root",
    "self-parent": "kept as a root",
    "cycle": "the cycle is cut here; the entry is kept as a root",
    "forward-reference": "the parent comes later in the file; linked to it",
}


class Journal:
    """The indexed lines of one session."""

    def __init__(
        self, store: SessionStore, dialect: Dialect, find_repository: Callable[[], SessionRepository] | None = None
    ) -> None:
        self.store = store
        self.dialect = dialect
        self.find_repository = find_repository
        """Opens the repository of the session's blobs and forks. Most readers need neither."""
        self._reset()

    def _reset(self) -> None:
        self.header: Header | None = None
        self.header_fields: dict[str, Any] = {}
        self.header_span: LineSpan | None = None
        self._header_node: int | None = None
        """Number of entries before the header line."""
        self.tree = Tree()
        self.types: list[str] = []
        self._updates: dict[int, int] = {}
        """Entry -> the last line that repeats its id, where that means a new version of the entry."""
        self._parts: dict[int, list[int]] = {}
        """Entry -> the later lines that repeat its id, where those are further parts of the entry."""
        self._has_implied_parents = False
        """Whether some entries have the preceding entry as their parent instead of naming it on their lines."""
        self._notes: list[object] = []
        """The dialect's summaries of lines, created while decoding blocks, up to the last block that has any."""
        self.own_customs: list[int] = []
        """The `custom` entries that sessiontree itself may have written; a search can skip all others."""
        self._state_lines: dict[int, bytes] = {}
        """The lines of `_STATE_TYPES` that were read for indexing."""
        self.fragments: list[Fragment] = []
        self.size = 0
        """Number of indexed bytes."""
        self.tail_is_open = False
        """Whether the indexed bytes end without LF, so that the next write has to add one first."""
        self._offsets = LineOffsets()
        self._lines = 0
        self._problems: list[Problem] = []
        self._reported_once: set[str] = set()
        self.generated_ids: list[int] = []
        """Entries of a current version whose lines have no id, so that one was generated."""
        self._unchecked_blocks: list[tuple[int, int, int]] = []
        """Blocks that may contain invalid UTF-8 (offset, size, first line). Checked only when problems are requested:
        it is slow and does not change the tree."""
        self._body_problems: dict[tuple[int, str], Problem] = {}

    def __len__(self) -> int:
        return len(self.types)

    @property
    def location(self) -> str:
        return self.store.location

    @property
    def blobs(self) -> BlobStore | None:
        return None if self.find_repository is None else self.find_repository().blobs

    @property
    def notes(self) -> list[object]:
        """The dialect's summary of each line; None for lines without one."""
        self._notes += [None] * (len(self.types) - len(self._notes))
        return self._notes

    @property
    def version(self) -> int:
        return self.header.version if self.header else self.dialect.traits.version

    # Indexing lines

    def refresh(self) -> Sequence[int]:
        """Index lines appended since the last call, and return the new nodes."""
        return self._refresh(self.store.size())

    def _refresh(self, now: int) -> Sequence[int]:
        if now < self.size:
            raise ReplacedError(
                f"{self.store.location}: truncated from {self.size} to {now} bytes while it was open. Open it again."
            )
        if now == self.size:
            return range(0)
        known = len(self.types)
        seen: set[str] = set()
        if self.tail_is_open:
            if read_bytes(self.store, self.size, 1) == b"\n":
                self.close_tail()
            else:
                # We read a line while another writer was still writing it. Its first half was indexed as damage or
                # even as an entry, and only reading the file again undoes that. This is rare: most writes are complete
                # lines.
                known, seen = 0, set(self.tree.ids)
                self._reset()
        self._index_bytes(self.store.readinto, now)
        new = range(known, len(self.types))
        return [node for node in new if self.tree.ids[node] not in seen] if seen else new

    def index_written(self, data: bytes) -> Sequence[int]:
        """Index complete lines that this process has just appended, without reading them; returns their nodes."""
        known, start = len(self.types), self.size

        def readinto(offset: int, buffer: memoryview) -> int:
            part = data[offset - start : offset - start + len(buffer)]
            buffer[: len(part)] = part
            return len(part)

        self._index_bytes(readinto, start + len(data))
        return range(known, len(self.types))

    def _index_bytes(self, readinto: ReadInto, end: int) -> None:
        for block in iter_blocks(readinto, self.size, end=end):
            self._index_block(block)
        self.header = self.dialect.find_header(self)

    def read(self) -> None:
        """Index all lines. If the store has a stored index of the first ones, only the rest is read."""
        store, now = self.store, self.store.size()
        if self.size or now < STORED_SIZE or not isinstance(store, IndexStore):
            self._refresh(now)
            return
        name = index_name(self.dialect.name, self.dialect.traits.version)
        self._load(store.read_index(name))
        loaded = self.size
        self._refresh(max(now, loaded))  # the index may be newer than the size
        has_grown = self.size - loaded > self.size // GROWTH and not self.tail_is_open
        if has_grown and (not self._notes or self.dialect.traits.note_type is not None):
            with suppress(*ENCODING_ERRORS):  # then there is no index
                store.write_index(name, self._iter_index(), self.size)

    def _load(self, stored: StoredIndex | None) -> None:
        columns = None if stored is None else decode_index(stored.data, stored.size)
        if columns is None:
            return
        try:
            notes = decode_notes(columns.notes, self.dialect.traits.note_type)
        except msgspec.MsgspecError:  # another version of the dialect
            return
        if columns.header_node is not None:
            header = self.dialect.decode_line(columns.header_fields, columns.header_node)
            if not isinstance(header, Header):
                return
            self.header, self.header_fields, self._header_node = header, columns.header_fields, columns.header_node
        if columns.header_span is not None:
            self.header_span = LineSpan(*columns.header_span)
        names = [*map(intern, columns.type_names)]
        self.types = [*map(names.__getitem__, numbers_of(columns.types))]
        self.tree.load(columns.tree)
        self._offsets.load(columns.offsets, len(self.types))
        self._notes, self._updates, self._parts = notes, columns.updates, columns.parts
        self._has_implied_parents, self.own_customs = columns.has_implied_parents, columns.own_customs
        self._state_lines, self.generated_ids = columns.state_lines, columns.generated_ids
        self._unchecked_blocks, self._problems = columns.unchecked_blocks, columns.problems
        self._reported_once, self.fragments = columns.reported_once, columns.fragments
        self._lines, self.size = columns.lines, columns.size
        self.header = self.dialect.find_header(self)

    def _iter_index(self) -> Iterator[bytes]:
        names = [*dict.fromkeys(self.types)]
        numbers = {name: number for number, name in enumerate(names)}
        span = self.header_span
        return iter_index(
            IndexColumns(
                self.size,
                self._lines,
                self._header_node,
                self.header_fields,
                None if span is None else (span.start, span.end, span.line),
                names,
                number_bytes(map(numbers.__getitem__, self.types)),
                self.tree.columns(),
                self._offsets.columns(),
                self._updates,
                self._parts,
                self._has_implied_parents,
                self.own_customs,
                self._state_lines,
                self.generated_ids,
                self._unchecked_blocks,
                self._problems,
                self._reported_once,
                self.fragments,
            ),
            self._notes,
        )

    def close_tail(self) -> None:
        """Index the LF that now ends a formerly unterminated line."""
        self._problems = [_close_problem(problem) for problem in self._problems if problem.kind != "no-final-newline"]
        self.fragments = [
            msgspec.structs.replace(fragment, kind="undecodable") if fragment.kind == "torn-tail" else fragment
            for fragment in self.fragments
        ]
        self.size += 1
        self.tail_is_open = False

    def _index_block(self, block: Block) -> None:
        ends = line_ends(block.buffer, block.size)
        well_formed = block.whole and _has_one_object_per_line(block.buffer, ends)
        columns = self.dialect.decode_block(block.data, len(self.types)) if well_formed else None
        if columns is not None and len(columns.ids) == len(ends):
            if self.dialect.traits.repeated_id_updates or self.dialect.traits.repeated_id_adds:
                columns = self._find_updates(columns)
            if not block.buffer.isascii():
                self._unchecked_blocks.append((block.start, block.size, self._lines + 1))
            self._offsets.add_block(block.start, self._lines + 1, ends)
            ids, parents = columns.ids, columns.parents
            if PREVIOUS in parents:
                parents = self._resolve_previous(ids, parents)
            if "" in ids:
                ids = [id or metadata_id(node) for node, id in enumerate(ids, len(self.types))]
            if columns.notes:
                self._notes = self.notes
                self._notes += columns.notes
            if not _STATE_TYPES.isdisjoint(columns.types):
                self._keep_state_lines(block.buffer, ends, columns.types)
            if "custom" in columns.types:
                self._find_own_customs(block.buffer, ends, columns.types)
            self.types += columns.types
            self.tree.extend(ids, parents)
            if block.buffer[ends[0] - 2 : ends[0]] == b"\r\n":
                self._report_once("crlf", self._lines + 1, block.start, block.start + ends[0] - 1, "read as LF")
        else:
            self._index_lines(block, ends)
        self._lines += len(ends)
        self.size = block.end
        self.tail_is_open = not block.whole

    def _find_updates(self, columns: Columns) -> Columns:
        """Turn lines that repeat the id of an earlier entry into metadata lines that hold its new content."""
        first, types, ids, parents = len(self.types), list(columns.types), list(columns.ids), list(columns.parents)
        new: dict[str, int] = {}
        for at, id in enumerate(columns.ids):
            place = new.get(id, self.tree.node_of.get(id))
            if not id or place is None:
                new[id] = first + at
                continue
            if self.dialect.traits.repeated_id_adds:
                self._parts.setdefault(place, []).append(first + at)
            else:
                if place < first:
                    self.types[place] = types[at]
                else:
                    types[place - first] = types[at]
                self._updates[place] = first + at
            types[at], ids[at], parents[at] = UPDATE, "", None
            if place < len(self._notes):
                self._notes[place] = None
        is_changed = ids != columns.ids
        return Columns(types, ids, parents, () if is_changed else columns.notes)

    def _resolve_previous(self, ids: Sequence[str], parents: Sequence[str | None]) -> list[str | None]:
        """Replace `PREVIOUS` with the id of the entry before each line."""
        self._has_implied_parents = True
        previous = self._last_entry_id()
        resolved = [*parents]
        for at, id in enumerate(ids):
            if not id:
                if resolved[at] == PREVIOUS:
                    resolved[at] = None
                continue
            if resolved[at] == PREVIOUS:
                resolved[at] = previous
            previous = id
        return resolved

    def _last_entry_id(self) -> str | None:
        return next((id for id in reversed(self.tree.ids) if not is_metadata_id(id)), None)

    def _find_own_customs(self, buffer: bytearray, ends: list[int], types: Sequence[str]) -> None:
        starts, known = [0, *ends], len(self.types)
        for at, kind in enumerate(types):
            if kind == "custom" and buffer.find(_OWN_PREFIX, starts[at], ends[at]) >= 0:
                self.own_customs.append(known + at)

    def _keep_state_lines(self, buffer: bytearray, ends: list[int], types: Sequence[str]) -> None:
        starts, known = [0, *ends], len(self.types)
        for at, kind in enumerate(types):
            if kind in _STATE_TYPES and ends[at] - starts[at] <= _MAX_STATE_LINE:
                self._state_lines[known + at] = bytes(buffer[starts[at] : ends[at] - 1])

    def _index_lines(self, block: Block, ends: Sequence[int]) -> None:
        start = 0
        for number, end in enumerate(ends, self._lines + 1):
            raw = bytes(block.buffer[start:end])
            self._index_line(number, block.start + start, raw.removesuffix(b"\n"), is_last=not raw.endswith(b"\n"))
            start = end

    def _index_line(self, number: int, start: int, raw: bytes, *, is_last: bool) -> None:
        end = start + len(raw)
        if not raw.strip():
            self._report(number, start, end, "blank-line", "skipped")
            return
        if raw.endswith(b"\r"):
            self._report_once("crlf", number, start, end, "read as LF")
        fields = self._decode(number, start, raw)
        if fields is not None:
            if not self._index_record(number, start, raw, fields):
                self._keep_fragment(number, start, raw, "not-an-entry", _NOT_AN_ENTRY)
            elif is_last:
                self._report_unterminated(number, start, end)
            return
        from sessiontree.core.salvage import salvage  # only damaged files need it

        pieces = salvage(raw, self.dialect.is_record)
        self._index_pieces(number, start, raw, pieces, is_last=is_last)

    def _decode(self, number: int, start: int, raw: bytes) -> dict[str, Any] | None:
        """Decode a line; None when it is not exactly one JSON object."""
        try:
            fields = msgspec.json.decode(raw)
            if not raw.isascii():
                raw.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if not raw.rstrip().endswith(b"}") or structural_error(error, raw) is not None:
                return None  # not an object for a tolerant decoder either
            try:
                fields = parse_odd_json(raw)
            except ValueError:
                return None
            kind, action = describe_odd_json(raw)
            self._report(number, start, start + len(raw), kind, action)
        return fields if isinstance(fields, dict) else None

    def _index_pieces(self, number: int, start: int, raw: bytes, pieces: list[Piece], *, is_last: bool) -> None:
        records = sum(piece.kind == "record" for piece in pieces)
        is_torn = any(piece.kind == "damage" for piece in pieces)
        if records > 1:
            self._report(number, start, start + len(raw), "fused-records", f"all {records} records are read")
        for at, piece in enumerate(pieces):
            first, last = start + piece.start, start + piece.end
            part = raw[piece.start : piece.end]
            record_follows = at + 1 < len(pieces) and pieces[at + 1].kind == "record"
            match piece.kind:
                case "record" if is_torn and self._would_replace(piece.value):
                    self._keep_fragment(number, first, part, "not-an-entry", _NO_REPLACEMENT)
                case "record":
                    if not self._index_record(number, first, part, piece.value):
                        self._keep_fragment(number, first, part, "not-an-entry", _NOT_AN_ENTRY)
                case "value":
                    self._keep_fragment(number, first, part, "not-an-object", _NOT_AN_ENTRY)
                case "bom":
                    self._report(number, first, last, "bom", "skipped")
                case "nul-run":
                    self._report(number, first, last, "nul-run", "skipped; the text around it is read")
                case "damage" if record_follows:
                    self._keep_fragment(
                        number, first, part, "glued-stub", f"{_KEPT_AS_FRAGMENT}; the record after it is read"
                    )
                case "damage" if is_last:
                    self._keep_fragment(
                        number, first, part, "torn-tail", f"{_KEPT_AS_FRAGMENT}; the next write ends the line first"
                    )
                case "damage":
                    self._keep_fragment(number, first, part, "undecodable", _KEPT_AS_FRAGMENT)
        if is_last and pieces[-1].kind != "damage":
            self._report_unterminated(number, start, start + len(raw))

    def _would_replace(self, fields: dict[str, Any]) -> bool:
        """Whether a record would be the new content of an entry. Next to damage it may be parts of two records."""
        if not self.dialect.traits.repeated_id_updates:
            return False
        decoded = self.dialect.decode_line(fields, len(self.types))
        return isinstance(decoded, Envelope) and decoded.id in self.tree.node_of

    def _index_record(self, number: int, start: int, raw: bytes, fields: dict[str, Any]) -> bool:
        """Index one record; False when it is neither an entry nor a header."""
        decoded = self.dialect.decode_line(fields, len(self.types))
        if decoded is None:
            return False
        if isinstance(decoded, Envelope):
            self._index_entry(number, start, raw, decoded)
        elif self.header is None:
            self._index_header(number, start, raw, fields, decoded)
        elif self.dialect.traits.copies_headers:
            self._index_entry(number, start, raw, Envelope(_OTHER_HEADER, is_metadata=True))
        else:
            self._keep_fragment(number, start, raw, "second-header", "kept as a fragment; the first header is used")
        return True

    def _index_entry(self, number: int, start: int, raw: bytes, envelope: Envelope) -> None:
        kind, parent = envelope.type, envelope.parent
        if envelope.is_metadata:
            self._add(number, start, len(raw), kind, metadata_id(len(self.types)), None)
            return
        id = envelope.id or self._generate_id(number, start, raw)
        if self.dialect.traits.repeated_id_updates and id in self.tree.node_of:
            place = self.tree.node_of[id]
            self._updates[place], self.types[place] = len(self.types), intern(kind)
            self._add(number, start, len(raw), UPDATE, metadata_id(len(self.types)), None)
            return
        if self.dialect.traits.repeated_id_adds and id in self.tree.node_of:
            self._parts.setdefault(self.tree.node_of[id], []).append(len(self.types))
            self._add(number, start, len(raw), UPDATE, metadata_id(len(self.types)), None)
            return
        if parent == PREVIOUS:
            parent, self._has_implied_parents = self._last_entry_id(), True
        elif parent == "":
            self._report(number, start, start + len(raw), "empty-parent", "read as a root")
            parent = None
        if kind == "custom" and _OWN_PREFIX in raw:
            self.own_customs.append(len(self.types))
        if kind in _STATE_TYPES and len(raw) <= _MAX_STATE_LINE:
            self._state_lines[len(self.types)] = raw
        self._add(number, start, len(raw), kind, id, parent)

    def _index_header(self, number: int, start: int, raw: bytes, fields: dict[str, Any], header: Header) -> None:
        self.header = header
        self.header_fields = fields
        self._header_node = len(self.types)
        end = start + len(raw)
        self.header_span = LineSpan(start, end, number)
        if any(not is_metadata_id(id) for id in self.tree.ids):
            self._report(number, start, end, "late-header", "read as the header, although entries come before it")
        version, newest = header.version, self.dialect.traits.version
        if version > newest:
            self._report(number, start, end, "newer-version", f"version {version} is opened read-only")
        elif version < newest:
            self._report(number, start, end, "old-version", f"version {version} is read as {newest}")

    def _generate_id(self, number: int, start: int, raw: bytes) -> str:
        """Generate an id for an entry without one."""
        # Derived from the bytes and the position, so the same file always yields the same id.
        import hashlib  # slow to import, and rarely needed

        if self.header is None or self.header.version >= 2:
            self._report(
                number, start, start + len(raw), "no-id", "the id is generated; the entry before it is its parent"
            )
            self.generated_ids.append(len(self.types))
        salt = f"{self.header.id if self.header else ''} {len(self.types)} ".encode("utf-8", "surrogatepass")
        id = hashlib.blake2b(salt + raw, digest_size=4).hexdigest()
        while id in self.tree.node_of:
            id = hashlib.blake2b(id.encode() + raw, digest_size=4).hexdigest()
        return id

    def _add(self, number: int, start: int, size: int, kind: str, id: str, parent: str | None) -> None:
        self._offsets.add_line(start, start + size, number)
        self.types.append(intern(kind))
        self.tree.append(id, parent)

    def index_appended(self, size: int, kind: str, id: str, parent: str | None) -> None:
        """Index a line of `size` bytes, LF included, that this process has just appended."""
        self._lines += 1
        self._offsets.add_next(self.size, size, self._lines)
        self.size += size
        if kind == "custom":
            self.own_customs.append(len(self.types))
        self.types.append(intern(kind))
        self.tree.append(id, parent)

    # Problems

    def _report(self, number: int, start: int, end: int, kind: str, action: str) -> None:
        self._problems.append(Problem(number, start, end, kind, action))

    def _report_unterminated(self, number: int, start: int, end: int) -> None:
        self._report(number, start, end, "no-final-newline", "read; the next write ends the line first")

    def _report_once(self, kind: str, number: int, start: int, end: int, action: str) -> None:
        if kind not in self._reported_once:
            self._reported_once.add(kind)
            self._report(number, start, end, kind, action)

    def _report_entry(self, node: int, kind: str, action: str) -> None:
        """Report a problem of an entry's body once per entry and kind, no matter how often it is read."""
        span = self.span(node)
        self._body_problems[node, kind] = Problem(span.line, span.start, span.end, kind, action)

    def _keep_fragment(self, number: int, start: int, raw: bytes, kind: str, action: str) -> None:
        self._report(number, start, start + len(raw), kind, action)
        self.fragments.append(Fragment(number, start, start + len(raw), kind, raw))

    @property
    def has_line_problems(self) -> bool:
        """Whether any line has a problem; broken links between lines do not count."""
        self._check_encoding()
        return bool(self._problems)

    def problems(self) -> list[Problem]:
        """Problems found so far, in file order."""
        self._check_encoding()
        found = [*self._problems, *map(self._tree_problem, self.tree.problems()), *self._body_problems.values()]
        if self.header is None and self.dialect.traits.has_header:
            found.append(Problem(1, 0, 0, "no-header", "opened read-only; the entries are read"))
        return sorted(found, key=lambda problem: (problem.start, problem.end, problem.kind))

    def _check_encoding(self) -> None:
        """Find the lines with invalid UTF-8 in blocks that were decoded in one call."""
        unchecked, self._unchecked_blocks = self._unchecked_blocks, []
        for start, size, first_line in unchecked:
            data = read_bytes(self.store, start, size)
            if all(map(is_utf8, data.split(b"\n"))):  # faster than the whole block, because most lines are ASCII
                continue
            for number, (offset, line) in enumerate(iter_lines(data), first_line):
                if not is_utf8(line):
                    self._report(number, start + offset, start + offset + len(line), *describe_odd_json(line))

    def _tree_problem(self, problem: TreeProblem) -> Problem:
        span = self.span(problem.node)
        action = f"{_TREE_PROBLEM_ACTIONS[problem.kind]} ({problem.id!r})"
        return Problem(span.line, span.start, span.end, problem.kind, action)

    # Reading entries

    def _read_into(self, start: int, view: memoryview) -> None:
        if read_into(self.store, start, view) < len(view):
            raise ReplacedError(f"{self.store.location}: truncated while it was open. Open it again.")

    def span(self, node: int) -> LineSpan:
        """Byte range and line number of an entry. An entry with new versions keeps the line it first had."""
        return self._offsets.span(node)

    def iter_raw(self, nodes: Sequence[int]) -> Iterator[bytes]:
        """Iterate over the raw lines of some entries, without LF, in the given order; of each, its last version."""
        if self._parts and not self._parts.keys().isdisjoint(nodes):
            return map(self._joined_line, nodes)
        if self._updates:
            nodes = [self._updates.get(node, node) for node in nodes]
        return self.iter_lines(nodes)

    def read_joined(self, nodes: Sequence[int]) -> bytes:
        """Read the raw lines that `iter_raw` iterates over, joined by LF, for a decoder of several lines."""
        if self._parts or self._updates or self._state_lines:
            return b"\n".join(self.iter_raw(nodes))
        return self._offsets.read_joined(nodes, self._read_into)

    def _joined_line(self, node: int) -> bytes:
        """The line of an entry with its further parts."""
        raws = list(self.iter_lines([node, *self._parts.get(node, ())]))
        return self.dialect.join_lines(raws) if len(raws) > 1 else raws[0]

    def iter_lines(self, nodes: Sequence[int]) -> Iterator[bytes]:
        """Like `iter_raw`, but of each entry the line at its own place, which may be an earlier version."""
        kept = self._state_lines
        missing = [node for node in nodes if node not in kept] if kept else nodes
        read = self._offsets.iter_raw(missing, self._read_into)
        return read if len(missing) == len(nodes) else (kept[node] if node in kept else next(read) for node in nodes)

    def sizes(self, nodes: Sequence[int] | None = None) -> list[int]:
        """Size of the line of some entries, or of each entry, in bytes."""
        return self._offsets.sizes(nodes)

    def entries(self, nodes: Sequence[int]) -> list[Entry]:
        """Entries of some nodes, in the given order. For very many of them, use `iter_entries`."""
        return list(self.iter_entries(nodes))

    def iter_entries(self, nodes: Sequence[int]) -> Iterator[Entry]:
        """Iterate over the entries of some nodes, in the given order, holding only a few of them in memory."""
        parse, may_refer = self.dialect.parse, self.dialect.traits.may_refer_to_blobs
        has_updates = bool(self._updates or self._parts)
        for node, raw in zip(nodes, self.iter_raw(nodes), strict=True):
            if has_updates and self.types[node] == UPDATE:
                yield Unknown(kind=UPDATE, fields=self.fields_of(raw))
                continue
            refers = may_refer and _BLOB_PREFIX in raw
            entry = parse(render_json(self._resolve_blobs(node, raw)) if refers else raw)
            is_complete = entry.id and not self._has_implied_parents and not isinstance(entry, Compaction)
            yield entry if is_complete else self._fill_in(entry, node, raw)

    def _fill_in(self, entry: Entry, node: int, raw: bytes) -> Entry:
        """Set fields that depend on a line's position: an id and a parent, a first kept entry given by number."""
        id = self.tree.ids[node]
        if (not entry.id or self._has_implied_parents) and not is_metadata_id(id):
            parent = self.tree.parent(node)
            parent_id = None if parent is None else self.tree.ids[parent]
            entry = msgspec.structs.replace(entry, id=id, parent_id=parent_id)
        if isinstance(entry, Compaction) and entry.first_kept_entry_id is None and self.version < 2:
            entry = self._with_kept_id(entry, raw)
        return entry

    def _with_kept_id(self, entry: Compaction, raw: bytes) -> Compaction:
        """Convert the first kept entry of version 1, a number that counts the header and the entries, to an id."""
        number = self.fields_of(raw).get("firstKeptEntryIndex")
        if type(number) is not int or number < 1:
            return entry
        ids = (id for id in self.tree.ids if not is_metadata_id(id))
        kept = next(islice(ids, number - 1, None), None)
        return entry if kept is None else msgspec.structs.replace(entry, first_kept_entry_id=kept)

    def fields(self, nodes: Sequence[int]) -> list[dict[str, Any]]:
        """Decoded lines of some entries, with blob references."""
        return [self.fields_of(raw) for raw in self.iter_raw(nodes)]

    def resolved_fields(self, nodes: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Decoded lines of some entries, with blob references replaced by their content."""
        may_refer = self.dialect.traits.may_refer_to_blobs
        for node, raw in zip(nodes, self.iter_raw(nodes), strict=True):
            yield self._resolve_blobs(node, raw) if may_refer and _BLOB_PREFIX in raw else self.fields_of(raw)

    def raw_lines(self) -> Iterator[bytes]:
        """Every line of the file in order, without LF, damaged ones included."""
        for block in iter_blocks(self.store.readinto, 0):
            for _, line in iter_lines(bytes(block.data)):
                yield line

    def has_bytes(self, wanted: bytes) -> bool:
        """Whether the file contains some bytes (within a line); faster than checking each line."""
        return any(block.buffer.find(wanted, 0, block.size) >= 0 for block in iter_blocks(self.store.readinto, 0))

    def fields_of(self, raw: bytes) -> dict[str, Any]:
        """Decode a line, with blob references; empty if it is not an object."""
        return parse_object(raw)

    def _resolve_blobs(self, node: int, raw: bytes) -> dict[str, Any]:
        blobs = self.blobs

        def get(name: str) -> bytes | None:
            try:
                content = None if blobs is None else blobs.get(name)
            except (DamagedError, StoreError):
                self._report_entry(node, "damaged-blob", f"the reference {name[:12]}… is kept")
                return None
            if content is None:
                self._report_entry(node, "missing-blob", f"the reference {name[:12]}… is kept")
            return content

        return restore(self.fields_of(raw), get)


def _has_one_object_per_line(buffer: bytearray, ends: list[int]) -> bool:
    """Whether each line starts with "{" and ends with "}"."""
    # The decoder of a block accepts two objects on one line, and one object on two lines, without an error. If there
    # are as many objects as lines (which the caller checks) and every line starts and ends like an object, neither of
    # these happened.
    ending = b"}\r\n" if buffer[ends[0] - 2 : ends[0]] == b"\r\n" else b"}\n"
    last = ends[-1]
    if not buffer.startswith(b"{") or not buffer.endswith(ending, 0, last):
        return False
    if len(ends) < 3:
        return len(ends) == 1 or buffer[ends[0] - len(ending) : ends[0] + 1] == ending + b"{"
    firsts: tuple[int, ...] = itemgetter(*ends[:-1])(buffer)
    lasts: tuple[int, ...] = itemgetter(*[end - len(ending) for end in ends])(buffer)
    return firsts.count(_OPEN) == len(firsts) and lasts.count(_CLOSE) == len(lasts)


def _close_problem(problem: Problem) -> Problem:
    """Update a problem of the last line after the line was terminated."""
    if problem.kind != "torn-tail":
        return problem
    return msgspec.structs.replace(problem, kind="undecodable", action=_KEPT_AS_FRAGMENT)
