"""Writing lines to a session's store: `Writer`, the half of a session that appends.

A write is one compare-and-append: it succeeds only if the store still ends where the index does. If another writer got
there first, the writer reads the new lines and encodes again; after a second lost race, it locks out other writers. A
failed write may have been carried out, so later writes are refused until `resolve` has read what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.core.entries import Entry, Header, Problem, parse_entry
from sessiontree.core.ids import new_entry_id, timestamp
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoder, SessionMeta
from sessiontree.dialects.contract import Dialect, Envelope, metadata_id
from sessiontree.dialects.roles import with_common_role
from sessiontree.dialects.side_branches import SideBranches
from sessiontree.errors import (
    ConflictError,
    ExistsError,
    InvalidEntryError,
    NotFoundError,
    ReadOnlyError,
    SessionTreeError,
    UsageError,
    WriteError,
)
from sessiontree.session.blob_refs import LargeContent, externalize, may_hold_large_content, truncate
from sessiontree.session.copy_lines import migrated_lines
from sessiontree.session.entry_input import Options, creates_file, ends_turn
from sessiontree.session.journal import Journal
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.stores.contract import BlobStore, SessionRef, SessionRepository, SessionStore, read_bytes

_EXCLUSIVE_ATTEMPTS = 20
"""Maximum number of attempts while other writers are locked out: programs that take no lock may still append."""


class Batch(Struct):
    """Lines to append in one write, and the ids of their entries."""

    ids: Sequence[str]
    data: bytes
    """The lines, with LF."""
    is_next: bool = False
    """Whether the data was written directly after the indexed bytes."""


class Line(Batch):
    """A batch of one line."""

    parent: str | None = None
    complete: bytes = b""
    """The line with its large content, which is in blobs."""


class CallerFields(Struct, frozen=True):
    """Id and time of an entry, as far as the caller chose them."""

    id: str | None
    timestamp: str | None


class EncodedBatch(Batch):
    """What an encoder changes: lines to append, bytes to overwrite or, if needed, all lines of the new file."""

    overwrites: Sequence[tuple[int, bytes]] = ()
    rewrite: list[bytes] | None = None
    known: int = 0
    """Number of entries in the file before."""


BatchT = TypeVar("BatchT", bound=Batch)

Parent: TypeAlias = str | Current | Callable[[], str | None] | None
"""Where to append: an entry, before the first one (None), or an entry that is found in the index when the line is
rendered, and again after the lines of other writers were read. `CURRENT` is the file's current entry."""


class FailedWrite(Struct):
    """A write that failed. Until `resolve`, it is unknown whether its entries are in the store."""

    ids: Sequence[str]
    leaf: str | Current | None = CURRENT
    """The leaf of its writer, if the write was carried out; CURRENT if it does not move."""
    settle: Callable[[str | None], object] | None = None
    """Moves its writer to this leaf."""
    changes_indexed_bytes: bool = False


