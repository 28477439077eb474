"""Run the git command so that a repository cannot start a program.

A repository that was unpacked rather than cloned contains settings of the person who packed it, and an agent can write
files that git takes for a repository. So every call, ours and those of commands that the user did not approve, gets the
environment that `environment` returns. It replaces each setting that starts a program with the user's own value, or
with none. The user's own settings (`~/.gitconfig`, the system's) count as trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sessiontree.errors import StoreError
from sessiontree.paths import without_folders

if TYPE_CHECKING:
    import subprocess

_TIMEOUT = 120.0
_USAGE_ERROR = 129

# Variables of the caller that git keeps: where the user's settings are, and where repositories are searched for. All
# others are dropped: they name programs, or another repository, as in a hook.
_KEPT_PREFIXES = ("GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_")
_KEPT_VARIABLES = frozenset(
    {
        "GIT_CEILING_DIRECTORIES",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "GIT_EXEC_PATH",
    }
)
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_ASKPASS": "",
    "GIT_EDITOR": ":",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_SSH_COMMAND": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS": "",
}
# Replaced in every repository, whether or not it sets them.
_SETTINGS = {
    "core.alternateRefsCommand": "false",
    "core.askPass": "",
    "core.editor": ":",
    "core.fsmonitor": "false",
    "core.gitProxy": "",
    "core.hooksPath": os.devnull,
    "core.pager": "cat",
    "core.sshCommand": "false",
    "credential.helper": "",
    "diff.ignoreSubmodules": "dirty",
    "diff.submodule": "short",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "gpg.openpgp.program": "false",
    "gpg.program": "false",
    "gpg.ssh.program": "false",
    "gpg.x509.program": "false",
    "interactive.diffFilter": "",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    # A folder whose files look like a repository, outside of `.git`, is one only for calls that name it.
    "safe.bareRepository": "explicit",
    "sequence.editor": ":",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
}
# Git silently skips files whose names are only a problem on Windows. On disks of Windows they are one: `git~1` is the
# short name of `.git` there, also for Linux that runs inside Windows (WSL).
if os.name != "nt" and "microsoft" not in os.uname().release.lower():
    _SETTINGS["core.protectNTFS"] = "false"

# Settings of a repository whose value is a program, or selects one. Names without a subsection are listed too, because
# a repository that sets one of them is asked about.
_RUNNING = (
    r"core\.(?:alternaterefscommand|askpass|editor|fsmonitor|gitproxy|hookspath|pager|sshcommand)"
    r"|(?:diff|merge|difftool|mergetool|man|browser)\.(?:.+\.)?(?:external|command|textconv|driver|cmd|path)"
    r"|filter\..+\.(?:clean|smudge|process|required)"
    r"|gpg\.(?:.+\.)?(?:program|defaultkeycommand)"
    r"|credential\.(?:.+\.)?helper"
    r"|remote\..+\.(?:uploadpack|receivepack|vcs|proxy)"
    r"|hook\..+"
    r"|trailer\..+\.(?:command|cmd)"
    r"|submodule\..+\.update"
    r"|(?:sequence\.editor|interactive\.difffilter|uploadpack\.packobjectshook|pager\..+|log\.showsignature)"
)
_FILTER = r"filter\..+\.(?:clean|smudge|process)"
# Settings of a repository whose value is a file that git reads. Its messages quote what they cannot parse.
_INCLUDING = r"include(?:if\..+)?\.path"
_NAMING = r"blame\.ignorerevsfile|core\.(?:attributesfile|excludesfile)|diff\.orderfile|mailmap\.file|gpg\..*file"
_READ_FOLDERS = (
    "info",
    os.path.join("objects", "info"),
    "rebase-apply",
    "rebase-merge",
    "refs",
    "reftable",
    "sequencer",
)
"""Folders of a repository with small files that commands read, besides those at its top."""
_UNREAD = frozenset({"hooks", "modules"})
_SWITCHES = frozenset({"required"})
"""Keys whose value is true or false: an empty one would be an error for some versions of git."""
_OWN_SCOPES = frozenset({"local", "worktree"})


class _Setting:
    """One line of `git config --list`."""

    __slots__ = ("file", "is_own", "key", "value")

    def __init__(self, scope: str, origin: str, key: str, value: str) -> None:
        self.is_own, self.key, self.value = scope in _OWN_SCOPES, key, value
        self.file = origin.removeprefix("file:")


def query(folder: str, *arguments: str) -> str:
    """Run git in a folder and return its output; empty if git fails or is not installed."""
    try:
        done = run(folder, *arguments)
    except FileNotFoundError:
        return ""
    return os.fsdecode(done.stdout).strip("\n") if done.returncode == 0 else ""


def output(folder: str, *arguments: str, data: bytes = b"", index: str | None = None) -> bytes:
    """Run git in a folder with `data` as its input and return its output; `StoreError` if it fails.

    `index` is the path of an index file to use in place of the repository's own.
    """
    try:
        done = run(folder, *arguments, data=data, index=index)
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
    folder: str, *arguments: str, data: bytes = b"", index: str | None = None, timeout: float = _TIMEOUT
) -> subprocess.CompletedProcess[bytes]:
    """Run git in a folder. Nothing of the repository is run, and no other machine is reached."""
    located = tuple(argument for argument in arguments if argument.startswith(("--git-dir=", "--work-tree=")))
    variables = environment(folder, *located, timeout=timeout)
    variables["LC_ALL"] = "C"  # messages that we quote are the same everywhere
    if index is not None:
        variables["GIT_INDEX_FILE"] = index
    return _start(("git", "-C", folder, *arguments), variables, data, timeout)


def environment(
    folder: str, *located: str, base: Mapping[str, str] | None = None, timeout: float = _TIMEOUT
) -> dict[str, str]:
    """The environment in which git runs no program of the repository that contains a folder.

    `located` are the options that name the repository (`--git-dir=...`); without them git finds it. `base` is the
    environment to start from, by default that of this process.
    """
    variables = _without_git(folder, os.environ if base is None else base)
    settings = _SETTINGS | _replacements(_read_settings(folder, located, variables, timeout))
    return _with_settings(variables, settings)


def runs_programs(folder: str) -> bool:
    """Whether a repository's own settings would start programs, as filters do.

    They are not run. But without its filters git takes files for changed that are not, so callers ask the user.
    """
    settings = _read_settings(folder, (), _without_git(folder, os.environ))
    return any(setting.is_own and re.fullmatch(_RUNNING, setting.key) for setting in settings)


def has_filters(folder: str) -> bool:
    """Whether a repository's own settings define filters: files in a worktree differ from the committed ones."""
    settings = _read_settings(folder, (), _without_git(folder, os.environ))
    return any(setting.is_own and re.fullmatch(_FILTER, setting.key) and setting.value for setting in settings)


