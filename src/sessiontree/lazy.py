"""Messages that are decoded when they are looked at.

A path can hold a hundred megabytes of messages, and whoever asks for its context mostly looks at a few of them. How
many there are, and which entry is behind each, is known without decoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import eq
from typing import overload

from sessiontree.messages import Message

_STEP = 64
"""How many are decoded together: neighbours stand in the same block of the file."""


class LazyMessages(Sequence[Message]):
    """A sequence of messages like a tuple of them, equal to one, decoded step by step and then kept.

    `load` takes a range of positions and gives their messages.
    """

    def __init__(self, size: int, load: Callable[[range], list[Message]]) -> None:
        self._found: list[Message | None] = [None] * size
        self._load = load
        self._mutex: AbstractContextManager[object] = nullcontext()

    def guard(self, mutex: AbstractContextManager[object]) -> None:
        """Load only while holding a mutex: others read and write what is loaded from."""
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
