"""Sessions of every dialect with twenty marked items, and one kind of damage each.

Eighteen items are on the main path, two on a branch that was left. Each builder spells the same conversation in its
dialect's lines; each kind of damage works on those lines, whatever the dialect.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct

MARKS = [f"MARK-{number:02d}" for number in range(20)]
LEFT = (8, 9)
"""Items of the other branch: its parent is item 7, like that of item 10."""

MAIN = [number for number in range(20) if number not in LEFT]
CALLS = {3: "call_03", 13: "call_13"}
"""Items that call a tool; the item after each is its result."""


class Line(Struct):
    """One line, the number of its item, and the bytes it has become."""

    item: int | None
    raw: bytes


def parent_of(item: int) -> int | None:
    if item == 0:
        return None
    return 7 if item == 10 else item - 1


def role_of(item: int) -> str:
    if item - 1 in CALLS:
        return "result"
    return "user" if item in (0, 2, 6, 8, 10, 16) else "assistant"


def stamp(item: int) -> str:
    return f"2026-01-01T00:{item:02d}:00.000Z"


def dump(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def pi_lines(extra_header: dict[str, Any] | None = None) -> list[Line]:
    header = {"type": "session", "version": 3, "id": "s-1", "timestamp": stamp(0), "cwd": "/w", **(extra_header or {})}
    lines = [Line(None, dump(header))]
    for item in range(20):
        parent = parent_of(item)
        text = [{"type": "text", "text": MARKS[item]}]
        message: dict[str, Any]
        if role_of(item) == "result":
            message = {"role": "toolResult", "toolCallId": CALLS[item - 1], "toolName": "read", "content": text}
        elif role_of(item) == "user":
            message = {"role": "user", "content": MARKS[item]}
        else:
            call = [{"type": "toolCall", "id": CALLS[item], "name": "read", "arguments": {}}] if item in CALLS else []
            message = {
                "role": "assistant",
                "content": [*text, *call],
                "provider": "p",
                "model": "m",
                "stopReason": "stop",
            }
        outside = {"type": "message", "id": id_of(item), "parentId": None if parent is None else id_of(parent)}
        lines.append(Line(item, dump({**outside, "timestamp": stamp(item), "message": message})))
    return lines


def omp_lines() -> list[Line]:
    pad = {"type": "title", "v": 1, "title": "T", "updatedAt": stamp(0), "pad": ""}
    pad["pad"] = " " * (255 - len(dump(pad)))
    return [Line(None, dump(pad)), *pi_lines()]


def native_lines() -> list[Line]:
    return pi_lines({"sessiontree": 1})


def claude_lines() -> list[Line]:
    lines = []
    for item in range(20):
        parent = parent_of(item)
        kind = "assistant" if role_of(item) == "assistant" else "user"
        content: Any = [{"type": "text", "text": MARKS[item]}]
        if role_of(item) == "result":
            content = [{"type": "tool_result", "tool_use_id": CALLS[item - 1], "content": MARKS[item]}]
        elif kind == "user":
            content = MARKS[item]
        elif item in CALLS:
            content.append({"type": "tool_use", "id": CALLS[item], "name": "Read", "input": {}})
        message = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {"id": f"msg_{item}", "type": "message", "model": "claude-x", "usage": {"input_tokens": 1}}
        fields = {"parentUuid": None if parent is None else id_of(parent), "isSidechain": False, "type": kind}
        rest = {"message": message, "uuid": id_of(item), "timestamp": stamp(item), "cwd": "/w", "sessionId": "s-1"}
        lines.append(Line(item, dump({**fields, **rest})))
    return lines


def neovate_lines() -> list[Line]:
    lines = [Line(None, dump({"type": "config", "config": {"approvalMode": "default", "approvalTools": []}}))]
    for item in range(20):
        parent = parent_of(item)
        role = {"result": "tool"}.get(role_of(item), role_of(item))
        content: Any = MARKS[item]
        if role == "tool":
            answer = {
                "toolCallId": CALLS[item - 1],
                "toolName": "read",
                "input": {},
                "result": {"llmContent": MARKS[item]},
            }
            content = [{"type": "tool-result", **answer}]
        elif role == "assistant":
            content = [{"type": "text", "text": MARKS[item]}]
            if item in CALLS:
                content.append({"type": "tool_use", "id": CALLS[item], "name": "read", "input": {}})
        fields = {"parentUuid": None if parent is None else id_of(parent), "uuid": id_of(item), "role": role}
        lines.append(
            Line(
                item,
                dump({**fields, "content": content, "type": "message", "timestamp": stamp(item), "sessionId": "s"}),
            )
        )
    return lines


def id_of(item: int) -> str:
    """An id every dialect accepts."""
    return f"00000000-0000-4000-8000-0000000000{item:02x}"


BUILDERS: dict[str, Callable[[], list[Line]]] = {
    "native": native_lines,
    "pi": pi_lines,
    "omp": omp_lines,
    "claude": claude_lines,
    "neovate": neovate_lines,
}

HIT = 7
"""The item that most kinds of damage hit: an assistant's answer in the middle of the main path, where it branches."""


