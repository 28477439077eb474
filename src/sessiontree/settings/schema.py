"""Generate the JSON Schema of a settings file, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from sessiontree.settings.known import Settings, iter_settings


def json_schema() -> dict[str, Any]:
    (reference,), parts = msgspec.json.schema_components([Settings], ref_template="#/$defs/{name}")
    for setting in iter_settings():
        if not setting.from_project:
            _mark_user_only(parts, setting.path)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **parts.pop(reference["$ref"].rpartition("/")[2]),
        "title": "sessiontree settings",
        "$defs": parts,
    }


def _mark_user_only(parts: dict[str, Any], path: tuple[str, ...]) -> None:
    node = parts[Settings.__name__]
    for name in path[:-1]:
        inner = node["properties"][name]
        reference = inner.get("$ref") or next(part["$ref"] for part in inner["allOf"])
        node = parts[reference.rpartition("/")[2]]
    node["properties"][path[-1]]["description"] += " (not from a project's file)"
