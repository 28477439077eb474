"""Bringing things back from the archive, also what a rewritten session was before, with what was added to it since."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sessiontree.archive.allowed_paths import folder_of
from sessiontree.archive.archive import Archive, hash_of, iter_whole_lines, line_hash, settle
from sessiontree.archive.catalog import Edit, Item
from sessiontree.archive.rewrite import Draft, swap
from sessiontree.errors import ConflictError, ExistsError, NotFoundError
from sessiontree.stores.atomic_files import make_folder, publish_new, sync_folder
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.file import FileStore


def restore(archive: Archive, item: Item) -> list[str]:
    """Bring an item back; the files that were written. An empty list says that everything was in its place."""
    with archive.locked():
        if item.edit is None:
            return archive.restore(item)
        return _undo(archive, item, item.edit)


def _undo(archive: Archive, item: Item, edit: Edit) -> list[str]:
    place, now = archive.bounds.check(item.path), archive.bounds.check(edit.path)
    if _begins_with(place, item.size, item.sha256):
        # Either it never came to the rename, or an earlier run undid it and died.
        settle(place, archive.os_calls)
        if place != now and _begins_with(now, edit.size, edit.sha256):
            _remove_copy(archive, item, edit)
        archive.forget(item, "restored")
        return []
    if not os.path.lexists(now):
        raise NotFoundError(
            f"{now}: the rewritten session is not there; bring it back first, or write what it was "
            f"with `sessiontree restore {item.id} --out FILE`"
        )
    if not _begins_with(now, edit.size, edit.sha256):
        raise ConflictError(
            f"{now}: was rewritten again since; undo that first (the newest in `sessiontree restore --list`), "
            f"or write what it was with `sessiontree restore {item.id} --out FILE`"
        )
    if place != now and os.path.lexists(place):
        raise ExistsError(f"{place}: there is another file now; nothing was restored (--out FILE writes it elsewhere)")
    store = FileStore(now, os_calls=archive.os_calls)
    size = store.size()
    make_folder(os.path.dirname(place), archive.os_calls)
    draft = Draft(archive, place, _grown(archive, item, store, edit.size, size))
    try:
        if place == now:
            swap(archive, store, size, draft)
        else:
            publish_new(draft.temporary, place, archive.os_calls)
            _remove_copy(archive, item, edit)
    finally:
        draft.discard()
        store.close()
    archive.forget(item, "restored")
    return [place]


def _grown(archive: Archive, item: Item, store: FileStore, start: int, end: int) -> Iterator[bytes]:
    """What the file was, and behind it what was added to the rewritten one since."""
    last = b"\n"
    for chunk in archive.objects.read(item.sha256):
        last = chunk[-1:] or last
        yield chunk
    tail = read_bytes(store, start, end - start)
    if tail and last != b"\n" and not tail.startswith(b"\n"):
        yield b"\n"
    taken = archive.taken_lines(item) if tail else frozenset()
    if not taken:
        yield tail
        return
    for line in iter_whole_lines(iter([tail])):  # what a sync brought back meanwhile is in its old place again
        if line_hash(line) not in taken:
            yield line


def _begins_with(path: str, size: int, sha256: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) >= size and hash_of(path, size) == sha256


def _remove_copy(archive: Archive, item: Item, edit: Edit) -> None:
    """After a move was undone: the folder goes back, too, and the file at the new place goes."""
    now, place = edit.path, item.path
    if os.path.getsize(now) - edit.size > os.path.getsize(place) - item.size:
        raise ConflictError(f"{now}: has lines that are not in {place}; both stay where they are")
    move_folder(now, place)
    archive.os_calls.unlink(now)
    sync_folder(os.path.dirname(now), archive.os_calls)


def move_folder(source: str, target: str) -> None:
    """Move the folder that belongs to a session file to where it belongs to another one."""
    old, new = folder_of(source), folder_of(target)
    if not os.path.isdir(old) or os.path.islink(old):
        return
    if os.path.lexists(new):
        raise ExistsError(f"{new}: there is a folder already; nothing was moved")
    make_folder(os.path.dirname(new))
    os.rename(old, new)
    sync_folder(os.path.dirname(new))
