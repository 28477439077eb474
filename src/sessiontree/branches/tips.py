"""Tips: the last message of each branch of a session."""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.core.entries import CONTEXT_TYPES
from sessiontree.dialects.contract import HistoryLinks
from sessiontree.session.branch_ends import find_branch_ends, newest_leaves
from sessiontree.session.history import history_links
from sessiontree.session.reader import Reader


def find_tips(session: Reader) -> list[int]:
    """Find the tips, newest first."""
    return find_linked_tips(session, history_links(session))


def find_linked_tips(session: Reader, links: HistoryLinks | None) -> list[int]:
    """Find the tips, given the links of histories if there are any."""
    return [end.node for end in find_branch_ends(session, links, newest_leaves(session, session.leaf))]


def count_tips(session: Reader) -> int:
    """Count the tips. Listings call this for every session, so the common case of one leaf is fast."""
    if len(session.leaves()) <= 1:
        return int(not CONTEXT_TYPES.isdisjoint(session.journal.types))
    return len(find_tips(session))


def tip_of(session: Reader, history: Sequence[int]) -> int | None:
    """Last message of a history; labels, settings and moves are not tips."""
    types = session.journal.types
    return next((node for node in reversed(history) if types[node] in CONTEXT_TYPES), None)
