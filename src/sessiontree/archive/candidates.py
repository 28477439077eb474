"""The sessions that can be cleaned: from the library's summaries, or by opening every file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.archive.allowed_paths import iter_related_files
from sessiontree.archive.catalog import SessionInfo
from sessiontree.dialects.contract import Locations
from sessiontree.dialects.defaults import is_session_name
from sessiontree.errors import SessionTreeError
from sessiontree.library.library import Library
from sessiontree.library.summary import Summary
from sessiontree.session.open import open
from sessiontree.session.session import Session


class Candidate(Struct, frozen=True):
    """A session as far as cleaning needs to know it. None means: not looked up."""

    path: str
    agent: str
    id: str
    active: int | None
    """Time of the last message in milliseconds since 1970, never the file's mtime; None if it has no times."""
    title: str = ""
    named: bool | None = False
    """Whether the user named it."""
    labeled: bool | None = False
    """Whether an entry has a label."""
    pinned: bool = False
    size: int = 0
    """Bytes, including the files in its folder."""
    cwd: str | None = None
    is_dated: bool = True
    """Whether `active` is exact; if not, there may be a later message."""

    @property
    def info(self) -> SessionInfo:
        return SessionInfo(self.path, self.agent, self.id, self.title)


class Sessions(Protocol):
    """Lists all sessions.

    Contract: sub-agents are left out, and so are files that cannot be read; nothing is written. Fields that are slow to
    find out may be None (see `Candidate`). Pins are not part of it; they are in the tags.
    """

    def __call__(self) -> Iterable[Candidate]: ...


def known_roots(
    home: str, environment: Mapping[str, str] = os.environ, chosen: Mapping[str, Sequence[str]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Dialect -> the session folders of its client, or those chosen instead; they need not exist."""
    variables = {**environment, "SESSIONTREE_HOME": home}
    roots: dict[str, tuple[str, ...]] = {}
    for name in plugins.names("dialects"):
        dialect: Locations = plugins.load("dialects", name)
        roots[name] = tuple((chosen or {}).get(name) or dialect.session_roots(variables))
    return roots


def iter_candidates(roots: Iterable[str]) -> Iterator[Candidate]:
    """The sessions below some folders; opens every file."""
    real_roots = [os.path.realpath(os.path.expanduser(root)) for root in roots]
    for path in iter_session_files(real_roots):
        try:
            session = open(path)
        except SessionTreeError:
            continue
        if any(_is_session(session.dialect, root, path) for root in real_roots):
            yield build_candidate(session)
        session.close()


def iter_library_candidates(library: Library) -> Iterator[Candidate]:
    """The sessions of a library, from its cached summaries; opens no file.

    A field is None if the summary does not have it. That is always so for labels. For a file that was only read in
    part, the name is missing too, and so is the last message if it may be in the part that was not read.
    """
    for summary in library.sessions():
        if _is_empty(summary) or not (summary.is_file or library.is_stored(summary)):
            continue
        try:
            size = total_size(summary.path) if summary.is_file else summary.size
        except OSError:
            continue  # deleted meanwhile
        yield Candidate(
            path=summary.ref,
            agent=summary.agent,
            id=summary.id,
            active=summary.active,
            title=summary.title,
            named=summary.named if summary.is_whole else None,
            labeled=None,
            size=size,
            cwd=summary.cwd if summary.cwd or summary.is_whole else None,
            is_dated=summary.dated,
        )


def _is_empty(summary: Summary) -> bool:
    """Whether a file was read completely, or not at all, without finding a message or a time: not a session."""
    return summary.is_whole and summary.created is None and summary.active is None and not summary.messages


def read_details(candidate: Candidate) -> Candidate | None:
    """Look up all fields by opening the file; None if it cannot be read."""
    try:
        session = open(candidate.path)
    except SessionTreeError:
        return None
    found = build_candidate(session)
    session.close()
    return msgspec.structs.replace(
        candidate, active=found.active, is_dated=True, named=found.named, labeled=found.labeled
    )


def build_candidate(session: Session) -> Candidate:
    return Candidate(
        path=session.location,
        agent=session.dialect.name,
        id=session.id,
        active=parse_milliseconds(session.last_activity),
        title=session.name or "",
        named=session.given_name is not None,
        labeled=bool(session.labels),
        size=total_size(session.location) if session.ref.is_file else session.journal.size,
        cwd=session.cwd,
    )


def total_size(path: str) -> int:
    """The size of a session file and of the files in its folder."""
    return sum(os.path.getsize(file) for file in (path, *iter_related_files(path)))


def parse_milliseconds(timestamp: str | None) -> int | None:
    """Convert an ISO time to milliseconds since 1970; None if it is not one."""
    try:
        return int(datetime.fromisoformat(timestamp or "").timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def iter_session_files(roots: Iterable[str]) -> Iterator[str]:
    """The real paths of all files below some folders that are named like a session; links are not followed."""
    seen: set[str] = set()
    for root in roots:
        for folder, folders, names in os.walk(os.path.realpath(os.path.expanduser(root)), followlinks=False):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                if is_session_name(name) and path not in seen and os.path.isfile(path) and not os.path.islink(path):
                    seen.add(path)
                    yield path


def _is_session(dialect: Locations, root: str, path: str) -> bool:
    if not path.startswith(root + os.sep):
        return False
    found = dialect.classify_file(root, os.path.relpath(path, root))
    return found is not None and found.kind == "session"
