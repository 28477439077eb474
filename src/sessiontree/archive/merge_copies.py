"""One file that two machines went on with: every line of one that the other has not is appended to it.

Nothing is overwritten and no order is changed, so each branch stays what it was; where both went on, there are two
branches then. A line that was half appended when a process died is completed by the next run.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import BinaryIO, Literal

from msgspec import Struct

from sessiontree.archive.archive import line_hash
from sessiontree.dialects.omp.detect import SLOT
from sessiontree.errors import ConflictError, SessionTreeError
from sessiontree.session.open import open
from sessiontree.session.session import Session
from sessiontree.stores.contract import read_bytes
from sessiontree.stores.file import FileStore
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

_STEP = 1 << 20
_TRIES = 4

Outcome = Literal["same", "behind", "grown", "merged", "conflict"]


class Merged(Struct, frozen=True):
    """What became of a file that is there twice."""

    outcome: Outcome
    """The same; one is the beginning of the other (it has grown, or is behind); merged; or not to be merged."""
    lines: int = 0
    branches: tuple[str, ...] = ()
    """Where the two stand, if both went on: the ends of two branches now."""
    why: str = ""


def merge_into(
    target: str, source: str, *, without: frozenset[bytes] = frozenset(), act: bool = True, os_calls: OsCalls = OS_CALLS
) -> Merged:
    """Append to one file what only the other has, but for lines with these hashes. The other is only read."""
    for _ in range(_TRIES):
        shared = common_prefix(target, source)
        size, other = os.path.getsize(target), os.path.getsize(source)
        if shared == other:
            return Merged("same" if size == other else "behind")
        if shared == size:
            rest = _read(source, shared, other)
            done = _append(target, size, rest, os_calls) if act else True
            outcome = Merged("grown", rest.count(b"\n"))
        else:
            found, missing = _missing(target, source, without)
            if found.outcome == "conflict" or not missing:
                return found
            done = _append(target, size, missing, os_calls) if act else True
            outcome = found
        if done:
            return outcome
    raise ConflictError(f"{target}: others kept writing to it; it is as they left it")


def common_prefix(one: str, other: str) -> int:
    """How many bytes two files have in common from their beginnings."""
    with _open(one) as first, _open(other) as second:
        shared = 0
        while True:
            left, right = first.read(_STEP), second.read(_STEP)
            if left == right and left:
                shared += len(left)
                continue
            least = min(len(left), len(right))
            return shared + next((at for at in range(least) if left[at] != right[at]), least)


def _missing(target: str, source: str, without: frozenset[bytes]) -> tuple[Merged, bytes]:
    """The whole lines that only the source has, in its order, as they have to be appended."""
    try:
        ours, theirs = open(target), open(source)
    except SessionTreeError as error:
        return Merged("conflict", why=f"no session that could be merged: {error}"), b""
    if (ours.id, ours.dialect.name) != (theirs.id, theirs.dialect.name):
        return Merged("conflict", why=f"another session: {theirs.id} instead of {ours.id}"), b""
    data = _read(target, 0, os.path.getsize(target))
    have = Counter(data.split(b"\n"))
    tail = data[data.rfind(b"\n") + 1 :]
    own = _own_lines(theirs)
    wanted: dict[int, bytes] = {}
    withheld: dict[int, bytes] = {}
    changed = 0
    for number, line in enumerate(_read(source, 0, os.path.getsize(source)).split(b"\n")[:-1], 1):
        if have[line]:
            have[line] -= 1
        elif number in own or not line:
            continue
        elif _is_changed(ours, theirs, line):
            changed += 1
        else:
            (withheld if without and line_hash(line) in without else wanted)[number] = line
    lines = _with_ancestors(theirs, wanted, withheld)
    why = f"{changed} lines say something else under the same id; each file keeps its own" if changed else ""
    stand = tuple(leaf for leaf in (ours.leaf, theirs.leaf) if leaf is not None)
    if not lines:
        return Merged("conflict" if changed else "behind", why=why), b""
    found = Merged("merged", len(lines), stand, why)
    begun = next((line for line in lines if tail and line.startswith(tail)), None)
    if begun is not None:  # an earlier run died within this line
        lines.remove(begun)
        return found, begun[len(tail) :] + b"\n" + b"".join(line + b"\n" for line in lines)
    return found, (b"\n" if tail else b"") + b"".join(line + b"\n" for line in lines)


def _with_ancestors(session: Session, wanted: dict[int, bytes], withheld: dict[int, bytes]) -> list[bytes]:
    """The wanted lines in file order, and of the withheld ones those that a wanted one hangs on."""
    if wanted and withheld:
        journal = session.journal
        line_of = {node: journal.span(node).line for node in range(len(journal))}
        needed: set[int] = set()
        for node in (node for node, line in line_of.items() if line in wanted):
            needed.update(line_of[ancestor] for ancestor in journal.tree.path(node))
        wanted = wanted | {number: line for number, line in withheld.items() if number in needed}
    return [wanted[number] for number in sorted(wanted)]


def _own_lines(session: Session) -> set[int]:
    """The numbers of the lines that each file has for itself: its header, and a title in a fixed place."""
    journal = session.journal
    own = {journal.header_span.line} if journal.header_span is not None else set()
    return own | {journal.span(node).line for node, kind in enumerate(journal.types) if kind == SLOT}


def _is_changed(ours: Session, theirs: Session, line: bytes) -> bool:
    """Whether a line says something under an id that our file has, too: appended, it would hide what ours says."""
    fields = theirs.journal.fields_of(line)
    return bool(fields) and theirs.dialect.envelope(fields).id in ours


def stand_at_newest(target: str, before: str | None, theirs: str | None) -> None:
    """After a merge: let the session stand at the newer one of the two places, as both machines would have it."""
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


def _is_newer(session: Session, one: str, other: str) -> bool:
    """Whether an entry goes on from another one, or was said later on another branch."""
    if one == other or one in session.path_ids(other):
        return False
    return other in session.path_ids(one) or session.entry(one).timestamp > session.entry(other).timestamp


def _append(target: str, size: int, data: bytes, os_calls: OsCalls) -> bool:
    """Append durably, if the file still has the size it had; else False."""
    store = FileStore(target, os_calls=os_calls)
    try:
        if store.lock() != size:
            store.unlock()
            return False
        try:
            store.append(data)
        finally:
            store.unlock()
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
