"""A settings file on the disk: read with care, written beside and renamed, never overwritten when it cannot be read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from typing import Any

from sessiontree.errors import ConflictError, DamagedError, UsageError, WriteError
from sessiontree.settings import text as json_text
from sessiontree.stores.atomic_files import make_folder, sync_folder, write_temporary

LARGEST = 1_000_000


def read_text(path: str) -> str:
    """What a settings file holds. FileNotFoundError when there is none, `DamagedError` when it cannot be one."""
    try:
        # A project may hold anything under this name: a pipe must not make us wait.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {error.strerror}") from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DamagedError(f"{path}: is no ordinary file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise DamagedError(f"{path}: is larger than {LARGEST:,} bytes, so these are no settings")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedError(f"{path}: byte {error.start} is not UTF-8") from None


def read_values(path: str) -> dict[str, Any]:
    """The values of a settings file."""
    try:
        found: dict[str, Any] = json_text.parse_object(read_text(path)).value
    except ValueError as error:
        raise DamagedError(f"{path}: {error}") from None
    return found


def set_value(path: str, key: Sequence[str], value: Any, *, through_links: bool) -> None:
    """Write one value; the rest of the file keeps its characters."""
    text = _text_for_writing(path, through_links)
    try:
        _write(path, text, json_text.changed(text or "", key, value))
    except ValueError as error:
        raise DamagedError(f"{path}: {error}; it was not touched, mend it first") from None


def unset_value(path: str, key: Sequence[str], *, through_links: bool) -> bool:
    """Take one value out; whether it was there."""
    text = _text_for_writing(path, through_links)
    if text is None:
        return False
    try:
        left = json_text.removed(text, key)
    except ValueError as error:
        raise DamagedError(f"{path}: {error}; it was not touched, mend it first") from None
    if left is None:
        return False
    _write(path, text, left)
    return True


def _text_for_writing(path: str, through_links: bool) -> str | None:
    if not through_links and (os.path.islink(path) or os.path.islink(os.path.dirname(path))):
        raise UsageError(
            f"{path}: is a symbolic link, which may lead anywhere; a project's settings are not written so"
        )
    try:
        return read_text(path)
    except FileNotFoundError:
        return None


def _write(path: str, before: str | None, after: str) -> None:
    # A user may keep the file elsewhere and link to it: the link stays, the file it leads to is replaced.
    path = os.path.realpath(path)
    json_text.parse_object(after)  # nothing is written that could not be read again
    try:
        make_folder(os.path.dirname(path))
        temporary = write_temporary(path, [after.encode("utf-8")])
        try:
            if _text_now(path) != before:
                raise ConflictError(f"{path}: was changed by someone else just now; nothing was written, try again")
            os.rename(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise WriteError(f"{path}: could not be written: {error.strerror}; it is as it was") from error


def _text_now(path: str) -> str | None:
    try:
        return read_text(path)
    except FileNotFoundError:
        return None