class Writer(Reader):
    """A session whose lines can be appended to. Methods that write expect the caller to hold the mutex."""

    _is_closed = False
    _id_when_closed = ""

    def __init__(self, journal: Journal, options: Options, pending: SessionStore | None = None) -> None:
        super().__init__(journal, options.read_options)
        self._options = options
        self._pending = pending
        """The store of a session whose file does not exist yet; until then its lines are in memory."""
        self._unreported: list[int] = []
        """Entries of other writers that were read before our own write; the next `refresh` reports them."""
        self._unsynced = False
        self.notify: Callable[[str], object] = _log_notice
        """Called with a line for the user, from any thread: what a write did besides writing."""
        self._failed: FailedWrite | None = None
        self._writable_header: Header | None = None
        self._needs_encoder = not journal.dialect.traits.one_line_per_entry

    @property
    def id(self) -> str:
        return self._id_when_closed if self._is_closed else super().id

    @property
    def known_problems(self) -> list[Problem]:
        self._check_open()
        return super().known_problems

    def _read(self) -> None:
        self._check_open()
        super()._read()

    @property
    def location(self) -> str:
        """Path of the session's file, which may not exist yet."""
        return (self._pending or self._indexed.store).location

    @property
    def ref(self) -> SessionRef:
        return super().ref if self._pending is None else self._pending.ref

    @property
    def repository(self) -> SessionRepository:
        """The repository of the session, its forks, large content and tags."""
        assert self._indexed.find_repository is not None
        return self._indexed.find_repository()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called: nothing can be read or written after it."""
        return self._is_closed

    @property
    def is_pending(self) -> bool:
        """Whether the session's file does not exist yet: it is created with the first message."""
        return self._pending is not None

    @property
    def large_content(self) -> LargeContent:
        """Where appended large content is stored: this writer's choice, else the header's, else blobs."""
        return self._options.large_content or self.header.large_content or "blobs"

    @large_content.setter
    def large_content(self, chosen: LargeContent) -> None:
        self._options = msgspec.structs.replace(self._options, large_content=chosen)

    def flush(self) -> None:
        """Sync the file: return when everything appended so far would survive a power failure."""
        with self._mutex:
            self._sync()

    def resolve(self) -> list[str]:
        """Allow writes again after a failed one, and return the ids of its entries if they are in the file after all.

        A write whose connection broke may have been carried out. Then its writer continues after it, as if it had not
        failed. An empty list means that it was not carried out; the caller may repeat it.
        """
        with self._mutex:
            failed, self._failed = self._failed, None
            if self._pending is not None:
                self._adopt_created(self._pending)
            else:
                self._journal.store.resolve()
            if failed is not None and failed.changes_indexed_bytes:
                self._journal = Journal(self._journal.store, self.dialect, self._journal.find_repository)
            arrived = self._journal.refresh()
            ids, node_of = self._journal.tree.ids, self._journal.tree.node_of
            found = [] if failed is None else [id for id in failed.ids if id in node_of]
            self._unreported = [node for node in [*self._unreported, *arrived] if ids[node] not in found]
            if failed is not None and failed.settle and found and not isinstance(failed.leaf, Current):
                failed.settle(failed.leaf)
            return found

    def _adopt_created(self, store: SessionStore) -> None:
        """Continue in the store of a pending session if its creation failed and was carried out nevertheless."""
        store.resolve()
        if not store.exists():
            return
        memory, size = self._journal.store, self._journal.size
        if read_bytes(store, 0, size) == read_bytes(memory, 0, size):
            self._journal, self._pending = Journal(store, self.dialect, self._journal.find_repository), None

    def close(self) -> None:
        """Sync and close the store. Reading and writing are refused after that; the id and location stay known."""
        with self._mutex:
            if not self._is_closed:
                self._id_when_closed = self._known_id()
                self._sync()
                self._indexed.store.close()
                self._is_closed = True
                # Each use of the index calls `_read` from now on, which refuses.
                self._is_read, self._has_tried_partial, self._partial = False, True, None
                self._writable_header = None

    def _known_id(self) -> str:
        """The id; empty if the file was never read and is now gone, because `close` must not fail for that."""
        try:
            return self.id
        except (SessionTreeError, OSError):
            return ""

    def migrate(self) -> str | None:
        """Rewrite the file in the current version and return the name of the backup; None if it is current."""
        with self._mutex:
            if self._journal.header is None or self.header.version > self.dialect.traits.version:
                raise ReadOnlyError(f"{self.location}: cannot migrate: {self.read_only}")
            if self.header.version == self.dialect.traits.version:
                return None
            self._journal.refresh()
            backup = self._journal.store.replace(migrated_lines(self._journal), expected_size=self._journal.size)
            self._journal = Journal(self._journal.store, self.dialect, self._journal.find_repository)
            self._journal.refresh()
            return backup

    # One line

    def _write(self, kind: str, fields: dict[str, Any], parent: Parent, given: CallerFields | None = None) -> Entry:
        """Append one entry. The caller holds the mutex."""
        entry = self._write_entry(kind, fields, parent, given)[1]
        assert entry is not None
        return entry

    def _write_entry(
        self,
        kind: str,
        fields: dict[str, Any],
        parent: Parent,
        given: CallerFields | None = None,
        *,
        decode: bool = True,
    ) -> tuple[str, Entry | None]:
        """Append one entry and return its id; the entry as well, unless `decode` is off.

        Every write goes through here, `_write_all` or `_write_lines`.
        """
        # Do as little as possible between `append` and the `write` call: after a sync the processor's caches are cold,
        # and every step costs several times as much as in a loop. Other work is done while the disk is writing.
        journal = self._indexed if self._is_read else self._journal
        if isinstance(parent, str) and parent not in journal.tree.node_of:
            raise NotFoundError(f"{self.location}: no entry {parent!r} to append to")
        if journal.header is None or journal.header is not self._writable_header:
            self._check_writable()
            journal = self._indexed
        if self._pending is not None:
            entry = self._write_pending(kind, fields, parent, given)
            return entry.id, entry
        if self._needs_encoder or kind in journal.dialect.traits.encoder_types:
            entry = self._write_one_encoded(kind, fields, parent, given)
            return entry.id, entry
        line = self._line(kind, fields, parent, given)
        if not self._append_data(line):
            line = self._write_again(lambda: self._line(kind, fields, parent, given), self._append_data)
        sync = self._syncs_after(kind, fields)
        if sync and decode:
            journal.store.start_sync()
        id = line.ids[0]
        if line.is_next:
            journal.index_appended(len(line.data), kind, id, line.parent)
        else:
            self._unreported.extend(node for node in journal.refresh() if journal.tree.ids[node] != id)
        self._unsynced = True
        written = journal.dialect.parse(line.complete) if decode else None
        if sync:
            self._sync_written(line.ids)
        return id, written

    def _line(self, kind: str, fields: dict[str, Any], parent: Parent, given: CallerFields | None) -> Line:
        """Render an entry as a line, with a free id or the caller's; large content goes to blobs."""
        journal = self._indexed
        parent = self._find_parent(parent)
        if given is None:
            id, now = new_entry_id(journal.tree.node_of), timestamp()
        else:
            id, now = given.id or new_entry_id(journal.tree.node_of), given.timestamp or timestamp()
            if id in journal.tree.node_of:
                raise ExistsError(f"{self.location}: the entry {id!r} exists already; nothing was written")
        dialect = journal.dialect
        data = complete = dialect.render_entry(kind, id, parent, now, fields) + b"\n"
        if may_hold_large_content(data):
            blobs = self._blobs_for(kind)
            if self.large_content == "truncate":
                data = complete = dialect.render_entry(kind, id, parent, now, truncate(fields)) + b"\n"
            elif blobs is not None:
                data = dialect.render_entry(kind, id, parent, now, self._moved(fields, blobs)) + b"\n"
        return Line((id,), data, False, parent, complete)

    def _find_parent(self, parent: Parent) -> str | None:
        if parent is None or isinstance(parent, str):
            return parent
        return self._stored_leaf() if isinstance(parent, Current) else parent()

    def _write_pending(self, kind: str, fields: dict[str, Any], parent: Parent, given: CallerFields | None) -> Entry:
        """Append to a session that is still in memory; the first message also creates its file."""
        assert self._pending is not None
        journal, memory = self._journal, self._journal.store
        line = self._line(kind, fields, parent, given)
        if creates_file(self._options.appear, kind, fields):
            # One atomic creation with everything so far: the file never exists without its first message.
            try:
                self._pending.create([read_bytes(memory, 0, journal.size), line.data])
            except WriteError:
                self._note_failure(FailedWrite(line.ids))
                raise
            journal.store, self._pending, self._failed = self._pending, None, None
        else:
            memory.append(line.data, expected_size=journal.size)
        journal.index_appended(len(line.data), kind, line.ids[0], line.parent)
        return journal.dialect.parse(line.complete)

    def _append_data(self, batch: Batch) -> bool:
        """Append a batch if the file still ends where the index does; False if another writer got there first."""
        journal, data = self._indexed, batch.data
        size = journal.size
        if journal.tail_is_open:
            # A killed writer left an unterminated line: without this LF our line would be joined to it.
            data = b"\n" + data
        try:
            end = journal.store.append(data, expected_size=size)
        except WriteError:
            self._note_failure(FailedWrite(batch.ids))
            raise
        if end is None:
            return False
        batch.is_next = end == size + len(data)
        if journal.tail_is_open and batch.is_next:
            journal.close_tail()
        return True

    def _write_again(self, render: Callable[[], BatchT], write: Callable[[BatchT], bool]) -> BatchT:
        """After a lost race, write what `render` returns for the current file; after two, lock out other writers."""
        journal = self._indexed
        self._unreported.extend(journal.refresh())
        batch = render()
        if write(batch):
            return batch
        try:
            with journal.store.exclusive():
                for _ in range(_EXCLUSIVE_ATTEMPTS):
                    self._unreported.extend(journal.refresh())
                    batch = render()
                    if write(batch):
                        return batch
        except WriteError:  # also from leaving the block, which in a database is the commit
            self._note_failure(FailedWrite(batch.ids))
            raise
        raise ConflictError(f"{self.location}: other programs kept writing; nothing was written")

    # Several lines

    def _write_lines(self, lines: Iterable[bytes]) -> Sequence[str]:
        """Append complete lines whose ids are not in the file; returns these ids."""
        parsed = [(line, self._parse_line_id(line)) for line in lines]
        self._check_created()

        def render() -> Batch:
            seen = {id for _, id in parsed if id in self._journal.tree.node_of}
            new: dict[str, None] = {}
            kept: list[bytes] = []
            for line, id in parsed:
                if id not in seen and id not in new:
                    kept.append(line)
                    if id:
                        new[id] = None
            return Batch([*new], _joined(kept) if new or not seen else b"")

        batch = render()
        if batch.data and not self._append_data(batch):
            batch = self._write_again(render, lambda batch: not batch.data or self._append_data(batch))
        self._unreported.extend(node for node in self._index(batch) if self._id(node) not in batch.ids)
        if batch.data:
            self._unsynced = True
            if self._options.durability != "system":
                self._sync_written(batch.ids)
        return batch.ids

    def _index(self, batch: Batch) -> Sequence[int]:
        """Index what a write appended, and the lines of others before it; returns the new nodes."""
        journal = self._journal
        return journal.index_written(batch.data) if batch.is_next else journal.refresh()

    def _parse_line_id(self, line: bytes) -> str:
        """The id of a line that the caller wants to append; empty for a metadata line."""
        fields = self._journal.fields_of(line)
        found = self.dialect.decode_line(fields, len(self._journal)) if fields else None
        if b"\n" in line or not isinstance(found, Envelope) or not (found.id or found.is_metadata):
            raise InvalidEntryError(f"{line[:80]!r} is not a line with an entry of {self.dialect.name}")
        return "" if found.is_metadata else found.id

    def _check_created(self) -> None:
        self._check_writable()
        if self._pending is not None:
            raise UsageError(f"{self.location}: the session has no messages yet; append one first")

    def _write_one_encoded(
        self, kind: str, fields: dict[str, Any], parent: Parent, given: CallerFields | None
    ) -> Entry:
        """Write an entry with the dialect's encoder, which may produce several lines."""
        time = None if given is None else given.timestamp
        entry = CanonicalEntry(kind, fields, timestamp=time or timestamp())

        def encode(encoder: Encoder) -> EncodedBatch:
            return _encode_all(encoder, self.dialect, [entry], self._find_parent(parent))

        batch = self._write_encoded(encode, entry.timestamp)
        if self._syncs_after(kind, fields):
            self._sync_written(batch.ids)
        return self._read_back(batch.ids[-1] if batch.ids else None, entry, batch.known)

    def _write_all(self, entries: Sequence[CanonicalEntry], parent: Parent) -> Sequence[str]:
        def encode(encoder: Encoder) -> EncodedBatch:
            start = self._find_parent(parent)
            batch = _encode_all(encoder, self.dialect, entries, start)
            if batch.ids and self._is_in_side_branch(start):
                # Messages in a side branch do not change the session's current entry; an explicit move does.
                move = encoder.encode(CanonicalEntry("leaf", {"targetId": batch.ids[-1]}), batch.ids[-1])
                batch.data += _joined(move.lines)
            return batch

        batch = self._write_encoded(encode, timestamp())
        if self._options.durability != "system":
            self._sync_written(batch.ids)
        return batch.ids

    def _write_encoded(self, encode: Callable[[Encoder], EncodedBatch], now: str) -> EncodedBatch:
        """Write the batch that `encode` returns for the current file."""

        def render() -> EncodedBatch:
            journal = self._journal
            batch = encode(journal.dialect.encoder(SessionMeta(self.id, now, self.cwd), journal))
            batch.known = len(journal)
            return batch

        batch = render()
        if not self._write_encoded_batch(batch):
            batch = self._write_again(render, self._write_encoded_batch)
        if batch.overwrites or batch.rewrite is not None:  # the index describes the old bytes
            self._journal = Journal(self._journal.store, self.dialect, self._journal.find_repository)
            self._journal.refresh()
        else:
            self._index(batch)
        self._unsynced = True
        return batch

    def _write_encoded_batch(self, batch: EncodedBatch) -> bool:
        """Write a batch, which may also change existing bytes; False if another writer got there first."""
        store, size = self._journal.store, self._journal.size
        if not batch.overwrites and batch.rewrite is None:
            return not batch.data or self._append_data(batch)
        try:
            if batch.rewrite is not None:
                return _replace_lines(store, batch.rewrite, size)
            with store.exclusive() as found:
                if found != size:
                    return False
                for offset, data in batch.overwrites:
                    store.overwrite(offset, data, read_bytes(store, offset, len(data)))
                return not batch.data or self._append_data(batch)
        except WriteError:
            self._note_failure(FailedWrite(batch.ids, changes_indexed_bytes=True))
            raise

    def _read_back(self, id: str | None, entry: CanonicalEntry, known: int) -> Entry:
        """Read an entry that an encoder wrote: the tree entry, or the metadata line that holds it."""
        journal = self._journal
        node = journal.tree.node_of.get(id) if id is not None else None
        if node is None or node < known:  # a metadata line: the encoder returned the id of its parent
            new = [number for number in range(known, len(journal)) if journal.types[number] == entry.kind]
            node = new[-1] if new else None
        if node is not None:
            return journal.entries([node])[0]
        fields = {**entry.fields, "type": entry.kind, "id": metadata_id(len(journal)), "timestamp": entry.timestamp}
        return parse_entry(fields)

    def _is_in_side_branch(self, id: str | None) -> bool:
        return (
            self.dialect.traits.one_line_per_entry
            and SideBranches(self._journal).start_of(self.node_of(id)) is not None
        )

    # Large content

    def _externalize(self, entry: CanonicalEntry) -> CanonicalEntry:
        """Move an entry's large content to blobs where the client supports them."""
        blobs = self._blobs_for(entry.kind)
        if blobs is None or not may_hold_large_content(render_json(entry.fields)):
            return entry
        return msgspec.structs.replace(entry, fields=self._moved(entry.fields, blobs))

    def _moved(self, fields: dict[str, Any], blobs: BlobStore) -> dict[str, Any]:
        traits = self._journal.dialect.traits
        return externalize(fields, blobs.put, None if traits.uses_home_blobs else traits.truncation_notice)

    def _blobs_for(self, kind: str) -> BlobStore | None:
        """Blob store for an entry's large content; None if the content stays in the line, for clients without blobs."""
        dialect, chosen = self._journal.dialect, self.large_content
        if chosen == "truncate" or not (dialect.traits.uses_home_blobs or dialect.blob_folder(self.location)):
            return None
        if chosen == "inline" and kind != "config":
            return None
        # Large settings are always stored in blobs: no client reads them, and each change writes all of them again,
        # pasted images included.
        return self._journal.blobs

    # Durability and failures

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"{self.location}: the session was closed; open it again with sessiontree.open")

    def _check_writable(self) -> None:
        """Raise if the session cannot be written. A file of an older version is migrated first."""
        self._check_open()
        reason = self.read_only
        if reason is not None:
            raise ReadOnlyError(f"{self.location}: cannot write: {reason}")
        version = self.header.version
        backup = self.migrate()
        if backup is not None:
            now = self.header.version
            self.notify(f"{self.location}: upgraded from version {version} to {now}; the old file is {backup}")
        self._writable_header = self._journal.header

    def _syncs_after(self, kind: str, fields: dict[str, Any]) -> bool:
        durability = self._options.durability
        return durability == "append" or (durability == "turn" and ends_turn(kind, fields))

    def _sync_written(self, ids: Sequence[str]) -> None:
        """Sync what was just appended; a failure is remembered for `resolve`."""
        try:
            self._sync()
        except WriteError:
            self._note_failure(FailedWrite(ids))
            raise

    def _sync(self) -> None:
        if self._unsynced:
            self._journal.store.sync()
            self._unsynced = False

    def _note_failure(self, failed: FailedWrite) -> None:
        """Note a failed write for `resolve`. The store refuses later writes, so only the first one counts."""
        if self._failed is None:
            self._failed = failed

    def _expect_after_failure(
        self, settle: Callable[[str | None], object], kind: str, to: str | Current | None = CURRENT
    ) -> None:
        """Note where the writer of a failed write will be, if `resolve` finds its entries in the file."""
        failed = self._failed
        if failed is not None and failed.ids:
            failed.settle = settle
            if not isinstance(to, Current):
                failed.leaf = to
            elif kind not in self._indexed.dialect.traits.bookkeeping:
                failed.leaf = failed.ids[-1]


