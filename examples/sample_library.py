"""Write a small library of sample sessions: sessions of five agents in three projects, with branches, tools and damage.

    python examples/sample_library.py DIR

DIR becomes a home folder with the files where each agent keeps them. Nothing outside of it is read or written.
`make run` uses it when you have no sessions of your own, and so do the tutorials and the pictures in docs/.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sessiontree
from sessiontree.stores.memory import MemoryStore

USAGE = {"input": 1840, "output": 212, "cacheRead": 12400, "cacheWrite": 0, "totalTokens": 14452}
COST = {"input": 0.0055, "output": 0.0032, "cacheRead": 0.0037, "cacheWrite": 0.0, "total": 0.0124}


class Conversation:
    """Native lines of one session, each parented to the one before it unless `at` moves elsewhere."""

    def __init__(self, number: int, cwd: str, started: datetime, title: str | None = None) -> None:
        self.id = f"0{number}a1c0de-5e55-7000-8000-{number:012x}"
        self.cwd = cwd
        self._now = started
        self._leaf: str | None = None
        self._count = 0
        header = {
            "type": "session",
            "version": 3,
            "id": self.id,
            "timestamp": self._time(),
            "cwd": cwd,
            "sessiontree": 1,
        }
        self._lines: list[dict[str, Any]] = [header]
        if title:
            self._add("session_info", name=title)

    def user(self, text: str) -> str:
        return self._message({"role": "user", "content": text})

    def answer(self, text: str, *calls: tuple[str, str, Mapping[str, Any]], model: str = "claude-sonnet-4-5") -> str:
        """An assistant message; each call is (id, tool, arguments)."""
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "toolCall", "id": id, "name": tool, "arguments": dict(given)} for id, tool, given in calls]
        return self._message(
            {
                "role": "assistant",
                "content": content,
                "api": "anthropic-messages",
                "provider": "anthropic",
                "model": model,
                "usage": {**USAGE, "cost": COST},
                "stopReason": "toolUse" if calls else "stop",
            }
        )

    def result(self, call: str, tool: str, text: str, *, failed: bool = False) -> str:
        block = {"type": "text", "text": text}
        return self._message(
            {"role": "toolResult", "toolCallId": call, "toolName": tool, "content": [block], "isError": failed}
        )

    def label(self, entry: str, name: str) -> None:
        self._add("label", targetId=entry, label=name)

    def at(self, entry: str) -> None:
        """Go back to an entry: the next message starts a branch there."""
        self._leaf = entry

    def compact(self, summary: str, first_kept: str) -> str:
        self._leaf = self._add("compaction", summary=summary, firstKeptEntryId=first_kept, tokensBefore=151_200)
        return self._leaf

    @property
    def ended(self) -> float:
        return self._now.timestamp()

    def lines(self) -> Iterator[bytes]:
        for line in self._lines:
            yield json.dumps(line, ensure_ascii=False).encode() + b"\n"

    def _message(self, message: dict[str, Any]) -> str:
        self._leaf = self._add("message", message={**message, "timestamp": int(self._now.timestamp() * 1000)})
        return self._leaf

    def _add(self, kind: str, **fields: Any) -> str:
        self._now += timedelta(seconds=47)
        self._count += 1
        id = f"{self._count:02x}{int(self.id[:2], 16) * 65537 + self._count * 40503 & 0xFFFFFF:06x}"
        self._lines.append({"type": kind, "id": id, "parentId": self._leaf, "timestamp": self._time(), **fields})
        return id

    def _time(self) -> str:
        return self._now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{self._now.microsecond // 1000:03d}Z"


def flaky_login(cwd: str, started: datetime) -> Conversation:
    """Parallel tool calls, two attempts on branches of their own, and the one that was kept."""
    talk = Conversation(1, cwd, started, "Fix the flaky login test")
    talk.user("tests/test_login.py fails about once in ten runs. Find out why and fix it.")
    talk.answer(
        "I'll read the test and the session code side by side.",
        ("call_1", "read", {"path": "tests/test_login.py"}),
        ("call_2", "read", {"path": "app/session.py"}),
        ("call_3", "bash", {"command": "git log --oneline -5 app/session.py"}),
    )
    talk.result("call_1", "read", "def test_login_expires():\n    login()\n    time.sleep(1.0)\n    assert expired()\n")
    talk.result("call_2", "read", "TTL = 1.0\n\ndef expired():\n    return time.time() - started > TTL\n")
    talk.result("call_3", "bash", "4f1c2aa Shorten the session TTL for tests\n9be0d41 Add session expiry\n")
    cause = talk.answer(
        "The test sleeps exactly as long as the TTL, and `>` needs strictly more. Two ways out: sleep longer, "
        "or inject the clock. Which do you prefer?"
    )
    talk.label(cause, "root cause")
    talk.user("Just sleep longer.")
    talk.answer(
        "", ("call_4", "edit", {"path": "tests/test_login.py", "oldText": "sleep(1.0)", "newText": "sleep(1.2)"})
    )
    talk.result("call_4", "edit", "edited tests/test_login.py: 1 replacement")
    talk.answer("Done, but the suite is now 0.2 s slower, and a loaded machine can still break it.")
    talk.at(cause)
    talk.user("Inject the clock, please.")
    talk.answer("", ("call_5", "edit", {"path": "app/session.py", "oldText": "time.time()", "newText": "self.clock()"}))
    talk.result("call_5", "edit", "edited app/session.py: 1 replacement")
    talk.answer("", ("call_6", "bash", {"command": "pytest -q tests/test_login.py --count 200"}))
    talk.result("call_6", "bash", "200 passed in 0.41s\n")
    talk.answer("Fixed: 200 runs without a failure, and the test no longer sleeps.")
    return talk


def json_flag(cwd: str, started: datetime) -> Conversation:
    talk = Conversation(2, cwd, started, "Add a --json flag")
    talk.user("Add a --json flag to the command line, then run the tests.")
    talk.answer("I'll read the parser first.", ("call_1", "read", {"path": "parser.py"}))
    talk.result("call_1", "read", "import argparse\n\nparser = argparse.ArgumentParser()\n")
    question = talk.answer("It uses argparse. Should I keep it?")
    talk.label(question, "which library?")
    talk.user("Try click instead.")
    talk.answer("With click the whole file changes; 3 tests fail.")
    talk.at(question)
    talk.user("请保留 argparse。")
    talk.answer("Done: one line added, all tests pass. 完成了。")
    return talk


def long_migration(cwd: str, started: datetime) -> Conversation:
    """A session that was compacted."""
    talk = Conversation(3, cwd, started, "Move the queue to PostgreSQL")
    talk.user("We outgrew Redis lists. Plan and start the move of the job queue to PostgreSQL.")
    talk.answer("Plan: a jobs table, SELECT ... FOR UPDATE SKIP LOCKED, LISTEN/NOTIFY for wake-ups, a dual-write week.")
    talk.user("Good. Start with the table and the worker.")
    kept = talk.answer(
        "", ("call_1", "write", {"path": "migrations/0007_jobs.sql", "content": "CREATE TABLE jobs (...);"})
    )
    talk.result("call_1", "write", "wrote migrations/0007_jobs.sql")
    talk.answer("The table is in place. Next is the worker loop.")
    talk.compact(
        "Goal: move the job queue from Redis to PostgreSQL. Decided: SKIP LOCKED, LISTEN/NOTIFY, one week of dual "
        "writes. Done: migrations/0007_jobs.sql. Next: the worker loop.",
        kept,
    )
    talk.user("Continue with the worker. 接着写。")
    talk.answer("The worker takes jobs in batches of 20 and sleeps on NOTIFY. 批量处理已经完成。")
    return talk


def docs_typo(cwd: str, started: datetime) -> Conversation:
    talk = Conversation(4, cwd, started)
    talk.user("README の誤字を直してください。")
    talk.answer("二つ見つけました。直しました。")
    talk.user("고마워요! 변경 내용을 요약해 주세요.")
    talk.answer("README.md에서 오타 두 개를 고쳤습니다.")
    return talk


def benchmarks(cwd: str, started: datetime) -> Conversation:
    talk = Conversation(5, cwd, started, "Profile the importer")
    talk.user("The importer takes 40 s for a 1 GB file. Profile it.")
    talk.answer("", ("call_1", "bash", {"command": "py-spy record -d 30 -- python import.py big.csv"}))
    talk.result("call_1", "bash", "62 % in csv.DictReader.__next__\n21 % in str.strip\n")
    talk.answer("Most of the time is DictReader. A plain csv.reader with a header map should halve it.")
    return talk


def crashed(cwd: str, started: datetime) -> Conversation:
    """What `write_library` damages: the agent was killed while it wrote."""
    talk = Conversation(6, cwd, started, "Rate limits for the API")
    talk.user("Add rate limits to the public API.")
    talk.answer("A token bucket per key, in app/limits.py.", ("call_1", "read", {"path": "app/limits.py"}))
    talk.result("call_1", "read", "RATE = 10\n")
    talk.answer("I'll add the middleware now.")
    talk.user("Use 429 with Retry-After.")
    talk.answer("Done: the middleware answers 429 with Retry-After.")
    return talk


SESSIONS = (
    # (agent, conversation, project, age)
    ("claude", flaky_login, "shop", timedelta(hours=2)),
    ("pi", json_flag, "tools", timedelta(hours=5)),
    ("omp", long_migration, "shop", timedelta(days=1)),
    ("neovate", docs_typo, "tools", timedelta(days=3)),
    ("native", benchmarks, "importer", timedelta(days=9)),
    ("claude", crashed, "shop", timedelta(days=12)),
)


def write_library(home: Path, now: datetime | None = None) -> list[Path]:
    """Write all sessions below `home`, where their agents keep them. Returns their files. Ages count from `now`."""
    environment = {"HOME": str(home), "SESSIONTREE_HOME": str(home / ".local" / "share" / "sessiontree")}
    now = now or datetime.now(UTC)
    written = []
    for agent, build, project, age in SESSIONS:
        cwd = home / "projects" / project
        cwd.mkdir(parents=True, exist_ok=True)
        conversation = build(str(cwd), now - age)
        source = sessiontree.open_store(MemoryStore(b"".join(conversation.lines())))
        converted = sessiontree.convert(source, agent, branch="all", id=conversation.id)
        path = Path(converted.dialect.destination(converted.meta, environment).path)
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = b"".join(converted.lines)
        if build is crashed:
            raw = _damage(raw)
        path.write_bytes(raw)
        path.chmod(0o600)
        os.utime(path, (conversation.ended, conversation.ended))
        written.append(path)
    return written


def _damage(raw: bytes) -> bytes:
    """What a kill in the middle of a write leaves: a line cut short with the next one glued to it, and a torn tail."""
    lines = raw.splitlines(keepends=True)
    middle = len(lines) // 2
    lines[middle] = lines[middle][: len(lines[middle]) // 3]
    return b"".join(lines)[:-40]


def main() -> None:
    if len(sys.argv) == 2 and sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    home = Path(sys.argv[1]).resolve()
    if home.exists() and any(home.iterdir()):
        sys.exit(f"{home} is not empty; name a new folder")
    for path in write_library(home):
        print(path)
    print(f"\nTry it in a shell of its own:  HOME={home} sessiontree list --all")


if __name__ == "__main__":
    main()
