"""Remove the worktrees of a session's lanes before the session is deleted; their work is saved first."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from sessiontree.archive.stored_archive import iter_store
from sessiontree.errors import SessionTreeError
from sessiontree.explore.cleanup import RemovedWorktrees, remove_all_worktrees
from sessiontree.session.open import open as open_session
from sessiontree.stores.repositories import find_ref, is_address, open_repository

if TYPE_CHECKING:
    from sessiontree.archive.archive import SessionArchive
    from sessiontree.archive.archive_home import Home
    from sessiontree.archive.catalog import ArchiveItem
    from sessiontree.archive.clean import CleanPlan

_MARKER = b"sessiontree.explore.plan"
"""A marker in files with explorations. Most files have none, and need not be parsed."""
_STEP = 1 << 20


def remove_lanes(home: Home, plan: CleanPlan) -> tuple[CleanPlan, list[str], list[str]]:
    """Remove lanes; returns the plan without sessions where that failed, the kept git refs, and the errors."""
    refs: list[str] = []
    failed: list[str] = []
    staying: set[str] = set()
    for path, left in _remove_each(home, plan):
        refs += left.refs
        failed += [f"{path}: not deleted: {why}" for why in left.failed]
        staying |= {path} if left.failed else set()
    chosen = tuple(session for session in plan.chosen if session.path not in staying)
    archived = tuple(item for item in plan.archived if item.path not in staying)
    return msgspec.structs.replace(plan, chosen=chosen, archived=archived), list(dict.fromkeys(refs)), failed


def _remove_each(home: Home, plan: CleanPlan) -> Iterator[tuple[str, RemovedWorktrees]]:
    for session in plan.chosen:
        if _has_lanes(_chunks(session.path, session.size)):
            yield session.path, _remove(session.path, home.folder)
    for item in plan.archived:
        archive = home.archive_at(item.path)
        if item.kind == "moved" and _has_lanes(archive.read(item)):
            yield item.path, _remove_archived(archive, item, home.folder)


def _remove_archived(archive: SessionArchive, item: ArchiveItem, home: str) -> RemovedWorktrees:
    if is_address(item.path):  # no file may have a line of it, so it cannot be opened here
        return RemovedWorktrees(failed=("it has lanes with worktrees; restore it, then purge it",))
    with tempfile.TemporaryDirectory(prefix="sessiontree-") as folder:
        path = os.path.join(folder, os.path.basename(item.path))
        archive.extract(item, path)
        return _remove(path, home)


def _remove(path: str, home: str) -> RemovedWorktrees:
    try:
        with open_session(path, home=home) as session:
            return remove_all_worktrees(session, home)
    except SessionTreeError as error:
        return RemovedWorktrees(failed=(str(error),))


def _chunks(path: str, size: int) -> Iterator[bytes]:
    if is_address(path):
        ref = find_ref(path)
        yield from iter_store(open_repository(ref.home).open(ref), size)
        return
    with open(path, "rb") as file:
        yield from iter(lambda: file.read(_STEP), b"")


def _has_lanes(chunks: Iterable[bytes]) -> bool:
    end = b""
    for chunk in chunks:
        if _MARKER in end + chunk:
            return True
        end = chunk[-len(_MARKER) :]
    return False