def _encode_all(
    encoder: Encoder, dialect: Dialect, entries: Sequence[CanonicalEntry], parent: str | None
) -> EncodedBatch:
    """Encode entries with roles of the dialect, each as the child of the one before."""
    ids: list[str] = []
    lines: list[bytes] = []
    overwrites: list[tuple[int, bytes]] = []
    rewrite: list[bytes] | None = None
    for entry in entries:
        entry, _ = with_common_role(entry, dialect)
        encoded = encoder.encode(entry, parent)
        parent = encoded.id
        if parent:  # a metadata entry before all others has an empty one
            ids.append(str(parent))
        if encoded.overwrite is not None:
            overwrites.append(encoded.overwrite)
        if encoded.rewrite is not None:
            rewrite = [*encoded.rewrite]
        elif rewrite is not None:
            rewrite += encoded.lines
        lines += encoded.lines
    return EncodedBatch(ids, _joined(lines), overwrites=overwrites, rewrite=rewrite)


def _replace_lines(store: SessionStore, lines: Iterable[bytes], size: int) -> bool:
    try:
        store.replace((line + b"\n" for line in lines), expected_size=size)
    except ConflictError:
        return False
    return True


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in lines])


def _log_notice(text: str) -> None:
    import logging  # rarely needed, and slow to import

    logging.getLogger("sessiontree").warning("%s", text)
