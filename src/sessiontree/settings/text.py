"""JSON with comments as text: what it says, and the same text with one value changed.

Settings are written by people and by `config set`. A change touches only the characters of its value, so comments,
order, indentation and keys that are not known stay as they were. Comments and a comma behind the last member are
accepted; everything else is JSON. Nothing here knows a setting or a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

DEEPEST = 64

_space = re.compile(r"(?:\s|\ufeff|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_string_value = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_plain_value = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Member(Struct):
    """A key of an object, and where it stands."""

    key: str
    start: int
    value: Node


class Node(Struct):
    """A value, and where it stands."""

    start: int
    end: int
    value: Any
    members: list[Member] | None = None
    """For an object: its keys in order, doubles too."""

    def find(self, key: str) -> Member | None:
        """The last one of that name, which is the one that counts."""
        return next((member for member in reversed(self.members or ()) if member.key == key), None)


def parse(text: str) -> Node:
    """The value of a text. ValueError says where it is no JSON."""
    start = _skip(text, 0)
    node = _value(text, start, 0)
    rest = _skip(text, node.end)
    if rest != len(text):
        raise _wrong(text, rest, "expected the end of the file")
    return node


def parse_object(text: str) -> Node:
    """The object a text holds; a text with nothing in it holds an empty one."""
    if _skip(text, 0) == len(text):
        return Node(len(text), len(text), {}, [])
    node = parse(text)
    if node.members is None:
        raise ValueError("line 1: expected an object in braces")
    return node


def changed(text: str, path: Sequence[str], value: Any) -> str:
    """The text with one value set, whatever objects have to be made for it."""
    if _skip(text, 0) == len(text):
        text = "{}\n"
    node = parse_object(text)
    indent = ""
    for place, key in enumerate(path):
        member = node.find(key)
        if member is None:
            return _inserted(text, node, indent, key, _nested(path[place + 1 :], value))
        if place == len(path) - 1:
            rendered = _rendered(value, _indent_of(text, member.start) or "")
            return text[: member.value.start] + rendered + text[member.value.end :]
        if member.value.members is None:
            raise ValueError(f'{_at(text, member.start)}: "{key}" holds no object, so nothing can be set in it')
        indent = _indent_of(text, member.start) or indent
        node = member.value
    raise ValueError("no key was given")


def removed(text: str, path: Sequence[str]) -> str | None:
    """The text without a value, or None when it is not there."""
    node = parse_object(text)
    member: Member | None = None
    for place, key in enumerate(path):
        member = node.find(key)
        if member is None:
            return None
        if place < len(path) - 1:
            node = member.value
    if member is None:
        return None
    text = _without(text, node, member)
    # Where a key stood twice, the one before would count now.
    return removed(text, path) or text


def _without(text: str, node: Node, member: Member) -> str:
    members = node.members or []
    at = next(place for place, one in enumerate(members) if one is member)
    behind = _skip(text, member.value.end)
    if text[behind] == ",":
        return text[: _line_start(text, member.start)] + text[behind + 1 :]
    start = _line_start(text, member.start)
    if at:
        # The last one has no comma behind it, so the comma of the one before it is too many now.
        comma = _skip(text, members[at - 1].value.end)
        return text[:comma] + text[comma + 1 : start] + text[member.value.end :]
    return text[:start] + text[member.value.end :]


def _line_start(text: str, at: int) -> int:
    """Where the line of a member begins, with the line break before it, if nothing else stands before it there."""
    before = text[:at].rstrip(" \t")
    return len(before) - 1 if before.endswith("\n") else at


def _inserted(text: str, node: Node, indent: str, key: str, value: Any) -> str:
    """A new last member of an object."""
    members = node.members or []
    close = node.end - 1
    if not members:
        inner = text[node.start + 1 : close].rstrip()
        own = indent + "  "
        body = f"{own}{json.dumps(key, ensure_ascii=False)}: {_rendered(value, own)}"
        return f"{text[: node.start + 1]}{inner}\n{body}\n{indent}{text[close:]}"
    last = members[-1].value.end
    between = text[last:close]
    comma = "" if text[_skip(text, last)] == "," else ","
    own_or_none = _indent_of(text, members[0].start)
    if own_or_none is None and not between.strip(" \t,"):  # an object on one line stays one
        body = f" {json.dumps(key, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[:last]}{comma}{between.rstrip()}{body}{text[close:]}"
    own = indent + "  " if own_or_none is None else own_or_none
    body = f"{own}{json.dumps(key, ensure_ascii=False)}: {_rendered(value, own)}"
    return f"{text[:last]}{comma}{between.rstrip()}\n{body}\n{indent}{text[close:]}"


def _indent_of(text: str, at: int) -> str | None:
    """The white space before a member that begins its line; None when something else stands before it."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line if not line.strip() and "\n" in text[:at] else None


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _rendered(value: Any, indent: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n" + indent)


def _value(text: str, at: int, depth: int) -> Node:
    if depth > DEEPEST:
        raise _wrong(text, at, "nested too deeply")
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
        raise _wrong(text, at, "expected a value")
    try:
        return Node(at, plain.end(), json.loads(plain[0]))
    except ValueError:  # more digits than Python converts
        raise _wrong(text, at, "a number with too many digits") from None


def _object(text: str, start: int, depth: int) -> Node:
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise _wrong(text, at, 'expected a key in double quotes or "}"')
        key, end = _string(text, at)
        colon = _skip(text, end)
        if text[colon : colon + 1] != ":":
            raise _wrong(text, colon, 'expected ":" behind the key')
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
        raise _wrong(text, at, f'expected "," or "{close}"')
    return at


def _string(text: str, at: int) -> tuple[str, int]:
    found = _string_value.match(text, at)
    try:
        return str(json.loads(found[0] if found else "")), found.end() if found else at
    except ValueError:
        raise _wrong(text, at, "a text in quotes that does not end, or holds what a text may not") from None


def _skip(text: str, at: int) -> int:
    found = _space.match(text, at)
    return found.end() if found else at


def _at(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"


def _wrong(text: str, at: int, expected: str) -> ValueError:
    column = at - text.rfind("\n", 0, at)
    return ValueError(f"{_at(text, at)}, column {column}: {expected}")
