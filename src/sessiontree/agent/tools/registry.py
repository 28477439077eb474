"""Tools by name: those of entry points, and those added at run time, such as the tools of MCP servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sessiontree import plugins
from sessiontree.agent.tools.base import Tool
from sessiontree.errors import NotFoundError, UsageError

_name = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
"""Names that every provider accepts."""


class Tools:
    """Tools by name, in the order they were added."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Add a tool; `UsageError` if its name is invalid or taken."""
        if not _name.match(tool.name):
            raise UsageError(f"{tool.name!r} is not a valid tool name: use at most 64 letters, digits, '_' and '-'")
        if tool.name in self._tools:
            raise UsageError(f"two tools are named {tool.name!r}")
        self._tools[tool.name] = tool

    def remove(self, name: str) -> None:
        self._tools.pop(name, None)

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def __getitem__(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise NotFoundError(f"no tool is named {name!r}; available: {', '.join(self._tools) or 'none'}")
        return tool

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> list[str]:
        return list(self._tools)


def load_tools(names: Iterable[str] | None = None) -> Tools:
    """Load the tools of all installed packages, or only those of the given names."""
    tools = Tools()
    for name in plugins.names("tools") if names is None else names:
        tool = plugins.load("tools", name)
        if not isinstance(tool, Tool):
            raise UsageError(f"the entry point {name!r} in sessiontree.tools is not a tool: {tool!r}")
        tools.add(tool)
    return tools
