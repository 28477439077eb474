"""Scripts: what a model that is none answers, turn by turn. For tests and demonstrations.

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
    """The request fails, the way each provider says it."""

    kind: ErrorKind
    retry_after: float | None = None
    in_stream: bool = False
    """Only after what the turn says was sent, inside the answer."""


class ScriptTurn(Value, frozen=True):
    """One answer: thinking, then text, then calls, in that order."""

    thinking: str | None = None
    signature: str = "c2lnbmVkIGJ5IGEgc2NyaXB0"
    """What stands for the provider's signature of the thinking."""
    redacted: str | None = None
    """Thinking that only its provider could read."""
    text: str | None = None
    tool_calls: tuple[ScriptCall, ...] = ()
    usage: Usage | None = None
    """What the answer is said to have used; made up from the lengths when it is not given."""
    stop: Literal["stop", "length", "refusal"] | None = None
    delay: float = 0.0
    """Seconds before each piece."""
    first_delay: float = 0.0
    """Seconds before anything comes."""
    piece: int = 16
    """How many characters come at once."""
    error: ScriptError | None = None
    drop_after: int | None = None
    """The connection breaks off after so many pieces."""
    when: str | None = None
    """Only for a request in whose last message this stands."""
    repeat: bool = False
    """May be used again and again."""


class Script(Value, frozen=True):
    turns: tuple[ScriptTurn, ...]


class Player:
    """Goes through a script: each request gets the first turn that is left and fits. For several threads."""

    def __init__(self, script: Script) -> None:
        self._turns = list(script.turns)
        self._lock = threading.Lock()

    def next_turn(self, last_message: str) -> ScriptTurn | None:
        """The turn for a request whose last message says this; None at the script's end."""
        with self._lock:
            for place, turn in enumerate(self._turns):
                if turn.when is None or turn.when in last_message:
                    if not turn.repeat:
                        del self._turns[place]
                    return turn
        return None


def parse_script(data: bytes) -> Script:
    """A script out of its JSON. ValueError says what is wrong with it."""
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
        raise DamagedError(f"{path}: is no script: {error}") from None


def pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), max(size, 1))]


def usage_of(turn: ScriptTurn, request_size: int) -> Usage:
    """What a turn is said to have used; four characters count as a token when it does not say."""
    if turn.usage is not None:
        return turn.usage
    said = len(turn.thinking or "") + len(turn.text or "") + sum(len(str(call.arguments)) for call in turn.tool_calls)
    used, given = request_size // 4 + 1, said // 4 + 1
    return Usage(used, given, total_tokens=used + given)
