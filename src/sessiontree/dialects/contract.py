"""The dialect contract: what sessiontree needs to know about one client's session format.

A dialect is pure: it maps bytes, decoded JSON and indexed lines to values and never opens, reads or writes a file.
`defaults.DialectBase` implements most of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from sessiontree.core.context import Context
from sessiontree.core.entries import Config, Entry, Header
from sessiontree.core.tree import Tree
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoder, SessionMeta

CERTAIN = 100
"""The highest score of `Dialect.recognize`: no other known dialect can claim the file."""


class Envelope(Struct, frozen=True, gc=False):
    """Type, id and parent of a line: enough to place it in the tree. An empty id means that the line has none.

    A metadata line (a title, a setting) is not part of the tree: it has neither a parent nor children.
    """

    type: str
    id: str
    parent: str | None
    is_metadata: bool = False


def metadata_id(node: int) -> str:
    """The id given to a metadata line, which has none of its own: its position in the file never changes."""
    return f"@{node}"


def is_metadata_id(id: str) -> bool:
    return id.startswith("@") and id[1:].isdecimal()


class Columns(Struct, frozen=True):
    """The envelopes of a block of lines, one list per field. An empty id means a metadata line."""

    types: list[str]
    ids: list[str]
    parents: list[str | None]
    notes: Sequence[object] = ()
    """The dialect's summary of each line, which saves reading it again; None, or empty for all lines, without one."""


class ReadOptions(Struct, frozen=True):
    """Options for reading a session. By default it is read as its current client reads it."""

    recovered: bool = False
    """Include what the client loses, such as history before a missing parent or summaries off the path."""

    as_of: Literal["now", "timestamps"] = "now"
    """The rule for the current entry, where the client has changed it: today's, or the older newest timestamp rule."""

    snips: bool = False
    """Leave out messages that the client's snip markers name, which its current versions ignore."""


AS_CLIENT = ReadOptions()


class Reparenting(Struct, frozen=True):
    """A better parent for a node than the one its line names, and the reason."""

    node: int
    parent: int
    why: str
    rule: str = "missing-parent"
    """The rule that doctor reports the wrong link under."""


class RelatedFile(Struct, frozen=True):
    """A file that belongs to a session, the node that names it, and its possible paths: the recorded path first."""

    kind: Literal["subagent", "output"]
    name: str
    node: int
    call: str | None
    places: tuple[str, ...]


class SessionFile(Struct, frozen=True):
    """The role of a file below one of the client's session roots, judged by its path alone."""

    kind: Literal["session", "subagent"] = "session"
    id: str | None = None
    """The id in the file name, where the lines carry the id of another session or none."""
    parent: str | None = None
    """For a sub-agent: the file of the session that started it, relative to the root; None if unknown."""
    draft_marker: str | None = None
    """A file, relative to the root, whose existence means that the session is still a draft."""


