"""Arguments of `append`, and write options: parse an entry, decide when to sync and when to create the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from sessiontree.core.entries import ENTRY_TYPES, EntryBase
from sessiontree.core.ids import now_ms
from sessiontree.core.jsonio import Value, find_invalid_field, native_fields, restore_unknown, struct_tag
from sessiontree.core.messages import MESSAGE_ROLES, Block, Message, MessageBase, Role, ToolCall
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.errors import InvalidEntryError, check_option
from sessiontree.session.blob_refs import BLOB_POINTERS, LargeContent

Durability = Literal["append", "turn", "system"]
"""When appended lines are synced to disk: at each append, at the end of each turn, or when the operating system does.
Whatever the choice, lines survive the death of the process as soon as `append` returns."""

Appear = Literal["now", "user", "assistant"]
"""When a new session's file is created: at once, with the first user message, or with the first assistant message."""


class Options(Struct, frozen=True):
    """How a session is written and read."""

    durability: Durability = "turn"
    large_content: LargeContent | None = None
    """None: the header's setting, else blobs."""
    appear: Appear = "user"
    read_options: ReadOptions = AS_CLIENT

    def __post_init__(self) -> None:
        check_option("durability", self.durability, get_args(Durability))
        check_option("appear", self.appear, get_args(Appear))
        if self.large_content is not None:
            check_option("large_content", self.large_content, get_args(LargeContent))


EntryInput: TypeAlias = Mapping[str, Any] | Message | Role
"""An entry with a `type`, a message with a `role`, a message object, or only a role."""
ContentInput: TypeAlias = str | Sequence[Block | Mapping[str, Any]]
"""Text, or blocks as objects or as JSON."""

_ROLES: frozenset[str] = frozenset(get_args(Role))
_TOOL_CALL = struct_tag(ToolCall)
_SCALARS = frozenset([str, int, float, bool, type(None)])


