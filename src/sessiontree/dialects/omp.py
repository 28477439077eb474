"""The sessions of oh-my-pi and of xcsh, a fork of it: Pi's shape with a title slot, more types, and stricter contexts.

What differs from Pi:

* the first line may be a title slot, overwritten in place at each rename; it is an aside, and its title counts;
* a reset boundary starts the context anew, unless a compaction follows it;
* an explicit model outranks what assistant messages name, and there is one per role;
* the context is what can be sent: calls without a result are taken out of it, and so are turns that failed. With
  `Reading.recovered` they stay.

The leaf is the last line, whatever its type, as with Pi. Where the program keeps blobs and sessions, and how it marks
what it cut off, is told by the functions at the end. They are pure: they name places and look at none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from sessiontree.context import Context, Path, Rules, build_context, milliseconds
from sessiontree.dialects.base import Columns, Envelope, Lines, Reading, is_aside, path_of
from sessiontree.dialects.pi import PiShape, iter_head_records
from sessiontree.entries import (
    Compaction,
    Custom,
    CustomMessage,
    Entry,
    Header,
    MessageEntry,
    ModelChange,
    Unknown,
    UsageRecord,
)
from sessiontree.messages import (
    Assistant,
    Block,
    CustomText,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    blocks_of,
    tool_calls,
)
from sessiontree.values import parse_json, tolerant

Said: TypeAlias = list[tuple[Message, str]]
"""Messages of a context, each with the id of the entry it came from."""

_SLOT = "title"
_RENAMED = {"model_usage": "usage"}
"""Types that have a name of their own in shared words."""

_OWN_HEADER_FIELDS = frozenset(
    {"title", "titleSource", "additionalDirectories", "previousSessionFiles", "providerPromptCacheKey"}
)
_OWN_TYPES = frozenset(
    {
        "credential_pin",
        "mcp_tool_selection",
        "mode_change",
        "model_usage",
        "reset_boundary",
        "service_tier_change",
        "session_init",
        "title_change",
        "ttsr_injection",
    }
)
_OWN_FIELDS = {
    "branch_summary": frozenset({"fromExtension"}),
    "compaction": frozenset(
        {"fromExtension", "method", "preserveData", "providerReplayThroughEntryId", "shortSummary", "tokensAfter"}
    ),
    "custom_message": frozenset({"attribution"}),
    "model_change": frozenset({"model"}),
    "thinking_level_change": frozenset({"configured"}),
}
_OWN_ROLES = ("developer", "fileMention", "pythonExecution")
_snowflake = re.compile(r"[0-9a-f]{16}\Z")

_UNSENT_CUSTOM_TYPES = frozenset({"prewalk-plan", "vibe-mode-context"})
_NOTES = "experimental_context_notes"
_LONGEST_NOTES = 16_384
_INTERRUPTION = "interrupted-thinking"
_RETRIED = b'"retryRecovery"'
_TASK = b'"task"'
_STEP = 64


class RetriedTurn(MessageEntry, frozen=True, tag="message"):
    """A turn that was tried again: its line says so, and the program leaves it out of the context."""


class OhMyPi(PiShape):
    name = "omp"
    folders = ("/.omp/", "/.xcsh/")
    rules = Rules(resets=True, explicit_model_wins=True, default_thinking="off")
    bookkeeping = frozenset({_SLOT})

    def is_truncated(self, text: str) -> bool:
        return is_truncated(text)

    def blob_folder(self, location: str) -> str | None:
        return blob_folder(location)

    def recognise(self, head: bytes) -> int:
        records = list(iter_head_records(head))
        if records and is_title_slot(records[0]):
            return 80
        header = next(filter(self.is_header, records), None)
        if (header is not None and _is_own_header(header)) or any(map(_is_own_record, records)):
            return 60
        if header is not None:
            return 40
        return 5 if any(map(self.is_record, records)) else 0

    def decode_block(self, data: memoryview) -> Columns | None:
        columns = super().decode_block(data)
        if columns is None or not columns.ids or _SLOT in columns.types:
            return None
        if not _RENAMED.keys().isdisjoint(columns.types):
            return Columns([_RENAMED.get(kind, kind) for kind in columns.types], columns.ids, columns.parents)
        return columns

    def is_record(self, fields: dict[str, Any]) -> bool:
        return super().is_record(fields) or is_title_slot(fields)

    def envelope(self, fields: dict[str, Any]) -> Envelope:
        if is_title_slot(fields):
            return Envelope(_SLOT, "", None, aside=True)
        envelope = super().envelope(fields)
        if envelope.type in _RENAMED:
            return Envelope(_RENAMED[envelope.type], envelope.id, envelope.parent)
        return envelope

    def parse(self, raw: bytes) -> Entry:
        entry = super().parse(raw)
        if isinstance(entry, Unknown) and entry.kind == "model_usage":
            return tolerant(UsageRecord, {**entry.fields, "kind": entry.fields.get("purpose")})
        if isinstance(entry, MessageEntry):
            return _with_own_fields(entry, raw)
        return entry

    def find_header(self, lines: Lines) -> Header | None:
        """The header with the title of the slot, which the program writes without touching the header."""
        header, slot = lines.header, _slot_title(lines)
        if header is None or slot is None or (slot or None) == header.title:
            return header
        return msgspec.structs.replace(header, title=slot or None)

    def find_leaf(self, lines: Lines, reading: Reading) -> int | None:
        for node in range(len(lines.types) - 1, -1, -1):
            if not _is_aside(lines, node):
                return node
        return None

    def find_path(self, lines: Lines, leaf: int | None, reading: Reading) -> list[int]:
        return [node for node in super().find_path(lines, leaf, reading) if not _is_aside(lines, node)]

    def build_context(self, lines: Lines, leaf: int | None, reading: Reading) -> Context:
        path = path_of(lines, self.find_path(lines, leaf, reading))
        loaded: dict[str, Entry] = {}
        context = build_context(_as_read_here(path, loaded), self.rules)
        said = [
            (message, source)
            for message, source in zip(context.messages, context.sources, strict=True)
            if _is_sent(lines, loaded[source], reading)
        ]
        if not reading.recovered:
            said = without_failed_turns(without_dangling_calls(said))
        said = [*_notes(path), *said]
        return Context(
            context.path,
            tuple(message for message, _ in said),
            tuple(source for _, source in said),
            context.state,
        )

    def find_title(self, lines: Lines) -> str | None:
        """The slot's title, else the header's, else the short summary of the latest compaction that has one."""
        header = self.find_header(lines)
        if header is not None and header.title:
            return header.title
        for node in range(len(lines.types) - 1, -1, -1):
            if lines.types[node] == "compaction":
                (entry,) = lines.entries([node])
                if isinstance(entry, Compaction) and entry.short_summary:
                    return entry.short_summary
        return None


def is_title_slot(fields: dict[str, Any]) -> bool:
    """The line before the header that holds the title, padded to 256 bytes."""
    return (
        fields.get("type") == _SLOT
        and fields.get("v") == 1
        and all(isinstance(fields.get(name), str) for name in ("title", "updatedAt", "pad"))
        and fields.get("source") in (None, "auto", "user")
    )


def _slot_title(lines: Lines) -> str | None:
    """The title in the slot, which may be empty; None when there is no slot."""
    if not lines.types or lines.types[0] != _SLOT or not _is_aside(lines, 0):
        return None
    return str(lines.fields([0])[0].get("title", ""))


def _is_aside(lines: Lines, node: int) -> bool:
    return lines.types[node] == _SLOT and is_aside(lines.tree.ids[node])


def _is_own_header(fields: dict[str, Any]) -> bool:
    return not _OWN_HEADER_FIELDS.isdisjoint(fields) or _snowflake.match(fields["id"]) is not None


def _is_own_record(fields: dict[str, Any]) -> bool:
    """Whether an entry is one that only oh-my-pi or xcsh writes."""
    kind, message = fields.get("type"), fields.get("message")
    if not isinstance(kind, str) or not isinstance(fields.get("timestamp"), str):
        return False
    if kind in _OWN_TYPES or not _OWN_FIELDS.get(kind, frozenset()).isdisjoint(fields):
        return True
    return kind == "message" and isinstance(message, dict) and message.get("role") in _OWN_ROLES


def _with_own_fields(entry: MessageEntry, raw: bytes) -> Entry:
    """What shared words have no field for: a turn that was tried again, and what a sub-agent used."""
    message = entry.message
    if isinstance(message, Assistant) and _RETRIED in raw:
        if _message_fields(raw).get("retryRecovery"):
            return RetriedTurn(entry.id, entry.parent_id, entry.timestamp, message)
    elif isinstance(message, ToolResult) and message.usage is None and message.tool_name == "task" and _TASK in raw:
        details = _message_fields(raw).get("details")
        usage = details.get("usage") if isinstance(details, dict) else None
        if isinstance(usage, dict):
            counted = msgspec.structs.replace(message, usage=tolerant(Usage, usage))
            return msgspec.structs.replace(entry, message=counted)
    return entry


def _message_fields(raw: bytes) -> dict[str, Any]:
    try:
        fields = parse_json(raw)
    except ValueError:
        return {}
    message = fields.get("message") if isinstance(fields, dict) else None
    return message if isinstance(message, dict) else {}


def _as_read_here(path: Path, loaded: dict[str, Entry]) -> Path:
    """The path with what this program does not know made silent. Every entry that is read is noted in `loaded`."""

    def load(positions: Sequence[int]) -> list[Entry]:
        entries = [_as_read(entry, path.ids, at) for at, entry in zip(positions, path.load(positions), strict=True)]
        loaded.update((entry.id, entry) for entry in entries)
        return entries

    types = path.types
    if "context_edit" in types:  # Pi's own
        types = ["" if kind == "context_edit" else kind for kind in types]
    return Path(path.ids, types, load)


def _as_read(entry: Entry, ids: Sequence[str], at: int) -> Entry:
    match entry:
        case Compaction():
            bound = entry.first_kept_entry_id
            if _has_replacement_history(entry):
                bound = _first_not_replayed(entry.provider_replay_through_entry_id, ids, at)
            return msgspec.structs.replace(entry, first_kept_entry_id=bound, system_message=None)
        case ModelChange():  # only the field `model` is read; Pi's pair of fields says nothing here
            return msgspec.structs.replace(entry, provider=None, model_id=None)
        case _:
            return entry


def _has_replacement_history(compaction: Compaction) -> bool:
    """Whether the provider keeps the compacted history itself, kept messages included."""
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


def _is_sent(lines: Lines, entry: Entry, reading: Reading) -> bool:
    match entry:
        case CustomMessage():
            return entry.custom_type not in _UNSENT_CUSTOM_TYPES and _is_sendable(lines, entry)
        case RetriedTurn():
            return reading.recovered
        case MessageEntry(message=Assistant() as turn):
            return reading.recovered or not _is_empty_error(turn)
        case _:
            return True


def _is_sendable(lines: Lines, entry: CustomMessage) -> bool:
    """Whether the content is a text or a list, be it empty. Of anything else the program sends nothing."""
    content = entry.content
    if isinstance(content, str) or len(content) > 1:
        return True
    (fields,) = lines.fields([lines.tree.node_of[entry.id]])
    return isinstance(fields.get("content"), list)


def _is_empty_error(turn: Assistant) -> bool:
    spoken = (Text, Thinking, RedactedThinking, ToolCall)
    return turn.stop_reason == "error" and not any(isinstance(block, spoken) for block in blocks_of(turn.content))


def without_dangling_calls(said: Said) -> Said:
    """The messages without calls that have no result among them; a message with nothing left is left out.

    Providers refuse signed thinking in a message that was changed, so the signatures go, and with them the thinking
    that has nothing else.
    """
    answered = {message.tool_call_id for message, _ in said if isinstance(message, ToolResult)}
    kept: Said = []
    for message, source in said:
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


def without_failed_turns(said: Said) -> Said:
    """The messages without turns that were aborted or failed, and without the results of their calls.

    A turn stays if the note follows it that tells how its thinking was interrupted.
    """
    results: dict[str, list[int]] = {}
    for at, (message, _) in enumerate(said):
        if isinstance(message, ToolResult):
            results.setdefault(message.tool_call_id, []).append(at)
    gone: set[int] = set()
    later: list[int] = []
    for at in range(len(said) - 1, -1, -1):
        message = said[at][0]
        while later and later[-1] in gone:
            later.pop()
        if _has_failed(message) and not (later and _is_interruption(said[later[-1]][0])):
            gone.add(at)
            gone.update(found for call in tool_calls(message) for found in results.get(call.id, ()) if found > at)
        else:
            later.append(at)
    return [pair for at, pair in enumerate(said) if at not in gone]


def _has_failed(message: Message) -> bool:
    return isinstance(message, Assistant) and message.stop_reason in ("aborted", "error")


def _is_interruption(message: Message) -> bool:
    return isinstance(message, CustomText) and message.custom_type == _INTERRUPTION


def _notes(path: Path) -> Said:
    """The notebook that stands before all else: the latest valid one since the last reset, if it is not empty."""
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
                return [(CustomText(time, _NOTES, text, display=False), entry.id)] if text else []
    return []


def _notes_text(entry: Entry) -> str | None:
    """The text of a notebook, empty if it was cleared; None when the entry is no valid one."""
    if not isinstance(entry, Custom) or entry.custom_type != _NOTES or not isinstance(entry.data, dict):
        return None
    text = entry.data.get("text")
    if entry.data.get("version") != 1 or not isinstance(text, str):
        return None
    return text if len(text.encode("utf-8", "surrogatepass")) <= _LONGEST_NOTES else None


TRUNCATION_NOTICE = "\n\n[Session persistence truncated large content]"


def is_truncated(text: str) -> bool:
    """Whether the program cut a text off when it wrote it down: the notice stands where the rest was."""
    return text.endswith(TRUNCATION_NOTICE)


def parent_session_kind(parent_session: str) -> Literal["id", "path"]:
    """How a header names its parent: by id after a fork, by the path of its file after a branch or for a sub-agent."""
    is_path = "/" in parent_session or "\\" in parent_session or parent_session.endswith(".jsonl")
    return "path" if is_path else "id"


def blob_folder(session_path: str) -> str | None:
    """The folder with the blobs of a session in the agent's own place; None for a file that lies elsewhere.

    Blobs lie flat in it, each named by its SHA-256. Sub-agents' files lie deeper and share the folder.
    """
    folder = os.path.dirname(session_path)
    while os.path.basename(folder) not in ("sessions", ""):
        folder = os.path.dirname(folder)
    return os.path.join(os.path.dirname(folder), "blobs") if os.path.basename(folder) else None


def bucket_name(cwd: str, home: str, temporary: str) -> str:
    """The folder below `sessions` for work in `cwd`. All three paths are absolute and real.

    Different folders may share a name; the header's cwd tells whose session it is.
    """
    for base, prefix in ((home, "-"), (temporary, "-tmp")):
        inside = _inside(base, cwd)
        if inside == "":
            return prefix
        if inside is not None and not inside.startswith(".."):
            return f"{prefix}{'' if prefix == '-' else '-'}{_encoded(inside)}"
    return f"--{_encoded(cwd[1:] if cwd[:1] in ('/', chr(92)) else cwd)}--"


def _inside(base: str, path: str) -> str | None:
    """The part of a path below a folder, empty for the folder itself; None when it is not below it."""
    if path == base:
        return ""
    base = base.rstrip("/\\")
    if path.startswith(base) and path[len(base) : len(base) + 1] in ("/", "\\"):
        return path[len(base) + 1 :]
    return None


def _encoded(path: str) -> str:
    return re.sub(r"[/\\:]", "-", path)


OMP = OhMyPi()
