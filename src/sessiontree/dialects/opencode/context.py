"""The messages that OpenCode sends for a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sessiontree.core.context import Context, Path, Rules, build_context
from sessiontree.core.entries import Compaction, Custom, Entry, MessageEntry
from sessiontree.core.messages import Assistant, CompactionSummary, LazyMessages, Message, Text, User
from sessiontree.dialects.contract import IndexedLines
from sessiontree.dialects.opencode.content import REQUEST, info_of, sent_messages, string
from sessiontree.dialects.opencode.entries import parse_fields

_RULES = Rules(resets=False, explicit_model_wins=False)


def build_sent_context(lines: IndexedLines, nodes: list[int], cut: tuple[str, str] | None) -> Context:
    """Build the context of a path. `cut` is a message that was reverted from one of its parts on, and the part."""
    ids = [lines.tree.ids[node] for node in nodes]
    types = [lines.types[node] for node in nodes]
    summaries = [node for node in nodes if lines.types[node] == "compaction"][-1:]
    answered = {string(info_of(fields), "parentID") for fields in lines.fields(summaries)}
    for at, node in enumerate(nodes):
        # Only the last summary starts the context. Others, and requests without a summary, are ordinary messages.
        if (types[at] == "custom" and ids[at] not in answered) or (types[at] == "compaction" and node not in summaries):
            types[at] = "message"

    def load(positions: Sequence[int]) -> list[Entry]:
        found = zip(positions, lines.fields([nodes[at] for at in positions]), strict=True)
        return [_sent_entry(fields, cut, is_summary=types[at] == "compaction") for at, fields in found]

    sizes = lines.sizes(nodes)
    path = Path(ids, types, load, lambda positions: [sizes[at] for at in positions])
    return _with_request(build_context(path, _RULES))


def _sent_entry(fields: dict[str, Any], cut: tuple[str, str] | None, *, is_summary: bool) -> Entry:
    entry = parse_fields(fields)
    if is_summary or not isinstance(entry, MessageEntry | Compaction | Custom):
        return entry
    until = cut[1] if cut is not None and entry.id == cut[0] else None
    messages = sent_messages(fields, until)
    if not messages:
        return msgspec.structs.replace(_EMPTY, id=entry.id, timestamp=entry.timestamp)
    return MessageEntry(id=entry.id, timestamp=entry.timestamp, message=messages[0], more_messages=tuple(messages[1:]))


_EMPTY = MessageEntry()


def _with_request(context: Context) -> Context:
    """Replace the summary that starts a context with the two messages OpenCode sends: its request and the answer."""
    messages = context.messages
    if not messages or not isinstance(messages[0], CompactionSummary):
        return context
    opening: list[Message] = [
        User(timestamp=messages[0].timestamp, content=(Text(REQUEST),)),
        Assistant(timestamp=messages[0].timestamp, content=(Text(messages[0].summary),)),
    ]
    sources = (context.sources[0], *context.sources)
    if not isinstance(messages, LazyMessages):
        return msgspec.structs.replace(context, messages=(*opening, *messages[1:]), sources=sources)
    rest = messages.part(1, len(messages))

    def load(wanted: range) -> list[Message]:
        return [opening[at] if at < 2 else rest[at - 2] for at in wanted]

    sizes = [0, 0, *rest.sizes()]
    lazy = LazyMessages(len(rest) + 2, load, lambda wanted: sizes[wanted.start : wanted.stop])
    return msgspec.structs.replace(context, messages=lazy, sources=sources)
