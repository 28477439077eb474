"""Spool of the prompt history: prompts are appended without waiting, and imported by the next search.

Adding a prompt appends one line to a file. It never touches the database, which another process may have locked:

    <home>/history-new.jsonl            the spool
    <home>/history-new-<random>.jsonl   created by a writer that found the spool locked
    <home>/history-torn-<random>.jsonl  a spool file with an incomplete line, kept for inspection
    <home>/history-log.jsonl            every prompt in the database, to repair it from

Writers and readers hold a lock on the file. A writer never waits for the lock but creates a separate file; a reader
waits up to a second. A file is deleted only after the database has durably stored its prompts. If a process dies in
between, the file stays and its prompts are imported twice, but their keys are equal, so they count once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from sessiontree.core.ids import now_ms
from sessiontree.core.jsonio import replace_surrogates
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.errors import WriteError
from sessiontree.stores.atomic_files import write_all
from sessiontree.stores.file_lock import lock_descriptor, release_descriptor
from sessiontree.stores.os_calls import OS_CALLS, OsCalls

LONGEST = 100_000
"""Characters of a prompt that the history keeps; the session has all of them."""
_BEGIN, _END = "history-new", ".jsonl"
_TORN = "history-torn"
_LOG = "history-log.jsonl"
_TRIES = 8
_SECONDS = 1.0


class SpooledPrompt(Struct, frozen=True):
    """A prompt with its folder, session, agent, time (milliseconds since 1970) and source."""

    prompt: str
    cwd: str = ""
    session: str = ""
    agent: str = ""
    time: int | None = None
    source: str = "typed"
    """Two sources may report the same moment; one source never reports it twice."""

    @property
    def key(self) -> str:
        """Equal for the same prompt at the same moment, even if a fork copied it to another session."""
        origin = "" if self.time is not None else f"{self.source}\0{self.cwd}"
        return hashlib.sha256(f"{self.prompt}\0{self.time}\0{origin}".encode()).hexdigest()[:32]


class LoggedPrompt(SpooledPrompt, frozen=True):
    """A prompt of the database, with its project and the key it had there."""

    project: str = ""
    logged_key: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether prompt and time are still those of the key."""
        return self.key == self.logged_key


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SpooledPrompt).decode
_decode_logged = msgspec.json.Decoder(LoggedPrompt).decode


def normalize_prompt(text: object) -> str:
    """Normalize a prompt: no lone surrogates, LF line ends, no surrounding white space; empty if it is not a string."""
    if not isinstance(text, str):
        return ""
    lines = replace_surrogates(text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").strip()
    return lines if len(lines) <= LONGEST else lines[: LONGEST - 1] + "…"


def remember(
    home: str, prompt: str, *, cwd: str = "", session: str = "", time: int | None = None, agent: str = DEFAULT_DIALECT
) -> None:
    """Spool a prompt unless it is empty; `time` defaults to now."""
    text = normalize_prompt(prompt)
    if text:
        put(
            home,
            SpooledPrompt(
                text, normalize_prompt(cwd), normalize_prompt(session), agent, now_ms() if time is None else time
            ),
        )


def put(home: str, typed: SpooledPrompt, os_calls: OsCalls = OS_CALLS) -> None:
    """Append a prompt to the spool. Never waits for another process; raises `WriteError` if it cannot be written."""
    # The leading line break keeps this line intact after an incomplete one.
    line = b"\n" + _encode(typed) + b"\n"
    name = _BEGIN + _END
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        for _ in range(_TRIES):
            path = os.path.join(home, name)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os_calls.open(path, flags, 0o600)
            try:
                if _try_lock(descriptor, path):
                    write_all(descriptor, line, os_calls)
                    return
            finally:
                release_descriptor(descriptor, os_calls)
            name = f"{_BEGIN}-{os.urandom(6).hex()}{_END}"
    except OSError as error:
        raise WriteError(
            f"{error.filename or home}: {error.strerror or error}; the prompt is not in the history"
        ) from None
    raise WriteError(f"{home}: other processes took every spool file; the prompt is not in the history")


def take(home: str, keep: Callable[[Sequence[SpooledPrompt]], None]) -> int:
    """Pass all spooled prompts to `keep`, file by file, and delete each file. Returns the number of incomplete lines.

    A file that another process has locked for more than a second is left to it.
    """
    torn = 0
    for name in _names(home):
        path = os.path.join(home, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue  # another process has imported it, or it is not a file
        try:
            if not _lock(descriptor, path):
                continue
            with open(descriptor, "rb", closefd=False) as file:
                typed, bad = _parsed(file.read())
            # In this order: the file is deleted only after the database has stored its prompts.
            keep(typed)
            _remove(home, path, bad)
            torn += bad
        finally:
            release_descriptor(descriptor)
    return torn


def has_log(home: str) -> bool:
    return os.path.lexists(os.path.join(home, _LOG))


def append_to_log(home: str, prompts: Sequence[LoggedPrompt]) -> None:
    """Append prompts of the database to its log. The caller holds the write lock of the database."""
    path = os.path.join(home, _LOG)
    # The leading line break keeps these lines intact after an incomplete one.
    data = b"\n" + b"".join(_encode(prompt) + b"\n" for prompt in prompts)
    try:
        descriptor = OS_CALLS.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            write_all(descriptor, data, OS_CALLS)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WriteError(f"{path}: {error.strerror or error}; nothing was added to the history") from error


def read_log(home: str) -> list[LoggedPrompt]:
    """The sound prompts of the log."""
    try:
        with open(os.path.join(home, _LOG), "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    found: list[LoggedPrompt] = []
    for line in filter(None, lines):
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            prompt = _decode_logged(line)
            if prompt.is_sound:
                found.append(prompt)
    return found


def _names(home: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(home) if name.startswith(_BEGIN) and name.endswith(_END))
    except OSError:
        return []


def _try_lock(descriptor: int, path: str) -> bool:
    """Take the lock without waiting, if the file is still the one of that name."""
    if not lock_descriptor(descriptor, path, blocking=False):
        return False
    # A reader may have removed the file between our open and our lock: a line written now would be lost.
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _lock(descriptor: int, path: str) -> bool:
    """Take the lock, waiting for a writer to finish."""
    deadline = time.monotonic() + _SECONDS
    while not _try_lock(descriptor, path):
        if time.monotonic() > deadline or not os.path.lexists(path):
            return False
        time.sleep(0.002)
    return True


def _parsed(data: bytes) -> tuple[list[SpooledPrompt], int]:
    found: list[SpooledPrompt] = []
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
