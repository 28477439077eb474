"""Looking at a session: what it is, its tree, its paths and contexts, what is odd in it. Nothing here writes.

`Reader` is the half of a session that only reads. It stands where the file says the session stands; `Session` adds a
position of its own and writing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from sessiontree.core.context import Context, path_messages
from sessiontree.core.entries import Config, Entry, Fragment, Header, Label, Problem
from sessiontree.core.lazy_messages import LazyMessages
from sessiontree.core.messages import Message, ToolCall, ToolResult, tool_calls
from sessiontree.core.usage import UsageTotals, total_usage
from sessiontree.dialects.contract import AS_CLIENT, Dialect, ReadOptions, RelatedFile, is_metadata_id, path_of
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.session.journal import Journal
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.slice import SliceStore

_LARGE = 16 << 20
"""Bytes from which on it pays to look first whether parts of a file will do."""


class _Told(Struct, frozen=True):
    """What parts of a file tell of it."""

    id: str
    leaf: str
    context: Context


class Current:
    """Stands for "where the session stands" in arguments where None already means "before the first entry"."""


CURRENT = Current()


class Reader:
    """One session to look at. Threads may share it."""

    def __init__(self, journal: Journal, read_options: ReadOptions) -> None:
        self._read_options = read_options
        self._mutex = threading.RLock()
        self._indexed = journal
        self._is_read = False
        self._has_tried_parts = False
        self._told: _Told | None = None
        if not self._may_wait(journal):
            self._read()

    @property
    def _journal(self) -> Journal:
        if not self._is_read:
            self._read()
        return self._indexed

    @_journal.setter
    def _journal(self, journal: Journal) -> None:
        self._indexed = journal

    def _read(self) -> None:
        with self._mutex:
            if not self._is_read:
                self._indexed.refresh()
                self._is_read = True

    def _may_wait(self, journal: Journal) -> bool:
        """Whether reading the lines can wait until something is asked for that needs all of them."""
        is_told = journal.dialect.supports_partial_read and self._read_options == AS_CLIENT
        return is_told and journal.store.exists() and journal.store.size() >= _LARGE

    # What it is

    @property
    def header(self) -> Header:
        return self._journal.header or Header(id="")

    @property
    def id(self) -> str:
        told = self._told_by_parts()
        return self.header.id if told is None else told.id

    @property
    def cwd(self) -> str:
        return self.header.cwd

    @property
    def dialect(self) -> Dialect:
        return self._indexed.dialect

    @property
    def journal(self) -> Journal:
        """The lines behind the session, for those who look at the file itself."""
        return self._journal

    @property
    def read_options(self) -> ReadOptions:
        """How the session is read, where there is a choice."""
        return self._read_options

    @property
    def problems(self) -> list[Problem]:
        """Everything odd met so far, in file order."""
        with self._mutex:
            return self._journal.problems()

    @property
    def known_problems(self) -> list[Problem]:
        """What was odd in what had to be read so far; unlike `problems`, this never reads more."""
        return self.problems if self._is_read else []

    @property
    def fragments(self) -> list[Fragment]:
        """Bytes that belong to no entry, kept."""
        return list(self._journal.fragments)

    @property
    def shadowed(self) -> frozenset[int]:
        """The numbers (in file order) of entries whose id a later entry has too."""
        tree = self._journal.tree
        return frozenset(problem.node for problem in tree.problems() if problem.kind == "duplicate-id")

    def start_of(self, number: int) -> int:
        """Where the line of an entry begins, by the entry's number in file order."""
        return self._journal.span(number).start

    @property
    def read_only(self) -> str | None:
        """Why this session cannot be written, or None when it can."""
        if not self.dialect.is_writable:
            return f"sessions of {self.dialect.name} are only read"
        if self._journal.header is None:
            return "it has no header"
        newest, version = self.dialect.version, self.header.version
        if version > newest:
            return (
                f"it has version {version}, and this program writes version {newest}; a newer sessiontree may write it"
            )
        if version < newest:
            return f"it has version {version}; `sessiontree migrate` brings it to version {newest} and keeps a backup"
        return None

    @property
    def location(self) -> str:
        """Where the session is."""
        return self._indexed.location

    @property
    def leaf(self) -> str | None:
        """Where the session stands: the id of an entry, or None before the first one."""
        return self._stored_leaf()

    # The tree

    def __len__(self) -> int:
        return len(self._journal)

    def __contains__(self, id: str) -> bool:
        return id in self._journal.tree.node_of

    def __iter__(self) -> Iterator[Entry]:
        """Every entry in file order, whatever its branch."""
        with self._mutex:
            nodes = range(len(self._journal))
        for start in range(0, len(nodes), 256):
            with self._mutex:
                entries = self._journal.entries(nodes[start : start + 256])
            yield from entries

    @property
    def ids(self) -> list[str]:
        """The ids of all entries in file order."""
        return list(self._journal.tree.ids)

    def type_of(self, id: str) -> str:
        """An entry's type, without reading its body."""
        return self._journal.types[self._node(id)]

    def entry(self, id: str) -> Entry:
        with self._mutex:
            return self._journal.entries([self._node(id)])[0]

    def entries(self, ids: list[str]) -> list[Entry]:
        """Several entries at once, in the order asked for."""
        with self._mutex:
            return self._journal.entries(self._nodes(ids))

    def count(self, kind: str) -> int:
        """How many entries of a type there are, over all branches."""
        return self._journal.types.count(kind)

    def find_entry(self, wanted: str) -> str:
        """The id of the entry meant by an id, a label, or an unambiguous beginning of an id."""
        if wanted in self:
            return wanted
        labelled = [id for id, label in self.labels.items() if label == wanted]
        found = labelled or [id for id in self._journal.tree.ids if len(wanted) >= 2 and id.startswith(wanted)]
        if not found:
            raise NotFoundError(f"{self.location}: there is no entry {wanted!r}")
        if len(found) > 1:
            shown = "\n".join(f"  {id}" for id in found[:20])
            raise AmbiguousError(f"{wanted!r} fits {len(found)} entries; give more of the id:\n{shown}", tuple(found))
        return found[0]

    def fields(self, id: str) -> dict[str, Any]:
        """An entry's line as decoded JSON, with every field it has. Large content stays a reference."""
        return self._journal.fields_of(self.raw(id))

    def raw(self, id: str) -> bytes:
        """The bytes of an entry as they stand in the file, without the LF."""
        with self._mutex:
            return next(self._journal.iter_raw([self._node(id)]))

    def parent(self, id: str) -> str | None:
        return self._id(self._journal.tree.parent(self._node(id)))

    def children(self, id: str | None) -> list[str]:
        """The children of an entry in file order; of None, the roots."""
        tree = self._journal.tree
        found = [tree.ids[child] for child in tree.children(self.node_of(id))]
        return found if id is not None else [root for root in found if not is_metadata_id(root)]

    def roots(self) -> list[str]:
        return self.children(None)

    def leaves(self) -> list[str]:
        """The ends of all branches, in file order. Bookkeeping ends no branch."""
        tree, types = self._journal.tree, self._journal.types
        quiet = self.dialect.bookkeeping | {"leaf"}
        inner = {parent for node, parent in enumerate(tree.parents()) if types[node] not in quiet}
        return [
            id
            for node, id in enumerate(tree.ids)
            if node not in inner and types[node] not in quiet and not is_metadata_id(id)
        ]

    def common_ancestor(self, one: str | None, other: str | None) -> str | None:
        """The deepest entry on both paths, or None when they share none."""
        tree = self._journal.tree
        return self._id(tree.common_ancestor(self.node_of(one), self.node_of(other)))

    def path_ids(self, leaf: str | None = None) -> list[str]:
        """The ids from root to an entry, without reading any body; by default, to where the session stands."""
        nodes = self.dialect.find_path(self._journal, self.node_of(leaf or self.leaf), self._read_options)
        return [self._journal.tree.ids[node] for node in nodes]

    def path(self, leaf: str | None = None) -> list[Entry]:
        """The entries from root to an entry; by default, to where the session stands."""
        return self._path(leaf or self.leaf)

    def context(self, leaf: str | None = None) -> Context:
        """What a model is sent for the path to an entry; by default, to where the session stands."""
        told = self._told_by_parts() if leaf is None else None
        if told is not None:
            return told.context
        return self._context(leaf or self.leaf)

    def messages_to(self, id: str) -> list[Message]:
        """Every message on the path to an entry, as it was said: no compaction, reset or edit applied."""
        with self._mutex:
            nodes = self.dialect.find_path(self._journal, self._node(id), self._read_options)
            return path_messages(path_of(self._journal, nodes))

    # What is said about entries and about the session: last word in file order

    @property
    def labels(self) -> dict[str, str]:
        """Entry id -> label, over all branches."""
        labels: dict[str, str] = {}
        for entry in self._all("label"):
            assert isinstance(entry, Label)
            labels.pop(entry.target_id, None)
            if entry.label:
                labels[entry.target_id] = entry.label
        return labels

    @property
    def name(self) -> str | None:
        with self._mutex:
            return self.dialect.find_title(self._journal)

    @property
    def given_name(self) -> str | None:
        """The name that someone gave the session; unlike `name`, nothing that the owner shows in place of one."""
        with self._mutex:
            return self.dialect.find_given_title(self._journal)

    @property
    def config(self) -> Config:
        with self._mutex:
            return self.dialect.find_config(self._journal)

    @property
    def git_branch(self) -> str | None:
        """The git branch the session last worked on, if the file tells."""
        with self._mutex:
            return self.dialect.find_git_branch(self._journal)

    @property
    def last_activity(self) -> str | None:
        """The time of the last message in file order, whatever its branch."""
        with self._mutex:
            types = self._journal.types
            for node in range(len(types) - 1, -1, -1):
                if types[node] == "message":
                    (entry,) = self._journal.entries([node])
                    if entry.timestamp:
                        return entry.timestamp
        return self.header.timestamp or None

    def orphans(self) -> list[str]:
        """The entries whose parent is not there, in file order."""
        tree = self._journal.tree
        return [tree.ids[problem.node] for problem in tree.problems() if problem.kind == "missing-parent"]

    def pending_calls(self) -> list[ToolCall]:
        """The tool calls of the context that have no result."""
        messages = self.context().messages
        answered = {message.tool_call_id for message in messages if isinstance(message, ToolResult)}
        return [call for message in messages for call in tool_calls(message) if call.id not in answered]

    def beside(self) -> list[RelatedFile]:
        """Files that belong to the session: transcripts of sub-agents, spilled tool output, and where they may lie."""
        with self._mutex:
            return self.dialect.find_related_files(self._journal)

    def usage(self) -> UsageTotals:
        """Tokens, cost and requests of the whole session, each response counted once."""
        with self._mutex:
            return total_usage(self)

    # Inside

    def _told_by_parts(self) -> _Told | None:
        """What the parts of a large file tell that its context is made of; None when it takes all of the file."""
        if self._is_read:
            return None
        if not self._has_tried_parts:
            self._has_tried_parts = True
            self._told = self._read_parts()
        return self._told

    def _read_parts(self) -> _Told | None:
        store, dialect = self._indexed.store, self._indexed.dialect
        parts = dialect.find_context_ranges(store.size(), lambda start, size: read_bytes(store, start, size))
        if parts is None:
            return None
        journal = Journal(SliceStore(store, parts), dialect, self._indexed.blobs)
        journal.refresh()
        leaf = dialect.find_leaf(journal, self._read_options)
        if leaf is None or journal.header is None or journal.has_odd_lines:
            return None
        context = dialect.build_context(journal, leaf, self._read_options)
        if not dialect.is_partial_context_exact(journal, context):
            return None
        return _Told(journal.header.id, journal.tree.ids[leaf], self._guarded(context))

    def _context(self, leaf: str | None) -> Context:
        with self._mutex:
            return self._guarded(self.dialect.build_context(self._journal, self.node_of(leaf), self._read_options))

    def _guarded(self, context: Context) -> Context:
        """The context, whose messages are loaded only while nobody writes."""
        if isinstance(context.messages, LazyMessages):
            context.messages.guard(self._mutex)
        return context

    def _path(self, leaf: str | None) -> list[Entry]:
        with self._mutex:
            nodes = self.dialect.find_path(self._journal, self.node_of(leaf), self._read_options)
            return self._journal.entries(nodes)

    def _stored_leaf(self) -> str | None:
        told = self._told_by_parts()
        if told is not None:
            return told.leaf
        return self._id(self.dialect.find_leaf(self._journal, self._read_options))

    def node_of(self, id: str | None) -> int | None:
        """The number of an entry in file order, by its id; of None, None."""
        return None if id is None else self._node(id)

    def _node(self, id: str) -> int:
        node = self._journal.tree.node_of.get(id)
        if node is None:
            raise NotFoundError(f"{self.location}: there is no entry {id!r}")
        return node

    def _nodes(self, ids: list[str]) -> list[int]:
        node_of = self._journal.tree.node_of
        try:
            return [node_of[id] for id in ids]
        except KeyError:
            return list(map(self._node, ids))  # says which one is not there

    def _id(self, node: int | None) -> str | None:
        return None if node is None else self._journal.tree.ids[node]

    def _all(self, kind: str) -> list[Entry]:
        with self._mutex:
            return self._journal.entries([node for node, type in enumerate(self._journal.types) if type == kind])
