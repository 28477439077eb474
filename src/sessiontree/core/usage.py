"""Totals of a session's usage: tokens, cost, requests."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sessiontree.core.entries import (
    ENTRY_TYPES,
    BranchSummary,
    Compaction,
    Entry,
    MessageEntry,
    ModelChange,
    UsageRecord,
)
from sessiontree.core.jsonio import Value
from sessiontree.core.messages import Assistant, Cost, ToolResult, Usage

USAGE_TYPES = frozenset(kind for kind, cls in ENTRY_TYPES.items() if {"message", "usage"} & {*cls.__struct_fields__})
"""Types of entries that may report usage."""
REQUEST, RESPONSE = "request", "response"
"""The kinds of usage records that belong to the conversation: reported by the client, or copied by a conversion."""

_LARGEST = 2**53
_NO_COST = Cost()
_COST, _SIZE, _MODEL, _IS_PRICED = 4, 5, 6, 7
_EMPTY_ROW = array("d", [0] * 8)
"""The cells of a response: input, output, cached and cache-written tokens, then those named above."""


class UnpricedUsage(Value, frozen=True, array_like=True):
    """Tokens of one model whose requests have no recorded cost."""

    model: str
    input: int | float = 0
    """Uncached tokens, and those written to the provider's cache."""
    output: int | float = 0
    cached: int | float = 0


CostKind: TypeAlias = Literal["recorded", "estimated", "partial", "unknown"]
"""Recorded by the agent; estimated from a price table; without some requests, whose price is unknown; or unknown."""


class CostTotal(Struct, frozen=True):
    """A cost in US dollars, and where it comes from."""

    dollars: float | None
    kind: CostKind

    def text(self, digits: int = 2) -> str:
        """`0.12`, `~0.12` if it is estimated, `>0.12` if a part is unknown, `?` if it is unknown; never zero."""
        if self.dollars is None:
            return "?"
        sign = {"estimated": "~", "partial": ">"}.get(self.kind, "")
        least = 10**-digits
        return f"<{least:.{digits}f}" if self.dollars < least / 2 else f"{sign}{self.dollars:,.{digits}f}"


class UsageTotals(Value, frozen=True, omit_defaults=False):
    """Usage of a session. `input` counts uncached tokens; `cached` those read from the provider's cache."""

    requests: int = 0
    input: int | float = 0
    output: int | float = 0
    cached: int | float = 0
    cache_written: int | float = 0
    cost: float = 0.0
    """Recorded cost, without that of `unpriced` requests."""
    unpriced: tuple[UnpricedUsage, ...] = ()
    """By model, the requests without a recorded cost."""


def recorded_cost(cost: float) -> float | None:
    """The recorded cost in dollars; None if no cost was recorded: that is unknown, not 0."""
    return round(cost, 6) if cost else None


def unpriced_totals(used: Iterable[UnpricedUsage]) -> tuple[UnpricedUsage, ...]:
    """Sum usage by model, in the order of the models' names. Negative parts are subtracted."""
    sums: dict[str, UnpricedUsage] = {}
    for one in used:
        known = sums.get(one.model, UnpricedUsage(one.model))
        sums[one.model] = UnpricedUsage(
            one.model, known.input + one.input, known.output + one.output, known.cached + one.cached
        )
    return tuple(one for _, one in sorted(sums.items()) if one.input or one.output or one.cached)


def usage_of(entry: Entry) -> Usage | None:
    """Usage of the request that produced an entry; None if there was no request.

    Clients that require the fields write zeros where nothing was counted, so all-zero usage counts as none, and a zero
    cost as unknown.
    """
    match entry:
        case MessageEntry(message=Assistant(usage=usage) | ToolResult(usage=usage)):
            pass
        case Compaction(usage=usage) | BranchSummary(usage=usage) | UsageRecord(usage=usage):
            pass
        case _:
            return None
    if usage is None or usage.cost not in (None, _NO_COST):
        return usage
    if not _size(usage) and not usage.total_tokens:
        return None
    return usage if usage.cost is None else replace(usage, cost=None)


