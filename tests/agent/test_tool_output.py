"""Output of a running tool: sent soon, at a limited rate, and only the end if there is much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sessiontree.agent.events import AgentEnd, Event, ToolEnd, ToolUpdate
from sessiontree.agent.shell_commands import UserCommand
from sessiontree.agent.tool_output import INTERVAL, MAX_CHARACTERS, OutputThrottle
from tests.agent.runs import call, turn
from tests.agent.test_state_controller import Desk, go


class FakeClock:
    """Time that passes only by `advance`; due timers are called on the way."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._loop = asyncio.new_event_loop()
        self._timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.now + delay, callback, (), self._loop)
        self._timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted(timer for timer in self._timers if timer.when() <= end):
            self._timers.remove(due[0])
            self.now = max(self.now, due[0].when())
            if not due[0].cancelled():
                due[0]._run()
        self.now = end

    def close(self) -> None:
        self._loop.close()


class Throttled:
    """A throttle with a fake clock, and what it emitted."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.emitted: list[str] = []
        self.is_ready = True
        self.throttle = OutputThrottle(self.emitted.append, lambda: self.is_ready, self.clock)

    def __enter__(self) -> Throttled:
        return self

    def __exit__(self, *_: object) -> None:
        self.clock.close()


def test_the_first_output_is_emitted_at_once_and_the_next_together() -> None:
    with Throttled() as one:
        one.throttle.add("one ")
        assert one.emitted == ["one "]
        one.throttle.add("two ")
        one.clock.advance(INTERVAL * 0.9)
        one.throttle.add("three ")
        assert one.emitted == ["one "]
        one.clock.advance(INTERVAL)
        assert one.emitted == ["one ", "two three "]


def test_after_a_pause_output_is_emitted_at_once() -> None:
    with Throttled() as one:
        one.throttle.add("one ")
        one.clock.advance(INTERVAL * 2)
        one.throttle.add("two ")
        assert one.emitted == ["one ", "two "]


def test_a_closed_throttle_emits_only_on_flush() -> None:
    with Throttled() as one:
        one.throttle.add("one ")
        one.throttle.add("two ")
        one.throttle.close()
        one.throttle.add("three")
        one.clock.advance(INTERVAL * 5)
        assert one.emitted == ["one "]
        one.throttle.flush()
        one.throttle.flush()
        assert one.emitted == ["one ", "two three"]


def test_unsent_output_does_not_pile_up_while_the_consumer_is_busy() -> None:
    with Throttled() as one:
        one.is_ready = False
        for number in range(2000):
            one.throttle.add(f"line {number}\n")
            one.clock.advance(INTERVAL / 500)
        one.clock.advance(INTERVAL * 3)
        assert one.emitted == []
        one.is_ready = True
        one.clock.advance(INTERVAL)
        (text,) = one.emitted
        assert len(text) == MAX_CHARACTERS
        assert text.endswith("line 1999\n")
        assert one.throttle.tail == text


def test_steady_output_is_emitted_once_per_interval() -> None:
    with Throttled() as one:
        for _ in range(1_000):
            one.throttle.add("y\n")
            one.clock.advance(INTERVAL / 100)
        assert 10 <= len(one.emitted) <= 11


def test_a_tool_that_prints_without_end_sends_limited_updates_before_it_ends(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("I print.", call("bash", command="yes | head -c 3000000")), turn("Done."))

    async def scene() -> list[Event]:
        await desk.controller.new()
        await desk.controller.set_approval("yolo")
        return await desk.say("Go")

    events: list[Event] = go(scene())
    updates = [event for event in events if isinstance(event, ToolUpdate)]
    assert updates
    assert all(len(event.text) <= MAX_CHARACTERS for event in updates)
    assert isinstance(events[-1], AgentEnd)
    last = max(index for index, event in enumerate(events) if isinstance(event, ToolUpdate))
    assert last < next(index for index, event in enumerate(events) if isinstance(event, ToolEnd))


def test_output_of_a_user_command_arrives_while_it_runs(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    received: list[str] = []

    async def scene() -> None:
        waiting = tmp_path / "go"
        command = f"echo begun; until test -e {waiting}; do sleep 0.02; done; echo ended"
        running = asyncio.create_task(desk.controller.command(UserCommand(command), received.append))
        while not received:
            await asyncio.sleep(0.01)
        assert not running.done()
        waiting.touch()
        await running

    go(scene())
    assert received[0] == "begun\n"
