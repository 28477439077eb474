"""Making a file appear whole or not at all, and folders that survive a power cut."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from sessiontree.errors import ExistsError, WriteError
from sessiontree.stores.system import SYSTEM, System


def make_folder(path: str, system: System = SYSTEM) -> None:
    """Make a folder and those above it, 0700, each durably; one that exists is left as it is."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_folder(parent, system)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        sync_folder(parent or ".", system)


def sync_folder(path: str, system: System = SYSTEM) -> None:
    """Make the names in a folder survive a power cut."""
    fd = system.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        system.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes, system: System) -> None:
    """Write every byte, however many calls that takes."""
    written = system.write(fd, data)
    while written < len(data):
        written += system.write(fd, data[written:])


def write_beside(path: str, chunks: Iterable[bytes], system: System = SYSTEM) -> str:
    """Write a file next to `path` under a name nobody looks at, fsynced, 0600. Its name is given back."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.tmp")
    fd = system.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        for chunk in chunks:
            write_all(fd, chunk, system)
        system.fsync(fd)
    except BaseException:
        os.close(fd)
        with contextlib.suppress(OSError):
            system.unlink(temporary)
        raise
    os.close(fd)
    return temporary


def publish_new(temporary: str, path: str, system: System = SYSTEM) -> None:
    """Give a file written beside its final name, unless that name is taken."""
    try:
        system.link(temporary, path)
    except FileExistsError:
        raise ExistsError(f"{path}: there is a file already; it was not touched") from None
    finally:
        with contextlib.suppress(OSError):
            system.unlink(temporary)
    sync_folder(os.path.dirname(path), system)


def create_file(path: str, chunks: Iterable[bytes], system: System = SYSTEM) -> None:
    """Make a new file durably, whole or not at all; `ExistsError` when the name is taken."""
    try:
        make_folder(os.path.dirname(path), system)
        publish_new(write_beside(path, chunks, system), path, system)
    except OSError as error:
        raise WriteError(f"{path}: could not be created: {error.strerror or error}; nothing was left behind") from error
