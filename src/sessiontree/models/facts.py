"""Facts about models: context window, largest answer, prices.

They are in `models.json` in this folder, by "provider/model". A user's file of the same form adds to them and
overrides them field by field. Prices are in US dollars per million tokens, for short requests without discounts.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping

import msgspec

from sessiontree.core.jsonio import Value, parse_json
from sessiontree.core.messages import Cost, Usage
from sessiontree.errors import DamagedError, NotFoundError

UNKNOWN_WINDOW = 128_000
UNKNOWN_OUTPUT = 8_192

_PACKAGED = os.path.join(os.path.dirname(__file__), "models.json")
# Providers publish a model under its name and under its name with a date.
_DATE = r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)\Z"


class Prices(Value, frozen=True):
    """US dollars per million tokens; None if unknown, or if the model has no cache."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None

    @property
    def are_known(self) -> bool:
        """Whether costs can be computed, so that a cost limit can be enforced."""
        return self.input is not None and self.output is not None


class Facts(Value, frozen=True, omit_defaults=False):
    """Facts about one model."""

    window: int = UNKNOWN_WINDOW
    """Largest request in tokens."""
    output: int = UNKNOWN_OUTPUT
    """Largest answer in tokens."""
    prices: Prices = Prices()
    source: str = ""
    """The name these facts were found under; empty for an unknown model, whose numbers are a guess."""

    @property
    def is_known(self) -> bool:
        return bool(self.source)


class _Entry(Value, frozen=True):
    window: int | None = None
    output: int | None = None
    prices: Prices | None = None


class _File(Value, frozen=True):
    models: dict[str, _Entry]


def read_facts(path: str | None = None) -> dict[str, Facts]:
    """Read all facts, with those of a user's file taking precedence."""
    facts = dict(_packaged())
    if path is not None:
        for name, entry in _read(os.path.expanduser(path)).items():
            known = facts.get(name, Facts())
            facts[name] = Facts(
                known.window if entry.window is None else entry.window,
                known.output if entry.output is None else entry.output,
                _override_prices(known.prices, entry.prices),
                name,
            )
    return facts


def find_facts(provider: str, model: str, known: Mapping[str, Facts] | None = None) -> Facts:
    """Find the facts of a model; for an unknown model a guess (see `is_known`).

    Searched by full name, then without the date, then for any provider, because many servers offer the same models.
    """
    facts = _packaged() if known is None else known
    undated = re.sub(_DATE, "", model)
    bare = model.rpartition("/")[2]
    for name in (f"{provider}/{model}", f"{provider}/{undated}"):
        if name in facts:
            return facts[name]
    for wanted in (bare, re.sub(_DATE, "", bare)):
        found = next((facts[name] for name in sorted(facts) if name.partition("/")[2] == wanted), None)
        if found is not None:
            # The same model at another provider has the same window, but other prices.
            return msgspec.structs.replace(found, prices=Prices())
    return Facts()


def cost_of(usage: Usage, prices: Prices) -> Cost | None:
    """Cost of a request; None when a needed price is unknown."""
    amounts = (
        (usage.input, prices.input),
        (usage.output, prices.output),
        (usage.cache_read, prices.cache_read),
        (usage.cache_write, prices.cache_write),
    )
    if prices.input is None or any(price is None for tokens, price in amounts if tokens):
        return None
    read, written, cache_read, cache_write = (tokens * (price or 0.0) / 1_000_000 for tokens, price in amounts)
    return Cost(read, written, cache_read, cache_write, read + written + cache_read + cache_write)


def upper_cost(usage: Usage, prices: Prices) -> Cost | None:
    """Upper bound of a request's cost: cached tokens without a price of their own count as uncached ones."""
    known = [price if price is not None else prices.input for price in (prices.cache_read, prices.cache_write)]
    return cost_of(usage, Prices(prices.input, prices.output, *known))


def packaged_prices(model: str) -> Prices:
    """The prices of a model at the provider that makes it, by its name with or without a date; empty if unknown."""
    facts = _packaged()
    bare = model.rpartition("/")[2].rpartition(":")[2]
    for wanted in (bare, re.sub(_DATE, "", bare)):
        found = next((facts[name] for name in sorted(facts) if name.partition("/")[2] == wanted), None)
        if found is not None:
            return found.prices
    return Prices()


@functools.cache
def price_source() -> tuple[str, str]:
    """The date of the packaged prices, and where they come from."""
    with open(_PACKAGED, "rb") as file:
        fields = parse_json(file.read())
    return fields["date"], fields["source"]


@functools.cache
def _packaged() -> dict[str, Facts]:
    return {
        name: Facts(entry.window or UNKNOWN_WINDOW, entry.output or UNKNOWN_OUTPUT, entry.prices or Prices(), name)
        for name, entry in _read(_PACKAGED).items()
    }


def _read(path: str) -> dict[str, _Entry]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file (setting `models`: a file with facts about models)") from None
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        entries = msgspec.convert(parse_json(data), _File).models
    except ValueError as error:  # includes msgspec's errors, which name the field
        raise DamagedError(f"{path}: not a file with facts about models: {error}") from None
    wrong = next((name for name in entries if "/" not in name), None)
    if wrong is not None:
        raise DamagedError(f'{path}: {wrong!r} is not a model name: expected "provider/model"')
    return entries


def _override_prices(known: Prices, overrides: Prices | None) -> Prices:
    if overrides is None:
        return known
    return Prices(
        *(
            getattr(known, name) if (price := getattr(overrides, name)) is None else price
            for name in Prices.__struct_fields__
        )
    )
