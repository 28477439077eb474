"""Walk a folder without the files that `.gitignore` excludes. Also works outside a repository."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Sequence

from msgspec import Struct
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from sessiontree.errors import PathError
from sessiontree.stores.safe_files import read_regular

_VERSION_CONTROL = frozenset({".git", ".hg", ".svn"})
_MAX_BYTES = 1 << 20
_GROUP_NAME = re.compile(r"\(\?P<\w+>")
_INSIDE = re.compile(r"/\*\*(/?)\Z")


class IgnoreRules(Struct, frozen=True):
    """The rules of one ignore file, for paths below its folder."""

    folder: str
    """Ends with a slash."""
    rules: tuple[tuple[re.Pattern[str], bool], ...]
    """Last rule first. The flag is whether a match excludes (False: a negated rule)."""


def parse_rules(text: str) -> tuple[tuple[re.Pattern[str], bool], ...]:
    """Compile the lines of an ignore file. Adjacent lines of one kind become one pattern, which matches faster."""
    # Python warns that a set such as `[+--]` may mean something else one day. The user cannot do anything about it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return _parse_rules(text)


def _parse_rules(text: str) -> tuple[tuple[re.Pattern[str], bool], ...]:
    groups: list[tuple[list[str], bool]] = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        # `x/**` matches everything in x, but not x itself. The regex that pathspec builds also matches `x/`.
        try:
            pattern = GitIgnoreSpecPattern(_INSIDE.sub(r"/**/*\1", line))
        except (ValueError, re.error):  # invalid: git matches nothing with it, or for a reversed range one character
            continue
        if pattern.regex is None or pattern.include is None:
            continue
        if not groups or groups[-1][1] is not pattern.include:
            groups.append(([], pattern.include))
        # pathspec searches for its regex, which may match a folder above; here it has to match the whole path.
        source = _GROUP_NAME.sub("(?:", pattern.regex.pattern)  # one name must not occur twice in a pattern
        groups[-1][0].append(source if source.startswith("^") else f".*{source}")
    return tuple((re.compile("|".join(parts)), excludes) for parts, excludes in reversed(groups))


def iter_files(folder: str, *, ignored: bool = False) -> Iterator[str]:
    """Files below a folder as relative paths, sorted within each folder. Links to folders are not followed.

    With `ignored`, `.gitignore` files are not applied. Folders of version control systems are never entered.
    """
    above = [] if ignored else list(_rules_above(folder))
    yield from _walk(folder, "", above, ignored)


def _walk(top: str, relative: str, rules: Sequence[IgnoreRules], ignored: bool) -> Iterator[str]:
    folder = os.path.join(top, relative) if relative else top
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return  # not readable, or deleted meanwhile
    own = None if ignored else _read_rules(folder)
    rules = [own, *rules] if own is not None else rules
    folders = []
    for entry in found:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _VERSION_CONTROL or (rules and is_ignored(entry.path, rules, is_folder=is_folder)):
            continue
        if is_folder:
            folders.append(entry.name)
        elif entry.is_file():
            yield f"{relative}/{entry.name}" if relative else entry.name
    for name in folders:
        yield from _walk(top, f"{relative}/{name}" if relative else name, rules, ignored)


def is_ignored(path: str, rules: Sequence[IgnoreRules], *, is_folder: bool) -> bool:
    """Whether a path itself is excluded; its folders must not be. The last matching rule of the nearest file decides.

    `rules` has the nearest file first.
    """
    for file in rules:
        relative = path[len(file.folder) :] + ("/" if is_folder else "")
        for pattern, excludes in file.rules:
            # The whole path: a rule that matches only a folder above was applied to that folder.
            if pattern.fullmatch(relative):
                return excludes
    return False


def _rules_above(folder: str) -> Iterator[IgnoreRules]:
    """Rules of the folders above, the nearest first, up to the top of the repository; none outside of one."""
    above = []
    at = folder
    while not os.path.lexists(os.path.join(at, ".git")):
        parent = os.path.dirname(at)
        if parent == at:
            return
        at = parent
        above.append(at)
    for folder in above:
        rules = _read_rules(folder)
        if rules is not None:
            yield rules


def _read_rules(folder: str) -> IgnoreRules | None:
    texts = []
    # The repository's own exclude file has a lower precedence than `.gitignore`, so it comes first.
    for name in (os.path.join(".git", "info", "exclude"), ".gitignore"):
        try:
            data = read_regular(os.path.join(folder, name), _MAX_BYTES)
        except (OSError, PathError):
            continue
        texts.append(data.decode("utf-8-sig", "surrogateescape"))
    rules = parse_rules("\n".join(texts)) if texts else ()
    return IgnoreRules(folder if folder.endswith("/") else f"{folder}/", rules) if rules else None
