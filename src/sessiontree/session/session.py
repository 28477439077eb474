"""A session that can be written: `Session`, and `Branch`, a writer's position in its tree.

Several branches of one session can be written at once, from threads (which share the session) and from processes (each
opens it). Every append becomes a child of its branch's leaf. Opening and reading never write. `reader` has all reading,
`writer` the writing of lines; this module keeps the positions in the tree, and copies sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from sessiontree.core.context import Context
from sessiontree.core.entries import (
    Config,
    Entry,
    ForkOrigin,
    Header,
    KeptLargeContent,
)
from sessiontree.core.ids import new_session_id, timestamp
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.contract import Dialect, is_metadata_id
from sessiontree.dialects.side_branches import OF_BRANCH
from sessiontree.errors import (
    ExistsError,
    InvalidEntryError,
    UsageError,
    WriteError,
)
from sessiontree.paths import check_session_id, home_of_file
from sessiontree.session.blob_refs import copy_blobs
from sessiontree.session.client_repository import ClientRepository
from sessiontree.session.copy_lines import forked_lines
from sessiontree.session.entry_input import (
    ContentInput,
    EntryInput,
    Options,
    parse_entry_input,
    parse_timestamp,
)
from sessiontree.session.journal import Journal
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.writer import CallerFields, Writer
from sessiontree.stores.contract import SessionRepository, SessionStore
from sessiontree.stores.memory import MemoryStore
from sessiontree.stores.repositories import open_repository

MAX_NAME = 1_000
"""Characters of a name. Listings read only the ends of a file, where a longer one is not found."""
_APPROVALS = ("approval_mode", "approval_tools")


class Branch:
    """A writer's position in the tree: a leaf that follows this writer's appends."""

    def __init__(self, session: Session, leaf: str | None) -> None:
        self.session = session
        self.leaf = leaf

    def __repr__(self) -> str:
        return f"<Branch at {self.leaf} of {self.session!r}>"

    def append(self, entry: EntryInput | None = None, content: ContentInput | None = None, /, **fields: Any) -> Entry:
        """Append an entry to this branch and return it; the branch's leaf moves to it.

        An entry is a mapping with a `type`, or a message (a mapping with a `role`), or just the role and the content:
        `append("user", "hello")`, `append(role="user", content="hello")`, `append({"type": "custom", ...})`.
        """
        kind, body = parse_entry_input(entry, content, fields)
        session = self.session
        with session._mutex:
            written, self.leaf = session._append_at(self, self.leaf, kind, body)
        return written

    def append_entry(
        self,
        entry: Mapping[str, Any],
        *,
        id: str | None = None,
        parent: str | Current | None = CURRENT,
        timestamp: str | None = None,
    ) -> Entry:
        """Append an entry with an id, a parent and a time of the caller's choice; the leaf moves to it.

        If the file has an entry with this id, nothing is written and that entry is returned. So repeating a call whose
        outcome is unknown is safe.
        """
        session = self.session
        with session._mutex:
            leaf = self.leaf if isinstance(parent, Current) else parent
            written, self.leaf = session._append_entry_at(self, leaf, entry, id, timestamp)
        return written

    def move(self, to: str | None) -> None:
        """Move to another entry (None: before the first one) and record that in the file.

        In a side branch this moves only its writer, not the session's current entry.
        """
        self.session._write_move(self, to)
        self.leaf = to

    def _settle(self, leaf: str | None) -> None:
        self.leaf = leaf

    def context(self) -> Context:
        """The messages a model receives for this branch."""
        return self.session._context(self.leaf)

    def path(self) -> list[Entry]:
        """Entries from root to leaf."""
        return self.session._path(self.leaf)


class Session(Writer):
    """A session for reading and writing, from `sessiontree.open` or `sessiontree.create`."""

    def __init__(self, journal: Journal, options: Options, pending: SessionStore | None = None) -> None:
        super().__init__(journal, options, pending)
        self._listeners: list[Callable[[Entry], None]] = []
        self.granted = Config()
        """Approvals that this process has set. The file's own may come from another person, and grant nothing."""
        self._leaf: str | Current | None = self._stored_leaf() if self._is_read else CURRENT
        """This object's own leaf; CURRENT until it is first needed, because finding it requires reading the file."""

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
        self._write_move(None, to)
        self._leaf = to

    def reset(self) -> None:
        """Switch to before the first entry, durably: the next message starts an empty conversation."""
        self.move(None)

    # Writing

    def append(self, entry: EntryInput | None = None, content: ContentInput | None = None, /, **fields: Any) -> Entry:
        """Append an entry after the current one and return it; `Branch.append` describes the arguments."""
        kind, body = parse_entry_input(entry, content, fields)
        with self._mutex:
            written, self._leaf = self._append_at(None, self.leaf, kind, body)
        return written

    def append_entry(
        self,
        entry: Mapping[str, Any],
        *,
        id: str | None = None,
        parent: str | Current | None = CURRENT,
        timestamp: str | None = None,
    ) -> Entry:
        """Append an entry with an id, a parent and a time of the caller's choice (see `Branch.append_entry`)."""
        with self._mutex:
            leaf = self.leaf if isinstance(parent, Current) else parent
            written, self._leaf = self._append_entry_at(None, leaf, entry, id, timestamp)
        return written

    def append_following(
        self, entries: Sequence[CanonicalEntry], after: Callable[[], str | None] | None = None
    ) -> None:
        """Append canonical entries after the file's current entry, even if another writer has moved it, in one write.

        Cheaper than `follow` and `append` for writers that share a session: the file is read, and other writers are
        locked out, only if one of them got there first. `after` finds another entry in the tree to append to.
        """
        parent = CURRENT if after is None else after
        with self._mutex:
            earlier = self._failed
            self._leaf = CURRENT  # that of the file: found when it is needed
            try:
                if len(entries) == 1:
                    self._write_entry(entries[0].kind, entries[0].fields, parent, decode=False)
                else:
                    self._check_created()
                    self._write_all([self._externalize(entry) for entry in entries], parent)
            except WriteError:
                if earlier is None:
                    self._expect_after_failure(self._settle, "message")
                raise

    def append_lines(self, lines: Iterable[bytes]) -> list[str]:
        """Append complete lines of the session's format, unchanged and in one write; returns the ids that were new.

        Each id is written once: a line whose id is in the file is skipped. So repeating a call whose outcome is unknown
        is safe. Lines without an id are written unless all ids of the call are known. The current entry becomes the
        file's.
        """
        with self._mutex:
            ids = self._write_lines(line.removesuffix(b"\n") for line in lines)
            self._leaf = self._stored_leaf()
            return [*ids]

    def append_all(self, entries: Sequence[CanonicalEntry], at: str | Current | None = CURRENT) -> list[str]:
        """Append canonical entries, each as the child of the one before, in one write, and return their ids.

        When the write fails, none of them is in the file. The last one becomes the current entry.
        """
        with self._mutex:
            self._check_created()
            parent = self.leaf if isinstance(at, Current) else at
            self.node_of(parent)
            earlier = self._failed
            try:
                ids = self._write_all([self._externalize(entry) for entry in entries], parent)
            except WriteError:
                if earlier is None:
                    self._expect_after_failure(self._settle, "message")
                raise
            if ids:
                self._leaf = ids[-1]
            return [*ids]

    def label(self, id: str, text: str | None) -> None:
        """Label an entry; None or an empty text removes the label."""
        self._node(id)
        fields: dict[str, Any] = {"targetId": id}
        if text:
            fields["label"] = text
        self._append_metadata("label", fields)

    def rename(self, name: str | None) -> None:
        """Name the session; None removes the name."""
        shown = " ".join((name or "").split())
        if len(shown) > MAX_NAME:
            raise UsageError(f"the name has {len(shown):,} characters; at most {MAX_NAME:,} are allowed")
        self._append_metadata("session_info", {"name": shown})

    def set_config(self, **changes: Any) -> Config:
        """Change settings of the session (fields of `Config`) and return all of them."""
        try:
            config = msgspec.convert(
                msgspec.to_builtins(msgspec.structs.replace(self.config, **changes)), Config, strict=True
            )
        except (TypeError, msgspec.ValidationError) as error:
            raise InvalidEntryError(f"not a session setting: {error}") from None
        self._append_metadata("config", {"config": msgspec.to_builtins(config)})
        granted = {name: getattr(config, name) for name in _APPROVALS if name in changes}
        self.granted = msgspec.structs.replace(self.granted, **granted)
        return config

    def _append_metadata(self, kind: str, fields: dict[str, Any]) -> None:
        """Append an entry about the session as a whole, such as a label, a name or settings."""
        # Its parent is the file's current entry, not ours: readers that use the last line as the leaf then still find
        # the same current entry.
        with self._mutex:
            leaf = self.leaf
            entry = self._write(kind, fields, CURRENT)
            moves = kind not in self.dialect.traits.bookkeeping and not is_metadata_id(entry.id)
            if moves and entry.parent_id == leaf:
                self._leaf = entry.id  # the client also continues after this line

    def close(self) -> None:
        super().close()
        self._leaf = CURRENT  # the next use asks the index, which refuses

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Entries of other writers

    def refresh(self) -> list[str]:
        """Read the entries that other writers appended, pass them to listeners, and return their ids."""
        with self._mutex:
            self._leaf = self.leaf  # evaluate before reading on: other writers' entries do not move our current entry
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

    def follow(self) -> str | None:
        """Refresh, move this object to the file's current entry, and return its id."""
        self.refresh()
        with self._mutex:
            self._leaf = self._stored_leaf()
            return self._leaf

    def on_entry(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` from `refresh` with each entry of another writer. Returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Rewriting and copying

    def fork(
        self,
        at: str | Current | None = CURRENT,
        *,
        cwd: str | None = None,
        store: SessionStore | None = None,
        id: str | None = None,
    ) -> Session:
        """Copy the history of an entry (default: the current one; None: no history) into a new session.

        Lines are copied byte for byte except for the session id, and keep their ids. Labels of copied entries and
        settings are copied, approvals are not. The new session names its origin in its client's way.
        """
        with self._mutex:
            leaf = self.leaf if isinstance(at, Current) else at
            header = Header(
                id=new_session_id() if id is None else check_session_id(id),
                version=self.dialect.traits.version,
                timestamp=timestamp(),
                cwd=self.cwd if cwd is None else cwd,
                forked_from=ForkOrigin(self.id, leaf),
                large_content=self._large_content_of_fork(),
            )
            near = self.ref if cwd is None else None
            target = store or self.repository.new(header.id, timestamp=header.timestamp, cwd=header.cwd, near=near)
            repository = self._repository_of_fork(target)
            lines = forked_lines(self._journal, header, self.node_of(leaf), self.given_name)
            if repository is not self.repository:
                lines = copy_blobs(lines, self.repository.blobs, repository.blobs)
            target.create(lines)
        forked = Session(Journal(target, self.dialect, lambda: repository), self._options)
        copy_settings(forked, self)
        return forked

    def _repository_of_fork(self, target: SessionStore) -> SessionRepository:
        """The repository for a fork: this one, unless the client looks for the new file's blobs elsewhere."""
        repository = self.repository
        if isinstance(repository, ClientRepository):
            if self.dialect.blob_folder(target.location) == self.dialect.blob_folder(self.location):
                return repository
            return repository.at(target.location)
        home = home_of_file(target.location) if target.ref.is_file else None
        return repository if home is None or home == repository.home else open_repository(home)

    def reopen(self) -> Session:
        """Reopen the stored bytes after they were rewritten; this object must no longer be used."""
        self.close()
        opened = Session(Journal(self._indexed.store, self.dialect, self._indexed.find_repository), self._options)
        opened.notify = self.notify
        return opened

    # Internals

    def _append_at(
        self,
        branch: Branch | None,
        leaf: str | None,
        kind: str,
        fields: dict[str, Any],
        given: CallerFields | None = None,
    ) -> tuple[Entry, str | None]:
        """Append an entry after a leaf; returns it and the new leaf. `branch` is the writer; None for the session."""
        if kind == "context_edit":
            if not self.dialect.client.applies_context_edits:
                name = self.dialect.client.name
                raise UsageError(f"{self.location}: {name} does not apply edits of the context; compact it instead")
            self.entry(str(fields.get("targetId")))  # an edit of an unknown entry would change nothing
        earlier = self._failed
        try:
            written = self._write(kind, fields, leaf, given)
        except WriteError:
            if earlier is None:
                self._expect_after_failure((branch or self)._settle, kind)
            raise
        moves = kind not in self._indexed.dialect.traits.bookkeeping and not is_metadata_id(written.id)
        return written, written.id if moves else leaf

    def _append_entry_at(
        self, branch: Branch | None, leaf: str | None, entry: Mapping[str, Any], id: str | None, timestamp: str | None
    ) -> tuple[Entry, str | None]:
        if id is not None and (self._needs_encoder or not id or is_metadata_id(id) or not id.isprintable()):
            raise InvalidEntryError(f"{id[:80]!r} cannot be the id of an entry of {self.dialect.name}")
        kind, body = parse_entry_input(entry, None, {})
        try:
            return self._append_at(branch, leaf, kind, body, CallerFields(id, parse_timestamp(timestamp)))
        except ExistsError:
            assert id is not None
            known = self.entry(id)
            return known, leaf if kind in self.dialect.traits.bookkeeping else id

    def _settle(self, leaf: str | None) -> None:
        self._leaf = leaf

    def _write_move(self, branch: Branch | None, to: str | None) -> None:
        fields: dict[str, Any] = {"targetId": to}
        with self._mutex:
            if branch is not None and self._is_in_side_branch(to):
                fields[OF_BRANCH] = True
            earlier = self._failed
            try:
                self._write("leaf", fields, to)
            except WriteError:
                if earlier is None:
                    self._expect_after_failure((branch or self)._settle, "leaf", to)
                raise

    def __repr__(self) -> str:
        name = f" {self.given_name!r}" if not self._is_closed and self.given_name else ""
        count = 0 if self._is_closed or self.is_pending else len(self)
        entries = "1 entry" if count == 1 else f"{count:,} entries"
        state = "closed" if self._is_closed else "new" if self.is_pending else entries
        return f"<Session {self.id}{name} ({self.dialect.name}, {state}) at {self.location}>"

    def _large_content_of_fork(self) -> KeptLargeContent | None:
        """The large content setting for the header of a fork."""
        chosen = self._options.large_content
        return self.header.large_content if chosen is None or chosen == "truncate" else chosen


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
    header: Header, dialect: Dialect, store: SessionStore, repository: SessionRepository, options: Options
) -> Session:
    """Start a session. With `appear="now"` its file is created at once, else with a message (see `Appear`)."""
    first = dialect.render_header(header) + b"\n"
    if options.appear == "now":
        store.create([first])
        return Session(Journal(store, dialect, lambda: repository), options)
    return Session(Journal(MemoryStore(first), dialect, lambda: repository), options, pending=store)
