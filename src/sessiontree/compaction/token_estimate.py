"""How many tokens a text, a message and a context have, when nobody has counted them.

Two estimates. `PI` is Pi's own arithmetic (a quarter of the UTF-16 length): with it a session is cut where Pi would
cut it. `MEASURED` knows that a token of Chinese, Japanese, Korean or code is shorter than one of English prose; with
it we judge whether a context fits a window. `counting` makes a third one from a real tokenizer. How far each is off is
measured by `python -m benchmarks.tokens` (see docs/compaction.md).

What a provider counted beats any estimate: a context is the last usage that can be trusted, and an estimate of what was
said since.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.compaction.system_prompt import current_system
from sessiontree.core.jsonio import render_json
from sessiontree.core.lazy_messages import LazyMessages
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    Content,
    CustomText,
    Image,
    Message,
    OtherMessage,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    User,
    message_text,
)
from sessiontree.core.usage import valid_count

Tokenizer: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text."""

Estimator: TypeAlias = Callable[[Message], int]
"""The tokens of a message."""

_PI_IMAGE = 4800
"""What an image counts, in characters, before the division by four."""

_FRAME = 4
"""Tokens around a message that its text does not show: role, borders."""

_FRAME_LENGTH = 16
"""What these are in characters."""

_MANY = 4096
_SAMPLE = 16
"""Of more messages than so many, one in so many is estimated."""

_GROUPS = 64
"""Or so many groups of neighbours, where messages are decoded when they are looked at."""

_LATIN = 0.25
_HAN = 0.80
_KANA = 0.82
_HANGUL = 0.86
_OTHER = 0.5
"""Tokens of one character: about halfway between what the vocabularies of two providers gave."""

_MARKS_IN_PROSE = 0.10
_MARKS_FACTOR = 0.5
"""Punctuation and digits make tokens short: in code as people write it hardly, in JSON, logs and ids very much. What a
text has of them above a tenth adds half as many tokens."""

_MARKS = b"{}[]()<>=;:_/\\|&*+#@$%^~`\"'0123456789"
_ASCII = bytes(range(128))
_SCRIPTS = (
    (re.compile("[\u2e80-\u2fdf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"), _HAN),
    (re.compile("[\u3000-\u30ff\u31f0-\u31ff\uff00-\uffef]+"), _KANA),
    (re.compile("[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff]+"), _HANGUL),
)


_IN_BLOCKS = (ToolResult, Assistant, User, CustomText)


class Size(Struct, frozen=True):
    """How large a context is: what the provider counted, if that can be trusted, and an estimate of the rest."""

    counted: int
    """Up to and with the last answer whose usage can be trusted; 0 when there is none."""
    estimated: int
    counted_until: int | None = None
    """The number of that answer among the messages."""

    @property
    def tokens(self) -> int:
        return self.counted + self.estimated


def utf16_length(text: str) -> int:
    """How long JavaScript takes a text to be."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def measured_tokens(text: str) -> int:
    """The tokens of a text by the kinds of its characters."""
    # Everything is taken out of the bytes at once: no other character has a byte of an ASCII one in it.
    raw = text.encode("utf-8", "surrogatepass")
    plain = len(raw)
    tokens = 0.0
    if not text.isascii():
        others = raw.translate(None, _ASCII)
        plain -= len(others)
        foreign = others.decode("utf-8", "surrogatepass")
        left = len(foreign)
        for script, factor in _SCRIPTS:
            count = sum(map(len, script.findall(foreign)))
            tokens += count * factor
            left -= count
        tokens += left * _OTHER
    if plain:
        unmarked = plain - len(raw) + len(raw.translate(None, _MARKS))
        tokens += plain * (_LATIN + _MARKS_FACTOR * max(0.0, 1 - unmarked / plain - _MARKS_IN_PROSE))
    return round(tokens)


def pi_tokens(message: Message) -> int:
    """The tokens of a message as Pi estimates them."""
    match message:
        case User() | CustomText() | ToolResult():
            characters = _pi_content(message.content)
        case System():
            sections = (message.sections or {}).values()
            characters = _pi_content(message.content) + sum(utf16_length(section) for section in sections if section)
            characters += _json_length(message.tools_added) if message.tools_added is not None else 0
        case Assistant():
            characters = _pi_answer(message.content)
        case BashExecution():
            characters = utf16_length(message.command) + utf16_length(message.output)
        case CompactionSummary() | BranchSummaryText():
            characters = utf16_length(message.summary)
        case OtherMessage():
            characters = 0
    return -(-characters // 4)


PI: Estimator = pi_tokens


def _pi_content(content: Content) -> int:
    if isinstance(content, str):
        return utf16_length(content)
    characters = 0
    for block in content:
        if isinstance(block, Text):
            characters += utf16_length(block.text)
        elif isinstance(block, Image):
            characters += _PI_IMAGE
    return characters


def _pi_answer(content: Content) -> int:
    if isinstance(content, str):
        return utf16_length(content)
    characters = 0
    for block in content:
        match block:
            case Text():
                characters += utf16_length(block.text)
            case Thinking():
                characters += utf16_length(block.thinking)
            case ToolCall():
                characters += utf16_length(block.name) + _json_length(block.arguments)
            case _:
                pass
    return characters


def _json_length(value: Any) -> int:
    try:
        raw = msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, or a number that only Python can hold
        return utf16_length(render_json(value).decode())
    return len(raw) if raw.isascii() else utf16_length(raw.decode())


def counting(tokenizer: Tokenizer, image: int = 1600) -> Estimator:
    """An estimate by a tokenizer: all that a message sends, an image at a flat number of tokens.

    An image of the largest size that providers do not shrink first has about 1,600 tokens.
    """

    def estimate(message: Message) -> int:
        texts, images = _sent(message)
        return _FRAME + image * images + sum(tokenizer(text) for text in texts if text)

    return estimate


MEASURED: Estimator = counting(measured_tokens)


def _sent(message: Message) -> tuple[list[str], int]:
    """The texts of a message and how many images it has."""
    if isinstance(message, System):
        tools = [] if message.tools_added is None else [_json(message.tools_added)]
        patched = [text for text in (message.sections or {}).values() if text]
        return [message_text(message), *patched, *tools], 0
    if not isinstance(message, _IN_BLOCKS) or isinstance(message.content, str):
        return [message_text(message)], 0
    texts: list[str] = []
    images = 0
    for block in message.content:
        match block:
            case Text():
                texts.append(block.text)
            case Thinking():
                texts.append(block.thinking)
            case ToolCall():
                texts += [block.name, _json(block.arguments)]
            case Image():
                images += 1
            case _:
                pass
    return texts, images


def _json(value: Any) -> str:
    return render_json(value).decode()


def used_tokens(usage: Usage) -> int:
    """What a request had in its context, with its answer."""
    return int(valid_count(usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write))


def trusted_usage(message: Message) -> Usage | None:
    """What an answer tells of the context's size: nothing, if it failed, was broken off, or counted nothing."""
    if not isinstance(message, Assistant) or message.usage is None or message.stop_reason in ("aborted", "error"):
        return None
    return message.usage if used_tokens(message.usage) > 0 else None


