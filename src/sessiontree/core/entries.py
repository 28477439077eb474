"""Canonical entries, the header, and the problems found while reading them.

Everything here is a frozen value: a view of a line, never its replacement. Unknown fields stay in the raw line, and
copying an entry copies that line. The union `Entry` is closed; `Unknown` is its member for other types.

A new type is a class here and a member of the union. Sets of types (`CONTEXT_TYPES` and the others) follow from the
attributes of the classes, and every package uses those sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import UNKNOWN_TAG, JsonObject, Parsers, Value, convert_fields, struct_tag
from sessiontree.core.messages import (
    Content,
    Message,
    OtherMessage,
    System,
    Usage,
    parse_content,
    parse_message,
)


class Problem(Value, frozen=True):
    """A problem found while reading: its position in the file, its kind, and how it was handled."""

    line: int
    start: int
    end: int
    kind: str
    action: str


class Fragment(Value, frozen=True):
    """Damaged bytes that belong to no entry, with their position in the file."""

    line: int
    start: int
    end: int
    kind: str
    raw: bytes


class EntryBase(Value, frozen=True):
    """Fields of every entry."""

    in_context: ClassVar[bool] = False
    """Whether entries of this type add messages to a context."""
    starts_context: ClassVar[bool] = False
    """Whether a context leaves out what comes before such an entry, or replaces it."""
    moves_leaf: ClassVar[bool] = True
    """Whether appending such an entry moves the session's current entry. Not in every dialect: see `bookkeeping`."""

    id: str = ""
    parent_id: str | None = None
    timestamp: str = ""


