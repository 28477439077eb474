"""Every attempt of a request passes the gate, at the price of its own model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.agent.events import Compacting, Retry
from sessiontree.agent.limits import Limits
from sessiontree.agent.loop import run
from sessiontree.agent.tools.base import Tools
from sessiontree.compaction import Request as SummaryRequest
from sessiontree.compaction import Summary
from sessiontree.core.messages import Assistant, Text, Usage
from sessiontree.errors import BusyModelError, UnreachableError
from sessiontree.explore import Bounds, Exploration, explore
from sessiontree.explore.leases import new_lease
from sessiontree.explore.records import UsageRecord, iter_records, write
from sessiontree.explore.state import find_exploration
from sessiontree.models import Event, Facts, Prices, Request, ScriptedModel, ScriptTurn, Stop, TextDelta, open_model
from sessiontree.models.model_summarizer import OpenedModelSummarizer
from sessiontree.models.scripted import ScriptError
from sessiontree.session.session import Branch
from sessiontree.settings import Compaction, Prune, Settings
from sessiontree.settings import Retry as RetrySettings
from sessiontree.testing.model_server import ModelServer
from tests.agent.builders import Workplace
from tests.agent.gates import Counting
from tests.agent.runs import end_of, run_events, turn
from tests.builders import examples
from tests.explore.lanes import AT_ONCE, explored, new_session

BROKEN = ScriptTurn(text="half of an answ", error=ScriptError("rate_limit", in_stream=True, retry_after=0.01))
REFUSED = ScriptTurn(error=ScriptError("rate_limit", retry_after=0.01))
DEAR = Facts(200_000, 4_000, Prices(1_000_000, 2_000_000), source="test")
CHEAP = Facts(6_000, 500, Prices(1, 1), source="test")
QUICK = Settings(retry=RetrySettings(attempts=5, first_delay=0.001, longest_delay=0.01))


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def test_each_retry_leaves_the_gate_and_enters_again(place: Workplace) -> None:
    gate = Counting()
    model = ScriptedModel([BROKEN, REFUSED, turn("Whole.", usage=Usage(10, 5))])
    assert end_of(run_events(place, "words " * 1_000, model=model, limits=Limits(gate=gate))).reason == "done"
    assert len(gate.entered) == len(gate.left) == len(model.requests) == 3
    broke, refused, whole = (spent.tokens for spent in gate.left)
    assert 1_000 < broke == refused == whole - 15


def test_no_retry_is_made_if_the_gate_refuses_it(place: Workplace) -> None:
    gate = Counting(1)
    model = ScriptedModel([BROKEN, turn("Never.")])
    events = run_events(place, "Go.", model=model, limits=Limits(gate=gate))
    assert (end_of(events).reason, end_of(events).why) == ("limit", "no more requests are admitted")
    assert len(model.requests) == len(gate.left) == 1
    assert [event.attempt for event in events if isinstance(event, Retry)] == [1]
    assert [message.role for message in place.session.context().messages] == ["user"]  # type: ignore[union-attr]


def test_limits_of_a_run_count_broken_attempts(place: Workplace) -> None:
    model = ScriptedModel([BROKEN] * 4 + [turn("Never.")])
    limits = Limits(tokens=2_000)
    end = end_of(run_events(place, "words " * 1_000, model=model, tools=(), limits=limits, settings=QUICK))
    assert end.reason == "limit"
    assert len(model.requests) == 2
    assert 2_000 <= end.spent.tokens < 3_500


class Breaking:
    """A model whose answers break off several times before they complete, and that records the true usage."""

    name = "test:breaking"

    def __init__(self, breaks: int, size: int, facts: Facts) -> None:
        self.facts, self._breaks, self._size = facts, breaks, size
        self._attempts: dict[str, int] = {}
        self.bill = 0.0
        """What a provider would ask for: each attempt is paid."""
        self.dearest = 0.0

    async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        prompt = str(request.messages[-1])
        attempt = self._attempts[prompt] = self._attempts.get(prompt, 0) + 1
        assert request.max_tokens is not None
        used = Usage(self._size, min(20, request.max_tokens))
        self.bill += used.input + used.output
        self.dearest = max(self.dearest, used.input + used.output)
        yield TextDelta(0, "word " * 16)
        await asyncio.sleep(0.001)
        if attempt <= self._breaks:
            raise (BusyModelError if attempt % 2 else UnreachableError)("broke off", None, 0.001)
        yield Stop(Assistant(content=(Text("word " * 16),), usage=used, stop_reason="stop"))

    async def close(self) -> None:
        """Nothing to close."""


@examples(25)
@given(breaks=st.integers(0, 4), lanes=st.integers(1, 8), share=st.floats(0.2, 3.0))
def test_no_limit_is_exceeded_by_more_than_one_attempt_however_many_break_off(
    tmp_path_factory: pytest.TempPathFactory, breaks: int, lanes: int, share: float
) -> None:
    session = new_session(tmp_path_factory.mktemp("breaking"))
    prompts = [f"of lane-{number}. " + "words " * 1_000 for number in range(1, lanes + 1)]
    size = 1_140  # as it is estimated, or a little less
    limit = share * lanes * (breaks + 1) * size / 2
    model = Breaking(breaks, size, Facts(200_000, 100, source="test"))
    exploration, _ = explored(
        session, *prompts, models=[model], bounds=Bounds(tokens=limit), parallel=lanes, settings=QUICK
    )
    assert {lane.state for lane in exploration.lanes} <= {"done", "limit"}
    assert model.bill < limit + model.dearest
    if exploration.spent.tokens < limit:
        assert {lane.state for lane in exploration.lanes} == {"done"}


# Summaries


def long_talk(place: Workplace) -> None:
    place.session.append("user", "First: " + "words " * 5_000)
    place.session.append("assistant", [{"type": "text", "text": "Yes. " + "words " * 600}], stopReason="stop")


def room() -> Settings:
    small = Compaction(reserve_tokens=2_000, keep_recent_tokens=50, prune=Prune(enabled=False))
    return Settings(compaction=small, retry=QUICK.retry)


def test_a_summary_by_another_model_is_reserved_and_counted_at_its_price(place: Workplace) -> None:
    long_talk(place)
    gate = Counting()
    gate.counts_cost = True
    writer = ScriptedModel([BROKEN, turn("In short.", usage=Usage(700, 7))], DEAR)
    summarizer = OpenedModelSummarizer(lambda: writer, "dear", QUICK.retry)
    model = ScriptedModel([turn("Answer.", usage=Usage(1, 1))], CHEAP)
    how = {"settings": room(), "summarizer": summarizer, "limits": Limits(gate=gate)}
    events = run_events(place, "Go.", model=model, **how)
    assert end_of(events).reason == "done"
    first, second, own = gate.entered
    assert first == second, "each attempt is reserved alike"
    assert first.input > 5_000
    assert first.output == writer.requests[0].max_tokens, "what the summary may have is what is reserved"
    assert first.cost == first.input + 2 * first.output
    assert own.cost < 0.01
    broke, done, answered = gate.left
    assert broke.cost > first.input
    assert done.tokens - broke.tokens == 707
    assert answered.tokens - done.tokens == 2


def test_a_summary_in_two_parts_is_two_requests(place: Workplace) -> None:
    place.session.append("user", "First: " + "words " * 3_000)
    place.session.append("assistant", [{"type": "text", "text": "Yes. " + "words " * 600}], stopReason="stop")
    place.session.append("user", "Second: " + "words " * 3_000)
    place.session.append("assistant", [{"type": "text", "text": "Well. " + "words " * 600}], stopReason="stop")
    gate = Counting()
    writer = ScriptedModel([turn("In short.", usage=Usage(700, 7))] * 2, DEAR)
    summarizer = OpenedModelSummarizer(lambda: writer, "dear", QUICK.retry)
    model = ScriptedModel([turn("Answer.", usage=Usage(1, 1))], CHEAP)
    run_events(place, "Go.", model=model, settings=room(), summarizer=summarizer, limits=Limits(gate=gate))
    assert len(writer.requests) == 2
    assert [spent.tokens for spent in gate.left] == [707, 1_414, 1_416]


def test_the_session_reports_usage_of_a_summary_but_not_of_its_failed_attempts(place: Workplace) -> None:
    long_talk(place)
    writer = ScriptedModel([BROKEN, turn("In short.", usage=Usage(700, 7))], DEAR)
    model = ScriptedModel([turn("Answer.", usage=Usage(1, 1))], CHEAP)

    async def main() -> tuple[float, float]:
        summarizer = OpenedModelSummarizer(lambda: writer, "dear", QUICK.retry)
        one = run(place.session, "Go.", model=model, settings=room(), summarizer=summarizer)
        await one.finish()
        return one.usage.tokens, one.unreported.tokens

    spent, untold = asyncio.run(main())
    assert spent - untold == 709
    assert untold > 5_000, "the attempt that broke off"


def test_a_summarizer_without_an_estimate_runs_alone(place: Workplace) -> None:
    class Own:
        name = "own"

        def __call__(self, request: SummaryRequest, /) -> Summary:
            return Summary("in short", Usage(700, 7))

    long_talk(place)
    gate = Counting()
    model = ScriptedModel([turn("Answer.", usage=Usage(1, 1))], CHEAP)
    run_events(place, "Go.", model=model, settings=room(), summarizer=Own(), limits=Limits(gate=gate))
    assert [(asked.purpose, asked.is_exclusive) for asked in gate.asked] == [("summary", True), ("", False)]
    assert [spent.tokens for spent in gate.left] == [707, 709]


def test_a_summary_without_known_prices_is_not_requested_under_a_cost_limit(place: Workplace) -> None:
    long_talk(place)
    writer = ScriptedModel([turn("In short.")], Facts(200_000, 4_000, source="test"))
    model = ScriptedModel([turn("Answer.", usage=Usage(1, 1))], CHEAP)
    summarizer = OpenedModelSummarizer(lambda: writer, "scripted:dear", QUICK.retry)
    events = run_events(place, "Go.", model=model, settings=room(), summarizer=summarizer, limits=Limits(cost=1.0))
    assert end_of(events).reason == "done"
    assert not writer.requests
    failed = [event.error for event in events if isinstance(event, Compacting) and event.stage == "failed"]
    assert len(failed) == 1
    assert "prices" in str(failed[0])


def test_an_interrupted_summary_request_counts_its_full_reservation(place: Workplace) -> None:
    long_talk(place)
    gate = Counting()
    writer = ScriptedModel([turn("Never.", first_delay=60)], DEAR)
    model = ScriptedModel([turn("Never.")], CHEAP)

    async def main() -> float:
        summarizer = OpenedModelSummarizer(lambda: writer, "slow", QUICK.retry)
        limits = Limits(gate=gate)
        one = run(place.session, "Go.", model=model, settings=room(), summarizer=summarizer, limits=limits)
        asyncio.get_running_loop().call_later(0.3, one.interrupt)
        began = time.monotonic()
        assert (await one.finish()).reason == "interrupted"
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        return time.monotonic() - began

    assert asyncio.run(main()) < AT_ONCE
    assert [spent.tokens for spent in gate.left] == [gate.entered[0].tokens]


# A process that was silent for long


def test_a_process_checks_its_lease_after_a_long_silence_before_the_next_request(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    waits = ScriptTurn(error=ScriptError("rate_limit", retry_after=0.5))
    model = ScriptedModel([waits, turn("Never.")])

    async def main() -> Exploration:
        async with explore(
            session, prompts=["of lane-1."], models=[model], tools=Tools(), bounds=Bounds(tokens=10**9)
        ) as exploration:
            async for one in exploration:
                if isinstance(one.event, Retry):
                    break
            exploration.leases.last_write -= 3_600  # the machine has slept
            other = sessiontree.open(session.location)
            leaf = find_leaf(exploration)
            write(Branch(other, leaf), new_lease())  # another one believes that we are dead
            await asyncio.wait_for(exploration.finish(), 10)
        return exploration

    (lane,) = asyncio.run(main()).lanes
    assert len(model.requests) == 1
    assert (lane.state, lane.why) == ("lost", "another process is working on it")


def find_leaf(exploration: Exploration) -> str:
    exploration.log.refresh()
    return exploration.log.tracked[exploration.plan_id].leaf


def test_usage_that_no_entry_reports_is_recorded_at_once(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    model = ScriptedModel([BROKEN, ScriptTurn(text="Never.", first_delay=60)])

    async def main() -> tuple[float, float]:
        async with explore(
            session, prompts=["words " * 1_000], models=[model], tools=Tools(), bounds=Bounds(tokens=10**6)
        ) as exploration:
            while len(model.requests) < 2:
                await asyncio.sleep(0.01)
                exploration._channel.unblock()
            seen = find_exploration(sessiontree.open(session.location)).lanes[0].spent.tokens
            return seen, exploration.spent.tokens

    seen, spent = asyncio.run(main())
    assert seen == spent > 1_000
    first = next(record for _, record in iter_records(session) if isinstance(record, UsageRecord))
    assert first.spent.tokens == seen


@pytest.mark.slow
def test_a_provider_writes_a_summary_in_the_loop_of_the_run(place: Workplace) -> None:
    long_talk(place)
    gate = Counting()
    with ModelServer([ScriptTurn(text="In short.", usage=Usage(700, 7), repeat=True)]) as server:
        name = "anthropic:claude-opus-5"
        summarizer = OpenedModelSummarizer(
            lambda: open_model(name, environment=server.environment()), name, QUICK.retry
        )
        model = ScriptedModel([turn("Answer.", usage=Usage(1, 1))], CHEAP)
        limits = Limits(gate=gate)
        events = run_events(place, "Go.", model=model, settings=room(), summarizer=summarizer, limits=limits)
        assert len(server.requests) == 1
    assert end_of(events).reason == "done"
    state = [(event.stage, event.error) for event in events if isinstance(event, Compacting)]
    assert state == [("start", ""), ("end", "")]
    assert [spent.tokens for spent in gate.left] == [707, 709]
