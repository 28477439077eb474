"""A sequence of messages that decodes each one on first access.

A path can hold a hundred megabytes of messages, and most callers look at only a few of them. The number of messages and
the entry of each are known without decoding any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import eq
from typing import overload

from sessiontree.core.messages import Message

_STEP = 16
"""Number of messages decoded together: neighbors are adjacent in the file."""


class LazyMessages(Sequence[Message]):
    """A sequence that behaves like a tuple of messages and compares equal to one. Decoded messages are cached.

    `load` decodes a range of positions; `sizes` returns each message's size in the file without decoding it. No message
    is a system prompt, so a search for the current system prompt can skip the sequence.
    """

    def __init__(
        self,
        size: int,
        load: Callable[[range], list[Message]],
        sizes: Callable[[range], list[int]] | None = None,
    ) -> None:
        self._found: list[Message | None] = [None] * size
        self._load = load
        self._sizes = sizes or (lambda positions: [1] * len(positions))
        self._mutex: AbstractContextManager[object] = nullcontext()

    def guard(self, mutex: AbstractContextManager[object]) -> None:
        """Hold a mutex while loading: another thread may be writing the session."""
        self._mutex = mutex

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, at: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(at, slice):
            return tuple(map(self.__getitem__, range(*at.indices(len(self)))))
        message = self._found[at]
        if message is None:
            message = self._decoded(at % len(self._found))
        return message

    def _decoded(self, at: int) -> Message:
        step = range(at - at % _STEP, min(len(self._found), at - at % _STEP + _STEP))
        with self._mutex:
            messages = self._load(step)
        self._found[step.start : step.stop] = messages
        return messages[at - step.start]

    def part(self, start: int, stop: int) -> LazyMessages:
        """A slice of the sequence that is also decoded lazily."""

        def load(positions: range) -> list[Message]:
            return list(self[positions.start + start : positions.stop + start])

        def sizes(positions: range) -> list[int]:
            return self._sizes(range(positions.start + start, positions.stop + start))

        return LazyMessages(stop - start, load, sizes)

    def sizes(self) -> list[int]:
        """Size of each message in the file in bytes; all equal if the sizes are unknown."""
        with self._mutex:
            return self._sizes(range(len(self)))

    def sample(self, groups: int) -> list[int]:
        """Positions spread evenly, in about `groups` groups of neighbors that are decoded together."""
        apart = max(1, len(self) // (_STEP * groups)) * _STEP
        return [at for start in range(0, len(self), apart) for at in range(start, min(start + _STEP, len(self)))]

    def __iter__(self) -> Iterator[Message]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LazyMessages | tuple | list):
            return NotImplemented
        return self is other or (len(self) == len(other) and all(map(eq, self, other)))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
