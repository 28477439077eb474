"""The system prompt in force, merged from system messages that modify one another; a compaction has to contain it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sessiontree.core.lazy_messages import LazyMessages
from sessiontree.core.messages import Message, System, text_of


def current_system(messages: Iterable[Message]) -> System | None:
    """Merge all system messages: texts joined, sections replaced by name, tools added and removed."""
    if isinstance(messages, LazyMessages):
        return None
    texts: list[str] = []
    sections: dict[str, str | None] = {}
    tools: dict[str, Any] = {}
    time: int | float | None = None
    found = False
    for message in messages:
        if not isinstance(message, System):
            continue
        if not found:
            found, time = True, message.timestamp
        text = text_of(message.content)
        if text:
            texts.append(text)
        for name, section in (message.sections or {}).items():
            sections.pop(name, None) if section is None else sections.update({name: section})
        for tool in message.tools_removed or []:
            tools.pop(_name(tool), None)
        for tool in message.tools_added or []:
            tools[_name(tool)] = tool
    if not found:
        return None
    return System(
        timestamp=time,
        content="\n\n".join(texts),
        sections=sections or None,
        tools_added=list(tools.values()) or None,
    )


def _name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""
