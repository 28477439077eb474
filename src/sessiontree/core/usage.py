"""Totals of a session's usage: tokens, cost, requests."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from sessiontree.core.entries import BranchSummary, Compaction, Entry, MessageEntry, UsageRecord
from sessiontree.core.jsonio import Value
from sessiontree.core.messages import Assistant, Cost, ToolResult, Usage

_LARGEST = 2**53
_NO_COST = Cost()


class UsageTotals(Value, frozen=True, omit_defaults=False):
    """Usage of a session. `input` counts uncached tokens; `cached` those read from the provider's cache."""

    requests: int = 0
    input: int | float = 0
    output: int | float = 0
    cached: int | float = 0
    cache_written: int | float = 0
    cost: float = 0.0


def usage_of(entry: Entry) -> Usage | None:
    """Usage of the request that produced an entry; None if there was no request.

    Clients that require the fields have zeros where nothing was counted: a usage of zeros is none, and a cost of zeros
    is unknown.
    """
    match entry:
        case MessageEntry(message=Assistant(usage=usage) | ToolResult(usage=usage)):
            pass
        case Compaction(usage=usage) | BranchSummary(usage=usage) | UsageRecord(usage=usage):
            pass
        case _:
            return None
    if usage is None or usage.cost != _NO_COST:
        return usage
    return replace(usage, cost=None) if _size(usage) or usage.total_tokens else None


def response_key(entry: Entry) -> str:
    """Key shared by the lines of one response: the provider's response id, else the entry's own id."""
    message = entry.message if isinstance(entry, MessageEntry) else None
    return (message.response_id if isinstance(message, Assistant) else None) or entry.id


def larger_usage(known: Usage | None, found: Usage) -> Usage:
    """The larger of two usages reported for one response; the later one if they are equal."""
    return found if known is None or _size(found) >= _size(known) else known


def _size(usage: Usage) -> float:
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def valid_count(number: float) -> float:
    """Return a count, or 0 if it is negative, NaN or absurdly large, as in a damaged or forged line."""
    return number if 0 <= number <= _LARGEST else 0


def total_usage(entries: Iterable[Entry]) -> UsageTotals:
    """Sum the usage of some entries, counting each response once.

    Of entries with the same id, the last one counts. The lines of one response each report its usage, or the part
    known so far; the largest counts.
    """
    by_response: dict[str, Usage] = {}
    for entry in entries:
        found = usage_of(entry)
        if found is None:
            continue
        response = response_key(entry)
        known = by_response.get(response) if response != entry.id else None
        by_response[response] = larger_usage(known, found)
    used = list(by_response.values())
    return UsageTotals(
        requests=len(used),
        input=sum(valid_count(usage.input) for usage in used),
        output=sum(valid_count(usage.output) for usage in used),
        cached=sum(valid_count(usage.cache_read) for usage in used),
        cache_written=sum(valid_count(usage.cache_write) for usage in used),
        cost=round(sum(valid_count(usage.cost.total) for usage in used if usage.cost is not None), 10),
    )