class IndexedLines(Protocol):
    """The lines of a session as a dialect sees them. Nodes are numbers in file order, metadata lines included."""

    @property
    def header(self) -> Header | None: ...

    @property
    def tree(self) -> Tree: ...

    @property
    def types(self) -> Sequence[str]: ...

    @property
    def notes(self) -> Mapping[int, object]:
        """The notes of `decode_block` by node. Lines that were decoded one by one have none."""
        ...

    @property
    def own_customs(self) -> Sequence[int]:
        """The `custom` entries, in file order, that may be our own (`customType` starts with our name)."""
        ...

    @property
    def location(self) -> str: ...

    def entries(self, nodes: Sequence[int]) -> list[Entry]:
        """The parsed entries of some nodes, in the order given."""
        ...

    def fields(self, nodes: Sequence[int]) -> list[dict[str, Any]]:
        """The decoded JSON objects of some nodes' lines, in the order given."""
        ...

    def resolved_fields(self, nodes: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Like `fields`, with references to blobs replaced by their content."""
        ...

    def iter_raw(self, nodes: Sequence[int]) -> Iterator[bytes]:
        """The bytes of some nodes' lines without LF, in the order given."""
        ...

    def sizes(self) -> list[int]:
        """The number of bytes of each node's line, in file order."""
        ...

    def raw_lines(self) -> Iterator[bytes]:
        """Every line of the file in order without LF, entries or not."""
        ...


class Dialect(Protocol):
    """One client's session format.

    Contract:
    * `recognize`, `parse`, `find_leaf`, `find_path` and `build_context` never raise an error and always return, for
      any bytes and any tree.
    * `decode_block` is exact or returns None: a fast path for blocks in which every line is an ordinary entry or
      metadata line. `envelope` decides for one decoded object.
    * `render(parse(line))` is never used to copy a line; its raw bytes are.
    """

    # The format

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int:
        """The newest version of the format that this dialect knows."""
        ...

    @property
    def has_header(self) -> bool:
        """Whether a file starts with a line that describes the session."""
        ...

    @property
    def is_writable(self) -> bool: ...

    @property
    def one_line_per_entry(self) -> bool:
        """Whether `render_entry` renders any entry as one line, so that appending needs no encoder."""
        ...

    @property
    def encoder_types(self) -> frozenset[str]:
        """Entry types that need the encoder although `one_line_per_entry` holds for the others."""
        ...

    @property
    def parent_key(self) -> str:
        """The field of a line that holds its parent's id."""
        ...

    @property
    def bookkeeping(self) -> frozenset[str]:
        """Entry types that never move the leaf."""
        ...

    @property
    def may_refer_to_blobs(self) -> bool:
        """Whether a line may hold a reference to a blob instead of large content."""
        ...

    @property
    def uses_home_blobs(self) -> bool:
        """Whether large content may be stored in the blobs of our home folder, because the client reads them."""
        ...

    # Recognizing files and decoding lines

    def recognize(self, head: bytes) -> int:
        """Score a file by its first bytes: 0 for "not this dialect", up to CERTAIN, which ends the search."""
        ...

    @property
    def path_markers(self) -> tuple[str, ...]:
        """Parts of paths that only the client's files have; used when the content alone is ambiguous."""
        ...

    def decode_block(self, data: memoryview) -> Columns | None: ...

    def is_record(self, fields: dict[str, Any]) -> bool: ...

    def envelope(self, fields: dict[str, Any]) -> Envelope: ...

    def parse(self, raw: bytes) -> Entry:
        """Parse a line; an unknown type becomes `Unknown`, and invalid fields get their defaults."""
        ...

    def is_header(self, fields: dict[str, Any]) -> bool: ...

    def header(self, fields: dict[str, Any]) -> Header: ...

    def find_header(self, lines: IndexedLines) -> Header | None:
        """The header of a session; for a format without a header line, collected from its other lines."""
        ...

    # Tree and context

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        """The current entry of the session; None for "before the first entry"."""
        ...

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        """The nodes that belong to a leaf, in the order of the conversation."""
        ...

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        """The messages a model receives at a leaf."""
        ...

    @property
    def supports_partial_read(self) -> bool:
        """Whether the context of a large file can be built from parts of it."""
        ...

    def find_context_ranges(self, size: int, read: Callable[[int, int], bytes]) -> list[tuple[int, int]] | None:
        """The byte ranges of complete lines that the context is built from; None if the whole file is needed."""
        ...

    def is_partial_context_exact(self, lines: IndexedLines, context: Context) -> bool:
        """Whether a context built from such ranges is certainly that of the whole file."""
        ...

    # Facts about a session, by the client's own rules

    def find_title(self, lines: IndexedLines) -> str | None:
        """The title the client shows for the session."""
        ...

    def find_given_title(self, lines: IndexedLines) -> str | None:
        """The title the user gave the session; None when the client only shows a fallback."""
        ...

    @property
    def title_types(self) -> frozenset[str]:
        """Types of title lines, where the client looks for them only at the ends of a file."""
        ...

    @property
    def title_window(self) -> int:
        """Number of bytes at each end of a file that the client searches for a title; 0 if it reads the whole file."""
        ...

    def find_config(self, lines: IndexedLines) -> Config: ...

    def find_git_branch(self, lines: IndexedLines) -> str | None:
        """The git branch the session last worked on, if the file records it."""
        ...

    def find_session_ids(self, lines: IndexedLines) -> list[str]:
        """The ids of all sessions that lines name as theirs, in file order."""
        ...

    def find_related_files(self, lines: IndexedLines) -> list[RelatedFile]:
        """Files that belong to the session: transcripts of sub-agents, spilled tool output."""
        ...

    # Repair

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        """Links that recover history the client loses: `ReadOptions.recovered` follows them, repair writes them."""
        ...

    def with_parent(self, raw: bytes, parent: str | None) -> bytes:
        """Return the line with another parent, every other byte unchanged."""
        ...

    def with_id(self, raw: bytes, id: str) -> bytes:
        """Return the line with another id, every other byte unchanged."""
        ...

    def is_truncated(self, text: str) -> bool:
        """Whether the client truncated a text before writing it, and marked that."""
        ...

    # Canonical entries in and out

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        """The nodes that belong to a leaf from the very beginning, also those before a compaction."""
        ...

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        """Decode the nodes of a history, in order. An entry may have several nodes, and a node several entries.

        Passthrough data on a line is restored. A history may be decoded in several calls, split anywhere except where
        `must_decode_together` is true.
        """
        ...

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        """Whether a node and the next one of a history have to be decoded in the same call."""
        ...

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> Encoder:
        """Return an encoder for a new session or, with `lines`, one that continues the existing session."""
        ...

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        """The lines, without LF, of a new session that starts with the history of a leaf.

        Lines are copied byte for byte, except for the id of the session they belong to.
        """
        ...

    def render_header(self, header: Header) -> bytes: ...

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        """Render an entry as one line without LF. `fields` are those beyond the envelope."""
        ...

    # Locations

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        """Where the client looks for a new session, by its own rules and environment variables."""
        ...

    def blob_folder(self, location: str) -> str | None:
        """The folder where the client stores large content of a session file, flat by hash; None without one."""
        ...

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The folders where the client may keep sessions; they need not exist.

        Contract: only the environment is read, one variable at a time, so that the result can be cached.
        """
        ...

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        """The role of a file below a root, by its relative path; None when it is not a session."""
        ...

    @property
    def skipped_folders(self) -> frozenset[str]:
        """Names of folders below a root that never contain a session."""
        ...

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        """Folder below a root -> working directory, where the client records that outside of its sessions.

        `read` returns the bytes of a file, or None if it does not exist. Ambiguous folders are left out.
        """
        ...
