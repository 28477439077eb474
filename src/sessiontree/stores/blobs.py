"""Large content in files named by their SHA-256."""

from __future__ import annotations

import contextlib
import os
import re

from sessiontree.errors import DamagedError, ExistsError, NotFoundError, StoreError
from sessiontree.stores.atomic_files import create_file
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

_BLOB_NAME = r"[0-9a-f]{64}\Z"


def check_blob_name(name: str) -> str:
    """The name itself, if it is one: 64 lower-case hex digits, so it can never lead out of the folder."""
    if not re.match(_BLOB_NAME, name):
        raise NotFoundError(f"{name[:80]!r} is not the name of a blob (64 hex digits)")
    return name


def blob_name(data: bytes) -> str:
    """The name that content has: its SHA-256."""
    from hashlib import sha256  # brings OpenSSL with it, which takes longer to load than many a command takes

    return sha256(data).hexdigest()


class FileBlobs:
    """Large content in a folder, spread over 256 sub-folders, or flat as other programs keep it."""

    def __init__(self, folder: str | os.PathLike[str], *, flat: bool = False, os_calls: OsCalls = OS_CALLS) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self._flat = flat
        self._os_calls = os_calls

    def put(self, data: bytes) -> str:
        name = blob_name(data)
        path = self._path(name)
        try:
            if self.get(name) is not None:
                return name
        except DamagedError:
            self._os_calls.unlink(path)  # its content does not fit its name: the good copy takes its place
        with contextlib.suppress(ExistsError):  # another process put the same content meanwhile
            create_file(path, [data], self._os_calls)
        return name

    def get(self, name: str) -> bytes | None:
        path = self._path(name)
        try:
            fd = self._os_calls.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            with os.fdopen(fd, "rb") as file:
                data = file.read()
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        if blob_name(data) != name:
            raise DamagedError(f"{path}: its content does not fit its name")
        return data

    def _path(self, name: str) -> str:
        check_blob_name(name)
        return os.path.join(self.folder, name) if self._flat else os.path.join(self.folder, name[:2], name)
