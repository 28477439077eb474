"""Tags, pins and saved worktrees of sessions, in one document of their repository: `<home>/marks.json`.

Session files are never changed for this. A record is found by session id and path; after a move, by id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.errors import DamagedError
from sessiontree.git.worktree import WorktreeState
from sessiontree.library.summary import TAG_DOCUMENT, Summary
from sessiontree.session.session import Session
from sessiontree.stores.contract import DocumentStore


class SessionTags(Struct, frozen=True, omit_defaults=True):
    """What the user attached to one session."""

    session: str
    path: str
    tags: tuple[str, ...] = ()
    pinned: bool = False
    worktree: WorktreeState | None = None

    @property
    def is_empty(self) -> bool:
        return not self.tags and not self.pinned and self.worktree is None


class TagFile:
    """The tags of all sessions of a repository, in its document `marks.json`."""

    def __init__(self, documents: DocumentStore) -> None:
        self.documents = documents

    @property
    def path(self) -> str:
        return self.documents.location(TAG_DOCUMENT)

    def read(self) -> list[SessionTags]:
        """All records. `DamagedError` if the file cannot be parsed."""
        return self._parse(self.documents.read(TAG_DOCUMENT))

    def _parse(self, data: bytes | None) -> list[SessionTags]:
        if data is None:
            return []
        try:
            return msgspec.convert(parse_json(data)["marks"], list[SessionTags])
        # Not read as empty: the next change would write that back, and all tags would be lost.
        except (ValueError, TypeError, LookupError) as error:
            raise DamagedError(f"{self.path}: cannot be parsed: {error}; it was not changed") from None

    def find(self, session: str, path: str) -> SessionTags:
        """The record of a session; an empty one if it has none."""
        return find_tags(self.read(), session, path)

    def lookup(self) -> Callable[[str, str], SessionTags]:
        """`find` for many sessions, with the file read once."""
        records = self.read()
        return lambda session, path: find_tags(records, session, path)

    def change(self, session: str, path: str, change: Callable[[SessionTags], SessionTags]) -> SessionTags:
        """Change the record of a session; returns the new one, which is durable then."""
        changed: list[SessionTags] = []

        def update(data: bytes | None) -> bytes | None:
            records = self._parse(data)
            old = _find(records, session, path)
            new = msgspec.structs.replace(change(old or SessionTags(session, path)), session=session, path=path)
            changed.append(new)
            if new == old or (old is None and new.is_empty):
                return data
            others = [record for record in records if record is not old]
            kept = others if new.is_empty else [*others, new]
            return render_json({"version": 1, "marks": msgspec.to_builtins(kept)}) + b"\n"

        self.documents.update(TAG_DOCUMENT, update)
        return changed[-1]


def find_tags(records: list[SessionTags], session: str, path: str) -> SessionTags:
    """The record of a session among some; an empty one if it has none."""
    return _find(records, session, path) or SessionTags(session, path)


def tags_of_summaries(documents: DocumentStore, summaries: Iterable[Summary]) -> dict[str, SessionTags]:
    """The tags of those sessions of a listing that have any, by reference: the user's, then the agent's."""
    find = TagFile(documents).lookup()
    found = {}
    for summary in summaries:
        tags = find(summary.id, summary.ref)
        if summary.tags:
            tags = msgspec.structs.replace(tags, tags=tuple(dict.fromkeys((*tags.tags, *summary.tags))))
        if tags.tags or tags.pinned:
            found[summary.ref] = tags
    return found


def tagged_path(session: Session) -> str:
    """The path or the reference under which a session's record is stored."""
    return os.path.realpath(session.ref.path) if session.ref.is_file else str(session.ref)


def _find(records: list[SessionTags], session: str, path: str) -> SessionTags | None:
    """The record for a session file; else the one for the session id, if its file is gone and so was moved."""
    same = [tags for tags in records if tags.path == path and (tags.session in (session, "") or not session)]
    moved = (tags for tags in records if session and tags.session == session and not os.path.lexists(tags.path))
    return same[-1] if same else next(moved, None)
