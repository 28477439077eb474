"""The uncommitted work of a worktree, kept by content: changed, staged, deleted and untracked files.

Ignored files, repositories within the repository and what is too large stay out, and so do untracked files whose names
say that they hold secrets. What stayed out is part of the snapshot, with the reason. Nothing here changes the worktree.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import stat
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from sessiontree.git import command

Put = Callable[[bytes], str]

_SECRET = (
    ".env",
    ".env.*",
    "*.env",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".htpasswd",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "credentials",
    "credentials.json",
    "secrets.*",
    "service-account*.json",
    "*.tfvars",
)
_NO_SECRET = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")


class Limits(Struct, frozen=True):
    """How much of a worktree is kept at most."""

    file: int = 10_000_000
    whole: int = 100_000_000
    files: int = 5_000


LIMITS = Limits()


class Staged(Struct, frozen=True, omit_defaults=True):
    """What the index has of a path, where that is not what the commit has; without a mode it was taken out."""

    mode: Annotated[str, Meta(pattern="^(100644|100755|120000)?$")] = ""
    object: Annotated[str, Meta(pattern="^([0-9a-f]{40}|[0-9a-f]{64})?$")] = ""
    """Its name in the repository, from where git may have removed it since."""
    sha256: str = ""


class SavedFile(Struct, frozen=True, omit_defaults=True):
    """What stood at a path of the worktree; without a mode, nothing did."""

    mode: Annotated[str, Meta(pattern="^(1[02]0[0-7]{3})?$")] = ""
    """Kind and permissions in octal, as the system tells them; the content of a link is where it leads."""
    sha256: str = ""
    size: int = 0
    staged: Staged | None = None

    @property
    def is_link(self) -> bool:
        return bool(self.mode) and stat.S_ISLNK(int(self.mode, 8))

    @property
    def permissions(self) -> int:
        return int(self.mode, 8) & 0o777


class Snapshot(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The uncommitted work of a worktree at one time."""

    path: str
    head: str | None = None
    """The commit that the work stands on; None when it is not known."""
    files: dict[str, SavedFile] = {}
    left_out: dict[str, str] = {}
    """What was not kept: path -> reason."""

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.left_out


def mode_of(found: os.stat_result) -> str:
    """Kind and permissions of a file or link; nothing that lets one run with the rights of another."""
    return f"{stat.S_IFMT(found.st_mode) | (found.st_mode & 0o777):o}"


def parse_snapshot(fields: object) -> Snapshot | None:
    """A snapshot out of decoded JSON; None when it is none."""
    try:
        return msgspec.convert(fields, Snapshot)
    except msgspec.ValidationError:
        return None


def is_secret(path: str) -> bool:
    """Whether the name of a file says that it holds secrets."""
    return _is_secret_name(os.path.basename(path).lower())


@functools.lru_cache(maxsize=4_096)
def _is_secret_name(name: str) -> bool:
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _NO_SECRET):
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _SECRET)


def take_snapshot(top: str, head: str | None, put: Put, *, secrets: bool = False, limits: Limits = LIMITS) -> Snapshot:
    """Keep the uncommitted work of a worktree. When this returns, all contents are durably kept."""
    return _Taking(top, put, secrets, limits).snapshot(head)


class _Taking:
    def __init__(self, top: str, put: Put, secrets: bool, limits: Limits) -> None:
        self._top, self._put, self._secrets, self._limits = top, put, secrets, limits
        self._files: dict[str, SavedFile] = {}
        self._left_out: dict[str, str] = {}
        self._size = 0

    def snapshot(self, head: str | None) -> Snapshot:
        staged: dict[str, command.Changed] = {}
        for changed in command.iter_changed(self._top):
            try:
                path = changed.path.decode()
            except UnicodeDecodeError:
                self._left_out[changed.path.decode("utf-8", "backslashreplace")] = "its name is no UTF-8"
                continue
            if changed.is_untracked and path in self._files:
                continue  # taken out of the index, and still there
            reason = self._reason(path, changed)
            if reason:
                self._left_out[path] = reason
                continue
            if changed.is_conflict:
                self._left_out[f"{path} (index)"] = "a merge was not done; the file itself is kept"
            if changed.staged:
                staged[path] = changed
            self._take_file(path, may_be_absent=not changed.is_untracked)
        self._take_staged(staged)
        return Snapshot(self._top, head, dict(sorted(self._files.items())), dict(sorted(self._left_out.items())))

    def _reason(self, path: str, changed: command.Changed) -> str:
        """Why a path is left out; empty when it is not."""
        if changed.is_submodule or path.endswith("/"):
            return "a repository of its own"
        if changed.is_untracked and not self._secrets and is_secret(path):
            return "its name says that it holds secrets; --secrets keeps it"
        if len(self._files) >= self._limits.files and path not in self._files:
            return f"more than {self._limits.files:,} files"
        return ""

    def _take_file(self, path: str, *, may_be_absent: bool) -> None:
        full = os.path.join(self._top, path)
        try:
            found = os.lstat(full)
            if stat.S_ISLNK(found.st_mode):
                data = os.fsencode(os.readlink(full))
            elif not stat.S_ISREG(found.st_mode):
                self._left_out[path] = "no ordinary file"
                return
            elif self._is_too_large(path, found.st_size):
                return
            else:
                fd = os.open(full, os.O_RDONLY | os.O_NOFOLLOW)
                with os.fdopen(fd, "rb") as file:
                    data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            if may_be_absent:
                self._files.setdefault(path, SavedFile())
            return
        except OSError as error:
            self._left_out[path] = f"cannot be read: {error.strerror}"
            return
        self._size += len(data)
        self._files[path] = SavedFile(mode_of(found), self._put(data), len(data))

    def _is_too_large(self, path: str, size: int) -> bool:
        if size > self._limits.file:
            self._left_out[path] = f"{size:,} bytes; at most {self._limits.file:,} of one file are kept"
        elif self._size + size > self._limits.whole:
            self._left_out[path] = f"{size:,} bytes; at most {self._limits.whole:,} are kept in all"
        else:
            return False
        return True

    def _take_staged(self, staged: dict[str, command.Changed]) -> None:
        """What the index has. Content that the worktree has, too, is kept once."""
        objects = [one.staged_object for one in staged.values() if one.staged_mode]
        known = command.sizes(self._top, objects)
        fitting: list[str] = []
        for path, one in staged.items():
            size = known.get(one.staged_object, 0)
            if one.staged_mode and self._is_too_large(f"{path} (index)", size):
                continue
            if one.staged_mode:
                self._size += size
                fitting.append(one.staged_object)
        names = {object: self._put(data) for object, data in command.contents(self._top, fitting)}
        for path, one in staged.items():
            if not one.staged_mode:
                kept = Staged()
            elif one.staged_object in names:
                kept = Staged(one.staged_mode, one.staged_object, names[one.staged_object])
            else:
                continue
            if path in self._files:
                self._files[path] = msgspec.structs.replace(self._files[path], staged=kept)
