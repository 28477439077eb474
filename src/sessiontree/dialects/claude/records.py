"""Line types of a Claude Code transcript, and a line's envelope.

Five types of lines form the chain and carry `uuid` and `parentUuid`. Every other line is a metadata line, even if it
has a uuid, and so is a chain line without one: the client never follows those as parents.

Entry types are canonical: a line that holds a message is a "message", a compaction boundary is a "compaction", all
others keep their own name. A client type that happens to have a canonical name gets a prefix. A metadata line of our
own type holds an entry in the native form, and has the type of that entry.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from sessiontree.core.entries import CONVERSATION_TYPES, ENTRY_TYPES
from sessiontree.core.ids import iso_time
from sessiontree.dialects.contract import Envelope
from sessiontree.dialects.passthrough import PASSTHROUGH

Fields: TypeAlias = dict[str, Any]

CHAIN_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})
METADATA_TYPES = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "api-request",
        "api-request-blob",
        "api-request-shape",
        "atis-latch",
        "attribution-snapshot",
        "bridge-session",
        "content-replacement",
        "cost-state",
        "custom-title",
        "file-history-delta",
        "file-history-snapshot",
        "fork-context-ref",
        "isolation-latch",
        "last-prompt",
        "marble-origami-commit",
        "marble-origami-snapshot",
        "mode",
        "permission-mode",
        "pr-link",
        "queue-operation",
        PASSTHROUGH,
        "summary",
        "tag",
        "tools-used",
        "worktree-state",
    }
)
SYNTHETIC = "<synthetic>"
"""The model that the client writes on assistant lines it generated itself, such as API errors."""

NIL_UUID = "00000000-0000-0000-0000-000000000000"
"""The uuid in a pin (`last-prompt`) after the user rewound to before the pinned line."""

# Marks in the passthrough data of a line. They are in users' files and never change.
PLAIN = "plain"
"""The user typed a text that looks like one of the client's own lines."""

AFTER = "after"
"""The metadata entry that precedes the line; empty when only others follow the same chain line."""

METADATA_ENTRY_TYPES = frozenset(ENTRY_TYPES) - CONVERSATION_TYPES
"""Entry types on metadata lines. The types of a conversation are always chain lines: not read from a metadata line."""

_FOREIGN_PREFIX = "claude:"


def decode_envelope(line: Fields) -> Envelope | None:
    """Return the envelope of one decoded line; None when it has no type."""
    kind, id = entry_type(line), chain_id(line)
    if not kind:
        return None
    if not id:
        return Envelope(kind, is_metadata=True)
    parent = line.get("parentUuid")
    return Envelope(kind, id, parent if parent is None or isinstance(parent, str) else "")


def entry_type(line: Fields) -> str:
    """Return the canonical entry type of a line."""
    inner = object_in(line, "entry" if line.get("type") == PASSTHROUGH else "attachment")
    return canonical_type(line.get("type"), line.get("subtype"), inner.get("type"))


def chain_id(line: Fields) -> str:
    """Return the id of a chain line; empty for a metadata line."""
    id, kind = line.get("uuid"), line.get("type")
    return id if isinstance(id, str) and isinstance(kind, str) and kind in CHAIN_TYPES else ""


def canonical_type(kind: object, subtype: object, inner_type: object) -> str:
    """Map a line's type to the canonical entry type; empty when the line has none."""
    match kind:
        case "user" | "assistant":
            return "message"
        case "system" if subtype == "compact_boundary":
            return "compaction"
        case "system" if subtype == "local_command":
            return "message"
        case "attachment" if inner_type == "queued_command":
            return "message"
        case str() if kind == PASSTHROUGH:
            return inner_type if isinstance(inner_type, str) and inner_type in METADATA_ENTRY_TYPES else PASSTHROUGH
        case str():
            return _FOREIGN_PREFIX + kind if kind in ENTRY_TYPES else kind
        case _:
            return ""


def is_tool_result(block: object) -> bool:
    """Whether a content block is the result of a tool call."""
    return isinstance(block, dict) and block.get("type") == "tool_result"


def object_in(fields: Fields, key: str) -> Fields:
    """Return the object under a key; an empty one when there is none."""
    found = fields.get(key)
    return found if isinstance(found, dict) else {}


def string_in(fields: Fields, key: str) -> str | None:
    found = fields.get(key)
    return found if isinstance(found, str) else None


def timestamp_in(fields: Fields) -> str:
    """The time of a line as ISO text; empty without one."""
    return iso_time(fields.get("timestamp"))


def number_in(fields: Fields, key: str) -> int | float | None:
    found = fields.get(key)
    return found if type(found) is int or type(found) is float else None


def without(fields: Fields, *names: str) -> Fields:
    """Return a copy of the fields without the named ones."""
    return {name: value for name, value in fields.items() if name not in names}
