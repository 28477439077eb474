"""Converted copies of sessions, in one document of the home folder: `<home>/copies.json`.

A record names the session a copy was made from and the state of that session at the time. Resuming the session in the
same agent again then reuses the copy, and listings show the copy below its origin. Session files are never
changed for this.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.stores.contract import DocumentStore

if TYPE_CHECKING:
    from sessiontree.session.session import Session  # listings read the document and open no session

_DOCUMENT = "copies.json"
_DAMAGED = "copies.json.damaged"


class Copy(Struct, frozen=True):
    """A converted copy, and the state of its origin when it was made."""

    origin: str
    """The reference of the session: for a file its real path."""
    size: int
    leaf: str | None
    agent: str
    """The dialect of the copy."""
    path: str
    id: str
    cwd: str
    command: tuple[str, ...] = ()
    """The command that resumes the copy; empty for one that is only listed, such as a copy of one of many branches."""


class CopyFile:
    """The records of all copies, in the document `copies.json` of a repository."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    def read(self) -> list[Copy]:
        """All records. A document that cannot be parsed counts as empty: sessions are only converted again."""
        return _parse(self._documents.read(_DOCUMENT)) or []

    def add(self, copy: Copy) -> None:
        """Record a copy; records of copies that do not exist anymore are removed.

        A document that cannot be parsed is kept next to the new one.
        """

        def update(data: bytes | None) -> bytes:
            known = _parse(data)
            if known is None:
                self._documents.update(_DAMAGED, lambda _: data)
            kept = [other for other in known or () if other.path != copy.path and os.path.lexists(other.path)]
            return render_json({"version": 1, "copies": msgspec.to_builtins([*kept, copy])}) + b"\n"

        self._documents.update(_DOCUMENT, update)

    def find_current(self, session: Session, agent: str, cwd: str) -> Copy | None:
        """The newest copy for an agent and a folder, if its session has not changed since it was made."""
        wanted = (origin_of(session), session.journal.size, session.leaf, agent, cwd)
        for copy in reversed(self.read()):
            found = (copy.origin, copy.size, copy.leaf, copy.agent, copy.cwd)
            if found == wanted and copy.command and os.path.lexists(copy.path):
                return copy
        return None


def _parse(data: bytes | None) -> list[Copy] | None:
    """The records in a document; None if it cannot be parsed."""
    if data is None:
        return []
    try:
        return msgspec.convert(parse_json(data)["copies"], list[Copy])
    except (ValueError, TypeError, LookupError):
        return None


def origin_of(session: Session) -> str:
    """The reference under which the copies of a session are recorded."""
    return os.path.realpath(session.ref.path) if session.ref.is_file else str(session.ref)
