"""Shrinking makes a file small, changes no conversation, and is undone byte for byte."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.archive.archive_home import Home
from sessiontree.archive.restore import restore
from sessiontree.archive.shrink import plan_shrink, shrink
from sessiontree.archive.truncate import POINTER, plan_truncate, truncate
from sessiontree.core.messages import User
from sessiontree.errors import UsageError
from sessiontree.session.session import Session
from tests.archive.conftest import Command
from tests.archive.machine import (
    archived_lines,
    claude_line,
    claude_message,
    current_lines,
    home_of,
    kill_at_each_step,
    native_lines,
    write_claude,
    write_native,
)
from tests.builders import entry, header, json_line, message_line


def progress(uuid: str, parent: str | None, call: str = "t1", text: str = "running") -> bytes:
    return claude_line("progress", uuid, parent, toolUseID=call, data={"type": "bash_progress", "output": text * 50})


def snapshot(id: str, text: str = "x") -> bytes:
    return json_line({"type": "file-history-snapshot", "messageId": id, "snapshot": {"trackedFileBackups": {text: 1}}})


def claude_with_progress() -> list[bytes]:
    """An old transcript: progress in the chain, snapshots written again."""
    lines = [claude_message("u1", None, "run it"), claude_message("a1", "u1", "running", "assistant"), snapshot("u1")]
    lines += [progress(f"p{at}", "a1" if at == 0 else f"p{at - 1}") for at in range(50)]
    lines += [claude_message("u2", "p49", "and now?"), snapshot("u1"), snapshot("u2"), snapshot("u1")]
    return [*lines, claude_message("a2", "u2", "done", "assistant")]


def conversation(session: Session) -> object:
    return [session.context(leaf) for leaf in session.leaves()]


def test_repeated_progress_is_removed_and_its_children_become_children_of_the_call(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_claude(tmp_path, claude_with_progress())
    before = path.read_bytes()
    session = sessiontree.open(path)
    said_before, leaf = session.context().messages, session.leaf
    plan, item = shrink(home.archive, session)
    assert [(saving.what, saving.lines) for saving in plan.savings] == [
        ("repeated progress", 49),
        ("duplicate snapshots", 2),
    ]
    assert path.stat().st_size == plan.after < plan.before / 2
    after = sessiontree.open(path)
    assert (after.context().messages, after.leaf) == (said_before, leaf)
    assert [p.kind for p in after.problems] == [p.kind for p in sessiontree.open(path).problems] == []
    assert path.read_bytes().count(b"file-history-snapshot") == 2
    assert item is not None
    restore(home.archive, item)
    assert path.read_bytes() == before


def test_inline_images_move_to_blobs_and_read_the_same(tmp_path: Path) -> None:
    image = base64.b64encode(os.urandom(60_000)).decode()
    content = [{"type": "image", "data": image, "mimeType": "image/png"}, {"type": "text", "text": "look"}]
    lines = [
        *native_lines(),
        entry("message", "i1", "n3", message={"role": "user", "content": content, "timestamp": 1}),
    ]
    home, path = home_of(tmp_path), write_native(tmp_path, lines)
    session = sessiontree.open(path)
    context = session.context()
    assert plan_shrink(session).after < 5_000
    assert not (tmp_path / "home" / "blobs").exists(), "a plan writes nothing"
    _, item = shrink(home.archive, session)
    assert path.stat().st_size < 5_000
    after = sessiontree.open(path)
    assert (after.context(), after.problems) == (context, [])
    assert item is not None
    restore(home.archive, item)
    assert path.read_bytes() == b"".join(lines)


def test_dead_branches_are_removed_only_on_request_and_labeled_ones_stay(tmp_path: Path) -> None:
    lines = [
        *native_lines()[:5],
        message_line("k2", "m1", "third"),
        message_line("k3", "k2", "third answer", role="assistant"),
    ]
    lines += [entry("label", "l1", "k3", targetId="k3", label="keep this"), *native_lines()[5:]]
    home, path = home_of(tmp_path), write_native(tmp_path, lines)
    session = sessiontree.open(path)
    assert plan_shrink(session).is_empty
    assert shrink(home.archive, session)[1] is None
    _, item = shrink(home.archive, session, dead_branches=True)
    assert path.read_bytes() == b"".join(lines[:3] + lines[5:])
    after = sessiontree.open(path)
    assert (after.leaves(), after.labels, after.problems) == (["k3", "n3"], {"k3": "keep this"}, [])
    assert item is not None
    restore(home.archive, item)
    assert path.read_bytes() == b"".join(lines)


def test_a_name_that_was_given_on_a_dead_branch_stays(tmp_path: Path) -> None:
    lines = [*native_lines()[:5], entry("session_info", "i1", "m3", name="my name"), *native_lines()[5:]]
    home, path = home_of(tmp_path), write_native(tmp_path, lines)
    shrink(home.archive, sessiontree.open(path), dead_branches=True)
    after = sessiontree.open(path)
    assert (after.name, after.parent("i1"), after.problems) == ("my name", "m1", [])
    assert after.leaves() == ["n3"]


def test_lines_added_after_shrinking_stay_when_it_is_undone(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path)
    before = path.read_bytes()
    shrink(home.archive, sessiontree.open(path), dead_branches=True)
    session = sessiontree.open(path)
    added = session.append("user", "later")
    session.close()
    (item,) = home.archive.items()
    restore(home.archive, item)
    assert path.read_bytes().startswith(before)
    assert set(sessiontree.open(path).leaves()) == {"m3", added.id}


def long_session(compacted: bool) -> list[bytes]:
    lines = [header(sessiontree=1), entry("model_change", "mc", None, provider="p", modelId="m")]
    parent = "mc"
    for at in range(200):
        if compacted and at == 150:
            lines.append(entry("compaction", "c1", parent, summary="so far", firstKeptEntryId="x148", tokensBefore=9))
            parent = "c1"
        role = "user" if at % 2 == 0 else "assistant"
        lines.append(message_line(f"x{at}", parent, f"{at} " + "y" * 500, role=role))
        parent = f"x{at}"
    return lines


def test_a_huge_compacted_session_is_reduced_to_its_tail_and_keeps_its_context(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path, long_session(compacted=True))
    before, session = path.read_bytes(), sessiontree.open(path)
    context = session.context()
    plan, item = truncate(home.archive, session, min_size=1000)
    assert plan.is_same
    assert path.stat().st_size == plan.after < plan.before / 2
    after = sessiontree.open(path)
    assert (after.context().messages, after.context().state) == (context.messages, context.state)
    assert after.problems == []
    pointer = after.fields(after.roots()[0])
    assert pointer["customType"] == POINTER
    assert item is not None
    assert pointer["data"]["sha256"] == item.sha256
    restore(home.archive, item)
    assert path.read_bytes() == before


def test_the_last_list_of_worktree_files_stays_with_the_tail(tmp_path: Path) -> None:
    lines = long_session(compacted=True)
    lines[3:3] = [entry("file_snapshot", f"f{at}", "mc", files={}, path="/w", head="h") for at in range(3)]
    home, path = home_of(tmp_path), write_native(tmp_path, lines)
    truncate(home.archive, sessiontree.open(path), min_size=1000)
    assert {"f0", "f1", "f2"} & set(sessiontree.open(path).ids) == {"f2"}


def test_without_a_compaction_the_last_turns_stay_and_the_plan_reports_it(tmp_path: Path) -> None:
    home, path = home_of(tmp_path), write_native(tmp_path, long_session(compacted=False))
    before = path.read_bytes()
    session = sessiontree.open(path)
    whole = session.context().messages
    plan, item = truncate(home.archive, session, min_size=1000, tail_size=5000)
    assert not plan.is_same
    after = sessiontree.open(path)
    messages = after.context().messages
    assert messages == whole[-len(messages) :]
    assert 2 <= len(messages) < 12
    assert isinstance(messages[0], User)
    assert (after.leaf, after.problems) == ("x199", [])
    assert item is not None
    restore(home.archive, item)
    assert path.read_bytes() == before


def test_small_sessions_are_not_reduced_to_their_tail(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="50,000,000"):
        plan_truncate(sessiontree.open(write_native(tmp_path)))


def test_a_process_killed_while_shrinking_leaves_every_line(tmp_path: Path, stride: int) -> None:
    lines = claude_with_progress()

    def find(folder: str) -> Path:
        return next(Path(folder).parent.glob("user/.claude/projects/*/*.jsonl"))

    def act(home: Home) -> None:
        shrink(home.archive, sessiontree.open(find(home.folder)))

    def check(here: Path) -> None:
        home = home_of(here)
        path = find(home.folder)
        assert {line.rstrip(b"\n") for line in lines} <= current_lines(home) | archived_lines(home)
        assert sessiontree.open(path).context().messages
        for item in home.archive.items():
            restore(home.archive, item)
        assert path.read_bytes() == b"".join(lines)

    assert kill_at_each_step(tmp_path, lambda here: write_claude(here, lines), act, check, stride) > 15


def test_the_command_shows_before_and_after_first(tmp_path: Path, command: Command) -> None:
    path = write_claude(tmp_path, claude_with_progress())
    before = path.read_bytes()
    shown = command("shrink", str(path))
    assert "repeated progress" in shown.out
    assert " before, " in shown.out
    assert path.read_bytes() == before
    done = command("shrink", str(path), "--yes", "--json").json
    assert done["after"] == path.stat().st_size
    command("restore", done["item"])
    assert path.read_bytes() == before
    assert "nothing to remove" in command("shrink", str(write_native(tmp_path))).err
