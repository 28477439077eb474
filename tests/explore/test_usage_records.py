"""Usage that a provider does not report still counts: tokens, cost, time, and broken-off requests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.limits import Limits
from sessiontree.agent.loop import run
from sessiontree.agent.tools.base import Tools
from sessiontree.compaction import Request as SummaryRequest
from sessiontree.compaction import Summary
from sessiontree.core.messages import Assistant, Text, Usage
from sessiontree.errors import BusyModelError, ModelError, UnreachableError
from sessiontree.explore import Bounds, Exploration, explore, resume
from sessiontree.explore.decisions import drop
from sessiontree.explore.records import Lease, UsageRecord, iter_records, write
from sessiontree.explore.state import find_exploration
from sessiontree.models import Event, Facts, Prices, Request, ScriptedModel, Stop, ToolCallStart, UsageReport
from sessiontree.models.base import TextDelta, ToolCallDelta
from sessiontree.session.session import Branch, Session
from sessiontree.settings import Retry as RetrySettings
from sessiontree.settings import Settings
from tests.agent.builders import Workplace
from tests.agent.gates import Counting
from tests.agent.runs import call, turn
from tests.explore.lanes import AT_ONCE, Note, Stepping, explored, new_session, own_messages
from tests.explore.test_retries import CHEAP, long_talk, room

QUICK = Settings(retry=RetrySettings(attempts=5, first_delay=0.001, longest_delay=0.01))
TWO_PRICES = Facts(200_000, 1_000, Prices(10_000, 10_000), source="test")
WORDS = "words " * 1_000


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(),
        Usage(float("nan"), 5),
        Usage(-1_000, 5),
        Usage(float("inf"), 5),
        Usage(1e16, 5),
    ],
    ids=["nothing", "no number", "negative", "endless", "huge"],
)
def test_empty_usage_counts_the_sent_tokens(session: Session, tmp_path: Path, usage: Usage) -> None:
    model = Stepping(500, usage=lambda prompt, step: usage, facts=Facts(200_000, 2_000, source="test"))
    tools = Tools([Note(tmp_path / "notes")])
    exploration, _ = explored(session, WORDS, models=[model], tools=tools, bounds=Bounds(tokens=10_000))
    assert exploration.lanes[0].state == "limit"
    assert 10_000 <= exploration.spent.tokens < 30_000
    session.close()
    state = find_exploration(sessiontree.open(session.location)).lanes[0]
    assert state.spent.tokens == exploration.spent.tokens


@pytest.mark.parametrize("usage", [Usage(10, 10), Usage(5, 5, cache_read=10), Usage(5, 5, cache_write=10)])
def test_an_answer_without_a_cost_is_priced_and_unpriced_cache_tokens_count_as_input(
    session: Session, tmp_path: Path, usage: Usage
) -> None:
    model = Stepping(500, usage=lambda prompt, step: usage, facts=TWO_PRICES)
    tools = Tools([Note(tmp_path / "notes")])
    exploration, _ = explored(session, "of lane-1.", models=[model], tools=tools, bounds=Bounds(cost=1.0))
    assert exploration.lanes[0].state == "limit"
    assert exploration.spent.cost == pytest.approx(1.0)
    assert exploration.lanes[0].spent.turns == 5
    session.close()
    assert find_exploration(sessiontree.open(session.location)).lanes[0].spent.cost == pytest.approx(1.0)


class BreakingOff:
    """A model that always breaks off in one way."""

    name = "test:breaking-off"
    facts = Facts(200_000, 100, source="test")

    def __init__(self, events: list[Event], error: Callable[[], ModelError]) -> None:
        self._events, self._error = events, error
        self.asked = 0

    async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        self.asked += 1
        for event in self._events:
            yield event
        raise self._error()

    async def close(self) -> None:
        """Nothing to close."""


def busy() -> BusyModelError:
    return BusyModelError("broke off", None, 0.001)


def broken() -> UnreachableError:
    return UnreachableError("broke off", None, 0.001)


def unconnected() -> UnreachableError:
    error = UnreachableError("nobody is there")
    error.was_sent = False
    return error


@pytest.mark.parametrize(
    ("events", "error", "asked"),
    [
        ([ToolCallStart(0, "1", "bash"), ToolCallDelta(0, '{"command": "l')], busy, 2),
        ([UsageReport(Usage(1_200, 1))], busy, 2),
        ([], broken, 2),
        ([], busy, 6),
        ([], unconnected, 6),
    ],
    ids=["in a call", "usage reported", "connection broke", "refused", "never connected"],
)
def test_broken_requests_count_unless_they_were_refused(
    session: Session, events: list[Event], error: Callable[[], ModelError], asked: int
) -> None:
    model = BreakingOff(events, error)
    exploration, _ = explored(session, WORDS, models=[model], bounds=Bounds(tokens=2_000), settings=QUICK)
    assert model.asked == asked
    assert exploration.lanes[0].state == ("limit" if asked == 2 else "failed")
    assert (exploration.spent.tokens >= 2_000) == (asked == 2)


def test_a_summarizer_that_cannot_be_stopped_keeps_its_reservation_until_it_ends(place: Workplace) -> None:
    class Stubborn:
        name = "stubborn"
        may_end = threading.Event()

        def __call__(self, request: SummaryRequest, /) -> Summary:
            assert self.may_end.wait(30)
            return Summary("too late", Usage(90_000, 9))

    long_talk(place)
    gate = Counting()

    async def main() -> tuple[int, float]:
        model = ScriptedModel([turn("Never.")], CHEAP)
        one = run(place.session, "Go.", model=model, settings=room(), summarizer=Stubborn(), limits=Limits(gate=gate))
        asyncio.get_running_loop().call_later(0.3, one.interrupt)
        assert (await one.finish()).reason == "interrupted"
        held = len(gate.left)
        Stubborn.may_end.set()
        while not gate.left:
            await asyncio.sleep(0.01)
        return held, gate.left[0].tokens

    assert asyncio.run(main()) == (0, 90_009)


def test_a_model_that_reports_an_interrupt_as_a_failure_is_not_retried(place: Workplace) -> None:
    class Stubborn:
        name = "test:stubborn"
        facts = Facts(200_000, 100, source="test")
        asked = 0

        async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
            self.asked += 1
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise BusyModelError("something went wrong", None, 20.0) from None
            yield Stop(Assistant(content=(Text("Never."),)))

        async def close(self) -> None:
            """Nothing to close."""

    model = Stubborn()

    async def main() -> float:
        began = time.monotonic()
        one = run(place.session, "Go.", model=model, limits=Limits(seconds=0.2))
        assert (await one.finish()).reason == "limit"
        return time.monotonic() - began

    assert asyncio.run(main()) < AT_ONCE
    assert model.asked == 1


# A process that dies

TIMED = """
import asyncio, sys
import sessiontree
from sessiontree.agent.tools.base import Tools
from sessiontree.errors import NotFoundError
from sessiontree.explore import Bounds, Exploration, explore, resume
from sessiontree.explore.state import find_exploration
from tests.explore.lanes import Stepping

