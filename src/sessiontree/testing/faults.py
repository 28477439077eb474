"""Fault injection: OS calls that raise, short writes, and power failures that lose unsynced data."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Literal

from sessiontree.stores.os_calls import OsCalls

Call = Literal["open", "write", "pwrite", "fsync", "truncate", "link", "rename", "unlink", "flock"]


class FailingOsCalls(OsCalls):
    """OS calls that fail, or write only part of the data, at the n-th call."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self._failures: dict[tuple[str, int], int] = {}
        self._short: dict[tuple[str, int], int] = {}
        self._missing: dict[str, int] = {}

    def fail(self, call: Call, error: int, *, nth: int = 1) -> None:
        """Make the n-th call from now on fail with an errno."""
        self._failures[call, self.calls.get(call, 0) + nth] = error

    def fail_always(self, call: Call, error: int) -> None:
        """Make every call from now on fail with an errno, as on a file system that does not have it."""
        self._missing[call] = error

    def shorten_write(self, size: int, *, nth: int = 1, call: Literal["write", "pwrite"] = "write") -> None:
        """Make the n-th write from now on write only `size` bytes, as on a full disk."""
        self._short[call, self.calls.get(call, 0) + nth] = size

    def _count(self, call: Call) -> int:
        number = self.calls[call] = self.calls.get(call, 0) + 1
        error = self._failures.pop((call, number), self._missing.get(call))
        if error is not None:
            raise OSError(error, os.strerror(error))
        return number

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        self._count("open")
        return super().open(path, flags, mode)

    def write(self, fd: int, data: bytes) -> int:
        number = self._count("write")
        short = self._short.pop(("write", number), None)
        return super().write(fd, data if short is None else data[:short])

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        number = self._count("pwrite")
        short = self._short.pop(("pwrite", number), None)
        return super().pwrite(fd, data if short is None else data[:short], offset)

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        self._count("fsync")
        super().fsync(fd, data_only=data_only)

    def truncate(self, fd: int, size: int) -> None:
        self._count("truncate")
        super().truncate(fd, size)

    def link(self, source: str, target: str) -> None:
        self._count("link")
        super().link(source, target)

    def link_open_file(self, fd: int, target: str, folder: int) -> None:
        self._count("link")
        super().link_open_file(fd, target, folder)

    def flock(self, fd: int, operation: int) -> None:  # type: ignore[override]  # counts, so it needs the object
        self._count("flock")
        super().flock(fd, operation)

    def rename(self, source: str, target: str) -> None:
        self._count("rename")
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count("unlink")
        super().unlink(path)


class LosingOsCalls(OsCalls):
    """OS calls that track what was synced. `cut_power` leaves only that on disk: synced bytes under synced names."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._synced_sizes: dict[int, int] = {}
        self._unsynced_names: set[str] = set()
        self._overwritten: dict[int, list[tuple[int, bytes]]] = {}
        """Original bytes at offsets overwritten since the last sync, in the order of the writes."""

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        with open(self._paths[fd], "rb") as file:
            file.seek(offset)
            self._overwritten.setdefault(os.fstat(fd).st_ino, []).append((offset, file.read(len(data))))
        return super().pwrite(fd, data, offset)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        is_new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        fd = super().open(path, flags, mode)
        found = os.fstat(fd)
        self._paths[fd] = path
        if is_new:
            self._unsynced_names.add(path)
            self._synced_sizes[found.st_ino] = 0
        elif stat.S_ISREG(found.st_mode):
            self._synced_sizes.setdefault(found.st_ino, found.st_size)
        return fd

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        super().fsync(fd, data_only=data_only)
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            folder = os.path.abspath(self._paths[fd])
            self._unsynced_names = {name for name in self._unsynced_names if os.path.dirname(name) != folder}
        else:
            self._synced_sizes[found.st_ino] = found.st_size
            self._overwritten.pop(found.st_ino, None)

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self._unsynced_names.add(target)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._unsynced_names.discard(source)

    def cut_power(self, folder: str) -> None:
        """Put everything below a folder into the worst state that a power failure could leave now."""
        for name in self._unsynced_names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                for offset, old in reversed(self._overwritten.pop(os.stat(path).st_ino, [])):
                    with open(path, "r+b") as file:
                        file.seek(offset)
                        file.write(old)
                size = self._synced_sizes.get(os.stat(path).st_ino)
                if size is not None and size < os.stat(path).st_size:
                    os.truncate(path, size)
