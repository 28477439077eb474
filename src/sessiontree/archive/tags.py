"""What a person says about a session beside its file: tags, a pin, its worktree. One small file, `<home>/marks.json`.

Foreign files are never written for this. A mark is found by the session's id and path; after a move, by the id alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.errors import DamagedError, WriteError
from sessiontree.git.worktree import WorktreeState
from sessiontree.stores.atomic_files import make_folder, sync_folder, write_temporary
from sessiontree.stores.file_lock import file_lock
from sessiontree.stores.os_calls import OS_CALLS, OsCalls


class Mark(Struct, frozen=True, omit_defaults=True):
    """What is said about one session."""

    session: str
    path: str
    tags: tuple[str, ...] = ()
    pinned: bool = False
    worktree: WorktreeState | None = None

    @property
    def is_empty(self) -> bool:
        return not self.tags and not self.pinned and self.worktree is None


class Marks:
    """All marks of a home folder."""

    def __init__(self, home: str, *, os_calls: OsCalls = OS_CALLS) -> None:
        self.path = os.path.join(home, "marks.json")
        self._os_calls = os_calls

    def read(self) -> list[Mark]:
        """All marks. A file that cannot be read is an error: taken for empty, the next change would empty it."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return []
        try:
            return msgspec.convert(parse_json(data)["marks"], list[Mark])
        except (ValueError, TypeError, LookupError) as error:
            raise DamagedError(f"{self.path}: cannot be read: {error}; it was not touched") from None

    def find(self, session: str, path: str) -> Mark:
        """What is said about a session; an empty mark when nothing is."""
        return _found(self.read(), session, path) or Mark(session, path)

    def lookup(self) -> Callable[[str, str], Mark]:
        """`find` over the marks as they are now, for many sessions."""
        marks = self.read()
        return lambda session, path: _found(marks, session, path) or Mark(session, path)

    def change(self, session: str, path: str, change: Callable[[Mark], Mark]) -> Mark:
        """Say something else about a session; gives the mark as it is now, durably."""
        with self._locked():
            marks = self.read()
            old = _found(marks, session, path)
            new = msgspec.structs.replace(change(old or Mark(session, path)), session=session, path=path)
            kept = [mark for mark in marks if mark is not old]
            if new != old and (old is not None or not new.is_empty):
                self._write([*kept, new] if not new.is_empty else kept)
            return new

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_folder(os.path.dirname(self.path), self._os_calls)
        with file_lock(f"{self.path}.lock", os_calls=self._os_calls):
            yield

    def _write(self, marks: list[Mark]) -> None:
        data = render_json({"version": 1, "marks": msgspec.to_builtins(marks)}) + b"\n"
        try:
            temporary = write_temporary(self.path, [data], self._os_calls)
            try:
                self._os_calls.rename(temporary, self.path)
            finally:
                with contextlib.suppress(OSError):
                    self._os_calls.unlink(temporary)
            sync_folder(os.path.dirname(self.path), self._os_calls)
        except OSError as error:
            raise WriteError(f"{self.path}: could not be written: {error.strerror}; it is as it was") from error


def _found(marks: list[Mark], session: str, path: str) -> Mark | None:
    """The mark of a session in a file; else of the session, if the file it was in is gone: then it has moved."""
    same = [mark for mark in marks if mark.path == path and (mark.session in (session, "") or not session)]
    moved = (mark for mark in marks if session and mark.session == session and not os.path.lexists(mark.path))
    return same[-1] if same else next(moved, None)
