"""Run the git command: no hooks, no prompts, no variables that point it at another repository."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessiontree.errors import StoreError

if TYPE_CHECKING:
    import subprocess

QUIET: tuple[str, ...] = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
"""Options of every call: a repository must not run its own programs when we inspect it."""
if os.name != "nt":  # otherwise git silently skips files whose names are only a problem on Windows
    QUIET += ("-c", "core.protectNTFS=false")

# Settings that make git run programs even when it only reads.
_RUNNING_SETTINGS = (
    r"^(core\.(fsmonitor|pager|attributesfile)|diff\..*|filter\..*|pager\..*|include.*|extensions\.worktreeconfig)$"
)
_TIMEOUT = 120.0
# Set by git while a hook runs. They would make git work on the repository of the hook instead of the given folder.
_LOCATION_VARIABLES = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"})
# For folders that were never opened by the user on purpose: no network, no prompt, no other settings from outside.
_ISOLATION = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def query(folder: str, *arguments: str) -> str:
    """Run git in a folder and return its output; empty if git fails or is not installed."""
    try:
        done = run(("git", "-C", folder, *QUIET, *arguments))
    except FileNotFoundError:
        return ""
    return os.fsdecode(done.stdout).strip("\n") if done.returncode == 0 else ""


def runs_programs(folder: str) -> bool:
    """Whether the settings of a repository make git run programs even when it only reads, as filters do.

    A repository that was unpacked rather than cloned contains settings of the person who packed it.
    """
    return bool(query(folder, "config", "--local", "--name-only", "--get-regexp", _RUNNING_SETTINGS))


def output(folder: str, *arguments: str, data: bytes = b"", index: str | None = None) -> bytes:
    """Run git in a folder with `data` as its input and return its output; `StoreError` if it fails.

    `index` is the path of an index file to use in place of the repository's own.
    """
    try:
        # Without optional locks: `git status` would otherwise rewrite the user's index, and block a commit meanwhile.
        done = run(("git", "-C", folder, *QUIET, "--no-optional-locks", *arguments), data, index)
    except FileNotFoundError:
        raise StoreError(f"{folder}: git is not installed, or not on the PATH") from None
    if done.returncode:
        verb = next(argument for argument in arguments if not argument.startswith("-"))
        raise StoreError(f"{folder}: git {verb} failed: {os.fsdecode(done.stderr).strip()}")
    return done.stdout


def repository_output(repository: str, *arguments: str, data: bytes = b"", index: str | None = None) -> bytes:
    """Like `output`, for the objects and refs of a repository that is given by its git folder."""
    return output(repository, f"--git-dir={repository}", *arguments, data=data, index=index)


def run(
    arguments: Sequence[str],
    data: bytes = b"",
    index: str | None = None,
    *,
    timeout: float = _TIMEOUT,
    isolated: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run a git command line. `isolated` forbids network access and ignores every GIT_ variable of the caller."""
    import subprocess  # not at the top: listing sessions rarely needs it, and its import is slow

    if isolated:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _ISOLATION
    else:
        environment = {name: value for name, value in os.environ.items() if name not in _LOCATION_VARIABLES}
    if index is not None:
        environment["GIT_INDEX_FILE"] = index
    try:
        return subprocess.run(  # noqa: S603 - no shell, and always git
            arguments,
            input=data,
            capture_output=True,
            env=environment,
            timeout=timeout,
            check=False,
            # A group of its own: Ctrl-C is meant for us and must not stop git halfway through a checkout.
            process_group=0 if os.name == "posix" else None,
        )
    except subprocess.TimeoutExpired:
        raise StoreError(f"{' '.join(arguments[:3])}: stopped after {timeout:.0f} s") from None
