"""Messages that are decoded when they are looked at.

A path can hold a hundred megabytes of messages, and whoever asks for its context mostly looks at a few of them. How
many there are, and which entry is behind each, is known without decoding them. Who looks over all of them for what was
said and done asks for their gists, which need not be decoded in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import eq
from typing import overload

from sessiontree.core.messages import Assistant, Message, Text, ToolCall, ToolResult, User

_STEP = 16
"""How many are decoded together: neighbours stand side by side in the file."""


def gist_of(message: Message) -> Message:
    """What was said and done, without times and tokens, thinking, and what calls gave that did not fail."""
    match message:
        case User():
            return User(content=message.content)
        case Assistant(content=str()):
            return Assistant(content=message.content)
        case Assistant():
            return Assistant(content=tuple(block for block in message.content if isinstance(block, Text | ToolCall)))
        case ToolResult(is_error=True):
            return ToolResult(None, message.tool_call_id, message.tool_name, message.content, is_error=True)
        case ToolResult():
            return ToolResult(None, message.tool_call_id, message.tool_name)
        case _:
            return message


class LazyMessages(Sequence[Message]):
    """A sequence of messages like a tuple of them, equal to one, decoded step by step and then kept.

    `load` takes a range of positions and gives their messages; `skim` gives their gists, and `sizes` how many bytes of
    the file stand for each message: both only where that is quicker than to decode them. None of the messages is a
    system prompt, so that whoever asks for the one in force need not look.
    """

    def __init__(
        self,
        size: int,
        load: Callable[[range], list[Message]],
        skim: Callable[[range], list[Message]] | None = None,
        sizes: Callable[[range], list[int]] | None = None,
    ) -> None:
        self._found: list[Message | None] = [None] * size
        self._load = load
        self._skim = skim or (lambda positions: list(map(gist_of, self[positions.start : positions.stop])))
        self._sizes = sizes or (lambda positions: [1] * len(positions))
        self._gists: list[Message] | None = None
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

    def part(self, start: int, stop: int) -> LazyMessages:
        """Some neighbours, not decoded either."""

        def moved(positions: range) -> range:
            return range(positions.start + start, positions.stop + start)

        def load(positions: range) -> list[Message]:
            return list(self[positions.start + start : positions.stop + start])

        def skim(positions: range) -> list[Message]:
            with self._mutex:
                return self._skim(moved(positions))

        return LazyMessages(stop - start, load, skim, lambda positions: self._sizes(moved(positions)))

    def gists(self) -> Sequence[Message]:
        """The gist of each message (see `gist_of`)."""
        if self._gists is None:
            with self._mutex:
                self._gists = self._skim(range(len(self)))
        return self._gists

    def sizes(self) -> list[int]:
        """How many bytes of the file stand for each message; alike, where that is not known."""
        with self._mutex:
            return self._sizes(range(len(self)))

    def sample(self, groups: int) -> list[int]:
        """Positions evenly over all of them, in about so many groups of neighbours that are decoded together."""
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


def gists_of(messages: Sequence[Message]) -> Sequence[Message]:
    """Messages to look over: at least their gists, at the same places. What a result gave stands in `messages`."""
    return messages.gists() if isinstance(messages, LazyMessages) else messages
