"""Keep, merge, drop and leave: the current entry, the files of the project, and what remains."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.messages import message_text
from sessiontree.errors import ConflictError, UsageError
from sessiontree.explore.decisions import drop, keep, leave, merge
from sessiontree.explore.records import VerdictRecord, iter_records
from sessiontree.explore.state import find_exploration
from sessiontree.repair import examine
from tests.explore.explored import Explored
from tests.explore.lanes import explored as run_lanes
from tests.explore.lanes import new_session
from tests.explore.repos import git, seen_by_user

pytestmark = pytest.mark.slow

WRITES = {
    "one": {"one.txt": "1\n"},
    "two": {"two.txt": "2\n"},
    "three": {"three.txt": "3\n", "a.txt": "short\n"},
    "four": {"four.txt": "4\n", "one.txt": "by four\n"},
}


@pytest.fixture
def explored(tmp_path: Path) -> Explored:
    return Explored(tmp_path, WRITES)


def verdicts(explored: Explored) -> list[str | None]:
    lanes = find_exploration(explored.reopened()).lanes
    return [None if lane.verdict is None else lane.verdict.verdict for lane in lanes]


def folders(explored: Explored) -> list[bool]:
    return [lane.worktree is not None and os.path.isdir(lane.worktree.path) for lane in explored.state.lanes]


def test_keeping_a_lane_moves_to_it_and_applies_its_files(explored: Explored) -> None:
    before = seen_by_user(explored.project)
    decided = keep(explored.session, explored.state, 3, explored.worktrees)
    assert [one.path for one in decided.files] == ["a.txt", "three.txt"]
    assert (explored.project / "a.txt").read_text() == "short\n"
    assert not (explored.project / "one.txt").exists()
    fresh = explored.reopened()
    assert fresh.leaf == decided.leaf
    assert message_text(fresh.context().messages[-1]) == "three step 1"
    assert verdicts(explored) == ["left", "left", "kept", "left"]
    assert folders(explored) == [False] * 4
    after = seen_by_user(explored.project)
    for name in ("branches", "stash", "reflog", "index", "staged"):
        assert after[name] == before[name]
    assert examine(explored.reopened()) == []


def test_the_next_message_follows_the_kept_lane(explored: Explored) -> None:
    keep(explored.session, explored.state, "two", explored.worktrees)
    explored.session.append("user", "go on")
    messages = [message_text(message) for message in explored.reopened().context().messages]
    assert messages[-2:] == ["two step 1", "go on"]
    assert find_exploration(explored.session).lane(2).verdict is not None


def test_keeping_is_refused_if_the_project_changed_in_the_same_lines(explored: Explored) -> None:
    (explored.project / "a.txt").write_text("mine\n")
    size = os.path.getsize(explored.location)
    with pytest.raises(ConflictError, match=r"lane 3 .*a\.txt was changed on both sides"):
        keep(explored.session, explored.state, 3, explored.worktrees)
    assert (explored.project / "a.txt").read_text() == "mine\n"
    assert not (explored.project / "three.txt").exists()
    assert os.path.getsize(explored.location) == size
    assert folders(explored) == [True] * 4
    keep(explored.session, explored.state, 3, explored.worktrees, apply=False)
    assert (explored.project / "a.txt").read_text() == "mine\n"
    assert verdicts(explored) == ["left", "left", "kept", "left"]


def test_merging_adds_summaries_and_files_of_all_lanes(explored: Explored) -> None:
    decided = merge(explored.session, explored.state, [1, 2, 3], explored.worktrees)
    assert {one.path for one in decided.files} == {"one.txt", "two.txt", "three.txt", "a.txt"}
    assert len(decided.joins) == 2
    fresh = explored.reopened()
    assert fresh.leaf == decided.leaf == decided.joins[-1]
    state = "\n".join(message_text(message) for message in fresh.context().messages)
    assert "one step 1" in state
    assert "two.txt" in state
    assert "three.txt" in state
    assert verdicts(explored) == ["merged", "merged", "merged", None]
    assert folders(explored) == [False, False, False, True]
    assert examine(fresh) == []


def test_merging_appends_at_the_current_entry(explored: Explored) -> None:
    keep(explored.session, explored.state, 1, explored.worktrees)
    explored.session.append("user", "now the others")
    explored.session.append("assistant", [{"type": "text", "text": "Yes."}], stopReason="stop")
    leaf_before = explored.session.leaf
    decided = merge(explored.session, explored.state, [2], explored.worktrees)
    fresh = explored.reopened()
    assert leaf_before in fresh.path_ids(str(fresh.leaf))
    assert len(decided.joins) == 1
    assert (explored.project / "two.txt").exists()


def test_lanes_with_conflicting_files_are_not_merged_at_all(explored: Explored) -> None:
    size = os.path.getsize(explored.location)
    with pytest.raises(ConflictError, match=r"lanes 1, 4 .*one\.txt was added on both sides"):
        merge(explored.session, explored.state, [1, 4], explored.worktrees)
    assert os.path.getsize(explored.location) == size
    assert git(explored.project, "status", "--porcelain") == ""


def test_merging_a_single_lane_is_refused(explored: Explored) -> None:
    with pytest.raises(UsageError, match="keep it"):
        merge(explored.session, explored.state, [2], explored.worktrees)


def test_dropping_does_not_move_the_session_and_keeps_the_work_in_git(explored: Explored) -> None:
    decided = drop(explored.session, explored.state, ["four"], explored.worktrees, why="no good")
    fresh = explored.reopened()
    assert fresh.leaf == explored.leaf_before == decided.leaf
    assert verdicts(explored) == [None, None, None, "dropped"]
    assert folders(explored) == [True, True, True, False]
    lane = explored.state.lane(4)
    assert lane.worktree is not None
    assert lane.verdict is not None
    assert git(explored.project, "show", f"{lane.verdict.commit}:four.txt") == "4"
    explored.worktrees.restore(lane.worktree)
    assert (Path(lane.worktree.path) / "four.txt").read_text() == "4\n"


def test_leaving_is_recorded_on_every_undecided_lane(explored: Explored) -> None:
    drop(explored.session, explored.state, [1], explored.worktrees)
    leave(explored.session, explored.state, explored.worktrees, keep_worktrees=True)
    assert verdicts(explored) == ["dropped", "left", "left", "left"]
    assert folders(explored) == [False, True, True, True]
    assert explored.reopened().leaf == explored.leaf_before


def test_a_lane_that_was_left_can_be_kept_later(explored: Explored) -> None:
    leave(explored.session, explored.state, explored.worktrees)
    keep(explored.session, explored.state, 2, explored.worktrees)
    assert (explored.project / "two.txt").read_text() == "2\n"
    assert verdicts(explored) == ["left", "kept", "left", "left"]


def test_deciding_twice_writes_nothing_twice(explored: Explored) -> None:
    for _ in range(2):
        keep(explored.session, explored.state, 2, explored.worktrees)
    records = [record for _, record in iter_records(explored.session) if isinstance(record, VerdictRecord)]
    assert len(records) == 4


def test_decisions_about_running_lanes_are_refused(explored: Explored) -> None:
    state = explored.state
    state.lanes[1].state = "running"
    for decide in (
        lambda: keep(explored.session, state, 1, explored.worktrees),
        lambda: merge(explored.session, state, [1, 2], explored.worktrees),
        lambda: drop(explored.session, state, [2], explored.worktrees),
        lambda: leave(explored.session, state, explored.worktrees),
    ):
        with pytest.raises(UsageError, match="still running: lane 2"):
            decide()


def test_a_session_that_continued_after_a_lane_stays_there_when_it_is_kept(explored: Explored) -> None:
    session = explored.session
    leaf = explored.state.lane("two").leaf
    session.move(leaf)
    session.append("user", "go on")
    last = session.append("assistant", [{"type": "text", "text": "Gladly."}], stopReason="stop")
    decided = keep(session, explored.state, "two", explored.worktrees)
    assert decided.leaf == last.id
    assert message_text(explored.reopened().context().messages[-1]) == "Gladly."


def test_keeping_a_lane_of_a_merge_stays_on_the_merge(explored: Explored) -> None:
    merged = merge(explored.session, explored.state, ["one", "two"], explored.worktrees)
    decided = keep(explored.session, explored.state, "one", explored.worktrees)
    assert decided.leaf == merged.leaf
    assert (explored.project / "two.txt").exists()


def test_keeping_another_lane_removes_the_files_of_the_first(explored: Explored) -> None:
    keep(explored.session, explored.state, "one", explored.worktrees)
    (explored.project / "mine.txt").write_text("mine\n")
    decided = keep(explored.session, explored.state, "four", explored.worktrees)
    assert {one.path: one.kind for one in decided.files} == {"four.txt": "added", "one.txt": "changed"}
    assert (explored.project / "one.txt").read_text() == "by four\n"
    assert (explored.project / "mine.txt").read_text() == "mine\n"
    assert decided.notes == ()
    assert verdicts(explored) == ["left", "left", "left", "kept"]
    decided = keep(explored.session, explored.state, "two", explored.worktrees)
    assert not (explored.project / "one.txt").exists()
    assert (explored.project / "two.txt").exists()


@pytest.mark.parametrize("how", ["changed", "committed"])
def test_modified_files_of_a_kept_lane_stay_when_another_is_kept(explored: Explored, how: str) -> None:
    keep(explored.session, explored.state, "one", explored.worktrees)
    if how == "changed":
        (explored.project / "one.txt").write_text("1 and more\n")
    else:
        git(explored.project, "add", "one.txt")
        git(explored.project, "commit", "-q", "-m", "one")
    kept = (explored.project / "one.txt").read_text()
    decided = keep(explored.session, explored.state, "two", explored.worktrees)
    assert (explored.project / "one.txt").read_text() == kept
    assert (explored.project / "two.txt").exists()
    assert any("lane 1 was kept before" in note for note in decided.notes)


def test_dropping_the_current_lane_is_reported(explored: Explored) -> None:
    stands = keep(explored.session, explored.state, "one", explored.worktrees).leaf
    decided = drop(explored.session, explored.state, ["one", "1"], explored.worktrees)
    assert decided.lanes == (1,)
    assert explored.session.context(stands).messages == explored.session.context().messages
    assert any("the current entry is still on lane 1" in note for note in decided.notes)


@pytest.mark.parametrize("dialect", ["native", "pi", "omp"])
def test_in_every_format_lanes_are_merged_on_the_first_of_them(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    run_lanes(session, "of lane-1.", "of lane-2.")
    session = sessiontree.open(session.location)
    state = find_exploration(session)
    with pytest.raises(UsageError, match="nothing to merge"):
        merge(session, state, [1], None)
    merge(session, state, [1, 2], None)
    path = session.path_ids(session.leaf)
    assert state.lane(1).start in path
    assert state.lane(2).start not in path
