"""Taking sessions along when a project moved: the recorded working folder, and the place where the owner looks.

One line changes, the one that says where the session works; all others stay as they are. The old file is in the archive
before the new one appears, and goes when the new one is in its place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from msgspec import Struct

from sessiontree.archive.allowed_paths import Bounds, folder_of
from sessiontree.archive.archive import Archive, hash_of
from sessiontree.archive.archive_home import about
from sessiontree.archive.catalog import Edit, Item
from sessiontree.archive.restore import move_folder
from sessiontree.archive.rewrite import Change, Draft, check_same, rewrite, spliced
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.defaults import replace_field
from sessiontree.errors import ConflictError, DamagedError, ExistsError
from sessiontree.paths import project_folder_name
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session
from sessiontree.stores.atomic_files import make_folder, publish_new, sync_folder
from sessiontree.stores.contract import read_bytes

_FIRST_LINES = 64
"""How far down the first line with a working folder is looked for, in formats without a header."""


class Move(Struct, frozen=True):
    """What moving a session would do."""

    session: str
    source: str
    target: str
    old_cwd: str
    new_cwd: str
    changes: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        return self.source == self.target and not self.changes


def plan_move(session: Session, cwd: str, bounds: Bounds, environment: Mapping[str, str]) -> Move:
    """Where a session goes that shall work in another folder. Writes nothing."""
    source = bounds.check_file(session.location)
    new = os.path.realpath(cwd)
    root = bounds.root_of(source)
    assert root is not None
    target = bounds.check(os.path.join(_folder(session, new, root, source, environment), os.path.basename(source)))
    change = _cwd_line(session, new)
    return Move(session.id, source, target, session.cwd, new, () if change is None else (change,))


def _folder(session: Session, cwd: str, root: str, source: str, environment: Mapping[str, str]) -> str:
    """The folder for work in `cwd`, in the same root."""
    name = session.dialect.name
    if name == "native":
        return os.path.join(root, project_folder_name(cwd))
    place = session.dialect.destination(SessionMeta(session.id, session.header.timestamp, cwd), environment).path
    if os.path.dirname(source) == root and name != "neovate":
        return root  # a flat folder of sessions that was chosen
    bucket = os.path.basename(os.path.dirname(place))
    return root if name == "neovate" and cwd == os.sep else os.path.join(root, bucket)


def _cwd_line(session: Session, cwd: str) -> Change | None:
    """The line that says where the session works, with another folder in it; None where no line says so."""
    journal = session.journal
    if journal.header_span is not None:
        place = journal.header_span
        raw = read_bytes(journal.store, place.start, place.end - place.start)
        new = replace_field(raw, "cwd", cwd)
        return Change(place.start, place.end, new) if new != raw else None
    for node in range(min(len(journal), _FIRST_LINES)):
        (fields,) = journal.fields([node])
        if isinstance(fields.get("cwd"), str) and fields["cwd"]:
            place = journal.span(node)
            raw = next(journal.iter_raw([node]))
            new = replace_field(raw, "cwd", cwd)
            return Change(place.start, place.end, new) if new != raw else None
    return None


def move(archive: Archive, session: Session, plan: Move) -> Item | None:
    """Carry it out. Gives the item in the archive that undoes it; None when everything is right already."""
    if plan.is_empty:
        return None

    def check(after: Reader) -> None:
        check_same(session, after, session.leaves())
        if plan.changes and after.header.cwd != plan.new_cwd:
            raise DamagedError(f"{plan.source}: would still say that it works in {after.header.cwd}; nothing was moved")

    with archive.locked():
        if plan.source == plan.target:
            return rewrite(archive, session, plan.changes, "mv", check)
        begun = _begun(archive, plan)
        if begun is None and os.path.lexists(plan.target):
            raise ExistsError(f"{plan.target}: there is a file already; nothing was moved")
        if os.path.isdir(folder_of(plan.source)) and os.path.lexists(folder_of(plan.target)):
            raise ExistsError(f"{folder_of(plan.target)}: there is a folder already; nothing was moved")
        if begun is not None:
            _finish(archive, session, plan)
            return begun
        make_folder(os.path.dirname(plan.target), archive.os_calls)
        draft = Draft(archive, plan.target, spliced(session.journal.store, session.journal.size, plan.changes))
        try:
            check(draft.read_like(session))
            return _publish(archive, session, plan, draft)
        finally:
            draft.discard()


def _publish(archive: Archive, session: Session, plan: Move, draft: Draft) -> Item:
    edit = Edit("mv", plan.target, draft.size, draft.sha256)
    item = archive.put_edit(about(session), plan.source, edit, f"mv --cwd {plan.new_cwd}")
    try:
        if item.size != session.journal.size:
            raise ConflictError(f"{plan.source}: changed while it was being moved; it is as it was")
        publish_new(draft.temporary, plan.target, archive.os_calls)
    except BaseException:
        if not os.path.lexists(plan.target):
            archive.forget(item, "not carried out")
        raise
    _finish(archive, session, plan)
    return item


def _finish(archive: Archive, session: Session, plan: Move) -> None:
    """Take the folder along, and the old file away, if nobody went on writing there."""
    store = session.journal.store
    if store.lock() != session.journal.size:
        store.unlock()
        raise ConflictError(
            f"{plan.source}: was written to while it was being moved; it stays, and {plan.target} is a copy of it"
        )
    try:
        move_folder(plan.source, plan.target)
        archive.os_calls.unlink(plan.source)
    finally:
        store.unlock()
    sync_folder(os.path.dirname(plan.source), archive.os_calls)
    store.close()


def _begun(archive: Archive, plan: Move) -> Item | None:
    """The move that an earlier run began: the file is at both places, and still the same at both."""
    for item in reversed(archive.items()):
        edit = item.edit
        if edit is None or edit.verb != "mv" or (item.path, edit.path) != (plan.source, plan.target):
            continue
        if os.path.isfile(edit.path) and hash_of(edit.path) == edit.sha256 and hash_of(item.path) == item.sha256:
            return item
    return None


def moved_cwd(cwd: str, old: str, new: str) -> str | None:
    """Where work in `cwd` goes when a project moved; None when it does not belong to that project."""
    if cwd == old:
        return new
    return os.path.join(new, os.path.relpath(cwd, old)) if cwd.startswith(old.rstrip(os.sep) + os.sep) else None
