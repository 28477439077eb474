"""Whose a branch is, when it is a lane's or a sub-agent's: a few words beside what users call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sessiontree.views.text import columns


class Mark(Struct, frozen=True):
    """What is said of a branch, from the most words to the fewest. They are clean."""

    texts: tuple[str, ...]
    lane: Mapping[str, Any] | None = None
    """For a branch of an exploration: the same as plain values, as the file says them."""
    task: Mapping[str, Any] | None = None
    """For the branch of a sub-agent."""

    def fitting(self, room: int) -> str | None:
        """As many of the words as have room; None when not even the fewest do."""
        return next((text for text in self.texts if columns(text) <= room), None)


def describe_mark(mark: Mark | None) -> dict[str, Any]:
    return {"lane": mark and mark.lane, "task": mark and mark.task}
