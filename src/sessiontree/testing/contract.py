"""What all contract checks share: a failed expectation names its contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ContractError(AssertionError):
    """A contract does not hold."""


def expect(condition: bool, contract: str, found: object = "") -> None:
    """Raise unless the contract holds."""
    if not condition:
        raise ContractError(f"{contract}" + (f"; found: {found!r}" if found != "" else ""))


@contextmanager
def expect_error(kind: type[Exception], contract: str) -> Iterator[None]:
    """Raise unless the body raises an error of this kind."""
    try:
        yield
    except kind:
        return
    raise ContractError(f"{contract}; nothing of the kind {kind.__name__} was raised")
