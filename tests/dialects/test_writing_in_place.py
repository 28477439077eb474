"""Append, branch, label, rename and move in existing files of every dialect, by the rules of each client."""

from __future__ import annotations

import base64
import copy
import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree import Session
from sessiontree.conversion.convert import convert
from sessiontree.conversion.verify import first_difference
from sessiontree.core.messages import BashExecution, Image, ToolResult, User, blocks_of, message_text, tool_calls
from sessiontree.dialects.canonical import CanonicalEntry
from sessiontree.providers import render
from sessiontree.repair import examine
from tests.builders import json_line, opened
from tests.conversion.conversations import assistant, call, result, text

DIALECTS = ("claude", "neovate", "omp", "pi", "native")


@pytest.fixture(params=DIALECTS)
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a dialect with a short conversation, and a separate home folder for its copies."""
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    session = sessiontree.create(cwd=str(tmp_path), in_memory=True)
    session.append("user", "one")
    session.append(assistant(text("two"), call("toolu_1", "bash", {"command": "ls"})))
    session.append(result("toolu_1", "bash", "a b"))
    session.append(assistant(text("three")))
    made = sessiontree.convert(session, request.param)
    name = f"{made.meta.id}.jsonl" if request.param != "neovate" else "0a1b2c3d.jsonl"
    file = tmp_path / name
    file.write_bytes(b"".join(made.lines))
    return file


def context_texts(session: Session) -> list[str]:
    return [message_text(message) for message in session.context().messages]


def again(path: Path) -> Session:
    """The session as read again from its file."""
    return sessiontree.open(path)


def test_appended_entries_are_there_after_reopening(path: Path) -> None:
    session = sessiontree.open(path)
    before = path.read_bytes()
    session.append("user", "四 🙂")
    session.append(
        assistant(text("five"), call("toolu_2", "read", {"path": "x"}), call("toolu_3", "read", {"path": "y"}))
    )
    session.append(result("toolu_2", "read", "X"))
    session.append(result("toolu_3", "read", "Y"))
    session.append(assistant(text("six")))
    session.close()
    found = again(path)
    assert context_texts(found) == ["one", "two", "a b", "three", "四 🙂", "five", "X", "Y", "six"]
    assert path.read_bytes().startswith(before)
    pairs = [[block.id for block in tool_calls(message)] for message in found.context().messages if tool_calls(message)]
    assert pairs == [["toolu_1"], ["toolu_2", "toolu_3"]]
    answered = [message.tool_call_id for message in found.context().messages if isinstance(message, ToolResult)]
    assert answered == ["toolu_1", "toolu_2", "toolu_3"]
    assert [finding.rule.id for finding in examine(found) if finding.rule.severity != "note"] == []


def test_a_new_branch_is_current_after_reopening(path: Path) -> None:
    session = sessiontree.open(path)
    first = session.path_ids()[0]
    branch = session.branch(first)
    branch.append(assistant(text("another two")))
    session.close()
    assert context_texts(again(path)) == ["one", "another two"]


def test_moving_is_durable(path: Path) -> None:
    session = sessiontree.open(path)
    leaf = session.leaf
    branch = session.branch(session.path_ids()[0])
    branch.append(assistant(text("another two")))
    session.move(leaf)
    session.close()
    found = again(path)
    assert context_texts(found) == ["one", "two", "a b", "three"]
    found.append("user", "on")
    assert context_texts(again(path)) == ["one", "two", "a b", "three", "on"]


def test_a_name_and_a_label_are_there_after_reopening(path: Path) -> None:
    session = sessiontree.open(path)
    first = session.path_ids()[0]
    session.rename("名前 of it")
    session.label(first, "here")
    session.close()
    found = again(path)
    assert found.given_name == "名前 of it"
    assert found.labels == {first: "here"}
    assert context_texts(found) == ["one", "two", "a b", "three"]
    found.label(first, None)
    found.rename("anew")
    assert (again(path).labels, again(path).given_name) == ({}, "anew")


def test_settings_are_kept(path: Path) -> None:
    session = sessiontree.open(path)
    session.set_config(approval_mode="yolo", approval_tools=("bash",))
    session.close()
    assert again(path).config.approval_mode == "yolo"
    assert context_texts(again(path)) == ["one", "two", "a b", "three"]


def test_a_torn_tail_is_closed_before_anything_is_appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"type":"user","uuid":"torn')
    session = sessiontree.open(path)
    session.append("user", "after")
    session.close()
    assert context_texts(again(path))[-1] == "after"
    assert b"torn\n" in path.read_bytes()


def test_lines_of_another_window_are_read_and_kept(path: Path) -> None:
    mine, theirs = sessiontree.open(path), sessiontree.open(path)
    theirs.append("user", "from the other window")
    mine.append("user", "from mine")
    texts = [message_text(entry.message) for entry in again(path) if hasattr(entry, "message")]
    assert "from the other window" in texts
    assert "from mine" in texts


def test_renaming_keeps_lines_that_others_appended_meanwhile(path: Path) -> None:
    mine, theirs = sessiontree.open(path), sessiontree.open(path)
    theirs.append("user", "kept")
    mine.rename("a name")
    assert "kept" in context_texts(again(path))


def test_the_file_stays_private(path: Path) -> None:
    os.chmod(path, 0o600)
    session = sessiontree.open(path)
    session.append("user", "x")
    session.rename("y")
    session.set_config(approval_mode="autoEdit")
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_image_is_where_the_client_finds_it(path: Path) -> None:
    """In its line for clients without blobs, in a blob for others; either way it is read back unchanged."""
    session = sessiontree.open(path)
    data = base64.b64encode(bytes(range(256)) * 20).decode()
    session.append(role="user", content=[{"type": "image", "data": data, "mimeType": "image/png"}])
    session.close()
    knows_blobs = session.dialect.traits.uses_home_blobs or session.dialect.blob_folder(session.location) is not None
    assert (data in path.read_text()) != knows_blobs
    message = again(path).context().messages[-1]
    assert isinstance(message, User)
    assert [block.data for block in blocks_of(message.content) if isinstance(block, Image)] == [data]


def test_the_entry_passed_in_is_not_modified(path: Path) -> None:
    message = {
        **assistant(text("five"), call("toolu_2", "read", {"path": "x"})),
        "timestamp": 1_760_000_000_000,
        "unknown": {"kept": [1, 2]},
    }
    before = copy.deepcopy(message)
    session = sessiontree.open(path)
    session.append(message)
    session.close()
    assert message == before


def test_a_fork_from_before_the_first_message_can_be_continued(path: Path) -> None:
    origin = sessiontree.open(path)
    fork = origin.fork(None)
    assert (context_texts(fork), fork.dialect.name, fork.read_only) == ([], origin.dialect.name, None)
    fork.append("user", "from nothing")
    fork.append(assistant(text("anew")))
    fork.close()
    assert path.parent in Path(fork.location).parents
    found = again(Path(fork.location))
    assert (context_texts(found), found.dialect.name, found.cwd) == (
        ["from nothing", "anew"],
        origin.dialect.name,
        origin.cwd,
    )
    assert found.id == fork.id != origin.id
    assert [finding.rule.id for finding in examine(found) if finding.rule.severity != "note"] == []


def test_a_native_file_that_oh_my_pi_rewrote_with_its_title_line_has_no_problems() -> None:
    slot = {"type": "title", "v": 1, "title": "", "updatedAt": "2026-01-01T00:00:00.000Z", "pad": " "}
    session = sessiontree.create(cwd="/p", in_memory=True)
    session.append("user", "q")
    lines = b"".join(line + b"\n" for line in session.journal.raw_lines())
    rewritten = opened(json_line(slot) + lines)
    assert rewritten.dialect.name == "native"
    assert rewritten.problems == []
    assert rewritten.context() == session.context()
    assert rewritten.ids[1:] == session.ids
    rewritten.append("user", "more")
    assert [message_text(message) for message in rewritten.context().messages] == ["q", "more"]
    copied = opened(b"".join(convert(rewritten, "pi").lines))
    assert first_difference(rewritten, rewritten.leaf, copied, all_branches=True) is None


@pytest.mark.parametrize("dialect", [*DIALECTS, "codex", "gemini", "qwen"])
def test_appended_commands_are_sent_and_come_back_in_a_conversion(dialect: str) -> None:
    session = sessiontree.create(cwd="/src", in_memory=True)
    session.append("user", "one")
    session.append("assistant", "two")
    session = opened(b"".join(convert(session, dialect).lines), dialect)
    command = {"role": "bashExecution", "exitCode": 1, "cancelled": False, "truncated": False}
    session.append({**command, "command": "make", "output": "it broke"})
    other = {**command, "command": "make clean", "output": "no rule"}
    session.append_all([CanonicalEntry("message", {"message": other})])
    found = opened(b"".join(line + b"\n" for line in session.journal.raw_lines()), dialect)
    sent = str(render(found.context().messages, "anthropic").messages)
    assert "it broke" in sent
    assert "no rule" in sent
    back = opened(b"".join(convert(found, "native").lines)).context().messages
    commands = [message for message in back if isinstance(message, BashExecution)]
    assert [(each.command, each.output) for each in commands] == [("make", "it broke"), ("make clean", "no rule")]
