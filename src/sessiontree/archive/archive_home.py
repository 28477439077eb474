"""A home folder as the archive commands use it: session roots, archive, tags and sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from sessiontree import paths
from sessiontree.archive.allowed_paths import AllowedPaths
from sessiontree.archive.archive import Archive, SessionArchive, find_item
from sessiontree.archive.candidates import Candidate, Sessions, iter_candidates, iter_session_files, known_roots
from sessiontree.archive.catalog import ArchiveItem, SessionInfo
from sessiontree.archive.stored_archive import StoredArchive
from sessiontree.archive.tags import SessionTags, TagFile, find_tags
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.session.open import looks_like_path, open
from sessiontree.session.session import Session
from sessiontree.stores.contract import ArchiveRepository, not_a_file
from sessiontree.stores.os_calls import OS_CALLS, OsCalls
from sessiontree.stores.repositories import FileDocuments, find_ref, open_repository


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
        repository: ArchiveRepository | None = None,
        only_repository: bool = False,
    ) -> None:
        """`roots` replaces the folders of single dialects.

        `repository` has sessions of its own, and their archive and tags; with `only_repository`, those of the folder
        are not used: for users who do not own it.

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
        self._repository = repository
        self._only_repository = only_repository
        self._sessions = sessions
        self._find = find or self._find_by_name

    def tags_of(self, session: Session) -> TagFile:
        """The tags of the repository of a session: for files of any client, those of the home folder."""
        return self.tags if not session.ref.home else TagFile(session.repository.documents)

    def all_tags(self) -> list[SessionTags]:
        """The records of all sessions, in files and in the repository."""
        files = [] if self._only_repository else [self.tags]
        if self._repository is not None:
            files.append(TagFile(self._repository.documents))
        return [record for file in files for record in file.read()]

    def archives(self) -> list[SessionArchive]:
        """The archive of session files, and that of the repository."""
        found: list[SessionArchive] = [] if self._only_repository else [self.archive]
        return found if self._repository is None else [*found, StoredArchive(self._repository)]

    def archive_at(self, path: str) -> SessionArchive:
        """The archive of a session, by its path or reference; `UsageError` if it can have none."""
        ref = find_ref(path)
        if not ref.home and not self._only_repository:
            return self.archive
        repository = open_repository(ref.home) if ref.home else None
        if not isinstance(repository, ArchiveRepository):
            raise not_a_file(path)
        return StoredArchive(repository)

    def items(self) -> list[ArchiveItem]:
        """The items of all archives, oldest first."""
        items = [item for archive in self.archives() for item in archive.items()]
        return sorted(items, key=lambda item: item.when)

    def find_item(self, wanted: str) -> ArchiveItem:
        """Find an archive item by its id, a session id, a prefix of either, or a path."""
        return find_item(self.items(), wanted, lambda path: self.archive_at(path).exists(path))

    def sessions(self) -> Iterator[Candidate]:
        """All sessions, with their pins."""
        records = self.all_tags()
        for candidate in self._sessions() if self._sessions is not None else iter_candidates(self.roots):
            is_pinned = find_tags(records, candidate.id, candidate.path).pinned
            yield msgspec.structs.replace(candidate, pinned=True) if is_pinned else candidate

    def open(self, wanted: str) -> Session:
        """Open a session that can be archived by its path, id, id prefix, or whatever else `find` accepts."""
        session = open(wanted if looks_like_path(wanted) else self._find(wanted), home=self.folder)
        if not can_archive(session):
            raise not_a_file(str(session.ref))
        return session

    def open_file(self, wanted: str) -> Session:
        """`open` for the session file of any client."""
        session = self.open(wanted)
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


def can_archive(session: Session) -> bool:
    """Whether a session is a separate file, or in a repository with an archive."""
    return session.ref.is_file or isinstance(session.repository, ArchiveRepository)


def session_info(session: Session) -> SessionInfo:
    path = os.path.realpath(session.location) if session.ref.is_file else str(session.ref)
    return SessionInfo(path, session.dialect.name, session.id, session.name or "", session.cwd or "")


def _id_in_name(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0].rpartition("_")[2]


def _has_id(path: str, prefix: str) -> bool:
    return _id_in_name(path).startswith(prefix)
