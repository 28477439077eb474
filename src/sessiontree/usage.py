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


def _response_of(entry: Entry) -> str:
    message = entry.message if isinstance(entry, MessageEntry) else None
    return (message.response_id if isinstance(message, Assistant) else None) or entry.id


def _size(usage: Usage) -> float:
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def total_usage(entries: Iterable[Entry]) -> UsageTotals:
    """The sum over some entries, each response counted once.

    An entry that comes twice (the same id) counts as it stands last. Of the lines of one response, which all tell its
    usage or the part of it known so far, the one that tells most counts.
    """
    by_response: dict[str, Usage] = {}
    for entry in entries:
        found = usage_of(entry)
        if found is None:
            continue
        response = _response_of(entry)
        known = by_response.get(response) if response != entry.id else None
        by_response[response] = found if known is None or _size(found) >= _size(known) else known
    used = list(by_response.values())
    return UsageTotals(
        requests=len(used),
        input=sum(usage.input for usage in used),
        output=sum(usage.output for usage in used),
        cached=sum(usage.cache_read for usage in used),
        cache_written=sum(usage.cache_write for usage in used),
        cost=round(sum(usage.cost.total for usage in used if usage.cost is not None), 10),
    )
