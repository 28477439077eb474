"""Claude Code's copies of files serve a rewind, and a transcript cannot make it read or write anywhere else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.agent.workspace import Workspace
from sessiontree.app.actions.rewind import open_checkpoints, plan_rewind, plan_undo_rewind
from sessiontree.session.session import Session
from tests.agent.builders import tree
from tests.chat.terminals import Place, scripted, turn

ID = "0d5e7a3c-3f0b-4b8e-9a43-5f1c2d3e4f50"


class ClaudeWork:
    """A session of Claude Code in which three prompts led to edits of `a.txt` and to a new file."""

    def __init__(self, root: Path) -> None:
        self.project = root / "project"
        self.project.mkdir()
        self.config = root / "user" / ".claude"
        self.copies = self.config / "file-history" / ID
        self.copies.mkdir(parents=True)
        self.lines: list[dict[str, object]] = []
        self._last: str | None = None

    def prompt(self, uuid: str, **backups: object) -> None:
        snapshot = {"messageId": uuid, "trackedFileBackups": backups, "timestamp": "2026-01-01T00:00:00.000Z"}
        self.lines.append(
            {"type": "file-history-snapshot", "messageId": uuid, "snapshot": snapshot, "isSnapshotUpdate": False}
        )
        self.message(uuid, "user", f"prompt {uuid}")

    def message(self, uuid: str, role: str, text: str) -> None:
        content = text if role == "user" else [{"type": "text", "text": text}]
        message = {"role": role, "content": content} | ({"model": "m", "id": uuid} if role == "assistant" else {})
        self.lines.append(
            {
                "type": role,
                "uuid": uuid,
                "parentUuid": self._last,
                "message": message,
                "timestamp": f"2026-01-01T00:00:{len(self.lines):02}.000Z",
                "sessionId": ID,
                "cwd": str(self.project),
                "version": "2.1.150",
                "isSidechain": False,
            }
        )
        self._last = uuid

    def edited(self, prompt: str, path: str, name: str | None) -> None:
        backup = {"backupFileName": name, "version": 1}
        self.lines.append(
            {"type": "file-history-delta", "snapshotMessageId": prompt, "trackingPath": path, "backup": backup}
        )

    def open(self) -> Session:
        folder = self.config / "projects" / "-project"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{ID}.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in self.lines))
        return sessiontree.open(path, home=self.config.parent / "home")


@pytest.fixture
def work(tmp_path: Path) -> ClaudeWork:
    work = ClaudeWork(tmp_path)
    (work.copies / "aaaa@v1").write_text("one\n")
    (work.copies / "aaaa@v2").write_text("two\n")
    (work.copies / "bbbb@v2").write_text("made\n")
    work.prompt("u1")
    work.edited("u1", "a.txt", "aaaa@v1")
    work.edited("u1", str(work.project / "b.txt"), None)
    work.message("r1", "assistant", "Edited.")
    work.prompt("u2", **{"a.txt": {"backupFileName": "aaaa@v2"}, "b.txt": {"backupFileName": "bbbb@v2"}})
    work.message("r2", "assistant", "Edited again.")
    work.prompt("u3", **{"a.txt": {"backupFileName": "aaaa@v2"}, "b.txt": {"backupFileName": "bbbb@v2"}})
    work.message("r3", "assistant", "And again.")
    (work.project / "a.txt").write_text("three\n")
    (work.project / "b.txt").write_text("made\n")
    return work


def test_files_are_restored_to_a_prompt_with_a_plan_first_and_an_undo(work: ClaudeWork) -> None:
    session, workspace = work.open(), Workspace(work.project)
    before = tree(work.project)
    action = plan_rewind(session, workspace, "u2")
    (change,) = action.expected.changes
    assert (change.shown, "-three" in change.diff, "+two" in change.diff) == ("a.txt", True, True)
    assert change.conflict is not None  # nobody recorded what was left after the last edit
    assert action.expected.leaf == "r1"
    assert tree(work.project) == before

    skipped = action.choose("files").do().result
    assert (skipped.restored, skipped.skipped) == ((), ("a.txt",))
    done = plan_rewind(session, workspace, "u2").choose("both", [change.path]).do().result
    assert (done.restored, done.failed, done.leaf) == (("a.txt",), (), "r1")
    assert (work.project / "a.txt").read_text() == "two\n"

    undone = plan_undo_rewind(session, workspace).choose("both").do().result
    assert (undone.restored, undone.leaf) == (("a.txt",), "r3")
    assert tree(work.project) == before


def test_a_rewind_to_the_first_prompt_uses_the_copies_from_before_the_first_edit(work: ClaudeWork) -> None:
    session, workspace = work.open(), Workspace(work.project)
    action = plan_rewind(session, workspace, "u1")
    kinds = {change.shown: (change.kind, change.conflict is None) for change in action.expected.changes}
    # The second file is as the client copied it last, so nothing of others is lost with it.
    assert kinds == {"a.txt": ("change", False), "b.txt": ("delete", True)}
    action.choose("files", ["a.txt"]).do()
    assert (work.project / "a.txt").read_text() == "one\n"
    assert not (work.project / "b.txt").exists()
    again = open_checkpoints(work.open(), workspace).plan("u1")
    assert again.changes == ()


def test_a_transcript_cannot_make_a_rewind_read_or_write_outside(work: ClaudeWork, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    os.symlink(secret, work.copies / "cccc@v1")
    (work.project / "link").symlink_to(tmp_path)
    (work.project / "c.txt").write_text("mine")
    (work.copies / "dddd@v1").write_text("theirs")
    for path, name in (
        ("c.txt", "../../../../secret"),
        ("c.txt", "cccc@v1"),
        ("c.txt", str(secret)),
        ("../secret", "dddd@v1"),
        (str(secret), "dddd@v1"),
        ("link/secret", "dddd@v1"),
    ):
        work.edited("u3", path, name)
    session, workspace = work.open(), Workspace(work.project)
    plan = plan_rewind(session, workspace, "u3").expected
    assert "secret" not in plan.diff.replace("link/secret", "")
    assert "c.txt" not in [change.shown for change in plan.changes]
    lost = "\n".join(plan.lost)
    assert "cccc@v1 is missing" in lost
    assert lost.count("outside the session's folder") == 2
    everything = [change.path for change in plan.changes]
    plan_rewind(session, workspace, "u3").choose("files", everything).do()
    assert (secret.read_text(), (work.project / "c.txt").read_text()) == ("secret", "mine")


@pytest.mark.parametrize("evil", ["../file-history/other", "/etc", "a/b", ""])
def test_a_session_id_cannot_lead_to_another_folder(work: ClaudeWork, evil: str) -> None:
    other = work.config / "file-history" / "other"
    other.mkdir()
    (other / "aaaa@v1").write_text("of another session")
    for line in work.lines:
        if "sessionId" in line:
            line["sessionId"] = evil
    plan = plan_rewind(work.open(), Workspace(work.project), "u1").expected
    assert "of another session" not in plan.diff


def test_copies_of_a_linked_folder_are_not_read(work: ClaudeWork, tmp_path: Path) -> None:
    work.copies.rename(tmp_path / "elsewhere")
    work.copies.symlink_to(tmp_path / "elsewhere")
    plan = plan_rewind(work.open(), Workspace(work.project), "u2").expected
    assert plan.changes == ()
    assert "its copy aaaa@v2 is missing" in "\n".join(plan.lost)


def test_the_chat_restores_files_of_a_claude_session_after_a_confirmation(work: ClaudeWork, tmp_path: Path) -> None:
    session = work.open()
    (tmp_path / "place").mkdir()
    place = Place(tmp_path / "place")
    place.project.rmdir()
    place.project = work.project
    model = scripted(place, turn("Yes."))
    typed = "/rewind u2\nf\nn\n/rewind u2\nf\ny\n/quit\n"
    done = place.run("-r", session.location, "--model", model, typed=typed)
    assert (done.code, done.err) == (0, "")
    first, second = done.out.split("Rewind [c]onversation")[1:]
    assert "not changed: a.txt" in first
    assert "restored a.txt" in second
    assert (work.project / "a.txt").read_text() == "two\n"
    done = place.run("-r", session.location, "--model", model, typed="/rewind undo\ny\n/quit\n")
    assert (work.project / "a.txt").read_text() == "three\n"
