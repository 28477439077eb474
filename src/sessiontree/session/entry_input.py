"""What may be written, and when: the ways to say an entry, what ends a turn, what makes a new session's file appear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from sessiontree.core.ids import now_ms
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.errors import InvalidEntryError
from sessiontree.session.blob_refs import BLOB_POINTERS, LargeContent

Durability = Literal["append", "turn", "system"]
"""When appended lines are made to survive a power cut: at each append, at the end of each turn, or when the system
gets to it. Whatever the choice, lines survive the death of the process from the moment `append` returns."""

Appear = Literal["now", "user", "assistant"]
"""When a new session's file appears: at once, with the first user message, or with the first assistant message."""


class Options(Struct, frozen=True):
    """How a session is written, and how it is read where there is a choice."""

    durability: Durability = "turn"
    large_content: LargeContent | None = None
    """None: as the file asks, and where it does not, in blobs."""
    appear: Appear = "user"
    read_options: ReadOptions = AS_CLIENT


def parse_entry_input(
    what: Mapping[str, Any] | str | None, content: Any, fields: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The type and the fields of an entry, from any of the ways to say it."""
    if type(what) is dict and not fields and "type" not in what and (role := what.get("role")) and type(role) is str:
        # A whole message, as they mostly come. It is only read from here on, so no copy is made.
        return "message", {"message": what if "timestamp" in what else {**what, "timestamp": now_ms()}}
    if isinstance(what, str):
        body = {"role": what, "content": content, **fields}
    elif what is not None:
        body = {**what, **fields}
    else:
        body = dict(fields)
    if "type" in body:
        return _checked(body)
    role = body.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidEntryError("an entry needs a `type`, or a `role` that makes it a message")
    if "timestamp" not in body:
        body["timestamp"] = now_ms()
    return "message", {"message": body}


def _checked(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = body.pop("type")
    if not isinstance(kind, str) or not kind or kind == "session":
        raise InvalidEntryError(f"{kind!r} is not a type an entry can have")
    if BLOB_POINTERS in body:
        raise InvalidEntryError(f"the field `{BLOB_POINTERS}` is reserved")
    for name in ("id", "parentId", "timestamp"):
        body.pop(name, None)  # those are given by the session
    if kind == "message" and not isinstance(body.get("message"), Mapping):
        raise InvalidEntryError("an entry of type `message` needs a `message`")
    return kind, body


def ends_turn(kind: str, fields: Mapping[str, Any]) -> bool:
    """Whether a turn is over with this entry: the user has spoken, or the assistant waits for no tool."""
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
