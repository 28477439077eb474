"""The dialect contract: what sessiontree needs to know about one client's session format.

Three protocols, each with defaults in `defaults.DialectBase`: `Format` reads lines, `Codec` converts between lines and
canonical entries, and `Locations` finds the client's files. A `Dialect` is all three. Annotate with the smallest one
that suffices.

A dialect is pure: it maps bytes, decoded JSON and indexed lines to values and never opens, reads or writes a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from sessiontree.core.context import Context
from sessiontree.core.entries import Config, Entry, Header
from sessiontree.core.ids import is_metadata_id as is_metadata_id
from sessiontree.core.ids import metadata_id as metadata_id
from sessiontree.core.ids import position_id as position_id
from sessiontree.core.layout import LayoutColumns
from sessiontree.core.messages import Message
from sessiontree.core.tree import Tree
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoder, SessionMeta
from sessiontree.dialects.client import Client
from sessiontree.dialects.storage import Storage

CERTAIN = 100
"""The highest score of `Format.recognize`: no other known dialect can claim the file."""

PREVIOUS = "@previous"
"""As the parent of a line: the entry before it in the file, metadata lines not counted."""

UPDATE = "update"
"""The type of a metadata line that holds a new version, or a further part, of an earlier entry
(`Traits.repeated_id_updates`, `Traits.repeated_id_adds`)."""

UNCHANGED = "@unchanged"
"""As an argument of `Codec.with_ids`: this id stays."""


class Envelope(Struct, frozen=True, gc=False):
    """Type, id and parent of a line: enough to place it in the tree. By default it is a child of the entry before it.

    An empty id means that the line lacks one. A metadata line (a title, a setting) is not part of the tree: it has
    neither a parent nor children.
    """

    type: str
    id: str = ""
    parent: str | None = PREVIOUS
    is_metadata: bool = False


class Columns(Struct, frozen=True):
    """The envelopes of a block of lines, one list per field. An empty id means a metadata line."""

    types: list[str]
    ids: list[str]
    parents: list[str | None]
    notes: Sequence[object] = ()
    """The dialect's summary of each line, which saves reading it again; None, or empty for all lines, without one."""


class LineMarks(Struct, frozen=True):
    """Bytes that certain lines contain, so that others need not be decoded. By default every line is decoded."""

    usage: bytes = b""
    """In every line that reports usage."""
    tools: tuple[bytes, ...] = (b"",)
    """One of these is in every line with a tool call or a result."""
    prompts: tuple[bytes, ...] = (b"",)
    """One of these is in every line with a prompt of the user."""
    results: tuple[bytes, ...] = ()
    """Lines with results that also have a mark of a prompt contain one of these."""

    def may_be_prompt(self, raw: bytes) -> bool:
        return any(mark in raw for mark in self.prompts) and not any(mark in raw for mark in self.results)


CANONICAL_MARKS = LineMarks(
    usage=b'"usage"',
    tools=(b'"tool_use"', b'"toolCall"', b'"toolResult"', b'"tool_result"', b'"tool-result"'),
    prompts=(b'"user"', b'"queued_command"'),
    results=(b'"tool_result"',),
)
"""The marks of clients that name roles, usage and tool calls as the providers do."""


