"""Builds records for display from entries of any dialect.

A tool result is attached to its call, even if other entries are between them. For that, records are buffered until
their calls have results or another speaker follows. Memory is bounded by one turn, not by the session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sessiontree.branches.merge_records import MergeRecord, parse_merge_record
from sessiontree.core.call_target import call_target
from sessiontree.core.entries import (
    BranchSummary,
    Compaction,
    Config,
    ConfigChange,
    ContextEdit,
    Custom,
    CustomMessage,
    Entry,
    FileSnapshot,
    Label,
    LeafMove,
    MessageEntry,
    ModeChange,
    ModelChange,
    ResetBoundary,
    RuleInjection,
    SessionInfo,
    SessionInit,
    ThinkingLevelChange,
    Unknown,
    UsageRecord,
    Worktree,
)
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    Block,
    BranchSummaryText,
    CompactionSummary,
    Content,
    CustomText,
    Image,
    Message,
    OtherBlock,
    OtherMessage,
    RedactedThinking,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
    blocks_of,
    message_blocks,
)
from sessiontree.export.records import (
    Call,
    Command,
    Data,
    ImagePiece,
    Note,
    Piece,
    Record,
    ResultPiece,
    TextPiece,
    ThinkingPiece,
)

_MAX_HELD = 256
"""Maximum number of buffered records."""


def build_records(entries: Iterable[tuple[int, Entry]], labels: Mapping[str, str], mark: str = "") -> Iterator[Record]:
    """Build records from numbered entries, with results attached to their calls."""
    held: list[Record] = []
    open_calls: dict[str, Call] = {}
    for node, entry in entries:
        for record in records_of(node, entry, labels.get(entry.id), mark):
            result = record.result
            if result is not None and result.call_id in open_calls:
                open_calls.pop(result.call_id).result = result
                continue
            if held and (not open_calls or _ends_turn(held, record)):
                yield from held
                held, open_calls = [], {}
            held.append(record)
            for piece in record.pieces:
                if isinstance(piece, Call):
                    open_calls[piece.id] = piece
    yield from held


def _ends_turn(held: list[Record], record: Record) -> bool:
    """Whether no more results are expected. Some formats write one response in several lines."""
    return record.who == "user" or (record.who == "assistant" and held[-1].who != "assistant") or len(held) > _MAX_HELD


def records_of(node: int, entry: Entry, label: str | None = None, mark: str = "") -> Iterator[Record]:
    """The records of an entry: one, or one per message."""
    if isinstance(entry, MessageEntry):
        for message in entry.messages:
            if isinstance(message, ToolResult):
                yield _result_record(node, entry, message, label, mark)
                continue
            who, title, facts = _speaker(message)
            pieces = list(_message_pieces(message))
            record = Record(entry.id, node, who, title, entry.timestamp, facts, label, mark, pieces)
            if isinstance(message, Assistant):
                record.response, record.usage = message.response_id, usage_words(message.usage)
            yield record
        return
    who, title, facts, pieces = _other(entry)
    yield Record(entry.id, node, who, title, entry.timestamp, facts, label, mark, pieces)


def _result_record(node: int, entry: MessageEntry, message: ToolResult, label: str | None, mark: str) -> Record:
    pieces = list(_pieces(blocks_of(message.content)))
    result = ResultPiece(
        entry.id, node, entry.timestamp, label, message.tool_call_id, message.tool_name, message.is_error, pieces
    )
    title = f"Result of {message.tool_name or message.tool_call_id or 'a tool'}"
    facts = ("failed",) if message.is_error else ()
    return Record(entry.id, node, "tool", title, entry.timestamp, facts, label, mark, pieces, result)


def _speaker(message: Message) -> tuple[str, str, tuple[str, ...]]:
    match message:
        case User():
            return "user", "User", ()
        case Assistant():
            odd_end = message.stop_reason if message.stop_reason in ("error", "aborted", "length") else ""
            facts = (message.model or "", odd_end, usage_words(message.usage))
            return "assistant", "Assistant", tuple(filter(None, facts))
        case BashExecution():
            hidden = ("not shown to the model",) if message.exclude_from_context else ()
            return "user", "User ran a command", hidden
        case CustomText():
            return "system", f"Extension {message.custom_type}".rstrip(), ()
        case System():
            return "system", "System", ()
        case CompactionSummary():
            return "summary", "Compaction", ()
        case BranchSummaryText():
            return "summary", "Branch summary", ()
        case _:
            return "system", message.role or "Message", ()


def usage_words(usage: Usage | None) -> str:
    """Usage of a request in a few words."""
    if usage is None:
        return ""
    read = usage.input + usage.cache_read + usage.cache_write
    cost = f", ${usage.cost.total:.4f}" if usage.cost is not None and usage.cost.total else ""
    return f"{read:,} → {usage.output:,} tokens{cost}" if read or usage.output else ""


def _message_pieces(message: Message) -> Iterator[Piece]:
    match message:
        case User() | Assistant():
            yield from _pieces(blocks_of(message.content))
        case BashExecution():
            yield _command(message)
        case OtherMessage() if not message_blocks(message):
            if message.fields:
                yield Data(message.role or "message", message.fields)
        case System():
            yield from _pieces(blocks_of(message.content))
            for name, section in (message.sections or {}).items():
                yield Note(f"section {name}" + ("" if section is not None else " removed"))
                if section:
                    yield TextPiece(section)
            if message.tools_added or message.tools_removed:
                yield Data("tools", {"added": message.tools_added, "removed": message.tools_removed})
        case _:
            yield from _pieces(message_blocks(message))
    if isinstance(message, Assistant) and message.error_message:
        yield Note(message.error_message, error=True)


def _command(message: BashExecution) -> Command:
    states = [
        f"exit code {message.exit_code}" if message.exit_code else "",
        "cancelled" if message.cancelled else "",
        "output truncated" if message.truncated else "",
        f"full output: {message.full_output_path}" if message.full_output_path else "",
    ]
    failed = bool(message.exit_code) or message.cancelled
    return Command(message.command, message.output, ", ".join(filter(None, states)), failed)


def _pieces(blocks: tuple[Block, ...]) -> Iterator[Piece]:
    for block in blocks:
        match block:
            case Text():
                if block.text:
                    yield TextPiece(block.text)
            case Thinking():
                yield ThinkingPiece(block.thinking or None)
            case RedactedThinking():
                yield ThinkingPiece(None)
            case Image():
                yield ImagePiece(block.mime_type, block.data)
            case ToolCall():
                yield Call(block.id, block.name, block.arguments)
            case OtherBlock():
                yield Data(block.kind, block.fields)


def _content_pieces(content: Content) -> list[Piece]:
    return list(_pieces(blocks_of(content)))


_Other = tuple[str, str, tuple[str, ...], list[Piece]]


def _other(entry: Entry) -> _Other:
    """Speaker, title, facts and pieces of an entry that is not a message."""
    match entry:
        case Compaction():
            return _compaction(entry)
        case BranchSummary():
            if (join := parse_merge_record(entry.details)) is not None:
                return (
                    "summary",
                    "Merge",
                    (join.how, *_used(entry.usage)),
                    [TextPiece(entry.summary), *_came_from(join)],
                )
            # Some clients name the entry where the new branch starts: that is the parent, which is shown anyway.
            is_left = entry.from_id not in (None, "", "root", entry.parent_id)
            left = [Note("the abandoned branch", entry.from_id or "")] if is_left else []
            pieces: list[Piece] = [TextPiece(entry.summary), *left]
            return "summary", "Branch summary", _used(entry.usage), pieces
        case CustomMessage():
            facts = () if entry.display else ("hidden by the client",)
            return "system", f"Extension {entry.custom_type}".rstrip(), facts, _content_pieces(entry.content)
        case Custom():
            return "note", f"State of {entry.custom_type or 'an extension'}", (), [Data("data", entry.data)]
        case SessionInit():
            given: list[Piece] = [TextPiece(text) for text in (entry.system_prompt, entry.task) if text]
            return (
                "system",
                "Started with",
                (),
                [*given, Data("tools", {"tools": entry.tools, "output": entry.output_schema})],
            )
        case ContextEdit() if entry.replacement is not None:
            pieces = _content_pieces(entry.replacement.content)
            return "note", "Context edit", (), [Note("replaces", entry.target_id), *pieces]
        case FileSnapshot():
            return "note", "File snapshot", (), [Data("files", entry.files)]
        case Unknown():
            return "note", entry.kind or "Unknown entry", (), [Data("line", entry.fields)]
        case _:
            return "note", *_remark(entry)


def _used(usage: Usage | None) -> tuple[str, ...]:
    words = usage_words(usage)
    return (words,) if words else ()


def _came_from(join: MergeRecord) -> list[Piece]:
    if join.session is not None:
        return [Note(f"the merged branch: {join.entry} of the session {join.session}")]
    return [Note("the merged branch", join.entry)]


def _compaction(entry: Compaction) -> _Other:
    pieces: list[Piece] = [TextPiece(entry.summary)]
    if entry.first_kept_entry_id:
        pieces.append(Note("replaces everything above, up to but excluding", entry.first_kept_entry_id))
    else:
        pieces.append(Note("replaces everything above"))
    if entry.system_message is not None:
        pieces += _message_pieces(entry.system_message)
    if entry.details:
        pieces.append(Data("details", entry.details))
    after = f" → {entry.tokens_after:,}" if entry.tokens_after is not None else ""
    size = (f"{entry.tokens_before:,}{after} tokens",) if entry.tokens_before else ()
    return "summary", "Compaction", (*size, *_used(entry.usage)), pieces


def _remark(entry: Entry) -> tuple[str, tuple[str, ...], list[Piece]]:
    """Title, facts and pieces of an entry that is shown on one line."""
    match entry:
        case ModelChange():
            role = f" for {entry.role}" if entry.role else ""
            return "Model", (), [Note(f"{entry.selector or 'none'}{role}")]
        case ThinkingLevelChange():
            return "Thinking level", (), [Note(entry.thinking_level or "none")]
        case ModeChange():
            return "Mode", (), [Note(entry.mode)]
        case Label():
            return "Label", (), [Note(entry.label or "removed", entry.target_id)]
        case SessionInfo():
            return "Name", (), [Note(entry.name or "removed")]
        case RuleInjection():
            return "Rules", (), [Note(", ".join(entry.injected_rules))]
        case UsageRecord():
            facts = (entry.kind, entry.model or "", entry.note or "")
            return "Used", _used(entry.usage), [Note(" · ".join(filter(None, facts)))]
        case ContextEdit():
            return "Context edit", (), [Note("removed from the context", entry.target_id)]
        case ResetBoundary():
            return "Reset", (), [Note("the context restarts here")]
        case ConfigChange():
            changed = render_json(entry.config).decode("utf-8", "replace") if entry.config != Config() else "defaults"
            return "Settings", (), [Note(changed)]
        case LeafMove():
            return "Moved", (), [Note("to" if entry.target_id else "to the beginning", entry.target_id)]
        case Worktree():
            branch = f" on {entry.branch}" if entry.branch else ""
            return "Worktree", (), [Note(f"{entry.path}{branch}")]
        case _:
            return type(entry).__name__, (), []


def gist(record: Record, size: int = 90) -> str:
    """The first words of a record on one line."""
    for piece in record.pieces:
        if isinstance(piece, TextPiece | Note) and piece.text.strip():
            return first_words(piece.text, size)
        if isinstance(piece, Command):
            return first_words(f"$ {piece.command}", size)
        if isinstance(piece, Call):
            return first_words(f"→ {piece.name} {call_gist(piece)}", size)
        if isinstance(piece, ImagePiece):
            return "(image)"
    return ""


def call_gist(call: Call, size: int = 120) -> str:
    """The most informative argument of a call on one line."""
    return first_words(call_target(call.arguments), size)


def first_words(text: str, size: int) -> str:
    """The beginning of a text on one line."""
    line = " ".join(text[: size * 4].split())
    return line if len(line) <= size else line[: size - 1].rstrip() + "…"
