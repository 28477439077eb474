"""Read access to a session: header, tree, paths, contexts, problems. Nothing here writes.

The current entry of a `Reader` is the one stored in the file. `Session` adds a current entry of its own, and writing.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from sessiontree.core.context import Context, path_messages
from sessiontree.core.entries import Config, Entry, Fragment, Header, Label, Problem
from sessiontree.core.ids import IdPrefixes
from sessiontree.core.messages import LazyMessages, Message, ToolCall
from sessiontree.core.usage import USAGE_TYPES, UsageTotals, total_usage
from sessiontree.dialects.contract import AS_CLIENT, ClientNotes, Dialect, ReadOptions, RelatedFile, is_metadata_id
from sessiontree.dialects.defaults import path_of_nodes
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.session.journal import Journal
from sessiontree.session.pending_calls import open_calls, results_elsewhere
from sessiontree.stores.contract import SessionRef, read_bytes
from sessiontree.stores.read_only import ReadOnlyStore, SliceStore
from sessiontree.stores.safe_files import read_small

_LARGE_FILE = 16 << 20
"""Minimum size in bytes for trying to build the context from parts of a file first."""

_STEP = 256
"""Number of entries read together."""


class _PartialRead(Struct, frozen=True):
    """Result of reading only some ranges of a file."""

    id: str
    leaf: str
    context: Context


class Current:
    """Type of `CURRENT`: "the current entry" in arguments where None already means "before the first entry"."""


CURRENT = Current()


class Reader:
    """Read access to one session. Threads may share it."""

    def __init__(self, journal: Journal, read_options: ReadOptions) -> None:
        self._read_options = read_options
        self._mutex = threading.RLock()
        self._indexed = journal
        self._is_read = False
        self._has_tried_partial = False
        self._partial: _PartialRead | None = None
        self._id_prefixes: IdPrefixes | None = None
        if not self._can_defer(journal):
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
            if not self._is_read:  # checked again: another thread may have read it meanwhile
                self._indexed.read()
                self._is_read = True

    def _can_defer(self, journal: Journal) -> bool:
        """Whether the file can be indexed later, when a caller needs all of it."""
        if self._read_options != AS_CLIENT or journal.dialect.partial_reads is None:
            return False
        return journal.store.exists() and journal.store.size() >= _LARGE_FILE

    # Facts about the session

    @property
    def header(self) -> Header:
        return self._journal.header or Header(id="")

    @property
    def id(self) -> str:
        partial = self._partial_read()
        return self.header.id if partial is None else partial.id

    @property
    def cwd(self) -> str:
        """The working folder: of the session, else of its client's records about it; empty if it is unknown."""
        return self.header.cwd or self._recorded_cwd

    @functools.cached_property
    def _recorded_cwd(self) -> str:
        if not self.ref.is_file:
            return ""
        path = os.path.realpath(self.location)
        for root in self.dialect.session_roots(os.environ):
            below = os.path.join(os.path.realpath(root), "")
            if path.startswith(below):
                folder = os.path.dirname(path.removeprefix(below))
                return self.dialect.session_cwds(root, read_small).get(folder, "")
        return ""

    @property
    def dialect(self) -> Dialect:
        return self._indexed.dialect

    @property
    def journal(self) -> Journal:
        """The session's indexed lines, for callers that work on the file itself."""
        return self._journal

    @property
    def read_options(self) -> ReadOptions:
        """Options for how the session is read."""
        return self._read_options

    @property
    def problems(self) -> list[Problem]:
        """Problems found so far, in file order."""
        with self._mutex:
            return self._journal.problems()

    @property
    def known_problems(self) -> list[Problem]:
        """Problems found so far; unlike `problems`, this never reads the rest of the file."""
        return self.problems if self._is_read else []

    @property
    def fragments(self) -> list[Fragment]:
        """Damaged bytes that belong to no entry."""
        return list(self._journal.fragments)

    @property
    def shadowed(self) -> frozenset[int]:
        """Numbers (in file order) of entries whose id a later entry reuses."""
        tree = self._journal.tree
        return frozenset(problem.node for problem in tree.problems() if problem.kind == "duplicate-id")

    def line_start(self, number: int) -> int:
        """Byte offset of an entry's line, by the entry's number in file order."""
        return self._journal.span(number).start

    @property
    def read_only(self) -> str | None:
        """Why this session cannot be written; None if it can. An older version is migrated by the first write."""
        if not self.dialect.traits.is_writable:
            return f"sessions of {self.dialect.name} are read-only"
        if self._journal.header is None:
            return "it has no header"
        newest, version = self.dialect.traits.version, self.header.version
        if version > newest:
            return f"it has version {version}, this sessiontree writes version {newest}; try a newer sessiontree"
        reason = self.dialect.why_read_only(self._journal)
        store = self._journal.store
        return store.why_read_only if reason is None and isinstance(store, ReadOnlyStore) else reason

    @property
    def location(self) -> str:
        """Path of the session's file, or another description of its store."""
        return self._indexed.location

    @property
    def ref(self) -> SessionRef:
        """The address of the session, from which `sessiontree.open` opens it."""
        return self._indexed.store.ref

    @property
    def leaf(self) -> str | None:
        """Id of the current entry, like git's HEAD; None before the first entry."""
        return self._stored_leaf()

    # The tree

    def __len__(self) -> int:
        return len(self._journal)

    def __contains__(self, id: str) -> bool:
        return id in self._journal.tree.node_of

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over all entries in file order, on all branches."""
        with self._mutex:
            nodes = range(len(self._journal))
        yield from self._iter_entries(nodes)

    @property
    def ids(self) -> list[str]:
        """Ids of all entries in file order."""
        return list(self._journal.tree.ids)

    def type_of(self, id: str) -> str:
        """An entry's type, without reading its body."""
        return self._journal.types[self._node(id)]

    def entry(self, id: str) -> Entry:
        with self._mutex:
            return self._journal.entries([self._node(id)])[0]

    def entries(self, ids: list[str]) -> list[Entry]:
        """Several entries, in the given order."""
        with self._mutex:
            return self._journal.entries(self._nodes(ids))

    def count(self, kind: str) -> int:
        """Number of entries of a type, on all branches."""
        return self._journal.types.count(kind)

    def find_entry(self, wanted: str) -> str:
        """Find an entry by its id, its label, or an unambiguous prefix of its id."""
        if wanted in self:
            return wanted
        labelled = [id for id, label in self.labels.items() if label == wanted]
        found = labelled or [id for id in self._journal.tree.node_of if len(wanted) >= 2 and id.startswith(wanted)]
        if not found:
            raise NotFoundError(f"{self.location}: no entry {wanted!r}; `sessiontree tree` shows ids and labels")
        if len(found) > 1:
            shown = "\n".join(f"  {id}" for id in found[:20])
            raise AmbiguousError(
                f"{wanted!r} matches {len(found)} entries; use a longer prefix:\n{shown}", tuple(found)
            )
        return found[0]

    @property
    def id_prefixes(self) -> IdPrefixes:
        """Shortest prefixes of entry ids with which `find_entry` finds the entries."""
        with self._mutex:
            known = self._journal.tree.node_of
            if self._id_prefixes is None or self._id_prefixes.ids is not known:
                self._id_prefixes = IdPrefixes(known)
            return self._id_prefixes

    def fields(self, id: str) -> dict[str, Any]:
        """An entry's decoded line with all of its fields. Large content stays a blob reference."""
        return self._journal.fields_of(self.raw(id))

    def raw(self, id: str) -> bytes:
        """The raw line of an entry, without LF."""
        with self._mutex:
            return next(self._journal.iter_raw([self._node(id)]))

    def parent(self, id: str) -> str | None:
        return self._id(self._journal.tree.parent(self._node(id)))

    def children(self, id: str | None) -> list[str]:
        """Children of an entry in file order; for None, the roots."""
        tree = self._journal.tree
        found = [tree.ids[child] for child in tree.children(self.node_of(id))]
        return found if id is not None else [root for root in found if not is_metadata_id(root)]

    def roots(self) -> list[str]:
        return self.children(None)

    def leaves(self) -> list[str]:
        """Last entries of all branches, in file order. Labels and other bookkeeping do not start a branch."""
        tree, types = self._journal.tree, self._journal.types
        quiet = self.dialect.traits.passive_types
        has_child = bytearray(len(types))  # a set takes much more memory in a huge session
        for node, parent in enumerate(tree.parents()):
            if parent is not None and types[node] not in quiet:
                has_child[parent] = True
        return [
            id
            for node, id in enumerate(tree.ids)
            if not has_child[node] and types[node] not in quiet and not is_metadata_id(id)
        ]

    def common_ancestor(self, one: str | None, other: str | None) -> str | None:
        """Deepest entry on both paths; None if they share no entry."""
        tree = self._journal.tree
        return self._id(tree.common_ancestor(self.node_of(one), self.node_of(other)))

    def path_ids(self, leaf: str | None = None) -> list[str]:
        """Ids from the root to an entry (default: the current one), without reading bodies."""
        return [self._journal.tree.ids[node] for node in self.path_nodes(leaf or self.leaf)]

    def path_nodes(self, leaf: str | None) -> list[int]:
        """Numbers in file order of the entries from the root to an entry; empty for None."""
        with self._mutex:
            return self.dialect.find_path(self._journal, self.node_of(leaf), self._read_options)

    def path(self, leaf: str | None = None) -> list[Entry]:
        """Entries from the root to an entry (default: the current one)."""
        return self._path(leaf or self.leaf)

    def iter_path(self, leaf: str | None) -> Iterator[Entry]:
        """Iterate over the entries from the root to an entry, a few of them in memory at a time."""
        return self._iter_entries(self.path_nodes(leaf))

    def _iter_entries(self, nodes: Sequence[int]) -> Iterator[Entry]:
        for start in range(0, len(nodes), _STEP):
            with self._mutex:
                entries = self._journal.entries(nodes[start : start + _STEP])
            yield from entries  # without the mutex: the caller decides how long an iteration takes

    def context(self, leaf: str | None = None) -> Context:
        """The messages a model receives for an entry (default: the current one)."""
        partial = self._partial_read() if leaf is None else None
        if partial is not None:
            return partial.context
        return self._context(leaf or self.leaf)

    def messages_to(self, id: str) -> list[Message]:
        """Every message on the path to an entry, with no compaction, reset or edit applied."""
        with self._mutex:
            nodes = self.dialect.find_path(self._journal, self._node(id), self._read_options)
            return path_messages(path_of_nodes(self._journal, nodes))

    # Labels, names and settings: the last line in file order counts, on any branch

    @property
    def labels(self) -> dict[str, str]:
        """Labels by entry id, on all branches."""
        labels: dict[str, str] = {}
        for entry in self._entries_of_type("label"):
            assert isinstance(entry, Label)
            labels.pop(entry.target_id, None)  # so that an entry that is labeled again comes last
            if entry.label:
                labels[entry.target_id] = entry.label
        return labels

    @property
    def name(self) -> str | None:
        with self._mutex:
            return self.dialect.facts(self._journal).title

    @property
    def given_name(self) -> str | None:
        """The name that the user or the agent gave the session; unlike `name`, without the client's fallbacks."""
        with self._mutex:
            return self.dialect.facts(self._journal).given_title

    @property
    def config(self) -> Config:
        with self._mutex:
            return self.dialect.facts(self._journal).config

    @property
    def client_notes(self) -> ClientNotes:
        """What the client recorded about the session besides the conversation, such as its tags."""
        with self._mutex:
            return self.dialect.facts(self._journal).client_notes

    @property
    def git_branch(self) -> str | None:
        """The git branch that the session last used, if the file records it."""
        with self._mutex:
            return self.dialect.facts(self._journal).git_branch

    @property
    def last_activity(self) -> str | None:
        """Time of the last message in file order, on any branch."""
        with self._mutex:
            types = self._journal.types
            for node in range(len(types) - 1, -1, -1):
                if types[node] == "message":
                    (entry,) = self._journal.entries([node])
                    if entry.timestamp:
                        return entry.timestamp
        return self.header.timestamp or None

    def orphans(self) -> list[str]:
        """Entries whose parent is missing, in file order."""
        tree = self._journal.tree
        return [tree.ids[problem.node] for problem in tree.problems() if problem.kind == "missing-parent"]

    def pending_calls(self) -> list[ToolCall]:
        """Calls of the last answer without a result, on this branch or another one; none if a prompt follows."""
        calls = open_calls(self.context().messages)
        elsewhere = results_elsewhere(self, self.leaf, {call.id for call in calls})
        return [call for call in calls if call.id not in elsewhere]

    def related_files(self) -> list[RelatedFile]:
        """Files that belong to the session, with their possible paths: sub-agent transcripts, spilled tool output."""
        with self._mutex:
            return self.dialect.facts(self._journal).related_files

    def usage(self) -> UsageTotals:
        """Tokens, cost and requests of the whole session, each response counted once."""
        with self._mutex:
            return total_usage(iter_usage_entries(self._journal, range(len(self._journal))))

    # Internals

    def _partial_read(self) -> _PartialRead | None:
        """Read the context from some ranges of a large file; None when that needs the complete file."""
        if self._is_read:
            return None
        if not self._has_tried_partial:
            self._has_tried_partial = True
            self._partial = self._read_context_ranges()
        return self._partial

    def _read_context_ranges(self) -> _PartialRead | None:
        store, dialect = self._indexed.store, self._indexed.dialect
        partial = dialect.partial_reads
        if partial is None:
            return None
        ranges = partial.find_context_ranges(store.size(), lambda start, size: read_bytes(store, start, size))
        if ranges is None:
            return None
        journal = Journal(SliceStore(store, ranges), dialect, self._indexed.find_repository)
        journal.refresh()
        leaf = dialect.find_leaf(journal, self._read_options)
        if leaf is None or journal.header is None or journal.has_line_problems:
            return None
        context = dialect.build_context(journal, leaf, self._read_options)
        if not partial.is_context_exact(journal, context):
            return None
        return _PartialRead(journal.header.id, journal.tree.ids[leaf], self._guard(context))

    def _context(self, leaf: str | None) -> Context:
        with self._mutex:
            return self._guard(self.dialect.build_context(self._journal, self.node_of(leaf), self._read_options))

    def _guard(self, context: Context) -> Context:
        """Make lazy messages take the mutex when they load: another thread may be writing."""
        if isinstance(context.messages, LazyMessages):
            context.messages.guard(self._mutex)
        return context

    def _path(self, leaf: str | None) -> list[Entry]:
        with self._mutex:
            nodes = self.dialect.find_path(self._journal, self.node_of(leaf), self._read_options)
            return self._journal.entries(nodes)

    def _stored_leaf(self) -> str | None:
        partial = self._partial_read()
        if partial is not None:
            return partial.leaf
        return self._id(self.dialect.find_leaf(self._journal, self._read_options))

    def node_of(self, id: str | None) -> int | None:
        """An entry's number in file order, by its id; None for None."""
        return None if id is None else self._node(id)

    def _node(self, id: str) -> int:
        node = self._journal.tree.node_of.get(id)
        if node is None:
            raise NotFoundError(f"{self.location}: no entry {id!r}")
        return node

    def _nodes(self, ids: list[str]) -> list[int]:
        node_of = self._journal.tree.node_of
        try:
            return [node_of[id] for id in ids]
        except KeyError:
            return list(map(self._node, ids))  # raises an error that names the missing one

    def _id(self, node: int | None) -> str | None:
        return None if node is None else self._journal.tree.ids[node]

    def _entries_of_type(self, kind: str) -> list[Entry]:
        with self._mutex:
            return self._journal.entries([node for node, type in enumerate(self._journal.types) if type == kind])


def iter_usage_entries(journal: Journal, nodes: Sequence[int]) -> Iterator[Entry]:
    """Entries that report usage, or the model for that of others, in file order; others are not decoded."""
    mark, model_types = journal.dialect.traits.marks.usage, journal.dialect.traits.model_types
    wanted = USAGE_TYPES | model_types
    with_usage = [node for node in nodes if journal.types[node] in wanted]
    for node, raw in zip(with_usage, journal.iter_raw(with_usage), strict=True):
        if mark in raw or journal.types[node] in model_types:
            entry = journal.dialect.parse_usage(raw)
            yield entry if entry.id else msgspec.structs.replace(entry, id=journal.tree.ids[node])
