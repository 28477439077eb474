"""Labels of lanes and sub-agents in the tree, in the list of branches and in chat."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.limits import RunUsage
from sessiontree.branches.list import list_branches
from sessiontree.branches.subagent_branches import SubagentRecord, subagent_entry
from sessiontree.explore import explorations
from sessiontree.explore.branch_labels import find_branch_marks, find_marks
from sessiontree.explore.records import Heartbeat, LaneEnd, LaneRecord, Plan, Verdict, VerdictRecord, entry_of
from sessiontree.session.session import Session
from sessiontree.views.branches import draw_branches
from sessiontree.views.text import columns
from sessiontree.views.tree_drawing import draw_tree
from sessiontree.views.tree_rows import TreeRows
from tests.chat.terminals import scripted, turn
from tests.explore.lanes import Stepping, explored, new_session
from tests.explore.programs import Repository

NASTY = "\x1b[2J\x1b]0;x\x07速い\n\n名前\u202egnp" * 3


@pytest.fixture
def place(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


class Planned:
    """An exploration that consists only of records."""

    def __init__(self, session: Session, run: str = "5d9bd8a2") -> None:
        self._session, self._run = session, run
        self._plan = session.branch(session.leaf).append(entry_of(Plan(run, session.leaf, 4, False))).id

    def lane(
        self, number: int, name: str = "", model: str = "openai:gpt-5", verdict: Verdict | None = None, **more: Any
    ) -> str:
        """Add a lane that has ended; returns its prompt."""
        branch = self._session.branch(self._plan)
        record = LaneRecord(self._run, number, name or f"lane-{number}", "Go.", model, **more)
        branch.move(branch.append(entry_of(record)).id)
        prompt = branch.append("user", "The same for all of them.").id
        branch.append("assistant", [{"type": "text", "text": f"Answer {number}."}], stopReason="stop")
        branch.move(branch.append(entry_of(LaneEnd("done", "", RunUsage()))).id)
        if verdict is not None:
            branch.append(entry_of(VerdictRecord(verdict)))
        return prompt


def drawn(session: Session, width: int = 120, *, everything: bool = False) -> list[str]:
    rows = TreeRows(session, find_marks(session), filter="all" if everything else "default", folds=False)
    return list(draw_tree(rows, width))


def marked(session: Session, width: int = 120, *, everything: bool = False) -> list[str]:
    """The texts in brackets in the tree, row by row."""
    return [" ".join(found) for row in drawn(session, width, everything=everything) if (found := _bracketed(row))]


def _bracketed(row: str) -> list[str]:
    return re.findall(r"(?<=  )\[.*?\](?=  |$)", row)


def listed(session: Session, width: int = 120) -> list[str]:
    branches = list_branches(session)
    marks = find_branch_marks(session, branches)
    return list(draw_branches(branches, ["The last words."] * len(branches), width, 0.0, session.id_prefixes, marks))


def names(session: Session, width: int = 120) -> dict[str, str]:
    """The names in the list of branches, by last entry."""
    heading, *rows = listed(session, width)
    at = heading.index("NAME")
    return {row[3:11]: re.split(r"\s{2,}", row[at:].strip())[0] if row[at : at + 1].strip() else "" for row in rows}


@pytest.mark.slow
def test_lanes_of_one_prompt_are_found_in_the_tree_in_the_list_and_in_chat(place: Repository) -> None:
    place.run_json("count words", "--n", "2", "--model", "demo")
    tree = place.sessiontree("tree", place.location).stdout.splitlines()
    assert sorted(text for row in tree for text in _bracketed(row)) == ["[lane 1 · demo]", "[lane 2 · demo]"]
    assert all("user" in row for row in tree if "[" in row), "the first that is shown of a lane"

    place.run_json("keep", "2", "--no-files")
    listing = place.sessiontree("branches", place.location).stdout
    assert re.search(r"^● +\w{8}  lane 2 · demo · kept  .*with the", listing, re.MULTILINE)
    assert re.search(r"^○ +\w{8}  lane 1 · demo · left  .*a loop", listing, re.MULTILINE)

    typed = "/tree\n\n/branch\n/switch\n\n/quit\n"
    model = scripted(place, turn("Three."))
    chat = place.run("--session", place.location, "--model", model, typed=typed, more={"COLUMNS": "90"}).out
    assert re.search(r"○[ │]* \w{8} +user .*\[lane 1 · demo · left\]  \d", chat)
    assert re.search(r"●  \w{8}  lane 2 · demo · kept  ", chat)
    assert re.search(r"1\S* +\w{8}  lane 1 · demo · left  Done", chat), "where a branch is chosen"


@pytest.mark.slow
def test_json_has_the_lane_of_each_branch(place: Repository) -> None:
    results = place.run_json("count words", "--n", "2", "--model", "demo")
    place.run_json("drop", "1")
    nodes = json.loads(place.sessiontree("tree", place.location, "--json").stdout)["nodes"]
    lanes = [node["lane"] for node in nodes if node["lane"] is not None]
    dropped, open_one = sorted(lanes, key=lambda lane: lane["number"])
    assert dropped == {
        "run": results["run"],
        "number": 1,
        "name": "lane-1",
        "model": results["results"][0]["model"],
        "state": "done",
        "verdict": "dropped",
    }
    assert (open_one["number"], open_one["verdict"]) == (2, None)
    assert {node["type"] for node in nodes if node["lane"]} == {"custom"}, "all is shown, so the record is the first"
    branches = json.loads(place.sessiontree("branches", place.location, "--json").stdout)["branches"]
    assert {branch["lane"] and branch["lane"]["number"] for branch in branches} == {None, 1, 2}
    assert {(branch["name"], branch["task"]) for branch in branches} == {(None, None)}


def test_a_session_without_lanes_does_not_import_explorations(place: Repository) -> None:
    """Not even a session with other entries of ours."""
    session = place.opened()
    session.append({"type": "custom", "customType": "sessiontree.other", "data": {}})
    session.close()
    program = (
        "import sys; from sessiontree.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print([name for name in sys.modules if name.startswith(('sessiontree.agent', 'sessiontree.models',"
        " 'sessiontree.explore.'))])"
    )
    for command in ("tree", "branches"):
        words = [sys.executable, "-c", program, command, place.location]
        done = subprocess.run(words, capture_output=True, text=True, env=place.environment, check=False)
        assert "Try several ways." in done.stdout
        assert done.stdout.splitlines()[-1] == "['sessiontree.explore.branch_labels']"


def test_a_label_has_number_name_model_and_verdict_of_the_lane(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    planned = Planned(session)
    planned.lane(1, verdict="kept")
    planned.lane(2, "gpt-5-mini", "openai:gpt-5-mini", "merged")
    planned.lane(3, "by hand", "anthropic:claude-opus-5")
    planned.lane(4, origin=3)
    assert marked(session) == [
        "[lane 1 · gpt-5 · kept]",
        "[lane 2 · gpt-5-mini · merged]",
        "[lane 3 by hand · claude-opus-5]",
        "[lane 4 ⑂3 · gpt-5]",
    ]
    assert marked(session, everything=True) == marked(session)


def test_models_that_differ_only_in_their_provider_show_it(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    planned = Planned(session)
    planned.lane(1, model="openai:gpt-5")
    planned.lane(2, model="azure:gpt-5")
    assert marked(session) == ["[lane 1 · openai:gpt-5]", "[lane 2 · azure:gpt-5]"]


def test_lanes_of_several_explorations_show_the_shortest_distinct_ids(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for run in ("5d9bd8a2", "5d9bd8b7"):
        Planned(session, run).lane(1, verdict="left")
    assert marked(session) == ["[lane 5d9bd8a/1 · gpt-5 · left]", "[lane 5d9bd8b/1 · gpt-5 · left]"]
    assert sorted(filter(None, names(session).values())) == [text[1:-1] for text in marked(session)]


def test_labels_of_users_come_first_and_are_shown_in_full(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    prompt = Planned(session).lane(1, verdict="kept")
    session.label(prompt, "the way that I want")
    assert marked(session) == ["[the way that I want] [lane 1 · gpt-5 · kept]"]
    assert marked(session, 80) == ["[the way that I want] [lane 1 · kept]"]
    assert marked(session, 70) == ["[the way that I want] [lane 1]"]
    assert marked(session, 60) == ["[the way that I want]"]
    assert "the way that I want" in names(session).values()
    assert not any("lane" in name for name in names(session).values())


def test_a_kept_lane_labels_the_branch_that_continues_it_and_no_later_fork(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    kept = Planned(session).lane(1, verdict="kept")
    session.move(session.children(kept)[0])
    parting = session.append("user", "And on.").id
    other = session.append("assistant", [{"type": "text", "text": "Another way."}]).id
    session.move(parting)
    here = session.append("assistant", [{"type": "text", "text": "Going on."}]).id
    assert names(session) == {here: "lane 1 · gpt-5 · kept", other: ""}
    assert marked(session) == ["[lane 1 · gpt-5 · kept]"]


@pytest.mark.parametrize("dialect", ["native", "pi", "omp"])
def test_lanes_of_real_runs_are_labeled_in_each_dialect_with_lanes(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    explored(session, "one", "two", models=[Stepping(1)], names=["first", ""], worktrees=False)
    fresh = sessiontree.open(session.location)
    assert sorted(marked(fresh)) == ["[lane 1 first · stepping]", "[lane 2 · stepping]"]
    assert sorted(names(fresh).values()) == ["", "lane 1 first · stepping", "lane 2 · stepping"]


def test_the_branch_of_a_sub_agent_shows_its_description(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    answer = session.leaf
    branch = session.branch(answer)
    branch.move(branch.append(subagent_entry(SubagentRecord("c1", "find all callers", "test:m", answer))).id)
    branch.append({"type": "reset_boundary"})
    branch.append("user", "Look for them.")
    end = branch.append("assistant", [{"type": "text", "text": "None."}], stopReason="stop").id
    assert marked(session) == ["[task · find all callers]"]
    assert names(session)[end] == "task · find all callers"
    (mark,) = find_marks(session).values()
    assert mark.task == {"description": "find all callers", "model": "test:m", "call": "c1"}


@pytest.mark.parametrize("width", [40, 50, 80, 100])
def test_hostile_names_are_harmless_and_no_row_is_too_wide(tmp_path: Path, width: int) -> None:
    session = new_session(tmp_path)
    for run in (NASTY, "\x1b" * 8):
        planned = Planned(session, run)
        planned.lane(1, NASTY, NASTY, "kept")
        planned.lane(2, "解析器を速くする方法その二", "x:" + "模" * 60, "merged")
        planned.lane(10**40, " ", " ")
    branch = session.branch(session.leaf)
    branch.move(branch.append(subagent_entry(SubagentRecord("c", NASTY, NASTY, session.leaf))).id)
    branch.append("user", "Look.")
    rows = [*drawn(session, width), *drawn(session, width, everything=True), *listed(session, width)]
    assert max(map(columns, rows)) <= width
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", "".join(rows))
    if width >= 80:
        assert sum("lane ␛" in row and "kept" in row for row in drawn(session, width)) == 2


def test_a_file_with_a_lane_that_is_its_own_ancestor_is_drawn(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    plan = entry_of(Plan("5d9bd8a2", None, 4, False))
    lane = entry_of(LaneRecord("5d9bd8a2", 1, "lane-1", "Go.", "test:m"))
    branch = session.branch(session.leaf)
    ids = []
    for record in (plan, entry_of(Heartbeat("token")), entry_of(Heartbeat("token"))):
        ids.append(branch.append(record).id)
        branch.move(ids[-1])
    branch.append("assistant", [{"type": "text", "text": "Answer."}])
    _, start, behind = ids
    with open(session.location, "a") as file:
        file.write(
            json.dumps({**lane, "id": start, "parentId": behind, "timestamp": "2026-02-16T10:20:30.000Z"}) + "\n"
        )
    fresh = sessiontree.open(session.location)
    assert "cycle" in {problem.kind for problem in fresh.problems}
    assert any("Answer." in row for row in drawn(fresh))
    assert any("The last words." in row for row in listed(fresh))
    assert len(explorations(fresh)) == 1
