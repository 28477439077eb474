"""Copy sessions from one home to another, byte for byte: folders and databases, in both directions.

A session that the target has is continued where the copy ends, so a transfer that was interrupted is repeated, and
nothing is copied twice. A session that grew in both places is reported and left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

from sessiontree.errors import ExistsError, NotFoundError, SessionTreeError
from sessiontree.paths import check_session_id
from sessiontree.session.blob_refs import copy_blobs
from sessiontree.session.open import open as open_session
from sessiontree.stores.contract import SessionRepository, SessionStat, SessionStore, read_bytes

_BLOCK = 4 << 20

Outcome = Literal["copied", "extended", "current", "ahead", "diverged", "failed"]
Progress = Callable[[int, int], None]


class Transferred(Struct, frozen=True):
    """What became of one session."""

    id: str
    outcome: Outcome
    size: int
    """Bytes that were copied."""
    problem: str = ""


def transfer(
    source: SessionRepository, target: SessionRepository, *, dry_run: bool = False, progress: Progress | None = None
) -> Iterator[Transferred]:
    """Copy all sessions with their blobs; reports each one."""
    stats = sorted(source.iter_stats(), key=lambda stat: stat.id)
    for number, stat in enumerate(stats):
        if progress is not None:
            progress(number, len(stats))
        try:
            check_session_id(stat.id)  # before it becomes a part of a reference
            yield _transfer_one(source, target, stat, dry_run=dry_run)
        except SessionTreeError as error:
            yield Transferred(stat.id, "failed", 0, str(error))
    if progress is not None:
        progress(len(stats), len(stats))


def _transfer_one(
    source: SessionRepository, target: SessionRepository, stat: SessionStat, *, dry_run: bool
) -> Transferred:
    origin = source.open(stat.ref)
    try:
        end = _end_of_lines(origin, origin.size())
        copy = _find(target, stat.id)
        held = 0 if copy is None else copy.size()
        with contextlib.closing(copy) if copy is not None else contextlib.nullcontext():
            if not _agree(origin, copy, min(held, end)):
                return Transferred(stat.id, "diverged", 0, "it grew in both homes; nothing was copied")
            if held >= end and copy is not None:
                return Transferred(stat.id, "ahead" if held > end else "current", 0)
            if not dry_run:
                lines = copy_blobs(_blocks(origin, held, end), source.blobs, target.blobs)
                if copy is None:
                    _create(target, stat, lines)
                else:
                    _extend(copy, lines, held)
        return Transferred(stat.id, "copied" if copy is None else "extended", end - held)
    finally:
        origin.close()


def _create(target: SessionRepository, stat: SessionStat, lines: Iterator[bytes]) -> None:
    with contextlib.closing(open_session(str(stat.ref), dialect=stat.dialect or None)) as session:
        header = session.header
    created = target.new(stat.id, timestamp=header.timestamp, cwd=header.cwd)
    created.create(lines)
    created.close()


def _extend(copy: SessionStore, lines: Iterator[bytes], size: int) -> None:
    for block in lines:
        end = copy.append(block, expected_size=size)
        if end != size + len(block):
            raise ExistsError(f"{copy.location}: another writer appended to it; run the command again")
        size = end
    copy.sync()


def _find(target: SessionRepository, id: str) -> SessionStore | None:
    with contextlib.suppress(NotFoundError):
        ref = target.find(id)
        store = target.open(ref)
        store.size()
        return store
    return None


def _agree(origin: SessionStore, copy: SessionStore | None, size: int) -> bool:
    """Whether both start with the same bytes."""
    if copy is None:
        return True
    return all(
        read_bytes(origin, start, min(_BLOCK, size - start)) == read_bytes(copy, start, min(_BLOCK, size - start))
        for start in range(0, size, _BLOCK)
    )


def _end_of_lines(store: SessionStore, size: int) -> int:
    """The end of the last complete line: a line that is still being written is copied the next time."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = read_bytes(store, start, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _blocks(store: SessionStore, start: int, end: int) -> Iterator[bytes]:
    """Bytes in blocks of complete lines: a reference to a blob is never cut in two."""
    rest = b""
    for offset in range(start, end, _BLOCK):
        data = rest + read_bytes(store, offset, min(_BLOCK, end - offset))
        cut = data.rfind(b"\n") + 1
        if cut:
            yield data[:cut]
        rest = data[cut:]
