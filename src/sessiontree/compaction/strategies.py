"""Compaction strategies: what the different agents keep.

A strategy only chooses the cut, so every strategy works in every dialect. The dialect decides how the cut is written:

* Pi, oh-my-pi, native: an entry that names the first kept entry;
* Neovate: a new root, followed by copies of the kept messages;
* Claude Code: a boundary with a list of kept lines.
"""

from __future__ import annotations

from msgspec import Struct

from sessiontree.compaction.cut_point import KeepRule
from sessiontree.dialects.contract import Locations
from sessiontree.errors import NotFoundError


class Strategy(Struct, frozen=True):
    name: str
    rule: KeepRule
    description: str
    """Description for help texts."""


RECENT = Strategy("recent", "recent", "keep the newest messages; a turn may be split (like Pi)")
SEGMENT = Strategy("segment", "turns", "keep the last turns complete (like Claude Code)")
REPLACE = Strategy("replace", "nothing", "replace everything with the summary (like Neovate)")

STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in (RECENT, SEGMENT, REPLACE)}


def find_strategy(name: str | None, dialect: Locations) -> Strategy:
    """Find a strategy by name; without one, that of the dialect's client."""
    name = dialect.client.compaction_strategy if name is None else name
    if name not in STRATEGIES:
        raise NotFoundError(f"no strategy named {name!r} (available: {', '.join(STRATEGIES)})")
    return STRATEGIES[name]
