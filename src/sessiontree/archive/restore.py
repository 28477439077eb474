"""Restore archive items, including the state of a session before a rewrite, with the lines added since."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sessiontree.archive.allowed_paths import session_folder
from sessiontree.archive.archive import Archive, SessionArchive, hash_file, iter_lines, line_hash, sync_file
from sessiontree.archive.catalog import ArchiveItem, Edit
from sessiontree.archive.rewrite import Draft, replace_file
from sessiontree.archive.stored_archive import StoredArchive
from sessiontree.errors import ConflictError, ExistsError, NotFoundError
from sessiontree.stores.atomic_files import make_folder, publish_new, sync_folder
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.file import FileStore


def restore(archive: SessionArchive, item: ArchiveItem) -> list[str]:
    """Restore an item; returns the sessions and files that were written, none if all of them exist already."""
    if isinstance(archive, StoredArchive):
        return archive.restore(item)
    assert isinstance(archive, Archive)
    with archive.locked():
        if item.edit is None:
            return archive.restore(item)
        return _undo_edit(archive, item, item.edit)


def _undo_edit(archive: Archive, item: ArchiveItem, edit: Edit) -> list[str]:
    original, rewritten = archive.allowed_paths.check(item.path), archive.allowed_paths.check(edit.path)
    if _starts_with(original, item.size, item.sha256):
        # Either the rewrite never reached its rename, or an earlier run undid it and died before the catalog.
        sync_file(original, archive.os_calls)
        if original != rewritten and _starts_with(rewritten, edit.size, edit.sha256):
            _remove_moved(archive, item, edit)
        archive.remove(item, "restored")
        return []
    extract_hint = f"`sessiontree restore {item.id} --out FILE` writes the old content elsewhere"
    if not os.path.lexists(rewritten):
        raise NotFoundError(f"{rewritten}: the rewritten session does not exist; restore it first, or {extract_hint}")
    if not _starts_with(rewritten, edit.size, edit.sha256):
        raise ConflictError(
            f"{rewritten}: was rewritten again since; undo that first (the newest in `sessiontree restore --list`), "
            f"or {extract_hint}"
        )
    if original != rewritten and os.path.lexists(original):
        raise ExistsError(f"{original}: another file exists; nothing was restored (--out FILE writes it elsewhere)")
    store = FileStore(rewritten, os_calls=archive.os_calls)
    size = store.size()
    make_folder(os.path.dirname(original), archive.os_calls)
    draft = Draft(archive, original, _iter_restored(archive, item, store, edit.size, size))
    try:
        if original == rewritten:
            replace_file(archive, store, size, draft)
        else:
            publish_new(draft.temporary, original, archive.os_calls)
            _remove_moved(archive, item, edit)
    finally:
        draft.discard()
        store.close()
    archive.remove(item, "restored")
    return [original]


def _iter_restored(archive: Archive, item: ArchiveItem, store: FileStore, start: int, end: int) -> Iterator[bytes]:
    """The old content, followed by what was appended to the rewritten file."""
    last = b"\n"
    for chunk in archive.objects.read(item.sha256):
        last = chunk[-1:] or last
        yield chunk
    tail = read_bytes(store, start, end - start)
    if tail and last != b"\n" and not tail.startswith(b"\n"):
        yield b"\n"
    removed = archive.removed_line_hashes(item) if tail else frozenset()
    if not removed:
        yield tail
        return
    # A sync may have brought removed lines back, at the end; they are part of the old content again.
    for line in iter_lines(iter([tail])):
        if line_hash(line) not in removed:
            yield line


def _starts_with(path: str, size: int, sha256: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) >= size and hash_file(path, size) == sha256


def _remove_moved(archive: Archive, item: ArchiveItem, edit: Edit) -> None:
    """After a move was undone: move the session's folder back as well, and delete the file at the new path."""
    moved, original = edit.path, item.path
    if os.path.getsize(moved) - edit.size > os.path.getsize(original) - item.size:
        raise ConflictError(f"{moved}: has lines that are not in {original}; both were left in place")
    move_folder(moved, original)
    archive.os_calls.unlink(moved)
    sync_folder(os.path.dirname(moved), archive.os_calls)


def move_folder(source: str, target: str) -> None:
    """Move the folder of one session file to the folder of another."""
    old, new = session_folder(source), session_folder(target)
    if not os.path.isdir(old) or os.path.islink(old):
        return
    if os.path.lexists(new):
        raise ExistsError(f"{new}: the folder exists already; nothing was moved")
    make_folder(os.path.dirname(new))
    os.rename(old, new)
    sync_folder(os.path.dirname(new))
