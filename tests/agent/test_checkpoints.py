"""Rewinding file changes: exactly, with a plan first, and never over changes by others."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.agent.checkpoints import Checkpoints
from sessiontree.agent.workspace import Workspace
from sessiontree.archive.saved_worktree import save_worktree
from sessiontree.archive.tags import TagFile
from sessiontree.core.messages import ToolCall
from sessiontree.errors import NotFoundError
from sessiontree.repair.findings import examine
from sessiontree.stores.blobs import FileBlobs
from tests.agent.builders import Workplace, tree, wait_for
from tests.builders import examples

ROOT = Path(__file__).parents[1]


@pytest.fixture
def yolo(place: Workplace) -> Workplace:
    place.approvals.set_mode("yolo")
    place.session.append("user", "begin")
    return place


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)


def repository(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")


def test_old_contents_are_in_the_session_before_a_tool_changes_files(yolo: Workplace) -> None:
    (yolo.project / "a.txt").write_text("one\n")
    yolo.call("edit", path="a.txt", old_text="one", new_text="two")
    yolo.call("write", path="new/b.txt", content="b")
    (_, first), (_, second) = yolo.checkpoints.log()
    assert list(first.files) == ["a.txt"]
    assert yolo.blobs.get(first.files["a.txt"].sha256) == b"one\n"
    assert yolo.blobs.get(first.after["a.txt"].sha256) == b"two\n"
    assert (first.tool, first.call, first.root) == ("edit", "call-1", str(yolo.project))
    assert second.files["new/b.txt"].mode == ""
    assert second.folders == ("new",)
    assert [yolo.session.type_of(id) for id in yolo.session.path_ids()][-2:] == ["file_snapshot"] * 2
    assert len(yolo.session.context().messages) == 1


def test_a_rewind_is_shown_first_and_restores_exactly(yolo: Workplace) -> None:
    script = yolo.project / "run.sh"
    script.write_text("echo 1\n")
    script.chmod(0o755)
    (yolo.project / "link").symlink_to("run.sh")
    before = tree(yolo.project)
    start = yolo.session.leaf
    yolo.call("edit", path="link", old_text="1", new_text="2")
    yolo.call("edit", path="run.sh", old_text="2", new_text="3")
    yolo.call("write", path="deep/er/new.txt", content="new\n")
    yolo.session.append("assistant", "done")
    after = tree(yolo.project)

    plan = yolo.checkpoints.plan(start)
    assert tree(yolo.project) == after
    assert [(change.shown, change.kind) for change in plan.changes] == [
        ("deep/er/new.txt", "delete"),
        ("run.sh", "change"),
    ]
    assert "-echo 3\n+echo 1\n" in plan.diff
    assert "-new\n" in plan.diff
    assert not plan.conflicts
    done = yolo.checkpoints.rewind(plan, "files")
    assert set(done.restored) == {"deep/er/new.txt", "run.sh"}
    assert tree(yolo.project) == before


def test_a_rewind_can_be_undone_and_the_undo_is_recorded(yolo: Workplace) -> None:
    (yolo.project / "a").write_text("0")
    prompt = yolo.session.append("user", "please change a")
    yolo.call("write", path="a", content="1")
    answer = yolo.session.append("assistant", "changed")
    plan = yolo.checkpoints.plan(prompt.id)
    assert plan.text == "please change a"
    assert plan.leaf == yolo.session.parent(prompt.id)
    yolo.checkpoints.rewind(plan)
    assert (yolo.project / "a").read_text() == "0"
    assert [message.content for message in yolo.session.context().messages] == ["begin"]  # type: ignore[union-attr]

    resumed = sessiontree.open(yolo.session.location, home=yolo.home)
    again = Checkpoints(resumed, yolo.workspace, yolo.blobs)
    back = again.plan_undo()
    assert back.leaf == answer.id
    again.undo(back)
    assert (yolo.project / "a").read_text() == "1"
    assert [message.role for message in resumed.context().messages] == ["user", "user", "assistant"]
    with pytest.raises(NotFoundError):
        again.plan_undo()
    assert examine(resumed) == []


def test_only_the_conversation_or_only_the_files_can_be_rewound(yolo: Workplace) -> None:
    (yolo.project / "a").write_text("0")
    start = yolo.session.leaf
    yolo.call("write", path="a", content="1")
    end = yolo.session.append("assistant", "done").id
    yolo.checkpoints.rewind(yolo.checkpoints.plan(start), "files")
    assert (yolo.project / "a").read_text() == "0"
    assert end in yolo.session.path_ids()
    yolo.checkpoints.undo(yolo.checkpoints.plan_undo())
    assert (yolo.project / "a").read_text() == "1"
    yolo.checkpoints.rewind(yolo.checkpoints.plan(start), "conversation")
    assert (yolo.project / "a").read_text() == "1"
    assert end not in yolo.session.path_ids()


def test_later_changes_of_the_user_are_detected_and_preserved(yolo: Workplace) -> None:
    for name in ("mine", "theirs", "gone", "mode"):
        (yolo.project / name).write_text("0")
    start = yolo.session.leaf
    for name in ("mine", "theirs", "gone", "mode"):
        yolo.call("write", path=name, content="1")
    (yolo.project / "theirs").write_text("edited by hand")
    (yolo.project / "gone").unlink()
    (yolo.project / "mode").chmod(0o700)
    plan = yolo.checkpoints.plan(start)
    assert {change.shown for change in plan.conflicts} == {"theirs", "gone", "mode"}
    assert all("the user or another program" in str(change.conflict) for change in plan.conflicts)
    done = yolo.checkpoints.rewind(plan, "files")
    assert done.restored == ("mine",)
    assert set(done.skipped) == {"theirs", "gone", "mode"}
    assert (yolo.project / "theirs").read_text() == "edited by hand"

    done = yolo.checkpoints.rewind(yolo.checkpoints.plan(start), "files", overwrite=["theirs", "gone"])
    assert set(done.restored) == {"theirs", "gone"}
    assert (yolo.project / "theirs").read_text() == "0"
    yolo.checkpoints.undo(yolo.checkpoints.plan_undo())
    assert (yolo.project / "theirs").read_text() == "edited by hand"
    assert not (yolo.project / "gone").exists()


def test_a_file_that_changes_after_the_plan_is_left_alone(yolo: Workplace) -> None:
    (yolo.project / "a").write_text("0")
    start = yolo.session.leaf
    yolo.call("write", path="a", content="1")
    plan = yolo.checkpoints.plan(start)
    (yolo.project / "a").write_text("edited in the last moment")
    done = yolo.checkpoints.rewind(plan, "files")
    assert done.restored == ()
    assert "has changed since the plan was made" in done.failed[0]
    assert (yolo.project / "a").read_text() == "edited in the last moment"


def test_a_folder_in_place_of_a_file_is_a_conflict_that_cannot_be_overwritten(yolo: Workplace) -> None:
    (yolo.project / "a").write_text("0")
    start = yolo.session.leaf
    yolo.call("write", path="a", content="1")
    (yolo.project / "a").unlink()
    (yolo.project / "a" / "inner").mkdir(parents=True)
    plan = yolo.checkpoints.plan(start)
    assert "now a folder" in str(plan.conflicts[0].conflict)
    done = yolo.checkpoints.rewind(plan, "files", overwrite=["a"])
    assert done.failed
    assert (yolo.project / "a" / "inner").is_dir()


def test_a_crafted_session_cannot_make_a_rewind_write_outside_the_workspace(yolo: Workplace, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (yolo.project / "door").symlink_to(tmp_path)
    start = yolo.session.leaf
    evil = yolo.blobs.put(b"evil")
    saved = {"mode": "100755", "sha256": evil, "size": 4}
    paths = ["../victim", str(victim), "door/victim", ".git/hooks/post-checkout", "a\0b", "", ".", "x/../../victim"]
    stands = dict.fromkeys(
        paths, msgspec.to_builtins(yolo.checkpoints.store(str(victim)))
    )  # as if a tool had left it so
    entry = {"type": "file_snapshot", "root": "/", "files": dict.fromkeys(paths, saved), "after": stands}
    yolo.session.append(entry)
    plan = yolo.checkpoints.plan(start)
    assert {change.shown for change in plan.changes} == {change.shown for change in plan.conflicts}
    done = yolo.checkpoints.rewind(plan, "files")
    assert done.restored == ()
    done = yolo.checkpoints.rewind(yolo.checkpoints.plan(start), "files", overwrite=["door/victim"])
    assert done.restored == ()
    assert victim.read_text() == "precious"
    assert not (yolo.project / ".git").exists()


def test_nothing_is_restored_through_a_link(yolo: Workplace) -> None:
    start = yolo.session.leaf
    yolo.call("write", path="d/f", content="1")
    (yolo.project / "d").rename(yolo.project / "elsewhere")
    (yolo.project / "d").symlink_to("elsewhere")
    assert yolo.checkpoints.plan(start).changes == ()
    (yolo.project / "d").unlink()
    (yolo.project / "elsewhere").rename(yolo.project / "d")
    start = yolo.session.append("assistant", "here").id
    yolo.call("write", path="d/f", content="2")
    (yolo.project / "d").rename(yolo.project / "elsewhere")
    (yolo.project / "d").symlink_to("elsewhere")
    plan = yolo.checkpoints.plan(start)
    assert [change.conflict for change in plan.changes] == ["a symbolic link leads to it"]
    assert yolo.checkpoints.rewind(plan, "files", overwrite=["d/f"]).restored == ()
    assert (yolo.project / "elsewhere" / "f").read_text() == "2"


def test_a_repository_that_makes_git_run_programs_is_not_watched(yolo: Workplace) -> None:
    (yolo.project / ".gitattributes").write_text("* filter=evil\n")
    repository(yolo.project)
    git(yolo.project, "config", "filter.evil.clean", f"touch {yolo.home}/ran; cat")
    (yolo.project / "a").write_text("x")
    start = yolo.session.leaf
    yolo.call("bash", command="echo y > a")
    assert not (yolo.home / "ran").exists()
    assert "git settings run programs" in yolo.checkpoints.plan(start).lost[0]


def test_changes_of_a_cancelled_command_are_recorded(yolo: Workplace) -> None:
    (yolo.project / "a").write_text("0\n")
    repository(yolo.project)
    start = yolo.session.leaf

    async def cancelled() -> None:
        command = ToolCall("c", "bash", {"command": "echo 1 > a; touch ready; sleep 300"})
        task = asyncio.create_task(yolo.calls.call(command))
        await asyncio.to_thread(wait_for, (yolo.project / "ready").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    yolo.checkpoints.rewind(yolo.checkpoints.plan(start), "files")
    assert tree(yolo.project) == {"a": ("644", b"0\n")}


@pytest.mark.parametrize(
    "broken",
    [
        {"files": {"a": {"mode": "100644", "sha256": "0" * 64, "size": 1}}},
        {"files": {"a": {"mode": "100644", "sha256": "../../x", "size": 1}}},
        {"files": {"a": {"mode": "lots", "sha256": 1}}},
        {"files": []},
        {"files": None, "after": 3},
    ],
)
def test_invalid_snapshots_are_harmless(broken: dict[str, Any], yolo: Workplace) -> None:
    (yolo.project / "a").write_text("0")
    start = yolo.session.leaf
    yolo.session.append({"type": "file_snapshot", "root": "/", **broken})
    plan = yolo.checkpoints.plan(start)
    yolo.checkpoints.rewind(plan, overwrite=["a"])
    assert (yolo.project / "a").read_text() == "0"


KILLED = """
import os, signal, sys
from pathlib import Path
from sessiontree.agent.tools import write_edit
from tests.agent.builders import Workplace

