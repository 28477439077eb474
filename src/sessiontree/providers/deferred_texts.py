"""Long texts of messages, replaced by short tokens while a request is composed, and inserted when it is printed.

The rules of a provider need all turns at once, but only their ids, names and order. So a request for a huge session is
composed without its long texts, and each message gets them back when it is printed.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sessiontree.core.messages import Image, Message, Text, Thinking, ToolCall
from sessiontree.providers.turns import Answer, AssistantBlock, AssistantTurn, ResultsTurn, Turn, UserBlock, UserTurn

_LONG = 1024
"""Characters from which on a text is replaced."""


class DeferredTexts:
    """Replaces long texts in turns with tokens, and tokens in rendered messages with the texts."""

    def __init__(
        self, messages: Sequence[Message], to_turn: Callable[[Message], Turn | None], *, encodes_arguments: bool
    ) -> None:
        self._messages = messages
        self._to_turn = to_turn
        self._encodes_arguments = encodes_arguments
        """Whether the form has arguments as JSON in a string."""
        mark = secrets.token_hex(8)  # session content cannot contain a token
        self._token = f"<{mark}:%d:%d:%s>"
        self._pattern = re.compile(f"<{mark}:(\\d+):(\\d+):([^>]*)>")
        self._names: dict[str, int] = {}
        """Numbers of the names of arguments, which may contain any character."""
        self._name_of: list[str] = []
        self._latest: tuple[int, Turn | None] = (-1, None)
        """The position of the message that was converted last, and its turn."""

    def shorten(self, position: int, turn: Turn) -> Turn:
        """Return the turn of a message without its long texts."""
        match turn:
            case UserTurn():
                return UserTurn(tuple(self._user_block(position, *block) for block in enumerate(turn.blocks)))
            case ResultsTurn(answers=(answer,)):
                blocks = tuple(self._user_block(position, *block) for block in enumerate(answer.blocks))
                return ResultsTurn((Answer(answer.call_id, blocks, answer.is_error, answer.tool_name),))
            case AssistantTurn():
                blocks_ = tuple(self._assistant_block(position, *block) for block in enumerate(turn.blocks))
                return msgspec.structs.replace(turn, blocks=blocks_)
            case _:
                return turn

    def insert(self, value: Any) -> Any:
        """Return a part of a rendered message with its texts."""
        if isinstance(value, str):
            return self._pattern.sub(self._find, value)
        if isinstance(value, list):
            return [self.insert(item) for item in value]
        return {name: self.insert(item) for name, item in value.items()} if isinstance(value, dict) else value

    def _user_block(self, position: int, number: int, block: UserBlock) -> UserBlock:
        if isinstance(block, Image):
            return Image(self._short(block.data, position, number), block.mime_type)
        return Text(self._short(block.text, position, number), block.text_signature)

    def _assistant_block(self, position: int, number: int, block: AssistantBlock) -> AssistantBlock:
        match block:
            case Text():
                return Text(self._short(block.text, position, number), block.text_signature)
            case Thinking():
                thinking = self._short(block.thinking, position, number)
                return Thinking(thinking, block.thinking_signature, block.redacted)
            case ToolCall():
                arguments = {
                    name: self._short_argument(name, value, position, number) for name, value in block.arguments.items()
                }
                return ToolCall(block.id, block.name, arguments, block.thought_signature)
            case _:
                return block

    def _short(self, text: str, position: int, number: int) -> str:
        return text if len(text) < _LONG else self._token % (position, number, "")

    def _short_argument(self, name: str, value: object, position: int, number: int) -> object:
        if not isinstance(value, str) or len(value) < _LONG:
            return value
        if name not in self._names:
            self._names[name] = len(self._name_of)
            self._name_of.append(name)
        return self._token % (position, number, self._names[name])

    def _find(self, token: re.Match[str]) -> str:
        position, number, name = int(token[1]), int(token[2]), token[3]
        if self._latest[0] != position:
            self._latest = position, self._to_turn(self._messages[position])
        turn = self._latest[1]
        assert turn is not None
        block = (turn.answers[0] if isinstance(turn, ResultsTurn) else turn).blocks[number]
        match block:
            case Text():
                return block.text
            case Image():
                return block.data
            case Thinking():
                return block.thinking
            case ToolCall():
                text = str(block.arguments[self._name_of[int(name)]])
                return json.dumps(text, ensure_ascii=False)[1:-1] if self._encodes_arguments else text
            case _:
                raise AssertionError("redacted thinking is never shortened")
