"""Sixteen lanes with the real tools: nothing is lost or mixed up, and no lane waits for another."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sessiontree
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.core.messages import ToolCall
from sessiontree.explore import explore
from sessiontree.explore.state import find_exploration
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.file import FileStore
from sessiontree.stores.os_calls import OsCalls
from tests.explore.lanes import Note, Stepping, check_is_sound, check_no_message_is_lost, explored, new_session

LANES = 16
PROMPTS = [f"of lane-{number}." for number in range(1, LANES + 1)]

READER = """
import sys
import sessiontree
from sessiontree.explore import explorations

location = sys.argv[1]
print("ready", flush=True)
looks, ids = 0, []
while True:
    session = sessiontree.open(location)
    torn = [problem for problem in session.problems if problem.kind not in ("torn-tail", "no-final-newline")]
    assert not torn, torn
    assert session.ids[: len(ids)] == ids, "what was there is there no longer"
    ids = session.ids
    for state in explorations(session):
        for lane in state.lanes:
            assert lane.leaf in session
            messages = session.context(lane.leaf).messages
            foreign = [m for m in messages[2:] if m.role == "user" and m.content != lane.record.prompt]
            assert not foreign, foreign
        if state.lanes and all(lane.state == "done" for lane in state.lanes) and len(state.lanes) == 16:
            print("read", looks, flush=True)
            sys.exit(0)
    looks += 1
"""


def real_calls(prompt: str, step: int) -> list[ToolCall]:
    name = prompt.split()[-1].strip(".")
    path, id = f"{name}.txt", f"{prompt}-{step}"
    match step % 5:
        case 0:
            return [ToolCall(id, "write", {"path": path, "content": f"line {step}\n" * 5})]
        case 1:
            return [ToolCall(id, "edit", {"path": path, "old_text": "line", "new_text": "row", "replace_all": True})]
        case 2:
            return [ToolCall(f"{id}-{part}", "read", {"path": path}) for part in "abc"]
        case 3:
            return [ToolCall(id, "bash", {"command": f"echo {step} >> {name}.log"})]
        case _:
            return [ToolCall(id, "ls", {"path": "."}), ToolCall(f"{id}-b", "read", {"path": path})]


@pytest.mark.parametrize("turns", [25, pytest.param(125, marks=pytest.mark.slow)])
def test_many_turns_of_sixteen_lanes_while_another_process_reads(tmp_path: Path, turns: int) -> None:
    session = new_session(tmp_path)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, session.location], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"

    async def main() -> None:
        model = Stepping(turns - 1, calls=real_calls)
        async with explore(
            session, prompts=PROMPTS, models=[model], tools=load_tools(), parallel=LANES, worktrees=False
        ) as exploration:
            async for _ in exploration:
                pass
        assert [lane.state for lane in exploration.lanes] == ["done"] * LANES, [lane.why for lane in exploration.lanes]

    asyncio.run(main())
    session.flush()
    out, errors = reader.communicate(timeout=60)
    assert out.startswith("read "), errors
    state = find_exploration(sessiontree.open(session.location))
    assert sum(lane.spent.turns for lane in state.lanes) == LANES * turns
    calls = sum(len(real_calls("of x.", step)) for step in range(turns - 1))
    assert [len(messages) for messages in check_is_sound(session)] == [1 + turns + calls] * LANES
    check_no_message_is_lost(session)
    for number in range(1, LANES + 1):
        log = (tmp_path / "project" / f"lane-{number}.log").read_text().split()
        assert log == [str(step) for step in range(3, turns - 1, 5)]


class SlowDisk(OsCalls):
    """A disk with a slow fsync."""

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        time.sleep(0.08)
        super().fsync(fd, data_only=data_only)


class WatchedDisk(OsCalls):
    """A disk that counts calls of fsync, and those of them made in a thread that runs an event loop."""

    def __init__(self) -> None:
        self.calls = self.calls_in_loop = 0

    def fsync(self, fd: int, *, data_only: bool = False) -> None:
        self.calls += 1
        self.calls_in_loop += asyncio._get_running_loop() is not None
        super().fsync(fd, data_only=data_only)


def test_the_event_loop_never_waits_for_the_disk(tmp_path: Path) -> None:
    disk = WatchedDisk()
    made = new_session(tmp_path)
    made.close()
    session = open_store(FileStore(made.location, os_calls=disk), root=str(tmp_path / "home"))
    asyncio.run(_explore_watched(session, 3))
    assert disk.calls > 0
    assert disk.calls_in_loop == 0


@pytest.mark.slow  # it measures time, so it needs several attempts on a busy machine
@pytest.mark.parametrize("disk", [OsCalls(), SlowDisk()])
def test_the_loop_never_blocks_for_long(tmp_path: Path, disk: OsCalls) -> None:
    """A busy machine adds delays, but the engine's own share occurs in every round, so the best round counts."""
    longest = []
    for attempt in range(12):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        made = new_session(folder)
        made.close()
        session = open_store(FileStore(made.location, os_calls=disk), root=str(folder / "home"))
        longest.append(asyncio.run(_explore_watched(session, 6, delay=0.1)))
        if longest[-1] < 0.05:
            return
    raise AssertionError(f"the loop was blocked for {longest} seconds")


async def _explore_watched(session: Session, steps: int, delay: float = 0.0) -> float:
    """Run sixteen lanes; returns the longest time that the event loop was blocked."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began - 0.001)

    watching = asyncio.create_task(watch())
    model = Stepping(steps, calls=real_calls, delay=delay)
    async with explore(
        session, prompts=PROMPTS, models=[model], tools=load_tools(), parallel=LANES, worktrees=False
    ) as exploration:
        await exploration.finish()
    watching.cancel()
    return longest


def test_lanes_do_not_wait_for_each_other(tmp_path: Path) -> None:
    exploration, _ = explored(
        new_session(tmp_path),
        *PROMPTS,
        models=[Stepping(5, meet=LANES)],
        tools=Tools([Note(tmp_path / "notes")]),
        parallel=LANES,
    )
    assert [lane.state for lane in exploration.lanes] == ["done"] * LANES
