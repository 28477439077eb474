"""Which shell commands only read. Nothing is parsed: a command is either plainly one of a few, or it is asked about.

Plainly means: letters, digits and a few marks that no shell treats specially, split at spaces; a known program; only
options that are known not to write, run or follow anything; and every other word, taken for a path, must lead into the
project. `cat notes.md` passes. `cat notes.md > x`, `cat $(x)`, `find . -delete` and `cat ../x` do not.
"""

from __future__ import annotations

import re

from sessiontree.agent.workspace import ResolvedPath, Workspace
from sessiontree.errors import PathError
from sessiontree.git import command

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,=\- ]+")
_OPTION = re.compile(r"-[A-Za-z0-9]+")

# Program -> the letters that may follow one hyphen. Digits may always (`-5`), long options may not.
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
_RUNNING = (
    r"^(core\.(fsmonitor|pager|attributesfile)|diff\..*|filter\..*|pager\..*|include.*|extensions\.worktreeconfig)$"
)
_NO_PATHS = frozenset({"echo", "date", "uname", "whoami", "id", "which", "true", "false"})


def runs_programs(folder: str) -> bool:
    """Whether the settings of a repository itself let git run programs when it only reads, as filters do.

    A repository that was unpacked, not cloned, brings such settings from whoever packed it.
    """
    return bool(command.query(folder, "config", "--local", "--name-only", "--get-regexp", _RUNNING))


def find_read_paths(command: str, room: Workspace) -> tuple[ResolvedPath, ...] | None:
    """The places that a command reads, if it plainly does nothing but read; else None."""
    if not _PLAIN.fullmatch(command) or not command.strip():
        return None
    program, *words = command.split()
    if program == "git":
        return _git(words, room)
    letters = _PROGRAMS.get(program)
    if letters is None or not _are_known(words, letters, frozenset()):
        return None
    return () if program in _NO_PATHS else _places(words, room)


def _git(words: list[str], room: Workspace) -> tuple[ResolvedPath, ...] | None:
    if not words or words[0] not in _GIT or not _are_known(words[1:], _GIT[words[0]], _GIT_LONG):
        return None
    if runs_programs(room.root):
        return None
    return _places(words[1:], room)


def _are_known(words: list[str], letters: str, long: frozenset[str]) -> bool:
    for word in words:
        if not word.startswith("-") or word in long:
            continue
        if not _OPTION.fullmatch(word) or not all(letter in letters or letter.isdigit() for letter in word[1:]):
            return False
    return True


def _places(words: list[str], room: Workspace) -> tuple[ResolvedPath, ...] | None:
    """Where the words that are no options lead, were they paths. Many are not; those lead into the project as well."""
    try:
        return tuple(room.place(word) for word in words if not word.startswith("-"))
    except PathError:
        return None
