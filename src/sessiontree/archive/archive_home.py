"""A home folder as the archive commands use it: session roots, archive, tags and sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from sessiontree import paths
from sessiontree.archive.allowed_paths import AllowedPaths
from sessiontree.archive.archive import Archive
from sessiontree.archive.candidates import Candidate, Sessions, iter_candidates, iter_session_files, known_roots
from sessiontree.archive.catalog import SessionInfo
from sessiontree.archive.tags import TagFile
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.session.open import looks_like_path, open
from sessiontree.session.session import Session
from sessiontree.stores.contract import not_a_file
from sessiontree.stores.os_calls import OS_CALLS, OsCalls
from sessiontree.stores.repositories import FileDocuments


class Home:
    """The archive, the tags and the sessions of one user."""

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
        """`roots` replaces the folders of single dialects.

        `sessions` lists all sessions, and `find` returns the path of the session that a text names. By default every
        file is opened, and sessions are found by path or by the id in their file name.
        """
        self.folder = os.path.abspath(folder) if folder is not None else paths.home()
        self.environment = environment
        self.roots_by_dialect = known_roots(self.folder, environment, roots)
        self.roots = list(dict.fromkeys(root for folders in self.roots_by_dialect.values() for root in folders))
        self.allowed_paths = AllowedPaths(self.roots)
        self.archive = Archive(os.path.join(self.folder, "archive"), self.allowed_paths, os_calls=os_calls)
        self.tags = TagFile(FileDocuments(self.folder, os_calls=os_calls))
        self._sessions = sessions
        self._find = find or self._find_by_name

    def tags_of(self, session: Session) -> TagFile:
        """The tags of the repository of a session: for files of any client, those of the home folder."""
        return self.tags if not session.ref.home else TagFile(session.repository.documents)

    def sessions(self) -> Iterator[Candidate]:
        """All sessions, with their pins."""
        find_tags = self.tags.lookup()
        for candidate in self._sessions() if self._sessions is not None else iter_candidates(self.roots):
            is_pinned = find_tags(candidate.id, candidate.path).pinned
            yield msgspec.structs.replace(candidate, pinned=True) if is_pinned else candidate

    def open(self, wanted: str) -> Session:
        """Open the session file of any client by its path, id, id prefix, or whatever else `find` accepts."""
        session = open(wanted if looks_like_path(wanted) else self._find(wanted), home=self.folder)
        if not session.ref.is_file:
            raise not_a_file(str(session.ref))
        return session

    def _find_by_name(self, wanted: str) -> str:
        found = [path for path in iter_session_files(self.roots) if wanted and _has_id(path, wanted)]
        exact = [path for path in found if _id_in_name(path) == wanted]
        found = exact or found
        if not found:
            raise NotFoundError(f"no session file matches {wanted!r}; use a path, an id or a prefix of one")
        if len(found) > 1:
            shown = "\n".join(f"  {path}" for path in found[:20])
            raise AmbiguousError(f"{wanted!r} matches {len(found)} sessions; use a path:\n{shown}", tuple(found))
        return found[0]


def session_info(session: Session) -> SessionInfo:
    path = os.path.realpath(session.location)
    return SessionInfo(path, session.dialect.name, session.id, session.name or "", session.cwd or "")


def _id_in_name(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0].rpartition("_")[2]


def _has_id(path: str, prefix: str) -> bool:
    return _id_in_name(path).startswith(prefix)
