"""Results of lanes: answers, files as git sees them, checks, tokens, time."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from sessiontree.explore.compare import compare
from sessiontree.explore.decisions import merge
from sessiontree.explore.lane_table import cost, draw_files, draw_progress, draw_results, duration
from sessiontree.git.trees import FileChange
from sessiontree.views.text import columns
from tests.explore.explored import Explored
from tests.explore.repos import git

pytestmark = pytest.mark.slow

WRITES = {"short": {"a.txt": "one\ntwo\n"}, "new": {"new/x.txt": "1\n2\n3\n"}, "nothing": {}}


@pytest.fixture
def explored(tmp_path: Path) -> Explored:
    return Explored(tmp_path, WRITES, check="test ! -e new/x.txt")


def test_results_have_answer_files_check_and_usage(explored: Explored) -> None:
    short, new, nothing = compare(explored.state, explored.worktrees)
    assert short.files == (FileChange("a.txt", 0, 7, "changed"),)
    assert new.files == (FileChange("new/x.txt", 3, 0, "added"),)
    assert nothing.files == ()
    assert [one.check for one in (short, new, nothing)] == [True, False, True]
    assert [one.answer for one in (short, new, nothing)] == ["short step 1", "new step 1", "nothing step 0"]
    assert [one.tokens for one in (short, new, nothing)] == [20, 20, 10]
    assert [one.turns for one in (short, new, nothing)] == [2, 2, 1]
    assert all(one.seconds > 0 for one in (short, new, nothing))
    assert [one.state for one in (short, new, nothing)] == ["done"] * 3
    assert (new.added, new.removed) == (3, 0)


def test_the_numbers_are_those_of_git_itself(explored: Explored) -> None:
    for lane in explored.state.lanes:
        assert lane.worktree is not None
        explored.worktrees.remove(lane.worktree)
        (result,) = [one for one in compare(explored.state, explored.worktrees) if one.lane == lane.number]
        if not result.files:
            continue
        base = f"refs/sessiontree/explore/{explored.state.run}/base"
        counted = git(explored.project, "diff", "--numstat", base, lane.worktree.ref)
        assert counted.split("\t") == [str(result.added), str(result.removed), result.files[0].path]


def test_the_running_exploration_and_the_file_give_the_same_results(explored: Explored) -> None:
    of_run, of_file = explored.exploration.results, compare(explored.state, explored.worktrees)
    assert of_run == of_file


def test_where_the_repository_is_gone_the_rest_is_still_compared(explored: Explored) -> None:
    shutil.rmtree(explored.project / ".git")
    first, *_ = compare(explored.state, explored.worktrees)
    assert first.files is None
    assert "cannot be compared" in first.why
    assert first.answer == "short step 1"


def test_the_table_shows_each_lane_with_its_files_in_any_width(explored: Explored) -> None:
    results = compare(explored.state, explored.worktrees)
    shown = list(draw_results(results, 120))
    assert "passed" in shown[2]
    assert "failed" in shown[3]
    assert "  │ short step 1" in shown
    assert any("A     +3 -0  new/x.txt" in line for line in shown)
    for width in (20, 40, 80, 200):
        assert all(columns(line) <= width for line in draw_results(results, width))


def test_texts_of_a_session_are_sanitized_for_the_terminal(explored: Explored) -> None:
    evil = "\x1b[2J\x07好 name\u202e"
    results = [
        msgspec.structs.replace(
            one,
            name=evil,
            model=evil,
            answer=evil,
            why=evil,
            reason=evil,
            rule=evil,
            origin=1,
            files=(FileChange(evil, 1, 1, "changed"),),
        )
        for one in compare(explored.state, explored.worktrees)
    ]
    lanes = explored.state.lanes
    for lane in lanes:
        lane.record = msgspec.structs.replace(lane.record, name=evil, model=evil)
        lane.text = lane.why = lane.last_tool = evil
    for width in (30, 100):
        for line in [*draw_results(results, width), *draw_progress(lanes, width)]:
            assert "\x1b" not in line
            assert "\x07" not in line
            assert "\u202e" not in line
            assert columns(line) <= width


def test_chinese_names_keep_the_columns_straight(explored: Explored) -> None:
    lanes = explored.state.lanes
    for lane, name in zip(lanes, ("解析器重写", "b", "テスト"), strict=True):
        lane.record = msgspec.structs.replace(lane.record, name=name)
    _, heading, *rows = draw_progress(lanes, 120)
    at = columns(heading[: heading.index("STATE")])
    assert [columns(row[: row.index("done")]) for row in rows] == [at] * 3


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0s"), (59.94, "59.9s"), (60, "1m00s"), (3599, "59m59s"), (7_620, "2h07m")]
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_costs_below_a_cent_are_shown() -> None:
    assert [cost(0, 0), cost(0, 9), cost(0.0042, 9), cost(1.5, 9)] == ["", "?", "$0.0042", "$1.50"]


def test_a_binary_file_has_no_lines() -> None:
    assert list(draw_files([FileChange("x.bin", None, None, "added")], 80)) == ["  A    binary  x.bin"]


LEAVING = "mkdir -p __pycache__; echo j > __pycache__/x.pyc; echo $$ > report.txt; rm b.txt; echo more >> a.txt"


def test_files_left_by_a_check_are_not_work_of_the_lane(tmp_path: Path) -> None:
    explored = Explored(tmp_path, {"one": {"one.txt": "1\n"}, "two": {"two.txt": "2\n"}}, check=LEAVING)
    one, two = compare(explored.state, explored.worktrees)
    assert (one.check, two.check) == (True, True)
    assert one.files == (FileChange("one.txt", 1, 0, "added"),)
    assert two.files == (FileChange("two.txt", 1, 0, "added"),)
    worktree = explored.state.lane(1).worktree
    assert worktree is not None
    assert sorted(path.name for path in Path(worktree.path).iterdir() if path.name != ".git") == [
        ".gitignore", "a.txt", "b.txt", "one.txt", "run.sh", "src",
    ]  # fmt: skip
    merge(explored.session, explored.state, [1, 2], explored.worktrees)
    assert not (explored.project / "report.txt").exists()
    assert (explored.project / "two.txt").exists()


def test_a_running_or_killed_check_does_not_change_the_work_of_the_lane(tmp_path: Path) -> None:
    explored = Explored(tmp_path, {"one": {"one.txt": "1\n"}})
    worktrees, worktree = explored.worktrees, explored.state.lane(1).worktree
    assert worktree is not None
    worktrees.begin_check(worktree)
    Path(worktree.path, "report.txt").write_text("by the check\n")
    Path(worktree.path, "one.txt").unlink()
    mine = [FileChange("one.txt", 1, 0, "added")]
    assert worktrees.files(worktree) == mine
    worktrees.restore(worktree)  # whoever takes the lane over
    assert not Path(worktree.path, "report.txt").exists()
    assert Path(worktree.path, "one.txt").read_text() == "1\n"
    worktrees.begin_check(worktree)
    Path(worktree.path, "report.txt").write_text("by the check\n")
    worktrees.remove(worktree)
    assert worktrees.files(worktree) == mine
    left = git(explored.project, "log", "--all", "--full-history", "--format=%H", "--", "report.txt")
    assert left, "not even what a check left is lost"


def test_a_file_that_was_renamed_is_one_file_with_the_lines_that_differ(tmp_path: Path) -> None:
    explored = Explored(tmp_path, {"one": {"one.txt": "1\n"}})
    worktree = explored.state.lane(1).worktree
    assert worktree is not None
    git(Path(worktree.path), "mv", "a.txt", "moved.txt")
    (Path(worktree.path) / "moved.txt").write_text((Path(worktree.path) / "moved.txt").read_text() + "ten\n")
    (result,) = compare(explored.state, explored.worktrees)
    assert result.files == (
        FileChange("moved.txt", 1, 0, "renamed", was="a.txt"),
        FileChange("one.txt", 1, 0, "added"),
    )
    explored.worktrees.remove(worktree)
    base = f"refs/sessiontree/explore/{explored.state.run}/base"
    assert (
        git(explored.project, "diff", "--shortstat", base, worktree.ref).strip() == "2 files changed, 2 insertions(+)"
    )
    assert any("a.txt → moved.txt" in line for line in draw_files(result.files, 80))
