"""Merge two copies of one session file: append to each the lines that only the other has.

Nothing is overwritten or reordered, so existing branches do not change. If both copies continued, the result has two
branches.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import BinaryIO, Literal

from msgspec import Struct

from sessiontree.archive.archive import line_hash
from sessiontree.dialects.contract import Envelope
from sessiontree.errors import ConflictError, SessionTreeError
from sessiontree.session.open import open
from sessiontree.session.session import Session
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

_CHUNK = 1 << 20
_ATTEMPTS = 4

Outcome = Literal["same", "behind", "grown", "merged", "conflict"]


class MergeResult(Struct, frozen=True):
    """What a merge did to the target."""

    outcome: Outcome
    """`same`; `behind`: the source has nothing new; `grown`: the source continued it; `merged`; `conflict`."""
    lines: int = 0
    branches: tuple[str, ...] = ()
    """The current entries of both copies if both continued: now the tips of two branches."""
    why: str = ""


def merge_into(
    target: str,
    source: str,
    *,
    without: frozenset[bytes] = frozenset(),
    dry_run: bool = False,
    os_calls: OsCalls = OS_CALLS,
) -> MergeResult:
    """Append to `target` the lines that only `source` has, except those with the hashes in `without`."""
    for _ in range(_ATTEMPTS):
        shared = common_prefix(target, source)
        size, source_size = os.path.getsize(target), os.path.getsize(source)
        if shared == source_size:
            return MergeResult("same" if size == source_size else "behind")
        if shared == size:
            missing = _read(source, shared, source_size)
            result = MergeResult("grown", missing.count(b"\n"))
        else:
            result, missing = _find_missing(target, source, without)
            if result.outcome == "conflict" or not missing:
                return result
        if dry_run or _append(target, size, missing, os_calls):
            return result
    raise ConflictError(f"{target}: other processes kept writing to it; try again later")


def common_prefix(left: str, right: str) -> int:
    """The number of bytes at the start that two files have in common."""
    with _open(left) as left_file, _open(right) as right_file:
        shared = 0
        while True:
            left_chunk, right_chunk = left_file.read(_CHUNK), right_file.read(_CHUNK)
            if left_chunk == right_chunk and left_chunk:
                shared += len(left_chunk)
                continue
            length = min(len(left_chunk), len(right_chunk))
            return shared + next((at for at in range(length) if left_chunk[at] != right_chunk[at]), length)


def _find_missing(target: str, source: str, without: frozenset[bytes]) -> tuple[MergeResult, bytes]:
    """The complete lines that only the source has, in its order, as bytes to append."""
    try:
        ours, theirs = open(target), open(source)
    except SessionTreeError as error:
        return MergeResult("conflict", why=f"cannot be merged: {error}"), b""
    if (ours.id, ours.dialect.name) != (theirs.id, theirs.dialect.name):
        return MergeResult("conflict", why=f"a different session: {theirs.id} instead of {ours.id}"), b""
    data = _read(target, 0, os.path.getsize(target))
    # A counter, not a set: equal lines may occur several times, and each occurrence matches one of ours.
    unmatched = Counter(data.split(b"\n"))
    torn = data[data.rfind(b"\n") + 1 :]
    local = _local_lines(theirs)
    wanted: dict[int, bytes] = {}
    withheld: dict[int, bytes] = {}
    changed = 0
    for number, line in enumerate(_read(source, 0, os.path.getsize(source)).split(b"\n")[:-1], 1):
        if unmatched[line]:
            unmatched[line] -= 1
        elif number in local or not line:
            continue
        elif _has_known_id(ours, theirs, line):
            changed += 1
        else:
            (withheld if without and line_hash(line) in without else wanted)[number] = line
    lines = _add_ancestors(theirs, wanted, withheld)
    difference = "1 line differs" if changed == 1 else f"{changed} lines differ"
    why = f"{difference} under the same id; each file keeps its own" if changed else ""
    if not lines:
        return MergeResult("conflict" if changed else "behind", why=why), b""
    leaves = tuple(leaf for leaf in (ours.leaf, theirs.leaf) if leaf is not None)
    result = MergeResult("merged", len(lines), leaves, why)
    # A torn last line that is the start of a missing one comes from a run that died while appending: complete it.
    begun = next((line for line in lines if torn and line.startswith(torn)), None)
    if begun is not None:
        lines.remove(begun)
        return result, begun[len(torn) :] + b"\n" + b"".join(line + b"\n" for line in lines)
    return result, (b"\n" if torn else b"") + b"".join(line + b"\n" for line in lines)


def _add_ancestors(session: Session, wanted: dict[int, bytes], withheld: dict[int, bytes]) -> list[bytes]:
    """The wanted lines in file order, with those withheld lines that are ancestors of a wanted one."""
    if wanted and withheld:
        journal = session.journal
        lines = {node: journal.span(node).line for node in range(len(journal))}
        needed: set[int] = set()
        for node in (node for node, line in lines.items() if line in wanted):
            needed.update(lines[ancestor] for ancestor in journal.tree.path(node))
        wanted = wanted | {number: line for number, line in withheld.items() if number in needed}
    return [wanted[number] for number in sorted(wanted)]


def _local_lines(session: Session) -> set[int]:
    """The numbers of lines that each copy has for itself: its header, and a title that is overwritten in place."""
    journal = session.journal
    local = {journal.header_span.line} if journal.header_span is not None else set()
    own = session.dialect.client.own_line_types
    return local | {journal.span(node).line for node, kind in enumerate(journal.types) if kind in own}


def _has_known_id(ours: Session, theirs: Session, line: bytes) -> bool:
    """Whether our copy has an entry with the id of this line: appended, the line would replace it."""
    fields = theirs.journal.fields_of(line)
    envelope = theirs.dialect.decode_line(fields, 0)
    return isinstance(envelope, Envelope) and envelope.id in ours


def move_to_newest(target: str, before: str | None, theirs: str | None) -> None:
    """After a merge, make the newer one of both current entries current, so that all copies agree."""
    session = open(target)
    if session.read_only is not None:
        return
    newest = session.leaf
    for leaf in (before, theirs):
        if leaf is not None and leaf in session and (newest is None or _is_newer(session, leaf, newest)):
            newest = leaf
    if newest is not None and newest != session.leaf:
        session.move(newest)
    session.close()


def _is_newer(session: Session, left: str, right: str) -> bool:
    """Whether an entry is a descendant of another, or has a later time on another branch."""
    if left == right or left in session.path_ids(right):
        return False
    return right in session.path_ids(left) or session.entry(left).timestamp > session.entry(right).timestamp


def _append(target: str, size: int, data: bytes, os_calls: OsCalls) -> bool:
    """Append durably if the file still has the given size; False otherwise."""
    store = FileStore(target, os_calls=os_calls)
    try:
        if store.append(data, expected_size=size) is None:
            return False
        store.sync()
    finally:
        store.close()
    return True


def _read(path: str, start: int, end: int) -> bytes:
    store = FileStore(path)
    try:
        return read_bytes(store, start, end - start)
    finally:
        store.close()


def _open(path: str) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
