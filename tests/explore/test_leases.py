"""Leases: processes that die, fall silent, or take the same lane at the same time."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

import sessiontree
from sessiontree.agent.events import ToolStart
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.core.ids import timestamp
from sessiontree.errors import ConflictError
from sessiontree.explore import Lane, decisions, explorations, explore, resume
from sessiontree.explore.decisions import drop, keep, merge
from sessiontree.explore.leases import is_free, new_lease, release
from sessiontree.explore.records import Heartbeat, Lease, Worktree, iter_records, write
from sessiontree.explore.resumption import take_over
from sessiontree.explore.state import ExplorationLog, find_exploration
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.session.session import Branch, Session
from tests.explore.lanes import Note, Stepping, check_is_sound, explored, new_session
from tests.explore.repos import make_repository

PROMPTS = [f"of lane-{n}." for n in (1, 2, 3)]
LONG_AGO = "2020-01-01T00:00:00.000Z"


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return new_session(tmp_path)


def test_a_lease_of_this_process_is_valid_until_released() -> None:
    lease = new_lease()
    assert not is_free(lease, timestamp())
    assert is_free(release(lease), timestamp())
    assert is_free(lease, timestamp())


def test_a_lease_of_a_process_that_died_here_is_free_at_once() -> None:
    child = subprocess.run(
        [sys.executable, "-c", "from sessiontree.explore.leases import new_lease; import msgspec\n"
         "print(msgspec.json.encode(new_lease()).decode())"],
        capture_output=True, check=True,
    )  # fmt: skip
    lease = msgspec.json.decode(child.stdout, type=Lease)
    assert lease.pid != os.getpid()
    assert is_free(lease, timestamp())


def test_a_lease_is_valid_while_its_process_runs_and_reuse_of_a_pid_is_detected() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "from sessiontree.explore.leases import new_lease; import msgspec, sys\n"
         "print(msgspec.json.encode(new_lease()).decode(), flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    lease = msgspec.json.decode(child.stdout.readline(), type=Lease)
    assert not is_free(lease, timestamp())
    assert is_free(msgspec.structs.replace(lease, started="1"), timestamp())  # another one had this number before
    child.communicate()
    assert is_free(lease, timestamp())


def test_a_lease_of_another_machine_expires_after_a_silence() -> None:
    lease = msgspec.structs.replace(new_lease(), host=f"not {socket.gethostname()}", seconds=60)
    assert not is_free(lease, timestamp())
    assert is_free(lease, LONG_AGO)
    assert is_free(lease, "no time at all")


def test_the_first_of_two_leases_on_the_same_parent_is_valid(session: Session) -> None:
    exploration, _ = explored(session, "of lane-1.")
    record = msgspec.structs.replace(exploration.lanes[0].record, number=9)
    start = write(Branch(session, exploration.plan_id), record).id
    first, second, third = new_lease(), new_lease(), new_lease()
    one = write(Branch(session, start), first).id
    other = write(Branch(session, start), second).id
    log = ExplorationLog(session)
    log.refresh()
    assert log.lanes[start].lease == first
    behind_other = write(Branch(session, other), third).id  # who lost, and did not notice, goes on
    log.refresh()
    assert (log.lanes[start].lease, log.lanes[start].leaf) == (first, one)
    branch = Branch(session, one)
    branch.append("user", "of the holder")
    Branch(session, behind_other).append("user", "of nobody")
    log.refresh()
    assert log.lanes[start].leaf == branch.leaf
    late = write(Branch(session, one), new_lease()).id  # its writer had not seen the later messages
    log.refresh()
    assert late != log.lanes[start].lease_id
    assert log.lanes[start].leaf == branch.leaf


def left(session: Session, steps: int = 3) -> None:
    """Start an exploration, and leave it when the first entry of a run is written."""

    async def main() -> None:
        model = Stepping(steps, delay=0.05)
        async with explore(session, prompts=PROMPTS, models=[model], tools=Tools()) as exploration:
            async for one in exploration:
                if type(one.event).__name__ == "Persisted":
                    return

    asyncio.run(main())


def test_a_lane_that_was_left_is_continued_in_the_same_process(session: Session, tmp_path: Path) -> None:
    left(session)
    leaf_before = session.leaf

    async def main() -> list[str]:
        tools = Tools([Note(tmp_path / "notes")])
        async with resume(session, find_model=lambda name: Stepping(3, name=name), tools=tools) as exploration:
            return [lane.state for lane in await exploration.finish()]

    assert asyncio.run(main()) == ["done"] * 3
    assert session.leaf == sessiontree.open(session.location).leaf == leaf_before
    check_is_sound(session)
    assert len((tmp_path / "notes").read_text().split()) == 18  # two words each, once each


def test_exactly_one_of_many_concurrent_processes_takes_a_lane(session: Session) -> None:
    left(session)
    state = find_exploration(session)
    wanting = []
    for _ in range(8):
        other = sessiontree.open(session.location)
        wanting.append(resume(other, find_model=lambda name: Stepping(0), tools=Tools()))
    barrier = threading.Barrier(len(wanting))
    took: list[tuple[int, str]] = []

    def go(number: int) -> None:
        barrier.wait()
        for lane in state.lanes:
            lease, _ = take_over(wanting[number], lane.start)
            if lease is not None:
                took.append((number, lane.start))

    threads = [threading.Thread(target=go, args=(number,)) for number in range(len(wanting))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(start for _, start in took) == sorted(lane.start for lane in state.lanes)


CHILD = """
import asyncio, sys
from pathlib import Path
import sessiontree
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.explore import resume
from tests.explore.lanes import Note, Stepping

