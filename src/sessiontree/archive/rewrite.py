"""Rewrite a session file without loss.

A rewrite is a list of byte changes; everything between them is copied verbatim. The new file is written under a
temporary name, read back and compared. Then the old content is archived. Only then is the new file renamed over the old
one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from sessiontree.archive.archive import Archive, SessionArchive
from sessiontree.archive.archive_home import session_info
from sessiontree.archive.catalog import ArchiveItem, Edit
from sessiontree.archive.stored_archive import StoredArchive
from sessiontree.core.context import Context
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.errors import ConflictError, DamagedError, ReadOnlyError, WriteError
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader
from sessiontree.session.session import Session
from sessiontree.stores.atomic_files import sync_folder, write_temporary
from sessiontree.stores.contract import SessionStore, read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.memory import MemoryStore
from sessiontree.stores.read_only import ReadOnlyStore

_CHUNK = 1 << 20
Check = Callable[[Reader], None]
"""Checks a rewritten session, and raises an error if it is wrong."""


class ByteChange(Struct, frozen=True, order=True):
    """A byte range of a file and its replacement, which is empty for a deletion."""

    start: int
    end: int
    new: bytes = b""


class Draft:
    """The new content of a file under a temporary name, with its size and hash. Always `discard` it."""

    def __init__(self, archive: Archive, path: str, chunks: Iterable[bytes]) -> None:
        self._os_calls = archive.os_calls
        self._digest = hashlib.sha256()
        self.path, self.size = path, 0
        try:
            self.temporary = write_temporary(path, self._measure(chunks), self._os_calls)
        except OSError as error:
            raise WriteError(f"{path}: cannot be written: {error.strerror}; nothing was changed") from error

    def _measure(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._digest.update(chunk)
            self.size += len(chunk)
            yield chunk

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def open_like(self, session: Session) -> Reader:
        """Open the draft with the options of the session it was made from."""
        store = FileStore(self.temporary)
        store.size()  # opens the file, so that the location below is only used for messages and related paths
        store.location = self.path
        return Reader(Journal(store, session.dialect, session.journal.find_repository), session.read_options)

    @property
    def is_unpublished(self) -> bool:
        """Whether it still has its temporary name."""
        return os.path.lexists(self.temporary)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.temporary)


def check_rewritable(session: Session) -> None:
    """`ReadOnlyError` for a session that is not stored as a file of lines, such as one in a database."""
    if isinstance(session.journal.store, ReadOnlyStore):
        raise ReadOnlyError(f"{session.location}: this works only for sessions in files of lines")


def rewrite(
    archive: SessionArchive, session: Session, changes: Sequence[ByteChange], verb: str, check: Check
) -> ArchiveItem:
    """Apply changes to a session; returns the archive item that undoes them."""
    check_rewritable(session)
    if isinstance(archive, StoredArchive):
        return _rewrite_stored(archive, session, changes, verb, check)
    assert isinstance(archive, Archive)
    with archive.locked():
        path = archive.allowed_paths.check_file(session.location)
        size = session.journal.size
        draft = Draft(archive, path, iter_spliced(session.journal.store, size, changes))
        try:
            check(draft.open_like(session))
            edit = Edit(verb, path, draft.size, draft.sha256, removed_ranges(changes))
            item = archive.add_edit(session_info(session), path, edit, verb)
            try:
                # The archive read the file after we did; another writer may have appended in between.
                if item.size != size:
                    raise ConflictError(f"{path}: changed during the rewrite; nothing was written")
                replace_file(archive, session.journal.store, size, draft)
            except BaseException:
                if draft.is_unpublished:  # the rename was not reached, so there is nothing to undo
                    archive.remove(item, "not carried out")
                raise
            return item
        finally:
            draft.discard()


def _rewrite_stored(
    archive: StoredArchive, session: Session, changes: Sequence[ByteChange], verb: str, check: Check
) -> ArchiveItem:
    """`rewrite` in a repository: the draft is in memory, so that no file has a line of it."""
    store, size = session.journal.store, session.journal.size
    new = b"".join(iter_spliced(store, size, changes))
    draft = MemoryStore(new, ref=session.ref)
    check(Reader(Journal(draft, session.dialect, session.journal.find_repository), session.read_options))
    edit = Edit(verb, str(session.ref), len(new), hashlib.sha256(new).hexdigest(), removed_ranges(changes))
    item = archive.add_edit(session_info(session), edit)
    try:
        if item.size != size:
            raise ConflictError(f"{session.ref}: changed during the rewrite; nothing was written")
        store.replace([new], expected_size=size)
    except ConflictError:
        archive.remove(item, "not carried out")
        raise
    return item


def removed_ranges(changes: Sequence[ByteChange]) -> tuple[tuple[int, int], ...]:
    """Offsets and lengths of deletions."""
    deletions = (change for change in merge_changes(changes) if not change.new)
    return tuple((change.start, change.end - change.start) for change in deletions)


def replace_file(archive: Archive, store: SessionStore, size: int, draft: Draft) -> None:
    """Rename a draft over its file, if the file still has the given size."""
    # Locked until after the rename: a line appended in between would be lost with the old file.
    with store.exclusive() as found:
        if found != size:
            raise ConflictError(f"{draft.path}: changed during the rewrite; nothing was written")
        archive.os_calls.rename(draft.temporary, draft.path)
    sync_folder(os.path.dirname(draft.path), archive.os_calls)
    store.close()


def iter_spliced(store: SessionStore, size: int, changes: Iterable[ByteChange]) -> Iterator[bytes]:
    """The bytes of a store with changes applied, in chunks."""
    position = 0
    for change in sorted(changes):
        yield from _iter_chunks(store, position, change.start)
        if change.new:
            yield change.new
        position = change.end
    yield from _iter_chunks(store, position, size)


def _iter_chunks(store: SessionStore, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        chunk = read_bytes(store, start, min(_CHUNK, end - start))
        if not chunk:
            raise ConflictError(f"{store.location}: was truncated while it was read; nothing was changed")
        yield chunk
        start += len(chunk)


def merge_changes(changes: Iterable[ByteChange]) -> list[ByteChange]:
    """Sort changes and join adjacent deletions."""
    found: list[ByteChange] = []
    for change in sorted(changes):
        if found and not change.new and not found[-1].new and found[-1].end == change.start:
            found[-1] = ByteChange(found[-1].start, change.end)
        else:
            found.append(change)
    return found


def line_range(session: Reader, node: int) -> tuple[int, int]:
    """Start and end of an entry's line, including its LF; `DamagedError` if it shares the line."""
    journal = session.journal
    span = journal.span(node)
    starts_line = span.start == 0 or read_bytes(journal.store, span.start - 1, 1) == b"\n"
    following = read_bytes(journal.store, span.end, 1)
    if not starts_line or following not in (b"", b"\n"):
        raise DamagedError(
            f"{session.location}:{span.line} byte {span.start}: two entries share this line; "
            "run `sessiontree repair` first"
        )
    return span.start, span.end + len(following)


