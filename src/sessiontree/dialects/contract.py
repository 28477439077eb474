"""The contract of a dialect: one agent's file format and its rules of reading and writing.

A dialect is pure. It is handed bytes, decoded JSON and the indexed lines of a session, and gives back values; it never
opens, reads or writes a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from sessiontree.core.context import Context, Path, Rules, build_context
from sessiontree.core.entries import Config, ConfigChange, Entry, Header, Worktree
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.core.tree import Tree
from sessiontree.dialects.canonical import CanonicalEntry, Destination, Encoder, SessionMeta
from sessiontree.dialects.passthrough import PASSTHROUGH, passthrough_of, restore_entry
from sessiontree.errors import ReadOnlyError

WireT = TypeVar("WireT", bound=Struct)

_TOLD_TOGETHER = 256
_OUTSIDE = frozenset({"type", "id", "parentId", "timestamp"})


class Envelope(Struct, frozen=True, gc=False):
    """The outside of an entry: enough to place it in the tree. An empty id means the line has none.

    An aside is a line that is no part of the tree (a title, a setting): it is kept and can be read, and never has a
    parent or children.
    """

    type: str
    id: str
    parent: str | None
    is_metadata: bool = False


def metadata_id(node: int) -> str:
    """What an aside is called: it has no id of its own, but its place never changes."""
    return f"@{node}"


def is_metadata_id(id: str) -> bool:
    """Whether an id was given to a line that is no part of the tree."""
    return id.startswith("@") and id[1:].isdecimal()


class Columns(Struct, frozen=True):
    """The envelopes of a block of lines, one list per field. An empty id means an aside."""

    types: list[str]
    ids: list[str]
    parents: list[str | None]
    notes: Sequence[object] = ()
    """What else the dialect wants to know of each line without reading it again: None for nothing, or empty for all."""


class ReadOptions(Struct, frozen=True):
    """How a session is to be read, where there is a choice.

    By default as its client, the program whose format it is, reads it today.
    """

    recovered: bool = False
    """Bring back what the client loses: history behind a missing parent, summaries off the path and the like."""

    as_of: Literal["now", "timestamps"] = "now"
    """Where the client's rule for the leaf has changed: today's, or the older one that takes the newest time."""

    snips: bool = False
    """Leave out what the client's snip marks name, which its current versions ignore."""


AS_CLIENT = ReadOptions()

CERTAIN = 100
"""As sure as can be that a file is of a dialect: none of the others we have could claim it."""


class Reparenting(Struct, frozen=True):
    """A better parent for a node than the one its line names, and why it is better."""

    node: int
    parent: int
    why: str
    rule: str = "missing-parent"
    """What is wrong with the link as it stands: the rule that doctor reports it under."""


class RelatedFile(Struct, frozen=True):
    """A file that belongs to a session: who names it, and where it may lie, the recorded place first."""

    kind: Literal["subagent", "output"]
    name: str
    node: int
    call: str | None
    places: tuple[str, ...]


class SessionFile(Struct, frozen=True):
    """What a file in one of the folders where a dialect's client keeps sessions is, by its name alone."""

    kind: Literal["session", "subagent"] = "session"
    id: str | None = None
    """The id that the name gives it, where its lines carry that of another session or none."""
    parent: str | None = None
    """For a sub-agent: the file of the session that started it, from the root; None when the name does not tell."""
    draft_marker: str | None = None
    """The file, from the root, that says that nothing was sent yet, if it is there."""


class Varied(Mapping[str, str]):
    """An environment with some variables changed, that asks for one of the others only when it is asked itself."""

    def __init__(self, environment: Mapping[str, str], **changes: str) -> None:
        self._environment = environment
        self._changes = changes

    def __getitem__(self, name: str) -> str:
        return self._changes[name] if name in self._changes else self._environment[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._environment, **self._changes})

    def __len__(self) -> int:
        return len({**self._environment, **self._changes})


