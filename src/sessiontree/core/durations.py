"""The grammar of durations, the same in every option, filter and limit: a number and a unit, such as 90s, 12h or 6mo.

`m` is minutes and `mo` is months, of 30 days. A capital M could be either, and is refused.
"""

from __future__ import annotations

import re

from msgspec import Struct

from sessiontree.errors import UsageError

_DAY = 86_400
_UNITS = {
    "s": (1, "second"),
    "m": (60, "minute"),
    "min": (60, "minute"),
    "h": (3_600, "hour"),
    "d": (_DAY, "day"),
    "w": (7 * _DAY, "week"),
    "mo": (30 * _DAY, "month"),
    "y": (365 * _DAY, "year"),
}
UNITS = "s, m (minutes), h, d, w, mo (months), y"
"""The units, for messages."""

_DURATION = r"(?a)(?P<number>\d{1,6}(?:\.\d{1,6})?)(?P<unit>mo|min|[smhdwy]|[SHDWY]|MO|Mo)\Z"


class Duration(Struct, frozen=True):
    """A duration, and its meaning in words."""

    seconds: float
    text: str
    """Such as `6 months`."""
    is_short: bool
    """Whether it was given in seconds or minutes."""


def parse_duration(text: str) -> Duration | None:
    """Parse a duration; None for any other text."""
    found = re.match(_DURATION, text.strip())
    if found is None:
        return None
    seconds, name = _UNITS[found["unit"].lower()]
    number = found["number"]
    return Duration(float(number) * seconds, f"{number} {name}{'' if number == '1' else 's'}", seconds < 3_600)


def parse_age(text: str) -> Duration:
    """Parse an age for which minutes make no sense, so that `6m` was meant as months: it is refused."""
    found = parse_duration(text)
    if found is None:
        raise UsageError(f"{text!r} is not a duration; use a number and h, d, w, mo (months) or y, such as 30d")
    if found.is_short:
        number = re.match(r"[\d.]+", text.strip())
        months = f"{number[0] if number else ''}mo"
        raise UsageError(f"{text!r} means {found.text}; for months write {months}, for a short time use hours (1h)")
    return found