def reads_elsewhere(folder: str, top: str, repositories: Sequence[str]) -> bool:
    """Whether the settings of a repository, or links among its files, make git read a file that is not part of it.

    `top` is the folder of its files, `repositories` are its own folders. Included settings have to be in those: the
    model can write the others. All paths are real ones.
    """
    for setting in _read_settings(folder, (), _without_git(folder, os.environ)):
        if not setting.is_own:
            continue
        base, folders = top, [top, *repositories]
        if re.fullmatch(_INCLUDING, setting.key):
            base, folders = os.path.dirname(os.path.join(folder, setting.file)), [*repositories]
        elif not re.fullmatch(_NAMING, setting.key):
            continue
        if not _is_inside(base, setting.value, folders):
            return True
    links = (link for repository in repositories for link in _iter_links(repository))
    return any(not _is_inside(os.path.dirname(link), link, repositories) for link in links)


def _is_inside(base: str, path: str, folders: Sequence[str]) -> bool:
    if path.startswith((":(", "%(")):  # prefixes that only git knows
        return False
    real = os.path.realpath(os.path.join(base, os.path.expanduser(path)))
    return any(real == folder or real.startswith(folder + os.sep) for folder in folders)


def _iter_links(repository: str) -> Iterator[str]:
    with os.scandir(repository) as entries:
        yield from (entry.path for entry in entries if entry.is_symlink() and entry.name not in _UNREAD)
    for name in _READ_FOLDERS:
        for folder, folders, files in os.walk(os.path.join(repository, name)):
            paths = (os.path.join(folder, name) for name in (*folders, *files))
            yield from filter(os.path.islink, paths)


