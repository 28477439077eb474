"""Token estimates for texts, messages and contexts.

`PI` is Pi's own arithmetic (a quarter of the UTF-16 length): with it a session is cut where Pi would cut it. `MEASURED`
decides whether a context fits a window. It takes into account that tokens of Chinese, Japanese, Korean and code are
shorter than those of English prose. `tokenizer_estimator` makes an estimator from a real tokenizer. `python -m
benchmarks.tokens` measures their errors (see docs/compaction.md).

A provider's count beats any estimate: the size of a context is the last trustworthy usage plus an estimate of the
messages since.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.context import current_system
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import (
    Assistant,
    BashExecution,
    BranchSummaryText,
    CompactionSummary,
    Content,
    CustomText,
    Image,
    LazyMessages,
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
"""Estimates the tokens of a message."""

_PI_IMAGE = 4800
"""Characters that an image counts as, before the division by four."""

_FRAME = 4
"""Tokens of a message beyond its text: role, delimiters."""

_FRAME_LENGTH = 16
"""The same in characters."""

_MANY = 4096
_SAMPLE = 16
"""If there are more than `_MANY` messages, only one in `_SAMPLE` is estimated."""

_GROUPS = 64
"""Of lazily decoded messages, this many groups of neighbors are estimated instead: they are decoded together."""

_LATIN = 0.25
_HAN = 0.80
_KANA = 0.82
_HANGUL = 0.86
_OTHER = 0.5
"""Tokens per character: about the mean over the vocabularies of two providers."""

_MARKS_IN_PROSE = 0.10
_MARKS_FACTOR = 0.5
"""Punctuation and digits make tokens shorter: hardly in hand-written code, a lot in JSON, logs and ids. Above a share
of a tenth, each of these characters adds half a token."""

_MARKS = b"{}[]()<>=;:_/\\|&*+#@$%^~`\"'0123456789"
_ASCII = bytes(range(128))
_SCRIPTS = (
    (re.compile("[\u2e80-\u2fdf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"), _HAN),
    (re.compile("[\u3000-\u30ff\u31f0-\u31ff\uff00-\uffef]+"), _KANA),
    (re.compile("[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff]+"), _HANGUL),
)

_IN_BLOCKS = (ToolResult, Assistant, User, CustomText)


class Size(Struct, frozen=True):
    """Size of a context: the provider's count, if it can be trusted, and an estimate of the rest."""

    counted: int
    """Tokens up to and including the last answer with trustworthy usage; 0 if there is none."""
    estimated: int
    counted_until: int | None = None
    """Index of that answer."""

    @property
    def tokens(self) -> int:
        return self.counted + self.estimated


def utf16_length(text: str) -> int:
    """Length of a text in JavaScript."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def measured_tokens(text: str) -> int:
    """Estimate the tokens of a text by the scripts of its characters."""
    # ASCII bytes can be removed from the UTF-8 bytes in one call, because no other character contains one.
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
    """Estimate the tokens of a message as Pi does."""
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


def tokenizer_estimator(tokenizer: Tokenizer, image: int = 1600) -> Estimator:
    """Make an estimator from a tokenizer, with a fixed number of tokens per image.

    The largest image that providers do not scale down has about 1,600 tokens.
    """

    def estimate(message: Message) -> int:
        texts, images = _sent(message)
        return _FRAME + image * images + sum(tokenizer(text) for text in texts if text)

    return estimate


MEASURED: Estimator = tokenizer_estimator(measured_tokens)


def _sent(message: Message) -> tuple[list[str], int]:
    """Texts and number of images of a message."""
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
    """Tokens of a request and its answer."""
    return int(valid_count(usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write))


def trusted_usage(message: Message) -> Usage | None:
    """Usage of an answer, if it describes the context's size: None if the answer failed or counted nothing."""
    if not isinstance(message, Assistant) or message.usage is None or message.stop_reason in ("aborted", "error"):
        return None
    return message.usage if used_tokens(message.usage) > 0 else None


def context_size(messages: Sequence[Message], trusted_from: int = 0, estimate: Estimator = PI) -> Size:
    """Size of a context. Usage of messages before `trusted_from` describes an earlier context and is ignored."""
    for at in range(len(messages) - 1, trusted_from - 1, -1):
        usage = trusted_usage(messages[at])
        if usage is not None:
            return Size(used_tokens(usage), sum(map(estimate, messages[at + 1 :])), at)
    return Size(0, estimated_size(messages, estimate))


def is_larger(messages: Sequence[Message], limit: int, estimate: Estimator = PI) -> bool:
    """Whether a context is larger than a limit, by estimates alone; stops as soon as that is known."""
    if len(messages) > _MANY and sum(map(estimate, _sample(messages))) > limit:
        return True  # even the sample alone is larger
    tokens = 0
    for message in messages:
        if not isinstance(message, System):
            tokens += estimate(message)
            if tokens > limit:
                return True
    system = current_system(messages)
    return system is not None and tokens + estimate(system) > limit


def estimated_size(messages: Sequence[Message], estimate: Estimator = PI) -> int:
    """Size of a context by estimates alone; the system prompt in force counts once.

    Of very many messages only a sample is estimated; the rest is extrapolated from the length of the text. For messages
    that are not decoded yet, the length of their lines is used. Pi's arithmetic has to be exact and is never sampled.
    """
    if len(messages) > _MANY and estimate is not PI:
        tokens = _sampled_size(messages, estimate)
    else:
        tokens = sum(estimate(message) for message in messages if not isinstance(message, System))
    system = current_system(messages)
    return tokens if system is None else tokens + estimate(system)


def _sampled_size(messages: Sequence[Message], estimate: Estimator) -> int:
    """Extrapolate the estimate of many messages from a sample."""
    lengths = messages.sizes() if isinstance(messages, LazyMessages) else list(map(_length, messages))
    length = sum([lengths[at] for at in _sampled(messages)])
    return round(sum(lengths) * sum(map(estimate, _sample(messages))) / max(1, length))


def _sampled(messages: Sequence[Message]) -> Sequence[int]:
    """Indexes of the sample. Messages that are decoded together are all in it, or none of them is."""
    return messages.sample(_GROUPS) if isinstance(messages, LazyMessages) else range(0, len(messages), _SAMPLE)


def _sample(messages: Sequence[Message]) -> list[Message]:
    return [message for at in _sampled(messages) if not isinstance(message := messages[at], System)]


def _length(message: Message) -> int:
    """Approximate length of a message in characters; an image counts as many as its tokens are worth."""
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
