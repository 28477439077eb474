"""One session in hand: where we stand in it, and writing to it. Looking at it is `reader`'s part.

`Session` is what a developer holds; `Branch` is a writer's position in its tree. Several branches of one session can be
written at once, from threads (share the session) and from processes (each opens it): every append is parented to the
branch it came through, and before a write the tail that others wrote is read. Opening and reading never write.
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
from sessiontree.dialects.canonical import CanonicalEntry, Encoded, Encoder, SessionMeta
from sessiontree.dialects.contract import Dialect, is_metadata_id, metadata_id
from sessiontree.dialects.side_branches import OF_BRANCH, Sides
from sessiontree.errors import ConflictError, InvalidEntryError, NotFoundError, ReadOnlyError, UsageError
from sessiontree.session.blob_refs import LargeContent, externalize, may_hold_large_content, truncate
from sessiontree.session.copy_lines import forked_lines, migrated_lines
from sessiontree.session.entry_input import Options, creates_file, ends_turn, parse_entry_input
from sessiontree.session.journal import Journal
from sessiontree.session.reader import CURRENT, Current, Reader
from sessiontree.stores.contract import BlobStore, Store, read_bytes
from sessiontree.stores.memory import MemoryStore

_REWRITES = 8
"""How often a rewrite is tried anew when others write meanwhile."""


class SessionRepository(Struct, frozen=True):
    """What a session needs from the world around it: a place for its forks, and for large content."""

    store_for: Callable[[Header, bool], Store]
    """Where a fork goes: given its header, and whether it shall work in another folder than its origin."""
    blobs: BlobStore | None = None


class Branch:
    """A writer's position in the tree: a leaf that moves as this writer appends."""

    def __init__(self, session: Session, leaf: str | None) -> None:
        self.session = session
        self.leaf = leaf

    def append(self, what: Mapping[str, Any] | str | None = None, content: Any = None, /, **fields: Any) -> Entry:
        """Append an entry behind this branch's leaf; the leaf moves to it. Gives the entry back.

        An entry is a mapping with a `type`, or a message (a mapping with a `role`), or just the role and the content:
        `append("user", "hello")`, `append(role="user", content="hello")`, `append({"type": "custom", ...})`.
        """
        session = self.session
        kind, body = parse_entry_input(what, content, fields)
        moves = kind not in session._indexed.dialect.bookkeeping
        entry = session._write(kind, body, self.leaf)
        if moves and not is_metadata_id(entry.id):
            self.leaf = entry.id
        return entry

    def move(self, to: str | None) -> None:
        """Stand at another entry, or with None before the first one, and say so in the file.

        In a side branch that concerns nobody but who writes it: the session stays where it stands, unless it is there.
        """
        self.session._write_move(to, of_branch=True)
        self.leaf = to

    def context(self) -> Context:
        """What a model is sent for this branch."""
        return self.session._context(self.leaf)

    def path(self) -> list[Entry]:
        """The entries from root to leaf."""
        return self.session._path(self.leaf)


