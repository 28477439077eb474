"""What a compaction leaves standing: one strategy for each way that an agent goes about it.

A strategy only chooses the cut. How the result is written is the dialect's affair: an entry that names what it keeps
(Pi, oh-my-pi, native), a new root with what is kept repeated behind it (Neovate), a boundary with a list of kept lines
(Claude Code). So each strategy works in each dialect.
"""

from __future__ import annotations

from msgspec import Struct

from sessiontree.compaction.cut_point import Manner
from sessiontree.errors import NotFoundError


class Strategy(Struct, frozen=True):
    name: str
    manner: Manner
    means: str
    """What it does, for those who choose."""


RECENT = Strategy("recent", "recent", "keep the newest messages; a turn may be split (Pi's way)")
SEGMENT = Strategy("segment", "turns", "keep the last turns whole (Claude Code's way)")
REPLACE = Strategy("replace", "nothing", "let the summary stand for everything (Neovate's way)")

STRATEGIES: dict[str, Strategy] = {strategy.name: strategy for strategy in (RECENT, SEGMENT, REPLACE)}

_OWN = {"claude": SEGMENT, "neovate": REPLACE}
"""The way of the program whose format it is, where that is not the common one."""


def find_strategy(name: str | None, dialect: str) -> Strategy:
    """A strategy by name; without one, the way of the program whose format it is."""
    if name is None:
        return _OWN.get(dialect, RECENT)
    if name not in STRATEGIES:
        raise NotFoundError(f"no strategy named {name!r} (there is: {', '.join(STRATEGIES)})")
    return STRATEGIES[name]
