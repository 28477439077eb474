"""The search of `grep` and `glob`, in a separate process, so that a search that takes too long can be stopped.

`python -m sessiontree.agent.tools.grep_worker` reads one request from stdin and prints one answer.
"""

from __future__ import annotations

import os
import re
import stat
import sys

import msgspec
from msgspec import Struct

from sessiontree.agent.text_files import decode, is_binary
from sessiontree.agent.tools.gitignore import iter_files
from sessiontree.secrets.names import has_secret_name

_MAX_FILE = 20_000_000
LINE_CHARACTERS = 300


class Request(Struct, frozen=True):
    """A search in one file, or below one folder."""

    path: str
    pattern: str = ""
    """A regular expression for lines; empty to list files."""
    files: str = ""
    """A glob for the paths of files."""
    ignore_case: bool = False
    literal: bool = False
    ignored: bool = False
    limit: int = 200


class Match(Struct, frozen=True):
    file: str
    line: int
    text: str


class Answer(Struct, frozen=True):
    """The result of a search."""

    matches: tuple[Match, ...] = ()
    files: tuple[str, ...] = ()
    more: bool = False
    """Whether there are more than the limit."""
    left_out: tuple[str, ...] = ()
    """Files that were not searched, each with the reason."""
    error: str = ""


def search(request: Request) -> Answer:
    try:
        wanted = re.compile(
            re.escape(request.pattern) if request.literal else request.pattern,
            re.IGNORECASE if request.ignore_case else 0,
        )
        files = compile_glob(request.files) if request.files else None
    except (re.error, RecursionError, OverflowError) as error:
        return Answer(error=str(error))
    is_file = not os.path.isdir(request.path)
    names = iter([""]) if is_file else iter_files(request.path, ignored=request.ignored)
    chosen = (name for name in names if files is None or _matches(files, request.files, name))
    if not request.pattern:
        return _newest_files(request, list(chosen))
    matches: list[Match] = []
    left_out: list[str] = []
    for name in chosen:
        path = os.path.join(request.path, name) if name else request.path
        if not is_file and has_secret_name(path):
            left_out.append(f"{name}: its name indicates secrets")
            continue
        text = _read_text(path, name or os.path.basename(path), left_out)
        if text is None:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if wanted.search(line.rstrip("\r")):
                if len(matches) == request.limit:
                    return Answer(tuple(matches), more=True, left_out=tuple(left_out))
                matches.append(Match(name, number, line.rstrip("\r")[:LINE_CHARACTERS]))
    return Answer(tuple(matches), left_out=tuple(left_out))


def _matches(files: re.Pattern[str], glob: str, name: str) -> bool:
    """Match a glob without a slash with the file name, one with a slash with the whole path."""
    return files.match(name if "/" in glob else os.path.basename(name)) is not None


def _newest_files(request: Request, names: list[str]) -> Answer:
    def modified(name: str) -> float:
        try:
            return os.lstat(os.path.join(request.path, name)).st_mtime
        except OSError:
            return 0.0

    names.sort(key=lambda name: (-modified(name), name))
    return Answer(files=tuple(names[: request.limit]), more=len(names) > request.limit)


def _read_text(path: str, shown: str, left_out: list[str]) -> str | None:
    """The text of a file; None for anything else. Links are skipped, as they may lead out of the workspace."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if not os.path.islink(path):
            left_out.append(f"{shown}: {error.strerror}")
        return None
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return None
        if about.st_size > _MAX_FILE:
            left_out.append(f"{shown}: {about.st_size:,} bytes, too large")
            return None
        data = file.read()
    found = None if is_binary(data) else decode(data)
    return None if found is None else found.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob for relative paths: `*` and `?` within a name, `**` across folders, `[a-z]`, `{a,b}`.

    No pattern may raise an error, because a model wrote it.
    """
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
            parts.append(_translate_set(found[2], negated=bool(found[1])))
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


def _translate_set(inner: str, *, negated: bool) -> str:
    """Translate the letters and ranges between brackets. A reversed range matches nothing."""
    parts: list[str] = []
    for first, last, single in re.findall(r"(.)-(.)|(.)", inner, re.DOTALL):
        if single:
            parts.append(re.escape(single))
        elif first <= last:
            parts.append(f"{re.escape(first)}-{re.escape(last)}")
    if not parts:
        return "[^/]" if negated else "(?!)"
    return f"[{'^/' if negated else ''}{''.join(parts)}]"


def main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    sys.stdout.buffer.write(msgspec.json.encode(search(request)))


if __name__ == "__main__":
    main()
