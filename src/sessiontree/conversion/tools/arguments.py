"""Strict parser of a call's arguments: expected types only, and no unknown argument.

Anything unexpected raises `NoEquivalentError`, which makes the call unmappable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

from sessiontree.conversion.tools.intents import GrepMode, Status

_LiteralT = TypeVar("_LiteralT", Status, GrepMode)

# The limit of setTimeout, which all of these clients use.
_LONGEST_MS = 2**31 - 1


class NoEquivalentError(Exception):
    """A call has no intent or no equivalent in the target. Never leaves this package."""


def require(condition: bool) -> None:
    if not condition:
        raise NoEquivalentError


class Arguments:
    """The arguments of one call, taken out one by one: `finish` fails if an unknown one is left."""

    def __init__(self, given: Mapping[str, Any], *, null_is_absent: bool) -> None:
        self._left = dict(given)
        if null_is_absent:
            self._left = {key: value for key, value in given.items() if value is not None}
        self.notes: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def take(self, key: str) -> Any:
        require(key in self._left)
        return self._left.pop(key)

    def text(self, key: str) -> str:
        return as_text(self._left.pop(key, None))

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self._left else None

    def path(self, key: str) -> str:
        return _plain_path(self.text(key))

    def optional_path(self, key: str) -> str | None:
        return self.path(key) if key in self._left else None

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._left.pop(key, default)
        if not isinstance(value, bool):
            raise NoEquivalentError
        return value

    def count(self, key: str, least: int = 1) -> int | None:
        if key not in self._left:
            return None
        value = _integer(self.take(key))
        require(value >= least)
        return value

    def milliseconds(self, key: str, factor: int = 1) -> int | None:
        if key not in self._left:
            return None
        given = _number(self.take(key)) * factor
        # Seconds may be fractions, and 0.1 * 1000 may not be exactly 100.
        nearest = round(given)
        require(0 < nearest <= _LONGEST_MS and math.isclose(nearest, given, rel_tol=1e-9))
        return nearest

    def expect(self, key: str, value: object) -> None:
        """Take an argument that is harmless only with this value."""
        require(self._left.pop(key, value) is value)

    def leave_out(self, key: str, note: str | None = None) -> None:
        """Take a descriptive argument and drop it."""
        if key in self._left:
            require(isinstance(self._left.pop(key), str | bool | int))
            if note is not None:
                self.notes.append(note)

    def finish(self) -> None:
        require(not self._left)


def _number(value: object) -> int | float:
    # JavaScript's numbers are not exact beyond this.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 2**53:
        raise NoEquivalentError
    return value


def _integer(value: object) -> int:
    number = _number(value)
    require(number == int(number))
    return int(number)


def _plain_path(path: str) -> str:
    """Require a path that names the same file for every agent: some expand a leading `~` or drop a leading `@`."""
    require(path != "" and not path.startswith(("~", "@")) and "://" not in path and "\x00" not in path)
    return path


def as_object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict) and not isinstance(value, Mapping):  # checking for Mapping is slow
        raise NoEquivalentError
    return value


def as_list(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise NoEquivalentError
    return list(value)


def as_text(value: object) -> str:
    if not isinstance(value, str):
        raise NoEquivalentError
    return value


def one_of(value: object, choices: tuple[_LiteralT, ...]) -> _LiteralT:
    for choice in choices:
        if choice == value:
            return choice
    raise NoEquivalentError