place = Workplace(Path(sys.argv[1]))
place.session.append("user", "go")
place.approvals.set_mode("yolo")
really = write_edit.write_file

def and_die(*arguments):
    really(*arguments)
    print(place.session.location, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

write_edit.write_file = and_die
place.call("write", path="f", content="after")
"""


def test_a_process_killed_right_after_a_change_has_recorded_it(place: Workplace, tmp_path: Path) -> None:
    (place.project / "f").write_text("before")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, cwd=ROOT.parent, check=False
    )
    assert done.returncode == -9, done.stderr
    session = sessiontree.open(done.stdout.strip(), home=place.home)
    checkpoints = Checkpoints(session, place.workspace, place.blobs)
    assert (place.project / "f").read_text() == "after"
    plan = checkpoints.plan(session.ids[0])
    assert not plan.conflicts
    checkpoints.rewind(plan, "files")
    assert (place.project / "f").read_text() == "before"


def test_branches_and_rewinds_do_not_confuse_the_log(yolo: Workplace) -> None:
    (yolo.project / "f").write_text("0")
    start = yolo.session.leaf
    yolo.call("write", path="f", content="left")
    left = yolo.session.append("assistant", "left").id
    yolo.checkpoints.rewind(yolo.checkpoints.plan(start))
    yolo.call("write", path="f", content="right")
    yolo.call("write", path="g", content="right")
    right = yolo.session.append("assistant", "right").id
    yolo.checkpoints.rewind(yolo.checkpoints.plan(left))
    assert (yolo.project / "f").read_text() == "left"
    assert not (yolo.project / "g").exists()
    yolo.checkpoints.rewind(yolo.checkpoints.plan(right))
    assert (yolo.project / "g").read_text() == "right"
    assert (yolo.project / "f").read_text() == "right"
    yolo.checkpoints.rewind(yolo.checkpoints.plan(None), "files")
    assert (yolo.project / "f").read_text() == "0"


def test_snapshots_of_worktrees_and_of_tools_do_not_interfere(yolo: Workplace) -> None:
    (yolo.project / "a").write_text("0")
    repository(yolo.project)
    start = yolo.session.leaf
    (yolo.project / "a").write_text("uncommitted")
    saved = save_worktree(yolo.session, TagFile(yolo.session.repository.documents), yolo.blobs)
    assert saved.files is not None
    yolo.call("write", path="a", content="tool")
    assert [change.shown for change in yolo.checkpoints.plan(start).changes] == ["a"]
    yolo.checkpoints.rewind(yolo.checkpoints.plan(start), "files")
    assert (yolo.project / "a").read_text() == "uncommitted"


@pytest.mark.parametrize(
    "sample",
    ["claude/01_plain.jsonl", "neovate/fork.jsonl", "pi-family/01_linear.jsonl"],
    ids=["claude", "neovate", "pi"],
)
def test_sessions_of_other_agents_hold_checkpoints_too(sample: str, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    shutil.copy(ROOT / "corpus" / sample, path)
    place = Workplace(tmp_path)
    (place.project / "a").write_text("0")
    session = sessiontree.open(path, home=tmp_path / "home")
    messages = len(session.context().messages)
    start = session.leaf
    plan_of = lambda s: Checkpoints(s, place.workspace, place.blobs)  # noqa: E731
    write = ToolCall("c", "write", {"path": "a", "content": "1"})
    checkpoints = plan_of(session)
    tool = place.calls.tools["write"]

    async def run() -> None:
        plan = tool.plan(write.arguments, place.context)
        async with checkpoints.around("write", plan, "c"):
            await tool.run(write.arguments, place.context)

    asyncio.run(run())
    assert (place.project / "a").read_text() == "1"
    resumed = sessiontree.open(path, home=tmp_path / "home")
    assert len(resumed.context().messages) == messages
    again = plan_of(resumed)
    again.rewind(again.plan(start), "files")
    assert (place.project / "a").read_text() == "0"
    last = plan_of(sessiontree.open(path, home=tmp_path / "home"))
    last.undo(last.plan_undo())
    assert (place.project / "a").read_text() == "1"


# Commands


def test_changes_of_a_command_in_a_git_worktree_are_rewound(yolo: Workplace) -> None:
    project = yolo.project
    for name, text in {"clean": "c\n", "dirty": "d\n", "doomed": "x\n", "run.sh": "#!\n", "sub/deep": "s\n"}.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (project / "run.sh").chmod(0o755)
    (project / "link").symlink_to("clean")
    repository(project)
    (project / "dirty").write_text("uncommitted\n")
    (project / "untracked").write_text("u\n")
    before = tree(project)
    start = yolo.session.leaf
    yolo.call(
        "bash",
        command="echo 2 > clean; echo 2 >> dirty; rm doomed untracked; chmod -x run.sh; ln -sf dirty link; "
        "mkdir made; echo n > made/new; rm -r sub",
    )
    after = tree(project)
    plan = yolo.checkpoints.plan(start)
    assert not plan.conflicts
    yolo.checkpoints.rewind(plan, "files")
    restored = tree(project)
    restored.pop("made", None)  # git knows no folders: an empty one stays
    assert restored == before
    yolo.checkpoints.undo(yolo.checkpoints.plan_undo())
    undone = tree(project)
    undone.pop("sub", None)
    assert undone == after


def test_files_changed_by_a_commit_or_checkout_are_rewound(yolo: Workplace) -> None:
    (yolo.project / "a").write_text("1\n")
    repository(yolo.project)
    git(yolo.project, "checkout", "-q", "-b", "other")
    (yolo.project / "a").write_text("2\n")
    git(yolo.project, "commit", "-q", "-am", "second")
    git(yolo.project, "checkout", "-q", "-")
    start = yolo.session.leaf
    yolo.call("bash", command="git checkout -q other")
    assert (yolo.project / "a").read_text() == "2\n"
    yolo.checkpoints.rewind(yolo.checkpoints.plan(start), "files")
    assert (yolo.project / "a").read_text() == "1\n"


def test_a_formerly_ignored_file_is_never_treated_as_new(yolo: Workplace) -> None:
    (yolo.project / ".gitignore").write_text("local\n")
    (yolo.project / "local").write_text("precious")
    repository(yolo.project)
    start = yolo.session.leaf
    yolo.call("bash", command="rm .gitignore; echo changed > local")
    plan = yolo.checkpoints.plan(start)
    assert [change.shown for change in plan.changes] == [".gitignore"]
    assert any("local" in line for line in plan.lost)
    yolo.checkpoints.rewind(plan, "files")
    assert (yolo.project / "local").read_text() == "changed\n"


def test_without_a_repository_commands_are_reported_as_not_covered(yolo: Workplace) -> None:
    start = yolo.session.leaf
    yolo.call("bash", command="echo x > made-by-command")
    yolo.call("bash", command="echo y > made-by-command")
    plan = yolo.checkpoints.plan(start)
    assert not plan.changes
    assert len(plan.lost) == 1
    assert "not a git worktree" in plan.lost[0]


def test_reading_records_nothing(yolo: Workplace) -> None:
    repository(yolo.project)
    (yolo.project / "a").write_text("x")
    size = len(yolo.session)
    yolo.call("read", path="a")
    yolo.call("bash", command="cat a")
    yolo.call("bash", command="true && true")
    assert len(yolo.session) == size


# Any sequence

NAMES = ["a", "b", "d/a", "d/e/b"]
ACTS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), st.binary(max_size=20)),
    st.tuples(st.just("chmod"), st.sampled_from(NAMES), st.sampled_from([0o600, 0o644, 0o755, 0o400])),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("link"), st.sampled_from(NAMES), st.sampled_from(["a", "nowhere", "/etc"])),
)


def act(place: Workplace, what: str, name: str, value: Any) -> None:
    """A random change of a file, recorded like that of a tool."""
    path = place.project / name
    before = {str(path): place.checkpoints.store(str(path))}
    is_there = os.path.lexists(path)
    match what:
        case "write":
            if path.is_symlink():
                path.unlink()
            path.parent.mkdir(parents=True, exist_ok=True)
            if is_there and path.exists():
                path.chmod(0o644)
            path.write_bytes(value)
        case "chmod" if is_there and not path.is_symlink():
            path.chmod(value)
        case "delete" if is_there:
            path.unlink()
        case "link":
            path.parent.mkdir(parents=True, exist_ok=True)
            if is_there:
                path.unlink()
            path.symlink_to(value)
    place.checkpoints.record(before, what)


def files_of(folder: Path) -> dict[str, object]:
    return {name: about for name, about in tree(folder).items() if about[0] != "folder"}


@examples(40)
@given(st.lists(ACTS, max_size=8), st.lists(ACTS, min_size=1, max_size=10), st.lists(ACTS, max_size=4))
def test_any_changes_are_rewound_exactly_and_so_is_the_rewind(first: Any, second: Any, third: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace(Path(folder))
        place.session.append("user", "begin")
        for one in first:
            act(place, *one)
        point = place.session.append("assistant", "here").id
        before = files_of(place.project)
        for one in second:
            act(place, *one)
        after = files_of(place.project)
        plan = place.checkpoints.plan(point)
        assert not plan.conflicts
        assert not plan.lost
        place.checkpoints.rewind(plan)
        assert files_of(place.project) == before
        place.checkpoints.undo(place.checkpoints.plan_undo())
        assert files_of(place.project) == after
        for one in third:
            act(place, *one)
        place.checkpoints.rewind(place.checkpoints.plan(point))
        assert files_of(place.project) == before


@examples(40)
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.text("xy\n", max_size=6)), min_size=1, max_size=8))
def test_any_calls_of_file_tools_are_rewound_with_their_folders(writes: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace(Path(folder))
        place.approvals.set_mode("yolo")
        place.session.append("user", "begin")
        (place.project / "a").write_bytes(b"old\r\n")
        before, point = tree(place.project), place.session.leaf
        for path, content in writes:
            place.call("write", path=path, content=content)
        after = tree(place.project)
        place.checkpoints.rewind(place.checkpoints.plan(point))
        assert tree(place.project) == before
        place.checkpoints.undo(place.checkpoints.plan_undo())
        assert tree(place.project) == after


def test_relative_paths_are_restored_in_a_workspace_on_another_machine(yolo: Workplace, tmp_path: Path) -> None:
    (yolo.project / "a").write_text("0")
    start = yolo.session.leaf
    yolo.call("write", path="a", content="1")
    yolo.project.rename(tmp_path / "moved")
    moved = Checkpoints(yolo.session, Workspace(tmp_path / "moved"), FileBlobs(yolo.home / "blobs"))
    moved.rewind(moved.plan(start), "files")
    assert (tmp_path / "moved" / "a").read_text() == "0"
