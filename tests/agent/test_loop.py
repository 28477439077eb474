"""A run: its events, its entries, and their order."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, ClassVar

import msgspec
import pytest

import sessiontree
from sessiontree.agent.approval import Reply
from sessiontree.agent.events import (
    ApprovalAnswered,
    ApprovalAsked,
    Compacting,
    Event,
    Failed,
    Persisted,
    Retry,
    TextDelta,
    ToolEnd,
    ToolUpdate,
    TurnEnd,
    TurnStart,
)
from sessiontree.agent.limits import Limits, RunUsage
from sessiontree.agent.live_context import live_context_of
from sessiontree.agent.loop import run
from sessiontree.agent.tools.base import Plan, ToolContext, ToolOutput, load_tools
from sessiontree.compaction import Request as SummaryRequest
from sessiontree.compaction import Summary
from sessiontree.core.entries import Compaction, MessageEntry
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, Image, Text, ToolResult, Usage, User, message_text
from sessiontree.models import Facts, ScriptedModel, ScriptTurn
from sessiontree.models.scripted import ScriptError
from sessiontree.providers import render
from sessiontree.settings import Compaction as CompactionSettings
from sessiontree.settings import Prune, Settings
from sessiontree.settings import Retry as RetrySettings
from tests.agent.builders import Workplace
from tests.agent.runs import (
    call,
    check_is_sound,
    collect_events,
    end_of,
    names,
    results,
    run_events,
    start_run,
    transcript,
    turn,
)

QUICK = Settings(retry=RetrySettings(attempts=2, first_delay=0.01))

EXTRACTIVE = Settings(compaction=CompactionSettings(summarizer="extractive"))


class Meeting:
    """A tool whose calls wait for each other."""

    name = "meet"
    description = "waits for the others"
    changes = "nothing"
    schema: ClassVar[JsonObject] = {"type": "object", "properties": {}}

    def __init__(self, parties: int) -> None:
        self._barrier = asyncio.Barrier(parties)

    def plan(self, arguments: JsonObject, context: ToolContext) -> Plan:
        return Plan("meet")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        await asyncio.wait_for(self._barrier.wait(), 10)
        await asyncio.sleep(0.02 * arguments.get("last", 0))
        return ToolOutput(f"met {arguments.get('last', 0)}")


class Broken(Meeting):
    name = "broken"

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        raise ZeroDivisionError("by its author")


def test_a_prompt_without_calls_is_one_turn(place: Workplace) -> None:
    events = run_events(place, "Hello!", turn("Hello to you.", piece=6))
    assert names(events) == [
        "agent_start", "entry", "turn_start", "text_delta", "text_delta", "text_delta", "entry", "usage", "turn_end",
        "agent_end",
    ]  # fmt: skip
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello to you."
    end = end_of(events)
    assert (end.reason, end.text, end.leaf, end.spent.turns) == ("done", "Hello to you.", place.session.leaf, 1)
    assert transcript(place.session) == [("user", "Hello!"), ("assistant", "Hello to you.")]
    check_is_sound(place.session)


def test_an_entry_event_comes_after_the_entry_is_in_the_file(place: Workplace) -> None:
    (place.project / "a.txt").write_text("alpha")

    def check(event: Event) -> None:
        if isinstance(event, Persisted) and not place.session.is_pending:
            assert event.entry.id in sessiontree.open(place.session.location)

    turns = (turn("", call("read", path="a.txt"), call("write", path="b.txt", content="b")), turn("Done."))
    events = asyncio.run(collect_events(start_run(place, "Look.", *turns), check))
    kinds = [type(event.entry).__name__ for event in events if isinstance(event, Persisted)]
    assert sorted(kinds) == ["FileSnapshot", *["MessageEntry"] * 5]
    assert [entry.id for entry in place.session.path()] == [
        event.entry.id for event in events if isinstance(event, Persisted)
    ]
    assert (place.project / "b.txt").read_text() == "b"
    check_is_sound(place.session)


def test_calls_run_in_parallel_and_results_are_written_as_they_arrive(place: Workplace) -> None:
    async def scene() -> list[Event]:
        calls = [call("meet", last=2), call("meet", last=0), call("meet", last=1)]
        return await collect_events(start_run(place, "Meet.", turn(None, *calls), turn("All met."), tools=[Meeting(3)]))

    events = asyncio.run(scene())
    kept = [entry.message for entry in place.session.path() if isinstance(entry, MessageEntry)]
    assert [message_text(message) for message in kept if isinstance(message, ToolResult)] == ["met 0", "met 1", "met 2"]
    assert [event.output.text for event in events if isinstance(event, ToolEnd)] == ["met 0", "met 1", "met 2"]
    messages = check_is_sound(place.session)
    for provider in ("anthropic", "openai"):
        sent = render(messages, provider)
        assert "met 2" in str(sent)


def test_many_parallel_commands_do_not_delay_writing_results(place: Workplace) -> None:
    place.session.set_config(approval_mode="yolo")
    waits = [call("bash", command=f"until test -e go; do sleep 0.02; done; echo {n}", timeout=30) for n in range(5)]
    ended: list[ToolEnd] = []

    def note(event: Event) -> None:
        if isinstance(event, ToolEnd):
            ended.append(event)
            (place.project / "go").touch()  # only now may the commands end

    turns = (turn(None, *waits, call("meet")), turn("Done."))

    async def scene() -> None:
        await collect_events(start_run(place, "Wait.", *turns, tools=[*load_tools(["bash"]), Meeting(1)]), note)

    asyncio.run(scene())
    assert [event.call.name for event in ended] == ["meet", *["bash"] * 5]
    assert not any(event.output.is_error for event in ended)
    check_is_sound(place.session)


def test_an_unexpected_exception_of_a_tool_is_a_result(place: Workplace) -> None:
    async def scene() -> None:
        await collect_events(
            start_run(place, "Go.", turn(None, call("broken"), call("none")), turn("Oh."), tools=[Broken(1)])
        )

    asyncio.run(scene())
    found = results(place.session.context().messages)
    assert [message.is_error for message in found.values()] == [True, True]
    assert "ZeroDivisionError: by its author" in str(found)
    assert "no tool is named 'none'" in str(found)
    check_is_sound(place.session)


def test_output_of_a_command_is_sent_while_it_runs(place: Workplace) -> None:
    place.session.set_config(approval_mode="yolo")
    command = "echo one; until test -e go; do sleep 0.02; done; echo two"
    updates: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, ToolUpdate):
            updates.append(event.text)
            (place.project / "go").touch()

    async def scene() -> None:
        await collect_events(
            start_run(place, "Run.", turn(None, call("bash", command=command, timeout=30)), turn("Ran.")), note
        )

    asyncio.run(scene())
    assert updates == ["one\n", "two\n"]


def test_questions_and_replies_are_events(place: Workplace) -> None:
    place.answers.reply = Reply("no", "not today")
    events = run_events(place, "Write.", turn(None, call("write", path="a", content="a")), turn("Well."))
    (asked,) = [event for event in events if isinstance(event, ApprovalAsked)]
    (answered,) = [event for event in events if isinstance(event, ApprovalAnswered)]
    assert asked.question in place.answers.questions
    assert answered.reply == Reply("no", "not today")
    assert "not today" in str(results(place.session.context().messages))
    assert not (place.project / "a").exists()
    check_is_sound(place.session)


def test_without_an_approver_calls_that_need_approval_are_denied(place: Workplace) -> None:
    run_events(place, "Write.", turn(None, call("write", path="a", content="a")), turn("Well."), approver=None)
    assert "no user is present to approve it" in str(results(place.session.context().messages))


def test_an_approval_for_the_session_applies_to_the_next_call(place: Workplace) -> None:
    place.answers.reply = Reply("always")
    one, two = call("write", path="a", content="a"), call("write", path="b", content="b")
    run_events(place, "Write.", turn(None, one), turn(None, two), turn("Both."))
    assert len(place.answers.questions) == 1
    assert (place.project / "b").read_text() == "b"
    assert place.session.config.approval_tools == ("write",)


def test_blocks_and_complete_messages_can_be_prompts(place: Workplace) -> None:
    run_events(place, [Text("See:"), Image("aGk=", "image/png")], turn("An image."))
    run_events(place, {"content": "expanded", "displayText": "short"}, turn("Yes."))
    first, _, second, _ = place.session.context().messages
    assert isinstance(first, User)
    assert first.content == (Text("See:"), Image("aGk=", "image/png"))
    assert message_text(second) == "expanded"


def test_a_busy_model_is_retried_and_partial_output_is_void(place: Workplace) -> None:
    busy = ScriptTurn(text="Half of", error=ScriptError("overloaded", in_stream=True))
    events = run_events(place, "Hello!", busy, turn("All of it."), settings=QUICK)
    (retry,) = [event for event in events if isinstance(event, Retry)]
    assert (retry.attempt, retry.delay <= 0.01) == (1, True)
    assert transcript(place.session) == [("user", "Hello!"), ("assistant", "All of it.")]
    assert end_of(events).reason == "done"


def test_a_permanent_model_failure_ends_the_run_and_is_recorded(place: Workplace) -> None:
    events = run_events(place, "Hello!", ScriptTurn(error=ScriptError("auth")))
    assert [event.kind for event in events if isinstance(event, Failed)] == ["ModelAccessError"]
    assert end_of(events).reason == "error"
    last = place.session.context().messages[-1]
    assert isinstance(last, Assistant)
    assert (last.stop_reason, "auth" in (last.error_message or "")) == ("error", True)
    check_is_sound(place.session)
    assert end_of(run_events(place, "Again!", turn("Here."))).text == "Here."


def test_a_refusal_is_an_error_that_the_session_records(place: Workplace) -> None:
    events = run_events(place, "Hello!", turn("I will not.", stop="refusal"))
    assert [event.message for event in events if isinstance(event, Failed)] == ["the script refuses"]
    assert end_of(events).reason == "error"
    assert transcript(place.session)[-1] == ("assistant", "I will not.")


def test_partial_output_is_written_with_the_failure(place: Workplace) -> None:
    run_events(place, "Hello!", ScriptTurn(text="Half of", error=ScriptError("refused", in_stream=True)))
    last = place.session.context().messages[-1]
    assert isinstance(last, Assistant)
    assert (message_text(last), last.stop_reason) == ("Half of", "error")
    check_is_sound(place.session)


def test_calls_in_an_answer_that_was_cut_off_are_not_run(place: Workplace) -> None:
    place.session.set_config(approval_mode="yolo")
    run_events(place, "Go.", turn(None, call("write", path="a", content="a"), stop="length"), turn("Again, shorter."))
    assert not (place.project / "a").exists()
    assert "maximum length" in str(results(place.session.context().messages))
    check_is_sound(place.session)


def test_steering_is_sent_after_the_results_and_follow_ups_at_the_end(place: Workplace) -> None:
    model = ScriptedModel([turn(None, call("ls", path=".")), turn("First."), turn("Second.")])
    one = start_run(place, "Go.", model=model)

    def on_event(event: Event) -> None:
        if isinstance(event, ToolEnd):
            one.steer("Mind the time.")
            one.follow_up("And now?")

    asyncio.run(collect_events(one, on_event))
    assert [text for role, text in transcript(place.session) if role != "toolResult"] == [
        "Go.", "", "Mind the time.", "First.", "And now?", "Second.",
    ]  # fmt: skip
    assert message_text(model.requests[1].messages[-1]) == "Mind the time."
    with pytest.raises(sessiontree.UsageError, match="the run has ended"):
        one.steer("Too late.")


def test_queued_messages_that_were_not_sent_are_returned(place: Workplace) -> None:
    one = start_run(place, "Go.", turn("A long answer.", delay=0.05, piece=2))

    def on_event(event: Event) -> None:
        if isinstance(event, TextDelta):
            one.follow_up("Later.")
            one.interrupt()

    asyncio.run(collect_events(one, on_event))
    assert one.undelivered == ("Later.",)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(turns=2), "2 turns"),
        (Limits(tokens=150), "150 tokens"),
        (Limits(budget=lambda spent: "no more" if spent.turns >= 2 else None), "no more"),
    ],
)
def test_a_limit_ends_a_run_between_turns(place: Workplace, limits: Limits, why: str) -> None:
    endless = ScriptTurn(tool_calls=(call("ls", path="."),), repeat=True, usage=Usage(90))
    events = run_events(place, "Go.", endless, limits=limits)
    end = end_of(events)
    assert (end.reason, end.spent.turns) == ("limit", 2)
    assert why in end.why
    check_is_sound(place.session)


def test_a_time_limit_interrupts_the_run(place: Workplace) -> None:
    place.session.set_config(approval_mode="yolo")
    begin = time.monotonic()
    events = run_events(place, "Go.", turn(None, call("bash", command="sleep 30")), limits=Limits(seconds=0.3))
    assert time.monotonic() - begin < 10
    assert end_of(events).reason == "limit"
    assert "0.3 seconds" in str(results(place.session.context().messages))
    check_is_sound(place.session)


def test_several_runs_share_a_budget_on_branches_of_one_session(place: Workplace) -> None:
    place.session.append("user", "The question.")
    root = place.session.leaf
    spent: dict[int, RunUsage] = {}

    def budget(number: int) -> Any:
        def ask(now: RunUsage) -> str | None:
            spent[number] = now
            return "all is used up" if sum(one.turns for one in spent.values()) >= 24 else None

        return ask

    async def scene() -> list[list[Event]]:
        runs = []
        for number in range(16):
            branch = place.session.branch(root)
            script = [turn(None, call("ls", path=".")), turn(f"Answer {number}.")]
            one = start_run(place, f"Try {number}.", *script, at=branch, limits=Limits(budget=budget(number)))
            runs.append(collect_events(one))
        return await asyncio.gather(*runs)

    ended = [end_of(events) for events in asyncio.run(scene())]
    assert {end.reason for end in ended} <= {"done", "limit"}
    assert sum(end.spent.turns for end in ended) >= 24
    for end in ended:
        texts = [message_text(message) for message in place.session.context(end.leaf).messages]
        assert texts[0] == "The question."
        (tried,) = [text for text in texts if text.startswith("Try ")]
        if end.reason == "done":
            assert texts[-1] == tried.replace("Try", "Answer")
    check_is_sound(place.session)


def test_overflow_causes_a_compaction_and_one_more_attempt(place: Workplace) -> None:
    for number in range(30):
        place.session.append("user", f"Question {number}: " + "words " * 300)
        place.session.append("assistant", [{"type": "text", "text": f"Answer {number}."}], stopReason="stop")
    model = ScriptedModel([ScriptTurn(error=ScriptError("overflow")), turn("## Goal\n\n- Words."), turn("It fits.")])
    events = run_events(
        place, "And now?", model=model, settings=Settings(compaction=CompactionSettings(keep_recent_tokens=500))
    )
    assert [event.stage for event in events if isinstance(event, Compacting)] == ["start", "end"]
    assert [event.occasion for event in events if isinstance(event, Compacting)] == ["overflow", "overflow"]
    assert "Question 0" in message_text(model.requests[1].messages[-1])  # the summary
    assert len(model.requests[2].messages) < len(model.requests[0].messages)
    assert message_text(model.requests[2].messages[-1]) == "And now?"
    assert end_of(events).text == "It fits."
    check_is_sound(place.session)


def test_overflow_again_is_a_clear_error(place: Workplace) -> None:
    for number in range(30):
        place.session.append("user", f"Question {number}: " + "words " * 300)
        place.session.append("assistant", [{"type": "text", "text": f"Answer {number}."}], stopReason="stop")
    model = ScriptedModel([ScriptTurn(error=ScriptError("overflow"), repeat=True)])
    events = run_events(place, "And now?", model=model, settings=EXTRACTIVE)
    assert len(model.requests) == 2
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert "still too long after a compaction" in failed.message
    assert end_of(events).reason == "error"
    check_is_sound(place.session)


def test_overflow_is_an_error_if_auto_compaction_is_off(place: Workplace) -> None:
    model = ScriptedModel([ScriptTurn(error=ScriptError("overflow"), repeat=True)])
    events = run_events(place, "x", model=model, settings=Settings(compaction=CompactionSettings(enabled=False)))
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert "compact the session yourself" in failed.message
    assert not [event for event in events if isinstance(event, Compacting)]


def test_two_runs_cannot_append_after_the_same_leaf(place: Workplace) -> None:
    first: list[Event] = []
    second: list[Event] = []

    async def scene() -> None:
        async for event in start_run(place, "One.", turn("First.")):
            first.append(event)
            if isinstance(event, TurnStart):  # the first run is in progress until this loop goes on
                second.extend(await collect_events(start_run(place, "Two.", turn("Second."))))

    asyncio.run(scene())
    assert (end_of(first).reason, end_of(second).reason) == ("done", "error")
    assert "another run is in progress" in end_of(second).why
    assert transcript(place.session) == [("user", "One."), ("assistant", "First.")]
    check_is_sound(place.session)


def test_overflow_with_nothing_to_compact_is_a_clear_error(place: Workplace) -> None:
    model = ScriptedModel([ScriptTurn(error=ScriptError("overflow"), repeat=True)])
    events = run_events(place, "x", model=model)
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert failed.kind == "CompactionError"
    assert "nothing to compact" in failed.message
    check_is_sound(place.session)


@pytest.mark.parametrize("occasion", ["before", "between", "after"])
def test_a_context_that_grows_too_large_is_compacted_by_the_settings(place: Workplace, occasion: str) -> None:
    (place.project / "long.txt").write_text("a line of words that goes on\n" * 900)
    settings = Settings(
        compaction=CompactionSettings(
            reserve_tokens=2_000, keep_recent_tokens=100, prune=Prune(enabled=False), summarizer="extractive"
        )
    )
    facts = Facts(window=6_000, output=500, source="test")
    long, short = "words " * 5_000, "words " * 50
    match occasion:
        case "before":
            place.session.append("user", "First: " + long)
            place.session.append("assistant", [{"type": "text", "text": "Yes."}], stopReason="stop")
            turns, prompt = [turn("Answer.")], short
        case "between":
            turns, prompt = [turn(None, call("read", path="long.txt")), turn("Answer.")], short
        case _:
            turns, prompt = [turn("Answer. " + long)], short
    events = run_events(place, prompt, model=ScriptedModel(turns, facts), settings=settings)
    ended = [event for event in events if isinstance(event, Compacting) and event.stage == "end"]
    assert [event.occasion for event in ended] == [occasion]
    assert ended[0].tokens_after < ended[0].tokens_before
    assert place.session.count("compaction") == 1
    assert any(isinstance(event, Persisted) and isinstance(event.entry, Compaction) for event in events)
    assert end_of(events).reason == "done"
    check_is_sound(place.session)


def test_other_tasks_run_while_a_summary_is_written(place: Workplace) -> None:
    place.session.append("user", "First: " + "words " * 5_000)
    place.session.append("assistant", [{"type": "text", "text": "Yes. " + "words " * 600}], stopReason="stop")

    class Slow:
        name = "slow"

        def __call__(self, request: SummaryRequest, /) -> Summary:
            is_summarizing.set()
            assert has_ticked.wait(30), "the event loop was blocked"
            return Summary("in short")

    settings = Settings(
        compaction=CompactionSettings(reserve_tokens=2_000, keep_recent_tokens=50, prune=Prune(enabled=False))
    )
    model = ScriptedModel([turn("Answer.")], Facts(window=6_000, output=500, source="test"))
    is_summarizing, has_ticked = threading.Event(), threading.Event()

    async def tick() -> None:
        ticks = 0
        while True:
            await asyncio.sleep(0.001)
            ticks += is_summarizing.is_set()
            if ticks == 20:
                has_ticked.set()

    async def scene() -> list[Event]:
        ticking = asyncio.create_task(tick())
        try:
            return await collect_events(start_run(place, "Go.", model=model, settings=settings, summarizer=Slow()))
        finally:
            ticking.cancel()

    events = asyncio.run(scene())
    assert end_of(events).text == "Answer."
    assert place.session.count("compaction") == 1
    assert has_ticked.is_set()


def test_a_failed_compaction_is_reported_and_the_run_continues(place: Workplace) -> None:
    facts = Facts(window=600, output=100, source="test")
    settings = Settings(compaction=CompactionSettings(reserve_tokens=100))
    events = run_events(place, "words " * 3_000, model=ScriptedModel([turn("Anyway.")], facts), settings=settings)
    assert end_of(events).text == "Anyway."
    stages = [event.stage for event in events if isinstance(event, Compacting)]
    assert stages in (["start", "failed"], ["start", "end"])


def test_the_live_context_equals_the_context(place: Workplace) -> None:
    (place.project / "a.txt").write_text("alpha")
    run_events(place, "One.", turn("x", call("read", path="a.txt")), turn("Two."))
    assert list(live_context_of(place.session).messages()) == list(place.session.context().messages)
    place.session.append("user", "By hand.")
    place.session.append({"type": "custom_message", "customType": "x", "content": "note"})
    assert list(live_context_of(place.session).messages()) == list(place.session.context().messages)
    first = place.session.path_ids()[0]
    place.session.append({"type": "context_edit", "targetId": first, "replacement": None})
    assert list(live_context_of(place.session).messages()) == list(place.session.context().messages)
    place.session.move(first)
    assert list(live_context_of(place.session).messages()) == list(place.session.context().messages)
    run_events(place, "Other.", turn("Way."))
    assert list(live_context_of(place.session).messages()) == list(place.session.context().messages)


def test_a_run_without_a_prompt_continues_an_unanswered_one(place: Workplace) -> None:
    place.session.append("user", "Hello?")
    assert end_of(run_events(place, None, turn("Here."))).text == "Here."
    events = run_events(place, None, turn("Never."))
    assert "nothing to continue" in end_of(events).why
    assert transcript(place.session) == [("user", "Hello?"), ("assistant", "Here.")]


def test_a_run_can_be_awaited_without_consuming_events(place: Workplace) -> None:
    async def scene() -> str:
        return (await start_run(place, "Hello!", turn("Here.")).finish()).text

    assert asyncio.run(scene()) == "Here."


def test_a_bug_in_a_model_is_raised_after_the_session_is_settled(place: Workplace) -> None:
    class Faulty(ScriptedModel):
        async def stream(self, request: Any, /) -> Any:
            async for event in super().stream(request):
                yield event
                raise ZeroDivisionError("in the model")

    with pytest.raises(ZeroDivisionError):
        run_events(place, "Hello!", model=Faulty([turn("Half.")]))
    assert transcript(place.session) == [("user", "Hello!"), ("assistant", "Half.")]
    check_is_sound(place.session)


def test_the_events_can_be_written_as_json(place: Workplace) -> None:
    (place.project / "a.txt").write_text("alpha")
    events = run_events(place, "One.", turn("x", call("read", path="a.txt")), turn("Two."))
    lines = [msgspec.json.decode(msgspec.json.encode(event)) for event in events]
    assert [line["type"] for line in lines] == names(events)
    assert lines[-1]["reason"] == "done"
    (ended,) = [event for event in events if isinstance(event, TurnEnd) and event.calls]
    assert ended.stop_reason == "toolUse"


def test_a_session_in_memory_can_be_run_too() -> None:
    session = sessiontree.create(in_memory=True)

    async def scene() -> None:
        await run(session, "Hello!", model=ScriptedModel([turn("Here.")])).finish()

    asyncio.run(scene())
    assert transcript(session) == [("user", "Hello!"), ("assistant", "Here.")]
