"""Which git repository a folder belongs to: read from its files, without running git, but for the first commit.

Everything here looks at folders that others may have prepared: git is run only to ask for the first commit, with
nothing in it that could start another program or the network, and for a short time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from msgspec import Struct

_SECONDS = 3.0
_LARGEST_CONFIG = 1 << 20
_remote_section = re.compile(r'\[\s*remote\s+"(?:[^"\\]|\\.)*"\s*\]', re.IGNORECASE)
_url = re.compile(r"\s*url\s*=\s*(?P<url>.+?)\s*$", re.IGNORECASE)
_with_scheme = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[^@/]*@)?(?P<host>\[[^\]]*\]|[^:/]+)(?::\d+)?/+(?P<path>.+)"
)
_like_scp = re.compile(r"(?:[^@/:]+@)?(?P<host>\[[^\]]*\]|[^@:/\[\]]{2,}):(?!//)(?P<path>[^\\].*)")


class Repository(Struct, frozen=True):
    """A repository, by the folder that all its worktrees share."""

    git_folder: str
    top: str
    """The working tree that the folder lies in."""
    remotes: tuple[str, ...]
    """The network addresses of its remotes, in one form whatever way they are written, sorted."""

    @property
    def identity(self) -> str:
        """The folder's place on the disk: the same after a renaming, another one after something took its place."""
        try:
            stat = os.stat(self.git_folder)
        except OSError:
            return ""
        return f"{stat.st_dev}:{stat.st_ino}"


def find_repository(folder: str) -> Repository | None:
    """The repository of a folder, given by its real path. One that holds a whole home folder is nobody's project."""
    home = os.path.realpath(os.path.expanduser("~"))
    here = folder
    while True:
        git_folder = _git_folder(here)
        if git_folder is not None:
            if here in (home, os.sep):
                return None
            return Repository(git_folder, here, tuple(sorted(set(_remotes(git_folder)))))
        parent = os.path.dirname(here)
        if parent == here:
            return None
        here = parent


def _git_folder(top: str) -> str | None:
    """The folder with config and objects: `.git`, or where the `.git` file of a worktree or submodule leads."""
    path = os.path.join(top, ".git")
    if os.path.isfile(path):
        text = _text(path)
        if not text.startswith("gitdir:"):
            return None
        path = os.path.normpath(os.path.join(top, text.removeprefix("gitdir:").strip()))
    if not os.path.isfile(os.path.join(path, "HEAD")):
        return None
    common = _text(os.path.join(path, "commondir")).strip()
    return os.path.realpath(os.path.join(path, common) if common else path)


def _remotes(git_folder: str) -> Iterator[str]:
    in_remote = False
    for line in _text(os.path.join(git_folder, "config")).splitlines():
        if line.lstrip().startswith("["):
            in_remote = _remote_section.match(line.strip()) is not None
        elif in_remote and (found := _url.match(line)):
            address = normalised_remote(found["url"].strip('"'))
            if address is not None:
                yield address


def normalised_remote(url: str) -> str | None:
    """`host/path` of a remote, whatever way it is written; None for a folder on this machine.

    A clone of a folder names that folder, which says nothing about what it is a clone of; the first commit does.
    """
    found = _with_scheme.match(url)
    if found is not None:
        if found["scheme"] == "file":
            return None
    else:
        found = _like_scp.match(url)
        if found is None:
            return None
    path = found["path"].strip("/").removesuffix(".git").rstrip("/")
    return f"{found['host'].lower()}/{path.removeprefix('~/')}" if path else None


def has_commits(repository: Repository) -> bool:
    """Whether there may be a first commit to ask for: a new repository has a branch without any, until there is one."""
    head = _text(os.path.join(repository.git_folder, "HEAD")).strip()
    if not head.startswith("ref: ") or os.path.exists(os.path.join(repository.git_folder, "reftable")):
        return True
    branch = head.removeprefix("ref: ")
    if os.path.isfile(os.path.join(repository.git_folder, branch)):
        return True
    try:
        with open(os.path.join(repository.git_folder, "packed-refs"), "rb") as packed:
            return any(line.rstrip().endswith(os.fsencode(f" {branch}")) for line in packed)
    except OSError:
        return False


def read_first_commit(repository: Repository) -> str | None:
    """The commit that the history of HEAD began with; of several, the least. None when there is none yet."""
    import subprocess  # seldom needed, and slow to import

    command = ["git", f"--git-dir={repository.git_folder}", "rev-list", "--max-parents=0", "HEAD"]
    quiet = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    try:
        done = subprocess.run(  # noqa: S603 - no shell, no words of others but a path
            command, capture_output=True, text=True, timeout=_SECONDS, env=quiet, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    commits = [line for line in done.stdout.split() if re.fullmatch(r"[0-9a-f]{40,64}", line)]
    return min(commits, default=None) if done.returncode == 0 else None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST_CONFIG)
    except OSError:
        return ""
