"""Adding up what a session used: tokens, cost, requests."""

from __future__ import annotations

from collections.abc import Iterable

from sessiontree.core.entries import BranchSummary, Compaction, Entry, MessageEntry, UsageRecord
from sessiontree.core.jsonio import Value
from sessiontree.core.messages import Assistant, ToolResult, Usage

_LARGEST = 2**53


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


def response_key(entry: Entry) -> str:
    """What the lines of one response have in common: the provider's name for it, else the entry's own id."""
    message = entry.message if isinstance(entry, MessageEntry) else None
    return (message.response_id if isinstance(message, Assistant) else None) or entry.id


def larger_usage(known: Usage | None, found: Usage) -> Usage:
    """Of what two lines of one response tell, the one that tells most; of equals, the later one."""
    return found if known is None or _size(found) >= _size(known) else known


def _size(usage: Usage) -> float:
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def valid_count(number: float) -> float:
    """A number that can be added up: what a damaged or forged line says may be less than nothing, or no number."""
    return number if 0 <= number <= _LARGEST else 0


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
