"""Copies of all sessions in another folder: one way (backup) or both ways (sync through a shared folder).

    <folder>/<agent>/...      the sessions of an agent, with paths as in its own root; `<agent>-2` for a second root
    <folder>/<agent>.blobs/   large content of those sessions, by hash

Files on one side only are copied; files on both sides are merged (see `merge_copies`). Nothing is overwritten or
deleted, on either side.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from sessiontree import plugins
from sessiontree.archive.allowed_paths import AllowedPaths, iter_related_files
from sessiontree.archive.archive import hash_file
from sessiontree.archive.archive_home import Home
from sessiontree.archive.candidates import iter_session_files
from sessiontree.archive.merge_copies import MergeResult, merge_into, move_to_newest
from sessiontree.clients import client_of, read_client_file
from sessiontree.dialects.contract import Locations
from sessiontree.errors import ExistsError, SessionTreeError, UsageError, WriteError
from sessiontree.paths import blobs_folder
from sessiontree.session.open import open
from sessiontree.stores.atomic_files import make_folder, publish_new, write_temporary
from sessiontree.stores.blobs import check_blob_name

_CHUNK = 1 << 20


class FolderPair(Struct, frozen=True):
    """A session root of this machine and its counterpart in the copy."""

    dialect: str
    local: str
    remote: str


class SyncResult(Struct, frozen=True):
    """What was done with one file, or would be done."""

    path: str
    what: str
    """`copied`, `grown`, `merged`, `conflict` or `failed`."""
    why: str = ""
    branches: tuple[str, ...] = ()
    approvals: str = ""
    """Approvals in a file that was received. They are copied like every line, and grant nothing here."""


def pair_folders(roots_by_dialect: Mapping[str, Sequence[str]], folder: str) -> list[FolderPair]:
    """Pair each session root with its folder in the copy."""
    found: list[FolderPair] = []
    seen: set[str] = set()
    for name, roots in roots_by_dialect.items():
        for number, root in enumerate(roots, 1):
            real = os.path.realpath(os.path.expanduser(root))
            if real not in seen:
                seen.add(real)
                label = name if number == 1 else f"{name}-{number}"
                found.append(FolderPair(name, real, os.path.join(folder, label)))
    for pair in found:
        if _overlap(pair.local, os.path.realpath(folder)):
            raise UsageError(f"{folder}: overlaps with the session folder {pair.local}; choose another folder")
    return found


def _overlap(left: str, right: str) -> bool:
    return os.path.commonpath([left, right]) in (left, right)


class FolderSync:
    """Copies and merges all sessions of a home folder with another folder."""

    def __init__(self, home: Home, folder: str) -> None:
        self._home = home.folder
        self._pairs = pair_folders(home.roots_by_dialect, os.path.abspath(folder))
        self._archive = home.archive
        self._os_calls = home.archive.os_calls

    def run(self, *, both_ways: bool, dry_run: bool = False) -> Iterator[SyncResult]:
        """Process one file after the other; yields a result for each that was not equal already."""
        for pair in self._pairs:
            linked = [folder for folder in (pair.remote, f"{pair.remote}.blobs") if os.path.islink(folder)]
            if linked:
                # Anyone may write to the shared folder: a link would make us read and write elsewhere.
                yield SyncResult(linked[0], "failed", f"{linked[0]}: a symbolic link, which is not followed")
                continue
            local, remote = _list_files(pair.dialect, pair.local), _list_files(pair.dialect, pair.remote)
            for relative in sorted(local | remote if both_ways else local):
                yield from self._sync_file(pair, relative, both_ways=both_ways, dry_run=dry_run)
            for source, target in self._blob_folders(pair):
                yield from self._copy_blobs(source, target, dry_run)
                if both_ways:
                    yield from self._copy_blobs(target, source, dry_run)

    def _sync_file(self, pair: FolderPair, relative: str, *, both_ways: bool, dry_run: bool) -> Iterator[SyncResult]:
        local, remote = os.path.join(pair.local, relative), os.path.join(pair.remote, relative)
        try:
            # The shared folder may be written by anyone: a link in it must not make us read or write elsewhere.
            AllowedPaths([pair.local]).check(local)
            AllowedPaths([pair.remote]).check(remote)
            for path in (local, remote):
                _check_regular(path)
            if not os.path.lexists(remote):
                yield self._copy(local, remote, dry_run)
            elif not os.path.lexists(local):
                # A client that deletes files by their mtime would delete this one, unless it looks new.
                retention = client_of(pair.dialect).retention_days(local, read_client_file)
                yield _with_approvals(self._copy(remote, local, dry_run, keep_mtime=retention is None), remote)
            elif not relative.endswith(".jsonl"):
                yield from self._sync_binary(local, remote, both_ways=both_ways, dry_run=dry_run)
            else:
                yield from self._merge(local, remote, both_ways=both_ways, dry_run=dry_run)
        except (SessionTreeError, OSError) as error:
            yield SyncResult(local, "failed", _reason(error))

    def _copy(self, source: str, target: str, dry_run: bool, *, keep_mtime: bool = True) -> SyncResult:
        if not dry_run:
            make_folder(os.path.dirname(target), self._os_calls)
            temporary = write_temporary(target, _iter_chunks(source), self._os_calls)
            if hash_file(temporary) != hash_file(source):
                self._os_calls.unlink(temporary)
                raise WriteError(f"{source}: changed while it was being copied; try again")
            if keep_mtime:
                found = os.stat(source)
                os.utime(temporary, ns=(found.st_mtime_ns, found.st_mtime_ns))
            publish_new(temporary, target, self._os_calls)
        return SyncResult(target, "copied")

    def _merge(self, local: str, remote: str, *, both_ways: bool, dry_run: bool) -> Iterator[SyncResult]:
        differ = os.path.getsize(local) != os.path.getsize(remote)
        leaves = (_find_leaf(local), _find_leaf(remote)) if differ or both_ways else None
        for target, source in [(remote, local), (local, remote)] if both_ways else [(remote, local)]:
            removed = self._removed_lines(target)
            result = merge_into(target, source, without=removed, dry_run=dry_run, os_calls=self._os_calls)
            if not dry_run and result.outcome == "merged" and leaves is not None:
                move_to_newest(target, *leaves)
            for reported in _report(target, result):
                yield _with_approvals(reported, source) if target == local else reported

    def _removed_lines(self, path: str) -> frozenset[bytes]:
        """Hashes of lines that were pruned or shrunk away on this machine: a sync must not bring them back."""
        edits = [item for item in self._archive.items() if item.edit is not None and item.edit.path == path]
        return frozenset().union(*(self._archive.removed_line_hashes(item) for item in edits))

    def _sync_binary(self, local: str, remote: str, *, both_ways: bool, dry_run: bool) -> Iterator[SyncResult]:
        """Sync a file that is not JSONL. It cannot be merged, so each side gets the other's copy under a new name."""
        local_hash, remote_hash = hash_file(local), hash_file(remote)
        if local_hash == remote_hash:
            return
        for source, target, sha256 in ((local, remote, local_hash), (remote, local, remote_hash)):
            copy = f"{target}.conflict-{sha256[:8]}"
            if (both_ways or target == remote) and not os.path.lexists(copy) and ".conflict-" not in source:
                self._copy(source, copy, dry_run)
                yield SyncResult(target, "conflict", f"differs; the other version is {os.path.basename(copy)}")

    def _blob_folders(self, pair: FolderPair) -> Iterator[tuple[str, str]]:
        dialect: Locations = plugins.load("dialects", pair.dialect)
        own = os.path.join(pair.local, "session")
        folder = blobs_folder(self._home) if dialect.traits.uses_home_blobs else dialect.blob_folder(own)
        if folder is not None:
            yield folder, f"{pair.remote}.blobs"

    def _copy_blobs(self, source: str, target: str, dry_run: bool) -> Iterator[SyncResult]:
        for path in _iter_blobs(source):
            copy = os.path.join(target, os.path.relpath(path, source))
            if os.path.lexists(copy):
                continue
            try:
                AllowedPaths([target]).check(copy)  # its folder may be a link
                if hash_file(path) == os.path.basename(path):  # a damaged blob is not spread
                    with contextlib.suppress(ExistsError):
                        yield self._copy(path, copy, dry_run)
            except (SessionTreeError, OSError) as error:
                yield SyncResult(path, "failed", _reason(error))


