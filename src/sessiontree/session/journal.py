"""The lines of one session: where store and dialect meet.

A journal reads a store through a dialect and keeps, for every entry, its place in the file, its type and its node in
the tree: columns, not objects, so memory follows the number of entries and not their bytes. Bodies are read when they
are asked for. `refresh` reads what was written since, `adopt` takes in what we wrote ourselves.

Reading is tolerant. A block of ordinary lines is decoded in one go; a block with anything odd in it is looked at line
by line, and what is odd becomes a `Problem` (and a `Fragment`, if bytes belong to no entry). Nothing is raised for
damage, nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from sys import intern
from typing import TYPE_CHECKING, Any

import msgspec

from sessiontree.core.entries import Compaction, Entry, Fragment, Header, Problem
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.core.lines import Block, iter_blocks, iter_lines, line_ends
from sessiontree.core.tree import Tree, TreeProblem
from sessiontree.dialects.contract import Dialect, Envelope, is_metadata_id, metadata_id
from sessiontree.errors import DamagedError, ReplacedError, StoreError
from sessiontree.session.blob_refs import PREFIX, restore
from sessiontree.session.line_offsets import LineOffsets, LineSpan
from sessiontree.stores.contract import BlobStore, Store, read_bytes, read_into

if TYPE_CHECKING:
    from sessiontree.core.salvage import Piece

_OPEN, _CLOSE = b"{}"
_REFERENCE = PREFIX.encode()
_OWN = b"sessiontree."
_KEPT = "kept as a fragment"

_TREE_PROBLEM_ACTIONS = {
    "duplicate-id": "the later entry with this id is used; the earlier one is kept and shown",
    "missing-parent": "kept as a root of its own",
    "self-parent": "kept as a root",
    "cycle": "the ring is cut here; the entry is kept as a root",
    "forward-reference": "the parent stands later in the file; linked to it",
}


class Journal:
    """The lines of one session, indexed."""

    def __init__(self, store: Store, dialect: Dialect, blobs: BlobStore | None = None) -> None:
        self.store = store
        self.dialect = dialect
        self.blobs = blobs
        self._start_over()

    def _start_over(self) -> None:
        self.header: Header | None = None
        self.header_fields: dict[str, Any] = {}
        self.header_span: LineSpan | None = None
        self.tree = Tree()
        self.types: list[str] = []
        self.notes: dict[int, object] = {}
        """What the dialect noted of the lines while it decoded their blocks."""
        self.own_customs: list[int] = []
        """The `custom` entries that may be of our own making: the others need no look when one of ours is wanted."""
        self.fragments: list[Fragment] = []
        self.size = 0
        """The bytes seen so far."""
        self.tail_is_open = False
        """Whether those end without a LF, so that the next write has to put one first."""
        self._offsets = LineOffsets()
        self._lines = 0
        self._problems: list[Problem] = []
        self._said_once: set[str] = set()
        self.generated_ids: list[int] = []
        """Entries of a current version whose lines have no id: theirs was made from the line."""
        self._unchecked: list[tuple[int, int, int]] = []
        """Blocks that may hold bytes that are no UTF-8: checking is slow, and changes nothing in the tree."""
        self._body_problems: dict[tuple[int, str], Problem] = {}

    def __len__(self) -> int:
        return len(self.types)

    @property
    def location(self) -> str:
        return self.store.location

    @property
    def version(self) -> int:
        return self.header.version if self.header else self.dialect.version

    # Reading the lines

    def refresh(self) -> list[int]:
        """Read what was written since the last look; the nodes that are new."""
        now = self.store.size()
        if now < self.size:
            raise ReplacedError(
                f"{self.store.location}: was cut from {self.size} to {now} bytes while it was open. Open it again."
            )
        if now == self.size:
            return []
        known = len(self.types)
        seen: set[str] = set()
        if self.tail_is_open:
            if read_bytes(self.store, self.size, 1) == b"\n":
                self.close_tail()
            else:  # the line went on, so what was read of it was not all of it
                known, seen = 0, set(self.tree.ids)
                self._start_over()
        for block in iter_blocks(self.store.readinto, self.size):
            self._take_block(block)
        self.header = self.dialect.find_header(self)
        new = range(known, len(self.types))
        return [node for node in new if self.tree.ids[node] not in seen] if seen else list(new)

    def close_tail(self) -> None:
        """The line that had no LF has one now."""
        self._problems = [_closed(problem) for problem in self._problems if problem.kind != "no-final-newline"]
        self.fragments = [
            msgspec.structs.replace(fragment, kind="undecodable") if fragment.kind == "torn-tail" else fragment
            for fragment in self.fragments
        ]
        self.size += 1
        self.tail_is_open = False

    def _take_block(self, block: Block) -> None:
        ends = line_ends(block.buffer, block.size)
        plain = block.whole and _has_one_object_per_line(block.buffer, ends)
        columns = self.dialect.decode_block(block.data) if plain else None
        if columns is not None and len(columns.ids) == len(ends):
            if not block.buffer.isascii():
                self._unchecked.append((block.start, block.size, self._lines + 1))
            self._offsets.add_block(block.start, self._lines + 1, ends)
            ids = columns.ids
            if "" in ids:
                ids = [id or metadata_id(node) for node, id in enumerate(ids, len(self.types))]
            if columns.notes:
                self.notes.update(enumerate(columns.notes, len(self.types)))
            if "custom" in columns.types:
                self._note_customs(block.buffer, ends, columns.types)
            self.types += columns.types
            self.tree.extend(ids, columns.parents)
            if block.buffer[ends[0] - 2 : ends[0]] == b"\r\n":
                self._say_once("crlf", self._lines + 1, block.start, block.start + ends[0] - 1, "read as LF")
        else:
            self._take_lines(block, ends)
        self._lines += len(ends)
        self.size = block.end
        self.tail_is_open = not block.whole

    def _note_customs(self, buffer: bytearray, ends: list[int], types: Sequence[str]) -> None:
        starts, known = [0, *ends], len(self.types)
        for at, kind in enumerate(types):
            if kind == "custom" and buffer.find(_OWN, starts[at], ends[at]) >= 0:
                self.own_customs.append(known + at)

    def _take_lines(self, block: Block, ends: Sequence[int]) -> None:
        start = 0
        for number, end in enumerate(ends, self._lines + 1):
            raw = bytes(block.buffer[start:end])
            self._take_line(number, block.start + start, raw.removesuffix(b"\n"), is_last=not raw.endswith(b"\n"))
            start = end

    def _take_line(self, number: int, start: int, raw: bytes, *, is_last: bool) -> None:
        end = start + len(raw)
        if not raw.strip():
            self._say(number, start, end, "blank-line", "passed over")
            return
        if raw.endswith(b"\r"):
            self._say_once("crlf", number, start, end, "read as LF")
        fields = self._decode(number, start, raw)
        if fields is not None:
            if not self._take_record(number, start, raw, fields):
                self._keep(number, start, raw, "not-an-entry", "kept as it is; it is no entry")
            elif is_last:
                self._say_unterminated(number, start, end)
            return
        from sessiontree.core.salvage import salvage  # sound files never need it

        pieces = salvage(raw, self.dialect.is_record)
        self._take_pieces(number, start, raw, pieces, is_last=is_last)

    def _decode(self, number: int, start: int, raw: bytes) -> dict[str, Any] | None:
        """The object on a line, or None when the line is not exactly one JSON object."""
        try:
            fields = msgspec.json.decode(raw)
            if not raw.isascii():
                raw.decode()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            try:
                fields = parse_json(raw)
            except ValueError:
                return None
            kind, action = _odd_json(raw)
            self._say(number, start, start + len(raw), kind, action)
        return fields if isinstance(fields, dict) else None

    def _take_pieces(self, number: int, start: int, raw: bytes, pieces: list[Piece], *, is_last: bool) -> None:
        records = sum(piece.kind == "record" for piece in pieces)
        if records > 1:
            self._say(number, start, start + len(raw), "fused-records", f"all {records} records are read")
        for at, piece in enumerate(pieces):
            first, last = start + piece.start, start + piece.end
            part = raw[piece.start : piece.end]
            follows = at + 1 < len(pieces) and pieces[at + 1].kind == "record"
            match piece.kind:
                case "record":
                    if not self._take_record(number, first, part, piece.value):
                        self._keep(number, first, part, "not-an-entry", "kept as it is; it is no entry")
                case "value":
                    self._keep(number, first, part, "not-an-object", "kept as it is; it is no entry")
                case "bom":
                    self._say(number, first, last, "bom", "passed over")
                case "nul-run":
                    self._say(number, first, last, "nul-run", "passed over; what stands around it is read")
                case "damage" if follows:
                    self._keep(number, first, part, "glued-stub", "kept as a fragment; the record behind it is read")
                case "damage" if is_last:
                    self._keep(
                        number, first, part, "torn-tail", "kept as a fragment; the next write closes the line first"
                    )
                case "damage":
                    self._keep(number, first, part, "undecodable", _KEPT)
        if is_last and pieces[-1].kind != "damage":
            self._say_unterminated(number, start, start + len(raw))

    def _take_record(self, number: int, start: int, raw: bytes, fields: dict[str, Any]) -> bool:
        """Add one record; False when it is neither an entry nor a header."""
        if self.dialect.is_header(fields):
            if self.header is None:
                self._take_header(number, start, raw, fields)
            else:
                self._keep(number, start, raw, "second-header", "kept as it is; the first header counts")
            return True
        envelope = self.dialect.envelope(fields)
        if not envelope.type or not (envelope.id or envelope.is_metadata or self.dialect.is_record(fields)):
            return False
        if envelope.is_metadata:
            self._add(number, start, len(raw), Envelope(envelope.type, metadata_id(len(self.types)), None))
            return True
        envelope = self._with_id(number, start, raw, envelope, fields)
        if envelope.parent == "":
            self._say(number, start, start + len(raw), "empty-parent", "read as a root")
            envelope = Envelope(envelope.type, envelope.id, None)
        if envelope.type == "custom" and _OWN in raw:
            self.own_customs.append(len(self.types))
        self._add(number, start, len(raw), envelope)
        return True

    def _take_header(self, number: int, start: int, raw: bytes, fields: dict[str, Any]) -> None:
        self.header = self.dialect.header(fields)
        self.header_fields = fields
        end = start + len(raw)
        self.header_span = LineSpan(start, end, number)
        if any(not is_metadata_id(id) for id in self.tree.ids):
            self._say(number, start, end, "late-header", "read as the header, although entries stand before it")
        if self.header.version > self.dialect.version:
            self._say(number, start, end, "newer-version", f"version {self.header.version} is opened for reading only")
        elif self.header.version < self.dialect.version:
            self._say(
                number, start, end, "old-version", f"version {self.header.version} is read as {self.dialect.version}"
            )

    def _with_id(self, number: int, start: int, raw: bytes, envelope: Envelope, fields: dict[str, Any]) -> Envelope:
        """An entry without an id gets one made from its bytes and place, always the same, and follows the last one."""
        if envelope.id:
            return envelope
        import hashlib  # slow to import, and seldom needed

        if self.header is None or self.header.version >= 2:
            self._say(
                number, start, start + len(raw), "no-id", "an id is made from the line; it follows the entry before"
            )
            self.generated_ids.append(len(self.types))
        salt = f"{self.header.id if self.header else ''} {len(self.types)} ".encode("utf-8", "surrogatepass")
        id = hashlib.blake2b(salt + raw, digest_size=4).hexdigest()
        while id in self.tree.node_of:
            id = hashlib.blake2b(id.encode() + raw, digest_size=4).hexdigest()
        parent = envelope.parent
        if self.dialect.parent_key not in fields:
            parent = next((id for id in reversed(self.tree.ids) if not is_metadata_id(id)), None)
        return Envelope(envelope.type, id, parent)

    def _add(self, number: int, start: int, size: int, envelope: Envelope) -> None:
        self._offsets.add_line(start, start + size, number)
        self.types.append(intern(envelope.type))
        self.tree.append(envelope.id, envelope.parent)

    def adopt(self, size: int, kind: str, id: str, parent: str | None) -> None:
        """Take in a line of `size` bytes, LF included, that was just written behind what was seen."""
        self._lines += 1
        self._offsets.add_next(self.size, size, self._lines)
        self.size += size
        if kind == "custom":
            self.own_customs.append(len(self.types))
        self.types.append(intern(kind))
        self.tree.append(id, parent)

    # Problems

    def _say(self, number: int, start: int, end: int, kind: str, action: str) -> None:
        self._problems.append(Problem(number, start, end, kind, action))

    def _say_unterminated(self, number: int, start: int, end: int) -> None:
        self._say(number, start, end, "no-final-newline", "read; the next write closes the line first")

    def _say_once(self, kind: str, number: int, start: int, end: int, action: str) -> None:
        if kind not in self._said_once:
            self._said_once.add(kind)
            self._say(number, start, end, kind, action)

    def _say_of(self, node: int, kind: str, action: str) -> None:
        """A problem found while reading an entry's body: once per entry and kind, however often it is read."""
        place = self.span(node)
        self._body_problems[node, kind] = Problem(place.line, place.start, place.end, kind, action)

    def _keep(self, number: int, start: int, raw: bytes, kind: str, action: str) -> None:
        self._say(number, start, start + len(raw), kind, action)
        self.fragments.append(Fragment(number, start, start + len(raw), kind, raw))

    @property
    def has_odd_lines(self) -> bool:
        """Whether any line is other than it should be, leaving aside how lines hang together."""
        self._check_encoding()
        return bool(self._problems)

    def problems(self) -> list[Problem]:
        """Everything odd that was met so far, in file order."""
        self._check_encoding()
        found = [*self._problems, *map(self._tree_problem, self.tree.problems()), *self._body_problems.values()]
        if self.header is None and self.dialect.has_header:
            found.append(Problem(1, 0, 0, "no-header", "opened for reading only; the entries are read as they stand"))
        return sorted(found, key=lambda problem: (problem.start, problem.end, problem.kind))

    def _check_encoding(self) -> None:
        """Find the lines that are no UTF-8 among those that were decoded block by block."""
        unchecked, self._unchecked = self._unchecked, []
        for start, size, first_line in unchecked:
            data = read_bytes(self.store, start, size)
            if all(map(_is_utf8, data.split(b"\n"))):  # quicker than the whole at once: most lines are ASCII
                continue
            for number, (offset, line) in enumerate(iter_lines(data), first_line):
                if not _is_utf8(line):
                    self._say(number, start + offset, start + offset + len(line), *_odd_json(line))

    def _tree_problem(self, problem: TreeProblem) -> Problem:
        place = self.span(problem.node)
        action = f"{_TREE_PROBLEM_ACTIONS[problem.kind]} ({problem.id!r})"
        return Problem(place.line, place.start, place.end, problem.kind, action)

    # Reading the entries

    def _read_into(self, start: int, view: memoryview) -> None:
        if read_into(self.store, start, view) < len(view):
            raise ReplacedError(f"{self.store.location}: was cut while it was open. Open it again.")

    def span(self, node: int) -> LineSpan:
        """Where an entry stands in the file."""
        return self._offsets.span(node)

    def iter_raw(self, nodes: Sequence[int]) -> Iterator[bytes]:
        """The bytes of some entries as they stand in the file, without LF, in the order asked for."""
        return self._offsets.iter_raw(nodes, self._read_into)

    def sizes(self) -> list[int]:
        """How many bytes stand for each entry in the file."""
        return self._offsets.sizes()

    def entries(self, nodes: Sequence[int]) -> list[Entry]:
        """The entries of some nodes, in the order asked for."""
        parse, may_refer = self.dialect.parse, self.dialect.may_refer_to_blobs
        entries = []
        for node, raw in zip(nodes, self.iter_raw(nodes), strict=True):
            refers = may_refer and _REFERENCE in raw
            entry = parse(render_json(self._restored(node, raw)) if refers else raw)
            is_whole = entry.id and not isinstance(entry, Compaction)
            entries.append(entry if is_whole else self._completed(entry, node, raw))
        return entries

    def _completed(self, entry: Entry, node: int, raw: bytes) -> Entry:
        """An entry with what its line says only by the place it stands in."""
        id = self.tree.ids[node]
        if not entry.id and not is_metadata_id(id):  # the line has no id of its own: it was made for it
            parent = self.tree.parent(node)
            parent_id = None if parent is None else self.tree.ids[parent]
            entry = msgspec.structs.replace(entry, id=id, parent_id=parent_id)
        if isinstance(entry, Compaction) and entry.first_kept_entry_id is None and self.version < 2:
            entry = self._with_kept_id(entry, raw)
        return entry

    def _with_kept_id(self, entry: Compaction, raw: bytes) -> Compaction:
        """Version 1 names the first kept entry by its number, counting the header."""
        number = self.fields_of(raw).get("firstKeptEntryIndex")
        if isinstance(number, int) and 1 <= number <= len(self.tree.ids):
            return msgspec.structs.replace(entry, first_kept_entry_id=self.tree.ids[number - 1])
        return entry

    def fields(self, nodes: Sequence[int]) -> list[dict[str, Any]]:
        """The decoded objects of some entries' lines, as they stand there."""
        return [self.fields_of(raw) for raw in self.iter_raw(nodes)]

    def resolved_fields(self, nodes: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The decoded objects of some entries' lines, with large content back in its place."""
        for node, raw in zip(nodes, self.iter_raw(nodes), strict=True):
            refers = self.dialect.may_refer_to_blobs and _REFERENCE in raw
            yield self._restored(node, raw) if refers else self.fields_of(raw)

    def raw_lines(self) -> Iterator[bytes]:
        """Every line of the file in order, without LF, whatever it holds."""
        for block in iter_blocks(self.store.readinto, 0):
            for _, line in iter_lines(bytes(block.data)):
                yield line

    def has_bytes(self, wanted: bytes) -> bool:
        """Whether some bytes stand on any line of the file: quicker than to look at each line."""
        return any(block.buffer.find(wanted, 0, block.size) >= 0 for block in iter_blocks(self.store.readinto, 0))

    def fields_of(self, raw: bytes) -> dict[str, Any]:
        """The decoded object of a line, as it stands there."""
        try:
            fields = parse_json(raw)
        except ValueError:
            return {}
        return fields if isinstance(fields, dict) else {}

    def _restored(self, node: int, raw: bytes) -> dict[str, Any]:
        def get(name: str) -> bytes | None:
            try:
                content = self.blobs.get(name) if self.blobs is not None else None
            except (DamagedError, StoreError):
                self._say_of(node, "damaged-blob", f"the reference {name[:12]}… stays in its place")
                return None
            if content is None:
                self._say_of(node, "missing-blob", f"the reference {name[:12]}… stays in its place")
            return content

        return restore(self.fields_of(raw), get)


def _has_one_object_per_line(buffer: bytearray, ends: list[int]) -> bool:
    """Whether each line begins and ends like an object.

    The block decoder takes two objects on one line, and one object on two lines, for granted. With as many objects as
    lines, and no line that begins or ends otherwise, neither can be there.
    """
    ending = b"}\r\n" if buffer[ends[0] - 2 : ends[0]] == b"\r\n" else b"}\n"
    last = ends[-1]
    if not buffer.startswith(b"{") or not buffer.endswith(ending, 0, last):
        return False
    if len(ends) < 3:
        return len(ends) == 1 or buffer[ends[0] - len(ending) : ends[0] + 1] == ending + b"{"
    firsts: tuple[int, ...] = itemgetter(*ends[:-1])(buffer)
    lasts: tuple[int, ...] = itemgetter(*[end - len(ending) for end in ends])(buffer)
    return firsts.count(_OPEN) == len(firsts) and lasts.count(_CLOSE) == len(lasts)


def _closed(problem: Problem) -> Problem:
    """A problem of the last line, now that the line has an end."""
    if problem.kind != "torn-tail":
        return problem
    return msgspec.structs.replace(problem, kind="undecodable", action=_KEPT)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _odd_json(raw: bytes) -> tuple[str, str]:
    """What made the strict decoder refuse a line that the tolerant one reads."""
    if not _is_utf8(raw):
        return "bad-utf8", "the bytes that are no UTF-8 are kept; the rest is read"
    if b"\\ud" in raw.lower():
        return "lone-surrogate", "kept as it is"
    return "odd-json", "not strict JSON (a control character, NaN or a huge number); read as it stands"
