"""Worktrees start with the project as it is, never lose work, and leave the user's repository alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from sessiontree.errors import SessionTreeError, StoreError, UsageError
from sessiontree.explore.records import Worktree
from sessiontree.explore.worktrees import LaneWorktrees
from tests.agent.builders import kill_all_of
from tests.explore.repos import contents, git, make_repository, seen_by_user, user_filter, work_in

RUN = "0123abcd"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def worktrees(tmp_path: Path, project: Path) -> LaneWorktrees:
    return LaneWorktrees(str(tmp_path / "home"), "session-1", str(project))


def test_a_worktree_has_the_uncommitted_work_of_the_project_and_no_ignored_files(
    project: Path, worktrees: LaneWorktrees
) -> None:
    work_in(project)
    worktree = worktrees.make(RUN, 1)
    expected = contents(project)
    del expected["trace.log"], expected["build/out"]
    assert contents(Path(worktree.path)) == expected
    assert worktrees.diff(worktree) == ""
    assert worktrees.files(worktree) == []
    assert worktrees.save(worktree) is None


def test_the_users_branches_index_stash_and_reflog_stay_as_they_are(project: Path, worktrees: LaneWorktrees) -> None:
    work_in(project)
    git(project, "stash", "push", "-q", "--", "a.txt")
    before, files = seen_by_user(project), contents(project)
    first, second = worktrees.make(RUN, 1), worktrees.make(RUN, 2)
    for worktree in (first, second):
        (Path(worktree.path) / "made.txt").write_text("made\n")
        worktrees.save(worktree)
        worktrees.diff(worktree)
        worktrees.files(worktree)
        worktrees.restore(worktree)
    worktrees.remove(first)
    worktrees.restore(first)
    worktrees.remove(first)
    worktrees.remove(second)
    assert seen_by_user(project) == before
    assert contents(project) == files


def test_a_file_name_that_git_refuses_elsewhere_is_saved_and_restored(project: Path, worktrees: LaneWorktrees) -> None:
    (project / "GIT~1").write_text("of the project\n")
    worktree = worktrees.make(RUN, 1)
    (Path(worktree.path) / "git~1").write_text("of the lane\n")
    worktrees.remove(worktree)
    worktrees.restore(worktree)
    there = contents(Path(worktree.path))
    assert (project / "GIT~1").read_text() == (Path(worktree.path) / "GIT~1").read_text()
    assert (Path(worktree.path) / "git~1").read_text() == "of the lane\n", sorted(there)


def test_all_worktrees_of_a_run_start_with_the_same_files(project: Path, worktrees: LaneWorktrees) -> None:
    first = worktrees.make(RUN, 1)
    (project / "a.txt").write_text("changed by the user meanwhile\n")
    second = worktrees.make(RUN, 2)
    assert second.base == first.base
    assert contents(Path(second.path)) == contents(Path(first.path))
    other = worktrees.make("ffff0000", 1)
    assert (Path(other.path) / "a.txt").read_text() == "changed by the user meanwhile\n"


def test_a_worktree_can_start_with_the_files_of_another(worktrees: LaneWorktrees) -> None:
    first = worktrees.make(RUN, 1)
    (Path(first.path) / "half.txt").write_text("half done\n")
    second = worktrees.make(RUN, 2, first)
    assert (Path(second.path) / "half.txt").read_text() == "half done\n"
    assert second.base == first.base
    assert [one.path for one in worktrees.files(second)] == ["half.txt"]
    shutil.rmtree(second.path)
    worktrees.restore(second)
    assert (Path(second.path) / "half.txt").read_text() == "half done\n"


def test_a_project_in_a_subfolder_of_the_repository_works_in_that_subfolder(tmp_path: Path, project: Path) -> None:
    worktrees = LaneWorktrees(str(tmp_path / "home"), "session-1", str(project / "src"))
    worktree = worktrees.make(RUN, 1)
    folder = Path(worktrees.folder(worktree))
    assert (folder / "main.py").read_text() == "print(1)\n"
    (folder / "main.py").write_text("print(2)\n")
    assert [one.path for one in worktrees.files(worktree)] == ["src/main.py"]
    assert not worktrees.apply(worktree).clashes
    assert (project / "src" / "main.py").read_text() == "print(2)\n"


def test_a_project_in_a_worktree_of_the_user_works(tmp_path: Path, project: Path) -> None:
    git(project, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side" / "a.txt").write_text("on the side\n")
    worktrees = LaneWorktrees(str(tmp_path / "home"), "session-1", str(tmp_path / "side"))
    worktree = worktrees.make(RUN, 1)
    assert (Path(worktree.path) / "a.txt").read_text() == "on the side\n"
    (Path(worktree.path) / "a.txt").write_text("by the lane\n")
    assert not worktrees.apply(worktree).clashes
    assert (tmp_path / "side" / "a.txt").read_text() == "by the lane\n"
    assert (project / "a.txt").read_text().startswith("one\n")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda folder: folder.mkdir(), "git init"),
        (lambda folder: (folder.mkdir(), git(folder, "init", "-q")), "git commit --allow-empty"),
    ],
)
def test_errors_about_worktrees_name_the_next_step(tmp_path: Path, prepare, words: str) -> None:  # type: ignore[no-untyped-def]
    prepare(tmp_path / "bare")
    worktrees = LaneWorktrees(str(tmp_path / "home"), "session-1", str(tmp_path / "bare"))
    with pytest.raises(UsageError, match=words):
        worktrees.make(RUN, 1)
    assert words in (worktrees.why_not() or "")
    assert not (tmp_path / "home").exists()


def test_a_project_that_its_repository_ignores_gets_no_empty_worktrees(tmp_path: Path, project: Path) -> None:
    (project / "build").mkdir()
    worktrees = LaneWorktrees(str(tmp_path / "home"), "session-1", str(project / "build"))
    with pytest.raises(UsageError, match="ignored by the repository"):
        worktrees.make(RUN, 1)


def test_too_many_uncommitted_bytes_are_refused(project: Path, worktrees: LaneWorktrees) -> None:
    with open(project / "huge.bin", "wb") as file:
        file.truncate(600_000_000)  # a hole: it takes no room on the disk
    with pytest.raises(UsageError, match=r"ignore large files such as huge\.bin"):
        worktrees.make(RUN, 1)
    (project / ".git" / "info" / "exclude").write_text("huge.bin\n")
    assert not (Path(worktrees.make(RUN, 1).path) / "huge.bin").exists()


# Work is never lost


def test_removed_work_of_every_kind_is_restored_from_its_ref(
    tmp_path: Path, project: Path, worktrees: LaneWorktrees
) -> None:
    worktree = worktrees.make(RUN, 1)
    work_in(Path(worktree.path))
    expected = contents(Path(worktree.path))
    del expected["trace.log"], expected["build/out"]
    assert worktrees.remove(worktree) is None
    assert not os.path.exists(worktree.path)
    assert "explore" not in git(project, "worktree", "list")
    git(project, "gc", "--quiet", "--prune=now")
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "by hand"), worktree.ref)
    assert contents(tmp_path / "by hand") == expected
    worktrees.restore(worktree)
    assert contents(Path(worktree.path)) == expected
    assert not os.path.exists(os.path.join(os.path.dirname(worktree.path), "nothing"))


def test_removing_and_restoring_a_worktree_without_changes_survives_gc(project: Path, worktrees: LaneWorktrees) -> None:
    (project / "a.txt").write_text("uncommitted\n")
    worktree = worktrees.make(RUN, 1)
    worktrees.remove(worktree)
    (project / "a.txt").write_text("something else\n")
    git(project, "gc", "--quiet", "--prune=now")
    worktrees.restore(worktree)
    assert (Path(worktree.path) / "a.txt").read_text() == "uncommitted\n"


def test_commits_that_a_lane_made_stay_in_the_history_of_its_ref(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    (Path(worktree.path) / "c.txt").write_text("c\n")
    git(Path(worktree.path), "add", "c.txt")
    git(Path(worktree.path), "commit", "-q", "-m", "by the lane")
    worktrees.remove(worktree)
    assert "by the lane" in git(project, "log", "--format=%s", worktree.ref)
    assert [one.path for one in worktrees.files(worktree)] == ["c.txt"]


def test_reverted_work_is_still_in_the_history_of_the_ref(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    (Path(worktree.path) / "c.txt").write_text("c\n")
    saved = worktrees.save(worktree)
    (Path(worktree.path) / "c.txt").unlink()
    assert worktrees.save(worktree) is None
    worktrees.remove(worktree)
    assert str(saved) in git(project, "log", "--format=%H", worktree.ref).splitlines()


def test_a_folder_with_a_repository_of_its_own_inside_stays(worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    inner = Path(worktree.path) / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "work.txt").write_text("work\n")
    assert "inner" in str(worktrees.remove(worktree))
    assert (inner / "work.txt").read_text() == "work\n"
    with pytest.raises(StoreError, match="inner"):
        worktrees.make(RUN, 1)
    assert (inner / "work.txt").read_text() == "work\n"


def test_a_worktree_that_git_has_forgotten_keeps_its_work(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    work_in(Path(worktree.path))
    expected = contents(Path(worktree.path))
    del expected["trace.log"], expected["build/out"]
    shutil.rmtree(project / ".git" / "worktrees")
    assert {"a.txt", "b.txt", "link"} <= {one.path for one in worktrees.files(worktree)}
    worktrees.restore(worktree)
    assert contents(Path(worktree.path)) == expected
    assert git(Path(worktree.path), "rev-parse", "HEAD") == worktree.head


_MAKE = """
import sys
from sessiontree.explore.worktrees import LaneWorktrees
LaneWorktrees(*sys.argv[1:4]).make("0123abcd", 1)
"""


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6, 1.0])
def test_an_incomplete_worktree_of_a_killed_process_is_created_again(
    tmp_path: Path, project: Path, worktrees: LaneWorktrees, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".gitattributes").write_text("*.slow filter=slow\n")
    for number in range(8):
        (project / f"{number}.slow").write_text(f"{number}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", user_filter(tmp_path / "settings", "slow", "sleep 0.2; cat"))
    child = subprocess.Popen(
        [sys.executable, "-c", _MAKE, str(tmp_path / "home"), "session-1", str(project)], start_new_session=True
    )
    deadline = time.monotonic() + 20
    while not list((tmp_path / "home").rglob(".git")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)
    kill_all_of(child.pid)
    child.wait()
    user_filter(tmp_path / "settings", "slow", "cat")
    assert len(worktrees.find_orphans([])) == 1
    worktree = worktrees.make(RUN, 1)
    assert contents(Path(worktree.path)) == contents(project)
    assert worktrees.files(worktree) == []
    shutil.rmtree(worktree.path)
    worktrees.restore(worktree)
    assert contents(Path(worktree.path)) == contents(project)
    assert len(git(project, "worktree", "list").splitlines()) == 2


def test_folders_that_no_record_names_are_saved_and_removed(project: Path, worktrees: LaneWorktrees) -> None:
    known, unknown = worktrees.make(RUN, 1), worktrees.make(RUN, 2)
    (Path(unknown.path) / "c.txt").write_text("c\n")
    assert worktrees.find_orphans([known]) == [unknown.path]
    assert worktrees.remove_orphans([known]) == [unknown.path]
    assert os.path.isdir(known.path)
    assert not os.path.exists(unknown.path)
    assert git(project, "show", f"{unknown.ref}:c.txt") == "c"


def test_a_record_that_names_anything_else_is_refused(tmp_path: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("dear")
    others = make_repository(tmp_path / "other")
    for change in (
        {"path": str(victim)},
        {"path": worktree.path + "/../../../.."},
        {"ref": "refs/heads/main"},
        {"base": "--output=x"},
        {"repository": str(others / ".git")},
    ):
        wrong = msgspec.structs.replace(worktree, **change)
        for act in (
            worktrees.remove,
            worktrees.save,
            worktrees.restore,
            worktrees.diff,
            worktrees.files,
            worktrees.folder,
            worktrees.apply,
        ):
            with pytest.raises(UsageError):
                act(wrong)  # type: ignore[operator]
    assert (victim / "file").read_text() == "dear"
    assert os.path.isdir(worktree.path)


@pytest.mark.parametrize("id", ["../../outside", "/tmp/outside", "a/b", "", "..", "x\0y"])
def test_a_session_id_with_path_parts_is_refused(tmp_path: Path, project: Path, id: str) -> None:
    with pytest.raises(UsageError, match="is not a valid session id"):
        LaneWorktrees(str(tmp_path / "home"), id, str(project))


# Differences


def test_diffs_are_those_of_git_with_lines_added_and_removed(worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    folder = Path(worktree.path)
    (folder / "a.txt").write_text("one\nzwei\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n")
    (folder / "b.txt").unlink()
    (folder / "run.sh").chmod(0o755)
    (folder / "picture.bin").write_bytes(b"\0\1\2")
    found = {one.path: (one.added, one.removed, one.kind) for one in worktrees.files(worktree)}
    assert found == {
        "a.txt": (2, 1, "changed"),
        "b.txt": (0, 1, "removed"),
        "run.sh": (0, 0, "mode"),
        "picture.bin": (None, None, "added"),
    }
    text = worktrees.diff(worktree)
    for part in ("-two\n+zwei\n", "+ten\n", "new mode 100755"):
        assert part in text
    assert "4 files changed, 2 insertions(+), 2 deletions(-)" in worktrees.diff(worktree, stat=True)
    worktrees.remove(worktree)
    assert worktrees.diff(worktree) == text


# Into the project


def test_work_is_applied_to_the_project_as_uncommitted_changes(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    work_in(Path(worktree.path))
    before = seen_by_user(project)
    (project / "trace.log").write_text("mine\n")
    applied = worktrees.apply(worktree)
    assert not applied.clashes
    expected = contents(Path(worktree.path))
    del expected["build/out"]
    expected["trace.log"] = ("file", b"mine\n")
    assert contents(project) == expected
    after = seen_by_user(project)
    assert {name: after[name] for name in ("branches", "stash", "reflog", "staged", "index")} == {
        name: before[name] for name in ("branches", "stash", "reflog", "staged", "index")
    }
    assert worktrees.apply(worktree).files == (), "a second time there is nothing to do"


def test_private_files_stay_private(project: Path, worktrees: LaneWorktrees) -> None:
    (project / "a.txt").chmod(0o600)
    (project / "run.sh").chmod(0o600)
    worktree = worktrees.make(RUN, 1)
    (Path(worktree.path) / "a.txt").write_text("by the lane\n")
    (Path(worktree.path) / "run.sh").chmod(0o755)
    assert not worktrees.apply(worktree).clashes
    assert (project / "a.txt").read_text() == "by the lane\n"
    assert (project / "a.txt").stat().st_mode & 0o777 == 0o600
    assert (project / "run.sh").stat().st_mode & 0o777 == 0o700


def test_changes_of_the_user_elsewhere_in_the_same_file_are_preserved(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    lines = (project / "a.txt").read_text()
    (Path(worktree.path) / "a.txt").write_text(lines.replace("one\n", "ONE\n"))
    (project / "a.txt").write_text(lines.replace("nine\n", "NINE\n"))
    assert not worktrees.apply(worktree).clashes
    assert (project / "a.txt").read_text() == lines.replace("one\n", "ONE\n").replace("nine\n", "NINE\n")


def test_conflicts_with_the_user_are_listed_and_nothing_is_written(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    folder = Path(worktree.path)
    (folder / "a.txt").write_text("by the lane\n")
    (folder / "b.txt").unlink()
    (folder / "fine.txt").write_text("no conflict\n")
    (folder / "both.txt").write_text("lane\n")
    (folder / ".gitignore").write_text("")
    (folder / "trace.log").write_text("by the lane\n")
    (project / "a.txt").write_text("by the user\n")
    (project / "b.txt").write_text("by the user\n")
    (project / "both.txt").write_text("user\n")
    before, files = seen_by_user(project), contents(project)
    applied = worktrees.apply(worktree)
    assert [one.path for one in applied.clashes] == ["a.txt", "b.txt", "both.txt"]
    assert applied.files == ()
    assert (seen_by_user(project), contents(project)) == (before, files)


def test_an_ignored_file_of_the_user_is_not_overwritten(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    folder = Path(worktree.path)
    (folder / ".gitignore").write_text("")
    (folder / "trace.log").write_text("by the lane\n")
    (folder / "build").mkdir()
    (folder / "build" / "out").write_text("by the lane\n")
    (project / "trace.log").write_text("dear\n")
    (project / "build").symlink_to("src")
    before = contents(project)
    applied = worktrees.apply(worktree)
    assert [one.path for one in applied.clashes] == ["build/out", "trace.log"]
    assert contents(project) == before


def test_several_worktrees_are_applied_together_or_not_at_all(project: Path, worktrees: LaneWorktrees) -> None:
    one, two, three = (worktrees.make(RUN, number) for number in (1, 2, 3))
    lines = (project / "a.txt").read_text()
    (Path(one.path) / "a.txt").write_text(lines.replace("one\n", "ONE\n"))
    (Path(two.path) / "a.txt").write_text(lines.replace("nine\n", "NINE\n"))
    (Path(three.path) / "a.txt").write_text(lines.replace("one\n", "EINS\n"))
    before = contents(project)
    assert [clash.path for clash in worktrees.apply_all([one, two, three]).clashes] == ["a.txt"]
    assert contents(project) == before
    assert not worktrees.apply_all([one, two], dry_run=True).clashes
    assert contents(project) == before
    assert not worktrees.apply_all([one, two]).clashes
    assert (project / "a.txt").read_text() == lines.replace("one\n", "ONE\n").replace("nine\n", "NINE\n")


def test_a_failed_write_leaves_the_project_unchanged(
    tmp_path: Path, project: Path, worktrees: LaneWorktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    worktree = worktrees.make(RUN, 1)
    (Path(worktree.path) / "a.txt").write_text("by the lane\n")
    (Path(worktree.path) / "z.slow").write_text("by the lane\n")
    (Path(worktree.path) / "b.txt").unlink()
    before = contents(project)
    worktrees.remove(worktree)
    (project / ".git" / "info" / "attributes").write_text("*.slow filter=broken\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", user_filter(tmp_path / "settings", "broken", "false"))
    with pytest.raises(SessionTreeError, match="as they were"):
        worktrees.apply(worktree)
    assert contents(project) == before


def test_a_file_that_becomes_a_folder_and_back(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    folder = Path(worktree.path)
    (folder / "b.txt").unlink()
    (folder / "b.txt").mkdir()
    (folder / "b.txt" / "inside").write_text("x\n")
    shutil.rmtree(folder / "src")
    (folder / "src").write_text("a file now\n")
    assert not worktrees.apply(worktree).clashes
    assert contents(project) == contents(folder)


def test_a_file_and_a_folder_of_the_same_name_conflict(project: Path, worktrees: LaneWorktrees) -> None:
    one, two = worktrees.make(RUN, 1), worktrees.make(RUN, 2)
    (Path(one.path) / "thing").write_text("x\n")
    (Path(two.path) / "thing").mkdir()
    (Path(two.path) / "thing" / "inside").write_text("x\n")
    for order in ([one, two], [two, one]):
        assert len(worktrees.apply_all(order).clashes) == 1
    assert not (project / "thing").exists()


def test_a_worktree_record_round_trips_through_a_session() -> None:
    worktree = Worktree("/p", "/r", "b", "h", "f")
    assert msgspec.convert(msgspec.to_builtins(worktree), Worktree) == worktree


@pytest.mark.parametrize(
    "work",
    [
        "echo x > sub/new.txt",
        "git init -q lib && cd lib && echo x > x && git add x && {git} commit -q -m x && cd .. && git add lib",
        "git init -q src && cd src && git add . && {git} commit -q -m x",
    ],
    ids=["in a submodule", "added", "below files of the project"],
)
def test_a_folder_with_work_that_git_cannot_store_is_kept(project: Path, worktrees: LaneWorktrees, work: str) -> None:
    git(project, "init", "-q", "sub")
    git(project / "sub", "commit", "-q", "--allow-empty", "-m", "x")
    git(project, "-c", "advice.addEmbeddedRepo=false", "add", "sub")
    git(project, "commit", "-q", "-m", "with a repository in it")
    worktree = worktrees.make(RUN, 1)
    ours = "git -c user.name=Ada -c user.email=ada@example.org"
    subprocess.run(["sh", "-c", work.replace("{git}", ours)], cwd=worktree.path, check=True, capture_output=True)
    stayed = worktrees.remove(worktree)
    assert stayed is not None
    assert "it contains the repository" in stayed
    assert os.path.isdir(worktree.path)


def test_an_inner_repository_is_not_reported_as_applied(project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    git(Path(worktree.path), "init", "-q", "lib")
    git(Path(worktree.path) / "lib", "commit", "-q", "--allow-empty", "-m", "x")
    git(Path(worktree.path), "-c", "advice.addEmbeddedRepo=false", "add", "lib")
    (Path(worktree.path) / "made.txt").write_text("made\n")
    assert [one.path for one in worktrees.files(worktree)] == ["lib", "made.txt"]
    assert [one.path for one in worktrees.apply(worktree).files] == ["made.txt"]
    assert not (project / "lib").exists()


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_files_that_git_is_configured_to_skip_are_read(project: Path, worktrees: LaneWorktrees, flag: str) -> None:
    git(project, "update-index", flag, "a.txt")
    (project / "a.txt").write_text("mine\n")
    worktree = worktrees.make(RUN, 1)
    assert (Path(worktree.path) / "a.txt").read_text() == "mine\n"
    git(Path(worktree.path), "update-index", flag, "b.txt")
    (Path(worktree.path) / "a.txt").write_text("of the lane\n")
    (Path(worktree.path) / "b.txt").write_text("of the lane\n")
    assert [one.path for one in worktrees.files(worktree)] == ["a.txt", "b.txt"]
    (project / "a.txt").write_text("mine, changed since\n")
    assert [clash.path for clash in worktrees.apply(worktree).clashes] == ["a.txt"]
    assert (project / "a.txt").read_text() == "mine, changed since\n"
    assert git(project, "ls-files", "-v", "a.txt")[0] in "hS", "the user's own index is as it was"


KILLED = """
import os, sys
from sessiontree.git import trees
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.explore.records import Worktree
import msgspec

