"""Parse JSON with comments, and change one value in its text.

Settings are edited by hand and by `config set`. A change replaces only the characters of the value, so comments, order,
indentation and unknown keys are preserved. Comments and trailing commas are accepted; everything else is JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

DEEPEST = 64  # levels of nesting

_space = re.compile(r"(?:\s|\ufeff|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_string_value = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_plain_value = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Member(Struct):
    """A key of an object, with its position."""

    key: str
    start: int
    value: Node


class Node(Struct):
    """A value, with its position."""

    start: int
    end: int
    value: Any
    members: list[Member] | None = None
    """For an object: its keys in order, including duplicates."""

    def find(self, key: str) -> Member | None:
        """The last member with a key: of duplicates, the last one is in effect."""
        return next((member for member in reversed(self.members or ()) if member.key == key), None)


def parse(text: str) -> Node:
    """Parse a text. Raises ValueError with the position of an error."""
    start = _skip(text, 0)
    node = _value(text, start, 0)
    rest = _skip(text, node.end)
    if rest != len(text):
        raise _error(text, rest, "expected the end of the file")
    return node


def parse_object(text: str) -> Node:
    """Parse an object; an empty text is an empty object."""
    if _skip(text, 0) == len(text):
        return Node(len(text), len(text), {}, [])
    node = parse(text)
    if node.members is None:
        raise ValueError("line 1: expected an object in braces")
    return node


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with one value set; missing objects are created."""
    if _skip(text, 0) == len(text):
        text = "{}\n"
    node = parse_object(text)
    indent = ""
    for depth, key in enumerate(path):
        member = node.find(key)
        if member is None:
            return _insert(text, node, indent, key, _nested(path[depth + 1 :], value))
        if depth == len(path) - 1:
            rendered = _render(value, _indent_of(text, member.start) or "")
            return text[: member.value.start] + rendered + text[member.value.end :]
        if member.value.members is None:
            raise ValueError(f'{_at(text, member.start)}: "{key}" is not an object')
        indent = _indent_of(text, member.start) or indent
        node = member.value
    raise ValueError("no key was given")


def remove_value(text: str, path: Sequence[str]) -> str | None:
    """Return the text without a value; None if it is not set."""
    node = parse_object(text)
    member: Member | None = None
    for depth, key in enumerate(path):
        member = node.find(key)
        if member is None:
            return None
        if depth < len(path) - 1:
            node = member.value
    if member is None:
        return None
    text = _remove(text, node, member)
    # With a duplicate key, the earlier one would now be in effect.
    return remove_value(text, path) or text


def _remove(text: str, node: Node, member: Member) -> str:
    members = node.members or []
    at = next(index for index, other in enumerate(members) if other is member)
    after = _skip(text, member.value.end)
    if text[after] == ",":
        return text[: _line_start(text, member.start)] + text[after + 1 :]
    start = _line_start(text, member.start)
    if at:
        # The last member has no comma after it, so the previous member's comma must go.
        comma = _skip(text, members[at - 1].value.end)
        return text[:comma] + text[comma + 1 : start] + text[member.value.end :]
    return text[:start] + text[member.value.end :]


def _line_start(text: str, at: int) -> int:
    """The start of a member's line, including the line break before it, if the member is first on it."""
    before = text[:at].rstrip(" \t")
    return len(before) - 1 if before.endswith("\n") else at


def _insert(text: str, node: Node, indent: str, key: str, value: Any) -> str:
    members = node.members or []
    close = node.end - 1
    if not members:
        inner = text[node.start + 1 : close].rstrip()
        own = indent + "  "
        body = f"{own}{json.dumps(key, ensure_ascii=False)}: {_render(value, own)}"
        return f"{text[: node.start + 1]}{inner}\n{body}\n{indent}{text[close:]}"
    last = members[-1].value.end
    between = text[last:close]
    comma = "" if text[_skip(text, last)] == "," else ","
    own_indent = _indent_of(text, members[0].start)
    if own_indent is None and not between.strip(" \t,"):  # keep an object on one line
        body = f" {json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[:last]}{comma}{between.rstrip()}{body}{text[close:]}"
    own = indent + "  " if own_indent is None else own_indent
    body = f"{own}{json.dumps(key, ensure_ascii=False)}: {_render(value, own)}"
    return f"{text[:last]}{comma}{between.rstrip()}\n{body}\n{indent}{text[close:]}"


def _indent_of(text: str, at: int) -> str | None:
    """The indentation of a member; None if it is not first on its line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line if not line.strip() and "\n" in text[:at] else None


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _render(value: Any, indent: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n" + indent)


def _value(text: str, at: int, depth: int) -> Node:
    if depth > DEEPEST:
        raise _error(text, at, "nested too deeply")
    opening = text[at : at + 1]
    if opening == "{":
        return _object(text, at, depth)
    if opening == "[":
        return _array(text, at, depth)
    if opening == '"':
        found, end = _string(text, at)
        return Node(at, end, found)
    plain = _plain_value.match(text, at)
    if plain is None:
        raise _error(text, at, "expected a value")
    try:
        return Node(at, plain.end(), json.loads(plain[0]))
    except ValueError:  # more digits than Python accepts
        raise _error(text, at, "number with too many digits") from None


def _object(text: str, start: int, depth: int) -> Node:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise _error(text, at, 'expected a key in double quotes or "}"')
        key, end = _string(text, at)
        colon = _skip(text, end)
        if text[colon : colon + 1] != ":":
            raise _error(text, colon, 'expected ":" after the key')
        value = _value(text, _skip(text, colon + 1), depth + 1)
        members.append(Member(key, at, value))
        at = _next_item(text, value.end, "}")
    return Node(start, at + 1, {member.key: member.value.value for member in members}, members)


def _array(text: str, start: int, depth: int) -> Node:
    items: list[Any] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "]":
        item = _value(text, at, depth + 1)
        items.append(item.value)
        at = _next_item(text, item.end, "]")
    return Node(start, at + 1, items)


def _next_item(text: str, end: int, close: str) -> int:
    at = _skip(text, end)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != close:
        raise _error(text, at, f'expected "," or "{close}"')
    return at


def _string(text: str, at: int) -> tuple[str, int]:
    found = _string_value.match(text, at)
    try:
        return str(json.loads(found[0] if found else "")), found.end() if found else at
    except ValueError:
        raise _error(text, at, "unterminated or invalid string") from None


def _skip(text: str, at: int) -> int:
    found = _space.match(text, at)
    return found.end() if found else at


def _at(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"


def _error(text: str, at: int, expected: str) -> ValueError:
    column = at - text.rfind("\n", 0, at)
    return ValueError(f"{_at(text, at)}, column {column}: {expected}")
