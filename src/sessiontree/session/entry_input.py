"""Arguments of `append`, and write options: parse an entry, decide when to sync and when to create the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from sessiontree.core.ids import now_ms
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.errors import InvalidEntryError
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


def parse_entry_input(
    entry: Mapping[str, Any] | str | None, content: Any, fields: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Type and fields of an entry, from the arguments of `append` (see `Branch.append`)."""
    if type(entry) is dict and not fields and "type" not in entry and (role := entry.get("role")) and type(role) is str:
        # The usual case: a message. It is not modified from here on, so it is not copied.
        return "message", {"message": entry if "timestamp" in entry else {**entry, "timestamp": now_ms()}}
    if isinstance(entry, str):
        body = {"role": entry, "content": content, **fields}
    elif entry is not None:
        body = {**entry, **fields}
    else:
        body = dict(fields)
    if "type" in body:
        return _check_entry(body)
    role = body.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidEntryError("an entry needs a `type`, or a `role` if it is a message")
    if "timestamp" not in body:
        body["timestamp"] = now_ms()
    return "message", {"message": body}


def _check_entry(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = body.pop("type")
    if not isinstance(kind, str) or not kind or kind == "session":
        raise InvalidEntryError(f"{kind!r} is not a valid entry type")
    if BLOB_POINTERS in body:
        raise InvalidEntryError(f"the field `{BLOB_POINTERS}` is reserved")
    for name in ("id", "parentId", "timestamp"):
        body.pop(name, None)  # the session sets these
    if kind == "message" and not isinstance(body.get("message"), Mapping):
        raise InvalidEntryError("an entry of type `message` needs a `message`")
    return kind, body


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
