"""One home folder with what tidying needs of it: the known roots, the archive, the marks, the sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from sessiontree import paths
from sessiontree.archive.allowed_paths import Bounds
from sessiontree.archive.archive import Archive
from sessiontree.archive.candidates import Candidate, Sessions, iter_session_files, known_roots, sessions_in
from sessiontree.archive.catalog import About
from sessiontree.archive.tags import Marks
from sessiontree.core.ids import SHORTEST_PREFIX
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.session.open import looks_like_path, open
from sessiontree.session.session import Session
from sessiontree.stores.os_calls import OS_CALLS, OsCalls


class Home:
    """Where everything of one user is."""

    def __init__(
        self,
        folder: str | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        roots: Mapping[str, Sequence[str]] | None = None,
        sessions: Sessions | None = None,
        find: Callable[[str], str] | None = None,
        os_calls: OsCalls = OS_CALLS,
    ) -> None:
        """`roots` are folders chosen for a dialect instead of its own.

        `sessions` gives all sessions, and `find` the path of the one that a text means; without them each file is
        opened and looked at, and sessions are found by their paths and by the ids in the names of files.
        """
        self.folder = os.path.abspath(folder) if folder is not None else paths.home()
        self.environment = environment
        self.roots_of = known_roots(self.folder, environment, roots)
        self.roots = list(dict.fromkeys(root for folders in self.roots_of.values() for root in folders))
        self.bounds = Bounds(self.roots)
        self.archive = Archive(os.path.join(self.folder, "archive"), self.bounds, os_calls=os_calls)
        self.marks = Marks(self.folder, os_calls=os_calls)
        self._sessions = sessions
        self._find = find or self._find_by_name

    def sessions(self) -> Iterator[Candidate]:
        """All sessions, with what the marks say about them."""
        mark_of = self.marks.lookup()
        for one in self._sessions() if self._sessions is not None else sessions_in(self.roots):
            is_pinned = mark_of(one.id, one.path).pinned
            yield msgspec.structs.replace(one, pinned=True) if is_pinned else one

    def open(self, wanted: str) -> Session:
        """The session that a text means, whoever wrote it: its path, id, a beginning of that, or what `find` knows."""
        return open(wanted if looks_like_path(wanted) else self._find(wanted), home=self.folder)

    def _find_by_name(self, wanted: str) -> str:
        found = [path for path in iter_session_files(self.roots) if len(wanted) >= 2 and _is_called(path, wanted)]
        exact = [path for path in found if _id_in_name(path) == wanted]
        found = exact or (found if len(wanted) >= SHORTEST_PREFIX else [])
        if not found:
            raise NotFoundError(f"no session file is called {wanted!r}; give a path, or 8 characters or more of its id")
        if len(found) > 1:
            shown = "\n".join(f"  {path}" for path in found[:20])
            raise AmbiguousError(f"{wanted!r} fits {len(found)} sessions; give a path:\n{shown}", tuple(found))
        return found[0]


def about(session: Session) -> About:
    """What the archive is told of a session."""
    return About(os.path.realpath(session.location), session.dialect.name, session.id, session.name or "")


def _id_in_name(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0].rpartition("_")[2]


def _is_called(path: str, wanted: str) -> bool:
    return _id_in_name(path).startswith(wanted)
