"""An interrupt at any time leaves a valid session that records what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.events import AgentEnd, Event, Persisted, TextDelta, ToolStart, ToolUpdate, TurnStart
from sessiontree.agent.loop import Run
from sessiontree.core.messages import Assistant, message_text
from sessiontree.models import ScriptTurn
from tests.agent.builders import Workplace, is_alive, pid_in, wait_for
from tests.agent.runs import call, check_is_sound, collect_events, end_of, results, run_events, start_run, turn

COMMAND = "echo $$ > pid; echo begun; sleep 0.25; echo over"


def script() -> list[ScriptTurn]:
    calls = (call("bash", command=COMMAND), call("write", path="new.txt", content="new"), call("ls", path="."))
    return [turn("I look into it.", *calls, thinking="Let me see.", piece=8), turn("That is all.", piece=8)]


def prepared(place: Workplace) -> Run:
    (place.project / "pid").unlink(missing_ok=True)
    return start_run(place, "Go.", *script())


async def by_interrupt(one: Run, cut: int) -> None:
    seen: list[Event] = []
    async for event in one:
        seen.append(event)
        if len(seen) == cut:
            one.interrupt()
    assert isinstance(event, AgentEnd)
    written = [event.entry.id for event in seen if isinstance(event, Persisted)]
    kept = one.session.path_ids()
    assert [id for id in kept if one.session.type_of(id) != "config"] == written


async def by_leaving(one: Run, cut: int) -> None:
    seen = 0
    async for _ in one:
        seen += 1
        if seen == cut:
            break
    await one.finish()


async def by_ending(one: Run, cut: int) -> None:
    """End the program during the run."""
    seen = 0
    async for _ in one:
        seen += 1
        if seen == cut:
            return


async def by_cancelling(one: Run, cut: int) -> None:
    reached = asyncio.Event()
    seen = 0

    def on_event(_: Event) -> None:
        nonlocal seen
        seen += 1
        if seen == cut:
            reached.set()

    task = asyncio.create_task(collect_events(one, on_event))
    waiting = asyncio.create_task(reached.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)  # outputs may come in fewer pieces
    waiting.cancel()
    task.cancel()
    await asyncio.wait([task])
    assert one.end is not None


def cut_points(tmp_path: Path) -> int:
    place = Workplace(tmp_path)
    place.session.set_config(approval_mode="yolo")
    return len(asyncio.run(collect_events(prepared(place))))


Way = Callable[[Run, int], Awaitable[None]]
WAYS = [by_interrupt, by_leaving, by_ending, by_cancelling]


@pytest.mark.parametrize(("first", "way"), list(enumerate(WAYS, 1)))
def test_an_interrupt_leaves_a_valid_session(tmp_path: Path, first: int, way: Way) -> None:
    check_interrupts(tmp_path, way, first, 5)  # together, the four ways cover most events


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_at_any_event_leaves_a_valid_session(tmp_path: Path, way: Way) -> None:
    check_interrupts(tmp_path, way, 1, 1)


def check_interrupts(tmp_path: Path, way: Way, first: int, step: int) -> None:
    (tmp_path / "whole").mkdir()
    points = cut_points(tmp_path / "whole")
    assert points > 20
    reasons = set()
    for cut in range(first, points + 1, step):
        folder = tmp_path / str(cut)
        folder.mkdir()
        place = Workplace(folder)
        place.session.set_config(approval_mode="yolo")
        one = prepared(place)

        async def scene(one: Run = one, cut: int = cut) -> None:
            await way(one, cut)

        asyncio.run(scene())
        assert one.end is not None
        reasons.add(one.end.reason)
        check_is_sound(place.session)
        pid = place.project / "pid"
        if pid.exists() and pid.read_text().strip():
            assert not is_alive(pid_in(pid))
        after = run_events(place, "Go on.", turn("Gladly."))
        assert end_of(after).text == "Gladly."
        check_is_sound(place.session)
    assert "interrupted" in reasons


def test_a_partial_answer_is_written_as_aborted(place: Workplace) -> None:
    one = start_run(place, "Tell me.", turn("A long story about a fox.", piece=7))

    def on_event(event: Event) -> None:
        if isinstance(event, TextDelta) and event.text.startswith("story"):
            one.interrupt()

    events = asyncio.run(collect_events(one, on_event))
    last = place.session.context().messages[-1]
    assert isinstance(last, Assistant)
    assert message_text(last).startswith("A long story ")
    assert last.stop_reason == "aborted"
    assert end_of(events).reason == "interrupted"
    check_is_sound(place.session)


def test_an_interrupt_before_any_output_leaves_only_the_prompt(place: Workplace) -> None:
    one = start_run(place, "Tell me.", turn("Never.", first_delay=30.0))

    async def scene() -> None:
        await collect_events(one, lambda event: one.interrupt() if isinstance(event, TurnStart) else None)

    asyncio.run(scene())
    assert [message.role for message in check_is_sound(place.session)] == ["user"]


def test_a_running_command_is_ended_and_its_result_has_its_output(place: Workplace) -> None:
    place.session.set_config(approval_mode="yolo")
    command = "sleep 60 & echo $! > pid; echo half way; wait"
    one = start_run(place, "Go.", turn(None, call("bash", command=command), call("ls", path=".")))

    def on_event(event: Event) -> None:
        if isinstance(event, ToolUpdate):
            one.interrupt()

    asyncio.run(collect_events(one, on_event))
    found = {result.tool_name: result for result in results(check_is_sound(place.session)).values()}
    assert found["bash"].is_error
    assert "interrupted: the user interrupted it" in message_text(found["bash"])
    assert "half way" in message_text(found["bash"])
    assert "may have done part" in message_text(found["bash"])
    pid = pid_in(place.project / "pid")
    wait_for(lambda: not is_alive(pid))


def test_a_call_that_awaits_approval_is_recorded_as_not_run(place: Workplace) -> None:
    asked = asyncio.Event()

    class Thinking:
        async def ask(self, question: Question) -> Reply:
            asked.set()
            await asyncio.sleep(60)
            return Reply("once")

    one = start_run(place, "Go.", turn(None, call("write", path="a", content="a")), approver=Thinking())

    async def scene() -> None:
        task = asyncio.create_task(collect_events(one))
        await asked.wait()
        one.interrupt()
        await task

    asyncio.run(scene())
    (result,) = results(check_is_sound(place.session)).values()
    assert "was not run" in message_text(result)
    assert not (place.project / "a").exists()


def test_a_run_interrupted_before_it_starts_writes_nothing(place: Workplace) -> None:
    async def scene() -> None:
        early = start_run(place, "Go.", turn("Never."))
        early.interrupt()
        events = await collect_events(early)
        assert end_of(events).reason == "interrupted"
        same_moment = start_run(place, "Go.", turn("Never."))
        task = asyncio.create_task(same_moment.finish())
        await asyncio.sleep(0)
        same_moment.interrupt()
        assert (await task).reason == "interrupted"

    asyncio.run(scene())
    assert len(place.session) == 0


def test_a_second_interrupt_has_no_effect(place: Workplace) -> None:
    place.session.set_config(approval_mode="yolo")
    one = start_run(place, "Go.", turn(None, call("bash", command="trap '' TERM; echo on; sleep 60")))

    def on_event(event: Event) -> None:
        if isinstance(event, ToolUpdate | ToolStart):
            one.interrupt()
            one.interrupt("again")

    events = asyncio.run(collect_events(one, on_event))
    assert end_of(events).why == "the user interrupted it"
    check_is_sound(place.session)


def test_a_summary_that_arrives_after_an_interrupt_is_not_written(place: Workplace) -> None:
    import threading

    from sessiontree.compaction import Request, Summary
    from sessiontree.models import Facts, ScriptedModel
    from sessiontree.settings import Compaction, Prune, Settings

    place.session.append("user", "First: " + "words " * 6_000)
    place.session.append("assistant", [{"type": "text", "text": "Yes. " + "words " * 600}], stopReason="stop")
    asked, may_go = threading.Event(), threading.Event()

    class Slow:
        name = "slow"

        def __call__(self, request: Request, /) -> Summary:
            asked.set()
            may_go.wait(20)
            return Summary("too late")

    settings = Settings(compaction=Compaction(reserve_tokens=2_000, keep_recent_tokens=50, prune=Prune(enabled=False)))
    model = ScriptedModel([turn("Never.")], Facts(window=6_000, output=500, source="test"))
    one = start_run(place, "Go.", model=model, settings=settings, summarizer=Slow())

    async def scene() -> None:
        task = asyncio.create_task(collect_events(one))
        await asyncio.to_thread(asked.wait, 20)
        one.interrupt()
        await task
        may_go.set()
        await asyncio.sleep(0.2)

    asyncio.run(scene())
    assert one.end is not None
    assert one.end.reason == "interrupted"
    assert place.session.count("compaction") == 0
    check_is_sound(place.session)
