"""Working copies have the project as it is, never lose work, and leave the user's repository alone."""

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
from sessiontree.explore.records import Copy
from sessiontree.explore.worktrees import Copies
from tests.agent.builders import kill_all_of
from tests.explore.repos import contents, git, make_repository, seen_by_user, work_in

RUN = "0123abcd"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def copies(tmp_path: Path, project: Path) -> Copies:
    return Copies(str(tmp_path / "home"), "session-1", str(project))


def test_a_copy_has_the_uncommitted_work_of_the_project_and_no_ignored_files(project: Path, copies: Copies) -> None:
    work_in(project)
    copy = copies.make(RUN, 1)
    expected = contents(project)
    del expected["trace.log"], expected["build/out"]
    assert contents(Path(copy.path)) == expected
    assert copies.diff(copy) == ""
    assert copies.files(copy) == []
    assert copies.save(copy) is None


def test_the_users_branches_index_stash_and_reflog_stay_as_they_are(project: Path, copies: Copies) -> None:
    work_in(project)
    git(project, "stash", "push", "-q", "--", "a.txt")
    before, files = seen_by_user(project), contents(project)
    first, second = copies.make(RUN, 1), copies.make(RUN, 2)
    for copy in (first, second):
        (Path(copy.path) / "made.txt").write_text("made\n")
        copies.save(copy)
        copies.diff(copy)
        copies.files(copy)
        copies.restore(copy)
    copies.remove(first)
    copies.restore(first)
    copies.remove(first)
    copies.remove(second)
    assert seen_by_user(project) == before
    assert contents(project) == files


def test_a_file_whose_name_git_distrusts_elsewhere_is_saved_and_comes_back(project: Path, copies: Copies) -> None:
    (project / "GIT~1").write_text("of the project\n")
    copy = copies.make(RUN, 1)
    (Path(copy.path) / "git~1").write_text("of the lane\n")
    copies.remove(copy)
    copies.restore(copy)
    there = contents(Path(copy.path))
    assert (project / "GIT~1").read_text() == (Path(copy.path) / "GIT~1").read_text()
    assert (Path(copy.path) / "git~1").read_text() == "of the lane\n", sorted(there)


def test_all_copies_of_a_run_begin_with_the_same_files(project: Path, copies: Copies) -> None:
    first = copies.make(RUN, 1)
    (project / "a.txt").write_text("changed by the user meanwhile\n")
    second = copies.make(RUN, 2)
    assert second.base == first.base
    assert contents(Path(second.path)) == contents(Path(first.path))
    other = copies.make("ffff0000", 1)
    assert (Path(other.path) / "a.txt").read_text() == "changed by the user meanwhile\n"


def test_a_copy_can_begin_as_another_one_is_now(copies: Copies) -> None:
    first = copies.make(RUN, 1)
    (Path(first.path) / "half.txt").write_text("half done\n")
    second = copies.make(RUN, 2, first)
    assert (Path(second.path) / "half.txt").read_text() == "half done\n"
    assert second.base == first.base
    assert [one.path for one in copies.files(second)] == ["half.txt"]
    shutil.rmtree(second.path)
    copies.restore(second)
    assert (Path(second.path) / "half.txt").read_text() == "half done\n"


def test_a_project_in_a_subfolder_of_the_repository_works_in_that_subfolder(tmp_path: Path, project: Path) -> None:
    copies = Copies(str(tmp_path / "home"), "session-1", str(project / "src"))
    copy = copies.make(RUN, 1)
    folder = Path(copies.folder(copy))
    assert (folder / "main.py").read_text() == "print(1)\n"
    (folder / "main.py").write_text("print(2)\n")
    assert [one.path for one in copies.files(copy)] == ["src/main.py"]
    assert not copies.apply(copy).clashes
    assert (project / "src" / "main.py").read_text() == "print(2)\n"