class Traits(Struct, frozen=True):
    """Fixed properties of a format. The defaults fit a read-only file of lines without a header."""

    version: int = 1
    """The newest version of the format that the dialect knows."""
    has_header: bool = False
    """Whether a file starts with a line that describes the session."""
    copies_headers: bool = False
    """Whether the headers of other sessions may follow, which are metadata lines with the type `session_meta`."""
    repairs_as_copy: bool = False
    """Whether a repair writes a new session, because the client remembers positions in the file."""
    finds_ids_in_all_folders: bool = False
    """Whether the client resumes a session by id from any folder of its project, such as one with an older name."""
    bookkeeping: frozenset[str] = frozenset()
    """Entry types that never move the leaf."""
    is_linear: bool = False
    """Whether sessions have no branches: an entry can only be appended to the last one."""
    repeated_id_updates: bool = False
    """Whether a line with the id of an earlier entry is a new version of it. The entry keeps its place in the tree."""
    repeated_id_adds: bool = False
    """Whether a line with the id of an earlier entry is a further part of it, which `Format.join_lines` adds."""
    may_refer_to_blobs: bool = False
    """Whether a line may hold a reference to a blob instead of large content."""
    uses_home_blobs: bool = False
    """Whether large content may be stored in the blobs of our home folder, because the client reads them."""
    marks: LineMarks = LineMarks()
    model_types: frozenset[str] = frozenset()
    """Types of lines that name the model of the requests after them, whose own lines do not name it."""
    has_short_summaries: bool = False
    """Whether the client shows the `shortSummary` of a compaction, for example as the title."""
    truncation_notice: str = ""
    """The end of a text that the client truncated before writing it; empty if it truncates nothing."""
    title_types: frozenset[str] = frozenset()
    """Types of title lines, where the client looks for them only at the ends of a file."""
    title_window: int = 0
    """Number of bytes at each end of a file that the client searches for a title; 0 if it reads the whole file."""

    is_writable: bool = False
    one_line_per_entry: bool = False
    """Whether `render_entry` renders any entry as one line, so that appending needs no encoder."""
    follows_tree: bool = False
    """Whether the history and the context of an entry are those of its parent and its own content. Compactions, reset
    boundaries and edits are exceptions for the context."""
    encoder_types: frozenset[str] = frozenset()
    """Entry types that need the encoder although `one_line_per_entry` holds for the others."""

    note_type: type | UnionType | None = None
    """The type of the notes of lines (`Columns.notes`). With notes and without their type, no index is stored."""

    newest_file_counts: bool = False
    """Whether several files may have one session id, of which the client uses the one with the last name."""
    archive_folders: Mapping[str, str] = {}
    """Folders of sessions that the client no longer shows, by name, and the folders next to them of those it shows."""
    has_title_file: bool = False
    """Whether the client keeps titles of sessions outside of their files (`Locations.session_titles`)."""
    path_markers: tuple[str, ...] = ()
    """Parts of paths that only the client's files have; used when the content alone is ambiguous."""
    session_names: tuple[str, ...] = (".jsonl",)
    """Ends of the names of files that may contain sessions, such as `.jsonl` or `opencode.db`."""
    skipped_folders: frozenset[str] = frozenset()
    """Names of folders below a session root that never contain a session."""

    @property
    def passive_types(self) -> frozenset[str]:
        """Entry types that are never the current entry: bookkeeping, and moves to another entry."""
        return self.bookkeeping | {"leaf"}


class ReadOptions(Struct, frozen=True):
    """Options for reading a session. By default it is read as its current client reads it."""

    recovered: bool = False
    """Include what the client loses, such as history before a missing parent or summaries off the path."""

    as_of: Literal["now", "timestamps"] = "now"
    """The rule for the current entry, where the client has changed it: today's, or the older newest timestamp rule."""

    snips: bool = False
    """Leave out messages that the client's snip markers name, which its current versions ignore."""

    provider_history: bool = True
    """Leave out messages that a provider stores and replays for the client. Other clients need them."""


AS_CLIENT = ReadOptions()


class Reparenting(Struct, frozen=True):
    """A better parent for a node than the one its line names, and the reason."""

    node: int
    parent: int
    why: str
    rule: str = "missing-parent"
    """The rule that doctor reports the wrong link under."""


class LineProblem(Struct, frozen=True):
    """A problem that the client has with a line that can be read, and its effect."""

    node: int | None
    """None for the header."""
    rule: str
    effect: str


class HistoryLinks(Struct, frozen=True):
    """Parents by which the history of an entry is the history of its parent, and then the entry itself."""

    parents: Sequence[int | None]
    """By node."""
    ends: Mapping[int, int] = {}
    """By node: the last node of its history, where that is another one, such as the last result of parallel calls."""
    hidden: frozenset[int] = frozenset()
    """Leaves without a history, such as lines of a sub-agent."""
    preserved: Mapping[int, Sequence[int]] = {}
    """By node: nodes of its history that a compaction repeats after it, in the context of every node that follows."""
    preserved_in_part: frozenset[int] = frozenset()
    """Nodes that follow only some of the preserved ones."""

    def history(self, node: int) -> list[int]:
        """The nodes from the root to a node, by the links."""
        found: list[int] = []
        at: int | None = self.ends.get(node, node)
        while at is not None:
            found.append(at)
            at = self.parents[at]
        return found[::-1]


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


