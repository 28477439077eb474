"""Labels of branches that belong to a lane or a sub-agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sessiontree.views.text import columns


class Mark(Struct, frozen=True):
    """Sanitized texts for a branch, from the longest to the shortest."""

    texts: tuple[str, ...]
    lane: Mapping[str, Any] | None = None
    """For a branch of an exploration: the values from the file."""
    task: Mapping[str, Any] | None = None
    """For the branch of a sub-agent."""

    def fitting(self, room: int) -> str | None:
        """The longest text that fits; None if none does."""
        return next((text for text in self.texts if columns(text) <= room), None)


def describe_mark(mark: Mark | None) -> dict[str, Any]:
    return {"lane": mark and mark.lane, "task": mark and mark.task}
