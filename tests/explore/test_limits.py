"""Limits: no exploration exceeds one by more than the request in flight, whatever sends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.limits import Limits, RunUsage
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.compaction import Request as SummaryRequest
from sessiontree.compaction import Summary
from sessiontree.core.messages import ToolCall, ToolResult, Usage, message_text
from sessiontree.errors import CompactionError, UsageError
from sessiontree.explore import Bounds, Exploration, Rule, explore, resume
from sessiontree.explore.compare import compare
from sessiontree.explore.events import LaneRefused
from sessiontree.explore.fork_rules import ForkRules
from sessiontree.explore.lane_table import draw_results
from sessiontree.explore.leases import new_lease
from sessiontree.explore.records import Check, Lease, UsageRecord, iter_records, write
from sessiontree.explore.state import find_exploration
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import Event, Facts, Prices, Request, ScriptedModel, ScriptTurn, TextDelta
from sessiontree.models.scripted import ScriptError
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Compaction, Prune, Settings
from tests.agent.builders import Workplace, is_alive, pid_in
from tests.agent.gates import Counting
from tests.agent.runs import call, end_of, run_events, turn
from tests.explore.lanes import AT_ONCE, FACTS, Note, Stepping, check_is_sound, explored, new_session, own_messages

USED = Usage(100, 10, total_tokens=110)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path)


def spent_by_file(session: Session) -> float:
    """The usage that a process reads from the file."""
    session.close()
    return sum(lane.spent.tokens for lane in find_exploration(sessiontree.open(session.location)).lanes)


def judged(session: Session, *turns: ScriptTurn, **more: Any) -> Exploration:
    exploration, _ = explored(
        session,
        "mend it",
        models=[ScriptedModel(turns)],
        hooks=[ForkRules([Rule("judge")])],
        rules=[Rule("judge")],
        **more,
    )
    assert isinstance(exploration, Exploration)
    return exploration


# Time


def test_a_check_stopped_by_the_time_limit_has_neither_passed_nor_failed(session: Session) -> None:
    began = time.monotonic()
    check = "echo begun; sleep 60 & echo $! > child; wait"
    exploration, _ = explored(session, "of lane-1.", check=check, bounds=Bounds(seconds=0.5))
    assert time.monotonic() - began < AT_ONCE
    assert not is_alive(pid_in(Path(session.cwd) / "child"))
    (lane,) = exploration.lanes
    assert lane.state == "done"
    assert lane.check is not None
    assert (lane.check.passed, lane.check.output.strip()) == (None, "begun")
    state = find_exploration(sessiontree.open(session.location)).lanes[0]
    assert state.check == lane.check
    assert "time limit was reached" in state.check.why
    shown = "\n".join(draw_results(compare(exploration, None), 200))
    assert "unknown" in shown
    assert "passed" not in shown
    assert "failed" not in shown


def test_no_check_starts_after_the_time_limit(session: Session, tmp_path: Path) -> None:
    tools = Tools([Note(tmp_path / "notes", delay=5)])
    rule = Rule("check", command="touch by-rule")
    exploration, _ = explored(
        session, "of lane-1.", "of lane-2.", models=[Stepping(9)], tools=tools, check="touch by-plan", parallel=1,
        bounds=Bounds(seconds=0.3), rules=[rule], hooks=[ForkRules([rule])],
    )  # fmt: skip
    assert [lane.state for lane in exploration.lanes] == ["limit", "limit"]
    assert not list(Path(session.cwd).glob("by-*"))
    checks = [record for _, record in iter_records(session) if isinstance(record, Check)]
    assert {(check.passed, check.exit_code) for check in checks} == {(None, None)}
    assert len(checks) == 4


def test_a_rule_s_check_stopped_by_the_time_limit_forks_nothing(session: Session) -> None:
    began = time.monotonic()
    rule = Rule("check", command="sleep 60")
    exploration, _ = explored(
        session, "of lane-1.", rules=[rule], hooks=[ForkRules([rule])], bounds=Bounds(seconds=0.3)
    )
    assert time.monotonic() - began < AT_ONCE
    assert len(exploration.lanes) == 1
    assert exploration.lanes[0].check.passed is None


def test_the_time_limit_ends_a_judge_and_its_sent_tokens_count(session: Session) -> None:
    began = time.monotonic()
    opinion = turn('{"confidence": 0}', when="The agent's last message", first_delay=60)
    exploration = judged(session, opinion, turn("done", usage=USED), bounds=Bounds(seconds=0.4))
    assert time.monotonic() - began < AT_ONCE
    assert len(exploration.lanes) == 1
    assert exploration.spent.tokens > 1_110, "an opinion of 1,000 tokens may have been on its way"
    assert spent_by_file(session) == exploration.spent.tokens


def test_a_tool_call_stopped_by_the_time_limit_has_a_result_that_reports_it(session: Session) -> None:
    began = time.monotonic()
    model = Stepping(3, calls=lambda prompt, step: [ToolCall(f"{prompt}-{step}", "bash", {"command": "sleep 60"})])
    exploration, _ = explored(
        session, "of lane-1.", models=[model], tools=load_tools(), worktrees=False, bounds=Bounds(seconds=0.4)
    )
    assert time.monotonic() - began < AT_ONCE
    assert exploration.lanes[0].state == "limit"
    check_is_sound(session)
    last = own_messages(session, exploration.lanes[0])[-1]
    assert isinstance(last, ToolResult)
    assert "interrupted" in message_text(last)
    assert "the limit of" in message_text(last)


# Tokens and cost, whoever asks


@pytest.mark.parametrize("dialect", ["native", "pi"])
def test_usage_of_a_judge_is_recorded_and_counts_from_then_on(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    opinion = turn('{"confidence": 1}', when="The agent's last message", usage=USED)
    exploration = judged(session, opinion, turn("done", usage=USED))
    assert (exploration.lanes[0].spent.turns, exploration.spent.tokens) == (2, 220)
    assert spent_by_file(session) == 220


def test_a_judge_without_known_prices_is_not_asked_under_a_cost_limit(session: Session) -> None:
    rule = Rule("judge", model="some:judge")
    judge = ScriptedModel([turn('{"confidence": 0}')])
    model = Stepping(0, facts=Facts(200_000, 100, Prices(1, 1), source="test"))
    exploration, events = explored(
        session, "of lane-1.", models=[model], rules=[rule], hooks=[ForkRules([rule], find_model=lambda _: judge)],
        bounds=Bounds(cost=1),
    )  # fmt: skip
    assert not judge.requests
    assert len(exploration.lanes) == 1
    assert ["prices" in one.event.why for one in events if isinstance(one.event, LaneRefused)] == [True]


@pytest.mark.parametrize("dialect", ["native", "pi"])
def test_usage_of_a_sub_agent_in_its_own_session_counts_when_the_lane_is_left(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    asks = call("task", description="d", prompt="look there", mode="session")
    turns = [
        turn("Looking.", call("note"), when="look there", usage=USED),
        turn("Never said.", when="noted", first_delay=60),
        turn("I ask.", asks, usage=USED),
    ]

    async def main() -> float:
        tools = Tools([Note(tmp_path / "notes"), TaskTool(home=str(tmp_path / "home"))])
        async with explore(session, prompts=["go"], models=[ScriptedModel(turns)], tools=tools) as exploration:
            async for _ in exploration:
                if exploration.spent.tokens >= 220:
                    break
        return exploration.spent.tokens

    assert asyncio.run(main()) == 220
    assert spent_by_file(session) == 220


def test_a_dropped_request_counts_the_sent_tokens(session: Session) -> None:
    slow = Stepping(0, delay=60)

    async def main() -> Exploration:
        prompts = ["of lane-1. " + "words " * 3_000, "of lane-2."]
        async with explore(
            session, prompts=prompts, models=[slow], tools=Tools(), bounds=Bounds(tokens=1_000_000)
        ) as exploration:
            while slow.under_way < 2:
                await asyncio.sleep(0.01)
            exploration.stop(1)
            async for one in exploration:
                if type(one.event).__name__ == "LaneEnded":
                    break
            assert 3_000 <= exploration.spent.tokens < 6_000
        return exploration

    exploration = asyncio.run(main())
    assert [lane.state for lane in exploration.lanes] == ["stopped", "lost"]
    assert spent_by_file(session) == exploration.spent.tokens > exploration.lanes[0].spent.tokens


def test_a_broken_attempt_counts_and_a_refused_one_does_not(session: Session) -> None:
    prompt = "words " * 3_000
    broken = ScriptTurn("half of an answ", error=ScriptError("rate_limit", in_stream=True, retry_after=0.01))
    refused = ScriptTurn(error=ScriptError("rate_limit", retry_after=0.01))
    model = ScriptedModel([broken, refused, ScriptTurn("whole", usage=USED)])
    exploration, _ = explored(session, prompt, models=[model], bounds=Bounds(tokens=1_000_000))
    assert exploration.lanes[0].state == "done"
    assert 3_000 <= exploration.spent.tokens - USED.total_tokens < 6_000
    assert spent_by_file(session) == exploration.spent.tokens


def test_a_limit_holds_with_a_provider_that_never_reports_usage(session: Session, tmp_path: Path) -> None:
    model = Stepping(500, usage=lambda prompt, step: None)  # type: ignore[arg-type,return-value]
    tools = Tools([Note(tmp_path / "notes")])
    exploration, _ = explored(session, "of lane-1.", models=[model], tools=tools, bounds=Bounds(tokens=3_000))
    assert exploration.lanes[0].state == "limit"
    assert 3_000 <= exploration.spent.tokens < 4_000


class Shortening:
    name = "shortening"

    def __init__(self, error: str | None = None) -> None:
        self.asked, self._error = 0, error

    def __call__(self, request: SummaryRequest, /) -> Summary:
        self.asked += 1
        if self._error is not None:
            raise CompactionError(self._error)
        return Summary("in short", Usage(700, 7, total_tokens=707))


@pytest.mark.parametrize(("most", "reason", "summaries", "requests"), [
    (99, "done", 1, 2), (2, "limit", 1, 1), (1, "limit", 0, 1),
])  # fmt: skip
def test_after_an_overflow_the_summary_and_the_second_attempt_each_pass_the_gate(
    tmp_path: Path, most: int, reason: str, summaries: int, requests: int
) -> None:
    place, gate, short = Workplace(tmp_path), Counting(most), Shortening()
    place.session.append("user", "First: " + "words " * 5_000)
    place.session.append("assistant", [{"type": "text", "text": "Yes. " + "words " * 600}], stopReason="stop")
    model = ScriptedModel([turn("", error=ScriptError("overflow")), turn("Answer.", usage=Usage(1, 1))])
    room = Compaction(keep_recent_tokens=50, prune=Prune(enabled=False))
    how = {"settings": Settings(compaction=room), "summarizer": short, "limits": Limits(gate=gate)}
    assert end_of(run_events(place, "Go.", model=model, **how)).reason == reason
    assert (short.asked, len(model.requests)) == (summaries, requests)
    assert len(gate.left) == min(most, 3)
    assert [spent.tokens for spent in gate.left] == [0, 707, 709][:most]


def test_a_failed_summary_counts_the_sent_tokens(tmp_path: Path) -> None:
    place, gate = Workplace(tmp_path), Counting()
    place.session.append("user", "First: " + "words " * 5_000)
    place.session.append("assistant", [{"type": "text", "text": "Yes. " + "words " * 600}], stopReason="stop")
    room = Compaction(reserve_tokens=2_000, keep_recent_tokens=50, prune=Prune(enabled=False))
    model = ScriptedModel([turn("Answer.", usage=Usage(1, 1))], Facts(window=6_000, output=500, source="test"))
    how = {"settings": Settings(compaction=room), "summarizer": Shortening("cut off"), "limits": Limits(gate=gate)}
    run_events(place, "Go.", model=model, **how)
    assert len(gate.left) == 2
    assert 4_000 < gate.left[0].tokens == gate.left[1].tokens - 2


def test_an_answer_is_limited_to_its_reservation(tmp_path: Path) -> None:
    place, gate = Workplace(tmp_path), Counting()
    facts = Facts(window=10_000, output=64_000, source="test")
    limited, free = ScriptedModel([turn("Yes.")], facts), ScriptedModel([turn("Yes.")], facts)
    extractive = Settings(compaction=Compaction(summarizer="extractive"))
    run_events(place, "words " * 3_000, model=limited, tools=(), limits=Limits(gate=gate), settings=extractive)
    run_events(place, "Go.", model=free, tools=(), settings=extractive)
    assert limited.requests[0].max_tokens == gate.entered[0].output
    assert 1_024 <= gate.entered[0].output <= 10_000 - gate.entered[0].input
    assert free.requests[0].max_tokens is None


# One process keeps the limits of all lanes


@pytest.mark.parametrize("bounds", [Bounds(tokens=10_000), Bounds(seconds=60)])
def test_under_limits_only_one_process_works_on_the_exploration(session: Session, bounds: Bounds) -> None:
    async def main() -> str:
        slow = Stepping(0, delay=60)
        async with explore(
            session, prompts=["of lane-1.", "of lane-2."], models=[slow], tools=Tools(), bounds=bounds, parallel=2
        ) as exploration:
            while slow.under_way < 2:
                await asyncio.sleep(0.01)
            free = exploration.lanes[1]
            assert free.lease is not None
            other = sessiontree.open(session.location)
            write(Branch(other, free.leaf), Lease(free.lease.token, "elsewhere", 1, "", 0))  # it is let go
            with pytest.raises(UsageError) as refused:
                await resume(other, find_model=lambda _: slow, tools=Tools()).__aenter__()
            exploration.stop()
            await exploration.finish()
        return str(refused.value)

    assert "another process is working on it" in asyncio.run(main())


def test_a_process_sends_no_requests_after_another_took_over_the_limits(session: Session, tmp_path: Path) -> None:
    model = Stepping(500, delay=0.01)

    async def main() -> Exploration:
        tools = Tools([Note(tmp_path / "notes")])
        async with explore(
            session, prompts=["of lane-1."], models=[model], tools=tools, bounds=Bounds(tokens=10**9)
        ) as exploration:
            async for one in exploration:
                if type(one.event).__name__ == "ToolEnd":
                    break
            other = sessiontree.open(session.location)
            exploration.log.refresh()
            leaf = exploration.log.tracked[exploration.plan_id].leaf
            write(Branch(other, leaf), new_lease())  # another one believes that we are dead
            await asyncio.wait_for(exploration.finish(), 10)
        return exploration

    (lane,) = asyncio.run(main()).lanes
    assert (lane.state, lane.why) == ("lost", "another process is working on it")
    assert find_exploration(sessiontree.open(session.location)).lanes[0].state == "lost"


def test_invalid_usage_records_cannot_raise_the_budget(session: Session) -> None:
    explored(session, "of lane-1.")
    (lane,) = find_exploration(session).lanes
    before = lane.spent.tokens
    write(lane.branch, UsageRecord("judge", RunUsage(input=-1_000_000, cost=-50.0)))
    (lane,) = find_exploration(session).lanes
    assert (lane.spent.tokens, lane.spent.cost) == (before, 0.0)


class Stubborn:
    """A model that ignores cancellation."""

    name, facts = "test:stubborn", FACTS

    async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        yield TextDelta(0, "hm")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)
            raise

    async def close(self) -> None:
        """Nothing to close."""


def test_a_model_that_ignores_cancellation_is_abandoned(session: Session) -> None:
    began = time.monotonic()
    exploration, _ = explored(session, "x", "y", models=[Stubborn()], bounds=Bounds(seconds=0.5))
    assert time.monotonic() - began < 10
    assert [lane.state for lane in exploration.lanes] == ["limit", "limit"]
    assert [message_text(own_messages(session, lane)[-1]) for lane in exploration.lanes] == ["hm", "hm"]
