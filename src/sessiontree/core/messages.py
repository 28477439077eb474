"""Canonical messages and their content blocks.

Names and fields are those of the native format, so that a native line decodes directly into them. Other dialects build
the same values from their own lines. Unknown blocks and messages are preserved in `OtherBlock` and `OtherMessage`.

`LazyMessages` is a sequence that decodes each message on first access. A path can hold a gigabyte of messages, and most
callers look at only a few of them, or at each of them once. The number of messages and the entry of each are known
without decoding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import eq
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast, overload

import msgspec

from sessiontree.core.jsonio import UNKNOWN_TAG, JsonObject, Value, convert_fields, struct_tag

T = TypeVar("T")

_STEP = 16
"""Number of messages decoded together: neighbors are adjacent in the file."""
_LONGEST_STEP = 4096
"""The same, for a reader that has already decoded that many messages before them."""

MAX_KEPT = 96 << 20
"""Size in the file up to which decoded content stays in memory as a whole. Decoded, it takes up to twice as much."""
CACHED_BYTES = 16 << 20
"""How much decoded content stays in memory if the whole is larger."""


def _written(default: T) -> T:
    """A field that is written even with its default: other programs read it without checking. The rest is omitted."""
    found: T = msgspec.field(default_factory=lambda: default)
    return found


def _no_arguments() -> JsonObject:
    return {}  # `dict` itself as the factory would omit them


class Text(Value, frozen=True, tag="text"):
    text: str = _written("")
    text_signature: str | None = None


class Thinking(Value, frozen=True, tag="thinking"):
    thinking: str = _written("")
    thinking_signature: str | None = None
    redacted: bool | None = None


class RedactedThinking(Value, frozen=True, tag="redactedThinking"):
    data: str = _written("")


class Image(Value, frozen=True, tag="image"):
    data: str = _written("")
    mime_type: str = _written("image/png")


class ToolCall(Value, frozen=True, tag="toolCall"):
    required_fields: ClassVar[Mapping[str, str]] = {
        "id": "the id that its result refers to",
        "name": "that of the tool",
    }

    id: str = ""
    name: str = ""
    arguments: JsonObject = msgspec.field(default_factory=_no_arguments)
    thought_signature: str | None = None


class OtherBlock(Value, frozen=True, tag=UNKNOWN_TAG):
    """A content block of an unknown type, unchanged."""

    kind: str
    fields: Any


Block: TypeAlias = Text | Thinking | RedactedThinking | Image | ToolCall | OtherBlock
Content: TypeAlias = str | tuple[Block, ...]

BLOCK_TYPES: dict[str, type[Block]] = {
    struct_tag(cls): cls for cls in (Text, Thinking, RedactedThinking, Image, ToolCall)
}


class Cost(Value, frozen=True):
    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    total: float = 0.0


class Usage(Value, frozen=True):
    """Tokens and cost of one request, as the provider counted them."""

    input: int | float = 0
    output: int | float = 0
    cache_read: int | float = 0
    cache_write: int | float = 0
    total_tokens: int | float = 0
    cost: Cost | None = None


class MessageBase(Value, frozen=True, tag_field="role"):
    """Fields of every message: a role, which is the tag of the union, and a time in milliseconds."""

    timestamp: int | float | None = None

    @property
    def role(self) -> str:
        return struct_tag(type(self))

    @property
    def text(self) -> str:
        """The message as plain text (see `message_text`)."""
        return message_text(cast("Message", self))


class User(MessageBase, frozen=True, tag="user"):
    content: Content = _written(())


class Assistant(MessageBase, frozen=True, tag="assistant"):
    content: Content = _written(())
    api: str | None = None
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    error_message: str | None = None
    response_id: str | None = None


class ToolResult(MessageBase, frozen=True, tag="toolResult"):
    required_fields: ClassVar[Mapping[str, str]] = {"toolCallId": "the id of the call that it answers"}

    tool_call_id: str = ""
    tool_name: str = _written("")
    content: Content = _written(())
    is_error: bool = _written(False)
    usage: Usage | None = None


class BashExecution(MessageBase, frozen=True, tag="bashExecution"):
    """A shell command that the user ran, with its output."""

    command: str = _written("")
    output: str = _written("")
    exit_code: int | None = None
    cancelled: bool = _written(False)
    truncated: bool = _written(False)
    full_output_path: str | None = None
    exclude_from_context: bool | None = None


class CustomText(MessageBase, frozen=True, tag="custom"):
    """A message added by an extension."""

    custom_type: str = _written("")
    content: Content = _written(())
    display: bool = _written(True)


class System(MessageBase, frozen=True, tag="system"):
    """The system prompt, or a change to it: sections replaced by name, tools added and removed."""

    content: Content = _written("")
    sections: dict[str, str | None] | None = None
    tools_added: list[Any] | None = None
    tools_removed: list[Any] | None = None


class CompactionSummary(MessageBase, frozen=True, tag="compactionSummary"):
    """Summary that replaces the older part of a path. Created while building a context, never stored as a message."""

    summary: str = ""
    tokens_before: int | float = 0


class BranchSummaryText(MessageBase, frozen=True, tag="branchSummary"):
    """Summary of another branch. Created while building a context, never stored as a message."""

    summary: str = ""
    from_id: str | None = None


class OtherMessage(MessageBase, frozen=True, tag=UNKNOWN_TAG):
    """A message with an unknown role, unchanged."""

    kind: str = ""
    fields: JsonObject = msgspec.field(default_factory=dict)

    @property
    def role(self) -> str:
        return self.kind

    @property
    def is_empty(self) -> bool:
        """Whether the entry had no message at all."""
        return not self.kind and not self.fields


Message: TypeAlias = (
    User
    | Assistant
    | ToolResult
    | BashExecution
    | CustomText
    | System
    | CompactionSummary
    | BranchSummaryText
    | OtherMessage
)

Role: TypeAlias = Literal["user", "assistant", "toolResult", "bashExecution", "custom", "system"]
"""Roles of messages that can be appended. Summaries are separate entries."""

MESSAGE_ROLES: dict[str, type[Message]] = {
    struct_tag(cls): cls
    for cls in (
        User,
        Assistant,
        ToolResult,
        BashExecution,
        CustomText,
        System,
        CompactionSummary,
        BranchSummaryText,
    )
}


def blocks_of(content: Content) -> tuple[Block, ...]:
    """Normalize content to blocks: a string becomes one text block."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    return content


