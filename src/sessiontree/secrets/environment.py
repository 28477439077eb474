"""Keeping the secrets of the environment out of sessions: which variables hold one, and masking them in what is told.

Commands of a model do not get such variables at all, unless the user names them. And whatever a tool says goes through
a `Mask` before it is kept, for a secret may stand in a file as well. Masked are the values themselves and the usual
ways to spell them otherwise (base64, percent signs, JSON). What someone scrambles on purpose is not found.
"""

from __future__ import annotations

import base64
import functools
import re
import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sessiontree.core.jsonio import render_json
from sessiontree.secrets.patterns import RULES

_WORDS = frozenset(
    {
        "apikey",
        "auth",
        "cookie",
        "credential",
        "credentials",
        "jwt",
        "key",
        "keys",
        "pass",
        "passphrase",
        "passwd",
        "password",
        "pat",
        "secret",
        "secrets",
        "token",
        "tokens",
    }
)
_ENDS = ("apikey", "password", "passwd", "passphrase", "secret", "token")
_HARMLESS = frozenset({"SSH_AUTH_SOCK", "GPG_AGENT_INFO"})
_SHORTEST = 6
"""Shorter values are words like `true` and `1`, which stand everywhere."""
_KINDS = frozenset({"key", "private key", "password"})


@functools.lru_cache(maxsize=1_024)
def is_secret_variable(name: str) -> bool:
    """Whether the name of a variable says that it holds a secret."""
    if name in _HARMLESS:
        return False
    words = re.split(r"[^a-z0-9]+", name.lower())
    return any(word in _WORDS or word.endswith(_ENDS) for word in words)


def find_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The secrets in an environment: what is secret -> the name of the variable.

    A variable with a harmless name may hold one among other things, as the password in the address of a database.
    """
    return dict(_secrets_in(tuple(environment.items())))


@functools.lru_cache(maxsize=8)  # each command asks again, and there are few environments
def _secrets_in(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in environment:
        if is_secret_variable(name):
            found.setdefault(value.strip(), name)
            continue
        for rule in RULES:
            if rule.kind in _KINDS and any(needle in value for needle in rule.needles):
                for start, end in rule.spans(value):
                    found.setdefault(value[start:end], name)
    return {value: name for value, name in found.items() if len(value) >= _SHORTEST}


def without_secrets(environment: Mapping[str, str], allowed: Collection[str] = ()) -> dict[str, str]:
    """The environment for a command of a model: without secrets, but for the variables that the user allows."""
    hidden = set(find_secrets(environment).values()) - set(allowed)
    return {
        name: value
        for name, value in environment.items()
        if name in allowed or (name not in hidden and not is_secret_variable(name))
    }


class Mask:
    """Puts `[secret NAME]` in the place of each secret."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._names: dict[bytes, bytes] = {}
        for value, name in find_secrets(environment).items():
            for spelling in _spellings(value):
                self._names.setdefault(spelling, f"[secret {name}]".encode())
        ordered = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, ordered))) if ordered else None
        self.longest = len(ordered[0]) if ordered else 0

    def data(self, data: bytes) -> bytes:
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda found: self._names[found[0]], data)

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where secrets are."""
        return (found.span() for found in self._pattern.finditer(data)) if self._pattern is not None else iter(())

    def text(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """Decoded JSON with every text in it masked."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(str(name)): self.value(inner) for name, inner in value.items()}
            case list() | tuple():
                return [self.value(inner) for inner in value]
            case _:
                return value


class MaskedStream:
    """Masks bytes that come in pieces: a secret may begin in one and end in the next."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be told by now."""
        data = self._held + data
        # A secret that begins before the cut is here as a whole, for the rest is as long as the longest one.
        cut = max(0, len(data) - max(0, self._mask.longest - 1))
        for start, end in self._mask.spans(data):
            if start < cut:
                cut = max(cut, end)
        self._held = data[cut:]
        return self._mask.data(data[:cut])

    def end(self) -> bytes:
        """The rest."""
        rest, self._held = self._held, b""
        return self._mask.data(rest)


def _spellings(value: str) -> set[bytes]:
    raw = value.encode("utf-8", "surrogateescape")
    found = {
        raw,
        urllib.parse.quote(raw, safe="").encode(),
        render_json(value.encode("utf-8", "replace").decode())[1:-1],
    }
    encoded = base64.b64encode(raw).rstrip(b"=")
    found |= {encoded, encoded.translate(bytes.maketrans(b"+/", b"-_"))}
    if b"\n" in raw:  # a key of several lines may be told line by line
        found |= {
            line.strip() for line in raw.splitlines() if len(line.strip()) >= 16 and not line.startswith(b"-----")
        }
    return {spelling for spelling in found if len(spelling) >= _SHORTEST}