class MessageEntry(EntryBase, frozen=True, tag="message"):
    """A message; in some dialects one line holds several (the results of parallel calls), in order."""

    in_context: ClassVar[bool] = True

    message: Message = OtherMessage()
    more_messages: tuple[Message, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return (self.message, *self.more_messages)


class ModelChange(EntryBase, frozen=True, tag="model_change"):
    """`provider` with `model_id` (Pi), or `model` as "provider/id" (oh-my-pi); `role` absent means default."""

    provider: str | None = None
    model_id: str | None = None
    model: str | None = None
    role: str | None = None

    @property
    def selector(self) -> str | None:
        """The model as "provider/id", or None when the line names no model."""
        if self.model:
            return self.model
        return f"{self.provider}/{self.model_id}" if self.provider and self.model_id else self.model_id


class ThinkingLevelChange(EntryBase, frozen=True, tag="thinking_level_change"):
    thinking_level: str | None = None
    configured: str | None = None


class ModeChange(EntryBase, frozen=True, tag="mode_change"):
    mode: str = "none"
    data: Any = None


class Compaction(EntryBase, frozen=True, tag="compaction"):
    """A summary that replaces everything before `first_kept_entry_id`; an id not on the path keeps nothing."""

    in_context: ClassVar[bool] = True
    starts_context: ClassVar[bool] = True
    required_fields: ClassVar[Mapping[str, str]] = {"summary": "the text that replaces the older part of the path"}

    summary: str = ""
    short_summary: str | None = None
    first_kept_entry_id: str | None = None
    tokens_before: int | float = 0
    tokens_after: int | float | None = None
    details: Any = None
    usage: Usage | None = None
    from_hook: bool | None = None
    system_message: System | None = None
    provider_replay_through_entry_id: str | None = None
    preserve_data: Any = None


class BranchSummary(EntryBase, frozen=True, tag="branch_summary"):
    """Summary of the branch whose last entry is `from_id`."""

    in_context: ClassVar[bool] = True

    from_id: str | None = None
    summary: str = ""
    details: Any = None
    usage: Usage | None = None
    from_hook: bool | None = None


class Custom(EntryBase, frozen=True, tag="custom"):
    """State of an extension; never in a context."""

    moves_leaf: ClassVar[bool] = False

    custom_type: str = ""
    data: Any = None


class CustomMessage(EntryBase, frozen=True, tag="custom_message"):
    """A message added by an extension; part of the context."""

    in_context: ClassVar[bool] = True

    custom_type: str = ""
    content: Content = ()
    display: bool = True
    details: Any = None


class Label(EntryBase, frozen=True, tag="label"):
    """Labels an entry; a missing or empty label removes it."""

    moves_leaf: ClassVar[bool] = False
    required_fields: ClassVar[Mapping[str, str]] = {"targetId": "the id of the entry to label"}

    target_id: str = ""
    label: str | None = None


class SessionInfo(EntryBase, frozen=True, tag="session_info"):
    moves_leaf: ClassVar[bool] = False

    name: str | None = None


class RuleInjection(EntryBase, frozen=True, tag="ttsr_injection"):
    injected_rules: tuple[str, ...] = ()


class SessionInit(EntryBase, frozen=True, tag="session_init"):
    """Prompt, task and tools that a sub-agent was started with."""

    system_prompt: str = ""
    task: str = ""
    tools: tuple[str, ...] = ()
    output_schema: Any = None


class UsageRecord(EntryBase, frozen=True, tag="usage"):
    """Tokens used outside a turn: cache warming, titles."""

    moves_leaf: ClassVar[bool] = False

    kind: str = ""
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None
    note: str | None = None
    response_id: str | None = None
    """Identifies the request, where several lines may report its usage."""


class Replacement(Value, frozen=True):
    content: Content = ()


class ContextEdit(EntryBase, frozen=True, tag="context_edit"):
    """Replaces an entry's content in the context; without a replacement, removes it from there."""

    required_fields: ClassVar[Mapping[str, str]] = {"targetId": "the id of the entry to edit"}

    target_id: str = ""
    replacement: Replacement | None = None


class ResetBoundary(EntryBase, frozen=True, tag="reset_boundary"):
    """The context starts empty after this entry."""

    starts_context: ClassVar[bool] = True


ApprovalMode: TypeAlias = Literal["plan", "default", "autoEdit", "yolo"]

KeptLargeContent: TypeAlias = Literal["blobs", "inline"]
"""Where a session asks its writers to store large content. Not "truncate": only a writer may choose to lose content."""


class Config(Value, frozen=True, omit_defaults=False):
    """Settings that belong to one session."""

    approval_mode: ApprovalMode = "default"
    approval_tools: tuple[str, ...] = ()
    summary: str | None = None
    pasted_text_map: dict[str, str] = msgspec.field(default_factory=dict)
    pasted_image_map: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def approvals(self) -> str | None:
        """A description of the approvals; None if there are none."""
        parts = [f"mode {self.approval_mode}"] if self.approval_mode in ("autoEdit", "yolo") else []
        if self.approval_tools:
            parts.append(f"approved: {', '.join(self.approval_tools)}")
        return "; ".join(parts) or None


class ConfigChange(EntryBase, frozen=True, tag="config"):
    moves_leaf: ClassVar[bool] = False

    config: Config = Config()


class LeafMove(EntryBase, frozen=True, tag="leaf"):
    """Moves the current entry to `target_id`; None means before the first message.

    The line's parent is the target, so that readers that use the last line as the leaf also end up there.
    """

    required_fields: ClassVar[Mapping[str, str]] = {"targetId": "the id of an entry, or null for before the first one"}

    target_id: str | None = None
    of_branch: bool = False
    """Only the writer of a side branch moved; the session's current entry did not change."""


class FileSnapshot(EntryBase, frozen=True, tag="file_snapshot"):
    """The saved copies of files that belong to this point of the conversation."""

    files: JsonObject = msgspec.field(default_factory=dict)


class Worktree(EntryBase, frozen=True, tag="worktree"):
    """The git worktree that the session uses from here on."""

    path: str = ""
    branch: str | None = None
    base: str | None = None


class Unknown(EntryBase, frozen=True, tag=UNKNOWN_TAG):
    """An entry of an unknown type: part of the tree, not of a context."""

    kind: str = ""
    fields: JsonObject = msgspec.field(default_factory=dict)


Entry: TypeAlias = (
    MessageEntry
    | ModelChange
    | ThinkingLevelChange
    | ModeChange
    | Compaction
    | BranchSummary
    | Custom
    | CustomMessage
    | Label
    | SessionInfo
    | RuleInjection
    | SessionInit
    | UsageRecord
    | ContextEdit
    | ResetBoundary
    | ConfigChange
    | LeafMove
    | FileSnapshot
    | Worktree
    | Unknown
)

ENTRY_TYPES: dict[str, type[Entry]] = {struct_tag(cls): cls for cls in get_args(Entry) if cls is not Unknown}

CONTEXT_TYPES = frozenset(kind for kind, cls in ENTRY_TYPES.items() if cls.in_context)
"""Types of entries that add messages to a context."""

BOUNDARY_TYPES = frozenset(kind for kind, cls in ENTRY_TYPES.items() if cls.starts_context)
"""Types of entries at which a context starts."""

MESSAGE_TYPES = CONTEXT_TYPES - BOUNDARY_TYPES
"""Types of entries that hold messages, and can be copied to another branch."""

CONVERSATION_TYPES = CONTEXT_TYPES | BOUNDARY_TYPES
"""Types of entries that make up a conversation. Others are state, settings and labels; views hide them by default."""

PASSIVE_TYPES = frozenset(kind for kind, cls in ENTRY_TYPES.items() if not cls.moves_leaf)
"""Types of entries that do not move the current entry."""


class ForkOrigin(Value, frozen=True):
    """Origin of a fork: the session, and the last entry of the copied path."""

    session: str = ""
    entry: str | None = None


class Header(Value, frozen=True):
    """The first line of a session: id, version, time, working folder, origin."""

    id: str
    version: int = 1
    timestamp: str = ""
    cwd: str = ""
    title: str | None = None
    parent_session: str | None = None
    forked_from: ForkOrigin | None = None
    large_content: KeptLargeContent | None = None
    """Where writers of this session should store large content; None if the header does not specify it."""


def type_of(entry: Entry) -> str:
    """An entry's type as written in the file."""
    return entry.kind if isinstance(entry, Unknown) else struct_tag(type(entry))


_PARSERS: Parsers = {"content": parse_content, "message": parse_message, "timestamp": iso_time}


def milliseconds(timestamp: str) -> int | None:
    """The time of an entry, in milliseconds since 1970; None if it cannot be parsed."""
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def parse_entry(fields: Mapping[str, Any]) -> Entry:
    """Build an entry from decoded native JSON, tolerantly: fields of a wrong type get their defaults."""
    kind = fields.get("type")
    cls = ENTRY_TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        base = convert_fields(EntryBase, fields, _PARSERS)
        return Unknown(base.id, base.parent_id, base.timestamp, str(kind or ""), dict(fields))
    return convert_fields(cls, fields, _PARSERS)


_decoder: msgspec.json.Decoder[Entry] | None = None


def decode_entry(raw: bytes) -> Entry | None:
    """Decode a well-formed native line into an entry; None when it needs `parse_entry`."""
    global _decoder
    if _decoder is None:  # built on first use: that takes longer than importing this module
        _decoder = msgspec.json.Decoder(Entry)
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
