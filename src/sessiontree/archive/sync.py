"""Copies of all sessions in another folder: one way (a backup), or both ways (sync over a mounted or synced folder).

    <folder>/<agent>/...      the sessions of an agent, named as below its own root; `<agent>-2` for a second root
    <folder>/<agent>.blobs/   large content of those sessions, by hash

Files that are only on one side are copied. Files that are on both sides are merged (see `merging`). Nothing is ever
overwritten or deleted, on either side.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from sessiontree import plugins
from sessiontree.archive.allowed_paths import Bounds, iter_beside
from sessiontree.archive.archive import hash_of
from sessiontree.archive.archive_home import Home
from sessiontree.archive.candidates import iter_session_files
from sessiontree.archive.merge_copies import Merged, merge_into, stand_at_newest
from sessiontree.dialects.contract import Dialect
from sessiontree.errors import ExistsError, SessionTreeError, UsageError, WriteError
from sessiontree.paths import blobs_folder
from sessiontree.session.open import open
from sessiontree.stores.atomic_files import make_folder, publish_new, write_temporary
from sessiontree.stores.blobs import check_blob_name

_STEP = 1 << 20


class Pair(Struct, frozen=True):
    """A root on this machine, and the folder that stands for it in the copy."""

    dialect: str
    here: str
    there: str


class Told(Struct, frozen=True):
    """What happened to one file, or would happen."""

    path: str
    what: str
    """`copied`, `grown`, `merged`, `conflict` or `failed`."""
    why: str = ""
    branches: tuple[str, ...] = ()


def pairs(roots_of: Mapping[str, Sequence[str]], folder: str) -> list[Pair]:
    """What belongs to what."""
    found: list[Pair] = []
    seen: set[str] = set()
    for name, roots in roots_of.items():
        for number, root in enumerate(roots, 1):
            real = os.path.realpath(os.path.expanduser(root))
            if real not in seen:
                seen.add(real)
                label = name if number == 1 else f"{name}-{number}"
                found.append(Pair(name, real, os.path.join(folder, label)))
    for pair in found:
        if _overlap(pair.here, os.path.realpath(folder)):
            raise UsageError(f"{folder}: overlaps with {pair.here}, where sessions are kept; choose another folder")
    return found


def _overlap(one: str, other: str) -> bool:
    return os.path.commonpath([one, other]) in (one, other)


class Copying:
    """One run over everything. Without `act` it only tells."""

    def __init__(self, home: Home, folder: str) -> None:
        self._home = home.folder
        self._pairs = pairs(home.roots_of, os.path.abspath(folder))
        self._archive = home.archive
        self._os_calls = home.archive.os_calls

    def run(self, *, both_ways: bool, act: bool = True) -> Iterator[Told]:
        """Copy and merge, one file after the other, and tell of each that was not the same already."""
        for pair in self._pairs:
            here, there = _files_of(pair.dialect, pair.here), _files_of(pair.dialect, pair.there)
            for relative in sorted(here | there if both_ways else here):
                yield from self._take(pair, relative, both_ways=both_ways, act=act)
            for one, other in self._blob_folders(pair):
                yield from self._blobs(one, other, act)
                if both_ways:
                    yield from self._blobs(other, one, act)

    def _take(self, pair: Pair, relative: str, *, both_ways: bool, act: bool) -> Iterator[Told]:
        here, there = os.path.join(pair.here, relative), os.path.join(pair.there, relative)
        try:
            Bounds([pair.here]).check(here)
            Bounds([pair.there]).check(there)
            if not os.path.lexists(there):
                yield self._copy(here, there, act, fresh=False)
            elif not os.path.lexists(here):
                yield self._copy(there, here, act, fresh=pair.dialect == "claude")
            elif not relative.endswith(".jsonl"):
                yield from self._beside(here, there, both_ways=both_ways, act=act)
            else:
                yield from self._merge(here, there, both_ways=both_ways, act=act)
        except (SessionTreeError, OSError) as error:
            yield Told(here, "failed", str(error))

    def _copy(self, source: str, target: str, act: bool, *, fresh: bool) -> Told:
        if act:
            make_folder(os.path.dirname(target), self._os_calls)
            temporary = write_temporary(target, _chunks(source), self._os_calls)
            if hash_of(temporary) != hash_of(source):
                self._os_calls.unlink(temporary)
                raise WriteError(f"{source}: changed while it was being copied; try again")
            if not fresh:
                found = os.stat(source)
                os.utime(temporary, ns=(found.st_mtime_ns, found.st_mtime_ns))
            publish_new(temporary, target, self._os_calls)
        return Told(target, "copied")

    def _merge(self, here: str, there: str, *, both_ways: bool, act: bool) -> Iterator[Told]:
        stood = (_leaf(here), _leaf(there)) if os.path.getsize(here) != os.path.getsize(there) or both_ways else None
        directions = [(there, here), (here, there)] if both_ways else [(there, here)]
        for target, source in directions:
            taken = self._taken(target)
            done = merge_into(target, source, without=taken, act=act, os_calls=self._os_calls)
            if act and done.outcome == "merged" and stood is not None:
                stand_at_newest(target, *stood)
            yield from _told(target, done)

    def _taken(self, path: str) -> frozenset[bytes]:
        """What was pruned or shrunk away on this machine stays away: it is in the archive."""
        edits = [item for item in self._archive.items() if item.edit is not None and item.edit.path == path]
        return frozenset().union(*(self._archive.taken_lines(item) for item in edits))

    def _beside(self, here: str, there: str, *, both_ways: bool, act: bool) -> Iterator[Told]:
        """Files without lines: when they differ, each side gets a copy of the other's under a name that says so."""
        ours, theirs = hash_of(here), hash_of(there)
        if ours == theirs:
            return
        for source, target, sha256 in ((here, there, ours), (there, here, theirs)):
            kept = f"{target}.conflict-{sha256[:8]}"
            if (both_ways or target == there) and not os.path.lexists(kept) and ".conflict-" not in source:
                self._copy(source, kept, act, fresh=False)
                yield Told(target, "conflict", f"differs; the other one is kept as {os.path.basename(kept)}")

    def _blob_folders(self, pair: Pair) -> Iterator[tuple[str, str]]:
        if pair.dialect == "native":
            yield blobs_folder(self._home), f"{pair.there}.blobs"
        elif pair.dialect == "omp":
            yield os.path.join(os.path.dirname(pair.here), "blobs"), f"{pair.there}.blobs"

    def _blobs(self, source: str, target: str, act: bool) -> Iterator[Told]:
        for path in _blobs_in(source):
            copy = os.path.join(target, os.path.relpath(path, source))
            if os.path.lexists(copy):
                continue
            try:
                if hash_of(path) == os.path.basename(path):
                    with contextlib.suppress(ExistsError):
                        yield self._copy(path, copy, act, fresh=False)
            except (SessionTreeError, OSError) as error:
                yield Told(path, "failed", str(error))


def _told(path: str, done: Merged) -> Iterator[Told]:
    if done.outcome in ("grown", "merged", "conflict"):
        yield Told(path, done.outcome, done.why, done.branches)


def _leaf(path: str) -> str | None:
    try:
        return open(path).leaf
    except SessionTreeError:
        return None


def _files_of(dialect_name: str, root: str) -> set[str]:
    """The files below a root that belong to sessions, by their paths from there."""
    dialect: Dialect = plugins.load("dialects", dialect_name)
    found: set[str] = set()
    for path in iter_session_files([root]):
        relative = os.path.relpath(path, root)
        if dialect.classify_file(root, relative) is not None:
            found.add(relative)
            found.update(os.path.relpath(file, root) for file in iter_beside(path))
    return {relative for relative in found if not relative.endswith(".tmp")}


def _blobs_in(folder: str) -> Iterator[str]:
    for at, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(names):
            with contextlib.suppress(SessionTreeError):
                check_blob_name(name)
                if not os.path.islink(os.path.join(at, name)):
                    yield os.path.join(at, name)


def _chunks(path: str) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        yield from iter(lambda: file.read(_STEP), b"")
