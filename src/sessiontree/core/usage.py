"""Totals of a session's usage: tokens, cost, requests."""

from __future__ import annotations

from array import array
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
    """Sum the usage of some entries, counting each response once (see `UsageSum`)."""
    found = UsageSum()
    for entry in entries:
        found.add(entry)
    return found.totals()


class UsageSum:
    """Sums the usage of entries that are added one by one, counting each response once.

    Of entries with the same id, the last one counts. The lines of one response each report its usage, or the part
    known so far; the largest counts. Counts are stored in columns: a session can have half a million responses.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._sizes = array("d")
        self._columns = tuple(array("d") for _ in range(5))
        self._has_fractions = [False] * 5

    def add(self, entry: Entry) -> None:
        found = usage_of(entry)
        if found is None:
            return
        response, size = response_key(entry), min(_size(found), 1e300)  # an integer may be too large for a column
        row = self._rows.get(response)
        if row is None:
            row = self._rows[response] = len(self._sizes)
            for column in (self._sizes, *self._columns):
                column.append(0)
        elif response != entry.id and not size >= self._sizes[row]:
            return
        self._sizes[row] = size
        cost = 0.0 if found.cost is None else found.cost.total
        counts = (found.input, found.output, found.cache_read, found.cache_write, cost)
        for at, count in enumerate(map(valid_count, counts)):
            self._columns[at][row] = count
            self._has_fractions[at] = self._has_fractions[at] or isinstance(count, float)

    def totals(self) -> UsageTotals:
        # A valid count is exact in a column; the sum of many may not be, so integers are added as such.
        sums = [
            sum(column) if has_fractions else sum(map(int, column))
            for column, has_fractions in zip(self._columns, self._has_fractions, strict=True)
        ]
        fresh, output, cached, written, cost = sums
        return UsageTotals(len(self._sizes), fresh, output, cached, written, round(float(cost), 10))
