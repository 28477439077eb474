"""Lanes that continue after their end: at a limit, after a failure, when stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.tools.base import Tools
from sessiontree.errors import ModelError, UsageError
from sessiontree.explore import Bounds, Lane, explore, resume
from sessiontree.explore.decisions import drop
from sessiontree.explore.records import VerdictRecord, write
from sessiontree.explore.state import find_exploration
from sessiontree.models import Facts
from sessiontree.session.session import Session
from tests.explore.lanes import Note, Stepping, check_is_sound, explored, new_session

PROMPTS = ["of lane-1.", "of lane-2.", "of lane-3."]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path)


def went_on(session: Session, *, steps: int = 6, **more: Any) -> list[Lane]:
    """Resume the exploration as another process."""
    session.close()
    fresh = sessiontree.open(session.location)
    tools = more.pop("tools", Tools())

    async def main() -> list[Lane]:
        async with resume(fresh, find_model=lambda name: Stepping(steps, name=name), tools=tools, **more) as run:
            return await run.finish()

    lanes = asyncio.run(main())
    fresh.close()
    return lanes


def limited(session: Session, tmp_path: Path, bounds: Bounds, *prompts: str) -> Tools:
    tools = Tools([Note(tmp_path / "notes")])
    exploration, _ = explored(session, *prompts, models=[Stepping(6)], tools=tools, bounds=bounds)
    assert {lane.state for lane in exploration.lanes} == {"limit"}
    return tools


def failing(prompt: str, step: int) -> Any:
    if step == 1:
        raise ModelError("the model is gone")
    return None


def test_lanes_that_reached_a_limit_continue_with_a_larger_budget(session: Session, tmp_path: Path) -> None:
    tools = limited(session, tmp_path, Bounds(tokens=100), *PROMPTS)
    lanes = went_on(session, tools=tools, bounds=Bounds(tokens=10_000))
    assert [(lane.state, lane.text) for lane in lanes] == [("done", f"of lane-{n}. step 6") for n in (1, 2, 3)]
    assert [lane.spent.tokens for lane in lanes] == [70] * 3, "what was used before counts, and nothing twice"
    notes = (tmp_path / "notes").read_text().splitlines()
    assert len(notes) == len(set(notes)) == 18
    check_is_sound(session)
    state = find_exploration(sessiontree.open(session.location))
    assert [(lane.state, lane.spent.tokens) for lane in state.lanes] == [("done", 70)] * 3


def test_the_new_budget_is_recorded_and_stays_in_effect(session: Session, tmp_path: Path) -> None:
    tools = limited(session, tmp_path, Bounds(tokens=60, turns=50), *PROMPTS)
    lanes = went_on(session, tools=tools, bounds=Bounds(tokens=120, turns=50))
    assert {lane.state for lane in lanes} == {"limit"}
    assert 120 <= sum(lane.spent.tokens for lane in lanes) < 130
    assert find_exploration(sessiontree.open(session.location)).plan.bounds == Bounds(tokens=120, turns=50)


def test_a_limit_of_time_or_turns_can_be_raised_too(session: Session, tmp_path: Path) -> None:
    tools = limited(session, tmp_path, Bounds(turns=2), "of lane-1.")
    (lane,) = went_on(session, tools=tools, bounds=Bounds(turns=99, seconds=60))
    assert (lane.state, lane.spent.turns) == ("done", 7)


def test_ended_lanes_do_not_continue_without_a_request(session: Session, tmp_path: Path) -> None:
    tools = limited(session, tmp_path, Bounds(tokens=30), *PROMPTS)
    assert {lane.state for lane in went_on(session, tools=tools)} == {"limit"}


def test_a_decided_lane_continues_only_if_named(session: Session, tmp_path: Path) -> None:
    tools = limited(session, tmp_path, Bounds(tokens=30), *PROMPTS)
    write(find_exploration(session).lane(2).branch, VerdictRecord("dropped"))
    lanes = went_on(session, tools=tools, bounds=Bounds(tokens=10_000))
    assert [lane.state for lane in lanes] == ["done", "limit", "done"]
    lanes = went_on(session, tools=tools, again=["lane-2"])
    assert [(lane.state, lane.verdict) for lane in lanes] == [("done", None)] * 3


def test_a_failed_lane_continues_on_request(session: Session, tmp_path: Path) -> None:
    tools = Tools([Note(tmp_path / "notes")])
    broken = Stepping(6, usage=failing)
    exploration, _ = explored(session, *PROMPTS[:2], models=[broken, Stepping(6)], tools=tools, check="echo first")
    assert [lane.state for lane in exploration.lanes] == ["failed", "done"]
    lanes = went_on(session, tools=tools, again=[1], check="echo second")
    assert [(lane.state, lane.text) for lane in lanes] == [("done", f"of lane-{n}. step 6") for n in (1, 2)]
    assert len((tmp_path / "notes").read_text().splitlines()) == 12
    checks = [lane.check for lane in find_exploration(sessiontree.open(session.location)).lanes]
    assert [check.output.strip() for check in checks if check is not None] == ["second", "first"]


def test_a_lane_stopped_before_its_first_message_starts_on_request(session: Session) -> None:
    async def main() -> None:
        slow = Stepping(0, delay=60)
        async with explore(session, prompts=PROMPTS[:2], models=[slow], tools=Tools(), parallel=1) as exploration:
            exploration.stop()
            await exploration.finish()

    asyncio.run(main())
    lanes = went_on(session, steps=0, again=[2])
    assert [(lane.state, lane.text) for lane in lanes] == [("stopped", ""), ("done", "of lane-2. step 0")]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"again": [1]}, "lane 1 is done"),
        ({"again": [7]}, "no lane '7'"),
        ({"again": [2]}, "the limit of 30 tokens for all lanes is reached"),
        ({"bounds": Bounds(tokens=20)}, "the limit of 20 tokens for all lanes is reached"),
        ({"bounds": Bounds(cost=5)}, "prices"),
    ],
)
def test_lanes_that_cannot_continue_are_refused_and_nothing_is_written(
    session: Session, tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    tools = Tools([Note(tmp_path / "notes")])
    models = [Stepping(0), Stepping(9, facts=Facts(200_000, 100, source="test"))]
    explored(session, *PROMPTS[:2], models=models, tools=tools, bounds=Bounds(tokens=30))
    session.close()
    before = Path(session.location).read_bytes()
    with pytest.raises(sessiontree.SessionTreeError, match=message):
        went_on(session, tools=tools, **more)
    assert Path(session.location).read_bytes() == before


def test_one_of_two_processes_that_reopen_a_lane_continues_it(session: Session, tmp_path: Path) -> None:
    tools = limited(session, tmp_path, Bounds(tokens=30), "of lane-1.")
    session.close()
    first, second = (sessiontree.open(session.location) for _ in range(2))

    async def main() -> Lane:
        how: dict[str, Any] = {"tools": tools, "bounds": Bounds(tokens=10_000)}
        async with resume(first, find_model=lambda _: Stepping(6, delay=0.02), **how) as exploration:
            with pytest.raises(UsageError, match="another process is working on it"):
                await resume(second, find_model=lambda _: Stepping(6), **how).__aenter__()
            await exploration.finish()
        return exploration.lanes[0]

    assert asyncio.run(main()).state == "done"
    assert len((tmp_path / "notes").read_text().splitlines()) == 6


def test_a_lane_with_a_verdict_before_its_end_continues_on_request(session: Session) -> None:
    async def main() -> None:
        slow = Stepping(0, delay=60)
        async with explore(session, prompts=PROMPTS[:2], models=[slow], tools=Tools()):
            pass  # left at once

    asyncio.run(main())
    drop(session, find_exploration(session), [2], None)
    lanes = went_on(session, steps=0)
    assert [lane.state for lane in lanes] == ["done", "lost"]
    lanes = went_on(session, steps=0, again=[2])
    assert [(lane.state, lane.text) for lane in lanes] == [("done", f"of lane-{n}. step 0") for n in (1, 2)]
