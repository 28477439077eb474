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
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.core.jsonio import parse_json
from sessiontree.library.roots import Root, dialect_named
from sessiontree.library.summary import is_meaningful
from sessiontree.search.prompt_spool import SpooledPrompt, normalize_prompt
from sessiontree.search.text_extractor import read_line

_LARGEST_NOTES = 64 << 20
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
            name = _HISTORY_FILES[agent][0] if agent in _HISTORY_FILES else ""
            path = os.path.join(os.path.dirname(root.folder), name)
            if name and os.path.isfile(path):
                found.setdefault(path, agent)
    return [(agent, path) for path, agent in found.items()]


def read_history_file(agent: str, path: str) -> SourcePrompts:
    return _HISTORY_FILES[agent][1](path)


def read_session(path: str, agent: str, id: str, cwd: str, known: ReadPosition) -> tuple[SourcePrompts, ReadPosition]:
    """Read the prompts on all branches of a session file from a known position on. Returns the new position, too.

    Only complete lines are read; one that is still being written is left for the next import.
    """
    dialect = dialect_named(agent)
    prompts: list[SpooledPrompt] = []
    with open(path, "rb") as file:
        start = known.end if _edge(file.fileno(), known.end) == known.edge else 0
        file.seek(start)
        end = start
        for raw in file:
            if not raw.endswith(b"\n"):
                break
            end += len(raw)
            if (b'"user"' not in raw and b'"queued_command"' not in raw) or b'"tool_result"' in raw:
                continue  # skipped without decoding: another role, or tool results, which have the user's role
            for line in read_line(raw.rstrip(b"\r\n"), dialect):
                text = normalize_prompt("\n".join(text.text for text in line.texts if text.kind == "prompt"))
                if is_meaningful(text):
                    prompts.append(SpooledPrompt(text, cwd, id, agent, milliseconds(line.time), "session"))
        return SourcePrompts(tuple(prompts)), ReadPosition(end, _edge(file.fileno(), end))


def _edge(descriptor: int, end: int) -> str:
    return hashlib.sha256(os.pread(descriptor, min(_EDGE, end), max(end - _EDGE, 0))).hexdigest()[:16] if end else ""


# Claude Code: `history.jsonl`, one object per line


def _read_claude(path: str) -> SourcePrompts:
    prompts: list[SpooledPrompt] = []
    unreadable = 0
    with open(path, "rb") as file:
        for raw in file:
            if not raw.strip():
                continue
            fields = _object(raw)
            prompt, time = normalize_prompt(fields.get("display")), _time(fields.get("timestamp"))
            if not prompt or time is None:
                unreadable += 1
                continue
            where, session = normalize_prompt(fields.get("project")), normalize_prompt(fields.get("sessionId"))
            prompts.append(SpooledPrompt(prompt, where, session, "claude", time, "claude history"))
    return SourcePrompts(tuple(prompts), unreadable)


# oh-my-pi and xcsh: `history.db`, an SQLite table `history`; xcsh has no session column


def _read_omp(path: str) -> SourcePrompts:
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "history.db")
        # A copy: opening a database with a write-ahead log would write next to it.
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path + suffix, copy + suffix)
        database = sqlite3.connect(copy)
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        try:
            rows = list(_omp_rows(database))
        except sqlite3.DatabaseError:
            return SourcePrompts(unreadable=1)
        finally:
            database.close()
    prompts: list[SpooledPrompt] = []
    unreadable = 0
    for prompt, seconds, cwd, session in rows:
        text = normalize_prompt(prompt)
        time = _time(seconds * 1000) if isinstance(seconds, int | float) else None
        if not text or time is None:
            unreadable += 1
        else:
            prompts.append(
                SpooledPrompt(text, normalize_prompt(cwd), normalize_prompt(session), "omp", time, "omp history")
            )
    return SourcePrompts(tuple(prompts), unreadable)


def _omp_rows(database: sqlite3.Connection) -> Iterator[tuple[object, object, object, object]]:
    columns = {row[1] for row in database.execute("PRAGMA table_info(history)")}
    if "session_id" in columns:
        return database.execute("SELECT prompt, created_at, cwd, session_id FROM history ORDER BY created_at, id")
    return database.execute("SELECT prompt, created_at, cwd, NULL FROM history ORDER BY created_at, id")


# Neovate: `data.json` has a `history` for each folder in `projects`, without times


def _read_neovate(path: str) -> SourcePrompts:
    with open(path, "rb") as file:
        projects = _object(file.read(_LARGEST_NOTES)).get("projects")
    if not isinstance(projects, dict):
        return SourcePrompts(unreadable=1)
    prompts: list[SpooledPrompt] = []
    unreadable = 0
    for cwd, notes in projects.items():
        history = notes.get("history", []) if isinstance(notes, dict) else None
        for prompt in history if isinstance(history, list) else [None]:
            text = normalize_prompt(prompt)
            if text:
                prompts.append(SpooledPrompt(text, normalize_prompt(cwd), "", "neovate", None, "neovate history"))
            else:
                unreadable += 1
    return SourcePrompts(tuple(prompts), unreadable)


_HISTORY_FILES: dict[str, tuple[str, Callable[[str], SourcePrompts]]] = {
    "claude": ("history.jsonl", _read_claude),
    "omp": ("history.db", _read_omp),
    "neovate": ("data.json", _read_neovate),
}


def _object(raw: bytes) -> dict[str, object]:
    try:
        value = parse_json(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _time(value: object) -> int | None:
    """A number as milliseconds since 1970; None if it is out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LAST_MILLISECOND:
        return None
    return int(value)