def joined(lines: list[Line]) -> bytes:
    return b"".join(line.raw + b"\n" for line in lines)


def of_item(lines: list[Line], item: int) -> Line:
    return next(line for line in lines if line.item == item)


def torn_tail(lines: list[Line]) -> bytes:
    last = lines[-1].raw
    return joined(lines[:-1]) + last[: last.index(b"MARK-19") + len(b"MARK-19") + 1]


def nul_hole(lines: list[Line]) -> bytes:
    line = of_item(lines, HIT)
    at = line.raw.index(b"MARK-07") + len(b"MARK-07")
    line.raw = line.raw[:at] + b"\x00" * 12 + line.raw[at + 12 :]
    return joined(lines)


def nul_run_before(lines: list[Line]) -> bytes:
    line = of_item(lines, HIT)
    line.raw = b"\x00" * 4096 + line.raw
    return joined(lines)


def bad_utf8(lines: list[Line]) -> bytes:
    line = of_item(lines, HIT)
    line.raw = line.raw.replace(b"MARK-07", b"MARK-07 \xff\xfe\xc3")
    return joined(lines)


def glued_lines(lines: list[Line]) -> bytes:
    data = joined(lines)
    line = of_item(lines, HIT).raw
    return data.replace(line + b"\n", line)


def stub_glued(lines: list[Line]) -> bytes:
    line = of_item(lines, HIT)
    line.raw = line.raw[:40] + line.raw
    return joined(lines)


def lost_line(lines: list[Line]) -> bytes:
    return joined([line for line in lines if line.item != HIT])


def orphan_result(lines: list[Line]) -> bytes:
    line = of_item(lines, 4)
    line.raw = line.raw.replace(b"call_03", b"call_xx")
    return joined(lines)


def missing_result(lines: list[Line]) -> bytes:
    """The result is missing, and its child is a child of the call."""
    five = of_item(lines, 5)
    five.raw = five.raw.replace(id_of(4).encode(), id_of(3).encode())
    return joined([line for line in lines if line.item != 4])


def duplicate_id(lines: list[Line]) -> bytes:
    copy = of_item(lines, HIT).raw.replace(b"MARK-07", b"MARK-07 written again")
    place = lines.index(of_item(lines, HIT))
    lines.insert(place + 1, Line(HIT, copy))
    return joined(lines)


def cycle(lines: list[Line]) -> bytes:
    first = of_item(lines, 0)
    key = b"parentUuid" if b"parentUuid" in first.raw else b"parentId"
    first.raw = first.raw.replace(b'"%b":null' % key, b'"%b":"%b"' % (key, id_of(2).encode()))
    return joined(lines)


def unknown_type(lines: list[Line]) -> bytes:
    place = {"id": "future", "uuid": "future", "parentId": id_of(19), "parentUuid": id_of(19), "timestamp": stamp(30)}
    lines.append(Line(None, dump({"type": "from-the-future", **place, "text": "a new thing"})))
    return joined(lines)


def null_content(lines: list[Line]) -> bytes:
    line = of_item(lines, HIT)
    fields = json.loads(line.raw)
    holder = fields.get("message", fields)
    holder["content"] = None
    line.raw = dump(fields)
    return joined(lines)


def empty_thinking(lines: list[Line]) -> bytes:
    line = of_item(lines, HIT)
    fields = json.loads(line.raw)
    holder = fields.get("message", fields)
    kind = "reasoning" if "uuid" in fields and "role" in fields else "thinking"
    block = {"type": kind, "text": ""} if kind == "reasoning" else {"type": kind, "thinking": ""}
    holder["content"] = [block, *holder["content"]]
    line.raw = dump(fields)
    return joined(lines)


def nothing(lines: list[Line]) -> bytes:
    return joined(lines)


class Damage(Struct, frozen=True):
    """A kind of damage: what it does, which items of the main path it costs, whether doctor has something to say."""

    apply: Callable[[list[Line]], bytes]
    costs: tuple[int, ...] = ()
    is_found: bool = True


DAMAGE: dict[str, Damage] = {
    "torn tail": Damage(torn_tail, costs=(19,)),
    "NUL hole": Damage(nul_hole, costs=(HIT,)),
    "NUL run before a record": Damage(nul_run_before),
    "bad UTF-8": Damage(bad_utf8),
    "glued lines": Damage(glued_lines),
    "stub glued to a record": Damage(stub_glued),
    "lost line": Damage(lost_line, costs=(HIT,)),
    "orphan result": Damage(orphan_result),
    "missing result": Damage(missing_result, costs=(4,)),
    "duplicate id": Damage(duplicate_id),
    "cycle": Damage(cycle),
    "empty thinking": Damage(empty_thinking, is_found=False),
    "unknown type": Damage(unknown_type, is_found=False),
    "null content": Damage(null_content, costs=(HIT,), is_found=False),
    "abandoned branch": Damage(nothing, is_found=False),
}