class IndexedLines(Protocol):
    """The lines of a session as a dialect may ask about them. Nodes are numbers in file order, asides included."""

    @property
    def header(self) -> Header | None: ...

    @property
    def tree(self) -> Tree: ...

    @property
    def types(self) -> Sequence[str]: ...

    @property
    def notes(self) -> Mapping[int, object]:
        """What `decode_block` noted of a node's line. Lines that were looked at one by one have no note."""
        ...

    @property
    def own_customs(self) -> Sequence[int]:
        """The `custom` entries, in file order, that may be of our own making (`customType` begins with our name)."""
        ...

    @property
    def location(self) -> str: ...

    def entries(self, nodes: Sequence[int]) -> list[Entry]:
        """The entries of some nodes, in the order asked for."""
        ...

    def fields(self, nodes: Sequence[int]) -> list[dict[str, Any]]:
        """The decoded objects of some nodes' lines, as they stand there, in the order asked for."""
        ...

    def resolved_fields(self, nodes: Sequence[int]) -> Iterator[dict[str, Any]]:
        """The same with large content back in its place."""
        ...

    def iter_raw(self, nodes: Sequence[int]) -> Iterator[bytes]:
        """The bytes of some nodes' lines as they stand there, without LF, in the order asked for."""
        ...

    def sizes(self) -> list[int]:
        """How many bytes each node's line has, in file order."""
        ...

    def raw_lines(self) -> Iterator[bytes]:
        """Every line of the file in order, without LF, whatever it holds."""
        ...


