"""The search behind `grep` and `glob`, as a process of its own: a pattern that never ends can be ended.

`python -m sessiontree.agent.tools.grep_worker` reads one request from its input and prints one answer. It is started by
`grep` and `glob`, and by nobody else.
"""

from __future__ import annotations

import os
import re
import stat
import sys

import msgspec
from msgspec import Struct

from sessiontree.agent.text_files import decode, is_binary
from sessiontree.agent.tools.gitignore import compile_glob, iter_files
from sessiontree.git.snapshot import has_secret_name

_LARGEST = 20_000_000
LINE_CHARACTERS = 300


class Request(Struct, frozen=True):
    """What is looked for, below which folder or in which file."""

    path: str
    pattern: str = ""
    """A regular expression for lines; empty to look for files only."""
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
    """What was found."""

    matches: tuple[Match, ...] = ()
    files: tuple[str, ...] = ()
    more: bool = False
    """Whether there is more than the limit."""
    left_out: tuple[str, ...] = ()
    """Files that were not looked into, each with the reason."""
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
    chosen = (name for name in names if files is None or _fits(files, request.files, name))
    if not request.pattern:
        return _files(request, list(chosen))
    matches: list[Match] = []
    left_out: list[str] = []
    for name in chosen:
        path = os.path.join(request.path, name) if name else request.path
        if not is_file and has_secret_name(name):
            left_out.append(f"{name}: its name says that it holds secrets")
            continue
        text = _text(path, name or os.path.basename(path), left_out)
        if text is None:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if wanted.search(line.rstrip("\r")):
                if len(matches) == request.limit:
                    return Answer(tuple(matches), more=True, left_out=tuple(left_out))
                matches.append(Match(name, number, line.rstrip("\r")[:LINE_CHARACTERS]))
    return Answer(tuple(matches), left_out=tuple(left_out))


def _fits(files: re.Pattern[str], source: str, name: str) -> bool:
    """A pattern without a slash is for the name, one with a slash for the whole path."""
    return files.match(name if "/" in source else os.path.basename(name)) is not None


def _files(request: Request, names: list[str]) -> Answer:
    def changed(name: str) -> float:
        try:
            return os.lstat(os.path.join(request.path, name)).st_mtime
        except OSError:
            return 0.0

    names.sort(key=lambda name: (-changed(name), name))
    return Answer(files=tuple(names[: request.limit]), more=len(names) > request.limit)


def _text(path: str, shown: str, left_out: list[str]) -> str | None:
    """A file's text; links are passed over, as they may lead anywhere."""
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
        if about.st_size > _LARGEST:
            left_out.append(f"{shown}: {about.st_size:,} bytes, too large")
            return None
        data = file.read()
    found = None if is_binary(data) else decode(data)
    return None if found is None else found.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def main() -> None:
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    sys.stdout.buffer.write(msgspec.json.encode(search(request)))


if __name__ == "__main__":
    main()
