"""Rewriting a session file so that nothing is lost: written beside, read back and compared, archived, then renamed.

A rewrite is a list of changes to the bytes of a file; everything between them is copied as it stands. What the file was
is in the archive before the new one takes its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from sessiontree.archive.archive import Archive
from sessiontree.archive.archive_home import about
from sessiontree.archive.catalog import Edit, Item
from sessiontree.core.context import Context
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.errors import ConflictError, DamagedError, WriteError
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session
from sessiontree.stores.atomic_files import sync_folder, write_temporary
from sessiontree.stores.contract import Store, read_bytes
from sessiontree.stores.file import FileStore

_STEP = 1 << 20
Check = Callable[[Reader], None]


class Change(Struct, frozen=True, order=True):
    """Bytes of a file and what shall stand in their place; nothing, when they leave it."""

    start: int
    end: int
    new: bytes = b""


class Draft:
    """The new content of a file under a name nobody looks at, with its hash. Always `discard` it."""

    def __init__(self, archive: Archive, path: str, chunks: Iterable[bytes]) -> None:
        self._os_calls = archive.os_calls
        self._digest = hashlib.sha256()
        self.path, self.size = path, 0
        try:
            self.temporary = write_temporary(path, self._counted(chunks), self._os_calls)
        except OSError as error:
            raise WriteError(f"{path}: could not be written: {error.strerror}; nothing was changed") from error

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._digest.update(chunk)
            self.size += len(chunk)
            yield chunk

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def read_like(self, session: Session) -> Reader:
        """The session in the draft, read like the one it comes from, as if it lay where it will."""
        store = FileStore(self.temporary)
        store.size()  # from now on the file is open, and its name is only a name
        store.location = self.path
        return Reader(Journal(store, session.dialect, session.journal.blobs), session.read_options)

    @property
    def is_beside(self) -> bool:
        """Whether it still has the name that nobody looks at."""
        return os.path.lexists(self.temporary)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.temporary)


def rewrite(archive: Archive, session: Session, changes: Sequence[Change], verb: str, check: Check) -> Item:
    """Carry out changes of a session's file. Gives the item in the archive that undoes them."""
    with archive.locked():
        path = archive.bounds.check_file(session.location)
        size = session.journal.size
        draft = Draft(archive, path, spliced(session.journal.store, size, changes))
        try:
            check(draft.read_like(session))
            taken = tuple((change.start, change.end - change.start) for change in merged(changes) if not change.new)
            edit = Edit(verb, path, draft.size, draft.sha256, taken)
            item = archive.put_edit(about(session), path, edit, verb)
            try:
                if item.size != size:
                    raise ConflictError(f"{path}: changed while it was being rewritten; it is as it was")
                swap(archive, session.journal.store, size, draft)
            except BaseException:
                if draft.is_beside:  # it has not taken the file's name: what the archive holds is in its place
                    archive.forget(item, "not carried out")
                raise
            return item
        finally:
            draft.discard()


def swap(archive: Archive, store: Store, size: int, draft: Draft) -> None:
    """Put a draft in the place of a file, if that still has the size it had."""
    if store.lock() != size:
        store.unlock()
        raise ConflictError(f"{draft.path}: changed while it was being rewritten; it is as it was")
    try:
        archive.os_calls.rename(draft.temporary, draft.path)
    finally:
        store.unlock()
    sync_folder(os.path.dirname(draft.path), archive.os_calls)
    store.close()


def spliced(store: Store, size: int, changes: Iterable[Change]) -> Iterator[bytes]:
    """The bytes of a store with some of them changed, piece by piece."""
    at = 0
    for change in sorted(changes):
        yield from _copied(store, at, change.start)
        if change.new:
            yield change.new
        at = change.end
    yield from _copied(store, at, size)


def _copied(store: Store, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        chunk = read_bytes(store, start, min(_STEP, end - start))
        if not chunk:
            raise ConflictError(f"{store.location}: became shorter while it was read; nothing was changed")
        yield chunk
        start += len(chunk)


def merged(changes: Iterable[Change]) -> list[Change]:
    """Changes in order, with neighbours that only take away made one."""
    found: list[Change] = []
    for change in sorted(changes):
        if found and not change.new and not found[-1].new and found[-1].end == change.start:
            found[-1] = Change(found[-1].start, change.end)
        else:
            found.append(change)
    return found


def line_of(session: Reader, node: int) -> tuple[int, int]:
    """Where the line of an entry begins and ends, LF included; refused when the entry has no line of its own."""
    journal = session.journal
    place = journal.span(node)
    starts = place.start == 0 or read_bytes(journal.store, place.start - 1, 1) == b"\n"
    behind = read_bytes(journal.store, place.end, 1)
    if not starts or behind not in (b"", b"\n"):
        raise DamagedError(
            f"{session.location}:{place.line} byte {place.start}: shares its line with something else; "
            "`sessiontree repair` gives it a line of its own first"
        )
    return place.start, place.end + len(behind)


def removed_lines(session: Reader, nodes: Iterable[int]) -> list[Change]:
    """The changes that take entries out of a file."""
    return [Change(*line_of(session, node)) for node in sorted(nodes)]


def check_same(before: Reader, after: Reader, leaves: Iterable[str]) -> None:
    """The conversation of each of these branches is the same, and the session stands where it stood.

    `DamagedError` otherwise: nothing was written then.
    """
    if before.leaf != after.leaf:
        raise _refusal(before, f"it would stand at {after.leaf} instead of {before.leaf}")
    if before.name != after.name:
        raise _refusal(before, "it would be called otherwise")
    for leaf in leaves:
        if leaf not in after or not is_same(before.context(leaf), after.context(leaf)):
            raise _refusal(before, f"the branch that ends at {leaf} would not read the same")


def is_same(one: Context, other: Context) -> bool:
    """Whether two contexts are the same to a model. What an entry beside the tree is called may change."""
    return one.messages == other.messages and one.state == other.state and _sources(one) == _sources(other)


def _sources(context: Context) -> list[str]:
    return [source for source in context.sources if not is_metadata_id(source)]


def _refusal(session: Reader, why: str) -> DamagedError:
    return DamagedError(f"{session.location}: {why}; nothing was written. `sessiontree doctor` may tell more.")
