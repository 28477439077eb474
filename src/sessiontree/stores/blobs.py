"""Blob store in files named by the SHA-256 of their content."""

from __future__ import annotations

import contextlib
import os
import re

from sessiontree.errors import DamagedError, ExistsError, NotFoundError, PathError, StoreError
from sessiontree.stores.atomic_files import create_file
from sessiontree.stores.os_calls import OS_CALLS, OsCalls
from sessiontree.stores.safe_files import check_regular

_BLOB_NAME = r"[0-9a-f]{64}\Z"


def check_blob_name(name: str) -> str:
    """Return a valid blob name: 64 lower-case hex digits, which cannot be a path out of the folder."""
    if not re.match(_BLOB_NAME, name):
        raise NotFoundError(f"{name[:80]!r} is not a blob name (64 hex digits)")
    return name


def blob_name(data: bytes) -> str:
    """The name of a blob: the SHA-256 of its content."""
    from hashlib import sha256  # loads OpenSSL, which takes longer than many commands

    return sha256(data).hexdigest()


class FileBlobs:
    """Blobs in a folder: spread over 256 subfolders, or flat, as other programs store them."""

    def __init__(self, folder: str | os.PathLike[str], *, flat: bool = False, os_calls: OsCalls = OS_CALLS) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self._flat = flat
        self._os_calls = os_calls

    def put(self, data: bytes) -> str:
        name = blob_name(data)
        path = self._path(name)
        try:
            if self.get(name) is not None:  # reads and verifies an existing blob: a damaged one must not be reused
                return name
        except DamagedError:
            self._os_calls.unlink(path)  # `data` is the correct content of this name, so it replaces the damaged file
        with contextlib.suppress(ExistsError):  # another process stored the same content meanwhile
            create_file(path, [data], self._os_calls)
        return name

    def get(self, name: str) -> bytes | None:
        path = self._path(name)
        try:
            # O_NONBLOCK: in a folder of another program, a named pipe may have the name of a blob.
            fd = self._os_calls.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            with os.fdopen(fd, "rb") as file:
                check_regular(os.fstat(fd), path)
                data = file.read()
        except PathError as error:
            raise StoreError(str(error)) from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
        if blob_name(data) != name:
            raise DamagedError(f"{path}: damaged: the content does not match its SHA-256 name")
        return data

    def _path(self, name: str) -> str:
        check_blob_name(name)
        return os.path.join(self.folder, name) if self._flat else os.path.join(self.folder, name[:2], name)
