"""The competitors: straightforward implementations without sessiontree, each the fastest variant we found.

The loader builds the same context by the same rules, for sessions that `generate` writes: no damage, no resets, no
context edits. `check_same_context` verifies that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sessiontree
from sessiontree.core.messages import message_text

Fields = dict[str, Any]

_CHUNK = 128 * 1024
_BOOKKEEPING = frozenset({"label", "session_info", "usage", "config", "custom"})
_IN_CONTEXT = frozenset({"message", "custom_message", "branch_summary", "compaction"})


def load_context(path: Path) -> list[Fields]:
    """Decode every line, index by id, walk to the root, apply the last compaction; returns the context's entries."""
    entries: dict[str, Fields] = {}
    leaf: str | None = None
    with open(path, "rb") as file:
        for line in file:
            fields = json.loads(line)
            kind = fields["type"]
            if kind == "session":
                continue
            entries[fields["id"]] = fields
            if kind == "leaf":
                leaf = fields["targetId"]
            elif kind not in _BOOKKEEPING:
                leaf = fields["id"]
    return _after_compaction(_path(entries, leaf))


def _path(entries: dict[str, Fields], leaf: str | None) -> list[Fields]:
    path: list[Fields] = []
    while leaf is not None:
        path.append(entries[leaf])
        leaf = path[-1]["parentId"]
    path.reverse()
    return path


def _after_compaction(path: list[Fields]) -> list[Fields]:
    last = max((at for at, fields in enumerate(path) if fields["type"] == "compaction"), default=None)
    if last is None:
        return [fields for fields in path if fields["type"] in _IN_CONTEXT]
    kept = path[last]["firstKeptEntryId"]
    first = next((at for at, fields in enumerate(path[:last]) if fields["id"] == kept), last)
    rest = path[first:last] + path[last + 1 :]
    return [path[last], *(fields for fields in rest if fields["type"] in _IN_CONTEXT - {"compaction"})]


def check_same_context(path: Path) -> int:
    """Assert that the loader and the library build the same context; returns its number of messages."""
    session = sessiontree.open(path)
    assert session.problems == [], session.problems[:3]
    theirs = [_text(fields) for fields in load_context(path)]
    ours = [message_text(message) for message in session.context().messages]
    assert ours == theirs, f"{len(ours)} messages here, {len(theirs)} there, or other texts"
    return len(ours)


def _text(fields: Fields) -> str:
    content = fields.get("message", fields).get("content", fields.get("summary"))
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def decode_and_encode(path: Path) -> int:
    """Decode and encode every line once: the minimum of any conversion."""
    size = 0
    with open(path, "rb") as file:
        for line in file:
            size += len(json.dumps(json.loads(line), ensure_ascii=False, separators=(",", ":")).encode())
    return size


def count_newlines_whole(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def count_newlines_in_chunks(path: Path) -> int:
    """Uses one buffer that stays in the CPU cache."""
    buffer = bytearray(_CHUNK)
    count = 0
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            count += buffer.count(b"\n", 0, got)
    return count


def open_for_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def write_lines(fd: int, lines: Iterable[bytes]) -> None:
    """Bare appends: nothing is encoded, locked or checked."""
    for line in lines:
        os.write(fd, line)


def write_and_sync(fd: int, line: bytes) -> None:
    os.write(fd, line)
    os.fsync(fd)


def walk_transcript(path: Path) -> list[Fields]:
    """The simplest loader: decode every line, walk to the root. Loses parallel tool results."""
    entries: dict[str, Fields] = {}
    leaf: str | None = None
    with open(path, "rb") as file:
        for line in file:
            fields = json.loads(line)
            if "uuid" in fields:
                leaf = fields["uuid"]
                entries[leaf] = fields
    chain: list[Fields] = []
    while leaf is not None:
        chain.append(entries[leaf])
        leaf = chain[-1]["parentUuid"]
    return chain


def load_transcript(path: Path) -> list[Fields]:
    """Decode every line of a Claude Code transcript, walk to the root, and add parallel results.

    For transcripts that `transcripts` writes, without a boundary.
    """
    entries: dict[str, Fields] = {}
    shards: dict[str, list[Fields]] = {}
    results: dict[str, list[tuple[int, Fields]]] = {}
    leaf: str | None = None
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            fields = json.loads(line)
            if fields["type"] not in ("user", "assistant", "system"):
                continue
            leaf = fields["uuid"]
            entries[leaf] = fields
            if fields["type"] == "assistant":
                shards.setdefault(fields["message"]["id"], []).append(fields)
            elif "sourceToolAssistantUUID" in fields:
                results.setdefault(fields["sourceToolAssistantUUID"], []).append((number, fields["message"]))
    chain: list[Fields] = []
    while leaf is not None:
        chain.append(entries[leaf])
        leaf = chain[-1]["parentUuid"]
    messages: list[Fields] = []
    seen: set[str] = set()
    for fields in reversed(chain):
        if fields["type"] == "assistant" and fields["message"]["id"] not in seen:
            response = shards[fields["message"]["id"]]
            seen.add(fields["message"]["id"])
            content = [block for shard in response for block in shard["message"]["content"]]
            messages.append({**fields["message"], "content": content})
            answers = [answer for shard in response for answer in results.get(shard["uuid"], ())]
            messages += [message for _, message in sorted(answers, key=lambda answer: answer[0])]
        elif fields["type"] == "user" and "sourceToolAssistantUUID" not in fields:
            messages.append(fields["message"])
    return messages


def check_same_transcript(path: Path) -> int:
    """Assert that the loader and the library build the same messages; returns their number."""
    session = sessiontree.open(path)
    assert session.problems == [], session.problems[:3]
    theirs = [_content_text(message["content"]) for message in load_transcript(path)]
    ours = [message_text(message) for message in session.context().messages]
    assert ours == theirs, f"{len(ours)} messages here, {len(theirs)} there, or other texts"
    return len(ours)


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = (
        _content_text(block["content"]) if block["type"] == "tool_result" else block.get("text") for block in content
    )
    return "\n".join(text for text in texts if text is not None)


def read_whole(path: Path) -> int:
    return len(path.read_bytes())


def read_in_chunks(path: Path) -> int:
    """Uses one buffer that stays in the CPU cache."""
    buffer = bytearray(_CHUNK)
    size = 0
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            size += got
    return size
