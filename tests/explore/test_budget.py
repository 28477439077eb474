"""The shared budget: no exploration exceeds a limit by more than one request."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.tools.base import Tools
from sessiontree.core.messages import Cost, Usage
from sessiontree.explore import Bounds, explorations, explore, resume
from sessiontree.explore.budget import Budget, Reservation
from sessiontree.explore.state import find_exploration
from sessiontree.models import Facts
from sessiontree.models.facts import Prices
from sessiontree.session.session import Session
from tests.builders import examples
from tests.explore.lanes import AT_ONCE, Note, Stepping, check_is_sound, explored, new_session

PROMPTS = [f"of lane-{n}." for n in range(1, 6)]
PRICED = Facts(200_000, 1_000, Prices(1_000, 1_000), source="test")


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path)


@given(st.data())
@examples(60)
def test_the_gate_admits_at_most_one_request_beyond_a_limit(data: st.DataObject) -> None:
    limit = data.draw(st.floats(1, 5_000), label="limit")
    lanes = data.draw(st.integers(1, 12), label="lanes")
    by_cost = data.draw(st.booleans(), label="by cost")
    seed = data.draw(st.integers(0, 2**32), label="seed")
    draw = random.Random(seed)
    largest = 0.0

    async def lane(budget: Budget, number: int) -> None:
        nonlocal largest
        used = RunUsage()
        for _ in range(30):
            most = draw.uniform(0, 800)
            expected = RunUsage(input=most, cost=most)
            ticket = await budget.enter(expected)
            if isinstance(ticket, str):
                return
            await asyncio.sleep(draw.choice([0, 0, 0.0005]))
            actual = draw.uniform(0, most)
            largest = max(largest, actual)
            one = RunUsage(input=actual, cost=actual)
            used = used.combine(one)
            budget.leave(ticket, number, used, one)
            await asyncio.sleep(0)

    async def main() -> RunUsage:
        budget = Budget(Bounds(cost=limit) if by_cost else Bounds(tokens=limit))
        await asyncio.wait_for(asyncio.gather(*(lane(budget, number) for number in range(lanes))), 20)
        return budget.spent

    spent = asyncio.run(main())
    assert spent.tokens < limit + largest
    if spent.tokens < limit:  # then nobody was turned away: all have made all of their requests
        assert largest > 0


@given(st.data())
@examples(25)
def test_no_exploration_exceeds_its_limit_by_more_than_one_request(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["tokens", "cost"]), label="kind")
    limit = data.draw(st.integers(100, 6_000), label="limit")
    lanes = data.draw(st.integers(1, 5), label="lanes")
    parallel = data.draw(st.integers(1, 5), label="parallel")
    draw = random.Random(data.draw(st.integers(0, 2**32), label="seed"))
    used: list[float] = []

    def usage(prompt: str, step: int) -> Usage:
        tokens = draw.randint(1, 1_000)  # none at all would tell nothing, and be estimated
        used.append(tokens)
        return Usage(0, tokens, total_tokens=tokens, cost=Cost(total=tokens / 1_000))

    with tempfile.TemporaryDirectory() as folder:
        session = new_session(Path(folder))
        bounds = Bounds(tokens=limit) if kind == "tokens" else Bounds(cost=limit / 1_000)
        model = Stepping(9, usage=usage, facts=PRICED, delay=draw.choice([0.0, 0.001]))
        tools = Tools([Note(Path(folder) / "notes")])
        exploration, _ = explored(
            session, *PROMPTS[:lanes], models=[model], tools=tools, bounds=bounds, parallel=parallel
        )
        total = sum(used)
        assert total < limit + max(used)
        assert exploration.spent.tokens == total
        assert sum(lane.spent.tokens for lane in explorations(sessiontree.open(session.location))[0].lanes) == total
        states = {lane.state for lane in exploration.lanes}
        assert states <= {"done", "limit"}
        assert ("limit" not in states) == (len(used) == 10 * lanes)
        check_is_sound(session)
        session.close()


def test_lanes_run_in_parallel_while_the_budget_allows_all(session: Session) -> None:
    facts = Facts(200_000, 100, source="test")
    model = Stepping(2, calls=lambda prompt, step: [], facts=facts, meet=5)
    explored(session, *PROMPTS, models=[model], bounds=Bounds(tokens=100_000), parallel=5)
    assert model.most_under_way == 5


async def entered(budget: Budget, tokens: float, *, cost: float = 0.0, is_alone: bool = False) -> Reservation:
    ticket = await asyncio.wait_for(budget.enter(RunUsage(input=tokens, cost=cost), is_alone=is_alone), 1)
    assert isinstance(ticket, Reservation)
    return ticket


async def waiting(budget: Budget, tokens: float, **more: bool) -> asyncio.Task[Reservation | str]:
    """A request that has to wait at the gate."""
    task = asyncio.create_task(budget.enter(RunUsage(input=tokens), **more))
    await asyncio.sleep(0.01)
    assert not task.done()
    return task


def test_a_request_that_exceeds_its_reservation_scales_up_later_ones() -> None:
    async def main() -> None:
        budget = Budget(Bounds(tokens=1_000))
        budget.leave(await entered(budget, 100), 1, RunUsage(input=400), RunUsage(input=400))
        ticket = await entered(budget, 100)  # 400 + 4 * 100
        next_one = await waiting(budget, 100)
        budget.leave(ticket, 1, RunUsage(input=500), RunUsage(input=100))
        assert isinstance(await next_one, Reservation)

    asyncio.run(main())


def test_each_request_of_a_lane_releases_its_own_reservation() -> None:
    async def main() -> None:
        budget = Budget(Bounds(cost=3.0))
        dear = await entered(budget, 100, cost=1.5)
        cheap = await entered(budget, 10_000, cost=0.1)
        budget.leave(cheap, 1, RunUsage(), RunUsage())
        waits = asyncio.create_task(budget.enter(RunUsage(input=1, cost=1.6)))
        await asyncio.sleep(0.01)
        assert not waits.done(), "the dear one is still under way"
        budget.leave(dear, 1, RunUsage(), RunUsage())
        assert isinstance(await waits, Reservation)

    asyncio.run(main())


def test_a_request_without_an_estimate_is_in_flight_alone() -> None:
    async def main() -> None:
        budget = Budget(Bounds(tokens=1_000_000))
        ticket = await entered(budget, 1)
        alone = await waiting(budget, 1, is_alone=True)
        budget.leave(ticket, 1, RunUsage(), RunUsage())
        first = await alone
        assert isinstance(first, Reservation)
        other = await waiting(budget, 1)
        budget.leave(first, 1, RunUsage(), RunUsage())
        assert isinstance(await other, Reservation)

    asyncio.run(main())


def test_a_request_that_is_cancelled_while_waiting_blocks_no_other() -> None:
    async def main() -> None:
        budget = Budget(Bounds(tokens=1_000))
        await entered(budget, 900)
        first = await waiting(budget, 900)
        second = await waiting(budget, 50)
        first.cancel()
        assert isinstance(await asyncio.wait_for(second, 1), Reservation)

    asyncio.run(main())


def test_the_time_limit_ends_running_and_waiting_lanes(session: Session, tmp_path: Path) -> None:
    began = time.monotonic()
    tools = Tools([Note(tmp_path / "notes", delay=0.02)])
    bounds = Bounds(seconds=0.5)
    model = Stepping(1_000, delay=0.02)
    exploration, _ = explored(session, *PROMPTS, models=[model], tools=tools, bounds=bounds, parallel=2)
    took = time.monotonic() - began
    assert took < AT_ONCE, "all turns would take 40 seconds"
    assert [lane.state for lane in exploration.lanes] == ["limit"] * 5
    assert "seconds" in exploration.lanes[0].why
    assert 0.4 < exploration.spent.seconds < took + 0.1
    check_is_sound(session)


def test_the_turns_of_each_lane_are_limited(session: Session, tmp_path: Path) -> None:
    tools = Tools([Note(tmp_path / "notes")])
    exploration, _ = explored(session, *PROMPTS, models=[Stepping(9)], tools=tools, bounds=Bounds(turns=4))
    assert [(lane.state, lane.spent.turns) for lane in exploration.lanes] == [("limit", 4)] * 5


def test_earlier_usage_counts_when_an_exploration_is_resumed(session: Session, tmp_path: Path) -> None:
    bounds = Bounds(tokens=1_000, turns=40)
    tools = Tools([Note(tmp_path / "notes")])
    model = Stepping(100, delay=0.002)

    async def first() -> None:
        async with explore(session, prompts=PROMPTS, models=[model], tools=tools, bounds=bounds) as exploration:
            async for _ in exploration:
                if exploration.spent.tokens >= 500:
                    return

    async def second() -> tuple[float, list[str]]:
        fresh = sessiontree.open(session.location)
        async with resume(fresh, find_model=lambda name: model, tools=tools) as exploration:
            assert exploration.spent.tokens >= 500
            lanes = await exploration.finish()
        return exploration.spent.tokens, [lane.state for lane in lanes]

    asyncio.run(first())
    session.close()
    tokens, states = asyncio.run(second())
    assert 1_000 <= tokens < 1_000 + 10
    assert states == ["limit"] * 5
    state = explorations(sessiontree.open(session.location))[0]
    assert sum(lane.spent.tokens for lane in state.lanes) == tokens


def test_earlier_working_time_counts_and_the_pause_does_not(session: Session, tmp_path: Path) -> None:
    bounds, tools = Bounds(seconds=1.0), Tools([Note(tmp_path / "notes", delay=0.02)])
    model = Stepping(10_000, delay=0.01)

    async def first() -> None:
        async with explore(session, prompts=PROMPTS, models=[model], tools=tools, bounds=bounds) as exploration:
            async for _ in exploration:
                if exploration.spent.seconds >= 0.6:
                    return

    async def second() -> None:
        fresh = sessiontree.open(session.location)
        worked = find_exploration(fresh).seconds
        assert 0.5 < worked <= took
        exploration = resume(fresh, find_model=lambda name: model, tools=tools)
        assert worked <= exploration.spent.seconds < took + 0.5, "the second between the two is not counted"
        async with exploration:
            assert {lane.state for lane in await exploration.finish()} == {"limit"}

    began = time.monotonic()
    asyncio.run(first())
    took = time.monotonic() - began
    session.close()
    time.sleep(1.0)
    asyncio.run(second())
