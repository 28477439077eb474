"""Unpack goldens of real programs, and compare a context with what the program sent."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from msgspec import Struct

from sessiontree.core.messages import Assistant, Message, Text, Thinking, ToolCall, ToolResult, User, blocks_of

FOLDER = Path(__file__).parents[1] / "goldens"


class Golden(Struct, frozen=True):
    home: Path
    session_id: str
    sent: list[Any]
    """The messages that the program sent; empty if it failed."""


def cases_of(agent: str) -> list[str]:
    return sorted(path.name.removesuffix(".tar.gz") for path in (FOLDER / agent).glob("*.tar.gz"))


def unpack(agent: str, case: str, folder: Path) -> Golden:
    with tarfile.open(FOLDER / agent / f"{case}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    return Golden(folder / "home", expected["session_id"], expected["resume"]["messages"])


def flat(messages: list[Any]) -> list[tuple[Any, ...]]:
    """The blocks of messages that a program sent, each with its role; a result has the role of a tool."""
    found: list[tuple[Any, ...]] = []
    for message in messages:
        for block in message["blocks"]:
            match block["type"]:
                case "tool_call":
                    found.append(("call", block["id"], block["name"], block["input"]))
                case "tool_result":
                    found.append(("result", block["id"], block["text"]))
                case kind:
                    found.append((message["role"], kind, block["text"]))
    return found


def flat_context(messages: list[Message]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for message in messages:
        assert isinstance(message, User | Assistant | ToolResult)
        for block in blocks_of(message.content):
            match block:
                case ToolCall():
                    found.append(("call", block.id, block.name, block.arguments))
                case Thinking():
                    found.append((message.role, "thinking", block.thinking))
                case Text() if isinstance(message, ToolResult):
                    found.append(("result", message.tool_call_id, block.text))
                case Text() if block.text:
                    found.append((message.role, "text", block.text))
                case _:
                    pass
    return found


def once(blocks: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without calls and results that are repeated, which providers refuse."""
    found: list[tuple[Any, ...]] = []
    for block in blocks:
        if block[0] not in ("call", "result") or block not in found:
            found.append(block)
    return found


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """Content and time of every file below a folder."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
