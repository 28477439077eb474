"""Adding up what a session used: tokens, cost, requests."""

from __future__ import annotations

from collections.abc import Iterable

from sessiontree.entries import BranchSummary, Compaction, Entry, MessageEntry, UsageRecord
from sessiontree.messages import Assistant, ToolResult, Usage
from sessiontree.values import Value


class UsageTotals(Value, frozen=True, omit_defaults=False):
    """What a session used. `input` is what was read fresh; `cached` came from the provider's cache."""

    requests: int = 0
    input: int | float = 0
    output: int | float = 0
    cached: int | float = 0
    cache_written: int | float = 0
    cost: float = 0.0


def usage_of(entry: Entry) -> Usage | None:
    """What the request behind an entry used, if there was one."""
    match entry:
        case MessageEntry():
            message = entry.message
            return message.usage if isinstance(message, Assistant | ToolResult) else None
        case Compaction() | BranchSummary() | UsageRecord():
            return entry.usage
        case _:
            return None


def total_usage(entries: Iterable[Entry]) -> UsageTotals:
    """The sum over some entries; an entry that comes twice (the same id) counts once, as it stands last."""
    by_id = {entry.id: found for entry in entries if (found := usage_of(entry)) is not None}
    used = list(by_id.values())
    return UsageTotals(
        requests=len(used),
        input=sum(usage.input for usage in used),
        output=sum(usage.output for usage in used),
        cached=sum(usage.cache_read for usage in used),
        cache_written=sum(usage.cache_write for usage in used),
        cost=round(sum(usage.cost.total for usage in used if usage.cost is not None), 10),
    )
