"""Find the git repository of a folder, and what identifies it: remotes and first commit.

The folders come from session files, so anyone may have prepared them. So `.git` is read as plain files; git itself runs
only for the first commit, with a short timeout.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from msgspec import Struct

from sessiontree.errors import PathError, StoreError
from sessiontree.git import command
from sessiontree.stores.safe_files import read_regular

_TIMEOUT = 3.0
_MAX_CONFIG = 1 << 20
_MAX_REFS = 1 << 26
_REMOTE_SECTION = r'(?i)\[\s*remote\s+"(?:[^"\\]|\\.)*"\s*\]'
_URL_SETTING = r"(?i)\s*url\s*=\s*(?P<url>.+?)\s*$"
_URL_ADDRESS = r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[^@/]*@)?(?P<host>\[[^\]]*\]|[^:/]+)(?::\d+)?/+(?P<path>.+)"
_SCP_ADDRESS = r"(?:[^@/:]+@)?(?P<host>\[[^\]]*\]|[^@:/\[\]]{2,}):(?!//)(?P<path>[^\\].*)"


class Repository(Struct, frozen=True):
    """A git repository, as seen from one of its worktrees."""

    git_folder: str
    """The folder with config and objects, which all worktrees share."""
    root: str
    """The worktree that contains the folder."""
    remotes: tuple[str, ...]
    """Normalized addresses of its remotes, sorted."""

    @property
    def identity(self) -> str:
        """Device and inode: unchanged by a rename, different once another folder has its path."""
        try:
            found = os.stat(self.git_folder)
        except OSError:
            return ""
        return f"{found.st_dev}:{found.st_ino}"


def find_repository(folder: str) -> Repository | None:
    """Find the repository that contains a folder, which is given by its real path."""
    home = os.path.realpath(os.path.expanduser("~"))
    current = folder
    while True:
        git_folder = _find_git_folder(current)
        if git_folder is not None:
            # A repository of the whole home folder (dotfiles) would make one project of everything.
            if current in (home, os.sep):
                return None
            return Repository(git_folder, current, tuple(sorted(set(_iter_remotes(git_folder)))))
        parent = os.path.dirname(current)
        if parent == current:
            return None
        current = parent


def _find_git_folder(root: str) -> str | None:
    """The shared git folder: `.git` itself, or the one that the `.git` file of a worktree or submodule points to."""
    path = os.path.join(root, ".git")
    if os.path.isfile(path):
        text = _read_text(path)
        if not text.startswith("gitdir:"):
            return None
        path = os.path.normpath(os.path.join(root, text.removeprefix("gitdir:").strip()))
    if not os.path.isfile(os.path.join(path, "HEAD")):
        return None
    common = _read_text(os.path.join(path, "commondir")).strip()
    return os.path.realpath(os.path.join(path, common) if common else path)


def _iter_remotes(git_folder: str) -> Iterator[str]:
    in_remote = False
    for line in _read_text(os.path.join(git_folder, "config")).splitlines():
        if line.lstrip().startswith("["):
            in_remote = re.match(_REMOTE_SECTION, line.strip()) is not None
        elif in_remote and (found := re.match(_URL_SETTING, line)):
            address = normalize_remote(found["url"].strip('"'))
            if address is not None:
                yield address


def normalize_remote(url: str) -> str | None:
    """`host/path` of a remote in URL or scp form; None for a folder on this machine."""
    # A clone of a local folder only has that folder's path as its remote; the first commit identifies it instead.
    found = re.match(_URL_ADDRESS, url)
    if found is not None:
        if found["scheme"] == "file":
            return None
    else:
        found = re.match(_SCP_ADDRESS, url)
        if found is None:
            return None
    path = found["path"].strip("/").removesuffix(".git").rstrip("/")
    return f"{found['host'].lower()}/{path.removeprefix('~/')}" if path else None


def has_commits(repository: Repository) -> bool:
    """Whether the current branch may have commits; false for a repository right after `git init`."""
    head = _read_text(os.path.join(repository.git_folder, "HEAD")).strip()
    if not head.startswith("ref: ") or os.path.exists(os.path.join(repository.git_folder, "reftable")):
        return True
    branch = head.removeprefix("ref: ")
    if os.path.isfile(os.path.join(repository.git_folder, branch)):
        return True
    try:
        packed = read_regular(os.path.join(repository.git_folder, "packed-refs"), _MAX_REFS)
    except (OSError, PathError):
        return False
    return any(line.rstrip().endswith(os.fsencode(f" {branch}")) for line in packed.splitlines())


def read_first_commit(repository: Repository) -> str | None:
    """The root commit of HEAD's history, the smallest id if there are several; None if git cannot find one."""
    folder = repository.git_folder
    try:
        done = command.run(folder, f"--git-dir={folder}", "rev-list", "--max-parents=0", "HEAD", timeout=_TIMEOUT)
    except (OSError, StoreError):
        return None
    commits = [line for line in os.fsdecode(done.stdout).split() if re.fullmatch(r"[0-9a-f]{40,64}", line)]
    return min(commits, default=None) if done.returncode == 0 else None


def _read_text(path: str) -> str:
    try:
        return read_regular(path, _MAX_CONFIG).decode("utf-8", "replace")
    except (OSError, PathError):
        return ""
