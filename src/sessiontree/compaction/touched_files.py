"""Which files were read and which were changed: out of the tool calls of every agent, and out of earlier summaries.

A summary's `details` hold the lists, in Pi's fields, so that what was touched long ago is still known after the tenth
compaction. Of a summary that a hook supplied they are not taken: nobody knows what such a hook put there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from sessiontree.conversion.tools import FileArgument, FileUse, file_argument
from sessiontree.core.messages import Message, ToolCall, tool_calls

_AGENTS = ("pi", "claude", "omp", "neovate")
"""Whose words a call is tried in when its own agent's have none for it: a session may come from another agent."""


class FileLists(Struct, frozen=True):
    """Files that were only read, and files that were changed; each sorted."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()

    @classmethod
    def of(cls, read: Iterable[str], modified: Iterable[str]) -> FileLists:
        changed = set(modified)
        return cls(tuple(sorted(set(read) - changed)), tuple(sorted(changed)))

    @classmethod
    def of_details(cls, details: Any) -> FileLists:
        """The lists in a summary's `details`, whatever those are."""
        if not isinstance(details, dict):
            return cls()
        return cls.of(_texts(details.get("readFiles")), _texts(details.get("modifiedFiles")))

    def __or__(self, other: FileLists) -> FileLists:
        return FileLists.of((*self.read, *other.read), (*self.modified, *other.modified))

    def details(self) -> dict[str, Any]:
        return {"readFiles": list(self.read), "modifiedFiles": list(self.modified)}

    def text(self) -> str:
        """The lists as they stand behind a summary; empty when there are none."""
        parts = [("read-files", self.read), ("modified-files", self.modified)]
        return "".join(f"\n\n<{name}>\n" + "\n".join(files) + f"\n</{name}>" for name, files in parts if files)


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def speakers(agent: str) -> tuple[str, ...]:
    """The agents in whose words a call is tried, its own first."""
    return (agent, *(other for other in _AGENTS if other != agent))


@functools.lru_cache(maxsize=256)
def _file_arguments(name: str, agent: str) -> tuple[FileArgument, ...]:
    """How a tool of this name may tell its file. A session has many calls and few tools."""
    return tuple(way for words in speakers(agent) if (way := file_argument(name, words)) is not None)


def file_of(call: ToolCall, agent: str) -> tuple[FileUse, str] | None:
    """The file that a call reads, writes or edits, and which of them; in its agent's words, else in any agent's."""
    for way in _file_arguments(call.name, agent):
        found = way.find_in(call.arguments)
        if found is not None:
            return found
    return None


def files_in(messages: Sequence[Message], agent: str) -> FileLists:
    """The files that the tool calls of some messages touch."""
    read: set[str] = set()
    modified: set[str] = set()
    for message in messages:
        for call in tool_calls(message):
            found = file_of(call, agent)
            if found is not None:
                (read if found[0] == "read" else modified).add(found[1])
    return FileLists.of(read, modified)
