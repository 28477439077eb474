"""Which sessions there are to tidy. The library knows them all; here is the contract, and a plain way to ask."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.archive.allowed_paths import iter_beside
from sessiontree.archive.catalog import About
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.defaults import is_session_name
from sessiontree.errors import SessionTreeError
from sessiontree.library.library import Library
from sessiontree.library.summary import Summary
from sessiontree.session.open import open
from sessiontree.session.session import Session


class Candidate(Struct, frozen=True):
    """What tidying has to know of a session."""

    path: str
    agent: str
    id: str
    active: int | None
    """The time of the last message in milliseconds since 1970, never the date of the file; None when nothing tells."""
    title: str = ""
    named: bool | None = False
    """Whether someone gave it a name; None when that was not looked up."""
    labelled: bool | None = False
    """Whether an entry has a label; None when that was not looked up."""
    pinned: bool = False
    size: int = 0
    """With the files in its folder."""
    cwd: str | None = None
    """The working folder; None when that was not looked up."""
    is_dated: bool = True
    """Whether `active` is surely right; else it may have been used later."""

    @property
    def about(self) -> About:
        return About(self.path, self.agent, self.id, self.title)


class Sessions(Protocol):
    """Gives all sessions.

    Contract: sub-agents are no sessions of their own; a file that cannot be read is left out; nothing is written. What
    would take long to find out may be left open (see `Candidate`); whoever needs it looks closer. Pins are for the
    marks to say.
    """

    def __call__(self) -> Iterable[Candidate]: ...


def known_roots(
    home: str, environment: Mapping[str, str] = os.environ, chosen: Mapping[str, Sequence[str]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Dialect -> the folders where its owner keeps sessions, or those chosen instead; they need not exist."""
    around = {**environment, "SESSIONTREE_HOME": home}
    roots: dict[str, tuple[str, ...]] = {}
    for name in plugins.names("dialects"):
        dialect: Dialect = plugins.load("dialects", name)
        roots[name] = tuple((chosen or {}).get(name) or dialect.session_roots(around))
    return roots


def sessions_in(roots: Iterable[str]) -> Iterator[Candidate]:
    """The sessions below some folders, each opened and looked at."""
    reals = [os.path.realpath(os.path.expanduser(root)) for root in roots]
    for path in iter_session_files(reals):
        try:
            session = open(path)
        except SessionTreeError:
            continue
        if any(_is_session(session.dialect, root, path) for root in reals):
            yield candidate(session)
        session.close()


def candidates_in_library(library: Library) -> Iterator[Candidate]:
    """All sessions of a library, from its cached summaries: no file is opened. Sub-agents are left out.

    A field that a summary cannot answer for sure is None: labels always; of a file that was read only in part also the
    name, and the last message if it may be in the part between.
    """
    for summary in library.sessions():
        if _is_not_a_session(summary):
            continue
        try:
            size = whole_size(summary.path)
        except OSError:
            continue  # it was deleted meanwhile
        yield Candidate(
            path=summary.path,
            agent=summary.agent,
            id=summary.id,
            active=summary.active,
            title=summary.title,
            named=summary.named if summary.is_whole else None,
            labelled=None,
            size=size,
            cwd=summary.cwd if summary.cwd or summary.is_whole else None,
            is_dated=summary.dated,
        )


def _is_not_a_session(summary: Summary) -> bool:
    """Whether the whole file was read, or nothing of it could be, and no message or time was found in it."""
    return summary.is_whole and summary.created is None and summary.active is None and not summary.messages


def look_closer(one: Candidate) -> Candidate | None:
    """The same with everything looked up in the file; None when that cannot be read."""
    try:
        session = open(one.path)
    except SessionTreeError:
        return None
    found = candidate(session)
    session.close()
    return msgspec.structs.replace(one, active=found.active, is_dated=True, named=found.named, labelled=found.labelled)


def candidate(session: Session) -> Candidate:
    """One session, looked at."""
    path = session.location
    return Candidate(
        path=path,
        agent=session.dialect.name,
        id=session.id,
        active=milliseconds(session.last_activity),
        title=session.name or "",
        named=session.given_name is not None,
        labelled=bool(session.labels),
        size=whole_size(path),
        cwd=session.cwd,
    )


def whole_size(path: str) -> int:
    """The bytes of a session file and of the files in its folder."""
    return sum(os.path.getsize(file) for file in (path, *iter_beside(path)))


def milliseconds(timestamp: str | None) -> int | None:
    """An ISO time as milliseconds since 1970; None when it is none."""
    try:
        return int(datetime.fromisoformat(timestamp or "").timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def iter_session_files(roots: Iterable[str]) -> Iterator[str]:
    """The real paths of all files below some folders that are called like a session; links are not followed."""
    seen: set[str] = set()
    for root in roots:
        for folder, folders, names in os.walk(os.path.realpath(os.path.expanduser(root)), followlinks=False):
            folders.sort()
            for name in sorted(names):
                path = os.path.join(folder, name)
                if is_session_name(name) and path not in seen and os.path.isfile(path) and not os.path.islink(path):
                    seen.add(path)
                    yield path


def _is_session(dialect: Dialect, root: str, path: str) -> bool:
    if not path.startswith(root + os.sep):
        return False
    found = dialect.classify_file(root, os.path.relpath(path, root))
    return found is not None and found.kind == "session"
