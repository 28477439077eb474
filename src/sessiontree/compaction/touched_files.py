"""Files that were read and modified, from the tool calls of any agent and from earlier summaries.

A summary's `details` contain the lists, in Pi's fields, so that they survive many compactions. The details of a summary
from a hook are ignored: a hook may store anything there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from sessiontree.conversion.tool_mapping import tool_tables
from sessiontree.core.messages import Message, ToolCall, tool_calls
from sessiontree.dialects.tool_table import FileArgument, FileUse


class FileLists(Struct, frozen=True):
    """Files that were read but not modified, and modified files; each sorted."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()

    @classmethod
    def of(cls, read: Iterable[str], modified: Iterable[str]) -> FileLists:
        changed = set(modified)
        return cls(tuple(sorted(set(read) - changed)), tuple(sorted(changed)))

    @classmethod
    def of_details(cls, details: Any) -> FileLists:
        """Read the lists from a summary's `details`, which may be anything."""
        if not isinstance(details, dict):
            return cls()
        return cls.of(_texts(details.get("readFiles")), _texts(details.get("modifiedFiles")))

    def __or__(self, other: FileLists) -> FileLists:
        return FileLists.of((*self.read, *other.read), (*self.modified, *other.modified))

    def details(self) -> dict[str, Any]:
        return {"readFiles": list(self.read), "modifiedFiles": list(self.modified)}

    def text(self) -> str:
        """Render the lists for the end of a summary."""
        parts = [("read-files", self.read), ("modified-files", self.modified)]
        return "".join(f"\n\n<{name}>\n" + "\n".join(files) + f"\n</{name}>" for name, files in parts if files)


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


@functools.lru_cache(maxsize=256)
def _file_arguments(name: str, agent: str) -> tuple[FileArgument, ...]:
    """Arguments of a tool that may name a file. Cached: a session has many calls but few tools."""
    return tuple(found for tools in tool_tables(agent) if (found := tools.file_argument(name)) is not None)


def file_of(call: ToolCall, agent: str) -> tuple[FileUse, str] | None:
    """The file of a tool call, and whether it is read, written or edited."""
    for argument in _file_arguments(call.name, agent):
        found = argument.find_in(call.arguments)
        if found is not None:
            return found
    return None


def files_in(messages: Sequence[Message], agent: str) -> FileLists:
    """Files used by the tool calls of some messages."""
    read: set[str] = set()
    modified: set[str] = set()
    for message in messages:
        for call in tool_calls(message):
            found = file_of(call, agent)
            if found is not None:
                (read if found[0] == "read" else modified).add(found[1])
    return FileLists.of(read, modified)
