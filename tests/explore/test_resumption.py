"""Resuming explorations that were left at any moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sessiontree
from sessiontree.agent.tool_calls import Answered
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.branches.subagent_branches import TASK
from sessiontree.core.messages import message_text
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.explore import Bounds, Lane, explorations, explore, resume
from sessiontree.explore.leases import new_lease
from sessiontree.explore.records import LaneRecord, Plan, PlannedLane, iter_records, write
from sessiontree.explore.state import find_exploration
from sessiontree.session.session import Branch, Session
from tests.explore.lanes import Note, Stepping, check_is_sound, explored, new_session, own_messages
from tests.explore.repos import git, make_repository

PROMPTS = ["of lane-1.", "of lane-2."]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path)


def resumed(session: Session, run: str | None = None, *, steps: int = 2, **more: Any) -> list[Lane]:
    more.setdefault("find_model", lambda name: Stepping(steps, name=name))
    more.setdefault("tools", Tools())

    async def main() -> list[Lane]:
        async with resume(session, run, **more) as exploration:
            return await exploration.finish()

    return asyncio.run(main())


def begun(session: Session, *entries: dict[str, Any], at: str | None = None) -> str:
    """Start an exploration whose process dies after writing some entries; returns its lane."""
    at = session.leaf if at is None else at
    plan = Plan(
        run="0123abcd", at=at, parallel=2, worktrees=False, planned=(PlannedLane("lane-1", PROMPTS[0], "test:a"),)
    )
    plan_id = write(Branch(session, at), plan).id
    lane = Lane(session, _record(), write(Branch(session, plan_id), _record()).id)
    write(lane.branch, msgspec.structs.replace(new_lease(), token="gone", started="of a process that is no more"))
    for entry in entries:
        lane.branch.append(entry)
    return lane.start


def _record() -> LaneRecord:
    return LaneRecord(run="0123abcd", number=1, name="lane-1", prompt=PROMPTS[0], model="test:a")


SAID = {"role": "user", "content": PROMPTS[0]}
CALLED = {
    "role": "assistant",
    "content": [{"type": "toolCall", "id": "of lane-1.-0", "name": "note", "arguments": {}}],
    "stopReason": "toolUse",
}
ANSWERED = {"role": "assistant", "content": [{"type": "text", "text": "of lane-1. All is done."}], "stopReason": "stop"}


def test_planned_lanes_that_a_crash_prevented_are_created(session: Session) -> None:
    planned = tuple(PlannedLane(f"way-{n}", f"of way-{n}.", f"test:{n}") for n in (1, 2, 3))
    plan = Plan(run="0123abcd", at=session.leaf, parallel=2, worktrees=False, planned=planned)
    write(Branch(session, session.leaf), plan)
    asked: list[str] = []

    def find(name: str) -> Stepping:
        asked.append(name)
        return Stepping(0, name=name)

    lanes = resumed(sessiontree.open(session.location), find_model=find)
    assert [(lane.name, lane.number, lane.state) for lane in lanes] == [(f"way-{n}", n, "done") for n in (1, 2, 3)]
    assert asked == ["test:1", "test:2", "test:3"]
    check_is_sound(session)


@pytest.mark.parametrize("messages", [[], [SAID]])
def test_a_prompt_is_sent_once_whether_or_not_it_was_written_before(
    session: Session, messages: list[dict[str, Any]]
) -> None:
    begun(session, *messages)
    (lane,) = resumed(session, steps=0)
    assert [message_text(message) for message in own_messages(session, lane)] == [PROMPTS[0], "of lane-1. step 0"]


def test_a_lane_that_had_answered_without_an_end_record_ends_without_asking_again(session: Session) -> None:
    begun(session, SAID, ANSWERED)
    (lane,) = resumed(session, find_model=lambda name: Stepping(9))
    assert (lane.state, lane.text, lane.spent.turns) == ("done", "of lane-1. All is done.", 1)
    assert len(own_messages(session, lane)) == 2


def test_a_call_without_a_result_is_not_run_again_by_itself(session: Session, tmp_path: Path) -> None:
    begun(session, SAID, CALLED)
    (lane,) = resumed(session, tools=Tools([Note(tmp_path / "notes")]))
    assert lane.state == "done"
    assert (tmp_path / "notes").read_text() == "of lane-1.-1\n"
    assert "none was stored" in message_text(own_messages(session, lane)[2])


def test_a_call_without_a_result_is_run_again_on_request(session: Session, tmp_path: Path) -> None:
    begun(session, SAID, CALLED)
    resumed(session, tools=Tools([Note(tmp_path / "notes")]), pending="run")
    assert (tmp_path / "notes").read_text() == "of lane-1.-0\nof lane-1.-1\n"


def test_a_lane_can_wait_for_a_decision_about_its_calls(session: Session, tmp_path: Path) -> None:
    begun(session, SAID, CALLED)
    (lane,) = resumed(session, pending=None)
    assert lane.state == "pending"
    assert "1 call has no result" in lane.why
    answer = {"of lane-1.-0": Answered("it was noted")}
    (lane,) = resumed(session, tools=Tools([Note(tmp_path / "notes")]), pending=answer)
    assert lane.state == "done"
    assert message_text(own_messages(session, lane)[2]) == "it was noted"


def test_an_exploration_that_has_ended_is_not_touched(session: Session) -> None:
    explored(session, *PROMPTS)
    session.close()
    before = Path(session.location).read_bytes()
    assert [lane.state for lane in resumed(sessiontree.open(session.location))] == ["done", "done"]
    assert Path(session.location).read_bytes() == before


def test_the_last_exploration_is_resumed_or_the_named_one(session: Session) -> None:
    with pytest.raises(NotFoundError, match="no exploration"):
        resumed(session)
    first, _ = explored(session, *PROMPTS)
    second, _ = explored(session, *PROMPTS)
    assert find_exploration(session).run == second.run
    assert find_exploration(session, first.run[:7]).run == first.run
    with pytest.raises(NotFoundError, match="no exploration matches 'zzzz'"):
        find_exploration(session, "zzzz")


def test_a_session_whose_process_died_in_a_lane_keeps_its_current_entry(session: Session) -> None:
    leaf_before = session.leaf
    begun(session, SAID)
    session.close()
    fresh = sessiontree.open(session.location)
    assert fresh.leaf == leaf_before, "entries of a lane do not move the current entry"
    resumed(fresh)
    assert fresh.leaf == leaf_before
    assert sessiontree.open(session.location).leaf == leaf_before


def test_a_session_that_was_continued_elsewhere_stays_there(session: Session) -> None:
    begun(session, SAID)
    session.append("user", "Meanwhile I go on here.")
    leaf_before = session.leaf
    fresh = sessiontree.open(session.location)
    resumed(fresh)
    assert fresh.leaf == sessiontree.open(session.location).leaf == leaf_before


def test_messages_after_the_end_of_a_lane_are_not_part_of_it(session: Session) -> None:
    exploration, _ = explored(session, *PROMPTS)
    lane = exploration.lanes[0]
    session.move(lane.leaf)
    session.append("user", "I go on from here.")
    state = explorations(sessiontree.open(session.location))[0]
    assert state.lanes[0].leaf == lane.leaf


@pytest.mark.parametrize("start", ["nothing", "in memory", "before the first entry"])
def test_sessions_without_messages_can_be_explored(tmp_path: Path, start: str) -> None:
    session = new_session(tmp_path, prompt=None, in_memory=start == "in memory")
    if start == "before the first entry":
        session.append("user", "Something else.")
    exploration, _ = explored(session, *PROMPTS, at=None)
    assert [lane.state for lane in exploration.lanes] == ["done", "done"]
    for lane in exploration.lanes:
        assert len(session.context(lane.leaf).messages) == 2
    if start != "in memory":
        assert [lane.state for lane in explorations(sessiontree.open(session.location))[0].lanes] == ["done", "done"]


def test_leaving_ends_a_check_that_takes_long(session: Session) -> None:
    async def main() -> list[str]:
        how = {"models": [Stepping(0)], "tools": Tools(), "check": "sleep 60"}
        async with explore(session, prompts=PROMPTS, **how) as exploration:
            async for one in exploration:
                if type(one.event).__name__ == "AgentEnd":
                    break
            await asyncio.sleep(0.2)
        return [lane.state for lane in exploration.lanes]

    assert asyncio.run(asyncio.wait_for(main(), 20)) == ["lost", "lost"]


def test_a_turn_limit_counts_turns_of_earlier_runs(session: Session, tmp_path: Path) -> None:
    plan = Plan(run="0123abcd", at=session.leaf, parallel=1, worktrees=False, bounds=Bounds(turns=3))
    plan_id = write(Branch(session, session.leaf), plan).id
    lane = Lane(session, _record(), write(Branch(session, plan_id), _record()).id)
    lane.branch.append(SAID)
    lane.branch.append(CALLED)
    (lane,) = resumed(session, steps=9, tools=Tools([Note(tmp_path / "notes")]))
    assert (lane.state, lane.spent.turns) == ("limit", 3)


def test_a_record_that_cannot_be_decoded_is_ignored(session: Session) -> None:
    start = begun(session, SAID)
    branch = Branch(session, start)
    branch.append({"type": "custom", "customType": "sessiontree.explore.lease", "data": {"token": 5}})
    branch.append({"type": "custom", "customType": "sessiontree.explore.plan", "data": "no plan"})
    branch.append({"type": "custom", "customType": "sessiontree.explore.lane", "data": {"run": "unknown"}})
    assert [lane.state for lane in explorations(session)[0].lanes] == ["lost"]
    assert all(record is not None for _, record in iter_records(session))


def test_usage_of_a_sub_agent_counts_when_the_lane_is_read_again(session: Session) -> None:
    usage = {"input": 100, "output": 10, "cacheRead": 0, "cacheWrite": 0}
    calling = {"role": "assistant", "content": [{"type": "toolCall", "id": "c1", "name": "task", "arguments": {}}]}
    start = begun(session, SAID, {**calling, "usage": usage, "stopReason": "toolUse"})
    lane = find_exploration(session).lanes[0]
    task = Branch(session, lane.leaf).append({"type": "custom", "customType": TASK, "data": {"call": "c1"}})
    sub_agent = Branch(session, task.id)
    sub_agent.append({"type": "reset_boundary"})
    sub_agent.append("user", "look at the parser")
    sub_agent.append({"role": "assistant", "content": "It is slow.", "usage": {**usage, "input": 5_000}})
    read = find_exploration(session).lanes[0]
    assert (read.start, read.leaf) == (start, lane.leaf)
    assert (lane.spent.tokens, read.spent.tokens) == (110, 110 + 5_010)
    assert read.spent.turns == 1


def test_a_lane_whose_model_is_gone_does_not_stop_the_others(session: Session) -> None:
    async def main() -> None:
        models = [Stepping(2, name="test:gone", delay=60), Stepping(2, name="test:there", delay=60)]
        async with explore(session, prompts=PROMPTS, models=models, tools=Tools()):
            pass  # left at once

    asyncio.run(main())

    def find_model(name: str) -> Stepping:
        if name == "test:gone":
            raise NotFoundError("the model is gone")
        return Stepping(0, name=name)

    lanes = resumed(session, find_model=find_model)
    assert [(lane.state, lane.why) for lane in lanes] == [("lost", "the model is gone"), ("done", "")]
    with pytest.raises(NotFoundError, match="the model is gone"):
        resumed(session, find_model=find_model)
    assert [lane.state for lane in resumed(session)] == ["done", "done"]


def test_a_project_that_is_too_large_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(tmp_path / "project")
    session = new_session(tmp_path)
    (tmp_path / "project" / "large.bin").write_bytes(b"x" * 2_000)
    monkeypatch.setattr("sessiontree.explore.worktrees.MAX_BYTES", 1_000)
    before = session.ids
    with pytest.raises(UsageError, match="bytes are not committed"):
        explored(session, *PROMPTS, tools=None)
    assert session.ids == before
    assert explorations(session) == []


def test_resuming_removes_leftover_folders_of_ended_lanes(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    session = new_session(tmp_path)
    explored(session, *PROMPTS, tools=load_tools(), keep_worktrees=True)
    assert len(git(project, "worktree", "list").splitlines()) == 3
    assert [lane.state for lane in resumed(session, tools=None)] == ["done", "done"]
    assert len(git(project, "worktree", "list").splitlines()) == 1
