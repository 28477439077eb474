"""Explorations are killed at random moments and resumed: nothing is lost, and nothing is done twice.

Real processes and, for the second test, real git worktrees. `SESSIONTREE_KILLS=500` kills more often than usual.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sessiontree
from sessiontree.core.messages import Message, ToolResult, message_text, tool_calls
from sessiontree.explore import explorations
from sessiontree.explore.decisions import leave
from sessiontree.explore.state import find_exploration
from sessiontree.explore.worktrees import LaneWorktrees
from sessiontree.session.session import Session
from tests.builders import THOROUGH
from tests.explore.lanes import check_is_sound, check_no_message_is_lost, new_session
from tests.explore.repos import git, make_repository

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("SESSIONTREE_KILLS", "12" if THOROUGH else "4"))
LANES = 6
STEPS = 30 * KILLS

CHILD = """
import asyncio, sys
from pathlib import Path
import sessiontree
from sessiontree.agent.tools.base import Tools
from sessiontree.errors import NotFoundError
from sessiontree.explore import explore, resume
from sessiontree.explore.state import find_exploration
from tests.explore.lanes import Note, Stepping

location, notes, lanes, steps, worktrees = sys.argv[1:]
session = sessiontree.open(location)
model = Stepping(int(steps), delay=0.004)
tools = Tools([Note(Path(notes), delay=0.004)])

async def main():
    print("go", flush=True)
    try:
        find_exploration(session)
        begun = resume(session, find_model=lambda name: model, tools=tools, keep_worktrees=True)
    except NotFoundError:
        prompts = [f"of lane-{number}." for number in range(1, int(lanes) + 1)]
        begun = explore(
            session,
            prompts=prompts,
            models=[model],
            tools=tools,
            parallel=int(lanes),
            worktrees=worktrees == "yes",
            keep_worktrees=True,  # on a slow machine every child may be killed before it has begun
        )
    async with begun as exploration:
        await exploration.finish()
    print("over", flush=True)

asyncio.run(main())
"""


def killed_and_resumed(session: Session, notes: str, lanes: int, steps: int, kills: int, longest: float) -> int:
    """Run an exploration in child processes that are killed one after another; returns how many were killed."""
    draw = random.Random(f"{session.id} {time.time_ns()}")
    session.close()
    command = [sys.executable, "-c", CHILD, session.location, notes, str(lanes), str(steps), "yes" if not notes else ""]
    died, before = 0, b""
    while True:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "go\n", child.communicate()
        if died < kills:
            time.sleep(draw.uniform(0, longest))
            child.send_signal(signal.SIGKILL)
        out, errors = child.communicate(timeout=120)
        data = Path(session.location).read_bytes()
        assert data.startswith(before), "what was written was changed"
        before = data
        if child.returncode != -signal.SIGKILL:
            assert (child.returncode, out) == (0, "over\n"), errors
            return died
        died += 1


def check_no_call_was_made_twice(notes: list[str], lanes: list[list[Message]]) -> int:
    """Check that each call is in the notes once or its result is "unknown"; returns how many are unknown."""
    assert len(notes) == len(set(notes)), "a call was made twice"
    lost = 0
    for messages in lanes:
        results = {message.tool_call_id: message for message in messages if isinstance(message, ToolResult)}
        for call in (call for message in messages for call in tool_calls(message)):
            text = message_text(results[call.id])
            lost += "was lost" in text
            assert "was lost" in text or (text.startswith("noted") and call.id in notes), text
    return lost


def test_lanes_continue_however_often_the_process_is_killed(tmp_path: Path) -> None:
    session, notes = new_session(tmp_path), tmp_path / "notes"
    leaf_before = session.leaf
    died = killed_and_resumed(session, str(notes), LANES, STEPS, KILLS, 0.3)
    assert died == KILLS, "the run ended too soon to be killed so often"
    fresh = sessiontree.open(session.location)
    (state,) = explorations(fresh)
    assert [(lane.number, lane.state) for lane in state.lanes] == [(n, "done") for n in range(1, LANES + 1)]
    assert {lane.spent.turns for lane in state.lanes} == {STEPS + 1}
    messages = check_is_sound(fresh, killed=True)
    check_no_message_is_lost(fresh)
    assert [len(one) for one in messages] == [2 * STEPS + 2] * LANES
    lost = check_no_call_was_made_twice(notes.read_text().splitlines(), messages)
    assert lost <= died * LANES
    assert fresh.leaf == leaf_before


def test_worktrees_and_their_files_survive_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSIONTREE_HOME", str(tmp_path / "home"))
    project = make_repository(tmp_path / "project")
    (project / "uncommitted.txt").write_text("not committed\n")
    session = new_session(tmp_path)
    kills = max(KILLS // 2, 6)
    died = killed_and_resumed(session, "", 3, 50 * kills, kills, 0.5)
    assert died == kills, "the run ended too soon to be killed so often"
    fresh = sessiontree.open(session.location)
    state = find_exploration(fresh)
    assert [(lane.number, lane.state) for lane in state.lanes] == [(n, "done") for n in (1, 2, 3)]
    messages = check_is_sound(fresh, killed=True)
    check_no_message_is_lost(fresh)
    worktrees = LaneWorktrees(str(tmp_path / "home"), fresh.id, fresh.cwd)
    known = [lane.worktree for lane in state.lanes if lane.worktree is not None]
    assert worktrees.find_orphans(known) == []
    assert len(git(project, "worktree", "list").splitlines()) == 4
    for lane, own in zip(state.lanes, messages, strict=True):
        assert lane.worktree is not None
        notes = Path(lane.worktree.path, "notes").read_text().splitlines()
        assert all(f"of {lane.name}." in note for note in notes)
        check_no_call_was_made_twice(notes, [own])
        assert Path(lane.worktree.path, "uncommitted.txt").read_text() == "not committed\n"
        assert git(project, "show", f"{lane.saved}:notes").splitlines() == notes
    leave(fresh, state, worktrees)
    assert len(git(project, "worktree", "list").splitlines()) == 1
    for lane in state.lanes:
        assert lane.worktree is not None
        assert not Path(lane.worktree.path).exists()
        assert "uncommitted.txt" in git(project, "ls-tree", "--name-only", lane.worktree.ref)
    assert (project / "uncommitted.txt").read_text() == "not committed\n"
