"""One home folder with what tidying needs of it: the known roots, the archive, the marks, the sessions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from sessiontree import places
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.ids import SHORTEST_PREFIX
from sessiontree.opening import looks_like_path, open
from sessiontree.session import Session
from sessiontree.stores.system import SYSTEM, System
from sessiontree.tidying.archive import Archive
from sessiontree.tidying.bounds import Bounds
from sessiontree.tidying.candidates import Candidate, Sessions, iter_session_files, known_roots, sessions_in
from sessiontree.tidying.index import About
from sessiontree.tidying.marks import Marks


class Home:
    """Where everything of one user is."""

    def __init__(
        self,
        folder: str | None = None,
        *,
        environment: Mapping[str, str] = os.environ,
        roots: Sequence[str] | None = None,
        sessions: Sessions | None = None,
        system: System = SYSTEM,
    ) -> None:
        self.folder = os.path.abspath(folder) if folder is not None else places.home()
        self.environment = environment
        self.roots = list(roots) if roots is not None else known_roots(self.folder, environment)
        self.bounds = Bounds(self.roots)
        self.archive = Archive(os.path.join(self.folder, "archive"), self.bounds, system=system)
        self.marks = Marks(self.folder, system=system)
        self._sessions = sessions

    def sessions(self) -> Iterable[Candidate]:
        """All sessions: as the one who made this home gives them, else each file is opened and looked at."""
        return self._sessions() if self._sessions is not None else sessions_in(self.roots, self.marks)

    def open(self, wanted: str) -> Session:
        """A session by its path, or by its id or a beginning of it, whoever wrote it."""
        if looks_like_path(wanted):
            return open(wanted, home=self.folder)
        found = [path for path in iter_session_files(self.roots) if len(wanted) >= 2 and _is_called(path, wanted)]
        exact = [path for path in found if _id_in_name(path) == wanted]
        found = exact or (found if len(wanted) >= SHORTEST_PREFIX else [])
        if not found:
            raise NotFoundError(f"no session file is called {wanted!r}; give a path, or 8 characters or more of its id")
        if len(found) > 1:
            shown = "\n".join(f"  {path}" for path in found[:20])
            raise AmbiguousError(f"{wanted!r} fits {len(found)} sessions; give a path:\n{shown}", tuple(found))
        return open(found[0], home=self.folder)


def about(session: Session) -> About:
    """What the archive is told of a session."""
    return About(os.path.realpath(session.location), session.dialect.name, session.id, session.name or "")


def _id_in_name(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0].rpartition("_")[2]


def _is_called(path: str, wanted: str) -> bool:
    return _id_in_name(path).startswith(wanted)
