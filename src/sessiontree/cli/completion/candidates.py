"""Values for arguments: sessions with their titles, entries with what they say, dialects, things in the archive.

A key pressed has to be answered at once, so sessions come from the listing cache. The disk is looked at as a listing
does, but when that would mean to read many files, what the cache knows is good enough, and the next `list` reads them.
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
"""What is put on the line, and what is said about it. Both may be session content."""

Given = Mapping[str, Sequence[str]]
"""Values of other arguments on the same line, by name."""

_MOST_FILES_READ = 20
_LARGEST_OPENED = 32 << 20
_MOST_ENTRIES = 200


class _TooManyFilesError(Exception):
    """More has changed on the disk than can be read while someone waits."""


def iter_sessions(given: Given) -> Iterator[Value]:
    """Sessions, the newest first: the id where it means this session and no other, else the path."""
    from sessiontree.core.ids import is_session_id

    known = _known(given)
    times = Counter(one.id for one in known)
    for one in sorted(known, key=lambda one: one.recency, reverse=True):
        if one.kind == "session" and one.id not in given.get("sessions", ()):
            yield one.id if times[one.id] == 1 and is_session_id(one.id) else one.path, one.title
    listed = {one.path for one in known}
    for id, path in paths.iter_session_files(_home(given)):
        if os.path.realpath(path) not in listed and id not in times:
            yield id, ""  # newer than what the cache knows


def iter_entries(given: Given, typed: str) -> Iterator[Value]:
    """Labels of the session on the line, then its newest entries that begin like this, with what they say."""
    from sessiontree.session.open import open
    from sessiontree.views.graph import SPEAKING, gist

    for wanted in given.get("session", ())[:1]:
        path = _path_of(wanted, given)
        if os.path.getsize(path) > _LARGEST_OPENED:
            return  # opening it takes longer than anyone waits for a key
        session = open(path, home=_last(given, "home"), dialect=_last(given, "dialect"))
        labels = session.labels
        spoken = [id for id in reversed(session.ids) if session.type_of(id) in SPEAKING and id.startswith(typed)]
        offered = [*labels, *spoken[:_MOST_ENTRIES]]
        for value, entry in zip([*labels.values(), *spoken], session.entries(offered), strict=False):
            yield value, gist(entry)


def iter_dialects() -> Iterator[Value]:
    from sessiontree import plugins

    return ((name, "") for name in plugins.names("dialects"))


def iter_archived(given: Given) -> Iterator[Value]:
    """What can be restored, the newest first."""
    from sessiontree.archive.archive_home import Home

    items = Home(_last(given, "home")).archive.items()
    return ((item.id, item.title or item.session) for item in reversed(items))


def iter_settings() -> Iterator[Value]:
    from sessiontree.settings.known import iter_settings

    return ((setting.key, setting.description) for setting in iter_settings())


def _known(given: Given) -> list[Summary]:
    """Every session that can be told without reading much; also sub-agents, whose ids count, too."""
    from sessiontree.library.library import Library
    from sessiontree.library.roots import parse_roots

    def stop_at_many(_: int, of: int) -> None:
        if of > _MOST_FILES_READ:
            raise _TooManyFilesError

    with Library(_last(given, "home"), parse_roots(given.get("root", ())), progress=stop_at_many) as library:
        try:
            return library.everything()
        except _TooManyFilesError:
            rows = library.cache.rows(root.folder for root in library.roots)
            return [one for path, row in rows.items() if (one := row.summary) is not None and os.path.exists(path)]


def _path_of(wanted: str, given: Given) -> str:
    """The file of the session that a word on the line means."""
    from sessiontree.core.ids import SHORTEST_PREFIX
    from sessiontree.session.open import looks_like_path

    path = os.path.expanduser(wanted)
    if looks_like_path(path):
        return path
    with contextlib.suppress(NotFoundError):
        return paths.find_session_file(_home(given), wanted)
    known = _known(given)
    exact = [one.path for one in known if one.id == wanted]
    found = exact or [one.path for one in known if len(wanted) >= SHORTEST_PREFIX and one.id.startswith(wanted)]
    if len(found) != 1:
        raise NotFoundError(f"{wanted!r} means {len(found)} sessions")
    return found[0]


def _home(given: Given) -> str:
    return _last(given, "home") or paths.home()


def _last(given: Given, name: str) -> str | None:
    """The value of an option that can be given once: the last one counts."""
    return os.path.expanduser(given[name][-1]) if given.get(name) else None