location, notes = sys.argv[1:]
session = sessiontree.open(location)

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    tools = Tools([Note(Path(notes), delay=0.005)])
    async with resume(session, find_model=lambda name: Stepping(20, delay=0.005), tools=tools) as exploration:
        mine = [lane.number for lane in exploration.lanes if lane.lease is not None]
        await exploration.finish()
    print(*mine, flush=True)

asyncio.run(main())
"""


def test_two_processes_that_resume_the_same_exploration_share_its_lanes(session: Session, tmp_path: Path) -> None:
    left(session)
    session.close()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, session.location, str(tmp_path / "notes")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    worked = [child.communicate(timeout=60)[0].split() for child in children]
    assert sorted(number for mine in worked for number in mine) == ["1", "2", "3"], worked
    calls = (tmp_path / "notes").read_text().splitlines()
    assert len(calls) == len(set(calls)) == 60
    fresh = sessiontree.open(session.location)
    assert [lane.state for lane in find_exploration(fresh).lanes] == ["done"] * 3
    check_is_sound(fresh)


def test_a_process_whose_lane_was_taken_over_stops_and_the_other_continues(session: Session, tmp_path: Path) -> None:
    notes = tmp_path / "notes"

    async def main() -> tuple[list[str], str]:
        model, tools = Stepping(40, delay=0.01), Tools([Note(notes)])
        async with explore(session, prompts=["of lane-1."], models=[model], tools=tools) as exploration:
            count = 0
            async for one in exploration:
                count += type(one.event).__name__ == "ToolEnd"
                if count == 3:
                    break
            # Another machine believes that we are dead, and takes the lane over.
            other = sessiontree.open(session.location)
            state = find_exploration(other)
            theirs = msgspec.structs.replace(new_lease(), host="elsewhere", token="theirs")
            taken = write(Branch(other, state.lanes[0].leaf), theirs).id
            lanes = await exploration.finish()
        return [lane.state for lane in lanes] + [lanes[0].why], taken

    (state, why), taken = asyncio.run(main())
    assert (state, why) == ("lost", "another process is working on it")
    fresh = sessiontree.open(session.location)
    (lane,) = find_exploration(fresh).lanes
    assert lane.leaf == taken
    assert lane.state == "running"
    assert len(notes.read_text().splitlines()) <= 6


def beats_of(session: Session, start: str) -> list[Heartbeat]:
    """The heartbeats under the leases of a lane or plan."""
    found = [(session.parent(id), record) for id, record in iter_records(session)]
    tokens = {record.token for parent, record in found if isinstance(record, Lease) and parent == start}
    return [record for _, record in found if isinstance(record, Heartbeat) and record.token in tokens]


def test_only_silent_lanes_write_heartbeats(session: Session, tmp_path: Path) -> None:
    slow = Note(tmp_path / "notes", delay=0.7)
    exploration, _ = explored(session, "of lane-1.", models=[Stepping(1)], tools=Tools([slow]), lease_seconds=0.6)
    assert 2 <= len(beats_of(session, exploration.lanes[0].start)) <= 6
    assert 2 <= len(beats_of(session, exploration.plan_id)) <= 6, "who makes lanes lives, too"
    check_is_sound(session)
    quick = Tools([Note(tmp_path / "notes")])
    exploration, _ = explored(session, "of lane-1.", models=[Stepping(30, delay=0.02)], tools=quick, lease_seconds=0.6)
    assert not beats_of(session, exploration.lanes[0].start)


def test_a_heartbeat_during_calls_does_not_break_the_branch(session: Session, tmp_path: Path) -> None:
    tools = Tools([Note(tmp_path / "notes", delay=0.05)])
    explored(session, *PROMPTS, models=[Stepping(8, delay=0.03)], tools=tools, lease_seconds=0.06)
    (state,) = explorations(sessiontree.open(session.location))
    assert [lane.state for lane in state.lanes] == ["done"] * 3
    assert [len(messages) for messages in check_is_sound(session)] == [18] * 3


LOOK = """
import sys, sessiontree
from sessiontree.explore.state import find_exploration, is_active
state = find_exploration(session := sessiontree.open(sys.argv[1]))
print(*[lane.state for lane in state.lanes], is_active(session, state))
"""


def seen_elsewhere(session: Session) -> str:
    """The states of the lanes in another process, and whether any process works on the exploration."""
    return subprocess.run(
        [sys.executable, "-c", LOOK, session.location], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_a_lane_that_waits_for_a_slot_has_heartbeats(session: Session, tmp_path: Path) -> None:
    slow = Tools([Note(tmp_path / "notes", delay=20.0)])
    seen: list[str] = []

    async def main() -> None:
        async with explore(
            session, prompts=PROMPTS[:2], models=[Stepping(1)], tools=slow, parallel=1, lease_seconds=1.5
        ) as exploration:
            async for one in exploration:
                if one.lane == 1 and isinstance(one.event, ToolStart):
                    await asyncio.sleep(2.5)
                    seen.append(await asyncio.to_thread(seen_elsewhere, session))
                    exploration.stop()

    asyncio.run(main())
    assert seen == ["running running True"]


class Slow(LaneWorktrees):
    """LaneWorktrees that take long to create."""

    def make(self, run: str, number: int, like: Worktree | None = None) -> Worktree:
        self.before(number)
        return super().make(run, number, like)

    def before(self, number: int) -> None:
        time.sleep(1.0)


@pytest.mark.slow
def test_a_process_that_takes_long_to_create_worktrees_keeps_its_lease(tmp_path: Path) -> None:
    make_repository(tmp_path / "project")
    session = new_session(tmp_path)
    seen: list[str] = []

    class Seen(Slow):
        def before(self, number: int) -> None:
            super().before(number)
            if number == 3:
                seen.append(seen_elsewhere(session))

    worktrees = Seen(str(tmp_path / "home"), session.id, str(tmp_path / "project"))
    exploration, _ = explored(
        session, *PROMPTS, models=[Stepping(0)], tools=load_tools(), lease_seconds=1.5, lane_worktrees=worktrees
    )
    assert seen == ["running running True"]
    assert [lane.state for lane in exploration.lanes] == ["done"] * 3


def test_a_process_stops_creating_lanes_when_another_has_taken_over(tmp_path: Path) -> None:
    make_repository(tmp_path / "project")
    session = new_session(tmp_path)

    class Taken(Slow):
        def before(self, number: int) -> None:
            if number == 1:
                other = sessiontree.open(session.location)
                plan = find_exploration(other).plan_id
                log = ExplorationLog(other)
                log.refresh()
                write(Branch(other, log.tracked[plan].leaf), msgspec.structs.replace(new_lease(), token="other"))

    worktrees = Taken(str(tmp_path / "home"), session.id, str(tmp_path / "project"))
    with pytest.raises(ConflictError, match="another process is working on it"):
        explored(session, *PROMPTS, models=[Stepping(0)], tools=load_tools(), lane_worktrees=worktrees)
    assert [lane.state for lane in find_exploration(session).lanes] == ["lost"]


def test_a_decision_about_a_lane_that_changed_since_is_refused(session: Session) -> None:
    left(session)
    elsewhere = sessiontree.open(session.location)
    looked_at = find_exploration(elsewhere)

    async def go_on() -> None:
        async with resume(session, find_model=lambda _: Stepping(0), tools=Tools()) as exploration:
            await exploration.finish()

    asyncio.run(go_on())
    before = session.ids
    for decide in (
        lambda: keep(elsewhere, looked_at, 1, None),
        lambda: drop(elsewhere, looked_at, [1], None),
        lambda: merge(elsewhere, looked_at, [1, 2], None),
    ):
        with pytest.raises(ConflictError, match="changed in the meantime"):
            decide()
    assert sessiontree.open(session.location).ids == before
    keep(elsewhere, find_exploration(elsewhere), 1, None)


def test_a_lane_that_was_decided_about_is_not_taken_over(session: Session) -> None:
    left(session)
    state = find_exploration(session)
    drop(session, state, [1], None)

    async def go_on() -> list[Lane]:
        async with resume(session, find_model=lambda _: Stepping(0), tools=Tools()) as exploration:
            assert take_over(exploration, state.lanes[0].start) == (None, "")
            return await exploration.finish()

    assert [lane.state for lane in asyncio.run(go_on())] == ["lost", "done", "done"]


def test_a_verdict_that_came_too_late_is_reported_as_void(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    left(session)
    other = sessiontree.open(session.location)
    state = find_exploration(other)
    log = ExplorationLog(session)
    log.refresh()
    leaf = log.tracked[state.lanes[0].start].leaf

    def write_late(lane: Lane, *more: object) -> None:
        if lane.number == 1:  # another process takes it over just before
            write(Branch(session, leaf), msgspec.structs.replace(new_lease(), token="other"))
        write_verdict(lane, *more)  # type: ignore[arg-type]

    write_verdict = decisions._write_verdict
    monkeypatch.setattr(decisions, "_write_verdict", write_late)
    with pytest.raises(ConflictError, match="just resumed lane 1"):
        drop(other, state, [1], None)
    assert find_exploration(sessiontree.open(session.location)).lanes[0].verdict is None
