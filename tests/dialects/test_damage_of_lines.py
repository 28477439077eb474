"""The damage table for Codex, Gemini CLI and Qwen Code: all remaining entries are read, doctor reports, repair keeps.

Codex's rollout is paginated: only its ordinals show that a line is lost. The branch that was left is a turn that was
rolled back or rewound, and in Qwen Code's session a chain that a rewind left. Kinds that a format cannot have are not
in its table: rollouts have no ids and no parents, records of Gemini CLI have no parents.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import message_text
from sessiontree.dialects.codex import CODEX
from sessiontree.dialects.contract import Dialect, ReadOptions
from sessiontree.dialects.qwen import QWEN
from sessiontree.repair import carry_out, examine, plan_repair
from sessiontree.views.transcript import full_transcript
from tests.damage import (
    CALLS,
    DAMAGE,
    HIT,
    LEFT,
    MAIN,
    MARKS,
    Line,
    dump,
    id_of,
    joined,
    of_item,
    parent_of,
    role_of,
    stamp,
)
from tests.dialects.goldens import cases, session_file
from tests.mutations import MUTATIONS, check_mutant

THREAD = "019c0001-0000-7000-8000-000000000001"
KINDS = {
    "codex": [
        *("torn tail", "NUL hole", "NUL run before a record", "bad UTF-8", "glued lines", "stub glued to a record"),
        *("lost line", "orphan result", "missing result", "empty thinking", "unknown type", "null content"),
        "abandoned branch",
    ],
    "gemini": [
        *("torn tail", "NUL hole", "NUL run before a record", "bad UTF-8", "glued lines", "stub glued to a record"),
        *("lost line", "orphan result", "missing result", "duplicate id", "empty thinking", "unknown type"),
        *("null content", "abandoned branch"),
    ],
    "qwen": [
        *("torn tail", "NUL hole", "NUL run before a record", "bad UTF-8", "glued lines", "stub glued to a record"),
        *("lost line", "orphan result", "missing result", "duplicate id", "cycle", "empty thinking", "unknown type"),
        *("null content", "abandoned branch"),
    ],
}
TABLE = [(dialect, kind) for dialect, kinds in KINDS.items() for kind in kinds]
SILENT = {"unknown type", "abandoned branch", "empty thinking", "null content"}
UNNOTICED = {("gemini", "lost line"), ("gemini", "duplicate id"), ("qwen", "duplicate id")}
"""What a file cannot show: records of Gemini CLI do not refer to others. Both programs repeat ids in sound files."""


def codex_lines() -> list[Line]:
    lines: list[Line] = []

    def add(item: int | None, kind: str, payload: dict[str, Any]) -> None:
        time = stamp(item or 0)
        lines.append(Line(item, dump({"timestamp": time, "ordinal": len(lines), "type": kind, "payload": payload})))

    meta = {"id": THREAD, "timestamp": stamp(0), "cwd": "/w", "originator": "x", "cli_version": "0.166.0"}
    add(None, "session_meta", {**meta, "history_mode": "paginated"})
    for item in range(20):
        if item == LEFT[-1] + 1:
            add(None, "event_msg", {"type": "thread_rolled_back", "num_turns": 1})
        if role_of(item) == "result":
            output = {"type": "function_call_output", "call_id": CALLS[item - 1], "output": MARKS[item]}
            add(item, "response_item", output)
        elif item in CALLS:
            call = {"type": "function_call", "name": MARKS[item], "arguments": "{}", "call_id": CALLS[item]}
            add(item, "response_item", call)
        else:
            kind = "input_text" if role_of(item) == "user" else "output_text"
            message = {"type": "message", "role": role_of(item), "content": [{"type": kind, "text": MARKS[item]}]}
            add(item, "response_item", message)
    return lines


def qwen_lines() -> list[Line]:
    lines = []
    for item in range(20):
        parent, role = parent_of(item), role_of(item)
        parts: list[dict[str, Any]] = [{"text": MARKS[item]}]
        if role == "result":
            response = {"id": CALLS[item - 1], "name": "read_file", "response": {"output": MARKS[item]}}
            parts = [{"functionResponse": response}]
        elif item in CALLS:
            parts.append({"functionCall": {"id": CALLS[item], "name": "read_file", "args": {}}})
        kind = {"result": "tool_result"}.get(role, role)
        fields = {"uuid": id_of(item), "parentUuid": None if parent is None else id_of(parent), "sessionId": id_of(0)}
        rest = {"timestamp": stamp(item), "type": kind, "cwd": "/w", "version": "0.24.4"}
        message = {"role": "model" if role == "assistant" else "user", "parts": parts}
        lines.append(Line(item, dump({**fields, **rest, "message": message})))
    return lines


def gemini_lines() -> list[Line]:
    meta = {"sessionId": THREAD, "projectHash": "ab" * 32, "startTime": stamp(0), "lastUpdated": stamp(0)}
    lines = [Line(None, dump({**meta, "kind": "main"}))]
    for item in range(20):
        if item == LEFT[-1] + 1:
            lines.append(Line(None, dump({"$rewindTo": id_of(LEFT[0])})))
        role = role_of(item)
        fields: dict[str, Any] = {"id": id_of(item), "timestamp": stamp(item)}
        fields |= {"type": "gemini" if role == "assistant" else "user", "content": [{"text": MARKS[item]}]}
        if role == "result":
            response = {"id": CALLS[item - 1], "name": "read_file", "response": {"output": MARKS[item]}}
            fields["content"] = [{"functionResponse": response}]
        elif item in CALLS:
            fields["toolCalls"] = [{"id": CALLS[item], "name": "read_file", "args": {}, "status": "success"}]
        lines.append(Line(item, dump(fields)))
    return lines


BUILDERS: dict[str, Callable[[], list[Line]]] = {"codex": codex_lines, "gemini": gemini_lines, "qwen": qwen_lines}
NAMES = {
    "codex": f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl",
    "gemini": ".gemini/tmp/p/chats/session-2026-01-01T00-00-019c0001.jsonl",
    "qwen": f"{id_of(0)}.jsonl",
}


def changed(lines: list[Line], change: Callable[[dict[str, Any]], None]) -> bytes:
    line = of_item(lines, HIT)
    fields = json.loads(line.raw)
    change(fields)
    line.raw = dump(fields)
    return joined(lines)


def without_content(fields: dict[str, Any]) -> None:
    holder = fields.get("payload") or fields.get("message") or fields
    holder["parts" if "parts" in holder else "content"] = None


def with_empty_thinking(fields: dict[str, Any]) -> None:
    if "payload" in fields:  # a separate item
        fields["payload"]["content"].insert(0, {"type": "output_text", "text": ""})
    elif "message" in fields:
        fields["message"]["parts"].insert(0, {"text": "", "thought": True})
    else:
        fields["thoughts"] = [{"subject": "", "description": ""}]


# The same damage in the words of these formats.
OWN = {"null content": without_content, "empty thinking": with_empty_thinking}


def damaged(folder: Path, dialect: str, kind: str) -> Path:
    path = folder / NAMES[dialect]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = BUILDERS[dialect]()
    path.write_bytes(changed(lines, OWN[kind]) if kind in OWN else DAMAGE[kind].apply(lines))
    return path


def marks_on_path(session: sessiontree.Session) -> list[str]:
    messages = [message for entry in session.path() if isinstance(entry, MessageEntry) for message in entry.messages]
    shown = "\n".join(f"{message_text(message)} {message}" for message in messages)
    return [mark for mark in MARKS if mark in shown]


def expected(kind: str) -> list[str]:
    return [MARKS[item] for item in MAIN if item not in DAMAGE[kind].costs]


@pytest.mark.parametrize(("dialect", "kind"), TABLE)
def test_every_entry_still_on_disk_is_shown(tmp_path: Path, dialect: str, kind: str) -> None:
    path = damaged(tmp_path, dialect, kind)
    session = sessiontree.open(path)
    assert session.dialect.name == dialect
    shown = "\n".join(full_transcript(session))
    assert [mark for mark in MARKS if mark.encode() in path.read_bytes() and mark not in shown] == []


@pytest.mark.parametrize(("dialect", "kind"), TABLE)
def test_a_recovered_reading_has_the_exact_path(tmp_path: Path, dialect: str, kind: str) -> None:
    path = damaged(tmp_path, dialect, kind)
    session = sessiontree.open(path, read_options=ReadOptions(recovered=True))
    assert marks_on_path(session) == expected(kind)


@pytest.mark.parametrize(("dialect", "kind"), TABLE)
def test_doctor_has_a_finding_for_each_loss(tmp_path: Path, dialect: str, kind: str) -> None:
    findings = [finding.rule.id for finding in examine(sessiontree.open(damaged(tmp_path, dialect, kind)))]
    is_found = kind not in SILENT and (dialect, kind) not in UNNOTICED
    assert bool([found for found in findings if found != "not-an-entry"]) == is_found, findings


@pytest.mark.parametrize(("dialect", "kind"), TABLE)
def test_after_repair_the_clients_own_rule_finds_the_complete_path(tmp_path: Path, dialect: str, kind: str) -> None:
    path = damaged(tmp_path, dialect, kind)
    before = path.read_bytes()
    session = sessiontree.open(path)
    out = str(tmp_path / "repaired.jsonl") if dialect == "codex" else None
    place, _, _ = carry_out(plan_repair(session), session, out)
    assert marks_on_path(sessiontree.open(place)) == expected(kind)
    if dialect == "codex":
        assert path.read_bytes() == before


@pytest.mark.parametrize(("program", "dialect"), [("codex", CODEX), ("qwen", QWEN)])
def test_random_damage_never_loses_an_undamaged_line(program: str, dialect: Dialect) -> None:
    for case in cases(program)[:4]:
        original = session_file(program, case).read_bytes()
        chance = random.Random(case)
        for mutate in MUTATIONS:
            check_mutant(dialect, original, mutate(original, chance))
