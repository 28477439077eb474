"""Files as git sees them: walking a folder without what `.gitignore` files leave out, and patterns for paths.

Written for folders of any kind, also those that are in no repository. No link to a folder is followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache

from msgspec import Struct

_OWN = frozenset({".git", ".hg", ".svn"})


class Rule(Struct, frozen=True):
    """One line of a `.gitignore`."""

    pattern: re.Pattern[str]
    negated: bool
    only_folders: bool


class Rules(Struct, frozen=True):
    """The lines of one file, for the paths below its folder."""

    folder: str
    rules: tuple[Rule, ...]


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The lines of a `.gitignore`, in their order."""
    rules = []
    for line in text.splitlines():
        line = re.sub(r"(?<!\\) +$", "", line)
        if not line or line.startswith("#"):
            continue
        negated = line.startswith("!")
        body = line[1:] if negated else line.removeprefix("\\")
        only_folders = body.endswith("/")
        body = body.rstrip("/")
        if not body:
            continue
        anchored = "/" in body
        source = body.lstrip("/") if anchored else f"**/{body}"
        rules.append(Rule(compile_glob(source), negated, only_folders))
    return tuple(rules)


@cache
def compile_glob(pattern: str) -> re.Pattern[str]:
    """A pattern for a path relative to a folder: `*` and `?` within a name, `**` over folders, `[a-z]`, `{a,b}`."""
    return re.compile(_translate(pattern) + r"\Z", re.DOTALL)


def _translate(pattern: str) -> str:
    parts: list[str] = []
    at, depth = 0, 0
    while at < len(pattern):
        letter = pattern[at]
        rest = pattern[at:]
        at += 1
        if rest.startswith("**/") and (at == 1 or pattern[at - 2] == "/"):
            parts.append("(?:[^/]+/)*")
            at += 2
        elif rest == "**":
            parts.append(".*")
            at += 1
        elif letter == "*":
            parts.append("[^/]*")
            while pattern[at : at + 1] == "*":
                at += 1
        elif letter == "?":
            parts.append("[^/]")
        elif letter == "[" and (found := re.match(r"\[([!^]?)(\]?[^\]/]*)\]", rest)):
            parts.append(_set(found[2], negated=bool(found[1])))
            at += len(found[0]) - 1
        elif letter == "{" and "}" in rest:
            parts.append("(?:")
            depth += 1
        elif letter == "," and depth:
            parts.append("|")
        elif letter == "}" and depth:
            parts.append(")")
            depth -= 1
        elif letter == "\\" and at < len(pattern):
            parts.append(re.escape(pattern[at]))
            at += 1
        else:
            parts.append(re.escape(letter))
    return "".join(parts) + ")" * depth


def _set(inner: str, *, negated: bool) -> str:
    """The letters and ranges between brackets. A range that runs backwards holds nothing."""
    parts: list[str] = []
    for first, last, single in re.findall(r"(.)-(.)|(.)", inner, re.DOTALL):
        if single:
            parts.append(re.escape(single))
        elif first <= last:
            parts.append(f"{re.escape(first)}-{re.escape(last)}")
    if not parts:
        return "[^/]" if negated else "(?!)"
    return f"[{'^/' if negated else ''}{''.join(parts)}]"


def iter_files(folder: str, *, ignored: bool = False) -> Iterator[str]:
    """The files below a folder, sorted by folder, as paths relative to it; links to files count as files.

    With `ignored`, also those that `.gitignore` leaves out. The files of version control itself never count.
    """
    above = [] if ignored else list(_rules_above(folder))
    yield from _walk(folder, "", above, ignored)


def _walk(top: str, relative: str, rules: Sequence[Rules], ignored: bool) -> Iterator[str]:
    folder = os.path.join(top, relative) if relative else top
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return  # a folder that may not be looked into, or is gone
    own = None if ignored else _read_rules(folder)
    rules = [*rules, own] if own is not None else rules
    folders = []
    for entry in found:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _OWN or (not ignored and is_ignored(entry.path, rules, is_folder=is_folder)):
            continue
        if is_folder:
            folders.append(entry.name)
        elif entry.is_file():
            yield f"{relative}/{entry.name}" if relative else entry.name
    for name in folders:
        yield from _walk(top, f"{relative}/{name}" if relative else name, rules, ignored)


def is_ignored(path: str, rules: Sequence[Rules], *, is_folder: bool) -> bool:
    """Whether a path is left out: the last line that speaks of it decides, the nearest file first."""
    for file in reversed(rules):
        relative = os.path.relpath(path, file.folder)
        for rule in reversed(file.rules):
            if (is_folder or not rule.only_folders) and rule.pattern.match(relative):
                return not rule.negated
    return False


def _rules_above(folder: str) -> Iterator[Rules]:
    """The rules of the folders above, from the top of the repository on."""
    folders = []
    at = folder
    while not os.path.lexists(os.path.join(at, ".git")):
        parent = os.path.dirname(at)
        if parent == at:
            return  # in no repository: what lies further up belongs to something else
        at = parent
        folders.append(at)
    for one in reversed(folders):
        rules = _read_rules(one)
        if rules is not None:
            yield rules


def _read_rules(folder: str) -> Rules | None:
    texts = []
    for name in (os.path.join(".git", "info", "exclude"), ".gitignore"):
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                texts.append(file.read(1 << 20))
        except OSError:
            continue
    rules = parse_rules("\n".join(texts))
    return Rules(folder, rules) if rules else None
