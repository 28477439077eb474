"""Entries and messages as readable text: a headline, then text, thinking, calls and results."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sessiontree.core.entries import (
    BranchSummary,
    Compaction,
    Config,
    ConfigChange,
    ContextEdit,
    CustomMessage,
    Entry,
    Fragment,
    Label,
    LeafMove,
    MessageEntry,
    ModeChange,
    ModelChange,
    SessionInfo,
    ThinkingLevelChange,
    Unknown,
    type_of,
)
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Block,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    blocks_of,
    message_blocks,
)
from sessiontree.session.reader import Reader
from sessiontree.views.text import clean, one_line

_RULE = "── "


def transcript(session: Reader, leaf: str | None) -> Iterator[str]:
    """The path to an entry, entry by entry."""
    labels = session.labels
    for entry in session.iter_path(leaf):
        yield from show_entry(entry, label=labels.get(entry.id))


def full_transcript(session: Reader) -> Iterator[str]:
    """Every entry and fragment in file order, each with its status."""
    labels = session.labels
    active = set(session.path_ids()) if session.leaf is not None else set()
    fragments = sorted(session.fragments, key=lambda fragment: fragment.start)
    shadowed = session.shadowed
    for number, entry in enumerate(session):
        start = session.line_start(number)
        while fragments and fragments[0].start < start:
            yield from show_fragment(fragments.pop(0))
        if number in shadowed:
            mark = "replaced by a later entry with the same id"
        else:
            mark = "" if entry.id in active else "not on the active path"
        yield from show_entry(entry, label=labels.get(entry.id), mark=mark)
    for fragment in fragments:
        yield from show_fragment(fragment)


def show_entry(entry: Entry, *, label: str | None = None, mark: str = "") -> Iterator[str]:
    """One entry: headline, body, blank line."""
    role = show_role(entry.message) if isinstance(entry, MessageEntry) else one_line(type_of(entry))
    facts = [role, one_line(entry.id), one_line(entry.timestamp), f"[{one_line(label)}]" if label else "", mark]
    yield _RULE + " · ".join(filter(None, facts))
    yield from _body(entry)
    yield ""


def show_message(message: Message) -> Iterator[str]:
    """One message of a context: headline, body, blank line."""
    yield _RULE + show_role(message)
    yield from _message_body(message)
    yield ""


def show_role(message: Message) -> str:
    match message:
        case Assistant() if message.model:
            stop = f", {message.stop_reason}" if message.stop_reason in ("error", "aborted", "length") else ""
            return one_line(f"assistant ({message.model}{stop})")
        case ToolResult():
            state = "failed: " if message.is_error else ""
            return one_line(f"tool result ({state}{message.tool_name or message.tool_call_id})")
        case _:
            return one_line(message.role) or "message"


def show_fragment(fragment: Fragment) -> Iterator[str]:
    """Bytes outside of any entry, as far as they are text."""
    yield f"{_RULE}damaged ({fragment.kind}) · line {fragment.line} · bytes {fragment.start}-{fragment.end}"
    yield from _indent(fragment.raw.decode("utf-8", "replace"))
    yield ""


def _body(entry: Entry) -> Iterator[str]:
    match entry:
        case MessageEntry():
            for message in entry.messages:
                yield from _message_body(message)
        case CustomMessage():
            yield from _blocks(blocks_of(entry.content))
        case Compaction() | BranchSummary():
            yield from _indent(entry.summary)
        case Label():
            yield from _indent(f"{entry.target_id} → {entry.label or '(cleared)'}")
        case SessionInfo():
            yield from _indent(entry.name or "(cleared)")
        case ModelChange():
            role = f" for {entry.role}" if entry.role else ""
            yield from _indent(f"{entry.selector or '(none)'}{role}")
        case ThinkingLevelChange():
            yield from _indent(entry.thinking_level or "(none)")
        case ModeChange():
            yield from _indent(entry.mode)
        case LeafMove():
            yield from _indent(f"current entry: {entry.target_id or '(beginning)'}")
        case ContextEdit():
            yield from _indent(f"{entry.target_id} " + ("is replaced" if entry.replacement else "is removed"))
        case ConfigChange() if entry.config != Config():
            yield from _indent(render_json(entry.config).decode())
        case Unknown():
            yield from _indent(_json(entry.fields))
        case _:
            return


def _message_body(message: Message) -> Iterator[str]:
    match message:
        case BashExecution():
            yield from _indent(f"$ {message.command}\n{message.output}")
            if message.exit_code:
                yield from _indent(f"(exit code {message.exit_code})")
        case OtherMessage() if not message_blocks(message):
            yield from _indent(_json(message.fields))
        case _:
            yield from _blocks(message_blocks(message))
    if isinstance(message, Assistant) and message.error_message:
        yield from _indent(f"error: {message.error_message}")


def _blocks(blocks: tuple[Block, ...]) -> Iterator[str]:
    for block in blocks:
        match block:
            case Text():
                yield from _indent(block.text)
            case Thinking():
                yield from _indent(f"(thinking) {block.thinking}")
            case RedactedThinking():
                yield from _indent("(redacted thinking)")
            case Image():
                yield from _indent(f"(image, {block.mime_type}, {len(block.data)} characters)")
            case ToolCall():
                yield from _indent(f"→ {block.name} {_json(block.arguments)}")
            case OtherBlock():
                yield from _indent(f"({block.kind}) {_json(block.fields)}")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _indent(text: str) -> Iterator[str]:
    for line in clean(text).split("\n"):
        yield f"   {line}".rstrip()
