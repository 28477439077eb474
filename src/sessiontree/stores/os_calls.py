"""Operating system calls used by stores, in one object, so that tests can make each of them fail."""

from __future__ import annotations

import os
from fcntl import flock

_CAN_ADVISE = hasattr(os, "posix_fadvise")


class OsCalls:
    """The real calls. Test doubles override individual methods (see `sessiontree.testing.faults`)."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        """Flush a file to disk. `data_only` omits metadata that is not needed to read the data, such as times."""
        if data_only and hasattr(os, "fdatasync"):
            os.fdatasync(fd)
        else:
            os.fsync(fd)

    def start_writeback(self, fd: int, start: int) -> None:
        """Start writeback of the file from offset `start` on, without waiting for it."""
        # Linux starts the writeback of dirty pages when they are advised as "not needed", and keeps them in its cache.
        # This is only a hint: where it is unknown or ignored, `fsync` does all of the work.
        if _CAN_ADVISE:
            try:  # noqa: SIM105 - contextlib.suppress is slower, and the disk idles until this call
                os.posix_fadvise(fd, start, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                pass

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def link(self, source: str, target: str) -> None:
        os.link(source, target, follow_symlinks=False)

    def link_open_file(self, fd: int, target: str, folder: int) -> None:
        """Give an open file without a name its first one; `folder` is any open folder."""
        # /proc/self/fd/N is a symbolic link that has to be followed. Python passes AT_SYMLINK_FOLLOW only if a dir_fd
        # is given; without one it calls link(2), which makes a link to the symbolic link itself.
        os.link(f"/proc/self/fd/{fd}", target, src_dir_fd=folder, follow_symlinks=True)

    flock = staticmethod(flock)
    """Not a method of its own: an append calls it twice."""

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)


OS_CALLS = OsCalls()
