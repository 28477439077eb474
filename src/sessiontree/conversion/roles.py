"""Messages of roles that only the family of Pi has, for targets outside of it, and back.

They are said as messages of an extension, with the words that a model is sent for them. The message itself rides along.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.passthrough import RIDER
from sessiontree.dialects.pi.content import content_in_shared_words

_FAMILY = frozenset({"pi", "omp", "native"})
_COMMON = ("assistant", "toolResult", "user")
_ROLE = "message-of-role"


def in_common_roles(item: CanonicalEntry, target: str) -> tuple[CanonicalEntry, list[LossNote]]:
    """An item whose role the target may know."""
    message = item.fields.get("message")
    if target in _FAMILY or not isinstance(message, dict) or message.get("role") in _COMMON:
        return item, []
    content = content_in_shared_words(message)
    if content is None:
        return item, []
    role = str(message["role"])
    rest = {name: value for name, value in item.fields.items() if name not in ("message", RIDER)}
    rider = {**_rider(item), _ROLE: message}
    if message.get("excludeFromContext"):
        fields: dict[str, Any] = {**rest, "customType": role, RIDER: rider}
        return msgspec.structs.replace(item, kind="custom", fields=fields), []
    fields = {**rest, "customType": role, "content": content, "display": True, RIDER: rider}
    note = LossNote("mapped", f"messages of the role {role}", f"{target} sends them as messages of an extension")
    return msgspec.structs.replace(item, kind="custom_message", fields=fields), [note]


def with_own_role(item: CanonicalEntry) -> CanonicalEntry:
    """The item with the role it had, if it was said in another one."""
    if RIDER not in item.fields:
        return item
    message = _rider(item).get(_ROLE)
    if not isinstance(message, dict) or item.kind not in ("custom", "custom_message"):
        return item
    said = ("customType", "content", "display", RIDER)
    fields = {name: value for name, value in item.fields.items() if name not in said}
    rider = {name: value for name, value in _rider(item).items() if name != _ROLE}
    return msgspec.structs.replace(
        item, kind="message", fields={**fields, "message": message} | ({RIDER: rider} if rider else {})
    )


def _rider(item: CanonicalEntry) -> dict[str, Any]:
    found = item.fields.get(RIDER)
    return found if isinstance(found, dict) else {}
