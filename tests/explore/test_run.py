"""Lanes in parallel: their entries, their events, and how they are stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.events import AgentEnd, Persisted, TextDelta
from sessiontree.agent.tools.base import Tools
from sessiontree.core.messages import message_text
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.explore import Bounds, Exploration, Job, Lane, explorations, explore
from sessiontree.explore.events import LaneEnded, LaneMade, LaneRefused
from sessiontree.explore.records import LaneEnd, LaneRecord, Lease, Plan, record_of
from sessiontree.models import ScriptedModel
from sessiontree.session.session import Session
from tests.agent.runs import call, turn
from tests.explore.lanes import Note, Stepping, check_is_sound, explored, new_session, own_messages
from tests.explore.repos import git, make_repository

PROMPTS = ["of lane-1.", "of lane-2.", "of lane-3."]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path)


def test_lanes_start_from_one_entry_each_with_its_own_prompt(session: Session, tmp_path: Path) -> None:
    leaf_before = session.leaf
    tools = Tools([Note(tmp_path / "notes")])
    exploration, _ = explored(session, *PROMPTS, models=[Stepping(2)], tools=tools)
    assert [lane.state for lane in exploration.lanes] == ["done"] * 3
    assert [lane.text for lane in exploration.lanes] == [f"of lane-{n}. step 2" for n in (1, 2, 3)]
    assert session.parent(exploration.plan_id) == leaf_before
    assert session.children(exploration.plan_id)[1:] == [lane.start for lane in exploration.lanes]
    for messages in check_is_sound(session):
        assert [type(message).__name__ for message in messages] == ["User"] + ["Assistant", "ToolResult"] * 2 + [
            "Assistant"
        ]
    assert len((tmp_path / "notes").read_text().split("\n")) == 7


def test_the_session_keeps_its_current_entry_here_and_in_other_processes(session: Session) -> None:
    leaf_before = session.leaf
    explored(session, *PROMPTS)
    assert session.leaf == leaf_before
    assert sessiontree.open(session.location).leaf == leaf_before


def test_lanes_may_start_at_an_entry_other_than_the_current_one(session: Session) -> None:
    first, leaf_before = session.ids[1], session.leaf
    exploration, _ = explored(session, *PROMPTS, at=first)
    assert session.parent(exploration.plan_id) == first
    assert session.leaf == sessiontree.open(session.location).leaf == leaf_before


def test_records_of_a_lane_are_on_its_own_branch(session: Session) -> None:
    exploration, _ = explored(session, *PROMPTS, names=["one", "two"])
    for lane in exploration.lanes:
        ids = session.path_ids(lane.leaf)
        records = [record_of(entry) for entry in session.entries(ids[ids.index(exploration.plan_id) :])]
        kinds = [type(record) for record in records if record is not None]
        assert kinds == [Plan, LaneRecord, Lease, LaneEnd]
    assert [lane.name for lane in exploration.lanes] == ["one", "two", "lane-3"]


def test_one_prompt_and_several_models_make_a_lane_for_each_model(session: Session) -> None:
    models = [Stepping(0, name=f"test:{name}") for name in "abc"]
    exploration, _ = explored(session, "of all.", models=models)
    assert [lane.record.model for lane in exploration.lanes] == ["test:a", "test:b", "test:c"]
    exploration, _ = explored(session, *PROMPTS, models=models[:2])
    assert [lane.record.model for lane in exploration.lanes] == ["test:a", "test:b", "test:a"]


def test_events_name_their_lane_and_its_end_is_the_last(session: Session) -> None:
    exploration, events = explored(session, *PROMPTS)
    for lane in exploration.lanes:
        own = [one.event for one in events if one.lane == lane.number]
        assert isinstance(own[0], LaneMade)
        assert isinstance(own[-1], LaneEnded)
        assert [event for event in own if isinstance(event, AgentEnd)]
        for event in own:
            if isinstance(event, Persisted):
                assert lane.start in session.path_ids(event.entry.id)


def test_no_more_lanes_work_at_once_than_requested(session: Session) -> None:
    model = Stepping(1, calls=lambda prompt, step: [], meet=3)
    explored(session, *[f"of lane-{n}." for n in range(1, 10)], models=[model], parallel=3)
    assert model.most_under_way == 3


def test_the_file_has_the_same_state_as_the_running_exploration(session: Session, tmp_path: Path) -> None:
    exploration, _ = explored(session, *PROMPTS, models=[Stepping(2)], tools=Tools([Note(tmp_path / "notes")]))
    (state,) = explorations(sessiontree.open(session.location))
    assert (state.run, state.plan) == (exploration.run, exploration.plan)
    for lane, other in zip(exploration.lanes, state.lanes, strict=True):
        for what in ("number", "name", "record", "start", "leaf", "state", "spent", "text", "why"):
            assert getattr(lane, what) == getattr(other, what), what
        assert other.spent.turns == 3
        assert other.spent.tokens == 30


def test_a_lane_is_found_by_number_and_by_name(session: Session) -> None:
    exploration, _ = explored(session, *PROMPTS, names=["one"])
    assert exploration.lane("one") is exploration.lane(1) is exploration.lane("1")
    with pytest.raises(NotFoundError, match="no lane 'nine'"):
        exploration.lane("nine")


async def _until(exploration: Any, what: Any) -> None:
    async for one in exploration:
        if what(one):
            return


def test_one_lane_is_stopped_and_the_others_continue(session: Session, tmp_path: Path) -> None:
    async def main() -> list[Lane]:
        tools = Tools([Note(tmp_path / "notes", delay=0.01)])
        async with explore(session, prompts=PROMPTS, models=[Stepping(5)], tools=tools) as exploration:
            await _until(exploration, lambda one: one.lane == 2 and isinstance(one.event, Persisted))
            exploration.stop(2, "it is not needed")
            return await exploration.finish()

    lanes = asyncio.run(main())
    assert [lane.state for lane in lanes] == ["done", "stopped", "done"]
    assert lanes[1].why == "it is not needed"
    check_is_sound(session)


def test_all_lanes_are_stopped_including_waiting_ones(session: Session) -> None:
    async def main() -> list[Lane]:
        model = Stepping(5, delay=0.05)
        async with explore(session, prompts=PROMPTS, models=[model], tools=Tools(), parallel=1) as exploration:
            await _until(exploration, lambda one: isinstance(one.event, Persisted))
            exploration.stop()
            assert await exploration.add(Job("of lane-4.", model)) is None
            return await exploration.finish()

    lanes = asyncio.run(main())
    assert [lane.state for lane in lanes] == ["stopped"] * 3
    assert [lane.state for lane in explorations(sessiontree.open(session.location))[0].lanes] == ["stopped"] * 3


def test_leaving_the_block_leaves_lanes_that_can_be_resumed(session: Session) -> None:
    async def main() -> None:
        model = Stepping(5, delay=0.05)
        async with explore(session, prompts=PROMPTS, models=[model], tools=Tools(), parallel=2) as exploration:
            await _until(exploration, lambda one: isinstance(one.event, Persisted))

    leaf_before = session.leaf
    asyncio.run(main())
    assert [lane.state for lane in explorations(session)[0].lanes] == ["lost"] * 3
    assert session.leaf == leaf_before
    check_is_sound(session)


def test_lanes_can_be_added_during_a_run_up_to_the_limit(session: Session) -> None:
    async def main() -> tuple[Any, list[Any]]:
        model = Stepping(1, delay=0.02, calls=lambda prompt, step: [])
        bounds = Bounds(lanes=2, depth=1)
        async with explore(session, prompts=["of lane-1."], models=[model], tools=Tools(), bounds=bounds) as run:
            deep = await run.add(Job("of none.", model, depth=2))
            second = await run.add(Job("of lane-2.", model, origin=1, rule="check", reason="it failed", depth=1))
            third = await run.add(Job("of lane-3.", model))
            events = [one.event async for one in run]
        assert deep is None
        assert third is None
        return second, events

    lane, events = asyncio.run(main())
    assert lane.state == "done"
    assert (lane.record.origin, lane.record.rule, lane.record.reason, lane.record.depth) == (1, "check", "it failed", 1)
    refused = [event.why for event in events if isinstance(event, LaneRefused)]
    assert refused == ["the limit of 1 levels of forks is reached", "the limit of 2 lanes is reached"]


def test_a_lane_forked_at_an_entry_of_another_one_has_the_messages_before_it(session: Session) -> None:
    async def main() -> Any:
        model = Stepping(0)
        async with explore(session, prompts=["of lane-1."], models=[model], tools=Tools()) as run:
            await _until(run, lambda one: isinstance(one.event, AgentEnd))
            await run.add(Job("of lane-2.", model, origin=1, at=run.lanes[0].leaf))
            await run.finish()
        return run

    run = asyncio.run(main())
    messages = [message_text(message) for message in session.context(run.lanes[1].leaf).messages]
    assert messages[-4:] == ["of lane-1.", "of lane-1. step 0", "of lane-2.", "of lane-2. step 0"]
    first, second = explorations(sessiontree.open(session.location))[0].lanes
    assert first.leaf == run.lanes[0].leaf
    assert second.leaf == run.lanes[1].leaf


def test_a_failing_lane_does_not_affect_the_others(session: Session) -> None:
    class Broken(Stepping):
        async def stream(self, request: Any, /) -> Any:
            raise RuntimeError("a fault of the model")
            yield

    exploration, _ = explored(session, *PROMPTS, models=[Stepping(0), Broken(0), Stepping(0)])
    assert [lane.state for lane in exploration.lanes] == ["done", "failed", "done"]
    assert exploration.lanes[1].why == "RuntimeError: a fault of the model"
    check_is_sound(session)


def test_the_check_is_run_at_the_end_of_each_lane(session: Session) -> None:
    exploration, _ = explored(session, *PROMPTS, check="echo looked; exit 3")
    for lane in (*exploration.lanes, *explorations(sessiontree.open(session.location))[0].lanes):
        assert lane.check is not None
        assert (lane.check.passed, lane.check.exit_code, lane.check.output.strip()) == (False, 3, "looked")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prompts": []}, "at least one of each"),
        ({"prompts": "one text"}, "a list of prompts"),
        ({"models": []}, "at least one of each"),
        ({"names": ["a", "a"]}, "names have to be unique"),
        ({"parallel": 0}, "at least 1"),
        ({"bounds": Bounds(lanes=1)}, "3 lanes requested, the limit is 1"),
        ({"bounds": Bounds(cost=1.0)}, "those of test:stepping are unknown"),
        ({"at": "nowhere"}, "no entry 'nowhere'"),
    ],
)
def test_invalid_explorations_are_refused_and_nothing_is_written(
    session: Session, wrong: dict[str, Any], message: str
) -> None:
    before = Path(session.location).read_bytes()
    with pytest.raises(UsageError, match=message):
        explore(session, **{"prompts": PROMPTS, "models": [Stepping(0)], "tools": Tools(), **wrong})
    assert Path(session.location).read_bytes() == before


@pytest.mark.parametrize("dialect", ["claude", "neovate"])
def test_a_format_that_cannot_hold_lanes_is_refused_with_the_next_step(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    with pytest.raises(UsageError, match="sessiontree fork SESSION --to native"):
        explored(session, *PROMPTS)


@pytest.mark.parametrize("dialect", ["pi", "omp"])
def test_lanes_work_in_pi_and_omp_sessions(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    texts_before = [message_text(message) for message in session.context().messages]
    exploration, _ = explored(session, *PROMPTS, models=[Stepping(1)], tools=Tools([Note(tmp_path / "notes")]))
    assert [lane.state for lane in exploration.lanes] == ["done"] * 3
    check_is_sound(session)
    fresh = sessiontree.open(session.location)
    assert [message_text(message) for message in fresh.context().messages] == texts_before


def test_a_prompt_with_an_image_is_complete_in_the_lane(session: Session) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    prompt = {"content": [{"type": "text", "text": "of lane-1."}, image]}
    exploration, _ = explored(session, prompt)
    (lane,) = exploration.lanes
    assert lane.record.prompt == "of lane-1."
    assert len(own_messages(session, lane)[0].content) == 2


def test_a_lane_stopped_during_an_answer_counts_sent_and_received_tokens(session: Session) -> None:
    model = ScriptedModel([turn("A long answer. " * 50, delay=0.02)])

    async def main() -> list[Lane]:
        async with explore(session, prompts=["x " * 2_000], models=[model], tools=Tools(), hooks=[]) as exploration:
            await _until(exploration, lambda one: isinstance(one.event, TextDelta))
            exploration.stop()
            return await exploration.finish()

    (lane,) = asyncio.run(main())
    assert lane.state == "stopped"
    assert lane.spent.tokens > 1_000
    (state,) = explorations(sessiontree.open(session.location))
    assert state.lanes[0].spent.tokens == lane.spent.tokens


def test_an_exploration_can_be_entered_once(session: Session) -> None:
    exploration = explore(session, prompts=["of lane-1."], models=[Stepping(0)], tools=Tools())

    async def main() -> None:
        async with exploration:
            await exploration.finish()
        async with exploration:
            raise AssertionError("it was begun twice")

    with pytest.raises(UsageError, match="entered once"):
        asyncio.run(main())
    assert len(explorations(session)) == 1


def test_lanes_do_not_start_after_calls_that_have_no_result(session: Session) -> None:
    call = {"type": "toolCall", "id": "c1", "name": "write", "arguments": {}}
    asking = session.append("assistant", [call], stopReason="toolUse")
    before = session.ids
    with pytest.raises(UsageError, match=r"1 tool call has no result there \(write\)"):
        explored(session, *PROMPTS, at=asking.id)
    assert session.ids == before


def test_worktrees_are_removed_at_the_end_and_their_work_can_be_restored(tmp_path: Path) -> None:
    project = make_repository(tmp_path / "project")
    session = new_session(tmp_path)

    async def main(**more: Any) -> Exploration:
        model = ScriptedModel([turn("I write.", call("write", path="x.txt", content="1\n")), turn("Written.")])
        async with explore(session, prompts=["write"], models=[model], **more) as exploration:
            await exploration.finish()
        return exploration

    exploration = asyncio.run(main())
    assert len(git(project, "worktree", "list").splitlines()) == 1
    assert exploration.cleanup is not None
    assert exploration.cleanup.lanes == (1,)
    (result,) = exploration.results
    assert [file.path for file in result.files or ()] == ["x.txt"]
    asyncio.run(exploration.keep(1))
    assert (project / "x.txt").read_text() == "1\n"
    asyncio.run(main(keep_worktrees=True))
    assert len(git(project, "worktree", "list").splitlines()) == 2
