"""Folders of lanes after a process ended early: none is left for long, and no work is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sessiontree.explore.lane import Lane
from sessiontree.explore.state import find_exploration
from tests.agent.builders import kill_all_of
from tests.chat.terminals import SECONDS, Terminal, call, scripted, turn, wait_until
from tests.explore.programs import Repository, explore_words
from tests.explore.repos import git, user_filter

pytestmark = pytest.mark.slow

DEMO = ("count", "--model", "demo", "--n", "2")


@pytest.fixture
def place(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def worktrees(place: Repository) -> int:
    """How many worktrees git lists besides the project's own."""
    return git(place.project, "worktree", "list").count("\n")


def lanes(place: Repository) -> list[Lane]:
    return find_exploration(place.opened()).lanes


def folder(lane: Lane) -> Path:
    assert lane.worktree is not None
    return Path(lane.worktree.path)


def start(place: Repository, *arguments: str, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "sessiontree", "explore", *explore_words(place.location, arguments)],
        cwd=place.project,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


# However it ends


@pytest.mark.parametrize("json", [False, True])
def test_a_closed_pipe_leaves_no_folder_of_a_lane_that_has_ended(place: Repository, json: bool) -> None:
    with start(place, *DEMO, *(["--json"] if json else []), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        if json:
            child.stdout.readline()
        child.stdout.close()
        err = child.stderr.read().decode()
    if json:  # the lanes are left, and can be gone on with
        assert (child.returncode, "explore resume" in err) == (1, True)
        assert place.explore("resume").returncode == 0
    assert [lane.state for lane in lanes(place)] == ["done", "done"]
    assert worktrees(place) == 0


def test_a_full_disk_during_output_leaves_no_folder(place: Repository) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    child = start(place, *DEMO, stdout=full)
    os.close(full)
    _, err = child.communicate(timeout=SECONDS)
    assert (child.returncode, b"No space left" in err) == (1, True)
    assert worktrees(place) == 0


@pytest.mark.parametrize("command", ["explore", "chat"])
def test_a_terminal_that_is_closed_at_the_menu_leaves_no_folder(place: Repository, command: str) -> None:
    with at_menu(place, command) as terminal:
        assert worktrees(place) == 2
        os.close(terminal.master)
        terminal.master = os.open(os.devnull, os.O_RDWR)  # for leaving it to close
        terminal.process.wait(SECONDS)
    assert worktrees(place) == 0
    assert [lane.verdict for lane in lanes(place)] == [None, None]


@pytest.mark.parametrize("command", ["explore", "chat"])
def test_after_a_kill_at_the_menu_folders_are_reported_and_resume_removes_them(place: Repository, command: str) -> None:
    with at_menu(place, command) as terminal:
        terminal.kill()
    assert worktrees(place) == 2
    (folder(lanes(place)[0]) / "by_hand.txt").write_text("not saved yet\n")
    for action in ("list", "compare"):
        done = place.explore(action)
        assert (done.returncode, "explore resume" in done.stderr) == (0, True)
    assert place.explore("resume", "--keep-worktrees").returncode == 2
    assert worktrees(place) == 2
    done = place.explore("resume")
    assert (done.returncode, "nothing to resume" in done.stderr, "1, 2" in done.stderr) == (0, True, True)
    assert worktrees(place) == 0
    worktree = lanes(place)[0].worktree
    assert worktree is not None
    assert git(place.project, "show", f"{worktree.ref}:by_hand.txt") == "not saved yet"
    assert git(place.project, "show", f"{worktree.ref}:demo_words.py")
    done = place.explore("list")
    assert (done.returncode, done.stderr) == (0, "")
    assert place.explore("resume").returncode == 2


def at_menu(place: Repository, command: str) -> Terminal:
    if command == "explore":
        terminal = place.terminal(*DEMO)
    else:
        writes = call("write", path="demo_words.py", content="words\n")
        script = scripted(place, turn("I write.", writes, when="count"), turn("There it is.", repeat=True))
        terminal = Terminal(place, ["--session", place.location, "--model", script])
        terminal.enter('/explore 2 "count"')
    terminal.wait_for("decide later]")
    return terminal


def test_a_process_killed_while_it_removes_a_folder_loses_nothing(place: Repository) -> None:
    place.run_json(*DEMO, "--keep-worktrees")
    lane = lanes(place)[0]
    (folder(lane).parent / f"{lane.number}.json").unlink()  # as it is when the files begin to go
    (folder(lane) / "demo_words.py").unlink()
    assert place.explore("resume").returncode == 0
    assert worktrees(place) == 0
    (place.project / "demo_words.py").unlink(missing_ok=True)
    place.run_json("keep", "1")
    assert (place.project / "demo_words.py").is_file()


def test_resuming_an_exploration_of_another_process_is_refused_and_removes_nothing(place: Repository) -> None:
    slow, asked = place.home / "slow", place.home / "asked"
    slow.touch()
    rule = ("--fork-on", f"echo x > {asked}; while test -e {slow}; do sleep 0.1; done")
    child = start(place, "count", "--model", "demo", *rule)
    try:
        wait_until(asked)
        for more in ((), rule):
            done = place.explore("resume", *more)
            assert done.returncode == 2
            assert "another process is working on it" in done.stderr
        assert place.explore("list").stderr == ""
        assert worktrees(place) == 1
    finally:
        slow.unlink()
        child.communicate(timeout=SECONDS)
    assert worktrees(place) == 0


# Rules that were not asked


def test_a_rule_whose_command_was_running_at_a_kill_is_applied_on_resume(
    place: Repository,
) -> None:
    slow, asked = place.home / "slow", place.home / "asked"
    slow.touch()
    command = f"echo x > {asked}; while test -e {slow}; do sleep 0.1; done; false"
    rule = ("--fork-on", command)
    child = start(place, "count", "--model", "demo", *rule, "--max-depth", "1")
    wait_until(asked)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    slow.unlink()
    done = place.explore("resume", *rule)
    assert done.returncode == 0, done.stderr
    assert [(lane.record.origin, lane.record.rule, lane.state) for lane in lanes(place)] == [
        (None, None, "done"),
        (1, "check", "done"),
    ]
    assert worktrees(place) == 0
    assert place.explore("resume", *rule).returncode == 2


# Damaged folders


def test_a_folder_that_cannot_be_saved_does_not_affect_the_others(place: Repository) -> None:
    place.run_json(*DEMO[:3], "--n", "3", "--keep-worktrees")
    first, *_ = lanes(place)
    assert first.worktree is not None
    (folder(first) / "more.txt").write_text("more\n")
    lock = Path(first.worktree.repository) / f"{first.worktree.ref}.lock"
    lock.touch()  # of a git that was killed
    done = place.explore("drop", "1", "2")
    assert done.returncode == 1
    state = [line for line in done.stderr.splitlines() if str(folder(first)) in line]
    assert len(state) == 1
    assert "fix that, then `explore resume` removes it" in state[0]
    assert [folder(lane).exists() for lane in lanes(place)] == [True, False, True]
    done = place.explore("resume")
    assert done.returncode == 1
    assert str(folder(first)) in done.stderr
    assert [folder(lane).exists() for lane in lanes(place)] == [True, False, False]
    lock.unlink()
    assert place.explore("resume").returncode == 0
    assert worktrees(place) == 0
    assert git(place.project, "show", f"{first.worktree.ref}:more.txt") == "more"


@pytest.mark.parametrize("what", ["link", "no link", "index"])
def test_files_are_saved_even_if_git_s_registration_of_the_folder_is_damaged(place: Repository, what: str) -> None:
    place.run_json(*DEMO, "--keep-worktrees")
    first, *_ = lanes(place)
    assert first.worktree is not None
    (folder(first) / "more.txt").write_text("more\n")
    if what == "index":
        Path(git(folder(first), "rev-parse", "--path-format=absolute", "--git-path", "index")).write_bytes(b"no index")
    elif what == "link":
        (folder(first) / ".git").write_text("nonsense\n")
    else:
        (folder(first) / ".git").unlink()
    done = place.explore("resume")
    assert done.returncode == 0, done.stderr
    assert worktrees(place) == 0
    assert git(place.project, "show", f"{first.worktree.ref}:more.txt") == "more"


# Sessions that are deleted for good


@pytest.mark.parametrize("is_archived", [False, True])
def test_purging_a_session_removes_its_folders_and_keeps_their_work_in_git(
    place: Repository, is_archived: bool
) -> None:
    place.run_json(*DEMO, "--keep-worktrees")
    first, *_ = lanes(place)
    (folder(first) / "by_hand.txt").write_text("not saved yet\n")
    assert first.worktree is not None
    clean = ("clean", "--older-than", "0h", "--yes")
    if is_archived:
        assert place.sessiontree(*clean).returncode == 0
        assert worktrees(place) == 2, "it can be restored"
    done = place.sessiontree(*clean, "--purge")
    assert done.returncode == 0, done.stderr
    assert f"refs/sessiontree/explore/{first.record.run} in {first.worktree.repository}" in done.stderr
    assert not Path(place.location).exists()
    assert worktrees(place) == 0
    assert not list((place.home / "explore").iterdir())
    assert git(place.project, "show", f"{first.worktree.ref}:by_hand.txt") == "not saved yet"


def test_a_session_with_running_lanes_is_not_purged(place: Repository) -> None:
    script = scripted(place, turn("Slow.", first_delay=60.0, repeat=True))
    child = start(place, "go", "--model", script)
    try:
        deadline = time.monotonic() + SECONDS
        while Path(place.location).read_text().count('"go"') < 3:  # in the plan, in the record, and in a message
            assert time.monotonic() < deadline
            time.sleep(0.05)
        done = place.sessiontree("clean", "--older-than", "0h", "--yes", "--purge")
        assert (done.returncode, "lanes are running" in done.stderr) == (1, True)
        assert Path(place.location).exists()
        assert worktrees(place) == 1
    finally:
        child.kill()
        child.communicate()


def kill_while_copying(place: Repository, number: int, *arguments: str) -> None:
    """Start an exploration, and kill it while the worktree of the lane with this number is created."""
    (place.project / ".gitattributes").write_text("*.slow filter=slow\n")
    (place.project / "x.slow").write_text("x\n")
    place.environment["GIT_CONFIG_GLOBAL"] = user_filter(
        place.home / "git-settings", "slow", f"case $PWD in */{number}) sleep 60;; esac; cat"
    )
    child = start(place, *DEMO, *arguments)
    deadline = time.monotonic() + SECONDS
    while not list((place.home / "explore").glob(f"*/*/{number}/.git")):
        assert time.monotonic() < deadline, f"the worktree of lane {number} is not made"
        time.sleep(0.02)
    kill_all_of(child.pid)
    child.communicate()
    user_filter(place.home / "git-settings", "slow", "cat")


def test_purging_a_session_removes_an_incomplete_worktree(place: Repository) -> None:
    kill_while_copying(place, 1)
    assert (lanes(place), worktrees(place)) == ([], 1)
    done = place.sessiontree("clean", "--older-than", "0h", "--yes", "--purge")
    assert done.returncode == 0, done.stderr
    assert not Path(place.location).exists()
    assert worktrees(place) == 0
    assert not list((place.home / "explore").iterdir())


def test_an_incomplete_worktree_of_a_fork_is_reported_and_removed(place: Repository) -> None:
    kill_while_copying(place, 3, "--fork-on", "false", "--max-lanes", "3")
    assert len(lanes(place)) == 2
    state = place.explore("list").stderr
    assert "the folder of an unfinished lane is left over" in state
    done = place.explore("resume")
    assert done.returncode == 0, done.stderr
    assert worktrees(place) == 0


def test_processes_that_share_lanes_report_all_of_them(place: Repository) -> None:
    script = scripted(place, turn("I wait.", call("bash", command="sleep 2")), turn("Done.", repeat=True))
    child = start(place, "go", "--n", "2", "--model", script, "--approval", "yolo")
    deadline = time.monotonic() + SECONDS
    while Path(place.location).read_text().count('"toolCall"') < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kill_all_of(child.pid)
    child.communicate()
    both = [start(place, "resume", "--approval", "yolo", stdout=subprocess.PIPE) for _ in range(2)]
    for one in both:
        out, err = (stream.decode() for stream in one.communicate(timeout=SECONDS * 2))
        if one.returncode != 0:  # the other one had taken both lanes before this one looked
            assert "another process is working on it; wait until it has ended" in err
        assert "lost" not in out
        assert "did not finish" not in err
    assert sorted(one.returncode for one in both) in ([0, 0], [0, 2])
    assert [lane.state for lane in lanes(place)] == ["done", "done"]
