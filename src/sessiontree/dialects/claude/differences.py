"""Marks of our own in the passthrough data of Claude Code lines."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sessiontree.dialects import passthrough
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.dialects.passthrough import restore_entry as restore_passthrough

__all__ = ["AFTER", "PART", "PLAIN", "build_passthrough", "restore_passthrough"]

PART = "part"
"""The line belongs to the entry before it and has no content of its own."""

PLAIN = "plain"
"""What looks like a line of the client's was said by the user."""

AFTER = "after"
"""The metadata line before this one, empty when there are only others."""


def build_passthrough(entry: CanonicalEntry, decoded: CanonicalEntry, left_out: Collection[int] = ()) -> dict[str, Any]:
    return passthrough.build_passthrough(entry, decoded, left_out=left_out)
