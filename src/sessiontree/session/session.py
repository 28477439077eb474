"""A session that can be written: `Session`, and `Branch`, a writer's position in its tree.

Several branches of one session can be written at once, from threads (which share the session) and from processes (each
opens it). Every append becomes a child of its branch's leaf. Before each write, the session reads the lines that other
writers appended. Opening and reading never write; all reading is in `reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.context import Context
from sessiontree.core.entries import (
    Config,
    Entry,
    ForkOrigin,
    Header,
    KeptLargeContent,
    parse_entry,
)
from sessiontree.core.ids import new_entry_id, new_session_id, timestamp
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.canonical import CanonicalEntry, Encoder, SessionMeta
from sessiontree.dialects.contract import Dialect, is_metadata_id, metadata_id
from sessiontree.dialects.side_branches import OF_BRANCH, SideBranches
from sessiontree.errors import ConflictError, InvalidEntryError, NotFoundError, ReadOnlyError, UsageError
from sessiontree.session.blob_refs import LargeContent, externalize, may_hold_large_content, truncate
from sessiontree.session.copy_lines import forked_lines, migrated_lines
from sessiontree.session.entry_input import Options, creates_file, ends_turn, parse_entry_input
from sessiontree.session.journal import Journal
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.stores.contract import BlobStore, Store, read_bytes
from sessiontree.stores.memory import MemoryStore

_REWRITE_ATTEMPTS = 8
"""Maximum number of attempts at a rewrite while other processes write."""


class SessionRepository(Struct, frozen=True):
    """Where a session's forks and large content are stored."""

    store_for: Callable[[Header, bool], Store]
    """The store of a fork, given its header and whether it has another working folder than its origin."""
    blobs: BlobStore | None = None


class Branch:
    """A writer's position in the tree: a leaf that follows this writer's appends."""

    def __init__(self, session: Session, leaf: str | None) -> None:
        self.session = session
        self.leaf = leaf

    def append(self, entry: Mapping[str, Any] | str | None = None, content: Any = None, /, **fields: Any) -> Entry:
        """Append an entry to this branch and return it; the branch's leaf moves to it.

        An entry is a mapping with a `type`, or a message (a mapping with a `role`), or just the role and the content:
        `append("user", "hello")`, `append(role="user", content="hello")`, `append({"type": "custom", ...})`.
        """
        session = self.session
        kind, body = parse_entry_input(entry, content, fields)
        moves = kind not in session._indexed.dialect.bookkeeping
        written = session._write(kind, body, self.leaf)
        if moves and not is_metadata_id(written.id):
            self.leaf = written.id
        return written

    def move(self, to: str | None) -> None:
        """Move to another entry (None: before the first one) and record that in the file.

        In a side branch this moves only its writer, not the session's current entry.
        """
        self.session._write_move(to, of_branch=True)
        self.leaf = to

    def context(self) -> Context:
        """The messages a model receives for this branch."""
        return self.session._context(self.leaf)

    def path(self) -> list[Entry]:
        """Entries from root to leaf."""
        return self.session._path(self.leaf)


