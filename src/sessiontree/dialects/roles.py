"""Map messages of roles that few clients have to custom messages, and back.

Their content is the text a model receives for them; the original message is carried as passthrough data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sessiontree.dialects.canonical import CanonicalEntry, LossNote
from sessiontree.dialects.contract import Dialect
from sessiontree.dialects.passthrough import carried_data, with_carried_data

_COMMON_ROLES = ("assistant", "toolResult", "user")
_OF_EXTENSIONS = ("custom", "hookMessage")
"""Messages of extensions under their present and their former name. Clients also write them as entries of their own."""
_ORIGINAL = "message-of-role"
_MAPPED_FIELDS = ("customType", "content", "display")


def with_common_role(entry: CanonicalEntry, target: Dialect) -> tuple[CanonicalEntry, list[LossNote]]:
    """Return the entry with a role that the target supports."""
    message = entry.fields.get("message")
    if not isinstance(message, dict) or message.get("role") in _COMMON_ROLES or target.client.knows_all_roles:
        return entry, []
    content = message.get("content", "") if message.get("role") in _OF_EXTENSIONS else content_for_model(message)
    is_unsent = bool(message.get("excludeFromContext"))
    if content is None or (message.get("role") == "bashExecution" and (is_unsent or target.client.records_commands)):
        return entry, []
    role = str(message["role"])
    fields: dict[str, Any] = {name: value for name, value in entry.fields.items() if name != "message"}
    fields["customType"] = str(message.get("customType") or role)
    kind, notes = "custom", []
    if not is_unsent:
        kind, fields = "custom_message", {**fields, "content": content, "display": True}
        why = f"{target.name} sends them as messages of an extension"
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


def content_for_model(message: Mapping[str, Any]) -> str | list[Any] | None:
    """The content a model receives for a message of such a role; None for any other role."""
    match message.get("role"):
        case "developer":
            content = message.get("content")
            return content if isinstance(content, str | list) else ""
        case "fileMention":
            return _mentioned_files(message.get("files"))
        case "pythonExecution":
            return _execution_text("Ran Python", message.get("code"), message)
        case "bashExecution":
            return _execution_text("Ran a command", message.get("command"), message)
        case _:
            return None


def _mentioned_files(files: Any) -> list[Any]:
    """The text of mentioned files in tags with their names, then their images."""
    blocks: list[Any] = []
    images: list[Any] = []
    for file in files if isinstance(files, list) else []:
        if not isinstance(file, dict):
            continue
        content, image = file.get("content"), file.get("image")
        if isinstance(content, str) or image is None:  # the model also learns about a file without text
            inner = f"\n{content}\n" if content else "\n"
            blocks.append({"type": "text", "text": f'<file path="{file.get("path")}">{inner}</file>'})
        if isinstance(image, dict) and image.get("type") == "image":
            images.append(image)
    return blocks + images


def _execution_text(opening: str, code: Any, message: Mapping[str, Any]) -> str:
    parts = [f"{opening}:\n```\n{code or ''}\n```"]
    output = message.get("output")
    parts.append(f"Output:\n```\n{output}\n```" if output else "(no output)")
    if message.get("cancelled"):
        parts.append("(cancelled)")
    elif message.get("exitCode"):
        parts.append(f"Exited with code {message['exitCode']}")
    return "\n\n".join(parts)
