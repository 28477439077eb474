"""The messages that Gemini CLI sends for a session it resumes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from sessiontree.core.context import Context, Path, Rules, build_context
from sessiontree.core.entries import Entry, MessageEntry
from sessiontree.core.messages import (
    Assistant,
    CompactionSummary,
    LazyMessages,
    Message,
    Text,
    ToolResult,
    User,
    blocks_of,
)
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.gemini.client import INTERRUPTED
from sessiontree.dialects.gemini.content import sent_messages
from sessiontree.dialects.gemini.entries import parse_fields
from sessiontree.dialects.gemini.records import plain_text
from sessiontree.dialects.passthrough import passthrough_of

_RULES = Rules(resets=False, explicit_model_wins=False)


def build_sent_context(lines: IndexedLines, nodes: list[int]) -> Context:
    ours: set[str] = set()
    """The messages that we wrote. Each may be an entry with words of its own, so they are not joined with others."""

    def load(positions: Sequence[int]) -> list[Entry]:
        found = lines.fields([nodes[at] for at in positions])
        ours.update(
            lines.tree.ids[nodes[at]] for at, fields in zip(positions, found, strict=True) if passthrough_of(fields)
        )
        return [_sent_entry(fields) for fields in found]

    sizes = lines.sizes(nodes)
    path = Path(
        [lines.tree.ids[node] for node in nodes],
        [lines.types[node] for node in nodes],
        load,
        lambda positions: [sizes[at] for at in positions],
    )
    context = build_context(path, _RULES)
    if isinstance(context.messages, LazyMessages):
        return context  # too large to be joined in memory
    summaries = [node for node in nodes if lines.types[node] == "compaction"]
    answer = lines.fields(summaries[-1:])[0]["compaction"].get("answer") if summaries else None
    return _joined(context, plain_text(answer.get("content")) if isinstance(answer, dict) else "", ours)


def _sent_entry(fields: dict[str, Any]) -> Entry:
    entry = parse_fields(fields)
    if not isinstance(entry, MessageEntry):
        return entry
    messages = sent_messages(fields)
    if not messages:
        return MessageEntry(id=entry.id, timestamp=entry.timestamp)
    return MessageEntry(id=entry.id, timestamp=entry.timestamp, message=messages[0], more_messages=tuple(messages[1:]))


def _joined(context: Context, answer: str, separate: Collection[str]) -> Context:
    """Join messages of one role that follow each other, and add those that Gemini CLI inserts."""
    messages: list[Message] = []
    sources: list[str] = []

    def add(message: Message, source: str) -> None:
        is_separate = source in separate or (sources and sources[-1] in separate)
        last = messages[-1] if messages and not is_separate else None
        if isinstance(message, User) and isinstance(last, User):
            messages[-1] = msgspec.structs.replace(
                last, content=(*blocks_of(last.content), *blocks_of(message.content))
            )
        elif isinstance(message, Assistant) and isinstance(last, Assistant):
            content = (*blocks_of(last.content), *blocks_of(message.content))
            messages[-1] = msgspec.structs.replace(message, content=content)
        else:
            messages.append(message)
            sources.append(source)

    for message, source in zip(context.messages, context.sources, strict=True):
        if isinstance(message, CompactionSummary):
            add(User(timestamp=message.timestamp, content=(Text(message.summary),)), source)
            if answer:
                add(Assistant(timestamp=message.timestamp, content=(Text(answer),)), source)
        else:
            add(message, source)
    if messages and isinstance(messages[-1], ToolResult):
        add(Assistant(timestamp=messages[-1].timestamp, content=(Text(INTERRUPTED),)), sources[-1])
    return msgspec.structs.replace(context, messages=tuple(messages), sources=tuple(sources))
