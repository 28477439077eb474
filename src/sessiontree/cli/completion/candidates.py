"""Candidate values with descriptions: sessions, entries, dialects, archived items, settings.

TAB must be fast, so sessions come from the listing cache. Changed files are read as for a listing, unless there are
many; then the cache's state is used, and the next `list` reads them.

Imports are in the functions: a completion needs only one kind of value.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sessiontree import paths
from sessiontree.errors import NotFoundError

if TYPE_CHECKING:
    from sessiontree.library.summary import Summary

Value = tuple[str, str]
"""A value and its description. Both may be session content."""

Given = Mapping[str, Sequence[str]]
"""Values of other arguments on the same line, by name."""

_MOST_FILES_READ = 20
_LARGEST_OPENED = 32 << 20
_MOST_ENTRIES = 200


class _TooManyFilesError(Exception):
    """More files changed than can be read while the user waits."""


def iter_sessions(given: Given) -> Iterator[Value]:
    """Sessions, newest first: the id if it is unique, else the path."""
    from sessiontree.core.ids import is_session_id

    known = _known(given)
    counts = Counter(session.id for session in known)
    for session in sorted(known, key=lambda session: session.recency, reverse=True):
        if session.kind == "session" and session.id not in given.get("sessions", ()):
            is_unique = counts[session.id] == 1 and is_session_id(session.id)
            yield session.id if is_unique else session.ref, session.title
    listed = {session.ref for session in known}
    for id, path in paths.iter_session_files(_home(given)):
        if os.path.realpath(path) not in listed and id not in counts:
            yield id, ""  # newer than the cache


def iter_entries(given: Given, typed: str) -> Iterator[Value]:
    """Labels of the session on the line, then its newest entries whose id begins with `typed`."""
    from sessiontree.core.entries import CONVERSATION_TYPES
    from sessiontree.session.open import open
    from sessiontree.views.graph import gist

    for name in given.get("session", ())[:1]:
        path = _path_of(name, given)
        if os.path.getsize(path) > _LARGEST_OPENED:
            return  # opening it takes too long
        session = open(path, home=_last(given, "home"), dialect=_last(given, "dialect"))
        labels = session.labels
        messages = [
            id for id in reversed(session.ids) if session.type_of(id) in CONVERSATION_TYPES and id.startswith(typed)
        ]
        offered = [*labels, *messages[:_MOST_ENTRIES]]
        for value, entry in zip([*labels.values(), *messages], session.entries(offered), strict=False):
            yield value, gist(entry)


def iter_dialects() -> Iterator[Value]:
    from sessiontree import plugins

    return ((name, "") for name in plugins.names("dialects"))


def iter_archived(given: Given) -> Iterator[Value]:
    """Archived items, newest first."""
    from sessiontree.archive.archive_home import Home
    from sessiontree.stores.repositories import home_folder

    items = Home(home_folder(_last(given, "home"))).archive.items()
    return ((item.id, item.title or item.session) for item in reversed(items))


def iter_settings() -> Iterator[Value]:
    from sessiontree.settings.known import iter_settings

    return ((setting.key, setting.description) for setting in iter_settings())


def _known(given: Given) -> list[Summary]:
    """All sessions that can be listed quickly, including sub-agents, because their ids must also differ."""
    from sessiontree.library.library import Library
    from sessiontree.library.roots import parse_roots

    def stop_at_many(_: int, of: int) -> None:
        if of > _MOST_FILES_READ:
            raise _TooManyFilesError

    with Library(_last(given, "home"), parse_roots(given.get("root", ())), progress=stop_at_many) as library:
        try:
            return library.everything()
        except _TooManyFilesError:
            return [one for one in library.snapshot().sessions if not one.is_file or os.path.exists(one.path)]


def _path_of(name: str, given: Given) -> str:
    """The file of the session that a word on the line names."""
    from sessiontree.session.open import looks_like_path

    path = os.path.expanduser(name)
    if looks_like_path(path):
        return path
    with contextlib.suppress(NotFoundError):
        return paths.find_session_file(_home(given), name)
    known = _known(given)
    exact = [session.ref for session in known if session.id == name]
    found = exact or [s.ref for s in known if name and s.id.startswith(name)]
    if len(found) != 1:
        raise NotFoundError(f"{name!r} matches {len(found)} sessions")
    return found[0]


def _home(given: Given) -> str:
    return _last(given, "home") or paths.home()


def _last(given: Given, name: str) -> str | None:
    """The last value given for an option."""
    return os.path.expanduser(given[name][-1]) if given.get(name) else None