def test_a_project_in_a_worktree_of_the_user_works(tmp_path: Path, project: Path) -> None:
    git(project, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side" / "a.txt").write_text("on the side\n")
    copies = Copies(str(tmp_path / "home"), "session-1", str(tmp_path / "side"))
    copy = copies.make(RUN, 1)
    assert (Path(copy.path) / "a.txt").read_text() == "on the side\n"
    (Path(copy.path) / "a.txt").write_text("by the lane\n")
    assert not copies.apply(copy).clashes
    assert (tmp_path / "side" / "a.txt").read_text() == "by the lane\n"
    assert (project / "a.txt").read_text().startswith("one\n")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda folder: folder.mkdir(), "git init"),
        (lambda folder: (folder.mkdir(), git(folder, "init", "-q")), "git commit --allow-empty"),
    ],
)
def test_where_no_copy_can_be_made_the_next_step_is_named(tmp_path: Path, prepare, words: str) -> None:  # type: ignore[no-untyped-def]
    prepare(tmp_path / "bare")
    copies = Copies(str(tmp_path / "home"), "session-1", str(tmp_path / "bare"))
    with pytest.raises(UsageError, match=words):
        copies.make(RUN, 1)
    assert words in (copies.why_not() or "")
    assert not (tmp_path / "home").exists()


def test_a_project_that_its_repository_ignores_gets_no_empty_copies(tmp_path: Path, project: Path) -> None:
    (project / "build").mkdir()
    copies = Copies(str(tmp_path / "home"), "session-1", str(project / "build"))
    with pytest.raises(UsageError, match="ignores this folder"):
        copies.make(RUN, 1)


def test_more_uncommitted_bytes_than_anyone_wants_sixteen_times_are_refused(project: Path, copies: Copies) -> None:
    with open(project / "huge.bin", "wb") as file:
        file.truncate(600_000_000)  # a hole: it takes no room on the disk
    with pytest.raises(UsageError, match=r"ignore large files such as huge\.bin"):
        copies.make(RUN, 1)
    (project / ".git" / "info" / "exclude").write_text("huge.bin\n")
    assert not (Path(copies.make(RUN, 1).path) / "huge.bin").exists()


# Work is never lost


