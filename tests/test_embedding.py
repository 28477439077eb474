"""What embedders need: entries with their own ids, verbatim lines, and following the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.core.jsonio import parse_json
from sessiontree.errors import InvalidEntryError, NotFoundError, UsageError
from sessiontree.session.session import Session
from tests.builders import message_line


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = sessiontree.create(cwd="/", path=tmp_path / "s.jsonl")
    made.append("user", "first")
    return made


def lines(session: Session) -> list[dict[str, Any]]:
    return [parse_json(line) for line in Path(session.location).read_bytes().splitlines()]


def test_an_entry_has_the_id_the_parent_and_the_time_of_the_caller(session: Session) -> None:
    first = session.leaf
    session.append("assistant", "answer")
    entry = session.append_entry(
        {"role": "user", "content": "other"}, id="run-7:1", parent=first, timestamp="2020-02-20T10:00:00.000Z"
    )
    assert (entry.id, entry.parent_id, entry.timestamp) == ("run-7:1", first, "2020-02-20T10:00:00.000Z")
    written = lines(session)[-1]
    assert (written["id"], written["parentId"], written["timestamp"]) == ("run-7:1", first, "2020-02-20T10:00:00.000Z")
    assert session.leaf == "run-7:1"


def test_without_a_choice_an_entry_gets_an_id_the_leaf_and_the_time(session: Session) -> None:
    first = session.leaf
    entry = session.append_entry({"type": "custom", "customType": "note", "data": 1})
    assert entry.parent_id == first
    assert len(entry.id) == 8
    assert entry.timestamp


def test_an_entry_whose_id_is_in_the_file_is_written_once(session: Session) -> None:
    one = session.append_entry({"role": "user", "content": "hello"}, id="mine")
    size = Path(session.location).stat().st_size
    assert session.append_entry({"role": "user", "content": "hello"}, id="mine") == one
    other = sessiontree.open(session.location)
    assert other.append_entry({"role": "user", "content": "hello"}, id="mine").id == "mine"
    assert other.leaf == "mine"
    assert Path(session.location).stat().st_size == size


def test_an_id_that_another_writer_has_just_used_is_not_written_again(session: Session) -> None:
    other = sessiontree.open(session.location)
    other.append_entry({"role": "user", "content": "hello"}, id="mine")
    assert session.append_entry({"role": "user", "content": "hello"}, id="mine").id == "mine"
    assert [line["id"] for line in lines(session)[1:]].count("mine") == 1


def test_a_branch_takes_entries_of_the_caller_and_moves_alone(session: Session) -> None:
    first = session.leaf
    branch = session.branch(first)
    branch.append_entry({"role": "user", "content": "aside"}, id="aside")
    assert (branch.leaf, session.leaf) == ("aside", first)


@pytest.mark.parametrize("id", ["", "@12", "a\nb"])
def test_an_id_that_no_entry_can_have_is_refused(session: Session, id: str) -> None:
    with pytest.raises(InvalidEntryError, match="cannot be the id"):
        session.append_entry({"role": "user", "content": "x"}, id=id)


def test_a_time_that_is_no_time_and_a_parent_that_does_not_exist_are_refused(session: Session) -> None:
    before = Path(session.location).read_bytes()
    with pytest.raises(InvalidEntryError, match="is not a time"):
        session.append_entry({"role": "user", "content": "x"}, timestamp="yesterday")
    with pytest.raises(NotFoundError, match="nowhere"):
        session.append_entry({"role": "user", "content": "x"}, parent="nowhere")
    assert Path(session.location).read_bytes() == before


def test_lines_are_appended_byte_for_byte_in_one_write(session: Session) -> None:
    before = Path(session.location).read_bytes()
    new = [
        b'{"type":"message", "id":"a","parentId":null,  "message":{"role":"user","content":"x"}}',
        message_line("b", "a"),
    ]
    assert session.append_lines(new) == ["a", "b"]
    assert Path(session.location).read_bytes() == before + new[0] + b"\n" + new[1]
    assert session.leaf == "b"
    assert session.path_ids() == ["a", "b"]


def test_repeated_lines_are_written_once(session: Session) -> None:
    new = [message_line("a"), message_line("b", "a")]
    session.append_lines(new)
    before = Path(session.location).read_bytes()
    assert session.append_lines(new) == []
    assert sessiontree.open(session.location).append_lines(new[:1]) == []
    assert Path(session.location).read_bytes() == before
    assert session.append_lines([*new, message_line("c", "b"), message_line("c", "b")]) == ["c"]
    assert session.path_ids() == ["a", "b", "c"]


def test_lines_that_another_writer_has_just_appended_are_not_written_again(session: Session) -> None:
    new = [message_line("a"), message_line("b", "a")]
    other = sessiontree.open(session.location)
    other.append_lines(new[:1])
    assert session.append_lines(new) == ["b"]
    assert [line["id"] for line in lines(session)[2:]] == ["a", "b"]


def test_lines_of_a_client_without_ids_are_repeated_only_with_new_entries(tmp_path: Path) -> None:
    corpus = Path(__file__).parent / "corpus" / "claude" / "03_parallel.jsonl"
    path = tmp_path / "c.jsonl"
    path.write_bytes(corpus.read_bytes())
    session = sessiontree.open(path, dialect="claude")
    title = b'{"type":"custom-title","customTitle":"mine","sessionId":"s"}'
    leaf = session.leaf
    prompt = (
        b'{"type":"user","uuid":"11111111-1111-4111-8111-111111111111","parentUuid":"%b","sessionId":"s",'
        b'"isSidechain":false,"timestamp":"2030-01-01T00:00:00.000Z","message":{"role":"user","content":"more"}}'
    ) % str(leaf).encode()
    for _ in range(2):
        session.append_lines([title, prompt])
    assert path.read_bytes().count(title) == 1
    assert path.read_bytes().count(b"11111111-1111") == 1
    assert session.leaf == "11111111-1111-4111-8111-111111111111"


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b'{"type":"session","version":3,"id":"s"}',
        b'{"id":"x"}',
        message_line("a") + message_line("b"),
    ],
)
def test_a_line_that_is_not_one_entry_is_refused_and_nothing_is_written(session: Session, line: bytes) -> None:
    before = Path(session.location).read_bytes()
    with pytest.raises(InvalidEntryError, match="is not a line with an entry"):
        session.append_lines([message_line("z"), line])
    assert Path(session.location).read_bytes() == before


def test_lines_need_a_file(tmp_path: Path) -> None:
    session = sessiontree.create(cwd="/", home=tmp_path)
    with pytest.raises(UsageError, match="no messages yet"):
        session.append_lines([message_line("a")])


def test_follow_moves_to_the_current_entry_of_the_file(session: Session) -> None:
    other = sessiontree.open(session.location)
    first = session.leaf
    answer = other.append("assistant", "answer")
    seen: list[str] = []
    session.on_entry(lambda entry: seen.append(entry.id))
    assert session.refresh() == [answer.id]
    assert session.leaf == first
    assert session.follow() == answer.id == session.leaf
    other.move(first)
    assert session.follow() == first
    assert answer.id in seen
