"""Hooks of lanes: tools, entries before a request, events, and lanes that follow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.async_bridge import in_thread
from sessiontree.agent.events import AgentEnd, AgentStart, Event
from sessiontree.agent.loop import Run
from sessiontree.agent.tools.base import Tool, Tools
from sessiontree.core.messages import message_text
from sessiontree.explore import Bounds, Exploration, Job, Lane, LaneHook, explorations
from sessiontree.explore.events import Delivered, LaneMade, LaneRefused
from sessiontree.models import Request
from sessiontree.session.session import Session
from tests.explore.lanes import Note, Stepping, check_is_sound, explored, new_session

PROMPTS = ["of lane-1.", "of lane-2."]


class Quiet:
    """A hook that does nothing; others do one thing each."""

    def tools(self, exploration: Exploration, lane: Lane) -> Sequence[Tool]:
        return ()

    async def before_request(self, exploration: Exploration, lane: Lane, run: Run) -> None:
        return

    async def handle_event(self, exploration: Exploration, lane: Lane, event: Event) -> None:
        return

    async def after_end(self, exploration: Exploration, lane: Lane) -> Sequence[Job]:
        return ()


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path)


class Asking(Stepping):
    """Records its calls."""

    def __init__(self, steps: int, **more: Any) -> None:
        super().__init__(steps, **more)
        self.asked: list[list[str]] = []

    async def stream(self, request: Request, /) -> Any:
        self.asked.append([message_text(message) for message in request.messages])
        async for event in super().stream(request):
            yield event


def test_a_hook_gives_a_lane_tools_of_its_own(session: Session, tmp_path: Path) -> None:
    class Giving(Quiet):
        def tools(self, exploration: Exploration, lane: Lane) -> Sequence[Tool]:
            return [Note(tmp_path / lane.name)]

    hook: LaneHook = Giving()
    explored(session, *PROMPTS, models=[Stepping(2)], hooks=[hook])
    for lane in ("lane-1", "lane-2"):
        assert (tmp_path / lane).read_text() == f"of {lane}.-0\nof {lane}.-1\n"


def test_entries_appended_before_a_request_are_part_of_it_and_of_the_file(session: Session, tmp_path: Path) -> None:
    class Saying(Quiet):
        async def before_request(self, exploration: Exploration, lane: Lane, run: Run) -> None:
            entry = {"type": "custom_message", "customType": "x", "content": f"News of {lane.name}.", "display": True}
            await in_thread(lane.branch.append, entry)
            exploration.emit(lane, Delivered("someone", "News"))

    model, tools = Asking(2), Tools([Note(tmp_path / "notes")])
    exploration, events = explored(session, "of lane-1.", models=[model], tools=tools, hooks=[Saying()])
    assert [asked.count("News of lane-1.") for asked in model.asked] == [1, 2, 3]
    assert [message_text(message) for message in session.context(exploration.lanes[0].leaf).messages][-2:] == [
        "News of lane-1.",
        "of lane-1. step 2",
    ]
    assert sum(isinstance(one.event, Delivered) for one in events) == 3
    check_is_sound(session)


def test_a_hook_gets_each_event_of_a_lane_before_the_caller(session: Session) -> None:
    handled: list[tuple[int, Event]] = []

    class Hearing(Quiet):
        async def handle_event(self, exploration: Exploration, lane: Lane, event: Event) -> None:
            handled.append((lane.number, event))

    seen: list[tuple[int, Event]] = []

    def look(one: Any) -> None:
        if not type(one.event).__name__.startswith("Lane"):
            seen.append((one.lane, one.event))
            assert len(handled) >= len(seen)

    explored(session, *PROMPTS, hooks=[Hearing()], handle=look)
    assert sorted(map(str, handled)) == sorted(map(str, seen))
    assert [event for lane, event in handled if lane == 1 and isinstance(event, AgentStart | AgentEnd)]


class Wanting(Quiet):
    """Always requests another lane, one level deeper."""

    def __init__(self, model: Stepping, each: int = 1) -> None:
        self.model, self.each = model, each
        self.ends: list[str] = []

    async def after_end(self, exploration: Exploration, lane: Lane) -> Sequence[Job]:
        self.ends.append(lane.state)
        about = {"origin": lane.number, "rule": "check", "reason": "it failed", "depth": lane.record.depth + 1}
        return [Job("of any.", self.model, **about) for _ in range(self.each)]


class Failing(Stepping):
    """A model that always fails."""

    async def stream(self, request: Request, /) -> Any:
        raise RuntimeError("it always fails")
        yield


@pytest.mark.parametrize(
    ("bounds", "depths"),
    [
        (Bounds(lanes=16, depth=2), [0, 0, 1, 1, 2, 2]),
        (Bounds(lanes=5, depth=9), [0, 0, 1, 1, 2]),
        (Bounds(lanes=16, depth=0), [0, 0]),
        (Bounds(lanes=2, depth=9), [0, 0]),
    ],
)
def test_lanes_that_follow_from_failures_stay_within_depth_and_number(
    session: Session, bounds: Bounds, depths: list[int]
) -> None:
    model = Failing(0)
    exploration, events = explored(session, *PROMPTS, models=[model], bounds=bounds, hooks=[Wanting(model)])
    assert sorted(lane.record.depth for lane in exploration.lanes) == depths
    assert {lane.state for lane in exploration.lanes} == {"failed"}
    assert sum(isinstance(one.event, LaneMade) for one in events) == len(depths)
    assert [one for one in events if isinstance(one.event, LaneRefused)]
    state = explorations(sessiontree.open(session.location))[0]
    assert sorted(lane.record.depth for lane in state.lanes) == depths


def test_many_requested_lanes_never_exceed_the_limit(session: Session) -> None:
    model = Failing(0)
    bounds = Bounds(lanes=20, depth=50)
    exploration, _ = explored(session, *PROMPTS, models=[model], bounds=bounds, hooks=[Wanting(model, 7)], parallel=16)
    assert len(exploration.lanes) == 20
    assert sorted(lane.number for lane in exploration.lanes) == list(range(1, 21))


def test_a_hook_that_fails_ends_its_lane_as_failed_and_no_other(session: Session) -> None:
    class Breaking(Quiet):
        async def before_request(self, exploration: Exploration, lane: Lane, run: Run) -> None:
            if lane.number == 1:
                raise ValueError("a fault of the hook")

    exploration, _ = explored(session, *PROMPTS, hooks=[Breaking()])
    assert [lane.state for lane in exploration.lanes] == ["failed", "done"]
    assert "a fault of the hook" in exploration.lanes[0].why
    check_is_sound(session)


def test_a_hook_may_stop_a_lane_during_an_event(session: Session, tmp_path: Path) -> None:
    class Stopping(Quiet):
        async def handle_event(self, exploration: Exploration, lane: Lane, event: Event) -> None:
            if lane.number == 2 and type(event).__name__ == "ToolStart":
                exploration.stop(2, "enough")

    tools = Tools([Note(tmp_path / "notes", delay=0.01)])
    exploration, _ = explored(session, *PROMPTS, models=[Stepping(3)], tools=tools, hooks=[Stopping()])
    assert [lane.state for lane in exploration.lanes] == ["done", "stopped"]
    check_is_sound(session)


def test_the_exploration_waits_for_a_fork_after_all_other_lanes_ended(session: Session) -> None:
    class Slow(Quiet):
        async def after_end(self, exploration: Exploration, lane: Lane) -> Sequence[Job]:
            await asyncio.sleep(0.05)
            return [] if lane.record.depth else [Job("of lane-2.", Stepping(0), origin=1, depth=1)]

    exploration, _ = explored(session, "of lane-1.", hooks=[Slow()])
    assert [lane.state for lane in exploration.lanes] == ["done", "done"]
