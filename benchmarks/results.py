"""Results of benchmarks, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct


class Result(Struct, frozen=True, tag="result"):
    """One figure and the bound it must not exceed: a ratio of ours to a competitor, or memory, or a time.

    With `floor`, the figure must not be lower. A result without bound and floor is only informative.
    """

    name: str
    ours: str
    compared: str
    figure: float
    bound: float | None = None
    unit: Literal["x", "MB", "ms"] = "x"
    floor: float | None = None

    @property
    def ok(self) -> bool:
        return (self.bound is None or self.figure <= self.bound) and (self.floor is None or self.figure >= self.floor)


class Skipped(Struct, frozen=True, tag="skipped"):
    """A benchmark that could not run, and why."""

    name: str
    reason: str


Outcome: TypeAlias = Result | Skipped

_TITLES = ("name", "ours", "compared with", "figure", "bound", "ok")


def render_table(outcomes: Sequence[Outcome]) -> str:
    """One line per outcome, in columns."""
    rows = [_TITLES, *map(_row, outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruled = [rows[0], tuple("-" * width for width in widths), *rows[1:]]
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in ruled
    )


def _row(outcome: Outcome) -> tuple[str, str, str, str, str, str]:
    if isinstance(outcome, Skipped):
        return outcome.name, "skipped", outcome.reason, "", "", ""
    figure = _quantity(outcome.figure, outcome.unit)
    if outcome.bound is not None:
        bound = f"<= {_quantity(outcome.bound, outcome.unit)}"
    elif outcome.floor is not None:
        bound = f">= {_quantity(outcome.floor, outcome.unit)}"
    else:
        return outcome.name, outcome.ours, outcome.compared, figure, "", ""
    return outcome.name, outcome.ours, outcome.compared, figure, bound, "yes" if outcome.ok else "NO"


def _quantity(value: float, unit: str) -> str:
    return f"{value:.2f}x" if unit == "x" else f"{value:.0f} {unit}"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.{0 if seconds >= 0.1 else 1}f} ms"


def microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} us"


def megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB"
