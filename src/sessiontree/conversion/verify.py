"""Compare a converted session with its source: decode both and compare them entry by entry.

The comparison covers the content of the conversation: the messages and summaries of each branch, tool calls and their
results. Tool calls are compared as the agent made them, before any mapping, and messages before any edit.

A result belongs to its call, wherever it is: some clients have results directly after their calls, whatever came
between the two.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct

from sessiontree.conversion.context_edits import with_original_content
from sessiontree.conversion.tool_mapping import with_original_tools
from sessiontree.conversion.walk import iter_entries
from sessiontree.core.entries import CONTEXT_TYPES
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.session.reader import Reader

_EXCERPT = 300


class Difference(Struct, frozen=True):
    """Content that only one of the two sessions has at a position in its tree."""

    source: str | None
    copy: str | None


class _Result(Struct, frozen=True):
    """The result of a call, without its content, which may be large."""

    call: str
    content: bytes
    """The digest of it."""
    excerpt: str


def first_difference(
    source: Reader, leaf: str | None, copy: Reader, *, all_branches: bool, dropped: Collection[str] = ()
) -> Difference | None:
    """The first difference between a session and its copy; None when they have the same content.

    The order of branches does not matter. `dropped` are entries of the source that the copy cannot hold.
    """
    copies = Counter(digest for digest, _ in _iter_content(copy, copy.leaf, all_branches=all_branches))
    for digest, excerpt in _iter_content(source, leaf, all_branches=all_branches, dropped=dropped):
        if not copies[digest]:
            return Difference(excerpt, None)
        copies[digest] -= 1
    if not copies.total():
        return None
    for digest, excerpt in _iter_content(copy, copy.leaf, all_branches=all_branches):
        if copies[digest]:
            return Difference(None, excerpt)
    raise AssertionError("counted content is found again")


def _iter_content(
    session: Reader, leaf: str | None, *, all_branches: bool, dropped: Collection[str] = ()
) -> Iterator[tuple[bytes, str]]:
    """A digest of each entry and an excerpt of its content.

    The digest covers everything on the path before the entry, except for results. That of a result covers its content
    and the answers with its call.
    """
    digests: dict[str | None, bytes] = {None: b""}
    answers: dict[str, set[bytes]] = {}
    results: list[_Result] = []
    for entry, parent in iter_entries(session, leaf, all_branches=all_branches):
        digest = digests.get(parent, b"")
        entry = with_original_content(entry)
        if entry.kind in CONTEXT_TYPES and entry.id not in dropped:
            entry = with_original_tools(entry)
            content = repr((entry.kind, *_entry_content(entry)))
            message = entry.fields.get("message")
            message = message if isinstance(message, dict) else {}
            if message.get("role") == "toolResult":
                results.append(_Result(str(message.get("toolCallId")), _digest(b"", content), content[:_EXCERPT]))
            else:
                digest = _digest(digest, content)
                yield digest, content[:_EXCERPT]
                for call in _call_ids(message.get("content")):
                    answers.setdefault(call, set()).add(digest)
        digests.update(dict.fromkeys((entry.id, *entry.aliases), digest))
    for result in results:
        calls = b"".join(sorted(answers.get(result.call, ())))
        yield _digest(calls + result.content, ""), result.excerpt


def _digest(before: bytes, content: str) -> bytes:
    return hashlib.blake2b(before + content.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _call_ids(content: Any) -> Iterator[str]:
    blocks = content if isinstance(content, list) else ()
    return (str(block.get("id")) for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall")


def _entry_content(entry: CanonicalEntry) -> tuple[Any, ...]:
    message = entry.fields.get("message")
    if isinstance(message, dict):
        fields = tuple(message.get(name) for name in ("role", "toolCallId", "isError", "command", "output"))
        return (fields, _blocks(message.get("content")))
    return (entry.fields.get("summary"), _blocks(entry.fields.get("content")))


def _blocks(content: Any) -> list[Any]:
    """Content as blocks, however it was written, without empty texts."""
    blocks = content if isinstance(content, list) else [] if content is None else [{"type": "text", "text": content}]
    return [_block(block) for block in blocks if not (isinstance(block, dict) and block.get("text") == "")]


def _block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    return tuple(
        (name, block[name]) for name in ("type", "text", "thinking", "id", "name", "arguments", "data") if name in block
    )
