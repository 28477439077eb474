"""Scripts for a fake model, turn by turn. For tests and demonstrations.

    {"turns": [{"text": "Let me look.", "toolCalls": [{"name": "read", "arguments": {"path": "a.py"}}]},
               {"when": "def main", "text": "It is a program."}]}

The same script is played by `ScriptedModel` in the process and by `sessiontree.testing.model_server` over HTTP.
"""

from __future__ import annotations

import threading
from typing import Literal, TypeAlias

import msgspec

from sessiontree.core.jsonio import JsonObject, Value, parse_json
from sessiontree.core.messages import Usage
from sessiontree.errors import DamagedError, NotFoundError

ErrorKind: TypeAlias = Literal["rate_limit", "overloaded", "server", "overflow", "auth", "refused", "quota"]


class ScriptCall(Value, frozen=True):
    name: str
    arguments: JsonObject = msgspec.field(default_factory=dict)
    id: str | None = None


class ScriptError(Value, frozen=True):
    """The request fails with the provider's own kind of error."""

    kind: ErrorKind
    retry_after: float | None = None
    in_stream: bool = False
    """Fail inside the answer, after the content of the turn was sent."""


class ScriptTurn(Value, frozen=True):
    """One answer: thinking, then text, then calls, in that order."""

    thinking: str | None = None
    signature: str = "c2lnbmVkIGJ5IGEgc2NyaXB0"
    """Fake signature of the thinking."""
    redacted: str | None = None
    """Redacted thinking."""
    text: str | None = None
    tool_calls: tuple[ScriptCall, ...] = ()
    usage: Usage | None = None
    """Reported usage; by default computed from the lengths."""
    stop: Literal["stop", "length", "refusal"] | None = None
    delay: float = 0.0
    """Seconds before each delta."""
    first_delay: float = 0.0
    """Seconds before the first event."""
    piece: int = 16
    """Characters per delta."""
    error: ScriptError | None = None
    drop_after: int | None = None
    """Break the connection after this many deltas."""
    when: str | None = None
    """Use this turn only if the last message of the request contains this text."""
    repeat: bool = False
    """The turn may be used any number of times."""


class Script(Value, frozen=True):
    turns: tuple[ScriptTurn, ...]


class ScriptPlayer:
    """Plays a script: each request gets the first unused turn that matches. Thread-safe."""

    def __init__(self, script: Script) -> None:
        self._turns = list(script.turns)
        self._lock = threading.Lock()

    def next_turn(self, last_message: str) -> ScriptTurn | None:
        """The turn for a request with this last message; None at the end of the script."""
        with self._lock:
            for index, turn in enumerate(self._turns):
                if turn.when is None or turn.when in last_message:
                    if not turn.repeat:
                        del self._turns[index]
                    return turn
        return None


def parse_script(data: bytes) -> Script:
    """Parse a script from JSON; ValueError if it is invalid."""
    return msgspec.convert(parse_json(data), Script)


def read_script(path: str) -> Script:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such script") from None
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return parse_script(data)
    except ValueError as error:
        raise DamagedError(f"{path}: not a valid script: {error}") from None


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), max(size, 1))]


def usage_of(turn: ScriptTurn, request_size: int) -> Usage:
    """Usage of a turn; by default four characters count as a token."""
    if turn.usage is not None:
        return turn.usage
    length = len(turn.thinking or "") + len(turn.text or "") + sum(len(str(call.arguments)) for call in turn.tool_calls)
    used, given = request_size // 4 + 1, length // 4 + 1
    return Usage(used, given, total_tokens=used + given)
