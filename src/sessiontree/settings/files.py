"""Find, read and write settings files: `settings.json` in the home folder, `.sessiontree/settings.json` in a project.

Writes are atomic; a file that cannot be parsed is never overwritten.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from typing import Any

from sessiontree import paths
from sessiontree.errors import ConflictError, DamagedError, UsageError, WriteError
from sessiontree.settings import text as json_text
from sessiontree.stores.atomic_files import make_folder, sync_folder, write_temporary

FOLDER = ".sessiontree"
NAME = "settings.json"
LARGEST = 1_000_000  # bytes


def user_file(home: str | None = None) -> str:
    return os.path.join(home or paths.home(), NAME)


def find_project_file(cwd: str, home: str | None = None) -> str | None:
    """Find the nearest settings file in a folder or its parents, up to the root of its repository.

    Outside a repository only the folder itself is checked. The user's file is never used as a project's.
    """
    own = os.path.realpath(user_file(home))
    for folder in _folders(cwd):
        path = os.path.join(folder, FOLDER, NAME)
        if os.path.lexists(path) and os.path.realpath(path) != own:
            return path
    return None


def project_file_for_writing(cwd: str, home: str | None = None) -> str:
    """The file to write a project's settings to: the file that is read, else a new one at the repository's root."""
    return find_project_file(cwd, home) or os.path.join(_folders(cwd)[-1], FOLDER, NAME)


def _folders(cwd: str) -> list[str]:
    """A folder and its parents up to the repository's root."""
    try:
        start = os.path.realpath(cwd)
    except ValueError:  # from a session file: a name that no folder can have
        return []
    folders = [start]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        parent = os.path.dirname(folders[-1])
        if parent == folders[-1]:
            return [start]
        folders.append(parent)
    return folders


def read_text(path: str) -> str:
    """Read a settings file. Raises FileNotFoundError, or `DamagedError` if it is not a small file of UTF-8 text."""
    try:
        # A project may have anything under this name; opening a FIFO must not block.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {error.strerror}") from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DamagedError(f"{path}: not a regular file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise DamagedError(f"{path}: larger than {LARGEST:,} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path}: byte {error.start} is not UTF-8") from None


def read_values(path: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json_text.parse_object(read_text(path)).value
    except ValueError as error:
        raise DamagedError(f"{path}: {error}") from None
    return found


def set_value(path: str, key: Sequence[str], value: Any, *, through_links: bool) -> None:
    """Write one value and keep the rest of the text."""
    text = _text_for_writing(path, through_links)
    try:
        _write(path, text, json_text.set_value(text or "", key, value))
    except ValueError as error:
        raise DamagedError(f"{path}: {error}; fix it first") from None


def unset_value(path: str, key: Sequence[str], *, through_links: bool) -> bool:
    """Remove one value; returns whether it was set."""
    text = _text_for_writing(path, through_links)
    if text is None:
        return False
    try:
        left = json_text.remove_value(text, key)
    except ValueError as error:
        raise DamagedError(f"{path}: {error}; fix it first") from None
    if left is None:
        return False
    _write(path, text, left)
    return True


def _text_for_writing(path: str, through_links: bool) -> str | None:
    if not through_links and (os.path.islink(path) or os.path.islink(os.path.dirname(path))):
        raise UsageError(f"{path}: is a symbolic link; project settings are not written through links")
    try:
        return read_text(path)
    except FileNotFoundError:
        return None


def _write(path: str, before: str | None, after: str) -> None:
    # The user may link to a file elsewhere: keep the link and replace its target.
    path = os.path.realpath(path)
    json_text.parse_object(after)  # never write a text that cannot be parsed again
    try:
        make_folder(os.path.dirname(path))
        temporary = write_temporary(path, [after.encode("utf-8")])
        try:
            # Checked right before the rename, so that an edit made since we read the file is not overwritten.
            if _text_now(path) != before:
                raise ConflictError(f"{path}: changed by another process meanwhile; nothing was written, try again")
            os.rename(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror}; the file is unchanged") from error


def _text_now(path: str) -> str | None:
    try:
        return read_text(path)
    except FileNotFoundError:
        return None