class Session(Reader):
    """One session. Use `sessiontree.open` or `sessiontree.create` to get one."""

    def __init__(
        self, journal: Journal, repository: SessionRepository, options: Options, pending: Store | None = None
    ) -> None:
        super().__init__(journal, options.read_options)
        self._repository = repository
        self._options = options
        self._pending = pending
        """The store that does not exist yet: until it appears, the journal is in memory."""
        self._listeners: list[Callable[[Entry], None]] = []
        self._arrived: list[int] = []
        self._unsynced = False
        self._writable_header: Header | None = None
        self._needs_encoder = not journal.dialect.one_line_per_entry
        self._leaf: str | Current | None = self._stored_leaf() if self._is_read else CURRENT
        """Where this object stands; HERE as long as nobody asked, since it takes reading the file."""

    @property
    def location(self) -> str:
        """Where the session is, or where it will appear."""
        return (self._pending or self._indexed.store).location

    @property
    def is_pending(self) -> bool:
        """Whether the session still waits for the message that makes its file appear."""
        return self._pending is not None

    @property
    def large_content(self) -> LargeContent:
        """Where large content goes that is appended: as this writer says, else as the file asks, else to blobs."""
        return self._options.large_content or self.header.large_content or "blobs"

    @large_content.setter
    def large_content(self, chosen: LargeContent) -> None:
        self._options = msgspec.structs.replace(self._options, large_content=chosen)

    # Where we stand

    @property
    def leaf(self) -> str | None:
        """Where this session object stands: the id of an entry, or None before the first one."""
        if isinstance(self._leaf, Current):
            self._leaf = self._stored_leaf()
        return self._leaf

    def branch(self, at: str | Current | None = CURRENT) -> Branch:
        """Another position to write from: at an entry, or with None before the first one. Writes nothing."""
        leaf = self.leaf if isinstance(at, Current) else at
        self.node_of(leaf)
        return Branch(self, leaf)

    def move(self, to: str | None) -> None:
        """Stand at another entry, durably; None means before the first one."""
        self.node_of(to)
        self._write_move(to)
        self._leaf = to

    def reset(self) -> None:
        """Stand before the first entry, durably: the next message starts from nothing."""
        self.move(None)

    # Writing

    def append(self, what: Mapping[str, Any] | str | None = None, content: Any = None, /, **fields: Any) -> Entry:
        """Append an entry where the session stands; see `Branch.append` for the ways to say it."""
        branch = Branch(self, self.leaf)
        entry = branch.append(what, content, **fields)
        self._leaf = branch.leaf
        return entry

    def append_all(self, entries: Sequence[CanonicalEntry], at: str | Current | None = CURRENT) -> list[str]:
        """Append entries in shared words, each behind the one before, and stand behind the last. Their ids.

        They go into the file in one write: all of them, or when it fails, none.
        """
        with self._mutex:
            self._check_writable()
            parent = self.leaf if isinstance(at, Current) else at
            self.node_of(parent)
            if self._pending is not None:
                raise UsageError(f"{self.location}: nothing was said in it yet")
            ids = self._write_all([self._fit_for_file(entry) for entry in entries], parent)
            if ids:
                self._leaf = ids[-1]
            return ids

    def label(self, id: str, text: str | None) -> None:
        """Name an entry; None or an empty text takes the name away."""
        self._node(id)
        fields: dict[str, Any] = {"targetId": id}
        if text:
            fields["label"] = text
        self._say_of_session("label", fields)

    def rename(self, name: str | None) -> None:
        """Name the session; None takes the name away."""
        self._say_of_session("session_info", {"name": " ".join((name or "").split())})

    def set_config(self, **changes: Any) -> Config:
        """Change settings of the session, by the names of `Config`; gives the settings as they are now."""
        try:
            config = msgspec.convert(
                msgspec.to_builtins(msgspec.structs.replace(self.config, **changes)), Config, strict=True
            )
        except (TypeError, msgspec.ValidationError) as error:
            raise InvalidEntryError(f"not a setting of a session: {error}") from None
        self._say_of_session("config", {"config": msgspec.to_builtins(config)})
        return config

    def _say_of_session(self, kind: str, fields: dict[str, Any]) -> None:
        """Say something of the session as a whole: it hangs where the file stands, so that it moves nobody."""
        with self._mutex:
            stood = self.leaf
            entry = self._write(kind, fields, CURRENT)
            moves = kind not in self.dialect.bookkeeping and not is_metadata_id(entry.id)
            if moves and entry.parent_id == stood:
                self._leaf = entry.id  # as the owner sees it, too

    def flush(self) -> None:
        """Return when everything appended so far would survive a power cut."""
        with self._mutex:
            self._sync()

    def resolve(self) -> None:
        """After a failed write: go on, if the store can be written again. What was not written stays unwritten."""
        with self._mutex:
            self._journal.store.resolve()

    def close(self) -> None:
        """Sync and let go of the store. The session can be read on; the next write opens it again."""
        with self._mutex:
            self._sync()
            self._journal.store.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Others

    def refresh(self) -> list[str]:
        """Read what others wrote since the last look; the ids of the new entries. Listeners hear of each."""
        with self._mutex:
            self._leaf = self.leaf  # what others write does not move where we stand
            self._arrived.extend(self._journal.refresh())
            arrived, self._arrived = self._arrived, []
            ids = [self._journal.tree.ids[node] for node in arrived]
            entries = self._journal.entries(arrived) if self._listeners else []
        for entry in entries:
            for listener in list(self._listeners):
                listener(entry)
        return ids

    def on_entry(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` from `refresh` with each entry that others wrote. Gives a function that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Rewriting and copying

    def fork(
        self, at: str | Current | None = CURRENT, *, cwd: str | None = None, store: Store | None = None
    ) -> Session:
        """A new session with the history of an entry; by default, of where the session stands. Of None, an empty one.

        Lines are copied byte for byte but for what names the session they belong to, ids stay, labels of copied
        entries and settings come along (approvals do not), and the new session says where it came from in its owner's
        way.
        """
        with self._mutex:
            leaf = self.leaf if isinstance(at, Current) else at
            header = Header(
                id=new_session_id(),
                version=self.dialect.version,
                timestamp=timestamp(),
                cwd=self.cwd if cwd is None else cwd,
                forked_from=ForkOrigin(self.id, leaf),
                large_content=self._asked_of_writers(),
            )
            target = store or self._repository.store_for(header, cwd is not None)
            target.create(forked_lines(self._journal, header, self.node_of(leaf), self.given_name))
        forked = Session(Journal(target, self.dialect, self._repository.blobs), self._repository, self._options)
        copy_settings(forked, self)
        return forked

    def migrate(self) -> str | None:
        """Rewrite an old version as the current one, with a backup whose name is given back; None if it is current."""
        with self._mutex:
            if self._journal.header is None or self.header.version > self.dialect.version:
                raise ReadOnlyError(f"{self.location}: cannot be migrated: {self.read_only}")
            if self.header.version == self.dialect.version:
                return None
            self._journal.refresh()
            backup = self._journal.store.replace(migrated_lines(self._journal), self._journal.size)
            self._journal = Journal(self._journal.store, self.dialect, self._repository.blobs)
            self._journal.refresh()
            return backup

    # Inside

    def _write(self, kind: str, fields: dict[str, Any], parent: str | Current | None) -> Entry:
        """Append one entry. Everything that writes to an existing session comes through here.

        `HERE` for the parent means where the file stands, when everything that others wrote was read.

        The way from `append` to the write is kept short: after a sync the processor's caches are cold, and a step costs
        several times what it costs in a loop. What can wait is done while the disk already writes.
        """
        with self._mutex:
            journal = self._indexed if self._is_read else self._journal
            if journal.header is None or journal.header is not self._writable_header:
                self._check_writable()
            taken = journal.tree.node_of
            if isinstance(parent, str) and parent not in taken:
                raise NotFoundError(f"{self.location}: there is no entry {parent!r} to append to")
            if self._pending is not None:
                return self._write_pending(kind, fields, parent)
            if self._needs_encoder or kind in journal.dialect.encoder_types:
                return self._write_by_encoder(kind, fields, parent)
            store = journal.store
            size = store.lock()
            try:
                if size != journal.size:
                    self._arrived.extend(journal.refresh())
                    taken = journal.tree.node_of
                if isinstance(parent, Current):
                    parent = self._stored_leaf()
                id = new_entry_id(taken)
                line, whole = self._line(kind, id, parent, fields)
                if journal.tail_is_open:
                    store.append(b"\n" + line)
                    journal.close_tail()
                else:
                    store.append(line)
                durability = self._options.durability
                sync = durability == "append" or (durability == "turn" and ends_turn(kind, fields))
                if sync:
                    store.start_sync()
                journal.adopt(len(line), kind, id, parent)
            finally:
                store.unlock()
            self._unsynced = True
            entry = journal.dialect.parse(whole)
            if sync:
                store.sync()
                self._unsynced = False
            return entry

    def _write_move(self, to: str | None, *, of_branch: bool = False) -> None:
        fields: dict[str, Any] = {"targetId": to}
        with self._mutex:
            if of_branch and self._is_in_side_branch(to):
                fields[OF_BRANCH] = True
            self._write("leaf", fields, to)

    def _is_in_side_branch(self, id: str | None) -> bool:
        return self.dialect.one_line_per_entry and Sides(self._journal).start_of(self.node_of(id)) is not None

    def _check_writable(self) -> None:
        reason = self.read_only
        if reason is not None:
            raise ReadOnlyError(f"{self.location}: cannot be written: {reason}")
        self._writable_header = self._journal.header

    def _write_by_encoder(self, kind: str, fields: dict[str, Any], wanted: str | Current | None) -> Entry:
        """Write an entry in the own way of a format that is not the native shape: it may take several lines."""
        store = self._journal.store
        entry = CanonicalEntry(kind, fields, timestamp=timestamp())
        for _ in range(_REWRITES):
            size = store.lock()
            try:
                if size != self._journal.size:
                    self._arrived.extend(self._journal.refresh())
                known, journal = len(self._journal), self._journal
                parent = self._stored_leaf() if isinstance(wanted, Current) else wanted
                encoder = journal.dialect.encoder(SessionMeta(self.id, entry.timestamp, self.cwd), journal)
                written = encoder.encode(entry, parent)
                if written.overwrite is not None:
                    at, data = written.overwrite
                    store.overwrite(at, data, read_bytes(store, at, len(data)))
                if written.lines:
                    data = b"".join(line + b"\n" for line in written.lines)
                    store.append(b"\n" + data if journal.tail_is_open else data)
            finally:
                store.unlock()
            if written.rewrite is None:
                break
            try:
                store.replace((line + b"\n" for line in written.rewrite), journal.size)
                break
            except ConflictError:
                continue  # someone wrote meanwhile: what shall be rewritten is looked at again
        else:
            raise ConflictError(f"{self.location}: others kept writing while it was being rewritten; it is as it was")
        if written.overwrite is not None or written.rewrite is not None:
            self._journal = Journal(store, journal.dialect, self._repository.blobs)
        self._journal.refresh()
        self._unsynced = True
        durability = self._options.durability
        if durability == "append" or (durability == "turn" and ends_turn(kind, fields)):
            self._sync()
        return self._entry_of(written, entry, known)

    def _write_all(self, entries: Sequence[CanonicalEntry], parent: str | None) -> list[str]:
        store = self._journal.store
        for _ in range(_REWRITES):
            size = store.lock()
            try:
                if size != self._journal.size:
                    self._arrived.extend(self._journal.refresh())
                journal = self._journal
                encoder = journal.dialect.encoder(SessionMeta(self.id, timestamp(), self.cwd), journal)
                ids, lines, rewrite = _encode_all(encoder, entries, parent)
                if ids and self._is_in_side_branch(parent):  # what is said in one moves nobody, and a move does
                    lines += encoder.encode(CanonicalEntry("leaf", {"targetId": ids[-1]}), ids[-1]).lines
                if rewrite is None and lines:
                    data = b"".join(line + b"\n" for line in lines)
                    store.append(b"\n" + data if journal.tail_is_open else data)
            finally:
                store.unlock()
            if rewrite is None:
                break
            try:
                store.replace((line + b"\n" for line in rewrite), journal.size)
                self._journal = Journal(store, journal.dialect, self._repository.blobs)
                break
            except ConflictError:
                continue  # someone wrote meanwhile: what shall be rewritten is looked at again
        else:
            raise ConflictError(f"{self.location}: others kept writing while it was being rewritten; it is as it was")
        self._journal.refresh()
        self._unsynced = True
        if self._options.durability != "system":
            self._sync()
        return ids

    def _fit_for_file(self, entry: CanonicalEntry) -> CanonicalEntry:
        """An item with large content put where its owner looks for it."""
        blobs = self._blobs_for(entry.kind)
        if blobs is None or not may_hold_large_content(render_json(entry.fields)):
            return entry
        return msgspec.structs.replace(entry, fields=externalize(entry.fields, blobs.put))

    def _asked_of_writers(self) -> KeptLargeContent | None:
        """What a copy of this session asks of those who write to it."""
        chosen = self._options.large_content
        return self.header.large_content if chosen is None or chosen == "truncate" else chosen

    def _blobs_for(self, kind: str) -> BlobStore | None:
        """Where large content of an entry goes; None when it stays on its line, as a program without blobs needs it."""
        dialect, chosen = self._journal.dialect, self.large_content
        if chosen == "truncate" or not (dialect.uses_home_blobs or dialect.blob_folder(self.location)):
            return None
        if chosen == "inline" and kind != "config":
            return None
        # Nobody else reads settings, and each change says all of them anew: pasted images would be in the file often.
        return self._repository.blobs

    def _entry_of(self, written: Encoded, entry: CanonicalEntry, known: int) -> Entry:
        """What a encoder wrote, as it reads: the entry itself, or the line beside the tree that says it."""
        journal = self._journal
        node = journal.tree.node_of.get(written.id) if written.id is not None else None
        if node is None or node < known:
            new = [number for number in range(known, len(journal)) if journal.types[number] == entry.kind]
            node = new[-1] if new else None
        if node is not None:
            return journal.entries([node])[0]
        said = {**entry.fields, "type": entry.kind, "id": metadata_id(len(journal)), "timestamp": entry.timestamp}
        return parse_entry(said)

    def _line(self, kind: str, id: str, parent: str | None, fields: dict[str, Any]) -> tuple[bytes, bytes]:
        """An entry as a line with its LF, large content put elsewhere, and as one that has all of its content."""
        dialect, now = self._indexed.dialect, timestamp()
        line = whole = dialect.render_entry(kind, id, parent, now, fields) + b"\n"
        if may_hold_large_content(line):
            blobs = self._blobs_for(kind)
            if self.large_content == "truncate":
                line = whole = dialect.render_entry(kind, id, parent, now, truncate(fields)) + b"\n"
            elif blobs is not None:
                line = dialect.render_entry(kind, id, parent, now, externalize(fields, blobs.put)) + b"\n"
        return line, whole

    def _write_pending(self, kind: str, fields: dict[str, Any], parent: str | Current | None) -> Entry:
        """Append to a session that is still in memory, and let its file appear when the time has come."""
        assert self._pending is not None
        if isinstance(parent, Current):
            parent = self._stored_leaf()
        journal, memory = self._journal, self._journal.store
        id = new_entry_id(journal.tree.node_of)
        line, whole = self._line(kind, id, parent, fields)
        if creates_file(self._options.appear, kind, fields):
            self._pending.create([read_bytes(memory, 0, journal.size), line])
            journal.store, self._pending = self._pending, None
        else:
            memory.append(line)
        journal.adopt(len(line), kind, id, parent)
        return journal.dialect.parse(whole)

    def _sync(self) -> None:
        if self._unsynced:
            self._journal.store.sync()
            self._unsynced = False


def _encode_all(
    encoder: Encoder, entries: Sequence[CanonicalEntry], parent: str | None
) -> tuple[list[str], list[bytes], list[bytes] | None]:
    """Items as a encoder writes them one behind the other: their ids, the lines, or all lines of the file anew."""
    ids: list[str] = []
    lines: list[bytes] = []
    rewrite: list[bytes] | None = None
    for entry in entries:
        written = encoder.encode(entry, parent)
        parent = written.id
        if parent is not None:
            ids.append(str(parent))
        if written.rewrite is not None:
            rewrite = [*written.rewrite]
        elif rewrite is not None:
            rewrite += written.lines
        lines += written.lines
    return ids, lines, rewrite


def copy_settings(fork: Session, origin: Session) -> None:
    """Let a fork have the settings of its origin, but for approvals: those were given to that session, not to copies.

    Some formats have copied them already, so they are taken back.
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
    """A session that does not exist yet. With `appear="now"` its file is made at once, else it waits in memory."""
    first = dialect.render_header(header) + b"\n"
    if options.appear == "now":
        store.create([first])
        return Session(Journal(store, dialect, repository.blobs), repository, options)
    return Session(Journal(MemoryStore(first), dialect, repository.blobs), repository, options, pending=store)