EntryKind: TypeAlias = Literal["prompt", "answer", "calls", "result", "summary", "other"]
"""What an entry is in a conversation: `calls` is an assistant message without text, `other` is not a message."""


class IndexedLines(Protocol):
    """The lines of a session as a dialect sees them. Nodes are numbers in file order, metadata lines included."""

    @property
    def header(self) -> Header | None: ...

    @property
    def header_fields(self) -> dict[str, Any]:
        """The decoded JSON object of the header's line; empty without such a line."""
        ...

    @property
    def tree(self) -> Tree: ...

    @property
    def types(self) -> Sequence[str]: ...

    @property
    def notes(self) -> Sequence[object]:
        """The notes of `decode_block` by node. Those of lines that were decoded one by one are None."""
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

    def sizes(self, nodes: Sequence[int] | None = None) -> list[int]:
        """The number of bytes of the lines of some nodes, in the order given; of all nodes without an argument."""
        ...

    def raw_lines(self) -> Iterator[bytes]:
        """Every line of the file in order without LF, entries or not."""
        ...


class ClientNotes(Struct, frozen=True):
    """What the client recorded about a session besides the conversation. Only read, never written by us."""

    tags: tuple[str, ...] = ()
    agent: str | None = None
    """The agent definition that the session was started with."""
    pull_requests: tuple[str, ...] = ()
    """Addresses of pull requests, in the order of their first mention."""
    branch_summaries: Mapping[str, str] = {}
    """Summaries of branches by the entry that each branch ended with, where this file has that entry."""
    replacements: int = 0
    """Number of tool results for which the client recorded replaced content."""
    parent: str | None = None
    """The id of the session that started this one as a sub-agent, where only its lines name it."""


class Facts(Protocol):
    """Facts about a session by the client's own rules. Each is computed on access."""

    @property
    def title(self) -> str | None:
        """The title the client shows for the session."""
        ...

    @property
    def given_title(self) -> str | None:
        """The title the user gave the session; None when the client only shows a fallback."""
        ...

    @property
    def config(self) -> Config: ...

    @property
    def git_branch(self) -> str | None:
        """The git branch the session last worked on, if the file records it."""
        ...

    @property
    def client_notes(self) -> ClientNotes: ...

    @property
    def session_ids(self) -> list[str]:
        """The ids of all sessions that lines name as theirs, in file order."""
        ...

    @property
    def related_files(self) -> list[RelatedFile]:
        """Files that belong to the session: transcripts of sub-agents, spilled tool output."""
        ...


class PartialReads(Protocol):
    """Builds the context of a large file from parts of it."""

    def find_context_ranges(self, size: int, read: Callable[[int, int], bytes]) -> list[tuple[int, int]] | None:
        """The byte ranges of complete lines that the context is built from; None if the whole file is needed."""
        ...

    def is_context_exact(self, lines: IndexedLines, context: Context) -> bool:
        """Whether a context built from such ranges is certainly that of the whole file."""
        ...


