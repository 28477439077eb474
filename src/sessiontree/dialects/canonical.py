"""Canonical entries: a session independent of its dialect, and the encoder that turns them into a dialect's lines.

A dialect decodes lines into one `CanonicalEntry` for each entry, parents before children. An encoder turns each into
lines of its dialect: one line, several (the shards of a response), or none of its own. Content that the format cannot
store becomes passthrough data (see `passthrough`). The same encoder writes a new file (`prologue`, `encode`...,
`epilogue`) and continues an existing one (`encode` alone). It is pure: it returns bytes and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from sessiontree.core.entries import Config, ForkOrigin, KeptLargeContent

NoteKind = Literal["mapped", "changed", "aside", "dropped"]
"""Mapped to an equivalent, changed, kept where the client ignores it, or left out."""


class LossNote(Struct, frozen=True, gc=False):
    """A note about content that a target could not store unchanged. `what` is plural, so that notes can be counted."""

    kind: NoteKind
    what: str
    why: str


class CanonicalEntry(Struct, frozen=True, gc=False):
    """An entry in canonical form: the native type and the native fields beyond the envelope, as decoded JSON.

    A `message` entry has one message. References to other entries (`firstKeptEntryId`, `targetId` ...) are ids of the
    source session; an encoder replaces them.
    """

    kind: str
    fields: dict[str, Any]
    id: str = ""
    """The entry's id in the source; empty for a new entry."""
    timestamp: str = ""
    aliases: tuple[str, ...] = ()
    """Other ids of this entry in the source: further shards of a response, further lines of a compaction."""


class SessionMeta(Struct, frozen=True):
    """Facts about a session that an encoder needs before its first entry."""

    id: str
    timestamp: str
    cwd: str = ""
    title: str | None = None
    git_branch: str | None = None
    config: Config | None = None
    forked_from: ForkOrigin | None = None
    origin: str | None = None
    """The file of the session this one was forked from, for formats that record the origin by path."""
    large_content: KeptLargeContent | None = None


class Encoded(Struct, frozen=True, gc=False):
    """The result of encoding an entry."""

    id: str | None
    """The entry's id in the target: the parent of the next entry. For an entry outside the target's tree, the id of the
    parent that was passed in."""
    lines: Sequence[bytes] = ()
    """Lines to append, without LF. They may come later, with another entry or in the epilogue."""
    notes: Sequence[LossNote] = ()
    overwrite: tuple[int, bytes] | None = None
    """Offset and bytes to overwrite, for data that a client stores at a fixed position."""
    rewrite: Sequence[bytes] | None = None
    """All lines of the new file, for changes that require another order of lines."""


class Encoder(Protocol):
    """Encodes one session in a dialect's format.

    Contract:
    * The parent is an id that `encode` returned (or, in an existing file, an id of the file); None makes a root. No
      content raises an error, however unusual: what cannot be encoded is noted.
    * An entry keeps its id if the format allows it; otherwise the new id depends on the old one and the session's id
      alone, so that converting the same session twice gives the same lines.
    * The result is a session that its client resumes, and in which doctor finds no problem.
    """

    def prologue(self) -> Sequence[bytes]:
        """The lines before the first entry."""
        ...

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded: ...

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        """The lines after the last entry, which make `leaf` (an id that `encode` returned) the current entry."""
        ...


class Destination(Struct, frozen=True):
    """Where a client looks for a session, and the command that resumes it. Commands run in the working directory."""

    path: str
    resume: tuple[str, ...]
    install: tuple[str, ...] = ()
    """The client's own command that imports the file at `path`, for a client that keeps its sessions elsewhere."""