class Dialect(Protocol):
    """One agent's file format.

    Contract:
    * `recognize` gives 0 for a head that is not of this dialect, up to 100 for a certain one. It never raises.
    * `decode_block` is exact or silent: it gives the envelopes of a block in which every line is one ordinary entry or
      aside, and None when any line needs a closer look. `envelope` takes it, at one decoded object.
    * `parse` turns an entry's raw bytes into a value and never raises: what it does not understand becomes `Unknown`
      or takes defaults. `render(parse(line))` is never used to copy a line; the raw line is.
    * `find_leaf` says where the session stands: a node, or None for "before the first entry". `find_path` gives the
      nodes that belong to a leaf in the order of the conversation; `build_context` what a model is sent for them. None
      of them raises or hangs, whatever the tree looks like.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int:
        """The newest version of the format that this dialect knows."""
        ...

    @property
    def has_header(self) -> bool:
        """Whether the format begins with a line that says which session it is."""
        ...

    @property
    def is_writable(self) -> bool: ...

    @property
    def parent_key(self) -> str:
        """The field of a line that names its parent."""
        ...

    @property
    def bookkeeping(self) -> frozenset[str]:
        """Types of entries that never move the leaf."""
        ...

    @property
    def folders(self) -> tuple[str, ...]:
        """Parts of paths that only the client's files have; asked when the content alone does not tell."""
        ...

    def recognize(self, head: bytes) -> int:
        """How sure it is that a file with these first bytes is its own: 0 for not at all, CERTAIN to end the search."""
        ...

    def decode_block(self, data: memoryview) -> Columns | None: ...

    def is_record(self, fields: dict[str, Any]) -> bool: ...

    def is_header(self, fields: dict[str, Any]) -> bool: ...

    def header(self, fields: dict[str, Any]) -> Header: ...

    def find_header(self, lines: IndexedLines) -> Header | None:
        """For a format without a header line: what the other lines tell of the session."""
        ...

    def envelope(self, fields: dict[str, Any]) -> Envelope: ...

    def parse(self, raw: bytes) -> Entry: ...

    def find_leaf(self, lines: IndexedLines, read_options: ReadOptions) -> int | None: ...

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]: ...

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context: ...

    @property
    def supports_partial_read(self) -> bool:
        """Whether parts of a large file may tell its context, so that the rest need not be read for it."""
        ...

    def find_context_ranges(self, size: int, read: Callable[[int, int], bytes]) -> list[tuple[int, int]] | None:
        """The parts of a file, each of whole lines, that the context of where it stands is made of; None for all."""
        ...

    def is_partial_context_exact(self, lines: IndexedLines, context: Context) -> bool:
        """Whether a context made of such parts is surely that of the whole file."""
        ...

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        """The links that bring back history the client loses: what `Reading.recovered` follows and repair writes."""
        ...

    def with_parent(self, raw: bytes, parent: str | None) -> bytes:
        """The same line with another parent, every other byte as it was."""
        ...

    def with_id(self, raw: bytes, id: str) -> bytes:
        """The same line with another id, every other byte as it was."""
        ...

    def find_title(self, lines: IndexedLines) -> str | None:
        """The name the client shows for the session, by the client's own rule."""
        ...

    def find_given_title(self, lines: IndexedLines) -> str | None:
        """The name that someone gave the session; None when the client only shows something in place of a name."""
        ...

    def find_config(self, lines: IndexedLines) -> Config:
        """The settings of the session, by the client's own rule."""
        ...

    @property
    def title_types(self) -> frozenset[str]:
        """Types of lines that name the session, where the client looks for them only at the ends of a file."""
        ...

    @property
    def title_window(self) -> int:
        """How many bytes at each end of a file the client looks through for a title; 0 when it reads all of it."""
        ...

    def is_truncated(self, text: str) -> bool:
        """Whether the client cut a text before it wrote it, and said so at the cut."""
        ...

    def find_git_branch(self, lines: IndexedLines) -> str | None:
        """The git branch the session last worked on, if the file tells."""
        ...

    def find_related_files(self, lines: IndexedLines) -> list[RelatedFile]:
        """Files that belong to the session: transcripts of sub-agents, tool output that was spilled."""
        ...

    def find_session_ids(self, lines: IndexedLines) -> list[str]:
        """The ids of all sessions that the lines say they belong to, in file order."""
        ...

    def blob_folder(self, location: str) -> str | None:
        """Where the client keeps large content of a session file, flat by hash; None when it keeps none."""
        ...

    # Telling a session in canonical form, and writing one

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        """The nodes that belong to a leaf from the very beginning: also what stood before a compaction."""
        ...

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        """Nodes of a history in canonical form, in their order. Several may make one item, one may make several.

        What rode along on a line (see `passthrough`) is put back. Neighbours of a history may be told in separate
        calls, cut anywhere but within a response, its results, or a compaction.
        """
        ...

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        """Whether the node that follows another in a history has to be told in one call with it."""
        ...

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> Encoder:
        """Someone who writes a session: a new one, or with `lines` the one that is there, which it continues."""
        ...

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        """The lines, without LF, of a new session that begins with the history of a leaf.

        Each is copied as it stands, but for what names the session it belongs to.
        """
        ...

    @property
    def one_line_per_entry(self) -> bool:
        """Whether every entry is one line made by `render_entry`, so that no encoder is needed to append one."""
        ...

    @property
    def may_refer_to_blobs(self) -> bool:
        """Whether lines may name a blob instead of holding something large themselves."""
        ...

    @property
    def uses_home_blobs(self) -> bool:
        """Whether large content may go into the blobs of our home folder, because its program knows them."""
        ...

    @property
    def encoder_types(self) -> frozenset[str]:
        """Types of entries that cannot be appended as one plain line, although others can."""
        ...

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        """Where the client looks for a new session, by the rules and the environment variables of the client."""
        ...

    # Finding sessions

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The folders where the client may keep sessions, by its rules and variables; they need not exist.

        Contract: nothing but the environment is asked, one variable at a time, so that the answer can be remembered.
        """
        ...

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        """What a file below a root is, by its path from there; None when it is no session."""
        ...

    @property
    def skipped_folders(self) -> frozenset[str]:
        """Names of folders below a root that never hold a session."""
        ...

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        """Folder below a root -> working folder, where the client records that outside of its sessions.

        `read` gives the bytes of a file, or None when there is none. A folder that may be that of several working
        folders is left out.
        """
        ...

    def render_header(self, header: Header) -> bytes: ...

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        """One line without its LF. `fields` are those beyond the envelope."""
        ...


class DialectBase:
    """What most dialects share: a tree that is walked by parents, a context by the common rules, no writing."""

    name = ""
    version = 1
    has_header = False
    is_writable = False
    one_line_per_entry = False
    may_refer_to_blobs = True
    uses_home_blobs = False
    encoder_types: frozenset[str] = frozenset()
    bookkeeping: frozenset[str] = frozenset()
    rules = Rules()
    parent_key = "parentId"
    id_key = "id"
    title_types: frozenset[str] = frozenset()
    title_window = 0
    folders: tuple[str, ...] = ()
    skipped_folders: frozenset[str] = frozenset()
    supports_partial_read = False

    def is_header(self, fields: dict[str, Any]) -> bool:
        return False

    def header(self, fields: dict[str, Any]) -> Header:
        return Header(id="")

    def find_header(self, lines: IndexedLines) -> Header | None:
        return lines.header

    def find_context_ranges(
        self,
        size: int,
        read: Callable[[int, int], bytes],
    ) -> list[tuple[int, int]] | None:
        return None

    def is_partial_context_exact(self, lines: IndexedLines, context: Context) -> bool:
        return False

    def find_path(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        if not read_options.recovered:
            return lines.tree.path(leaf)
        return reparented_path(
            lines.tree, leaf, {relink.node: relink.parent for relink in self.find_reparentings(lines)}
        )

    def find_reparentings(self, lines: IndexedLines) -> list[Reparenting]:
        """A lost parent most likely stood right before its first child, behind the entry that stands there now.

        All children of one lost parent get the same new one, so that branches stay branches.
        """
        relinks: list[Reparenting] = []
        stands_for: dict[str, int] = {}
        before: int | None = None
        for node, kind in enumerate(lines.types):
            lost = lines.tree.missing_parent(node)
            if lost is not None and before is not None:
                parent = stands_for.setdefault(lost, before)
                relinks.append(Reparenting(node, parent, "it stands where the lost parent stood"))
            if kind not in self.bookkeeping:
                before = node
        return relinks

    def with_parent(self, raw: bytes, parent: str | None) -> bytes:
        return replace_field(raw, self.parent_key, parent)

    def with_id(self, raw: bytes, id: str) -> bytes:
        return replace_field(raw, self.id_key, id)

    def build_context(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> Context:
        return build_context(path_of(lines, self.find_path(lines, leaf, read_options)), self.rules)

    def find_title(self, lines: IndexedLines) -> str | None:
        return lines.header.title if lines.header else None

    def find_given_title(self, lines: IndexedLines) -> str | None:
        return self.find_title(lines)

    def find_config(self, lines: IndexedLines) -> Config:
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "config":
                (entry,) = lines.entries([node])
                return entry.config if isinstance(entry, ConfigChange) else Config()
        return Config()

    def is_truncated(self, text: str) -> bool:
        return False

    def find_git_branch(self, lines: IndexedLines) -> str | None:
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "worktree":
                (entry,) = lines.entries([node])
                return entry.branch if isinstance(entry, Worktree) else None
        return None

    def find_related_files(self, lines: IndexedLines) -> list[RelatedFile]:
        return []

    def find_session_ids(self, lines: IndexedLines) -> list[str]:
        return [lines.header.id] if lines.header else []

    def blob_folder(self, location: str) -> str | None:
        return None

    def find_history(self, lines: IndexedLines, leaf: int | None, read_options: ReadOptions) -> list[int]:
        return self.find_path(lines, leaf, read_options)

    def decode(self, lines: IndexedLines, nodes: Sequence[int]) -> Iterator[CanonicalEntry]:
        """Lines of the native shape, every field as it stands there."""
        for start in range(0, len(nodes), _TOLD_TOGETHER):
            step = nodes[start : start + _TOLD_TOGETHER]
            for node, fields in zip(step, lines.resolved_fields(step), strict=True):
                yield native_entry(lines.types[node], lines.tree.ids[node], fields)

    def must_decode_together(self, lines: IndexedLines, node: int, child: int) -> bool:
        """The results of an answer: formats that write them in one line need them in a row."""
        if lines.types[child] != "message":
            return False
        (fields,) = lines.fields([child])
        message = fields.get("message")
        return isinstance(message, dict) and message.get("role") == "toolResult"

    def encode_fork(self, lines: IndexedLines, leaf: int | None, meta: SessionMeta) -> Iterator[bytes]:
        raise ReadOnlyError(f"sessions of {self.name} cannot be written")

    def encoder(self, meta: SessionMeta, lines: IndexedLines | None = None) -> Encoder:
        raise ReadOnlyError(f"sessions of {self.name} cannot be written")

    def destination(self, meta: SessionMeta, environment: Mapping[str, str]) -> Destination:
        raise ReadOnlyError(f"sessions of {self.name} cannot be written")

    def session_roots(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return ()

    def classify_file(self, root: str, relative: str) -> SessionFile | None:
        return SessionFile() if is_session_name(relative) else None

    def session_cwds(self, root: str, read: Callable[[str], bytes | None]) -> Mapping[str, str]:
        return {}

    def render_header(self, header: Header) -> bytes:
        raise ReadOnlyError(f"sessions of {self.name} cannot be written")

    def render_entry(self, kind: str, id: str, parent: str | None, timestamp: str, fields: Mapping[str, Any]) -> bytes:
        raise ReadOnlyError(f"sessions of {self.name} cannot be written")


def is_session_name(relative: str) -> bool:
    """Whether a file is called like one with lines: not hidden, no backup, no file that is still being written."""
    return relative.endswith(".jsonl") and not relative.rpartition("/")[2].startswith(".")


def native_entry(kind: str, id: str, line: dict[str, Any]) -> CanonicalEntry:
    """A line of the native shape as an item, with what rode along on it put back."""
    fields = {name: value for name, value in line.items() if name not in _OUTSIDE}
    timestamp = line.get("timestamp")
    entry = CanonicalEntry(kind, fields, id, timestamp if isinstance(timestamp, str) else "")
    return restore_entry(entry, passthrough_of(line)) if PASSTHROUGH in line else entry


def reparented_path(tree: Tree, leaf: int | None, links: Mapping[int, int]) -> list[int]:
    """Root to leaf over some better links; a link that would lead in a circle is not taken."""
    path: list[int] = []
    seen: set[int] = set()
    node = leaf
    while node is not None and node not in seen:
        seen.add(node)
        path.append(node)
        node = links.get(node, tree.parent(node))
    path.reverse()
    return path


def replace_field(raw: bytes, key: str, value: str | None) -> bytes:
    """A line with one top-level field changed in place; the whole line is rendered anew only if that cannot be done."""
    fields = parse_json(raw)
    wanted = {**fields, key: value}
    pattern = re.compile(rb'("%b"\s*:\s*)(?:null|"(?:[^"\\]|\\.)*")' % re.escape(render_json(key)[1:-1]))
    for found in pattern.finditer(raw):
        changed = raw[: found.start()] + found[1] + render_json(value) + raw[found.end() :]
        try:
            if parse_json(changed) == wanted:
                return changed
        except ValueError:
            continue  # the same words inside a text
    return render_json(wanted)


def decode_wires(decode_lines: Callable[[memoryview], list[WireT]], data: memoryview) -> list[WireT] | None:
    """The outsides of a block of lines in one call; None when any line is not what the decoder expects."""
    try:
        return decode_lines(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def path_of(lines: IndexedLines, nodes: list[int]) -> Path:
    """Nodes as a path whose entries can be asked for."""
    ids, types = lines.tree.ids, lines.types
    return Path(
        [ids[node] for node in nodes],
        [types[node] for node in nodes],
        lambda positions: lines.entries([nodes[at] for at in positions]),
    )