def user_files(folder: str) -> list[str]:
    """The files that the user's own settings consist of, those that they name, and those that git would read."""
    variables = _without_git(folder, os.environ)
    try:
        settings = [setting for setting in _read_settings(folder, (), variables) if not setting.is_own]
    except FileNotFoundError:
        settings = []  # git is not installed
    named = (setting.value for setting in settings if setting.key in ("core.excludesfile", "core.attributesfile"))
    more = (os.path.join(variables.get("XDG_CONFIG_HOME") or "~/.config", "git"), "~/.gitconfig")
    chosen = variables.get("GIT_CONFIG_GLOBAL", "")
    files = (os.path.expanduser(file) for file in (*(setting.file for setting in settings), *named, *more, chosen))
    return [file for file in dict.fromkeys(files) if os.path.isabs(file)]


def find_top(folder: str) -> str | None:
    """The nearest folder from here upward that has a `.git`, by its name alone; None if there is none."""
    top = folder
    while not os.path.lexists(os.path.join(top, ".git")):
        top, below = os.path.dirname(top), top
        if top == below:
            return None
    return top


def _without_git(folder: str, base: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in base.items()
        if not name.startswith("GIT_") or name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)
    }
    # The program must not come from the repository. A relative folder on the PATH is one of it when git starts there.
    top = os.path.realpath(find_top(os.path.abspath(folder)) or folder)
    path = without_folders(kept.get("PATH", os.defpath), [top] if top != os.sep else [])
    return {**kept, **_VARIABLES, "PATH": path}


def _with_settings(variables: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Add settings as variables, after those of the user: the last one counts."""
    given = variables.get("GIT_CONFIG_COUNT", "0")
    first = int(given) if given.isdecimal() else 0
    added: dict[str, str] = {}
    for number, (key, value) in enumerate(settings.items(), first):
        added[f"GIT_CONFIG_KEY_{number}"], added[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return {**variables, **added, "GIT_CONFIG_COUNT": str(first + len(settings))}


def _read_settings(
    folder: str, located: Sequence[str], variables: Mapping[str, str], timeout: float = _TIMEOUT
) -> list[_Setting]:
    """All settings that apply in a folder. Reading them starts no program, but may wait for an included pipe."""
    arguments = ("git", "-C", folder, *located, "config", "--list", "--show-scope", "--show-origin", "-z")
    done = _start(arguments, _with_settings(variables, _SETTINGS), b"", timeout)
    if done.returncode == _USAGE_ERROR:
        raise StoreError("git is too old: version 2.26 or newer is needed")
    # Where git cannot read the settings it fails, and so does the call that follows.
    return list(_iter_settings(os.fsdecode(done.stdout))) if done.returncode == 0 else []


def _iter_settings(listing: str) -> Iterator[_Setting]:
    parts = iter(listing.split("\0"))
    for scope, origin, line in zip(parts, parts, parts, strict=False):
        key, _, value = line.partition("\n")
        yield _Setting(scope, origin, key, value)


def _replacements(settings: Sequence[_Setting]) -> dict[str, str]:
    """The repository's own settings that start programs, each with the user's value in its place, or none."""
    trusted = {setting.key: setting.value for setting in settings if not setting.is_own}
    static = {key.lower() for key in _SETTINGS}
    return {
        setting.key: trusted.get(setting.key, "false" if setting.key.rpartition(".")[2] in _SWITCHES else "")
        for setting in settings
        if setting.is_own and setting.key not in static and re.fullmatch(_RUNNING, setting.key)
    }


def _start(
    arguments: Sequence[str], variables: Mapping[str, str], data: bytes, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    import subprocess  # not at the top: listing sessions rarely needs it, and its import is slow

    try:
        return subprocess.run(  # noqa: S603 - no shell, and always git
            arguments,
            input=data,
            capture_output=True,
            env=variables,
            timeout=timeout,
            check=False,
            # A separate process group: Ctrl-C is meant for us and must not stop git halfway through a checkout.
            process_group=0 if os.name == "posix" else None,
        )
    except subprocess.TimeoutExpired:
        raise StoreError(f"{' '.join(arguments[:3])}: stopped after {timeout:.0f} s") from None
