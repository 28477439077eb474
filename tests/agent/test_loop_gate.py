"""The request gate: each request enters before it is made, and leaves however it ends."""

from __future__ import annotations

import asyncio

from sessiontree.agent.events import TextDelta
from sessiontree.agent.limits import GateRequest, Limits, Ticket
from sessiontree.compaction import Request as SummaryRequest
from sessiontree.compaction import Summary
from sessiontree.core.messages import Usage
from sessiontree.models import Facts, ScriptedModel
from sessiontree.models.facts import Prices
from sessiontree.models.scripted import ScriptError
from sessiontree.settings import Compaction as CompactionSettings
from sessiontree.settings import Prune, Settings
from tests.agent.builders import Workplace
from tests.agent.gates import Counting
from tests.agent.runs import call, check_is_sound, collect_events, end_of, run_events, start_run, turn


class Shortening:
    """A summarizer that reports usage."""

    name = "shortening"

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: SummaryRequest, /) -> Summary:
        self.asked += 1
        return Summary("in short", Usage(700, 7, total_tokens=707))


def test_each_request_enters_and_leaves_with_the_usage_so_far(place: Workplace) -> None:
    gate = Counting()
    used = Usage(2_000, 5, total_tokens=2_005)
    turns = [turn("Look.", call("ls"), usage=used), turn("Seen.", usage=used)]
    assert end_of(run_events(place, "Go.", *turns, limits=Limits(gate=gate))).reason == "done"
    assert [spent.tokens for spent in gate.left] == [2_005, 4_010]
    assert gate.entered[0].tokens < gate.entered[1].tokens


def test_the_estimate_includes_the_longest_answer_and_its_price(place: Workplace) -> None:
    gate = Counting()
    facts = Facts(200_000, 4_000, Prices(1_000_000, 2_000_000), source="test")
    model = ScriptedModel([turn("Yes.")], facts)
    run_events(place, "words " * 1_000, model=model, tools=(), system="Be short. " * 100, limits=Limits(gate=gate))
    (expected,) = gate.entered
    assert expected.output == 4_000
    assert 1_000 < expected.input < 3_000
    assert expected.cost == expected.input + 8_000


def test_a_refused_request_is_not_made_and_ends_the_run(place: Workplace) -> None:
    gate = Counting(1)
    model = ScriptedModel([turn("Look.", call("ls")), turn("Never.")])
    end = end_of(run_events(place, "Go.", model=model, limits=Limits(gate=gate)))
    assert (end.reason, end.why) == ("limit", "no more requests are admitted")
    assert len(model.requests) == len(gate.left) == 1
    check_is_sound(place.session)


def test_a_failed_or_interrupted_request_leaves_too(place: Workplace) -> None:
    gate = Counting()
    broken = turn("No.", error=ScriptError("refused"))
    assert end_of(run_events(place, "Go.", broken, limits=Limits(gate=gate))).reason == "error"
    assert len(gate.left) == 1

    async def scene() -> str:
        run = start_run(place, "Go.", turn("one two three", piece=3, delay=0.05), limits=Limits(gate=gate))
        await collect_events(run, lambda event: run.interrupt() if isinstance(event, TextDelta) else None)
        assert run.end is not None
        return run.end.reason

    assert asyncio.run(scene()) == "interrupted"
    assert len(gate.left) == len(gate.entered) == 2


def test_a_request_interrupted_while_waiting_has_not_entered(place: Workplace) -> None:
    class Closed(Counting):
        async def enter(self, asked: GateRequest) -> Ticket | str:
            await asyncio.sleep(60)
            raise AssertionError

    gate = Closed()

    async def scene() -> str:
        run = start_run(place, "Go.", turn("Never."), limits=Limits(gate=gate))
        asyncio.get_running_loop().call_later(0.1, run.interrupt)
        return (await run.finish()).reason

    assert asyncio.run(scene()) == "interrupted"
    assert gate.left == []
    check_is_sound(place.session)


def run_with_compaction(place: Workplace, gate: Counting) -> tuple[str, int]:
    """Run with a compaction; returns how the run ended, and the number of summaries."""
    place.session.append("user", "First: " + "words " * 5_000)
    place.session.append("assistant", [{"type": "text", "text": "Yes. " + "words " * 600}], stopReason="stop")
    compaction = CompactionSettings(reserve_tokens=2_000, keep_recent_tokens=50, prune=Prune(enabled=False))
    model = ScriptedModel([turn("Answer.", usage=Usage(1, 1))], Facts(window=6_000, output=500, source="test"))
    short = Shortening()
    limits = Limits(gate=gate)
    events = run_events(
        place, "Go.", model=model, settings=Settings(compaction=compaction), summarizer=short, limits=limits
    )
    return end_of(events).reason, short.asked


def test_a_summary_by_a_model_passes_the_gate_like_any_request(place: Workplace) -> None:
    gate = Counting()
    assert run_with_compaction(place, gate) == ("done", 1)
    assert [spent.tokens for spent in gate.left] == [707, 709]


def test_no_summary_is_requested_when_the_gate_refuses(place: Workplace) -> None:
    gate = Counting(0)
    assert run_with_compaction(place, gate) == ("limit", 0)
    assert gate.left == []
