"""Writing in a dialect: what a encoder is given, and what it gives back.

A conversation is told in canonical form, one `Item` for each entry, parents before children, and a encoder writes each
in its dialect's own form: one line, several (the shards of a response), or none of its own (what the format has no
place for rides along, see `passthrough`). The same encoder makes a new file (`begin`, `add`..., `end`) and continues
one that is there (`add` alone). A encoder is pure: it makes bytes and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from sessiontree.core.entries import Config, ForkOrigin, KeptLargeContent

NoteKind = Literal["mapped", "changed", "aside", "dropped"]
"""What became of something: said in other words, said differently, kept where the client does not look, or left out."""


class LossNote(Struct, frozen=True, gc=False):
    """One thing a target could not take as it was. `what` names it in the plural, so that notes can be counted."""

    kind: NoteKind
    what: str
    why: str


class CanonicalEntry(Struct, frozen=True, gc=False):
    """An entry in canonical form: the native type and the native fields beyond the envelope, as decoded JSON.

    `message` items hold one message each. A compaction's `firstKeptEntryId`, a label's `targetId` and the like are ids
    of the session the items come from; a encoder knows what became of them.
    """

    kind: str
    fields: dict[str, Any]
    id: str = ""
    """The entry's id where it comes from; empty for one that is new."""
    timestamp: str = ""
    aliases: tuple[str, ...] = ()
    """More ids that mean this entry where it comes from: other shards of a response, other lines of a compaction."""


class SessionMeta(Struct, frozen=True):
    """What is told of a session before its first entry."""

    id: str
    timestamp: str
    cwd: str = ""
    title: str | None = None
    git_branch: str | None = None
    config: Config | None = None
    forked_from: ForkOrigin | None = None
    origin: str | None = None
    """The file of the session this one comes from, for formats that keep lineage by path."""
    large_content: KeptLargeContent | None = None


class Encoded(Struct, frozen=True, gc=False):
    """What an item became."""

    id: str | None
    """What the target calls the entry: the parent of what follows it. For an item without a place in the target's tree
    it is the id of the parent it was given."""
    lines: Sequence[bytes] = ()
    """Lines to append, without LF. They may come later, with another item or at the end."""
    notes: Sequence[LossNote] = ()
    overwrite: tuple[int, bytes] | None = None
    """Bytes to put over as many at an offset, for what an client keeps in a fixed place."""
    rewrite: Sequence[bytes] | None = None
    """All lines of the file anew, for what an client can only say by another order of lines."""


class Encoder(Protocol):
    """Writes one session in a dialect's own form.

    Contract:
    * `add` takes a parent by the id that `add` gave for it (or, in a file that is continued, by the id the file has);
      None makes a root. It never raises for content, however odd: what cannot be said is noted.
    * An id the items come with is kept if the format takes it; otherwise the new one follows from the old one and the
      session's id alone, so that the same session converted twice gives the same lines.
    * What was written is a session its client resumes, and in which doctor finds nothing.
    """

    def prologue(self) -> Sequence[bytes]:
        """The lines before the first entry."""
        ...

    def encode(self, entry: CanonicalEntry, parent: str | None) -> Encoded: ...

    def epilogue(self, leaf: str | None) -> Sequence[bytes]:
        """The lines behind the last entry, which make the session stand at `leaf` (an id that `add` gave)."""
        ...


class Destination(Struct, frozen=True):
    """Where a dialect's client looks for a session, and how it is told to go on with it."""

    path: str
    resume: tuple[str, ...]
    """The command that resumes it there, run in the session's folder."""