class Session(Reader):
    """A session for reading and writing, from `sessiontree.open` or `sessiontree.create`."""

    def __init__(
        self, journal: Journal, repository: SessionRepository, options: Options, pending: Store | None = None
    ) -> None:
        super().__init__(journal, options.read_options)
        self._repository = repository
        self._options = options
        self._pending = pending
        """The store of a session whose file does not exist yet; until then its lines are in memory."""
        self._listeners: list[Callable[[Entry], None]] = []
        self._unreported: list[int] = []
        """Entries of other writers that were read before our own write; the next `refresh` reports them."""
        self._unsynced = False
        self._writable_header: Header | None = None
        self._needs_encoder = not journal.dialect.one_line_per_entry
        self._leaf: str | Current | None = self._stored_leaf() if self._is_read else CURRENT
        """This object's own leaf; CURRENT until it is first needed, because finding it requires reading the file."""

    @property
    def location(self) -> str:
        """Path of the session's file, which may not exist yet."""
        return (self._pending or self._indexed.store).location

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

    # The current entry

    @property
    def leaf(self) -> str | None:
        """Id of the current entry of this session object, like git's HEAD; None before the first entry."""
        if isinstance(self._leaf, Current):
            self._leaf = self._stored_leaf()
        return self._leaf

    def branch(self, at: str | Current | None = CURRENT) -> Branch:
        """Return a writer at an entry (None: before the first entry). Writes nothing."""
        leaf = self.leaf if isinstance(at, Current) else at
        self.node_of(leaf)
        return Branch(self, leaf)

    def move(self, to: str | None) -> None:
        """Switch to another entry, durably; None means before the first one."""
        self.node_of(to)
        self._write_move(to)
        self._leaf = to

    def reset(self) -> None:
        """Switch to before the first entry, durably: the next message starts an empty conversation."""
        self.move(None)

    # Writing

    def append(self, entry: Mapping[str, Any] | str | None = None, content: Any = None, /, **fields: Any) -> Entry:
        """Append an entry after the current one and return it; `Branch.append` describes the arguments."""
        branch = Branch(self, self.leaf)
        written = branch.append(entry, content, **fields)
        self._leaf = branch.leaf
        return written

    def append_all(self, entries: Sequence[CanonicalEntry], at: str | Current | None = CURRENT) -> list[str]:
        """Append canonical entries, each as the child of the one before, in one write, and return their ids.

        When the write fails, none of them is in the file. The last one becomes the current entry.
        """
        with self._mutex:
            self._check_writable()
            parent = self.leaf if isinstance(at, Current) else at
            self.node_of(parent)
            if self._pending is not None:
                raise UsageError(f"{self.location}: the session has no messages yet; append one first")
            ids = self._write_all([self._externalize(entry) for entry in entries], parent)
            if ids:
                self._leaf = ids[-1]
            return ids

    def label(self, id: str, text: str | None) -> None:
        """Label an entry; None or an empty text removes the label."""
        self._node(id)
        fields: dict[str, Any] = {"targetId": id}
        if text:
            fields["label"] = text
        self._append_metadata("label", fields)

    def rename(self, name: str | None) -> None:
        """Name the session; None removes the name."""
        self._append_metadata("session_info", {"name": " ".join((name or "").split())})

    def set_config(self, **changes: Any) -> Config:
        """Change settings of the session (fields of `Config`) and return all of them."""
        try:
            config = msgspec.convert(
                msgspec.to_builtins(msgspec.structs.replace(self.config, **changes)), Config, strict=True
            )
        except (TypeError, msgspec.ValidationError) as error:
            raise InvalidEntryError(f"not a session setting: {error}") from None
        self._append_metadata("config", {"config": msgspec.to_builtins(config)})
        return config

    def _append_metadata(self, kind: str, fields: dict[str, Any]) -> None:
        """Append an entry about the session as a whole, such as a label, a name or settings."""
        # Its parent is the file's current entry, not ours: readers that use the last line as the leaf then still find
        # the same current entry.
        with self._mutex:
            leaf = self.leaf
            entry = self._write(kind, fields, CURRENT)
            moves = kind not in self.dialect.bookkeeping and not is_metadata_id(entry.id)
            if moves and entry.parent_id == leaf:
                self._leaf = entry.id  # the client, too, continues after this line

    def flush(self) -> None:
        """Sync the file: return when everything appended so far would survive a power cut."""
        with self._mutex:
            self._sync()

    def resolve(self) -> None:
        """Allow writes again after a failed write. The failed write is not repeated."""
        with self._mutex:
            self._journal.store.resolve()

    def close(self) -> None:
        """Sync and close the store. Reading or writing opens it again."""
        with self._mutex:
            self._sync()
            self._journal.store.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Entries of other writers

    def refresh(self) -> list[str]:
        """Read the entries that other writers appended, pass them to listeners, and return their ids."""
        with self._mutex:
            self._leaf = self.leaf  # evaluate before reading on: entries of other writers do not move our current entry
            self._unreported.extend(self._journal.refresh())
            arrived, self._unreported = self._unreported, []
            ids = [self._journal.tree.ids[node] for node in arrived]
            entries = self._journal.entries(arrived) if self._listeners else []
        # Outside the mutex, so that a slow listener does not block other threads; a copy, because a listener may remove
        # itself.
        for entry in entries:
            for listener in list(self._listeners):
                listener(entry)
        return ids

    def on_entry(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` from `refresh` with each entry of another writer. Returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Rewriting and copying

    def fork(
        self, at: str | Current | None = CURRENT, *, cwd: str | None = None, store: Store | None = None
    ) -> Session:
        """Copy the history of an entry (default: the current one; None: no history) into a new session.

        Lines are copied byte for byte except for the session id, and keep their ids. Labels of copied entries and
        settings are copied, approvals are not. The new session names its origin in its client's way.
        """
        with self._mutex:
            leaf = self.leaf if isinstance(at, Current) else at
            header = Header(
                id=new_session_id(),
                version=self.dialect.version,
                timestamp=timestamp(),
                cwd=self.cwd if cwd is None else cwd,
                forked_from=ForkOrigin(self.id, leaf),
                large_content=self._large_content_of_fork(),
            )
            target = store or self._repository.store_for(header, cwd is not None)
            target.create(forked_lines(self._journal, header, self.node_of(leaf), self.given_name))
        forked = Session(Journal(target, self.dialect, self._repository.blobs), self._repository, self._options)
        copy_settings(forked, self)
        return forked

    def migrate(self) -> str | None:
        """Rewrite the file in the current version and return the name of the backup; None if it is current."""
        with self._mutex:
            if self._journal.header is None or self.header.version > self.dialect.version:
                raise ReadOnlyError(f"{self.location}: cannot migrate: {self.read_only}")
            if self.header.version == self.dialect.version:
                return None
            self._journal.refresh()
            backup = self._journal.store.replace(migrated_lines(self._journal), self._journal.size)
            self._journal = Journal(self._journal.store, self.dialect, self._repository.blobs)
            self._journal.refresh()
            return backup

    # Internals

    def _write(self, kind: str, fields: dict[str, Any], parent: str | Current | None) -> Entry:
        """Append one entry. Every write to an existing session goes through here or `append_all`.

        `CURRENT` as the parent means the file's current entry after reading everything that other writers appended.
        """
        # Do as little as possible between `append` and the `write` call: after a sync the processor's caches are cold,
        # and every step costs several times as much as in a loop. Other work is done while the disk is writing.
        with self._mutex:
            journal = self._indexed if self._is_read else self._journal
            if journal.header is None or journal.header is not self._writable_header:
                self._check_writable()
            node_of = journal.tree.node_of
            if isinstance(parent, str) and parent not in node_of:
                raise NotFoundError(f"{self.location}: no entry {parent!r} to append to")
            if self._pending is not None:
                return self._write_pending(kind, fields, parent)
            if self._needs_encoder or kind in journal.dialect.encoder_types:
                return self._write_one_encoded(kind, fields, parent)
            store = journal.store
            size = store.lock()
            try:
                # Other writers may have appended since: read their lines first, under the lock, so that our id is
                # unused and `CURRENT` is the entry that is current now.
                if size != journal.size:
                    self._unreported.extend(journal.refresh())
                    node_of = journal.tree.node_of
                if isinstance(parent, Current):
                    parent = self._stored_leaf()
                id = new_entry_id(node_of)
                line, complete_line = self._line(kind, id, parent, fields)
                if journal.tail_is_open:
                    # A killed writer left an unterminated line: without this LF our line would be joined to it.
                    store.append(b"\n" + line)
                    journal.close_tail()
                else:
                    store.append(line)
                sync = self._syncs_after(kind, fields)
                if sync:
                    store.start_sync()
                journal.index_appended(len(line), kind, id, parent)
            finally:
                store.unlock()
            # Sync without holding the lock: other writers need not wait for the disk.
            self._unsynced = True
            entry = journal.dialect.parse(complete_line)
            if sync:
                store.sync()
                self._unsynced = False
            return entry

    def _syncs_after(self, kind: str, fields: dict[str, Any]) -> bool:
        durability = self._options.durability
        return durability == "append" or (durability == "turn" and ends_turn(kind, fields))

    def _write_move(self, to: str | None, *, of_branch: bool = False) -> None:
        fields: dict[str, Any] = {"targetId": to}
        with self._mutex:
            if of_branch and self._is_in_side_branch(to):
                fields[OF_BRANCH] = True
            self._write("leaf", fields, to)

    def _is_in_side_branch(self, id: str | None) -> bool:
        return self.dialect.one_line_per_entry and SideBranches(self._journal).start_of(self.node_of(id)) is not None

    def _check_writable(self) -> None:
        reason = self.read_only
        if reason is not None:
            raise ReadOnlyError(f"{self.location}: cannot write: {reason}")
        self._writable_header = self._journal.header

    def _write_one_encoded(self, kind: str, fields: dict[str, Any], parent: str | Current | None) -> Entry:
        """Write an entry with the dialect's encoder, which may produce several lines."""
        entry = CanonicalEntry(kind, fields, timestamp=timestamp())

        def encode(encoder: Encoder) -> _EncodedBatch:
            return _encode_all(encoder, [entry], self._stored_leaf() if isinstance(parent, Current) else parent)

        batch, known = self._write_encoded(encode, entry.timestamp)
        if self._syncs_after(kind, fields):
            self._sync()
        return self._read_back(batch.ids[-1] if batch.ids else None, entry, known)

    def _write_all(self, entries: Sequence[CanonicalEntry], parent: str | None) -> list[str]:
        def encode(encoder: Encoder) -> _EncodedBatch:
            batch = _encode_all(encoder, entries, parent)
            if batch.ids and self._is_in_side_branch(parent):
                # Messages in a side branch do not change the session's current entry; an explicit move does.
                batch.lines += encoder.encode(CanonicalEntry("leaf", {"targetId": batch.ids[-1]}), batch.ids[-1]).lines
            return batch

        batch, _ = self._write_encoded(encode, timestamp())
        if self._options.durability != "system":
            self._sync()
        return batch.ids

    def _write_encoded(self, encode: Callable[[Encoder], _EncodedBatch], now: str) -> tuple[_EncodedBatch, int]:
        """Write the batch that `encode` returns for the current file; also returns the number of entries before it."""
        store = self._journal.store
        for _ in range(_REWRITE_ATTEMPTS):
            size = store.lock()
            try:
                if size != self._journal.size:
                    self._unreported.extend(self._journal.refresh())
                journal = self._journal
                known = len(journal)
                batch = encode(journal.dialect.encoder(SessionMeta(self.id, now, self.cwd), journal))
                for offset, data in batch.overwrites:
                    store.overwrite(offset, data, read_bytes(store, offset, len(data)))
                if batch.rewrite is None and batch.lines:
                    data = b"".join(line + b"\n" for line in batch.lines)
                    store.append(b"\n" + data if journal.tail_is_open else data)
            finally:
                store.unlock()
            if batch.rewrite is None:
                break
            # `replace` takes the lock itself, after it has written the new file.
            try:
                store.replace((line + b"\n" for line in batch.rewrite), journal.size)
                break
            except ConflictError:
                continue  # another process wrote meanwhile: encode again for the current file
        else:
            raise ConflictError(
                f"{self.location}: other processes kept writing during the rewrite; nothing was written"
            )
        if batch.overwrites or batch.rewrite is not None:  # the index describes the old bytes
            self._journal = Journal(store, journal.dialect, self._repository.blobs)
        self._journal.refresh()
        self._unsynced = True
        return batch, known

    def _externalize(self, entry: CanonicalEntry) -> CanonicalEntry:
        """Move an entry's large content to blobs where the client supports them."""
        blobs = self._blobs_for(entry.kind)
        if blobs is None or not may_hold_large_content(render_json(entry.fields)):
            return entry
        return msgspec.structs.replace(entry, fields=externalize(entry.fields, blobs.put))

    def _large_content_of_fork(self) -> KeptLargeContent | None:
        """The large content setting for the header of a fork."""
        chosen = self._options.large_content
        return self.header.large_content if chosen is None or chosen == "truncate" else chosen

    def _blobs_for(self, kind: str) -> BlobStore | None:
        """Blob store for an entry's large content; None if the content stays in the line, for clients without blobs."""
        dialect, chosen = self._journal.dialect, self.large_content
        if chosen == "truncate" or not (dialect.uses_home_blobs or dialect.blob_folder(self.location)):
            return None
        if chosen == "inline" and kind != "config":
            return None
        # Large settings are always stored in blobs: no client reads them, and each change writes all of them again,
        # pasted images included.
        return self._repository.blobs

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

    def _line(self, kind: str, id: str, parent: str | None, fields: dict[str, Any]) -> tuple[bytes, bytes]:
        """Render an entry twice: the line to write, with large content in blobs, and the line with all content."""
        dialect, now = self._indexed.dialect, timestamp()
        line = complete_line = dialect.render_entry(kind, id, parent, now, fields) + b"\n"
        if may_hold_large_content(line):
            blobs = self._blobs_for(kind)
            if self.large_content == "truncate":
                line = complete_line = dialect.render_entry(kind, id, parent, now, truncate(fields)) + b"\n"
            elif blobs is not None:
                line = dialect.render_entry(kind, id, parent, now, externalize(fields, blobs.put)) + b"\n"
        return line, complete_line

    def _write_pending(self, kind: str, fields: dict[str, Any], parent: str | Current | None) -> Entry:
        """Append to a session that is still in memory; the first message also creates its file."""
        assert self._pending is not None
        if isinstance(parent, Current):
            parent = self._stored_leaf()
        journal, memory = self._journal, self._journal.store
        id = new_entry_id(journal.tree.node_of)
        line, complete_line = self._line(kind, id, parent, fields)
        if creates_file(self._options.appear, kind, fields):
            # One atomic creation with everything so far: the file never exists without its first message.
            self._pending.create([read_bytes(memory, 0, journal.size), line])
            journal.store, self._pending = self._pending, None
        else:
            memory.append(line)
        journal.index_appended(len(line), kind, id, parent)
        return journal.dialect.parse(complete_line)

    def _sync(self) -> None:
        if self._unsynced:
            self._journal.store.sync()
            self._unsynced = False


class _EncodedBatch(Struct):
    """Encoded entries: their ids, and the lines to append or, if needed, all lines of the new file."""

    ids: list[str]
    lines: list[bytes]
    overwrites: list[tuple[int, bytes]]
    rewrite: list[bytes] | None = None


def _encode_all(encoder: Encoder, entries: Sequence[CanonicalEntry], parent: str | None) -> _EncodedBatch:
    """Encode entries, each as the child of the one before."""
    batch = _EncodedBatch([], [], [])
    for entry in entries:
        encoded = encoder.encode(entry, parent)
        parent = encoded.id
        if parent is not None:
            batch.ids.append(str(parent))
        if encoded.overwrite is not None:
            batch.overwrites.append(encoded.overwrite)
        if encoded.rewrite is not None:
            batch.rewrite = [*encoded.rewrite]
        elif batch.rewrite is not None:
            batch.rewrite += encoded.lines
        batch.lines += encoded.lines
    return batch


def copy_settings(fork: Session, origin: Session) -> None:
    """Copy settings to a fork, except approvals: the user gave those to one session, not to its copies.

    In some formats the copied lines contain approvals, so these are reset.
    """
    settings, copied = origin.config, fork.config
    if settings == copied == Config():
        return
    mine = msgspec.structs.replace(settings, approval_mode="default", approval_tools=(), summary=copied.summary)
    if mine != copied:
        fork.set_config(**{name: getattr(mine, name) for name in Config.__struct_fields__})
        fork.flush()


def new_session(
    header: Header, dialect: Dialect, store: Store, repository: SessionRepository, options: Options
) -> Session:
    """Start a session. With `appear="now"` its file is created at once, else with a message (see `Appear`)."""
    first = dialect.render_header(header) + b"\n"
    if options.appear == "now":
        store.create([first])
        return Session(Journal(store, dialect, repository.blobs), repository, options)
    return Session(Journal(MemoryStore(first), dialect, repository.blobs), repository, options, pending=store)