model = Stepping(0, delay=60)

async def main():
    session = sessiontree.open(sys.argv[1])
    try:
        find_exploration(session)
        begun = resume(session, find_model=lambda name: model, tools=Tools())
    except NotFoundError:
        begun = explore(session, prompts=["of lane-1."], models=[model], tools=Tools(), bounds=Bounds(seconds=4))
    async with begun as exploration:
        print("go", flush=True)
        await exploration.finish()

asyncio.run(main())
"""


@pytest.mark.slow
def test_working_time_before_a_kill_counts(session: Session) -> None:
    session.close()
    began = time.monotonic()
    for _ in range(2):
        child = subprocess.Popen([sys.executable, "-c", TIMED, session.location], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "go\n"
        time.sleep(1.5)
        child.kill()
        child.communicate()
    worked = find_exploration(sessiontree.open(session.location)).seconds
    assert 2 < worked < time.monotonic() - began
    assert subprocess.run([sys.executable, "-c", TIMED, session.location], stdout=subprocess.DEVNULL).returncode == 0
    state = find_exploration(sessiontree.open(session.location))
    assert state.lanes[0].state == "limit"
    assert state.seconds < worked + 3.5, "the whole limit of 4 seconds was not granted again"


def left_open(session: Session, *prompts: str, **more: object) -> None:
    """An exploration whose process left before its lanes had ended."""

    async def main() -> None:
        slow = Stepping(0, delay=60)
        async with explore(session, prompts=prompts, models=[slow], tools=Tools(), **more):  # type: ignore[arg-type]
            while slow.under_way < len(prompts):
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_decided_lanes_are_not_continued_and_decisions_take_no_working_time(session: Session) -> None:
    left_open(session, "of lane-1.", "of lane-2.")
    before = find_exploration(session)
    time.sleep(1.2)
    drop(session, before, [2], None)
    state = find_exploration(sessiontree.open(session.location))
    assert state.seconds == pytest.approx(before.seconds, abs=0.5)
    assert [lane.number for lane in state.open_lanes] == [1]
    model = Stepping(0)

    async def main() -> list[str]:
        async with resume(session, find_model=lambda _: model, tools=Tools()) as exploration:
            await exploration.finish()
        return [lane.state for lane in exploration.lanes]

    assert asyncio.run(main()) == ["done", "lost"]


def test_a_process_checks_its_lease_after_a_long_silence_before_a_call(session: Session, tmp_path: Path) -> None:
    model = Stepping(3, delay=0.3)

    async def main() -> None:
        tools = Tools([Note(tmp_path / "notes")])
        async with explore(session, prompts=["of lane-1."], models=[model], tools=tools) as exploration:
            while not model.under_way:
                await asyncio.sleep(0.01)
                exploration._channel.unblock()
            (lane,) = exploration.lanes
            lane.branch.last_write -= 3_600  # type: ignore[attr-defined]  # the machine has slept
            other = sessiontree.open(session.location)
            write(Branch(other, lane.leaf), Lease("theirs", "elsewhere", 1, "", 60))
            await asyncio.wait_for(exploration.finish(), 10)

    asyncio.run(main())
    assert not (tmp_path / "notes").exists()


def test_tools_are_optional(session: Session) -> None:
    writes = turn("I write.", call("write", path="new.txt", content="hello\n"))
    model = ScriptedModel([writes, turn("Done.")])

    async def main() -> str:
        async with sessiontree.agent.explore(session, prompts=["go"], models=[model]) as exploration:
            await exploration.finish()
        return exploration.lanes[0].state

    assert asyncio.run(main()) == "done"
    assert (Path(session.cwd) / "new.txt").read_text() == "hello\n"


def test_a_summary_in_flight_when_a_process_dies_is_recorded(session: Session) -> None:
    session.append("user", "First: " + "words " * 5_000)
    session.append("assistant", [{"type": "text", "text": "Yes. " + "words " * 600}], stopReason="stop")

    class Slow:
        name = "slow"
        began = threading.Event()

        def __call__(self, request: SummaryRequest, /) -> Summary:
            self.began.set()
            time.sleep(0.5)
            return Summary("in short", Usage(100, 7))

    async def main() -> float:
        model = ScriptedModel([turn("Done.", usage=Usage(1, 1))], CHEAP)
        async with explore(
            session, prompts=["go"], models=[model], tools=Tools(), settings=room(), summarizer=Slow(),
            bounds=Bounds(tokens=10**6),
        ) as exploration:  # fmt: skip
            exploration._channel.unblock()
            while not Slow.began.is_set():
                await asyncio.sleep(0.01)
            meanwhile = find_exploration(sessiontree.open(session.location)).lanes[0].spent.tokens
            await exploration.finish()
        return meanwhile

    assert asyncio.run(main()) > 5_000
    session.flush()
    assert find_exploration(sessiontree.open(session.location)).lanes[0].spent.tokens == 2 * 107 + 2
    paid = {id: record for id, record in iter_records(session) if isinstance(record, UsageRecord)}
    expected = {id for id, record in paid.items() if record.is_expected}
    assert len(expected) == 2, "the summary has two parts"
    assert {id for record in paid.values() for id in record.settles} == expected


class Endless:
    """A model that never ends its answer, ignoring the maximum length."""

    name, facts = "test:endless", Facts(200_000, 100, source="test")

    async def stream(self, request: Request, /) -> AsyncGenerator[Any, None]:
        while True:
            await asyncio.sleep(0.001)
            yield TextDelta(0, "word " * 10)

    async def close(self) -> None:
        """Nothing to close."""


def test_an_endless_answer_is_cut_off_under_a_limit(session: Session) -> None:
    exploration, _ = explored(session, "x", "y", models=[Endless()], hooks=[], bounds=Bounds(tokens=3_000))
    assert [lane.state for lane in exploration.lanes] == ["done", "done"]
    assert exploration.spent.tokens < 3_000
    assert [message.stop_reason for message in own_answers(session, exploration)] == ["length", "length"]


def own_answers(session: Session, exploration: Exploration) -> list[Assistant]:
    found = [own_messages(session, lane)[-1] for lane in exploration.lanes]
    return [message for message in found if isinstance(message, Assistant)]