def context_size(messages: Sequence[Message], trusted_from: int = 0, estimate: Estimator = PI) -> Size:
    """How large a context is. Usage of messages before `trusted_from` tells of a context that is no more."""
    for at in range(len(messages) - 1, trusted_from - 1, -1):
        usage = trusted_usage(messages[at])
        if usage is not None:
            return Size(used_tokens(usage), sum(map(estimate, messages[at + 1 :])), at)
    return Size(0, estimated_size(messages, estimate))


def is_larger(messages: Sequence[Message], limit: int, estimate: Estimator = PI) -> bool:
    """Whether a context has more than so many tokens by estimates alone. Nothing is counted that does not matter."""
    if len(messages) > _MANY and sum(map(estimate, _sample(messages))) > limit:
        return True  # if only some of them are
    tokens = 0
    for message in messages:
        if not isinstance(message, System):
            tokens += estimate(message)
            if tokens > limit:
                return True
    system = current_system(messages)
    return system is not None and tokens + estimate(system) > limit


def estimated_size(messages: Sequence[Message], estimate: Estimator = PI) -> int:
    """A context by estimates alone. Of the system messages only what is in force counts, once.

    Of more messages than any model could read, most are judged by their length: the estimate of the others tells how
    many tokens that is. The length is that of what is sent, or if the messages are not decoded yet, that of their lines
    in the file. Pi's arithmetic is never shortened so, as it has to be equal.
    """
    if len(messages) > _MANY and estimate is not PI:
        tokens = _sampled_size(messages, estimate)
    else:
        tokens = sum(estimate(message) for message in messages if not isinstance(message, System))
    system = current_system(messages)
    return tokens if system is None else tokens + estimate(system)


def _sampled_size(messages: Sequence[Message], estimate: Estimator) -> int:
    """About what an estimate gives for many messages together."""
    lengths = messages.sizes() if isinstance(messages, LazyMessages) else list(map(_length, messages))
    length = sum([lengths[at] for at in _sampled(messages)])
    return round(sum(lengths) * sum(map(estimate, _sample(messages))) / max(1, length))


def _sampled(messages: Sequence[Message]) -> Sequence[int]:
    """Which of many messages are estimated: of those that are decoded together, all or none."""
    return messages.sample(_GROUPS) if isinstance(messages, LazyMessages) else range(0, len(messages), _SAMPLE)


def _sample(messages: Sequence[Message]) -> list[Message]:
    return [message for at in _sampled(messages) if not isinstance(message := messages[at], System)]


def _length(message: Message) -> int:
    """About how many characters are sent of a message, an image as many as its tokens are worth."""
    length = _FRAME_LENGTH
    if not isinstance(message, _IN_BLOCKS) or isinstance(message.content, str):
        return 0 if isinstance(message, System) else length + len(message_text(message))
    for block in message.content:
        if isinstance(block, Text):
            length += len(block.text)
        elif isinstance(block, ToolCall):
            length += sum([len(value) for value in block.arguments.values() if isinstance(value, str)])
        elif isinstance(block, Thinking):
            length += len(block.thinking)
        elif isinstance(block, Image):
            length += _PI_IMAGE
    return length
