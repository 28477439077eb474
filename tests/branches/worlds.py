"""Session files with branches in every dialect, and the invariants that each must keep at all times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sessiontree
from sessiontree import Session
from sessiontree.core.messages import ToolResult, message_text, tool_calls
from sessiontree.repair import examine
from sessiontree.stores.contract import SessionStore
from tests.conversion.conversations import assistant, call, result, text
from tests.stores import new_store

DIALECTS = ("claude", "neovate", "omp", "pi", "native")

_WRITE = {"claude": ("Write", "file_path"), "neovate": ("write", "file_path")}


def write_call(dialect: str, id: str, path: str, content: str) -> dict[str, Any]:
    """A call that writes a file, in the form of a dialect's agent."""
    name, key = _WRITE.get(dialect, ("write", "path"))
    return call(id, name, {key: path, "content": content})


def stored(session: Session, dialect: str) -> SessionStore:
    """Convert a session to a dialect, in a new store."""
    made = sessiontree.convert(session, dialect, branch="all")
    name = "0a1b2c3d.jsonl" if dialect == "neovate" else f"{made.meta.id}.jsonl"
    return new_store(b"".join(made.lines), name)


def beginning(cwd: str) -> Session:
    """A question and an answer."""
    session = sessiontree.create(cwd=cwd, in_memory=True)
    session.append("user", "Fix the parser.")
    session.append(assistant(text("Which way?")))
    return session


def as_file(session: Session, dialect: str, folder: Path) -> Path:
    """Write a session in memory to a file of a dialect."""
    made = sessiontree.convert(session, dialect, branch="all")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ("0a1b2c3d.jsonl" if dialect == "neovate" else f"{made.meta.id}.jsonl")
    path.write_bytes(b"".join(made.lines))
    return path


def new_file(dialect: str, folder: Path, *, cwd: str | None = None) -> Path:
    """A file of a dialect with a question and an answer."""
    return as_file(beginning(cwd or str(folder)), dialect, folder)


class World:
    """Two branches of one session, by their tips; they diverge after `fork`."""

    def __init__(self, dialect: str, folder: Path) -> None:
        self.dialect = dialect
        self.path = new_file(dialect, folder)
        session = sessiontree.open(self.path)
        self.fork = last_said(session)
        self.one = self.say(
            self.fork,
            "Write it by hand.",
            "We decided to use recursive descent, because it is small.",
            ("toolu_a", "parser.py", "by hand"),
            "E   ValueError: bad token 42",
            "The hand-written one fails.",
        )
        self.other = self.say(
            self.fork,
            "用生成器 instead.",
            "We decided to use lark, since it is tested.",
            ("toolu_b", "parser.py", "lark"),
            "12 passed",
            "The generated one works.",
        )
        self.before = self.path.read_bytes()

    def say(self, at: str, prompt: str, answer: str, written: tuple[str, str, str], output: str, last: str) -> str:
        """Append a turn with two parallel calls to an entry; returns its last entry."""
        session = sessiontree.open(self.path)
        branch = session.branch(at)
        branch.append("user", prompt)
        id, path, content = written
        shell = "Bash" if self.dialect == "claude" else "bash"
        calls = [write_call(self.dialect, id, path, content), call(f"{id}_run", shell, {"command": "pytest"})]
        branch.append(assistant(text(answer), *calls))
        branch.append(result(id, calls[0]["name"], "written"))
        branch.append(result(f"{id}_run", shell, output))
        branch.append(assistant(text(last)))
        session.close()
        assert branch.leaf is not None
        return str(branch.leaf)

    def opened(self) -> Session:
        return sessiontree.open(self.path)


def last_said(session: Session) -> str:
    """The last entry with a message on the active path."""
    return session.context().sources[-1]


def context_texts(session: Session, leaf: str | None = None) -> list[str]:
    return [message_text(message) for message in session.context(leaf).messages]


def check_lines_are_kept(before: bytes, after: bytes) -> None:
    """Check that every earlier line is still there, byte for byte."""
    missing = Counter(before.splitlines()) - Counter(after.splitlines())
    assert not missing


def check_pairs_are_whole(session: Session, leaf: str | None) -> None:
    """Check that results in a context follow the message with their calls, with only other results between."""
    waiting: list[str] = []
    answered: set[str] = set()
    seen: set[str] = set()
    for message in session.context(leaf).messages:
        if isinstance(message, ToolResult):
            assert message.tool_call_id in waiting, "a result far from its call"
            answered.add(message.tool_call_id)
            continue
        calls = [each.id for each in tool_calls(message)]
        assert not seen.intersection(calls), "two calls of one id in a context"
        assert set(waiting) <= answered, "there is an entry between a call and its result"
        seen.update(calls)
        waiting = calls


def findings(session: Session) -> Sequence[str]:
    return [finding.rule.id for finding in examine(session) if finding.rule.severity != "note"]
