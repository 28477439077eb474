"""Find a repository by its address; the repository in the home folder."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator

from sessiontree import paths, plugins
from sessiontree.errors import NotFoundError, WriteError
from sessiontree.stores.atomic_files import make_folder, sync_folder, write_temporary
from sessiontree.stores.blobs import FileBlobs
from sessiontree.stores.contract import (
    SessionRef,
    SessionRepository,
    SessionStat,
    SessionStore,
    check_document_name,
    parse_ref,
)
from sessiontree.stores.file import FileStore
from sessiontree.stores.file_lock import file_lock
from sessiontree.stores.os_calls import OS_CALLS, OsCalls


def open_repository(home: str | os.PathLike[str] | None = None) -> SessionRepository:
    """Open the repository at an address, such as a folder or `memory:team`; by default that of the home."""
    address = paths.home_address() if home is None else os.fspath(home)
    repository: SessionRepository = plugins.load("stores", _scheme_of(address))(address)
    return repository


def is_address(text: str) -> bool:
    """Whether a text is the address of a repository, rather than a folder."""
    return _scheme_of(text) != "file"


def _scheme_of(text: str) -> str:
    """The scheme of an address or a reference; `file` for a path."""
    scheme, colon, rest = text.partition(":")
    if not colon or scheme in plugins.names("stores"):
        return scheme if colon else "file"
    # `pg://host/db` without its package is an error, and not a folder of that name, unless there is one.
    is_other = rest.startswith("/") and re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) and not os.path.lexists(f"{scheme}:")
    return scheme if is_other else "file"


def home_folder(home: str | os.PathLike[str] | None = None) -> str:
    """The folder of the user's settings, archive and prompt history; for sessions stored elsewhere, the default one."""
    address = None if home is None else os.fspath(home)
    return paths.home() if address is None or is_address(address) else os.path.abspath(address)


def find_ref(text: str) -> SessionRef:
    """Parse a path, or a reference with the scheme of a repository."""
    scheme = _scheme_of(text)
    return parse_ref(text, () if scheme == "file" else (scheme,))


class FileRepository:
    """The sessions of a home folder: `<home>/sessions/<project>/<time>_<id>.jsonl`."""

    is_volatile = False

    def __init__(self, home: str) -> None:
        self.home = os.path.abspath(home.removeprefix("file:"))
        self.blobs = FileBlobs(paths.blobs_folder(self.home))
        self.documents = FileDocuments(self.home)

    def new(self, id: str, *, timestamp: str, cwd: str, near: SessionRef | None = None) -> SessionStore:  # noqa: ARG002
        return FileStore(paths.session_path(self.home, id, timestamp, cwd))

    def open(self, ref: SessionRef) -> SessionStore:
        return FileStore(ref.path)

    def find(self, wanted: str) -> SessionRef:
        return SessionRef(paths.find_session_file(self.home, wanted))

    def iter_stats(self) -> Iterator[SessionStat]:
        for id, path in paths.iter_session_files(self.home):
            with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                stat = os.stat(path, follow_symlinks=False)
                yield SessionStat(SessionRef(path), id, stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def delete(self, ref: SessionRef) -> None:
        delete_file(ref.path)


def delete_file(path: str) -> None:
    """Delete the file of a session, and the folder of its own next to it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise WriteError(f"{path}: cannot be deleted: {error.strerror}; nothing was changed") from error
    import shutil  # slow to import, and most commands delete nothing

    shutil.rmtree(os.path.splitext(path)[0], ignore_errors=True)
    sync_folder(os.path.dirname(path))


class FileDocuments:
    """Documents as files in a folder."""

    def __init__(self, folder: str, *, os_calls: OsCalls = OS_CALLS) -> None:
        self._folder = folder
        self._os_calls = os_calls

    def location(self, name: str) -> str:
        return os.path.join(self._folder, check_document_name(name))

    def read(self, name: str) -> bytes | None:
        try:
            with open(self.location(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def update(self, name: str, change: Callable[[bytes | None], bytes | None]) -> None:
        path = self.location(name)
        make_folder(self._folder, self._os_calls)
        # A separate lock file: the document is replaced by rename, so a lock on it would be on the old file.
        with file_lock(f"{path}.lock", os_calls=self._os_calls):
            old = self.read(name)
            new = change(old)
            if new != old:
                self._write(path, new)

    def _write(self, path: str, data: bytes | None) -> None:
        try:
            if data is None:
                self._os_calls.unlink(path)
            else:
                temporary = write_temporary(path, [data], self._os_calls)
                try:
                    self._os_calls.rename(temporary, path)
                finally:
                    with contextlib.suppress(OSError):
                        self._os_calls.unlink(temporary)
            sync_folder(self._folder, self._os_calls)
        except OSError as error:
            raise WriteError(f"{path}: cannot be written: {error.strerror}; nothing was changed") from error
