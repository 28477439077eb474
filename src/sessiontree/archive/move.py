"""Move sessions to another working folder: change the recorded folder, and the path where the client looks.

Only the line with the working folder changes. The old file is archived before the new one appears, and deleted when
the new one is durable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from sessiontree.archive.allowed_paths import AllowedPaths, session_folder
from sessiontree.archive.archive import Archive, hash_file
from sessiontree.archive.archive_home import session_info
from sessiontree.archive.catalog import ArchiveItem, Edit
from sessiontree.archive.restore import move_folder
from sessiontree.archive.rewrite import ByteChange, Draft, check_rewritable, check_unchanged, iter_spliced, rewrite
from sessiontree.core.ids import new_session_id
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.defaults import replace_field
from sessiontree.errors import ConflictError, DamagedError, ExistsError
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session
from sessiontree.stores.atomic_files import make_folder, publish_new, sync_folder
from sessiontree.stores.contract import read_bytes

_MAX_LINES = 64
"""In formats without a header, the first line with a working folder is searched among this many."""


class Move(Struct, frozen=True):
    """What moving a session would do."""

    session: str
    source: str
    target: str
    new_cwd: str
    changes: tuple[ByteChange, ...]

    @property
    def is_empty(self) -> bool:
        return self.source == self.target and not self.changes


def plan_move(session: Session, cwd: str, allowed_paths: AllowedPaths, environment: Mapping[str, str]) -> Move:
    """Plan the move of a session to another working folder. Writes nothing."""
    check_rewritable(session)
    source = allowed_paths.check_file(session.location)
    new = os.path.realpath(cwd)
    root = allowed_paths.find_root(source)
    assert root is not None
    folder = _target_folder(session, new, root, source, environment)
    target = allowed_paths.check(os.path.join(folder, os.path.basename(source)))
    change = _change_cwd(session, new)
    return Move(session.id, source, target, new, () if change is None else (change,))


def _target_folder(session: Session, cwd: str, root: str, source: str, environment: Mapping[str, str]) -> str:
    """The folder in the same root where the client looks for sessions of `cwd`."""
    dialect = session.dialect
    if os.path.dirname(source) == root and dialect.client.allows_flat_root:
        return root  # the user chose a flat folder of sessions
    target = dialect.destination(SessionMeta(new_session_id(), session.header.timestamp, cwd), environment).path
    folder = os.path.dirname(target)
    return root if folder in dialect.session_roots(environment) else os.path.join(root, os.path.basename(folder))


def _change_cwd(session: Session, cwd: str) -> ByteChange | None:
    """Change the line with the working folder; None if no line has one, or it is right already."""
    journal = session.journal
    if journal.header_span is not None:
        span = journal.header_span
        raw = read_bytes(journal.store, span.start, span.end - span.start)
        new = replace_field(raw, "cwd", cwd)
        return ByteChange(span.start, span.end, new) if new != raw else None
    for node in range(min(len(journal), _MAX_LINES)):
        (fields,) = journal.fields([node])
        if isinstance(fields.get("cwd"), str) and fields["cwd"]:
            span = journal.span(node)
            raw = next(journal.iter_raw([node]))
            new = replace_field(raw, "cwd", cwd)
            return ByteChange(span.start, span.end, new) if new != raw else None
    return None


def move(archive: Archive, session: Session, plan: Move) -> ArchiveItem | None:
    """Move a session; returns the archive item that undoes it, None if nothing had to be done."""
    if plan.is_empty:
        return None

    def check(after: Reader) -> None:
        check_unchanged(session, after, session.leaves())
        if plan.changes and after.header.cwd != plan.new_cwd:
            raise DamagedError(f"{plan.source}: its folder would still be {after.header.cwd}; nothing was moved")

    with archive.locked():
        if plan.source == plan.target:
            return rewrite(archive, session, plan.changes, "mv", check)
        unfinished = _find_unfinished(archive, plan)
        if unfinished is None and os.path.lexists(plan.target):
            raise ExistsError(f"{plan.target}: the file exists already; nothing was moved")
        if os.path.isdir(session_folder(plan.source)) and os.path.lexists(session_folder(plan.target)):
            raise ExistsError(f"{session_folder(plan.target)}: the folder exists already; nothing was moved")
        if unfinished is not None:
            _finish(archive, session, plan)
            return unfinished
        make_folder(os.path.dirname(plan.target), archive.os_calls)
        draft = Draft(archive, plan.target, iter_spliced(session.journal.store, session.journal.size, plan.changes))
        try:
            check(draft.open_like(session))
            return _publish(archive, session, plan, draft)
        finally:
            draft.discard()


def _publish(archive: Archive, session: Session, plan: Move, draft: Draft) -> ArchiveItem:
    edit = Edit("mv", plan.target, draft.size, draft.sha256)
    item = archive.add_edit(session_info(session), plan.source, edit, f"mv --cwd {plan.new_cwd}")
    try:
        if item.size != session.journal.size:
            raise ConflictError(f"{plan.source}: changed during the move; nothing was written")
        publish_new(draft.temporary, plan.target, archive.os_calls)
    except BaseException:
        if not os.path.lexists(plan.target):
            archive.remove(item, "not carried out")
        raise
    _finish(archive, session, plan)
    return item


def _finish(archive: Archive, session: Session, plan: Move) -> None:
    """Move the session's folder and delete the old file, unless another writer appended to it."""
    store = session.journal.store
    with store.exclusive() as size:
        if size != session.journal.size:
            raise ConflictError(f"{plan.source}: was written to during the move; it stays, and {plan.target} is a copy")
        # The folder before the file: a run that dies in between is recognized by the file at both paths.
        move_folder(plan.source, plan.target)
        archive.os_calls.unlink(plan.source)
    sync_folder(os.path.dirname(plan.source), archive.os_calls)
    store.close()


def _find_unfinished(archive: Archive, plan: Move) -> ArchiveItem | None:
    """The move that an earlier run began: both files exist, with the content that it recorded."""
    for item in reversed(archive.items()):
        edit = item.edit
        if edit is None or edit.verb != "mv" or (item.path, edit.path) != (plan.source, plan.target):
            continue
        if os.path.isfile(edit.path) and hash_file(edit.path) == edit.sha256 and hash_file(item.path) == item.sha256:
            return item
    return None


def translate_cwd(cwd: str, old: str, new: str) -> str | None:
    """The new path of a working folder when a project moved; None if it is not in that project."""
    if cwd == old:
        return new
    return os.path.join(new, os.path.relpath(cwd, old)) if cwd.startswith(old.rstrip(os.sep) + os.sep) else None
