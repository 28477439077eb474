"""JSON and raw lines for programs, text for terminals; every corpus file in every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessiontree.export import BRANCHES, FORMATS, LINEAR, export
from sessiontree.secrets.redact import Redactor
from sessiontree.session.session import Session
from tests.builders import message_line, opened
from tests.export.conversations import EVERYTHING, exported

CORPUS = sorted((Path(__file__).parents[1] / "corpus").rglob("*.jsonl"))


def document(branch: Any = "active") -> Any:
    return json.loads(exported(EVERYTHING, "json", branch))


def test_json_is_one_object_on_one_line_with_facts_and_entries() -> None:
    assert exported(EVERYTHING, "json").count("\n") == 1
    found = document()
    assert found["schemaVersion"] == 1
    assert found["session"]["name"] == "A parser"
    assert found["session"]["labels"] == {"e6": "the fork"}
    assert [entry["id"] for entry in found["entries"]][:4] == ["e1", "e2", "e3", "e4"]
    assert found["entries"][3]["parent"] == "e3"
    assert found["entries"][3]["toolCalls"] == [{"id": "c1", "name": "bash", "arguments": {"command": "ls -l"}}]
    assert found["entries"][3]["entry"]["message"]["content"][0]["thinking"] == "a hidden thought"
    assert found["usage"]["cost"] == 0.5
    assert found["fragments"][0]["text"] == "these bytes belong to no entry"
    assert found["problems"]
    assert found["masked"] is None


def test_json_of_all_branches_has_every_entry_once() -> None:
    ids = [entry["id"] for entry in document("all")["entries"]]
    assert sorted(ids) == sorted(opened(EVERYTHING).ids)
    active = {entry["id"] for entry in document("all")["entries"] if entry["active"]}
    assert "b1" not in active
    assert set(opened(EVERYTHING).path_ids()) <= active


def test_jsonl_of_all_branches_is_the_file() -> None:
    assert exported(EVERYTHING, "jsonl", "all").encode() == EVERYTHING


def test_jsonl_of_the_active_branch_has_its_lines_byte_for_byte_and_opens_again() -> None:
    session = opened(EVERYTHING)
    data = exported(session, "jsonl").encode()
    assert set(data.splitlines()) <= set(EVERYTHING.splitlines())
    again = opened(data)
    assert again.path_ids() == session.path_ids()
    assert again.labels == session.labels
    assert "b1" not in again
    assert not again.problems


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_corpus_file_exports_in_every_format(path: Path) -> None:
    session = opened(path.read_bytes() or message_line("a"))
    for format in FORMATS:
        for branch in BRANCHES[:1] if format in LINEAR else BRANCHES:
            assert b"".join(export(session, format, branch=branch, redactor=Redactor("/home/ada"))).decode()


def reopened(session: Session, data: bytes) -> Session:
    return opened(data, dialect=session.dialect.name)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_lines_of_every_corpus_file_open_at_the_same_current_entry(path: Path) -> None:
    session = opened(path.read_bytes() or message_line("a"))
    whole = exported_bytes(session, "all")
    assert whole == (path.read_bytes() or message_line("a"))
    if session.leaf is not None:
        again = reopened(session, exported_bytes(session, "active"))
        assert messages(again) == messages(session)


def exported_bytes(session: Session, branch: Any) -> bytes:
    return b"".join(export(session, "jsonl", branch=branch))


def messages(session: Session) -> list[Any]:
    return list(session.context().messages)


def test_text_has_no_control_characters_that_a_terminal_would_interpret() -> None:
    text = exported(EVERYTHING, "text", "all")
    for words in ("first question", "(thinking) a hidden thought", "→ bash ls -l", "← failed", "Branch from e6"):
        assert words in text
    assert text.replace("\n", "").isprintable()
