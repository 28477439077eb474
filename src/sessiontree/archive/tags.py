"""Tags, pins and saved worktrees of sessions, in one small file: `<home>/marks.json`.

Session files are never changed for this. A record is found by session id and path; after a move, by id.
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


class SessionTags(Struct, frozen=True, omit_defaults=True):
    """What the user attached to one session."""

    session: str
    path: str
    tags: tuple[str, ...] = ()
    pinned: bool = False
    worktree: WorktreeState | None = None

    @property
    def is_empty(self) -> bool:
        return not self.tags and not self.pinned and self.worktree is None


class TagFile:
    """The tags of all sessions of a home folder."""

    def __init__(self, home: str, *, os_calls: OsCalls = OS_CALLS) -> None:
        self.path = os.path.join(home, "marks.json")
        self._os_calls = os_calls

    def read(self) -> list[SessionTags]:
        """All records. `DamagedError` if the file cannot be parsed."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return []
        try:
            return msgspec.convert(parse_json(data)["marks"], list[SessionTags])
        # Not read as empty: the next change would write that back, and all tags would be lost.
        except (ValueError, TypeError, LookupError) as error:
            raise DamagedError(f"{self.path}: cannot be parsed: {error}; it was not changed") from None

    def find(self, session: str, path: str) -> SessionTags:
        """The record of a session; an empty one if it has none."""
        return _find(self.read(), session, path) or SessionTags(session, path)

    def lookup(self) -> Callable[[str, str], SessionTags]:
        """`find` for many sessions, with the file read once."""
        records = self.read()
        return lambda session, path: _find(records, session, path) or SessionTags(session, path)

    def change(self, session: str, path: str, change: Callable[[SessionTags], SessionTags]) -> SessionTags:
        """Change the record of a session; returns the new one, which is durable then."""
        with self._locked():
            records = self.read()
            old = _find(records, session, path)
            new = msgspec.structs.replace(change(old or SessionTags(session, path)), session=session, path=path)
            others = [record for record in records if record is not old]
            if new != old and (old is not None or not new.is_empty):
                self._write([*others, new] if not new.is_empty else others)
            return new

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # A lock file of its own: `marks.json` is replaced by rename, so a lock on it would be on the old file.
        make_folder(os.path.dirname(self.path), self._os_calls)
        with file_lock(f"{self.path}.lock", os_calls=self._os_calls):
            yield

    def _write(self, records: list[SessionTags]) -> None:
        data = render_json({"version": 1, "marks": msgspec.to_builtins(records)}) + b"\n"
        try:
            temporary = write_temporary(self.path, [data], self._os_calls)
            try:
                self._os_calls.rename(temporary, self.path)
            finally:
                with contextlib.suppress(OSError):
                    self._os_calls.unlink(temporary)
            sync_folder(os.path.dirname(self.path), self._os_calls)
        except OSError as error:
            raise WriteError(f"{self.path}: cannot be written: {error.strerror}; nothing was changed") from error


def _find(records: list[SessionTags], session: str, path: str) -> SessionTags | None:
    """The record for a session file; else the one for the session id, if its file is gone and so was moved."""
    same = [tags for tags in records if tags.path == path and (tags.session in (session, "") or not session)]
    moved = (tags for tags in records if session and tags.session == session and not os.path.lexists(tags.path))
    return same[-1] if same else next(moved, None)
