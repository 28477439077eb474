"""Redaction: replaces secrets in values before they are exported. Pure: the caller passes the home folder.

The same secret gets the same placeholder throughout an export, `[key 1]`; a home folder becomes `~`. `patterns` defines
what a secret is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from sessiontree.core.entries import Fragment
from sessiontree.core.jsonio import parse_json, render_json
from sessiontree.core.messages import Image
from sessiontree.secrets.names import is_secret_field
from sessiontree.secrets.patterns import RULES, Kind, Rule, Span

AnyT = TypeVar("AnyT")

_OPAQUE = frozenset({"thinkingSignature", "textSignature", "thoughtSignature", "signature", "encrypted_content"})
"""Fields that only their provider can decode; a change would invalidate them."""
_OPAQUE_ATTRIBUTES = frozenset({"thinking_signature", "text_signature", "thought_signature"})
_PLURALS: dict[Kind, str] = {"e-mail address": "e-mail addresses"}


class Redactor:
    """Replaces secrets, and counts them."""

    def __init__(self, home: str | None = None, rules: Iterable[Rule] = RULES) -> None:
        self._rules = tuple(rules)
        self._home = home if home and len(home.strip("/\\")) > 1 else None
        self._placeholders: dict[tuple[Kind, str], str] = {}
        self._numbers: Counter[Kind] = Counter()
        self.by_rule: Counter[str] = Counter()
        """Number of distinct secrets that each rule was the first to find."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of distinct secrets per kind."""
        return {str(kind): count for kind, count in self._numbers.items()}

    @property
    def report(self) -> str:
        """A summary of what was masked."""
        if not self._numbers:
            return "masked nothing"
        return "masked " + ", ".join(_counted(kind, count) for kind, count in self._numbers.items())

    # Texts

    def text(self, text: str) -> str:
        if len(text) < _SHORTEST or (len(text) < _SHORTEST_WORD and text.isalnum()):
            return text
        spans = self._spans(text)
        if not spans:
            return text
        pieces: list[str] = []
        at = 0
        for start, end, number in _merge_overlaps(spans):
            rule = _HOME_RULE if number == _HOME else self._rules[number]
            pieces += (text[at:start], self._placeholder(rule.kind, rule.name, text[start:end]))
            at = end
        pieces.append(text[at:])
        return "".join(pieces)

    def _spans(self, text: str) -> list[tuple[int, int, int]]:
        """All matches: start, end, index of the rule."""
        found = [
            (start, end, number)
            for number, rule in enumerate(self._rules)
            if _contains_any(text, rule.needles)
            for start, end in rule.spans(text)
        ]
        if self._home is not None and self._home in text:
            found += [(start, end, _HOME) for start, end in _find_folder(text, self._home)]
        return found

    def _placeholder(self, kind: Kind, rule: str, secret: str) -> str:
        key = (kind, secret)
        known = self._placeholders.get(key)
        if known is None:
            self._numbers[kind] += 1
            self.by_rule[rule] += 1
            known = "~" if kind == "home path" else f"[{kind} {self._numbers[kind]}]"
            self._placeholders[key] = known
        return known

    # Values

    def value(self, value: AnyT) -> AnyT:
        """A value with every text in it masked; the same object if it contains no secret."""
        masked: Any
        match value:
            case str():
                masked = self.text(value)
            case dict():
                masked = self._fields(value)
            case list() | tuple():
                items = [self.value(item) for item in value]
                masked = type(value)(items) if any(map(_differs, items, value)) else value
            case bytes():
                masked = self.text(value.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
            case Fragment():
                masked = msgspec.structs.replace(value, raw=self.value(value.raw))
            case msgspec.Struct():
                masked = self._struct(value)
            case _:
                masked = value
        return masked  # type: ignore[no-any-return]

    def _fields(self, fields: dict[Any, Any]) -> dict[Any, Any]:
        is_image = "mimeType" in fields or "media_type" in fields
        masked: dict[Any, Any] = {}
        for name, value in fields.items():
            if name in _OPAQUE or (is_image and name == "data"):
                masked[name] = value
                continue
            new_name = self.text(name) if isinstance(name, str) else name
            while new_name in masked:
                new_name = f"{new_name}'"
            if isinstance(value, str) and isinstance(name, str) and is_secret_field(name, value):
                masked_value = self.text(value)
                masked[new_name] = (
                    masked_value
                    if masked_value != value
                    else self._placeholder(_field_kind(name), "secret-field", value)
                )
            else:
                masked[new_name] = self.value(value)
        return masked if masked != fields else fields

    def _struct(self, value: msgspec.Struct) -> msgspec.Struct:
        if isinstance(value, Image):
            return value
        changes: dict[str, Any] = {}
        for name in value.__struct_fields__:
            old = getattr(value, name)
            if old is None or name in _OPAQUE_ATTRIBUTES:
                continue
            new = self.value(old)
            if new is not old and new != old:
                changes[name] = new
        return msgspec.structs.replace(value, **changes) if changes else value

    def line(self, raw: bytes) -> bytes:
        """A line of a session file, still valid JSON; byte for byte the same if it contains no secret."""
        try:
            fields = parse_json(raw)
        except ValueError:
            return self.value(raw)
        masked = self.value(fields)
        return raw if masked is fields or masked == fields else render_json(masked)


_SHORTEST = 6
_SHORTEST_WORD = 20
"""No rule matches a shorter text that consists of letters and digits only."""
_HOME = -1
_HOME_RULE = Rule("own-home", "home path", (), "")
_BEFORE_PATH = frozenset("._-~")


def _merge_overlaps(spans: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Merge overlapping spans into one, named by the rule that comes first in the table."""
    spans.sort()
    start, end, number = spans[0]
    for next_start, next_end, next_number in spans[1:]:
        if next_start >= end:
            yield start, end, number
            start, end, number = next_start, next_end, next_number
        else:
            end, number = max(end, next_end), min(number, next_number)
    yield start, end, number


def _contains_any(text: str, needles: tuple[str, ...]) -> bool:
    return any(needle in text for needle in needles)


def _differs(new: object, old: object) -> bool:
    return new is not old


def _field_kind(name: str) -> Kind:
    return "password" if "pass" in name.lower() or "pwd" in name.lower() else "key"


def _find_folder(text: str, folder: str) -> Iterator[Span]:
    """Find a folder in a text, but not other folders with the same beginning."""
    at = text.find(folder)
    while at >= 0:
        end = at + len(folder)
        before, after = text[at - 1 : at], text[end : end + 1]
        if not (before.isalnum() or before in _BEFORE_PATH) and not (after.isalnum() or after in ("_", "-")):
            yield at, end
        at = text.find(folder, end)


def _counted(kind: Kind, count: int) -> str:
    return f"{count} {kind if count == 1 else _PLURALS.get(kind, kind + 's')}"
