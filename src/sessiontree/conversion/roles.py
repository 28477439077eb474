"""Messages of roles that only the family of Pi has, for targets outside of it, and back.

They are said as messages of an extension, with the words that a model is sent for them. The message itself rides along.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.dialects.pi.content import content_for_model

_FAMILY = frozenset({"pi", "omp", "native"})
_COMMON = ("assistant", "toolResult", "user")
_ROLE = "message-of-role"


def in_common_roles(entry: CanonicalEntry, target: str) -> tuple[CanonicalEntry, list[LossNote]]:
    """An item whose role the target may know."""
    message = entry.fields.get("message")
    if target in _FAMILY or not isinstance(message, dict) or message.get("role") in _COMMON:
        return entry, []
    content = content_for_model(message)
    if content is None:
        return entry, []
    role = str(message["role"])
    rest = {name: value for name, value in entry.fields.items() if name not in ("message", PASSTHROUGH)}
    passthrough = {**_passthrough(entry), _ROLE: message}
    if message.get("excludeFromContext"):
        fields: dict[str, Any] = {**rest, "customType": role, PASSTHROUGH: passthrough}
        return msgspec.structs.replace(entry, kind="custom", fields=fields), []
    fields = {**rest, "customType": role, "content": content, "display": True, PASSTHROUGH: passthrough}
    note = LossNote("mapped", f"messages of the role {role}", f"{target} sends them as messages of an extension")
    return msgspec.structs.replace(entry, kind="custom_message", fields=fields), [note]


def with_own_role(entry: CanonicalEntry) -> CanonicalEntry:
    """The item with the role it had, if it was said in another one."""
    if PASSTHROUGH not in entry.fields:
        return entry
    message = _passthrough(entry).get(_ROLE)
    if not isinstance(message, dict) or entry.kind not in ("custom", "custom_message"):
        return entry
    said = ("customType", "content", "display", PASSTHROUGH)
    fields = {name: value for name, value in entry.fields.items() if name not in said}
    passthrough = {name: value for name, value in _passthrough(entry).items() if name != _ROLE}
    return msgspec.structs.replace(
        entry,
        kind="message",
        fields={**fields, "message": message} | ({PASSTHROUGH: passthrough} if passthrough else {}),
    )


def _passthrough(entry: CanonicalEntry) -> dict[str, Any]:
    found = entry.fields.get(PASSTHROUGH)
    return found if isinstance(found, dict) else {}
