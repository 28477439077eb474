"""Policies: how many tokens a context may have before it is compacted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import Struct

from sessiontree.settings import Compaction

RESERVE = 16_384
"""Default number of tokens left free for the next answer."""


class Window(Struct, frozen=True):
    """Context window of a model."""

    tokens: int
    """Size of the window."""
    output: int = 0
    """Largest answer, if known."""
    model: str | None = None
    """Its name, as "provider/model"."""


class Policy(Protocol):
    """Decides when a context is too large.

    Contract: `limit` is the largest size that is not compacted yet; None for never. It depends on its argument alone.
    """

    def limit(self, window: Window) -> int | None: ...


class Reserve(Struct, frozen=True):
    """Compact when less than a reserve is free: Pi's rule. `models` has other reserves, by "provider/model"."""

    tokens: int = RESERVE
    models: Mapping[str, int] = msgspec.field(default_factory=dict)

    def limit(self, window: Window) -> int | None:
        return window.tokens - self.models.get(window.model or "", self.tokens)


class Ratio(Struct, frozen=True):
    """Compact when more than a share of the window is used."""

    share: float = 0.8

    def limit(self, window: Window) -> int | None:
        return int(window.tokens * self.share)


class Manual(Struct, frozen=True):
    """Compact only on request."""

    def limit(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        return None


_SMALLEST = 25_600
"""Neovate never compacts a context that is smaller than this."""

_LONGEST_OUTPUT = 32_000
_RESERVES = {32_768: 10_000, 65_536: 27_000, 131_072: 30_000, 200_000: 40_000}
"""Neovate's reserves for common window sizes."""


class Table(Struct, frozen=True):
    """Neovate's rule up to version 0.25.0: compact at the larger of two thresholds.

    One is the window minus a reserve from a table, the other is 90% of the window minus the largest answer.
    """

    def limit(self, window: Window) -> int | None:
        by_share = (window.tokens - min(window.output, _LONGEST_OUTPUT)) * 0.9
        reserve = _RESERVES.get(window.tokens)
        if reserve is None:
            by_size = max(window.tokens - 40_000, window.tokens * 0.8)
        else:
            by_size = float(window.tokens - reserve)
        return max(_below(max(by_share, by_size)), _SMALLEST - 1)


class Share(Struct, frozen=True):
    """Neovate's rule since version 0.25.1: more than 70% of the window, and never a small context."""

    share: float = 0.7

    def limit(self, window: Window) -> int | None:
        if window.tokens <= 0:
            return None
        return max(int(window.tokens * self.share), _SMALLEST - 1)


def _below(threshold: float) -> int:
    """Largest integer below a threshold."""
    return int(threshold) - 1 if threshold == int(threshold) else int(threshold)


def is_due(policy: Policy, tokens: int, window: Window) -> bool:
    """Whether a policy asks for a compaction of a context of this size."""
    limit = policy.limit(window)
    return limit is not None and tokens > limit


POLICIES: dict[str, Policy] = {
    "reserve": Reserve(),
    "table": Table(),
    "share": Share(),
    "ratio": Ratio(),
    "manual": Manual(),
}
"""Policies by name, with their defaults."""


def policy_of(settings: Compaction) -> Policy:
    """The policy for automatic compaction that the settings choose; `Manual` if it is off."""
    if not settings.enabled:
        return Manual()
    match settings.policy:
        case "reserve":
            return Reserve(settings.reserve_tokens)
        case "ratio":
            return Ratio(settings.ratio)
        case other:
            return POLICIES[other]