at, put = int(sys.argv[1]), trees._move
def killed(path, to):
    global at
    at -= 1
    if at < 0:
        os.kill(os.getpid(), 9)
    put(path, to)
trees._move = killed
LaneWorktrees(*sys.argv[2:5]).apply(msgspec.json.decode(sys.argv[5], type=Worktree))
"""


@pytest.mark.slow
def test_applying_files_can_be_repeated_after_a_kill(tmp_path: Path, project: Path, worktrees: LaneWorktrees) -> None:
    worktree = worktrees.make(RUN, 1)
    lines = (project / "a.txt").read_text().splitlines()
    (Path(worktree.path) / "a.txt").write_text("\n".join([*lines[:-1], "NINE"]) + "\n")
    (Path(worktree.path) / "b.txt").unlink()
    for name in ("c.txt", "d.txt"):
        (Path(worktree.path) / name).write_text("new\n")
    (project / "a.txt").write_text("\n".join(["ONE", *lines[1:]]) + "\n")
    whole = "\n".join(["ONE", *lines[1:-1], "NINE"]) + "\n"
    for at in (0, 1, 1, 9):
        arguments = [str(at), str(tmp_path / "home"), "session-1", str(project), msgspec.json.encode(worktree).decode()]
        ran = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
        assert ran.returncode == (0 if at == 9 else -signal.SIGKILL)
        assert (project / "a.txt").read_text() in (whole, "\n".join(["ONE", *lines[1:]]) + "\n")
    assert (project / "a.txt").read_text() == whole
    assert not (project / "b.txt").exists()
    assert (project / "d.txt").read_text() == "new\n"
    assert "ONE" in git(project, "show", f"refs/sessiontree/explore/{RUN}/before:a.txt"), "as it was before"


def test_work_that_moves_the_project_folder_can_be_applied(tmp_path: Path, project: Path) -> None:
    worktrees = LaneWorktrees(str(tmp_path / "home"), "session-1", str(project / "src"))
    first, second = worktrees.make(RUN, 1), worktrees.make(RUN, 2)
    git(Path(first.path), "mv", "src", "lib")
    assert not worktrees.apply(first).clashes
    assert (project / "lib" / "main.py").exists()
    assert not (project / "src").exists()
    assert worktrees.save(first) is not None
    assert worktrees.remove(first) is None
    assert worktrees.remove(second) is None


def test_a_worktree_in_which_the_folder_of_the_project_is_a_file_is_reported(tmp_path: Path, project: Path) -> None:
    worktrees = LaneWorktrees(str(tmp_path / "home"), "session-1", str(project / "src"))
    worktree = worktrees.make(RUN, 1)
    shutil.rmtree(Path(worktree.path) / "src")
    (Path(worktree.path) / "src").write_text("a file\n")
    with pytest.raises(StoreError, match="not a folder in this worktree"):
        worktrees.folder(worktree)
