"""Keep secrets of the environment out of sessions.

Commands of a model do not inherit variables that hold a secret, unless the user allows it. All tool output goes through
a `Mask` before it is stored, because a secret may also be in a file. A mask replaces the values themselves and their
common encodings (base64, percent-encoding, JSON). Output that is obfuscated on purpose is not recognized.
"""

from __future__ import annotations

import base64
import functools
import re
import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from sessiontree.core.jsonio import render_json
from sessiontree.secrets.names import is_secret_variable
from sessiontree.secrets.patterns import RULES

_MIN_LENGTH = 6
"""Shorter values are words like `true` and `1`, which occur everywhere."""
_KINDS = frozenset({"key", "private key", "password"})


def find_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The secrets in an environment: value -> name of the variable.

    A variable with a harmless name may contain one, such as the password in a database URL.
    """
    found: dict[str, str] = {}
    for name, secret in _list_secrets(tuple(environment.items())):
        found.setdefault(secret, name)
    return found


@functools.lru_cache(maxsize=8)  # called for each command; there are few different environments
def _list_secrets(environment: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Each variable with each secret in its value. Several variables may contain the same one."""
    return [(name, secret) for name, value in environment for secret in _iter_secrets(name, value)]


def _iter_secrets(name: str, value: str) -> Iterator[str]:
    found = [value.strip()] if is_secret_variable(name) else []
    if not found:
        for rule in RULES:
            if rule.kind in _KINDS and any(needle in value for needle in rule.needles):
                found += [value[start:end] for start, end in rule.spans(value)]
    return (secret for secret in found if len(secret) >= _MIN_LENGTH)


def without_secrets(environment: Mapping[str, str], allowed: Collection[str] = ()) -> dict[str, str]:
    """The environment for a command of a model: without secrets, except in variables that the user allows."""
    hidden = {name for name, _ in _list_secrets(tuple(environment.items()))} - set(allowed)
    return {
        name: value
        for name, value in environment.items()
        if name in allowed or (name not in hidden and not is_secret_variable(name))
    }


class Mask:
    """Replaces each secret with `[secret NAME]`."""

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
        return (found.span() for found in self._pattern.finditer(data)) if self._pattern is not None else iter(())

    def text(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self.data(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def value(self, value: Any) -> Any:
        """Mask every text in decoded JSON."""
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
    """Masks bytes that arrive in chunks: a secret may span several."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Add a chunk; returns the masked bytes that cannot be part of an incomplete secret."""
        data = self._held + data
        # As many bytes are held back as the longest secret has, so one that begins before the cut is complete.
        cut = max(0, len(data) - max(0, self._mask.longest - 1))
        for start, end in self._mask.spans(data):
            if start < cut:
                cut = max(cut, end)
        self._held = data[cut:]
        return self._mask.data(data[:cut])

    def end(self) -> bytes:
        """The remaining bytes."""
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
    if b"\n" in raw:  # lines of a multi-line key may be printed one by one
        found |= {
            line.strip() for line in raw.splitlines() if len(line.strip()) >= 16 and not line.startswith(b"-----")
        }
    return {spelling for spelling in found if len(spelling) >= _MIN_LENGTH}
