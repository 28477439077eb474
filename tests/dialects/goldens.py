"""Goldens of programs: their sessions, and what the program sent when it resumed them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import sessiontree
from sessiontree.core.messages import Message, Text, Thinking, ToolCall, ToolResult, message_blocks, text_of

FOLDER = Path(__file__).parent.parent / "goldens"

Outline = list[tuple[Any, ...]]


def cases(program: str) -> list[str]:
    return sorted(path.name for path in (FOLDER / program).iterdir() if path.is_dir())


def expectation(program: str, case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / program / case / "expected.json").read_text())
    return found


def session_file(program: str, case: str) -> Path:
    id = expectation(program, case)["session_id"]
    (found,) = (path for path in (FOLDER / program / case).glob("*.jsonl") if path.stem.endswith(id))
    return found


def copied(program: str, case: str, folder: Path) -> Path:
    """A copy of all sessions of a case; returns the file of the one that was resumed."""
    shutil.copytree(FOLDER / program / case, folder, dirs_exist_ok=True)
    return folder / session_file(program, case).name


def sent_by_program(program: str, case: str) -> Outline:
    """The blocks that the program sent, each with its role."""
    messages = expectation(program, case)["resume"]["messages"]
    return [(message["role"], *_expected(block)) for message in messages for block in message["blocks"]]


def _expected(block: dict[str, Any]) -> tuple[Any, ...]:
    match block["type"]:
        case "tool_call":
            return "call", block["id"], block["name"], block["input"]
        case "tool_result":
            return "result", block["id"], block["text"]
        case kind:
            return kind, block["text"]


def outline(session: sessiontree.Session) -> Outline:
    return [found for message in session.context().messages for found in _outline(message)]


def _outline(message: Message) -> Outline:
    if isinstance(message, ToolResult):
        return [("tool", "result", message.tool_call_id, text_of(message.content))]
    return [(message.role, *_found(block)) for block in message_blocks(message)]


def _found(block: object) -> tuple[Any, ...]:
    match block:
        case Text():
            return "text", block.text
        case Thinking():
            return "thinking", block.thinking
        case ToolCall():
            return "call", block.id, block.name, block.arguments
        case _:
            return (type(block).__name__,)
