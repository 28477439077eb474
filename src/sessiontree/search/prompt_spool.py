"""Prompts on their way into the history: written without waiting for anyone, read by whoever looks next.

Writing a prompt is one line appended to a file, without the database, which another process may have locked:

    <home>/history-new.jsonl            where prompts wait
    <home>/history-new-<random>.jsonl   the same, made by a writer who found the other one taken
    <home>/history-torn-<random>.jsonl  a file with a line that its writer did not finish; kept for a person to look at

Whoever writes or takes a file in holds a lock on it. A writer never waits for it, but makes a file of its own; a reader
waits a moment. A file goes only after the database has its prompts for good; a process that dies in between leaves it,
and prompts that come twice have the same key and count once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from sessiontree.core.ids import now_ms
from sessiontree.errors import WriteError
from sessiontree.library.summary import whole_text
from sessiontree.stores.atomic_files import write_all
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

LONGEST = 100_000
"""Characters of a prompt that the history keeps; its session has all of it."""
_BEGIN, _END = "history-new", ".jsonl"
_TORN = "history-torn"
_TRIES = 8
_SECONDS = 1.0


class Typed(Struct, frozen=True):
    """One prompt: what, where, in which session, of which agent, when (milliseconds since 1970)."""

    prompt: str
    cwd: str = ""
    session: str = ""
    agent: str = ""
    time: int | None = None
    source: str = "typed"
    """Where we have it from. Two sources may tell of the same moment; one source does not tell of it twice."""

    @property
    def key(self) -> str:
        """The same for the same prompt at the same moment, also when a fork has copied it into another session."""
        place = "" if self.time is not None else f"{self.source}\0{self.cwd}"
        return hashlib.sha256(f"{self.prompt}\0{self.time}\0{place}".encode()).hexdigest()[:32]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Typed).decode


def made_fit(text: object) -> str:
    """A prompt as it is kept: whole characters, LF alone, no blanks around it; empty for what is no text."""
    if not isinstance(text, str):
        return ""
    lines = whole_text(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").strip()
    return lines if len(lines) <= LONGEST else lines[: LONGEST - 1] + "…"


def remember(
    home: str, prompt: str, *, cwd: str = "", session: str = "", time: int | None = None, agent: str = "native"
) -> None:
    """Leave a prompt for the history, unless nothing was said; without `time`, of now."""
    text = made_fit(prompt)
    if text:
        put(home, Typed(text, made_fit(cwd), made_fit(session), agent, now_ms() if time is None else time))


def put(home: str, typed: Typed, os_calls: OsCalls = OS_CALLS) -> None:
    """Leave a prompt for the history. Never waits for another process; `WriteError` when it cannot be written."""
    # The line break in front keeps this line whole behind one that was torn.
    line = b"\n" + _encode(typed) + b"\n"
    name = _BEGIN + _END
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        for _ in range(_TRIES):
            path = os.path.join(home, name)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os_calls.open(path, flags, 0o600)
            try:
                if _is_ours(descriptor, path):
                    write_all(descriptor, line, os_calls)
                    return
            finally:
                os.close(descriptor)
            name = f"{_BEGIN}-{os.urandom(6).hex()}{_END}"
    except OSError as error:
        raise WriteError(
            f"{error.filename or home}: {error.strerror or error}; the prompt is not in the history"
        ) from None
    raise WriteError(f"{home}: others took every file away; the prompt is not in the history")


def take(home: str, keep: Callable[[Sequence[Typed]], None]) -> int:
    """Hand everything that waits to `keep`, file by file; what it has kept goes. How many lines were torn.

    A file that another process has for longer than a moment is left to it.
    """
    torn = 0
    for name in _names(home):
        path = os.path.join(home, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # someone else has taken it in, or it is no file
        try:
            if not _becomes_ours(descriptor, path):
                continue
            with open(descriptor, "rb", closefd=False) as file:
                typed, bad = _parsed(file.read())
            keep(typed)
            _remove(home, path, bad)
            torn += bad
        finally:
            os.close(descriptor)
    return torn


def _names(home: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(home) if name.startswith(_BEGIN) and name.endswith(_END))
    except OSError:
        return []


def _is_ours(descriptor: int, path: str) -> bool:
    """Take the lock, if nobody has it and the file is still the one of that name."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        named = os.stat(path, follow_symlinks=False)
    except (BlockingIOError, FileNotFoundError):
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _becomes_ours(descriptor: int, path: str) -> bool:
    """Take the lock, after a writer who has it for a moment."""
    deadline = time.monotonic() + _SECONDS
    while not _is_ours(descriptor, path):
        if time.monotonic() > deadline or not os.path.lexists(path):
            return False
        time.sleep(0.002)
    return True


def _parsed(data: bytes) -> tuple[list[Typed], int]:
    found: list[Typed] = []
    torn = 0
    for line in filter(None, data.split(b"\n")):
        try:
            found.append(_decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            torn += 1
    return found, torn


def _remove(home: str, path: str, torn: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if torn:
            os.rename(path, os.path.join(home, f"{_TORN}-{os.urandom(6).hex()}{_END}"))
        else:
            os.unlink(path)
