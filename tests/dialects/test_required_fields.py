"""Lines for Pi and oh-my-pi have the fields without which the clients exit; nothing reads them as counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.conversion.convert import convert
from sessiontree.core.usage import total_usage

ZEROS = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
HEADERS = {
    "native": {"sessiontree": 1},
    "pi": {"sessiontreeFor": "pi"},
    "omp": {"titleSource": "user", "title": "t"},
}


def open_new(path: Path, dialect: str) -> sessiontree.Session:
    header = {"type": "session", "version": 3, "id": "a" * 36, "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/p"}
    path.write_text(json.dumps({**header, **HEADERS[dialect]}) + "\n")
    session = sessiontree.open(str(path))
    assert session.dialect.name == dialect
    return session


def last_line(path: Path) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(path.read_bytes().splitlines()[-1])
    return line


@pytest.mark.parametrize("dialect", HEADERS)
def test_an_appended_answer_has_blocks_and_usage(tmp_path: Path, dialect: str) -> None:
    path = tmp_path / "s.jsonl"
    with open_new(path, dialect) as session:
        session.append("user", "q")
        session.append("assistant", "hello")
        message = last_line(path)["message"]
        assert message["content"] == [{"type": "text", "text": "hello"}]
        assert message["usage"]["cost"] == ZEROS
        assert message["usage"]["totalTokens"] == 0


@pytest.mark.parametrize("dialect", HEADERS)
def test_added_zeros_are_neither_a_request_nor_a_cost(tmp_path: Path, dialect: str) -> None:
    path = tmp_path / "s.jsonl"
    with open_new(path, dialect) as session:
        session.append("assistant", "hello")
        assert total_usage(session.entries(session.journal.tree.ids)).requests == 0
        session.append({"role": "assistant", "content": "x", "usage": {"input": 3, "output": 2}})
        assert last_line(path)["message"]["usage"]["cost"] == ZEROS
        totals = total_usage(session.entries(session.journal.tree.ids))
        assert (totals.requests, totals.input, totals.output) == (1, 3, 2)


def test_decoding_a_completed_line_returns_what_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with open_new(path, "native") as session:
        session.append({"role": "assistant", "content": "hello", "timestamp": 5})
        (entry,) = session.dialect.decode(session.journal, [0])
        assert entry.fields == {"message": {"role": "assistant", "content": "hello", "timestamp": 5}}


@pytest.mark.parametrize("target", ["native", "pi", "omp"])
def test_every_converted_answer_has_blocks_and_usage(tmp_path: Path, target: str) -> None:
    lines = [
        {"type": "config", "config": {}},
        {"type": "message", "role": "user", "content": "q", "uuid": "a", "parentUuid": None, "sessionId": "x"},
        {
            "type": "message",
            "role": "assistant",
            "content": "hi",
            "uuid": "b",
            "parentUuid": "a",
            "sessionId": "x",
            "model": "gpt-x",
            "usage": {"input_tokens": 10, "output_tokens": 5},
        },
    ]
    source = tmp_path / "source.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with sessiontree.open(str(source), dialect="neovate") as session:
        converted = [json.loads(line) for line in convert(session, target).lines]
    (answer,) = [line for line in converted if line.get("message", {}).get("role") == "assistant"]
    assert answer["message"]["content"] == [{"type": "text", "text": "hi"}]
    assert answer["message"]["usage"]["input"] == 10
    assert answer["message"]["usage"]["cost"] == ZEROS


def test_the_system_prompt_of_a_compaction_has_content(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with open_new(path, "pi") as session:
        first = session.append("user", "q")
        fields = {"summary": "s", "firstKeptEntryId": first.id, "tokensBefore": 1}
        session.append({"type": "compaction", **fields, "systemMessage": {"sections": {"a": "b"}}})
    assert last_line(path)["systemMessage"] == {"role": "system", "content": "", "sections": {"a": "b"}}


@pytest.mark.parametrize("dialect", HEADERS)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_blocks_without_a_text_have_an_empty_one(tmp_path: Path, dialect: str, role: str) -> None:
    path = tmp_path / "s.jsonl"
    blocks = [{"type": "text"}, {"type": "thinking"}, {"type": "text", "text": "kept"}]
    with open_new(path, dialect) as session:
        session.append("user", "q")
        session.append({"role": role, "content": blocks})
    empty = [{"type": "text", "text": ""}, {"type": "thinking", "thinking": ""}]
    assert last_line(path)["message"]["content"] == [*empty, {"type": "text", "text": "kept"}]
