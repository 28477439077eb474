"""Estimate the cost of usage that was recorded without one, from the dated price table in `models.json`.

The same estimate is used by every command, so that their numbers agree. Tokens that were written to a cache count as
ordinary input. A model is found by its name alone, as sessions of many agents do not record the provider: the price is
that of the provider that makes the model.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from sessiontree.core.usage import CostTotal, UnpricedUsage
from sessiontree.models.facts import Prices, packaged_prices, price_source


def estimate(used: UnpricedUsage) -> float | None:
    """US dollars for the usage of one model; None if a needed price is unknown."""
    prices = _prices(used.model)
    amounts = ((used.input, prices.input), (used.output, prices.output), (used.cached, prices.cache_read))
    if any(price is None for tokens, price in amounts if tokens):
        return None
    return sum(tokens * (price or 0.0) for tokens, price in amounts) / 1_000_000


def cost_total(recorded: float, unpriced: Iterable[UnpricedUsage]) -> CostTotal:
    """The cost of recorded and unrecorded usage together."""
    estimates = [estimate(used) for used in unpriced]
    known = [dollars for dollars in estimates if dollars is not None]
    total = recorded + sum(known)
    if not total:
        return CostTotal(None, "unknown")
    if len(known) < len(estimates):
        return CostTotal(total, "partial")
    return CostTotal(total, "estimated" if estimates else "recorded")


def describe_cost(total: CostTotal) -> str:
    """A cost in words, with the date of the prices if it is estimated."""
    date, source = price_source()
    match total.kind:
        case "recorded":
            return f"${total.text(4)}"
        case "estimated":
            return f"about ${total.dollars:.4f} (estimated from {source} of {date})"
        case "partial":
            return f"more than ${total.dollars:.4f} (the price of some requests is unknown; {source} of {date})"
        case _:
            return "unknown (no price is known for the model)"


@functools.cache
def _prices(model: str) -> Prices:
    return packaged_prices(model)