def parse_entry_input(
    entry: EntryInput | None, content: ContentInput | None, fields: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Type and fields of an entry, from the arguments of `append` (see `Branch.append`)."""
    if type(entry) is dict and not fields and "type" not in entry and (role := entry.get("role")) and type(role) is str:
        # The usual case: a message. It is not modified from here on, so it is not copied.
        message = _as_json(entry)
        _check_message(role, message)
        return "message", {"message": message if "timestamp" in message else {**message, "timestamp": now_ms()}}
    if isinstance(entry, str):
        body = {"role": entry, "content": content, **fields}
    elif isinstance(entry, MessageBase | EntryBase):
        body = {**native_fields(entry), **fields}
    elif isinstance(entry, Mapping):
        body = {**entry, **fields}
    elif entry is not None:
        raise InvalidEntryError(f"an entry is a mapping, a message or a role, not {type(entry).__name__}")
    else:
        body = dict(fields)
    body = _as_json(body)
    if "type" in body:
        return _check_entry(body)
    role = body.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidEntryError("an entry needs a `type`, or a `role` if it is a message")
    _check_message(role, body)
    if body.get("timestamp") is None:
        body["timestamp"] = now_ms()
    return "message", {"message": body}


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    """An entry with objects instead of values, and lists instead of tuples: encoders look for both."""
    try:
        if _is_json(fields):
            return fields
        # Bytes stay as they are, to be refused: as the content of a message they would become a text in base64.
        json = msgspec.to_builtins(fields, builtin_types=(bytes, bytearray), enc_hook=_collection_as_json)
        found: dict[str, Any] = restore_unknown(json)
        return found
    except RecursionError:
        raise InvalidEntryError("the entry is nested too deeply") from None


def _is_json(value: object) -> bool:
    kind = type(value)
    if kind is dict:
        return all(map(_is_json, value.values()))  # type: ignore[attr-defined]
    if kind is list:
        return all(map(_is_json, value))  # type: ignore[call-overload]
    return kind in _SCALARS


def _collection_as_json(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise InvalidEntryError(f"an entry has JSON values only, not {type(value).__name__}")


def _check_message(role: str, message: Mapping[str, Any]) -> None:
    """Refuse a role that no reader knows, content that is neither text nor blocks, and a prompt without content."""
    content = message.get("content")
    _check_role(role)
    if not (content is None or isinstance(content, str) or _are_blocks(content)):
        raise InvalidEntryError("the content of a message is a text, or a list of blocks with a `type` each")
    if role == "user" and (not content or (isinstance(content, str) and not content.strip())):
        raise InvalidEntryError("the prompt is empty; pass a text or at least one block")
    _check_message_fields(role, message)


def _check_message_fields(role: str, message: Mapping[str, Any]) -> None:
    """Refuse a message of a known role, or with a block of a known type, that lacks what readers rely on."""
    _check_fields(MESSAGE_ROLES.get(role), role, message)
    content = message.get("content")
    if isinstance(content, list | tuple):
        for block in content:
            if isinstance(block, dict) and block.get("type") == _TOOL_CALL:
                _check_fields(ToolCall, _TOOL_CALL, block)


def _check_fields(cls: type[Value] | None, kind: str, fields: Mapping[str, Any]) -> None:
    name = None if cls is None else find_invalid_field(cls, fields)
    if cls is not None and name is not None:
        found = f", found {repr(fields[name])[:40]}" if name in fields else ""
        article = "an" if name[0] in "aeiou" else "a"
        raise InvalidEntryError(f"a {kind} needs {article} `{name}`: {cls.required_fields[name]}{found}")


def _are_blocks(content: object) -> bool:
    return isinstance(content, Sequence) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) for block in content
    )


def _check_role(role: object, *, may_be_other: bool = False) -> None:
    """Refuse a role that no reader knows. Clients have roles of their own: those are accepted only on request."""
    if not isinstance(role, str) or not role:
        raise InvalidEntryError("a message needs a `role`")
    if role not in _ROLES:
        import difflib

        near = difflib.get_close_matches(role.lower(), [known.lower() for known in _ROLES], n=1, cutoff=0.6)
        meant = next((known for known in _ROLES if near and known.lower() == near[0]), None)
        if meant is None and may_be_other:
            return
        hint = f"did you mean {meant!r}?" if meant else f"use {', '.join(sorted(_ROLES))}"
        raise InvalidEntryError(f"{role!r} is not the role of a message; {hint}")


def _check_entry(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = body.pop("type")
    if not isinstance(kind, str) or not kind or kind == "session":
        raise InvalidEntryError(f"{kind!r} is not a valid entry type")
    if BLOB_POINTERS in body:
        raise InvalidEntryError(f"the field `{BLOB_POINTERS}` is reserved")
    for name in ("id", "parentId", "timestamp"):
        body.pop(name, None)  # the session sets these
    if kind == "message":
        message = body.get("message")
        if not isinstance(message, Mapping):
            raise InvalidEntryError("an entry of type `message` needs a `message`")
        if body.get("moreMessages"):  # of results that a client wrote together; only our decoded entries have them
            raise InvalidEntryError("an entry to append has one message; append each of its messages")
        role = message.get("role")
        _check_role(role, may_be_other=True)
        _check_message_fields(str(role), message)
    _check_fields(ENTRY_TYPES.get(kind), kind, body)
    if kind == "context_edit":
        _check_edit(body)
    return kind, body


def _check_edit(body: Mapping[str, Any]) -> None:
    replacement = body.get("replacement")
    content = replacement.get("content") if isinstance(replacement, Mapping) else None
    if replacement is not None and not (isinstance(content, str) or (content is not None and _are_blocks(content))):
        raise InvalidEntryError(
            "the `replacement` of a context_edit is null, or has the new `content`: a text or a list of blocks"
        )


def parse_timestamp(text: str | None) -> str | None:
    """Return a time in ISO 8601 unchanged; `InvalidEntryError` for any other text."""
    if text is not None:
        from datetime import datetime  # few callers choose the time of an entry

        try:
            datetime.fromisoformat(text)
        except ValueError:
            raise InvalidEntryError(f"{text[:80]!r} is not a time such as 2026-02-16T10:20:30.000Z") from None
    return text


def ends_turn(kind: str, fields: Mapping[str, Any]) -> bool:
    """Whether an entry ends a turn: a user message, or an assistant message that calls no tool."""
    if kind != "message":
        return kind in ("leaf", "compaction")
    message: Mapping[str, Any] = fields["message"]
    role = message.get("role")
    return role == "user" or (role == "assistant" and message.get("stopReason") != "toolUse")


def creates_file(appear: Appear, kind: str, fields: Mapping[str, Any]) -> bool:
    if appear == "now":
        return True
    if kind != "message":
        return False
    message: Mapping[str, Any] = fields["message"]
    role = message.get("role")
    return role == "assistant" or (appear == "user" and role == "user")
