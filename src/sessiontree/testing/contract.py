"""Expectations for contract checks: a failure names the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ContractError(AssertionError):
    """A contract check failed."""


def expect(condition: bool, contract: str, found: object = "") -> None:
    if not condition:
        raise ContractError(f"{contract}" + (f"; found: {found!r}" if found != "" else ""))


@contextmanager
def expect_error(kind: type[Exception], contract: str) -> Iterator[None]:
    """Raise unless the body raises an error of this kind."""
    try:
        yield
    except kind:
        return
    raise ContractError(f"{contract}; no {kind.__name__} was raised")
