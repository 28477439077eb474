"""A sandbox for commands that run without approval: Linux's Landlock, by system calls, or macOS's seatbelt.

Inside, nothing can be written, executed from the project, or reached by TCP, and /proc cannot be read.
Of the user's home folder only the project, git's settings and programs on the PATH are readable. The sandbox is the
second line of defense. The first: such a command is plainly read-only, and git runs no program of the repository.

Landlock restricts the calling thread and the processes that it starts. So a separate thread starts the
command, and no code runs between fork and exec.

On macOS, `sandbox-exec` starts the command with a profile. It is not documented by Apple, but part of every version.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from sessiontree.errors import StoreError

T = TypeVar("T")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FIRST_ACCESSES = (1 << 13) - 1
"""Everything that the first version handles: execute, write, read, and making and removing entries of each kind."""
_LATER_ACCESSES = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Version -> what it added: linking across folders, truncating, `ioctl` on devices."""
_TCP = 0b11
_TCP_VERSION = 4
_SCOPES = 0b11
"""Abstract sockets of, and signals to, processes outside."""
_SCOPES_VERSION = 6

_READ = _READ_FILE | _READ_DIR
_RUN = _READ | _EXECUTE
_PROGRAM_FOLDERS = ("", "../lib", "../lib64", "../libexec", "../etc", "../share/git-core", "../share/misc")
"""What programs need, relative to their folder on the PATH."""
_USER_FILES = (".gitconfig", ".config/git")

_SEATBELT = "/usr/bin/sandbox-exec"
# The last matching rule wins. Metadata is readable because git looks at every folder above the project. The Mach
# service resolves names of users; the sysctls describe the machine.
_PROFILE = """(version 1)
(deny default)
(allow process-fork)
(allow sysctl-read)
(allow signal (target self))
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow file-read* process-exec)
(deny file-read* process-exec{masked})
(allow file-read-metadata)
(allow file-read*{readable})
(allow file-read* process-exec{programs})
(allow file-write-data (literal "/dev/null"))
"""


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


@functools.cache
def landlock_version() -> int:
    """The version of Landlock in the running kernel; 0 if there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))))


def is_available() -> bool:
    """Whether commands can be sandboxed on this machine."""
    return landlock_version() > 0 or _has_seatbelt()


def _has_seatbelt() -> bool:
    return sys.platform == "darwin" and os.access(_SEATBELT, os.X_OK)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class Sandbox:
    """What a command may read, besides what is outside of the user's home folder and the project."""

    def __init__(self, readable: Sequence[str], *, home: str, folders: Sequence[str], path: str) -> None:
        """`folders` are those of the project, `readable` more files and folders, `path` the PATH of the command."""
        self._readable = (*folders, *readable, *(os.path.join(home, name) for name in _USER_FILES))
        # /proc: the environment of other processes of the user, such as this one, contains keys.
        self._masked = tuple(os.path.realpath(folder) for folder in (home, *folders, "/proc"))
        self._path = tuple(folder for folder in path.split(os.pathsep) if os.path.isabs(folder))

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in a thread inside the sandbox; processes that it starts stay inside.

        Where the system can sandbox only commands (see `arguments`), the function is called directly.
        """
        if _has_seatbelt():
            return function()
        results: list[T] = []
        errors: list[BaseException] = []

        def inside() -> None:
            try:
                self._enter()
                results.append(function())
            except BaseException as error:  # noqa: BLE001 - raised again in the thread of the caller
                errors.append(error)

        thread = threading.Thread(target=inside, name="sandbox")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def arguments(self, command: Sequence[str]) -> list[str]:
        """The arguments that start a command, by way of `sandbox-exec` on macOS."""
        return [_SEATBELT, "-p", self.profile(), *command] if _has_seatbelt() else list(command)

    def profile(self) -> str:
        """The sandbox as a profile of macOS's seatbelt."""
        programs = [os.path.join(folder, beside) for folder in self._path for beside in _PROGRAM_FOLDERS]
        return _PROFILE.format(
            masked=_subpaths(self._masked), readable=_subpaths(self._readable), programs=_subpaths(programs)
        )

    def _enter(self) -> None:
        version = landlock_version()
        handled = _FIRST_ACCESSES
        for since, accesses in _LATER_ACCESSES.items():
            handled |= accesses if version >= since else 0
        ruleset = _Ruleset(handled, _TCP, _SCOPES)
        # The kernel accepts a shorter structure from callers that know fewer fields.
        size = 24 if version >= _SCOPES_VERSION else 16 if version >= _TCP_VERSION else 8
        fd = _check(_libc().syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0)))
        try:
            for path, access in self._rules():
                _allow(fd, path, access & handled)
            # The kernel requires this of callers without privileges.
            _check(_libc().prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
            _check(_libc().syscall(_RESTRICT_SELF, ctypes.c_int(fd), ctypes.c_uint32(0)))
        finally:
            os.close(fd)

    def _rules(self) -> Iterator[tuple[str, int]]:
        for path in _iter_outside(os.sep, self._masked):
            yield path, _RUN
        for path in self._readable:
            yield path, _READ
        for folder in self._path:
            for beside in _PROGRAM_FOLDERS:
                yield os.path.join(folder, beside), _RUN
        yield os.devnull, _READ | _WRITE_FILE


def _subpaths(paths: Iterable[str]) -> str:
    """Filters of a seatbelt profile for paths and everything below. The system compares them without links."""
    real = dict.fromkeys(os.path.realpath(path) for path in paths)
    quoted = (path.replace("\\", "\\\\").replace('"', '\\"') for path in real)
    return "".join(f' (subpath "{path}")' for path in quoted)


def _iter_outside(top: str, masked: Sequence[str]) -> Iterator[str]:
    """Everything below a folder that is neither one of the masked folders, nor in one, nor contains one."""
    # Landlock rules can only allow, so a folder is excluded by allowing everything else, from the top down.
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            if entry.path in masked or entry.is_symlink():
                continue
            if any(folder.startswith(entry.path + os.sep) for folder in masked):
                yield from _iter_outside(entry.path, masked)
            else:
                yield entry.path


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not there, or not readable: nothing to allow
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            access &= _EXECUTE | _WRITE_FILE | _READ_FILE
        rule = _PathBeneath(access, fd)
        _check(
            _libc().syscall(
                _ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0)
            )
        )
    finally:
        os.close(fd)


def _check(result: int) -> int:
    if result < 0:
        raise StoreError(f"the sandbox cannot be set up: {os.strerror(ctypes.get_errno())}; see the setting `sandbox`")
    return result