def _reason(error: SessionTreeError | OSError) -> str:
    """The message of an error. That of Python for an `OSError` begins with its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _report(path: str, result: MergeResult) -> Iterator[SyncResult]:
    if result.outcome in ("grown", "merged", "conflict"):
        yield SyncResult(path, result.outcome, result.why, result.branches)


def _with_approvals(result: SyncResult, source: str) -> SyncResult:
    """Add the approvals of the session that was received: its next user should know that another person chose them."""
    if not source.endswith(".jsonl"):
        return result
    try:
        found = open(source).config.approvals
    except SessionTreeError:
        return result  # not a session, and so nothing that a run would read
    return msgspec.structs.replace(result, approvals=found or "")


def _find_leaf(path: str) -> str | None:
    try:
        return open(path).leaf
    except SessionTreeError:
        return None


def _list_files(dialect_name: str, root: str) -> set[str]:
    """The files below a root that belong to sessions, as relative paths."""
    dialect: Locations = plugins.load("dialects", dialect_name)
    found: set[str] = set()
    for path in iter_session_files([root]):
        relative = os.path.relpath(path, root)
        if dialect.classify_file(root, relative) is not None:
            found.add(relative)
            found.update(os.path.relpath(file, root) for file in iter_related_files(path))
    return {relative for relative in found if not relative.endswith(".tmp")}


def _iter_blobs(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(names):
            with contextlib.suppress(SessionTreeError):
                check_blob_name(name)
                if stat.S_ISREG(os.lstat(os.path.join(parent, name)).st_mode):
                    yield os.path.join(parent, name)


def _check_regular(path: str) -> None:
    """Refuse a pipe or device, which a program could wait for without end."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise UsageError(f"{path}: not a regular file")


def _iter_chunks(path: str) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        yield from iter(lambda: file.read(_CHUNK), b"")
