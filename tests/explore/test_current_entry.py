"""The current entry of a session while lanes and sub-agents run, after a kill, and at the end.

Real processes write and are killed; a process that opens the file afterwards finds the same current entry.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sessiontree
from sessiontree.agent.tools.base import Tools
from sessiontree.archive.truncate import truncate
from sessiontree.branches.leave import leave
from sessiontree.branches.subagent_branches import TASK
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.jsonio import render_json
from sessiontree.core.messages import message_text
from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.dialects.pi.encoder import BOOKKEEPING
from sessiontree.dialects.side_branches import STARTS
from sessiontree.explore import LaneEvent, resume
from sessiontree.explore.decisions import keep
from sessiontree.explore.events import LaneMade
from sessiontree.explore.records import PREFIX, LaneRecord, Plan
from sessiontree.explore.state import find_exploration
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import ScriptedModel
from sessiontree.plugins import load
from sessiontree.repair import examine
from sessiontree.session.journal import Journal
from sessiontree.session.session import Session
from sessiontree.stores.memory import MemoryStore
from tests.agent.runs import turn
from tests.archive.machine import home_of
from tests.explore.lanes import MINOR, explored, new_session

SHAPES = ["native", "pi", "omp"]
PROMPTS = ["of lane-1.", "of lane-2."]

CHILD = """
import asyncio, sys
from pathlib import Path
import sessiontree
from sessiontree.agent.tools.base import Tools
from sessiontree.explore import explore
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import ScriptedModel
from tests.agent.runs import call, turn
from tests.explore.lanes import FACTS, Note, Stepping
from tests.explore.test_current_entry import PROMPTS

location, home, kind, at = sys.argv[1:]
session = sessiontree.open(location)
asks = turn("I ask.", call("task", description="d", prompt="look there", mode=kind))
slow = turn("Never.", when="look there", first_delay=60)
model = ScriptedModel([slow, slow, asks, asks], FACTS) if kind else Stepping(10**6, delay=0.01)
tools = Tools([TaskTool(home=home), Note(Path(home, "notes"))])
before = session.count("message")

