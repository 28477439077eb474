"""What a tool prints while it runs: told soon, not too often, and of much only the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sessiontree.agent.events import AgentEnd, Event, ToolEnd, ToolUpdate
from sessiontree.agent.output_throttle import EVERY, MOST, Updates
from sessiontree.agent.shell_commands import UserCommand
from tests.agent.loops import call, turn
from tests.agent.test_state_controller import Desk, go


def test_the_first_word_is_told_at_once_and_the_next_ones_together() -> None:
    async def scene() -> list[str]:
        told: list[str] = []
        updates = Updates(told.append)
        updates.add("one ")
        assert told == ["one "]
        updates.add("two ")
        updates.add("three ")
        assert told == ["one "]
        await asyncio.sleep(EVERY * 2)
        updates.add("four ")
        updates.add("five")
        updates.close()
        await asyncio.sleep(EVERY * 2)
        updates.tell_rest()
        return told

    assert go(scene()) == ["one ", "two three ", "four ", "five"]


def test_nothing_piles_up_while_nobody_looks() -> None:
    async def scene() -> list[str]:
        told: list[str] = []
        is_free = False
        updates = Updates(told.append, lambda: is_free)
        for number in range(2000):
            updates.add(f"line {number}\n")
        await asyncio.sleep(EVERY * 3)
        assert told == []
        is_free = True
        await asyncio.sleep(EVERY * 3)
        return told

    (told,) = go(scene())
    assert len(told) == MOST
    assert told.endswith("line 1999\n")


def test_a_command_that_prints_without_end_is_told_of_some_times_a_second(tmp_path: Path) -> None:
    desk = Desk(tmp_path, turn("I print.", call("bash", command="timeout 1 yes")), turn("Done."))

    async def scene() -> list[Event]:
        await desk.controller.new()
        await desk.controller.set_approval("yolo")
        return await desk.say("Go")

    events: list[Event] = go(scene())
    updates = [event for event in events if isinstance(event, ToolUpdate)]
    assert 3 <= len(updates) <= 2 + 1.5 / EVERY
    assert all(len(event.text) <= MOST for event in updates)
    assert isinstance(events[-1], AgentEnd)
    last = max(place for place, event in enumerate(events) if isinstance(event, ToolUpdate))
    assert last < next(place for place, event in enumerate(events) if isinstance(event, ToolEnd))


def test_a_command_of_the_user_is_heard_while_it_runs(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    heard: list[str] = []

    async def scene() -> None:
        waiting = tmp_path / "go"
        command = f"echo begun; until test -e {waiting}; do sleep 0.02; done; echo ended"
        running = asyncio.create_task(desk.controller.command(UserCommand(command), heard.append))
        while not heard:
            await asyncio.sleep(0.01)
        assert not running.done()
        waiting.touch()
        await running

    go(scene())
    assert heard[0] == "begun\n"