def response_key(entry: Entry) -> str:
    """Key shared by the lines of one response: the provider's response id, else the entry's own id."""
    if isinstance(entry, UsageRecord):
        return entry.response_id or entry.id
    message = entry.message if isinstance(entry, MessageEntry) else None
    return (message.response_id if isinstance(message, Assistant) else None) or entry.id


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
    known so far; the largest counts. Responses are rows of numbers: a session can have half a million of them.
    """

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        """By response: where its row starts."""
        self._cells = array("d")
        self._has_fractions = [False] * 4
        """By kind of tokens: whether a count is not an integer."""
        self._models: dict[str, int] = {"": 0}
        self._model = ""
        """The model of the requests that do not name it themselves."""

    def add(self, entry: Entry) -> int | None:
        """Add an entry; returns the number of its response, or None if it reports no usage."""
        if isinstance(entry, ModelChange):
            self._model = entry.selector or self._model
        found = usage_of(entry)
        if found is None:
            return None
        cells, response = self._cells, response_key(entry)
        size = max(-1e300, min(_size(found), 1e300))  # an integer may be too large for a cell
        start = self._rows.get(response)
        if start is None:
            start = self._rows[response] = len(cells)
            cells.extend(_EMPTY_ROW)
        model = model_of(entry) or (self._model if is_request(entry) else "")
        if model:
            cells[start + _MODEL] = self._models.setdefault(model, len(self._models))
        if response == entry.id or size >= cells[start + _SIZE]:
            cells[start + _SIZE] = size
            cells[start + _IS_PRICED] = found.cost is not None
            cells[start + _COST] = 0.0 if found.cost is None else valid_count(found.cost.total)
            for at, count in enumerate((found.input, found.output, found.cache_read, found.cache_write)):
                cells[start + at] = valid_count(count)
                if isinstance(count, float):
                    self._has_fractions[at] = True
        return start // len(_EMPTY_ROW)

    def __len__(self) -> int:
        """The number of responses."""
        return len(self._rows)

    def counts(self, row: int) -> tuple[float, float, float, float, float | None]:
        """What a response used: input, output, cached and cache-written tokens, and its recorded cost."""
        start = row * len(_EMPTY_ROW)
        cells = self._cells[start : start + len(_EMPTY_ROW)]
        read, written, cached, cache_written = (
            cell if has_fractions else int(cell)
            for cell, has_fractions in zip(cells, self._has_fractions, strict=False)
        )
        return read, written, cached, cache_written, cells[_COST] if cells[_IS_PRICED] else None

    def totals(self) -> UsageTotals:
        # A valid count is exact in a cell; the sum of many may not be, so integers are added as such.
        read, written, cached, cache_written = (
            sum(self._column(at)) if has_fractions else sum(map(int, self._column(at)))
            for at, has_fractions in enumerate(self._has_fractions)
        )
        cost, unpriced = sum(self._column(_COST)), unpriced_totals(self._unpriced())
        return UsageTotals(len(self), read, written, cached, cache_written, round(cost, 10), unpriced=unpriced)

    def _unpriced(self) -> Iterator[UnpricedUsage]:
        """The usage of each response without a recorded cost."""
        names = list(self._models)
        for row, (is_priced, model) in enumerate(zip(self._column(_IS_PRICED), self._column(_MODEL), strict=True)):
            if not is_priced:
                read, written, cached, cache_written, _ = self.counts(row)
                yield UnpricedUsage(names[int(model)], read + cache_written, written, cached)

    def _column(self, at: int) -> array[float]:
        return self._cells[at :: len(_EMPTY_ROW)]


def model_of(entry: Entry) -> str:
    """The model that produced an entry; empty if it is not recorded."""
    if isinstance(entry, UsageRecord):
        return entry.model or ""
    message = entry.message if isinstance(entry, MessageEntry) else None
    return (message.model or "") if isinstance(message, Assistant) else ""


def is_request(entry: Entry) -> bool:
    """Whether an entry reports, on a separate line, the usage of a request in the conversation."""
    return isinstance(entry, UsageRecord) and entry.kind == REQUEST


def unpriced_usage(model: str, usage: Usage) -> UnpricedUsage:
    return UnpricedUsage(
        model,
        valid_count(usage.input) + valid_count(usage.cache_write),
        valid_count(usage.output),
        valid_count(usage.cache_read),
    )
