"""Import of prompts: from other agents' history files and from sessions.

Sources are read only. Records that cannot be decoded are counted, never raised.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sessiontree.clients import client_of
from sessiontree.core.entries import milliseconds
from sessiontree.dialects.client import PastPrompt, PromptDatabase, PromptFile
from sessiontree.library.roots import Root, dialect_named
from sessiontree.library.session_store import open_store
from sessiontree.library.summary import Summary, is_meaningful
from sessiontree.search.file_chunks import iter_lines
from sessiontree.search.prompt_spool import SpooledPrompt, normalize_prompt
from sessiontree.search.text_extractor import read_line
from sessiontree.stores.contract import SessionStore, read_bytes

_EDGE = 64
_LAST_MILLISECOND = 253_402_300_799_999


class SourcePrompts(Struct, frozen=True):
    """The prompts of one source, oldest first, and the number of records that could not be decoded."""

    prompts: tuple[SpooledPrompt, ...] = ()
    unreadable: int = 0


class ReadPosition(Struct, frozen=True):
    """How far a session file was read: an offset, and a hash of the bytes before it."""

    end: int = 0
    edge: str = ""


def history_files(roots: Sequence[Root]) -> list[tuple[str, str]]:
    """Agent and path of each history file, which agents keep next to their folder of sessions."""
    found: dict[str, str] = {}
    for root in roots:
        for agent in root.agents:
            history = client_of(agent).prompt_history
            path = os.path.join(os.path.dirname(root.folder), history.name) if history is not None else ""
            if os.path.isfile(path):
                found.setdefault(path, agent)
    return [(agent, path) for path, agent in found.items()]


def read_history_file(agent: str, path: str) -> SourcePrompts:
    match client_of(agent).prompt_history:
        case PromptFile() as history:
            return _read_file(agent, history, path)
        case PromptDatabase() as history:
            return _read_database(agent, history, path)
        case None:
            return SourcePrompts()


def read_session(summary: Summary, known: ReadPosition) -> tuple[SourcePrompts, ReadPosition]:
    """Read the prompts on all branches of a session from a known position on, and return them with the new position.

    Only complete lines are read; one that is still being written is left for the next import.
    """
    dialect = dialect_named(summary.agent)
    marks = dialect.traits.marks
    prompts: list[SpooledPrompt] = []
    with contextlib.closing(open_store(summary)) as store:
        end = known.end if _edge(store, known.end) == known.edge else 0
        for offset, raw in iter_lines(store, end, store.size()):
            if not raw.endswith(b"\n"):
                break
            end = offset + len(raw)
            if not marks.may_be_prompt(raw):
                continue
            for line in read_line(raw.rstrip(b"\r\n"), dialect):
                text = normalize_prompt("\n".join(text.text for text in line.texts if text.kind == "prompt"))
                if is_meaningful(text):
                    time = milliseconds(line.time)
                    prompts.append(SpooledPrompt(text, summary.cwd, summary.id, summary.agent, time, "session"))
        return SourcePrompts(tuple(prompts)), ReadPosition(end, _edge(store, end))


def _edge(store: SessionStore, end: int) -> str:
    return hashlib.sha256(read_bytes(store, max(end - _EDGE, 0), min(_EDGE, end))).hexdigest()[:16] if end else ""


# History files of clients


def _read_file(agent: str, history: PromptFile, path: str) -> SourcePrompts:
    with open(path, "rb") as file:
        return _check(agent, history.parse(file.read()))


def _read_database(agent: str, history: PromptDatabase, path: str) -> SourcePrompts:
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "history.db")
        # A copy: opening a database with a write-ahead log would write next to it.
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path + suffix, copy + suffix)
        database = sqlite3.connect(copy)
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            return _check(agent, history.query(database))
        except sqlite3.DatabaseError:
            return SourcePrompts(unreadable=1)
        finally:
            database.close()


def _check(agent: str, found: Iterable[PastPrompt]) -> SourcePrompts:
    prompts: list[SpooledPrompt] = []
    unreadable = 0
    for past in found:
        text = normalize_prompt(past.text)
        time = _time(past.time)
        if not text or (time is None and past.is_dated):
            unreadable += 1
            continue
        cwd, session = normalize_prompt(past.cwd), normalize_prompt(past.session)
        prompts.append(SpooledPrompt(text, cwd, session, agent, time, f"{agent} history"))
    return SourcePrompts(tuple(prompts), unreadable)


def _time(value: object) -> int | None:
    """A number as milliseconds since 1970; None if it is out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LAST_MILLISECOND:
        return None
    return int(value)
