"""The context as oh-my-pi sends it: without failed turns, unanswered calls, and history that the provider stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from sessiontree.core.context import Path
from sessiontree.core.entries import Compaction, Custom, CustomMessage, Entry, MessageEntry, ModelChange, milliseconds
from sessiontree.core.messages import (
    Assistant,
    Block,
    CustomText,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    blocks_of,
    tool_calls,
)
from sessiontree.dialects.contract import IndexedLines, ReadOptions
from sessiontree.dialects.pi.client import CONTEXT_NOTES

SentMessages: TypeAlias = list[tuple[Message, str]]
"""Messages of a context, each with the id of the entry it came from."""

_UNSENT_CUSTOM_TYPES = frozenset({"prewalk-plan", "vibe-mode-context"})
_LONGEST_NOTES = 16_384
_INTERRUPTION = "interrupted-thinking"
_STEP = 64


class RetriedTurn(MessageEntry, frozen=True, tag="message"):
    """A turn marked as retried, which the client leaves out of the context."""


def as_client_reads(path: Path, loaded: dict[str, Entry], read_options: ReadOptions) -> Path:
    """Return the path without entries this client does not know. Each loaded entry is added to `loaded`."""
    replays = read_options.provider_history

    def load(positions: Sequence[int]) -> list[Entry]:
        entries = [
            _as_client_reads(entry, path.ids, at, replays=replays)
            for at, entry in zip(positions, path.load(positions), strict=True)
        ]
        loaded.update((entry.id, entry) for entry in entries)
        return entries

    types = path.types
    if "context_edit" in types:  # Pi's own
        types = ["" if kind == "context_edit" else kind for kind in types]
    return Path(path.ids, types, load, path.sizes)


def _as_client_reads(entry: Entry, ids: Sequence[str], at: int, *, replays: bool) -> Entry:
    match entry:
        case Compaction():
            bound = entry.first_kept_entry_id
            if replays and _has_replacement_history(entry):
                bound = _first_not_replayed(entry.provider_replay_through_entry_id, ids, at)
            return msgspec.structs.replace(entry, first_kept_entry_id=bound, system_message=None)
        case ModelChange():  # only the field `model` counts; Pi's pair of fields is ignored
            return msgspec.structs.replace(entry, provider=None, model_id=None)
        case _:
            return entry


def _has_replacement_history(compaction: Compaction) -> bool:
    """Whether the provider stores the compacted history itself, kept messages included."""
    preserved = compaction.preserve_data
    remote = preserved.get("openaiRemoteCompaction") if isinstance(preserved, dict) else None
    if not isinstance(remote, dict):
        return False
    provider = remote.get("provider")
    return isinstance(provider, str) and provider != "" and isinstance(remote.get("replacementHistory"), list)


def _first_not_replayed(through: str | None, ids: Sequence[str], compaction_at: int) -> str | None:
    """The first entry that the provider's own history does not cover; None when it covers all before the compaction."""
    if through is None or through not in ids[:compaction_at]:
        return None
    after = ids.index(through) + 1
    return ids[after] if after < compaction_at else None


def is_sent(lines: IndexedLines, entry: Entry, read_options: ReadOptions) -> bool:
    match entry:
        case CustomMessage():
            return entry.custom_type not in _UNSENT_CUSTOM_TYPES and _is_sendable(lines, entry)
        case RetriedTurn():
            return read_options.recovered
        case MessageEntry(message=Assistant() as turn):
            return read_options.recovered or not _is_empty_error(turn)
        case _:
            return True


def _is_sendable(lines: IndexedLines, entry: CustomMessage) -> bool:
    """Whether the content is a text or a list, even an empty one; the client sends nothing else."""
    content = entry.content
    if isinstance(content, str) or len(content) > 1:
        return True
    (fields,) = lines.fields([lines.tree.node_of[entry.id]])
    return isinstance(fields.get("content"), list)


def _is_empty_error(turn: Assistant) -> bool:
    content = (Text, Thinking, RedactedThinking, ToolCall)
    return turn.stop_reason == "error" and not any(isinstance(block, content) for block in blocks_of(turn.content))


def without_dangling_calls(sent: SentMessages) -> SentMessages:
    """Remove unanswered calls; a message that would be empty is left out."""
    # Providers reject signed thinking in a message that was changed, so signatures are removed, and redacted thinking
    # too, because it is only a signature.
    answered = {message.tool_call_id for message, _ in sent if isinstance(message, ToolResult)}
    kept: SentMessages = []
    for message, source in sent:
        if not isinstance(message, Assistant) or all(call.id in answered for call in tool_calls(message)):
            kept.append((message, source))
            continue
        content = tuple(
            _unsigned(block)
            for block in blocks_of(message.content)
            if not isinstance(block, RedactedThinking)
            and not (isinstance(block, ToolCall) and block.id not in answered)
        )
        if content:
            kept.append((msgspec.structs.replace(message, content=content), source))
    return kept


def _unsigned(block: Block) -> Block:
    return msgspec.structs.replace(block, thinking_signature=None) if isinstance(block, Thinking) else block


def without_failed_turns(sent: SentMessages) -> SentMessages:
    """Remove aborted or failed turns and the results of their calls.

    A turn stays if the note about its interrupted thinking follows it.
    """
    results: dict[str, list[int]] = {}
    for at, (message, _) in enumerate(sent):
        if isinstance(message, ToolResult):
            results.setdefault(message.tool_call_id, []).append(at)
    dropped: set[int] = set()
    later: list[int] = []
    for at in range(len(sent) - 1, -1, -1):
        message = sent[at][0]
        while later and later[-1] in dropped:
            later.pop()
        if _has_failed(message) and not (later and _is_interruption(sent[later[-1]][0])):
            dropped.add(at)
            dropped.update(found for call in tool_calls(message) for found in results.get(call.id, ()) if found > at)
        else:
            later.append(at)
    return [pair for at, pair in enumerate(sent) if at not in dropped]


def _has_failed(message: Message) -> bool:
    return isinstance(message, Assistant) and message.stop_reason in ("aborted", "error")


def _is_interruption(message: Message) -> bool:
    return isinstance(message, CustomText) and message.custom_type == _INTERRUPTION


def context_notes(path: Path) -> SentMessages:
    """The notebook at the start of a context: the latest valid one since the last reset, unless it is empty."""
    positions: list[int] = []
    for at in range(len(path.types) - 1, -1, -1):
        if path.types[at] == "reset_boundary":
            break
        if path.types[at] == "custom":
            positions.append(at)
    for start in range(0, len(positions), _STEP):
        step = positions[start : start + _STEP][::-1]
        for entry in reversed(path.load(step)):
            text = _notes_text(entry)
            if text is not None:
                time = milliseconds(entry.timestamp)
                return [(CustomText(time, CONTEXT_NOTES, text, display=False), entry.id)] if text else []
    return []


def _notes_text(entry: Entry) -> str | None:
    """The text of a notebook, empty if it was cleared; None for any other entry."""
    if not isinstance(entry, Custom) or entry.custom_type != CONTEXT_NOTES or not isinstance(entry.data, dict):
        return None
    text = entry.data.get("text")
    if entry.data.get("version") != 1 or not isinstance(text, str):
        return None
    return text if len(text.encode("utf-8", "surrogatepass")) <= _LONGEST_NOTES else None
