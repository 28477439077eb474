"""Recognize shell commands that only read. Commands are not parsed: one is plainly read-only, or it needs approval.

Plainly read-only: it consists of letters, digits and a few characters without meaning for shells, split at spaces; the
program is known; all options are known not to write, run or follow anything; and every other word, taken as a path, is
inside the workspace. `cat notes.md` passes. `cat notes.md > x`, `cat $(x)`, `find . -delete` and `cat ../x` do not.
"""

from __future__ import annotations

import re

from sessiontree.agent.workspace import ResolvedPath, Workspace
from sessiontree.errors import PathError
from sessiontree.git import command

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=\- ]+")
_OPTION = re.compile(r"-[A-Za-z0-9]+")

# Program -> letters of its allowed short options. Digits are always allowed (`-5`), long options are not: programs
# accept abbreviations of them, so no list of forbidden ones would be complete. Not listed: `-o` of any program that
# writes a file with it, `-f` of grep and date (reads patterns from a file), `-R` of grep (follows links).
_PROGRAMS = {
    "basename": "",
    "cat": "AbeEnstTuv",
    "cmp": "bs",
    "cut": "bcdfs",
    "date": "uIR",
    "df": "hT",
    "diff": "abBiqrsuwy",
    "dirname": "",
    "du": "achks",
    "echo": "n",
    "false": "",
    "file": "bi",
    "grep": "cEFGhHilnoqsvwxABC",
    "head": "cnqv",
    "id": "gnuG",
    "ls": "AaCdFGhilnopRrSst1",
    "md5sum": "",
    "nl": "b",
    "pwd": "LP",
    "sha256sum": "",
    "stat": "L",
    "tail": "cnqv",
    "true": "",
    "uname": "amnrsv",
    "wc": "cLlmw",
    "which": "a",
    "whoami": "",
}
_GIT = {
    "blame": "Lswe",
    "describe": "",
    "diff": "bpuwz",
    "log": "npisu",
    "ls-files": "cdmosz",
    "rev-parse": "",
    "shortlog": "ensc",
    "show": "psuw",
    "status": "bsuz",
}
_GIT_LONG = frozenset(
    {
        "--abbrev-commit",
        "--all",
        "--branch",
        "--cached",
        "--decorate",
        "--graph",
        "--name-only",
        "--name-status",
        "--no-color",
        "--numstat",
        "--oneline",
        "--patch",
        "--porcelain",
        "--short",
        "--shortstat",
        "--staged",
        "--stat",
        "--summary",
        "--tags",
    }
)
_RUNNING_SETTINGS = (
    r"^(core\.(fsmonitor|pager|attributesfile)|diff\..*|filter\..*|pager\..*|include.*|extensions\.worktreeconfig)$"
)
_WITHOUT_PATHS = frozenset({"echo", "date", "uname", "whoami", "id", "which", "true", "false"})


def runs_programs(folder: str) -> bool:
    """Whether the settings of a repository make git run programs even when it only reads, as filters do.

    A repository that was unpacked rather than cloned contains settings of the person who packed it.
    """
    return bool(command.query(folder, "config", "--local", "--name-only", "--get-regexp", _RUNNING_SETTINGS))


def find_read_paths(command: str, workspace: Workspace) -> tuple[ResolvedPath, ...] | None:
    """The paths that a command reads, if it is plainly read-only; else None."""
    if not _PLAIN.fullmatch(command) or not command.strip():
        return None
    program, *words = command.split()
    if program == "git":
        return _git(words, workspace)
    letters = _PROGRAMS.get(program)
    if letters is None or not _are_allowed(words, letters, frozenset()):
        return None
    return () if program in _WITHOUT_PATHS else _resolve(words, workspace)


def _git(words: list[str], workspace: Workspace) -> tuple[ResolvedPath, ...] | None:
    if not words or words[0] not in _GIT or not _are_allowed(words[1:], _GIT[words[0]], _GIT_LONG):
        return None
    if runs_programs(workspace.root):
        return None
    return _resolve(words[1:], workspace)


def _are_allowed(words: list[str], letters: str, long: frozenset[str]) -> bool:
    for word in words:
        if not word.startswith("-") or word in long:
            continue
        if not _OPTION.fullmatch(word) or not all(letter in letters or letter.isdigit() for letter in word[1:]):
            return False
    return True


def _resolve(words: list[str], workspace: Workspace) -> tuple[ResolvedPath, ...] | None:
    # Every word that is not an option is taken as a path. Many are not (revisions, patterns), but resolving those
    # yields a path inside the workspace, so they do no harm.
    try:
        return tuple(workspace.resolve(word) for word in words if not word.startswith("-"))
    except PathError:
        return None
