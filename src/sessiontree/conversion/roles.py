"""Map messages of roles that only Pi, oh-my-pi and native sessions have to custom messages, and back.

Their content is the text a model receives for them; the original message is carried as passthrough data.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.passthrough import carried_data, with_carried_data
from sessiontree.dialects.pi.content import content_for_model

_PI_FAMILY = frozenset({"pi", "omp", "native"})
_COMMON_ROLES = ("assistant", "toolResult", "user")
_ORIGINAL = "message-of-role"
_MAPPED_FIELDS = ("customType", "content", "display")


def with_common_role(entry: CanonicalEntry, target: str) -> tuple[CanonicalEntry, list[LossNote]]:
    """Return the entry with a role that the target supports."""
    message = entry.fields.get("message")
    if target in _PI_FAMILY or not isinstance(message, dict) or message.get("role") in _COMMON_ROLES:
        return entry, []
    content = content_for_model(message)
    if content is None:
        return entry, []
    role = str(message["role"])
    fields: dict[str, Any] = {name: value for name, value in entry.fields.items() if name != "message"}
    fields["customType"] = role
    kind, notes = "custom", []
    if not message.get("excludeFromContext"):
        kind, fields = "custom_message", {**fields, "content": content, "display": True}
        why = f"{target} sends them as messages of an extension"
        notes = [LossNote("mapped", f"messages of the role {role}", why)]
    mapped = msgspec.structs.replace(entry, kind=kind, fields=fields)
    return with_carried_data(mapped, _ORIGINAL, message), notes


def with_original_role(entry: CanonicalEntry) -> CanonicalEntry:
    """Return the entry with the role it had before `with_common_role`."""
    message = carried_data(entry, _ORIGINAL)
    if not isinstance(message, dict) or entry.kind not in ("custom", "custom_message"):
        return entry
    fields = {name: value for name, value in entry.fields.items() if name not in _MAPPED_FIELDS}
    original = msgspec.structs.replace(entry, kind="message", fields={**fields, "message": message})
    return with_carried_data(original, _ORIGINAL, None)