async def main():
    where = {"at": at} if at else {}
    async with explore(session, prompts=PROMPTS, models=[model], tools=tools, worktrees=False, **where) as exploration:
        exploration._channel.unblock()
        while len(model.requests) < 4 if kind else session.count("message") < before + 12:
            await asyncio.sleep(0.01)
        print("working", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@contextmanager
def working(session: Session, tmp_path: Path, *, kind: str = "", at: str = "") -> Iterator[None]:
    """Another process runs two lanes that have messages and wait for answers; it is killed at the end."""
    session.flush()
    command = [sys.executable, "-c", CHILD, session.location, str(tmp_path / "home"), kind, at]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "working\n", child.communicate()
        yield
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()


def command(tmp_path: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "sessiontree", *arguments],
        env={**os.environ, "SESSIONTREE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def fresh(session: Session) -> Session:
    return sessiontree.open(session.location)


def texts(session: Session, leaf: str | None = None) -> list[str]:
    return [message_text(message) for message in session.context(leaf).messages]


def resumed(session: Session, tmp_path: Path, *turns: Any) -> list[Any]:
    """Resume the exploration to its end; returns the requests to its model."""
    model = ScriptedModel([*turns] or [turn("Done now.")] * 4)

    async def main() -> None:
        tools = Tools([TaskTool(home=str(tmp_path / "home"))])
        async with resume(session, find_model=lambda _: model, tools=tools) as exploration:
            await exploration.finish()

    asyncio.run(main())
    return model.requests


BEGAN = ["Where we begin.", "Understood."]


def test_the_types_of_side_branches_are_those_that_are_written() -> None:
    assert {PREFIX + Plan.kind, PREFIX + LaneRecord.kind, TASK} == STARTS


@pytest.mark.parametrize("dialect", SHAPES)
def test_messages_of_other_processes_follow_the_current_entry_not_a_lane(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    leaf_before = fresh(session).leaf
    with working(session, tmp_path):
        assert fresh(session).leaf == leaf_before
        command(tmp_path, "append", session.location, "user", "meanwhile")
        assert texts(fresh(session)) == [*BEGAN, "meanwhile"]
        command(tmp_path, "rename", session.location, "Named meanwhile")
    command(tmp_path, "append", session.location, "user", "afterwards")
    now = fresh(session)
    assert texts(now) == [*BEGAN, "meanwhile", "afterwards"]
    assert now.name == "Named meanwhile"
    assert not [finding for finding in examine(now) if finding.severity not in MINOR]
    for lane in find_exploration(now).lanes:
        assert "meanwhile" not in texts(now, lane.leaf)
    asked = resumed(now, tmp_path)
    assert asked, "a lane continues from its last entry"
    for request in asked:
        assert not {"meanwhile", "afterwards"} & {message_text(message) for message in request.messages}
    assert texts(fresh(session)) == [*BEGAN, "meanwhile", "afterwards"]
    fresh(session).append("user", "at the end")
    assert texts(fresh(session)) == [*BEGAN, "meanwhile", "afterwards", "at the end"]


@pytest.mark.parametrize("dialect", SHAPES)
def test_after_a_kill_another_exploration_begins_at_the_current_entry(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    with working(session, tmp_path):
        pass
    now = fresh(session)
    leaf_before = now.leaf
    assert texts(now) == BEGAN
    assert leaf_before in command(tmp_path, "info", "--json", now.location)
    second, _ = explored(now, *PROMPTS)
    assert second.plan.at == leaf_before
    for lane in second.lanes:
        assert texts(now, lane.leaf)[:2] == BEGAN
        assert len(texts(now, lane.leaf)) == 4, "nothing of the first exploration"
    assert texts(fresh(session)) == BEGAN


def test_an_exploration_at_another_entry_does_not_move_the_session(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    first = session.ids[1]
    leaf_before = session.leaf
    with working(session, tmp_path, at=first):
        assert fresh(session).leaf == leaf_before
    assert fresh(session).leaf == leaf_before


@pytest.mark.parametrize("dialect", [*SHAPES, "nothing"])
def test_an_exploration_of_an_empty_session_keeps_its_current_entry(tmp_path: Path, dialect: str) -> None:
    is_empty = dialect == "nothing"
    session = new_session(tmp_path, prompt=None, appear="now") if is_empty else new_session(tmp_path, dialect=dialect)
    if not is_empty:
        session.reset()
    with working(session, tmp_path):
        assert texts(fresh(session)) == []
        command(tmp_path, "append", session.location, "user", "first")
    assert texts(fresh(session)) == ["first"]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", SHAPES)
def test_after_a_lane_was_kept_messages_continue_on_it(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    with working(session, tmp_path):
        pass
    now = fresh(session)
    resumed(now, tmp_path)
    decided = keep(now, find_exploration(now), 1, None)
    now.flush()
    assert texts(fresh(session)) == texts(now, decided.leaf)
    assert texts(fresh(session))[2] == PROMPTS[0]
    command(tmp_path, "append", session.location, "user", "good, go on")
    command(tmp_path, "append", session.location, "assistant", "Yes.")
    now = fresh(session)
    assert texts(now)[-2:] == ["good, go on", "Yes."]
    assert texts(now)[2] == PROMPTS[0]
    with working(now, tmp_path):  # and again from there
        assert texts(fresh(session))[-1] == "Yes."
        command(tmp_path, "append", session.location, "user", "meanwhile")
    assert texts(fresh(session))[-2:] == ["Yes.", "meanwhile"]
    fresh(session).move(session.ids[1])
    lane = find_exploration(fresh(session)).lanes[0]
    fresh(session).branch(lane.leaf).append("user", "said in a lane")
    assert "said in a lane" not in texts(fresh(session))


@pytest.mark.parametrize("dialect", ["native", "omp"])
def test_the_branch_of_a_sub_agent_is_a_side_branch(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    with working(session, tmp_path, kind="branch"):
        assert [id for id in fresh(session).ids if fresh(session).type_of(id) == "reset_boundary"]
        assert texts(fresh(session)) == BEGAN
    command(tmp_path, "append", session.location, "user", "afterwards")
    assert texts(fresh(session)) == [*BEGAN, "afterwards"]


@pytest.mark.parametrize("dialect", SHAPES)
def test_a_sub_agent_with_a_session_of_its_own_is_at_its_end(tmp_path: Path, dialect: str) -> None:
    session = new_session(tmp_path, dialect=dialect)
    with working(session, tmp_path, kind="session"):
        pass
    files = [path for path in tmp_path.rglob("*.jsonl") if path != Path(session.location)]
    linked = [sessiontree.open(path) for path in files if TASK in path.read_text()]
    assert len(linked) == 2
    for one in linked:
        assert texts(one) == ["look there"]
        one.append("assistant", [{"type": "text", "text": "I see."}], stopReason="stop")
        assert texts(fresh(one)) == ["look there", "I see."]
    assert texts(fresh(session)) == BEGAN


# What goes into a side branch by choice, and worktrees of it


@pytest.fixture(params=SHAPES)
def explored_one(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Session, str]:
    """A session with two lanes that have ended, and the last entry of the second."""
    session = new_session(tmp_path, dialect=request.param)
    exploration, _ = explored(session, *PROMPTS)
    leaf = exploration.lane(2).leaf
    assert leaf is not None
    return session, leaf


def test_a_fork_of_a_lane_is_at_its_end(explored_one: tuple[Session, str], tmp_path: Path) -> None:
    session, lane = explored_one
    forked = session.fork(lane)
    assert texts(fresh(forked)) == texts(session, lane)
    forked.append("user", "on")
    assert texts(fresh(forked)) == [*texts(session, lane), "on"]


@pytest.mark.parametrize("to", SHAPES)
@pytest.mark.parametrize("branches", ["active", "all"])
def test_a_converted_session_has_the_same_current_entry(
    explored_one: tuple[Session, str], tmp_path: Path, to: str, branches: Any
) -> None:
    session, lane = explored_one
    for number, leaf in enumerate((session.leaf, lane)):
        session.move(leaf)
        request = Request(to, out=str(tmp_path / f"{number}.jsonl"), branch=branches)
        converted = carry_out(session, make_plan(session, request))
        assert texts(fresh(converted)) == texts(session, leaf)


def test_switching_to_a_lane_with_a_summary_moves_there(explored_one: tuple[Session, str]) -> None:
    session, lane = explored_one
    session.append("user", "said elsewhere")
    session.append("assistant", [{"type": "text", "text": "so it is"}], stopReason="stop")
    left = leave(session, lane)
    assert left.entry is not None
    assert left.entry in fresh(session).path_ids()
    fresh(session).append("user", "on")
    assert texts(fresh(session))[-1] == "on"
    assert texts(fresh(session))[2] == PROMPTS[1]


def test_a_kept_lane_can_be_reduced_to_its_tail(explored_one: tuple[Session, str], tmp_path: Path) -> None:
    session, lane = explored_one
    session.move(lane)
    for _ in range(20):
        session.append("user", "some words " * 100)
        session.append("assistant", [{"type": "text", "text": "so it is"}], stopReason="stop")
    session.close()
    kept = tmp_path / "home" / "sessions" / "kept.jsonl"
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(Path(session.location).read_bytes())
    before = sessiontree.open(kept)
    plan, item = truncate(home_of(tmp_path).archive, before, min_size=0, tail_size=5_000)
    assert item is not None
    assert plan.after < plan.before
    assert fresh(before).leaf == before.leaf


def test_a_move_of_a_lane_moves_the_lane_alone(explored_one: tuple[Session, str]) -> None:
    session, lane = explored_one
    leaf_before = fresh(session).leaf
    branch = session.branch(lane)
    branch.move(session.path_ids(lane)[-2])
    assert fresh(session).leaf == leaf_before
    session.move(lane)
    branch.move(session.path_ids(lane)[-2])
    assert session.path_ids(lane)[-2] in fresh(session).path_ids()
    assert lane not in fresh(session).path_ids()


def test_entries_of_other_processes_in_lanes_do_not_move_the_current_entry(explored_one: tuple[Session, str]) -> None:
    session, lane = explored_one
    window = fresh(session)
    leaf_before = window.leaf
    session.branch(lane).append("user", "in a lane")
    assert window.refresh()
    assert window.leaf == leaf_before == fresh(session).leaf
    window.label(lane, "good")
    window.rename("called so")
    assert texts(window) == texts(fresh(session)) == BEGAN


# The rule, and its simplest implementation


def by_the_book(dialect: str, lines: list[dict[str, Any]]) -> str | None:
    """The current entry of a file, derived entry by entry."""
    entry_of = {line["id"]: line for line in lines}

    def path(id: str | None) -> list[dict[str, Any]]:
        found = []
        while id is not None:
            found.append(entry_of[id])
            id = entry_of[id]["parentId"]
        return found

    def starts(id: str | None) -> set[str]:
        return {
            line["id"]
            for line in path(id)
            if line.get("customType") in STARTS
            and (line["customType"] != TASK or any(above["type"] == "message" for above in path(line["parentId"])))
        }

    leaf = None
    for line in lines:
        if dialect == "native" and line["type"] in BOOKKEEPING:
            continue
        to = line["parentId"] if dialect == "native" and line["type"] == "leaf" else line["id"]
        is_said_of_session = line["type"] == "leaf" and not line.get("ofBranch")
        if is_said_of_session or starts(to) <= starts(leaf):
            leaf = to
    return leaf


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["message"] * 4 + ["custom", "leaf", "leaf of a branch", "label", *sorted(STARTS)]),
        st.one_of(st.just(-1), st.just(-1), st.integers(0, 60)),
    ),
    max_size=40,
)


@given(st.sampled_from(SHAPES), STEPS)
def test_the_current_entry_follows_the_documented_rule(dialect: str, steps: list[tuple[str, int]]) -> None:
    lines: list[dict[str, Any]] = []
    for number, (kind, behind) in enumerate(steps):
        # Behind the last one, or behind any other; number 0 is a root.
        parents = [None, *(line["id"] for line in lines)]
        parent = parents[behind % len(parents)]
        line: dict[str, Any] = {"type": kind, "id": f"{number:08x}", "parentId": parent, "timestamp": "2026-01-01"}
        if kind == "message":
            line["message"] = {"role": "user", "content": "sessiontree.task is a word like any other"}
        elif kind.startswith("leaf"):
            line |= {"type": "leaf", "targetId": parent} | ({"ofBranch": True} if kind != "leaf" else {})
        elif kind in STARTS or kind == "custom":
            named = {"customType": kind} if kind in STARTS else {"customType": "other", "data": f"{sorted(STARTS)}"}
            line |= {"type": "custom", **named}
        lines.append(line)
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01", "cwd": "/"}
    data = b"".join(render_json(line) + b"\n" for line in [header, *lines])
    shape = load("dialects", dialect)
    whole = Journal(MemoryStore(data), shape)
    whole.refresh()
    grown = Journal(MemoryStore(render_json(header) + b"\n"), shape)
    grown.refresh()
    for end in range(1, len(lines) + 1):
        grown.store.append(render_json(lines[end - 1]) + b"\n", expected_size=grown.store.size())
        grown.refresh()
        leaf = shape.find_leaf(grown, AS_CLIENT)
        assert (None if leaf is None else grown.tree.ids[leaf]) == by_the_book(dialect, lines[:end])
    leaf = shape.find_leaf(whole, AS_CLIENT)
    assert (None if leaf is None else whole.tree.ids[leaf]) == by_the_book(dialect, lines)


def test_entries_of_another_process_during_a_run_remain_current_afterwards(tmp_path: Path) -> None:
    session = new_session(tmp_path)

    def speak(one: LaneEvent) -> None:
        if isinstance(one.event, LaneMade):
            with sessiontree.open(session.location) as other:
                other.append("user", "meanwhile")

    explored(session, "of lane-1.", handle=speak)
    session.close()
    last = sessiontree.open(session.location).context().messages[-1]
    assert message_text(last) == "meanwhile"