def text_of(content: Content) -> str:
    """The text blocks of some content, one per line."""
    if isinstance(content, str):
        return content
    return "\n".join([block.text for block in content if isinstance(block, Text)])


def message_blocks(message: Message) -> tuple[Block, ...]:
    """The blocks of a message; the text of a message without blocks becomes one."""
    match message:
        case User() | Assistant() | ToolResult() | CustomText() | System():
            return blocks_of(message.content)
        case OtherMessage():
            return blocks_of(parse_content(message.fields.get("content")))
        case _:
            text = message_text(message)
            return (Text(text),) if text else ()


def message_text(message: Message) -> str:
    """A message as plain text: its text blocks, a command with its output, or a summary."""
    match message:
        case Assistant() | ToolResult() | User():  # the most frequent roles, so tested first
            return text_of(message.content)
        case BashExecution():
            return f"{message.command}\n{message.output}"
        case CompactionSummary() | BranchSummaryText():
            return message.summary
        case OtherMessage():
            return text_of(parse_content(message.fields.get("content")))
        case _:
            return text_of(message.content)


def tool_calls(message: Message) -> tuple[ToolCall, ...]:
    """The tool calls of an assistant message; empty for any other message."""
    if not isinstance(message, Assistant) or isinstance(message.content, str):
        return ()
    return tuple([block for block in message.content if isinstance(block, ToolCall)])


def parse_block(fields: Any) -> Block:
    """Build a block from any decoded JSON value."""
    if not isinstance(fields, dict):
        return OtherBlock(type(fields).__name__, fields)
    kind = fields.get("type")
    cls = BLOCK_TYPES.get(kind) if isinstance(kind, str) else None
    return convert_fields(cls, fields) if cls else OtherBlock(str(kind or ""), fields)