def removal_changes(session: Reader, nodes: Iterable[int]) -> list[ByteChange]:
    """The changes that delete the lines of some entries."""
    return [ByteChange(*line_range(session, node)) for node in sorted(nodes)]


def check_unchanged(before: Reader, after: Reader, leaves: Iterable[str]) -> None:
    """Check that current entry, name and the context of some branches are equal; `DamagedError` otherwise."""
    if before.leaf != after.leaf:
        raise _refusal(before, f"its current entry would be {after.leaf} instead of {before.leaf}")
    if before.name != after.name:
        raise _refusal(before, "its name would change")
    for leaf in leaves:
        if leaf not in after or not is_same_context(before.context(leaf), after.context(leaf)):
            raise _refusal(before, f"the branch that ends at {leaf} would change")


def is_same_context(left: Context, right: Context) -> bool:
    """Whether two contexts are equal for a model. Ids of metadata lines may differ: they depend on line numbers."""
    return left.messages == right.messages and left.state == right.state and _sources(left) == _sources(right)


def _sources(context: Context) -> list[str]:
    return [source for source in context.sources if not is_metadata_id(source)]


def _refusal(session: Reader, why: str) -> DamagedError:
    return DamagedError(f"{session.location}: {why}; nothing was written. `sessiontree doctor` shows details.")
