"""Sessions to compact, in every writable dialect: short ones, and long generated ones."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec

import sessiontree
from sessiontree import Session
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import Assistant, Message, ToolResult, message_text, tool_calls
from sessiontree.dialects.pi import PI
from sessiontree.session.entry_input import Options
from sessiontree.session.journal import Journal
from sessiontree.stores.contract import SessionStore
from sessiontree.stores.memory import MemoryRepository, MemoryStore
from tests.conversion.conversations import assistant, call, result, text
from tests.stores import new_store

DIALECTS = ("native", "pi", "omp", "claude", "neovate")


def pi_session(entries: list[dict[str, Any]]) -> Session:
    """A Pi session in memory with these lines."""
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/"}
    raw = b"".join(render_json(line) + b"\n" for line in [header, *entries])
    return Session(Journal(MemoryStore(raw), PI, MemoryRepository), Options())


def stored(session: Session, dialect: str) -> SessionStore:
    """Convert the session to a dialect, in a new store."""
    made = sessiontree.convert(session, dialect)
    return new_store(b"".join(made.lines), _file_name(made.meta.id, dialect))


def file_of(session: Session, dialect: str, folder: Path) -> Path:
    """Write the session to a file of a dialect."""
    made = sessiontree.convert(session, dialect)
    path = folder / _file_name(made.meta.id, dialect)
    path.write_bytes(b"".join(made.lines))
    return path


def _file_name(id: str, dialect: str) -> str:
    return "0a1b2c3d.jsonl" if dialect == "neovate" else f"{id}.jsonl"


def worked_session(turns: int = 3, words: int = 300) -> Session:
    """A session with prompts, tool calls and findings, in several turns."""
    session = sessiontree.create(cwd="/work", in_memory=True)
    session.append("user", "Let src/parser.py keep the last line. You must never touch the tests.")
    session.append(
        assistant(
            text("Decision: split by lines instead of slicing."),
            call("c1", "read", {"path": "src/lines.py"}),
            call("c2", "edit", {"path": "src/parser.py", "oldText": "a", "newText": "b"}),
        )
    )
    session.append(result("c1", "read", "def lines(): ..."))
    session.append(result("c2", "edit", "ok"))
    session.append(assistant(text("It is changed.")))
    for turn in range(turns):
        session.append("user", f"request {turn} " + "word " * words)
        session.append(assistant(text(f"step {turn}"), call(f"t{turn}", "bash", {"command": f"make check-{turn}"})))
        session.append(result(f"t{turn}", "bash", f"output {turn} " + "line " * words))
        session.append(assistant(text(f"answer {turn} " + "said " * words)))
    return session


def context_texts(session: Session) -> list[str]:
    return [message_text(message) for message in session.context().messages]


def sent(session: Session) -> list[Message]:
    """The messages that a model receives, without usage: Claude Code drops it from messages that a boundary keeps."""
    return [
        msgspec.structs.replace(message, usage=None) if isinstance(message, Assistant) else message
        for message in session.context().messages
    ]


def separated(session: Session) -> list[str]:
    """Tool calls without results and results without calls in the context."""
    messages = session.context().messages
    called: set[str] = set()
    torn: list[str] = []
    for message in messages:
        called.update(one.id for one in tool_calls(message))
        if isinstance(message, ToolResult) and message.tool_call_id not in called:
            torn.append(message.tool_call_id)
    return torn


_STOCK = """the parser reads a line and then another line while the table grows and the log shows numbers near the end
of each block of output that was printed during the run of the small program"""


def filler(random: Random, words: int) -> str:
    """Filler text without words that mark a demand or a decision."""
    return " ".join(random.choice(_STOCK.split()) for _ in range(words)) + "."