class _Described(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> Traits: ...


class Format(_Described, Protocol):
    """Recognizes and reads the files of one client.

    Contract:
    * `recognize`, `decode_line`, `parse`, `find_leaf`, `find_path` and `build_context` never raise an error and always
      return, for any bytes and any tree.
    * `decode_block` is exact or returns None: a fast path for blocks in which every line is an ordinary entry or
      metadata line. `decode_line` decides for one decoded object.
    """

    def recognize(self, head: bytes) -> int:
        """Score a file by its first bytes: 0 for "not this dialect", up to CERTAIN, which ends the search."""
        ...

    def decode_block(self, data: memoryview, first: int) -> Columns | None:
        """Decode a block of lines; `first` is the number of the node that its first line becomes."""
        ...

    def decode_line(self, fields: dict[str, Any], node: int) -> Envelope | Header | None:
        """Decode one line, which becomes this node unless it is the header; None if it is neither entry nor header."""
        ...

    def is_record(self, fields: dict[str, Any]) -> bool:
        """Whether an object found in damaged bytes is a complete line, and not one of the objects inside a line."""
        ...

    def join_lines(self, raws: list[bytes]) -> bytes:
        """One line for an entry that has several (`Traits.repeated_id_adds`), in file order."""
        ...

    def parse(self, raw: bytes) -> Entry:
        """Parse a line; an unknown type becomes `Unknown`, and invalid fields get their defaults."""
        ...

    def parse_usage(self, raw: bytes) -> Entry:
        """Parse a line for its usage, model and response id. Content may be left out, which is most of its bytes.

        A line of the `Traits.model_types` is a `ModelChange` here.
        """
        ...

    def find_header(self, lines: IndexedLines) -> Header | None:
        """The header of a session; for a format without a header line, collected from its other lines."""
        ...

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None:
        """The current entry of the session; None for "before the first entry"."""
        ...

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        """The nodes that belong to a leaf, in the order of the conversation."""
        ...

    def entry_kinds(self, lines: IndexedLines) -> list[EntryKind]:
        """What each entry is in a conversation. Views fold and filter rows by it, so it must not decode every body."""
        ...

    def layout_columns(self, lines: IndexedLines) -> LayoutColumns:
        """The columns from which the tree is laid out. No value depends on later lines."""
        ...

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        """Links that recover history the client loses: `ReadOptions.recovered` follows them, repair writes them."""
        ...

    def find_problems(self, lines: IndexedLines) -> list[LineProblem]:
        """Problems that the client has with lines that can be read. Only doctor asks: this may read every line."""
        ...

    def why_read_only(self, lines: IndexedLines) -> str | None:
        """Why this session must not be changed, and what to do instead; None if it may be."""
        ...

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        """The messages a model receives at a leaf."""
        ...

    def build_messages(
        self, lines: IndexedLines, nodes: list[int], read_options: ReadOptions
    ) -> Sequence[Message] | None:
        """The messages of a part of a path, which starts with a prompt or is complete, with all calls of its results.

        None if they depend on the rest of the path.
        """
        ...

    @property
    def partial_reads(self) -> PartialReads | None:
        """How to build the context of a large file from parts of it; None if that is not possible."""
        ...

    def facts(self, lines: IndexedLines) -> Facts: ...


class Codec(_Described, Protocol):
    """Decodes lines into canonical entries, and encodes canonical entries as lines.

    `render_entry` and the encoder never copy a line of the same dialect: its raw bytes are copied.
    """

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        """The nodes that belong to a leaf from the very beginning, including those before a compaction."""
        ...

    def find_history_links(self, lines: IndexedLines, read_options: ReadOptions) -> HistoryLinks | None:
        """Links that describe the histories of all leaves at once; None if only `find_history` can find them.

        Takes linear time, so that sessions with thousands of branches can be listed.
        """
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

    def encode_repaired(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        """Like `encode_fork`, without what damage has added (`Traits.repairs_as_copy`)."""
        ...

    def render_header(self, header: Header) -> bytes: ...

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        """Render an entry as one line without LF. `fields` are those beyond the envelope."""
        ...

    def with_ids(self, raw: bytes, *, id: str = UNCHANGED, parent: str | None = UNCHANGED) -> bytes:
        """Return the line with another id or another parent, every other byte unchanged."""
        ...


class Locations(_Described, Protocol):
    """Where the client keeps its files, what they are called, and how the client is started."""

    @property
    def client(self) -> Client:
        """The program that reads and writes these sessions, and what other packages know about it."""
        ...

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The folders where the client may keep sessions; they need not exist.

        Contract: only the environment is read, one variable at a time, so that the result can be cached.
        """
        ...

    def storage(self, path: str) -> Storage:
        """How the file at a path stores its sessions."""
        ...

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        """The role of a file below a root, by its relative path; None when it is not a session."""
        ...

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        """Folder below a root -> working directory, where the client records that outside of its sessions.

        `read` returns the bytes of a file, or None if it does not exist. Ambiguous folders are left out.
        """
        ...

    def session_titles(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        """Session id -> title, where the client records that outside of its sessions (`Traits.has_title_file`)."""
        ...

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        """Where the client looks for a new session, by its own rules and environment variables."""
        ...

    def locate(self, destination: Destination, meta: SessionMeta, read: Callable[[str], bytes | None]) -> Destination:
        """Correct a destination by the client's own records, such as the folder it has chosen for a project.

        `read` returns the bytes of a file, or None if it does not exist.
        """
        ...

    def blob_folder(self, location: str) -> str | None:
        """The folder where the client stores large content of a session file, flat by hash; None without one."""
        ...


class Dialect(Format, Codec, Locations, Protocol):
    """One client's session format."""
