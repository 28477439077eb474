"""The calls of the operating system that a store makes, in one place, so that tests can make each of them fail."""

from __future__ import annotations

import os

_CAN_ADVISE = hasattr(os, "posix_fadvise")


class OsCalls:
    """The real thing. A test double overrides single methods (see `sessiontree.testing.faults`)."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        """Make a file survive a power cut. `data_only` spares what is not needed to read its bytes back, its times."""
        if data_only and hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def start_writeback(self, fd: int, start: int) -> None:
        """Let the disk begin with what was written from `start` on, without waiting for it.

        Linux begins to write pages out when it is told that they are not needed, and keeps those it is writing. This is
        only a hint: where it is not known or not taken, `fsync` does all of the work.
        """
        if _CAN_ADVISE:
            try:  # noqa: SIM105 - each step before the disk begins is waited for
                os.posix_fadvise(fd, start, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                pass

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)


OS_CALLS = OsCalls()
