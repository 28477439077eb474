"""Benchmarks of append.

They append messages of a generated session, or one short sentence; the bare write gets exactly the lines that the
library wrote for them. All files are in the scratch folder, on the same file system.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec

import sessiontree
from benchmarks import peers
from benchmarks.generate import Shape, generated, scratch_folder
from benchmarks.results import Result, microseconds
from benchmarks.timing import best_of, seconds
from sessiontree import Session
from sessiontree.core.entries import Entry
from sessiontree.core.ids import new_entry_id, timestamp
from sessiontree.session.entry_input import Durability

Message = dict[str, Any]

_BLOCK = 1_000
_SHORT: list[Message] = [{"role": "user", "content": "Please run the tests again and tell me what is left to do."}]


def append_stays_flat(rounds: int) -> Result:
    """The 60,000th append costs what the 10th costs."""
    messages = list(islice(cycle(_messages()), _BLOCK))
    early = late = float("inf")
    for _ in range(min(rounds, 3)):
        with _session("system") as session:
            _append(session, messages[:10])
            early = min(early, seconds(lambda: _append(session, messages)))
            while len(session) < 60_000 - _BLOCK:
                _append(session, messages)
            late = min(late, seconds(lambda: _append(session, messages)))
    return Result(
        "append, the 60,000th against the 10th",
        microseconds(late / _BLOCK),
        microseconds(early / _BLOCK),
        late / early,
        bound=1.5,
    )


def append_short(rounds: int) -> Result:
    """The same with one short sentence, where the lock is most of the cost."""
    return _against_write("append of a short line, against os.write", _SHORT, rounds, bound=15.0)


def append_mixed(rounds: int) -> Result:
    """An append costs at most 15 times the bare write of its line, with typical lines."""
    return _against_write("append, against os.write", _messages(), rounds, bound=15.0)


def append_synced(rounds: int) -> Result:
    """With an fsync for each, an append takes at most 1.3 times as long as a write with an fsync."""
    messages = list(islice(cycle(_messages()), 100 * rounds))
    lines = _lines_of(messages)
    ours: list[float] = []
    theirs: list[float] = []
    clock = time.perf_counter
    with _session("append") as session, _raw_file() as fd:
        for message, line in zip(messages, lines, strict=True):
            start = clock()
            session.append(message)
            between = clock()
            peers.write_and_sync(fd, line)
            theirs.append(clock() - between)
            ours.append(between - start)
    middle, their_middle = statistics.median(ours), statistics.median(theirs)
    return Result(
        "append with fsync, against write + fsync",
        microseconds(middle),
        f"{microseconds(their_middle)}, both on the clock",
        middle / their_middle,
        bound=1.3,
    )


def synced_calls_alone(rounds: int) -> Result:
    """The minimum of system calls for a safe append with fsync, without the library: a lower limit.

    Lock, check that the path still names this file, id and time, encode, write, unlock, decode the returned entry.
    """
    messages = list(islice(cycle(_messages()), 100 * rounds))
    lines = _lines_of(messages)
    decode, encode = msgspec.json.Decoder(Entry).decode, msgspec.json.Encoder().encode
    ours: list[float] = []
    theirs: list[float] = []
    clock = time.perf_counter
    with _folder() as folder, _raw_file() as fd:
        path = str(folder / "calls.jsonl")
        own = peers.open_for_append(Path(path))
        for message, line in zip(messages, lines, strict=True):
            start = clock()
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.stat(path)
            body = {"type": "message", "id": new_entry_id(()), "parentId": None, "timestamp": timestamp()}
            data = encode({**body, "message": message}) + b"\n"
            os.write(own, data)
            os.posix_fadvise(own, 0, 0, os.POSIX_FADV_DONTNEED)
            fcntl.flock(own, fcntl.LOCK_UN)
            decode(data)
            os.fdatasync(own)
            between = clock()
            peers.write_and_sync(fd, line)
            theirs.append(clock() - between)
            ours.append(between - start)
        os.close(own)
    middle, their_middle = statistics.median(ours), statistics.median(theirs)
    return Result(
        "the bare calls of an append with fsync, against write + fsync",
        microseconds(middle),
        f"{microseconds(their_middle)}, both on the clock",
        middle / their_middle,
    )


def _against_write(name: str, source: list[Message], rounds: int, bound: float) -> Result:
    messages = list(islice(cycle(source), _BLOCK))
    lines = _lines_of(messages)
    with _session("system") as session, _raw_file() as fd:
        best = best_of(
            5 * rounds,
            {"ours": lambda: _append(session, messages), "bare": lambda: peers.write_lines(fd, lines)},
        )
    ours, bare = best["ours"], best["bare"]
    return Result(
        name,
        f"{microseconds(ours / _BLOCK)}, {_BLOCK / ours:,.0f} a second",
        f"{microseconds(bare / _BLOCK)} for {sum(map(len, lines)) // _BLOCK:,} bytes",
        ours / bare,
        bound=bound,
    )


def _lines_of(messages: list[Message]) -> list[bytes]:
    """The lines that appending some messages writes."""
    with _session("system") as session:
        _append(session, messages)
        return [session.raw(id) + b"\n" for id in session.ids]


def _append(session: Session, messages: list[Message]) -> None:
    for message in messages:
        session.append(message)


def _messages() -> list[Message]:
    """The first messages of the generated session."""
    with open(generated(Shape()), "rb") as file:
        entries = map(json.loads, islice(file, 1, 2 * _BLOCK))
        return [entry["message"] for entry in entries if entry["type"] == "message"]


@contextmanager
def _session(durability: Durability) -> Iterator[Session]:
    with _folder() as folder:
        path = folder / "session.jsonl"
        sessiontree.create(cwd="/", path=path, appear="now").close()
        with sessiontree.open(path, durability=durability) as session:
            yield session


@contextmanager
def _raw_file() -> Iterator[int]:
    with _folder() as folder:
        fd = peers.open_for_append(folder / "raw.jsonl")
        try:
            yield fd
        finally:
            os.close(fd)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = tempfile.mkdtemp(dir=scratch_folder())
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)
