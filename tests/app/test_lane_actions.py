"""Keep, merge and drop lanes as actions: planned, carried out, undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.app.actions.contract import ActionPlan
from sessiontree.app.actions.table import ACTIONS, Subject
from sessiontree.archive.archive_home import Home
from sessiontree.core.messages import message_text
from sessiontree.errors import ConflictError
from sessiontree.explore.state import find_exploration
from tests.branches.worlds import World
from tests.explore.explored import Explored

WRITES = {"one": {"one.txt": "1\n"}, "two": {"two.txt": "2\n", "a.txt": "changed\n"}}


@pytest.fixture
def explored(tmp_path: Path) -> Explored:
    return Explored(tmp_path, WRITES)


def plan(explored: Explored, name: str, **arguments: Any) -> ActionPlan[Any]:
    subject = Subject(explored.reopened(), Home(str(explored.home)))
    assert ACTIONS[name].why_not(subject) is None
    return ACTIONS[name].plan(subject, **arguments)


def files(explored: Explored) -> dict[str, str]:
    return {path.name: path.read_text() for path in explored.project.iterdir() if path.is_file()}


def verdicts(explored: Explored) -> list[str | None]:
    lanes = find_exploration(explored.reopened()).lanes
    return [None if lane.verdict is None else lane.verdict.verdict for lane in lanes]


def last_message(explored: Explored) -> str:
    return message_text(explored.reopened().context().messages[-1])


def test_a_lane_is_kept_and_the_decision_undone(explored: Explored) -> None:
    before = files(explored)
    keep = plan(explored, "keep-lane", lane="two")
    shown = keep.describe()
    assert shown.title == "keep lane 2 (two)"
    assert shown.data["files"] == ["a.txt", "two.txt"]
    assert "left, to be decided about later: 1" in shown.lines
    assert (files(explored), verdicts(explored)) == (before, [None, None]), "a plan decides nothing"
    done = keep.do()
    assert files(explored) == {**before, "two.txt": "2\n", "a.txt": "changed\n"}
    assert verdicts(explored) == ["left", "kept"]
    assert last_message(explored) == "two step 1"
    assert done.undo is not None
    assert "undo kept 2" in done.undo.describe().title
    done.undo.do()
    assert files(explored) == before
    assert verdicts(explored) == ["left", "left"]
    assert last_message(explored) == "Understood."
    plan(explored, "keep-lane", lane="1").do()
    assert files(explored) == {**before, "one.txt": "1\n"}, "it can be decided again"


def test_another_lane_is_kept_instead_and_undoing_that_restores_the_first(explored: Explored) -> None:
    plan(explored, "keep-lane", lane="1").do()
    kept = files(explored)
    done = plan(explored, "keep-lane", lane="2").do()
    assert "one.txt" not in files(explored)
    assert done.undo is not None
    done.undo.do()
    assert files(explored) == kept
    assert verdicts(explored) == ["kept", "left"]


@pytest.mark.slow
def test_lanes_are_merged_and_dropped_and_both_undone(explored: Explored) -> None:
    before = files(explored)
    done = plan(explored, "drop-lanes", lanes=["1"]).do()
    assert verdicts(explored) == ["dropped", None]
    assert done.undo is not None
    done.undo.do()
    assert verdicts(explored) == ["left", None]
    merge = plan(explored, "merge-lanes", lanes=["1", "2"])
    assert merge.describe().data["files"] == ["a.txt", "one.txt", "two.txt"]
    done = merge.do()
    assert set(files(explored)) == {*before, "one.txt", "two.txt"}
    assert verdicts(explored) == ["merged", "merged"]
    assert done.undo is not None
    done.undo.do()
    assert files(explored) == before
    assert last_message(explored) == "Understood."


def test_files_that_the_user_changed_are_a_conflict_of_the_plan(explored: Explored) -> None:
    (explored.project / "a.txt").write_text("by the user\n")
    with pytest.raises(ConflictError, match="nothing was written"):
        plan(explored, "keep-lane", lane="2")


def test_an_undo_goes_stale_when_the_session_continues(explored: Explored) -> None:
    done = plan(explored, "keep-lane", lane="1").do()
    explored.reopened().append("user", "Go on.")
    assert done.undo is not None
    with pytest.raises(ConflictError, match="plan it again"):
        done.undo.do()


def test_a_session_without_an_exploration_has_no_lanes(tmp_path: Path) -> None:
    subject = Subject(World("claude", tmp_path).opened(), Home(str(tmp_path / "home")))
    assert ACTIONS["keep-lane"].why_not(subject) == "this session has no exploration"
