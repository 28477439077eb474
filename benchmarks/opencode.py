"""Benchmark of listing a large database of OpenCode."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

from benchmarks.generate import scratch_folder
from benchmarks.library import run_command
from benchmarks.results import Outcome, Result, Skipped, milliseconds
from benchmarks.texts import Texts

SESSIONS = 2_000
MESSAGES = 40
_SIZE = 2_000_000_000
_START = 1_771_236_000_000
_TABLES = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
  directory text NOT NULL, title text NOT NULL, version text NOT NULL, cost real DEFAULT 0 NOT NULL,
  tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
  tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
  tokens_cache_write integer DEFAULT 0 NOT NULL, revert text, time_created integer NOT NULL,
  time_updated integer NOT NULL, time_compacting integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
"""
"""Tables and indexes that a listing uses, as OpenCode 1.18 creates them."""


def list_database(rounds: int) -> list[Outcome]:
    """Listing 2,000 sessions in a database of 2 GB takes 1 s of CPU time, and again 0.1 s."""
    names = [f"list {SESSIONS:,} sessions in an OpenCode database of 2 GB{again}" for again in ("", " again")]
    home = scratch_folder() / "opencode-home"
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    if not path.exists():
        if shutil.disk_usage(scratch_folder()).free < 3 * _SIZE:
            return [Skipped(names[0], "needs 6 GB of free disk")]
        _write(path)
    own = {"HOME": str(home), "SESSIONTREE_HOME": str(home / "ours"), "SESSIONTREE_CACHE": str(home / "cache")}
    cold = []
    for _ in range(min(rounds, 3)):
        shutil.rmtree(home / "cache", ignore_errors=True)
        cold.append(run_command(own, "list", until_printed=True))
    warm = [run_command(own, "list", until_printed=True) for _ in range(2 * rounds)]
    results: list[Outcome] = []
    for name, runs, bound in zip(names, (cold, warm), (1000, 100), strict=True):
        best = min(runs, key=lambda run: run.seconds)
        assert best.lines > SESSIONS
        about = f"{best.lines - 1:,} lines, whole process"
        results.append(Result(name, milliseconds(best.seconds), about, 1e3 * best.seconds, bound=bound, unit="ms"))
    return results


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.unlink(missing_ok=True)
    texts = Texts(Random(1))
    length = 2 * _SIZE // SESSIONS // MESSAGES  # half of the messages are short prompts
    answers = [_text(texts, length) for _ in range(20)]
    with closing(sqlite3.connect(unfinished)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.executescript(_TABLES)
        for number in range(SESSIONS):
            _write_session(database, number, texts, answers)
        database.commit()
    unfinished.rename(path)


def _write_session(database: sqlite3.Connection, number: int, texts: Texts, answers: list[str]) -> None:
    session = f"ses_{number:012x}benchmarkbench"
    start = _START + number * 60_000
    names = "id, project_id, slug, directory, title, version, time_created, time_updated"
    values = (session, "p", "slug", f"/work/{number % 20}", f"Session {number}", "1.18.33", start, start + MESSAGES)
    database.execute(f"INSERT INTO session ({names}) VALUES (?,?,?,?,?,?,?,?)", values)
    parent = ""
    for at in range(MESSAGES):
        id = f"msg_{number * 100 + at:012x}benchmarkbench"
        is_prompt = at % 2 == 0
        role = "user" if is_prompt else "assistant"
        info = {"role": role, "time": {"created": start + at}, **({} if is_prompt else {"parentID": parent})}
        parent = id if is_prompt else parent
        times = (start + at, start + at)
        database.execute("INSERT INTO message VALUES (?,?,?,?,?)", (id, session, *times, json.dumps(info)))
        words = texts.prose(300) if is_prompt else answers[at // 2 % len(answers)]
        part = json.dumps({"type": "text", "text": words}, ensure_ascii=False)
        part_id = f"prt_{number * 100 + at:012x}benchmarkbench"
        database.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", (part_id, id, session, *times, part))


def _text(texts: Texts, length: int) -> str:
    found = ""
    while len(found.encode()) < length:
        found += texts.output(20_000)
    return found
