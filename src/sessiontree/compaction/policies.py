"""When to compact: policies, each an exact rule over numbers.

A policy says how many tokens a context may have before it is compacted. It looks at nothing else, so one can be asked
about any window and any size; which usage may be believed is said by `estimate` and `projection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec
from msgspec import Struct

from sessiontree.settings import Compaction

RESERVE = 16_384
"""Tokens that are left free for the next answer, when nothing else is said."""


class Window(Struct, frozen=True):
    """What is known of the model that a context is for."""

    tokens: int
    """How many tokens its context may have."""
    output: int = 0
    """How many of them it may answer with, if that is known."""
    model: str | None = None
    """Its name, as "provider/model"."""


class Policy(Protocol):
    """Says when a context is too large.

    Contract: `limit` is the largest number of tokens that is not compacted yet; None for never. It depends on its
    argument alone.
    """

    def limit(self, window: Window) -> int | None: ...


class Reserve(Struct, frozen=True):
    """Compact when less than a reserve is free: Pi's rule. A model may have a reserve of its own ("provider/model")."""

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
    """Compact only when somebody asks for it."""

    def limit(self, window: Window) -> int | None:  # noqa: ARG002 - it never comes to that
        return None


_SMALLEST = 25_600
"""Neovate leaves contexts alone that are smaller than this."""

_LONGEST_OUTPUT = 32_000
_RESERVES = {32_768: 10_000, 65_536: 27_000, 131_072: 30_000, 200_000: 40_000}
"""What Neovate keeps free in windows of the usual sizes."""


class Table(Struct, frozen=True):
    """Neovate's rule up to version 0.25.0: a table of reserves, and nine tenths of what the answer leaves.

    The larger of both counts, and a context that reaches it is compacted.
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
    """Neovate's rule since version 0.25.1: more than seven tenths of the window, and never a small context."""

    share: float = 0.7

    def limit(self, window: Window) -> int | None:
        if window.tokens <= 0:
            return None
        return max(int(window.tokens * self.share), _SMALLEST - 1)


def _below(threshold: float) -> int:
    """The largest whole number below a threshold that must not be reached."""
    return int(threshold) - 1 if threshold == int(threshold) else int(threshold)


def is_due(policy: Policy, tokens: int, window: Window) -> bool:
    """Whether a context of so many tokens is compacted."""
    limit = policy.limit(window)
    return limit is not None and tokens > limit


POLICIES: dict[str, Policy] = {
    "reserve": Reserve(),
    "table": Table(),
    "share": Share(),
    "ratio": Ratio(),
    "manual": Manual(),
}
"""The policies by name, each with what it does when nothing else is said."""


def policy_of(settings: Compaction) -> Policy:
    """When the settings want a context to be compacted by itself."""
    if not settings.enabled:
        return Manual()
    match settings.policy:
        case "reserve":
            return Reserve(settings.reserve_tokens)
        case "ratio":
            return Ratio(settings.ratio)
        case other:
            return POLICIES[other]