def parse_content(content: Any) -> Content:
    """Build content from decoded JSON: a string is kept, a list becomes blocks, null becomes no blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return tuple(parse_block(block) for block in content)
    return () if content is None else (parse_block(content),)


def parse_message(fields: Any) -> Message:
    """Build a message from any decoded JSON value."""
    if not isinstance(fields, dict):
        return OtherMessage(fields={"content": fields})
    role = fields.get("role")
    if role == "hookMessage":  # the role's name before version 3
        role = "custom"
    cls = MESSAGE_ROLES.get(role) if isinstance(role, str) else None
    if cls is None:
        return OtherMessage(kind=str(role or ""), fields=fields)
    if cls is System and fields.get("content") is None:  # Pi reads a prompt without content as an empty text
        fields = {**fields, "content": ""}
    return convert_fields(cls, fields, {"content": parse_content})


class LazyMessages(Sequence[Message]):
    """A sequence that behaves like a tuple of messages and compares equal to one.

    `load` decodes a range of positions; `sizes` returns each message's size in the file without decoding it. Decoded
    messages are cached: all of them if `sizes` add up to at most `capacity`, otherwise the last `CACHED_BYTES`. Others
    are decoded again on access. `systems` are the positions of system prompts, so that a search for the current system
    prompt decodes only those.
    """

    def __init__(
        self,
        size: int,
        load: Callable[[range], list[Message]],
        sizes: Callable[[range], list[int]] | None = None,
        systems: Sequence[int] = (),
        capacity: int = MAX_KEPT,
    ) -> None:
        self._found: list[Message | None] = [None] * size
        self._load = load
        self._sizes = sizes or (lambda positions: [1] * len(positions))
        self._mutex: AbstractContextManager[object] = nullcontext()
        self._capacity = capacity
        self._cached: deque[tuple[range, int]] = deque()
        """The cached ranges with their sizes, the first one decoded first."""
        self._cached_size = 0
        self._is_measured = False
        """Whether the size of all messages was compared with the capacity."""
        self.systems = systems

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
        # Start at a multiple of the step. A sequential reader, whose previous message is already decoded, gets twice as
        # many messages as it has: each load may be a round trip to a store.
        start = at - at % _STEP
        size = _STEP
        while size < _LONGEST_STEP and start >= size and None not in self._found[start - size : start]:
            size *= 2
        with self._mutex:
            step, weight = self._fitting(at, range(start, min(len(self._found), start + size)))
            messages = self._load(step)
            self._found[step.start : step.stop] = messages
            self._cached.append((step, weight))
            self._drop_excess(weight)
        return messages[at - step.start]

    def _fitting(self, at: int, step: range) -> tuple[range, int]:
        """As much of a range, from a position on, as leaves room for others in the cache, and its size in bytes."""
        sizes, limit = self._sizes(step), min(self._capacity, CACHED_BYTES) // 4
        if sum(sizes) <= limit:
            return step, sum(sizes)
        sizes = sizes[at - step.start :]
        count, weight = 1, sizes[0]
        while count < len(sizes) and weight + sizes[count] <= limit:
            weight += sizes[count]
            count += 1
        return range(at, at + count), weight

    def _drop_excess(self, added: int) -> None:
        """Drop the ranges decoded first if the cache exceeds its capacity, but not the one just added."""
        self._cached_size += added
        if self._cached_size > CACHED_BYTES and not self._is_measured:
            self._is_measured = True
            if sum(self._sizes(range(len(self)))) > self._capacity:
                self._capacity = min(self._capacity, CACHED_BYTES)
        while self._cached_size > self._capacity and len(self._cached) > 1:
            oldest, weight = self._cached.popleft()
            self._cached_size -= weight
            self._found[oldest.start : oldest.stop] = [None] * len(oldest)

    def part(self, start: int, stop: int) -> LazyMessages:
        """A slice of the sequence that is also decoded lazily."""

        def load(positions: range) -> list[Message]:
            return list(self[positions.start + start : positions.stop + start])

        def sizes(positions: range) -> list[int]:
            return self._sizes(range(positions.start + start, positions.stop + start))

        systems = [at - start for at in self.systems if start <= at < stop]
        return LazyMessages(stop - start, load, sizes, systems, self._capacity)

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
