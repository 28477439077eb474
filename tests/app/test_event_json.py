"""Every event of a run and of an exploration survives the way to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import get_args

import pytest

from sessiontree.agent import events
from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.events import EventBase
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.tools.base import ToolOutput
from sessiontree.app.event_json import decode_event, encode_event
from sessiontree.core.entries import Compaction, MessageEntry, Unknown
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import Assistant, Cost, Image, OtherBlock, Text, Thinking, ToolCall, ToolResult, Usage
from sessiontree.errors import UsageError
from sessiontree.explore.events import AnyEvent, Delivered, ForkedByRule, LaneEnded, LaneEvent, LaneMade, LaneRefused
from sessiontree.explore.records import LaneRecord, Worktree

CALL = ToolCall("c1", "read", {"path": "a.py", "depth": [1, {"x": None}]})
SPENT = RunUsage(2, 10, 5, 3, 1, 0.25, 1.5)
USAGE = Usage(10, 5, 3, 1, 19, Cost(0.1, 0.1, 0.0, 0.05, 0.25))
ANSWER = MessageEntry(
    "e1",
    "e0",
    "2026-01-01T00:00:00.000Z",
    Assistant(
        content=(Thinking("hm", "sig"), Text("Hello"), CALL, OtherBlock("video", {"type": "video", "url": "x"})),
        provider="anthropic",
        model="m",
        usage=USAGE,
        stop_reason="toolUse",
    ),
    (ToolResult(1, "c1", "read", (Text("out"), Image("aGk=", "image/png"))),),
)

SAMPLES: list[AnyEvent] = [
    events.AgentStart("s1", None, "demo"),
    events.TurnStart(1),
    events.TextDelta("Hé\n\x1b[31m"),
    events.ThinkingDelta("hm"),
    events.Retry(1, 0.5, "busy"),
    events.Persisted(ANSWER),
    events.Persisted(Compaction("e2", "e1", "", "what was done", details={"readFiles": ["a"]})),
    events.Persisted(Unknown("e3", "e2", "", "todo", {"type": "todo", "items": [1]})),
    events.Used(USAGE, SPENT),
    events.ToolStart(CALL),
    events.ToolUpdate("c1", "half"),
    events.ToolEnd(CALL, ToolOutput("out", True, {"exitCode": 1}, (Image("aGk="),))),
    events.ApprovalAsked(Question("bash", "rm x", "rm x", ("it changes files",), may_always=True, call_id="c1")),
    events.ApprovalAnswered("c1", Reply("no", "not now")),
    events.Compacting("end", "between", "compact", 100, 20),
    events.TurnEnd(1, "toolUse", 1),
    events.Failed("BusyModelError", "overloaded"),
    events.AgentEnd("limit", "e1", SPENT, "Hello", "turns"),
    LaneMade(LaneRecord("abcd1234", 1, "lane-1", "go", "demo", Worktree("/w", "/r", "b", "h", "refs/x")), "e1"),
    LaneEnded("done", "", "Hello", SPENT),
    LaneRefused("too many", 1, "check"),
    ForkedByRule("check", "exit code 1"),
    Delivered("lane-2", "hi"),
]


def event_classes(base: type[EventBase] = EventBase) -> Iterator[type[EventBase]]:
    for cls in base.__subclasses__():
        yield cls
        yield from event_classes(cls)


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_from_json_unchanged(event: AnyEvent) -> None:
    assert decode_event(json.loads(render_json(encode_event(event)))) == event


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_of_a_lane_comes_back_with_its_lane(event: AnyEvent) -> None:
    fields = encode_event(LaneEvent(3, event))
    assert (fields["type"], fields["lane"]) == ("event", 3)
    assert decode_event(json.loads(render_json(fields))) == LaneEvent(3, event)


def test_every_event_class_has_json_and_a_sample() -> None:
    classes = set(event_classes())
    assert classes == set(get_args(AnyEvent))
    assert classes == {type(event) for event in SAMPLES}


def test_types_are_unique_so_that_json_names_one_class() -> None:
    types = [encode_event(event)["type"] for event in {type(event): event for event in SAMPLES}.values()]
    assert len(set(types)) == len(types)
    assert "event" not in types


def test_unknown_fields_are_ignored_and_unknown_types_refused() -> None:
    assert decode_event({"type": "turn_start", "turn": 1, "later": True}) == events.TurnStart(1)
    for fields in ({"type": "no_such_event"}, {"turn": 1}, {"type": "event", "lane": 1}, {"type": "turn_start"}):
        with pytest.raises(UsageError, match="not an event"):
            decode_event(fields)


def test_the_cost_of_tokens_without_a_price_is_null() -> None:
    unknown, free = events.Used(Usage(10), RunUsage(1, 10)), events.Used(Usage(), RunUsage(1))
    assert encode_event(unknown)["spent"]["cost"] is None
    assert encode_event(free)["spent"]["cost"] == 0
    for event in (unknown, free):
        assert decode_event(json.loads(render_json(encode_event(event)))) == event