def test_removed_work_of_every_kind_comes_back_from_its_ref(tmp_path: Path, project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    work_in(Path(copy.path))
    expected = contents(Path(copy.path))
    del expected["trace.log"], expected["build/out"]
    assert copies.remove(copy) is None
    assert not os.path.exists(copy.path)
    assert "explore" not in git(project, "worktree", "list")
    git(project, "gc", "--quiet", "--prune=now")
    git(project, "worktree", "add", "-q", "--detach", str(tmp_path / "by hand"), copy.ref)
    assert contents(tmp_path / "by hand") == expected
    copies.restore(copy)
    assert contents(Path(copy.path)) == expected
    assert not os.path.exists(os.path.join(os.path.dirname(copy.path), "nothing"))


def test_removing_and_restoring_a_copy_without_changes_survives_gc(project: Path, copies: Copies) -> None:
    (project / "a.txt").write_text("uncommitted\n")
    copy = copies.make(RUN, 1)
    copies.remove(copy)
    (project / "a.txt").write_text("something else\n")
    git(project, "gc", "--quiet", "--prune=now")
    copies.restore(copy)
    assert (Path(copy.path) / "a.txt").read_text() == "uncommitted\n"


def test_commits_that_a_lane_made_stay_behind_its_ref(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    (Path(copy.path) / "c.txt").write_text("c\n")
    git(Path(copy.path), "add", "c.txt")
    git(Path(copy.path), "commit", "-q", "-m", "by the lane")
    copies.remove(copy)
    assert "by the lane" in git(project, "log", "--format=%s", copy.ref)
    assert [one.path for one in copies.files(copy)] == ["c.txt"]


def test_work_that_was_taken_back_is_still_behind_the_ref(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    (Path(copy.path) / "c.txt").write_text("c\n")
    saved = copies.save(copy)
    (Path(copy.path) / "c.txt").unlink()
    assert copies.save(copy) is None
    copies.remove(copy)
    assert str(saved) in git(project, "log", "--format=%H", copy.ref).splitlines()


def test_a_folder_with_a_repository_of_its_own_inside_stays(copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    inner = Path(copy.path) / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "work.txt").write_text("work\n")
    assert "inner" in str(copies.remove(copy))
    assert (inner / "work.txt").read_text() == "work\n"
    with pytest.raises(StoreError, match="inner"):
        copies.make(RUN, 1)
    assert (inner / "work.txt").read_text() == "work\n"


def test_a_worktree_that_git_has_forgotten_keeps_its_work(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    work_in(Path(copy.path))
    expected = contents(Path(copy.path))
    del expected["trace.log"], expected["build/out"]
    shutil.rmtree(project / ".git" / "worktrees")
    assert {"a.txt", "b.txt", "link"} <= {one.path for one in copies.files(copy)}
    copies.restore(copy)
    assert contents(Path(copy.path)) == expected
    assert git(Path(copy.path), "rev-parse", "HEAD") == copy.head


_MAKE = """
import sys
from sessiontree.explore.worktrees import Copies
Copies(*sys.argv[1:4]).make("0123abcd", 1)
"""


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6, 1.0])
def test_a_copy_that_was_being_made_when_the_process_was_killed_is_made_again(
    tmp_path: Path, project: Path, copies: Copies, seconds: float
) -> None:
    (project / ".gitattributes").write_text("*.slow filter=slow\n")
    for number in range(8):
        (project / f"{number}.slow").write_text(f"{number}\n")
    git(project, "config", "filter.slow.smudge", "sleep 0.2; cat")
    child = subprocess.Popen(
        [sys.executable, "-c", _MAKE, str(tmp_path / "home"), "session-1", str(project)], start_new_session=True
    )
    deadline = time.monotonic() + 20
    while not list((tmp_path / "home").rglob(".git")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)
    kill_all_of(child.pid)
    child.wait()
    git(project, "config", "filter.slow.smudge", "cat")
    assert len(copies.orphans([])) == 1
    copy = copies.make(RUN, 1)
    assert contents(Path(copy.path)) == contents(project)
    assert copies.files(copy) == []
    shutil.rmtree(copy.path)
    copies.restore(copy)
    assert contents(Path(copy.path)) == contents(project)
    assert len(git(project, "worktree", "list").splitlines()) == 2


def test_folders_that_no_record_names_are_saved_and_go(project: Path, copies: Copies) -> None:
    known, unknown = copies.make(RUN, 1), copies.make(RUN, 2)
    (Path(unknown.path) / "c.txt").write_text("c\n")
    assert copies.orphans([known]) == [unknown.path]
    assert copies.clear_orphans([known]) == [unknown.path]
    assert os.path.isdir(known.path)
    assert not os.path.exists(unknown.path)
    assert git(project, "show", f"{unknown.ref}:c.txt") == "c"


def test_a_record_that_names_anything_else_is_refused(tmp_path: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("dear")
    others = make_repository(tmp_path / "other")
    for change in (
        {"path": str(victim)},
        {"path": copy.path + "/../../../.."},
        {"ref": "refs/heads/main"},
        {"base": "--output=x"},
        {"repository": str(others / ".git")},
    ):
        wrong = msgspec.structs.replace(copy, **change)
        for act in (copies.remove, copies.save, copies.restore, copies.diff, copies.files, copies.folder, copies.apply):
            with pytest.raises(UsageError):
                act(wrong)  # type: ignore[operator]
    assert (victim / "file").read_text() == "dear"
    assert os.path.isdir(copy.path)


@pytest.mark.parametrize("id", ["../../outside", "/tmp/outside", "a/b", "", "..", "x\0y"])
def test_an_id_out_of_a_file_that_could_lead_elsewhere_is_refused(tmp_path: Path, project: Path, id: str) -> None:
    with pytest.raises(UsageError, match="cannot be the id of a session"):
        Copies(str(tmp_path / "home"), id, str(project))


# Differences


def test_differences_are_those_of_git_with_lines_added_and_removed(copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    folder = Path(copy.path)
    (folder / "a.txt").write_text("one\nzwei\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n")
    (folder / "b.txt").unlink()
    (folder / "run.sh").chmod(0o755)
    (folder / "picture.bin").write_bytes(b"\0\1\2")
    found = {one.path: (one.added, one.removed, one.kind) for one in copies.files(copy)}
    assert found == {
        "a.txt": (2, 1, "changed"),
        "b.txt": (0, 1, "removed"),
        "run.sh": (0, 0, "mode"),
        "picture.bin": (None, None, "added"),
    }
    text = copies.diff(copy)
    for part in ("-two\n+zwei\n", "+ten\n", "new mode 100755"):
        assert part in text
    assert "4 files changed, 2 insertions(+), 2 deletions(-)" in copies.diff(copy, stat=True)
    copies.remove(copy)
    assert copies.diff(copy) == text


# Into the project


def test_the_work_of_a_copy_comes_into_the_project_as_uncommitted_changes(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    work_in(Path(copy.path))
    before = seen_by_user(project)
    (project / "trace.log").write_text("mine\n")
    applied = copies.apply(copy)
    assert not applied.clashes
    expected = contents(Path(copy.path))
    del expected["build/out"]
    expected["trace.log"] = ("file", b"mine\n")
    assert contents(project) == expected
    after = seen_by_user(project)
    assert {name: after[name] for name in ("branches", "stash", "reflog", "staged", "index")} == {
        name: before[name] for name in ("branches", "stash", "reflog", "staged", "index")
    }
    assert copies.apply(copy).files == (), "a second time there is nothing to do"


def test_files_that_only_the_user_may_read_stay_so(project: Path, copies: Copies) -> None:
    (project / "a.txt").chmod(0o600)
    (project / "run.sh").chmod(0o600)
    copy = copies.make(RUN, 1)
    (Path(copy.path) / "a.txt").write_text("by the lane\n")
    (Path(copy.path) / "run.sh").chmod(0o755)
    assert not copies.apply(copy).clashes
    assert (project / "a.txt").read_text() == "by the lane\n"
    assert (project / "a.txt").stat().st_mode & 0o777 == 0o600
    assert (project / "run.sh").stat().st_mode & 0o777 == 0o700


def test_what_the_user_changed_elsewhere_in_the_same_file_stays(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    lines = (project / "a.txt").read_text()
    (Path(copy.path) / "a.txt").write_text(lines.replace("one\n", "ONE\n"))
    (project / "a.txt").write_text(lines.replace("nine\n", "NINE\n"))
    assert not copies.apply(copy).clashes
    assert (project / "a.txt").read_text() == lines.replace("one\n", "ONE\n").replace("nine\n", "NINE\n")


def test_what_is_at_odds_with_the_user_is_named_and_nothing_is_written(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    folder = Path(copy.path)
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
    applied = copies.apply(copy)
    assert [one.path for one in applied.clashes] == ["a.txt", "b.txt", "both.txt"]
    assert applied.files == ()
    assert (seen_by_user(project), contents(project)) == (before, files)


def test_an_ignored_file_of_the_user_is_not_overwritten(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    folder = Path(copy.path)
    (folder / ".gitignore").write_text("")
    (folder / "trace.log").write_text("by the lane\n")
    (folder / "build").mkdir()
    (folder / "build" / "out").write_text("by the lane\n")
    (project / "trace.log").write_text("dear\n")
    (project / "build").symlink_to("src")
    before = contents(project)
    applied = copies.apply(copy)
    assert [one.path for one in applied.clashes] == ["build/out", "trace.log"]
    assert contents(project) == before


def test_several_copies_come_together_or_not_at_all(project: Path, copies: Copies) -> None:
    one, two, three = (copies.make(RUN, number) for number in (1, 2, 3))
    lines = (project / "a.txt").read_text()
    (Path(one.path) / "a.txt").write_text(lines.replace("one\n", "ONE\n"))
    (Path(two.path) / "a.txt").write_text(lines.replace("nine\n", "NINE\n"))
    (Path(three.path) / "a.txt").write_text(lines.replace("one\n", "EINS\n"))
    before = contents(project)
    assert [clash.path for clash in copies.apply_all([one, two, three]).clashes] == ["a.txt"]
    assert contents(project) == before
    assert not copies.apply_all([one, two], dry_run=True).clashes
    assert contents(project) == before
    assert not copies.apply_all([one, two]).clashes
    assert (project / "a.txt").read_text() == lines.replace("one\n", "ONE\n").replace("nine\n", "NINE\n")


def test_when_a_file_cannot_be_written_the_project_is_as_it_was(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    (Path(copy.path) / "a.txt").write_text("by the lane\n")
    (Path(copy.path) / "z.slow").write_text("by the lane\n")
    (Path(copy.path) / "b.txt").unlink()
    before = contents(project)
    copies.remove(copy)
    (project / ".git" / "info" / "attributes").write_text("*.slow filter=broken\n")
    git(project, "config", "filter.broken.smudge", "false")
    git(project, "config", "filter.broken.required", "true")
    with pytest.raises(SessionTreeError, match="as they were"):
        copies.apply(copy)
    assert contents(project) == before


def test_a_file_that_becomes_a_folder_and_back(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    folder = Path(copy.path)
    (folder / "b.txt").unlink()
    (folder / "b.txt").mkdir()
    (folder / "b.txt" / "inside").write_text("x\n")
    shutil.rmtree(folder / "src")
    (folder / "src").write_text("a file now\n")
    assert not copies.apply(copy).clashes
    assert contents(project) == contents(folder)


def test_a_file_on_one_side_and_a_folder_on_the_other_are_at_odds(project: Path, copies: Copies) -> None:
    one, two = copies.make(RUN, 1), copies.make(RUN, 2)
    (Path(one.path) / "thing").write_text("x\n")
    (Path(two.path) / "thing").mkdir()
    (Path(two.path) / "thing" / "inside").write_text("x\n")
    for order in ([one, two], [two, one]):
        assert len(copies.apply_all(order).clashes) == 1
    assert not (project / "thing").exists()


def test_a_copy_is_a_value_that_goes_through_a_session() -> None:
    copy = Copy("/p", "/r", "b", "h", "f")
    assert msgspec.convert(msgspec.to_builtins(copy), Copy) == copy


@pytest.mark.parametrize(
    "work",
    [
        "echo x > sub/new.txt",
        "git init -q lib && cd lib && echo x > x && git add x && {git} commit -q -m x && cd .. && git add lib",
        "git init -q src && cd src && git add . && {git} commit -q -m x",
    ],
    ids=["in a submodule", "added", "below files of the project"],
)
def test_what_no_tree_can_hold_keeps_its_folder(project: Path, copies: Copies, work: str) -> None:
    git(project, "init", "-q", "sub")
    git(project / "sub", "commit", "-q", "--allow-empty", "-m", "x")
    git(project, "-c", "advice.addEmbeddedRepo=false", "add", "sub")
    git(project, "commit", "-q", "-m", "with a repository in it")
    copy = copies.make(RUN, 1)
    ours = "git -c user.name=Ada -c user.email=ada@example.org"
    subprocess.run(["sh", "-c", work.replace("{git}", ours)], cwd=copy.path, check=True, capture_output=True)
    stayed = copies.remove(copy)
    assert stayed is not None
    assert "a repository of its own" in stayed
    assert os.path.isdir(copy.path)


def test_an_inner_repository_is_not_told_as_written_into_the_project(project: Path, copies: Copies) -> None:
    copy = copies.make(RUN, 1)
    git(Path(copy.path), "init", "-q", "lib")
    git(Path(copy.path) / "lib", "commit", "-q", "--allow-empty", "-m", "x")
    git(Path(copy.path), "-c", "advice.addEmbeddedRepo=false", "add", "lib")
    (Path(copy.path) / "made.txt").write_text("made\n")
    assert [one.path for one in copies.files(copy)] == ["lib", "made.txt"]
    assert [one.path for one in copies.apply(copy).files] == ["made.txt"]
    assert not (project / "lib").exists()


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_files_that_git_was_told_not_to_look_at_are_looked_at(project: Path, copies: Copies, flag: str) -> None:
    git(project, "update-index", flag, "a.txt")
    (project / "a.txt").write_text("mine\n")
    copy = copies.make(RUN, 1)
    assert (Path(copy.path) / "a.txt").read_text() == "mine\n"
    git(Path(copy.path), "update-index", flag, "b.txt")
    (Path(copy.path) / "a.txt").write_text("of the lane\n")
    (Path(copy.path) / "b.txt").write_text("of the lane\n")
    assert [one.path for one in copies.files(copy)] == ["a.txt", "b.txt"]
    (project / "a.txt").write_text("mine, changed since\n")
    assert [clash.path for clash in copies.apply(copy).clashes] == ["a.txt"]
    assert (project / "a.txt").read_text() == "mine, changed since\n"
    assert git(project, "ls-files", "-v", "a.txt")[0] in "hS", "the user's own index is as it was"


KILLED = """
import os, sys
from sessiontree.git import trees
from sessiontree.explore.worktrees import Copies
from sessiontree.explore.records import Copy
import msgspec

at, put = int(sys.argv[1]), trees._put
def killed(path, to):
    global at
    at -= 1
    if at < 0:
        os.kill(os.getpid(), 9)
    put(path, to)
trees._put = killed
Copies(*sys.argv[2:5]).apply(msgspec.json.decode(sys.argv[5], type=Copy))
"""


def test_whoever_is_killed_while_files_come_into_the_project_does_it_again(
    tmp_path: Path, project: Path, copies: Copies
) -> None:
    copy = copies.make(RUN, 1)
    lines = (project / "a.txt").read_text().splitlines()
    (Path(copy.path) / "a.txt").write_text("\n".join([*lines[:-1], "NINE"]) + "\n")
    (Path(copy.path) / "b.txt").unlink()
    for name in ("c.txt", "d.txt"):
        (Path(copy.path) / name).write_text("new\n")
    (project / "a.txt").write_text("\n".join(["ONE", *lines[1:]]) + "\n")
    whole = "\n".join(["ONE", *lines[1:-1], "NINE"]) + "\n"
    for at in (0, 1, 1, 9):
        arguments = [str(at), str(tmp_path / "home"), "session-1", str(project), msgspec.json.encode(copy).decode()]
        ran = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
        assert ran.returncode == (0 if at == 9 else -signal.SIGKILL)
        assert (project / "a.txt").read_text() in (whole, "\n".join(["ONE", *lines[1:]]) + "\n")
    assert (project / "a.txt").read_text() == whole
    assert not (project / "b.txt").exists()
    assert (project / "d.txt").read_text() == "new\n"
    assert "ONE" in git(project, "show", f"refs/sessiontree/explore/{RUN}/before:a.txt"), "as it was before"


def test_work_that_moves_the_folder_of_the_project_can_be_decided_about(tmp_path: Path, project: Path) -> None:
    copies = Copies(str(tmp_path / "home"), "session-1", str(project / "src"))
    first, second = copies.make(RUN, 1), copies.make(RUN, 2)
    git(Path(first.path), "mv", "src", "lib")
    assert not copies.apply(first).clashes
    assert (project / "lib" / "main.py").exists()
    assert not (project / "src").exists()
    assert copies.save(first) is not None
    assert copies.remove(first) is None
    assert copies.remove(second) is None


def test_a_copy_in_which_the_folder_of_the_project_is_a_file_says_so(tmp_path: Path, project: Path) -> None:
    copies = Copies(str(tmp_path / "home"), "session-1", str(project / "src"))
    copy = copies.make(RUN, 1)
    shutil.rmtree(Path(copy.path) / "src")
    (Path(copy.path) / "src").write_text("a file\n")
    with pytest.raises(StoreError, match="is none in this working copy"):
        copies.folder(copy)
