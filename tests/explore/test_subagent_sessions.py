"""Sub-agents in their own sessions: after a kill, the repeated call continues there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sessiontree
from sessiontree.agent.loop import run
from sessiontree.agent.tool_calls import pending_calls
from sessiontree.agent.tools.base import load_tools
from sessiontree.branches.subagent_branches import subagent_at
from sessiontree.branches.subagent_sessions import find_subagent_session
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.messages import message_text
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import ScriptedModel
from sessiontree.models.scripted import ScriptCall
from sessiontree.session.session import Session
from tests.agent.builders import Workplace, pid_in
from tests.agent.runs import turn

BEGUN = """
import asyncio, sys
import sessiontree
from sessiontree.agent.loop import run
from sessiontree.agent.workspace import Workspace
from sessiontree.agent.tools.base import ToolContext
from sessiontree.agent.tools.base import load_tools
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import ScriptedModel
from sessiontree.models.scripted import parse_script

location, home, script = sys.argv[1:]
tools = load_tools()
tools.add(TaskTool(home=home))
session = sessiontree.open(location, home=home)
session.set_config(approval_mode="yolo")
model = ScriptedModel(parse_script(script.encode()))
asyncio.run(run(session, "look at the parts", model=model, tools=tools).finish())
"""
SLEEPS = """{"turns": [
  {"when": "look at", "toolCalls": [
    {"name": "task", "arguments": {"description": "slow", "prompt": "wait long", "mode": "session"}}]},
  {"when": "wait long", "text": "I wait.", "toolCalls": [
    {"name": "bash", "arguments": {"command": "echo $$ > ready; exec sleep 60"}}]}
]}"""


def caller_in(tmp_path: Path, dialect: str) -> Session:
    """A session with messages, in which every call is approved."""
    place = Workplace(tmp_path)
    place.session.append("user", "hello")
    place.session.append(role="assistant", content="hello")
    session = place.session
    if dialect != "native":
        out = str(tmp_path / "theirs" / f"{dialect}.jsonl")
        os.makedirs(os.path.dirname(out))
        session = carry_out(session, make_plan(session, Request(dialect, at=session.leaf, out=out)))
    session.set_config(approval_mode="yolo")
    session.close()
    return sessiontree.open(session.location, home=tmp_path / "home")


def sessions_for(caller: Session, *folders: Path) -> list[Session]:
    """The sessions of a session's sub-agents, in all folders."""
    files = [path for folder in folders for path in folder.rglob("*.jsonl") if str(path) != caller.location]
    opened = [sessiontree.open(path) for path in files]
    return [one for one in opened if any((at := subagent_at(one, id)) and at.session == caller.id for id in one.ids)]


@pytest.mark.parametrize("dialect", ["native", "pi", "claude", "neovate"])
def test_a_repeated_call_continues_the_session_it_had_started(tmp_path: Path, dialect: str) -> None:
    home = tmp_path / "home"
    caller = caller_in(tmp_path, dialect)
    command = [sys.executable, "-c", BEGUN, caller.location, str(home), SLEEPS]
    project = tmp_path / "project"
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(command, cwd=project, env=around, start_new_session=True)  # Neovate's files name no folder
    sleeping = pid_in(project / "ready")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with contextlib.suppress(ProcessLookupError):  # the death of the child may have ended it
        os.kill(sleeping, signal.SIGKILL)

    caller = sessiontree.open(caller.location, home=home)
    assert [one.call.name for one in pending_calls(caller)] == ["task"]
    (before,) = sessions_for(caller, tmp_path)
    tools = load_tools()
    tools.add(TaskTool(home=str(home)))
    model = ScriptedModel([turn("Waited.", when="lost"), turn("all done", when="Waited.")])
    end = asyncio.run(run(caller, None, model=model, tools=tools, pending="run").finish())
    assert (end.reason, end.text) == ("done", "all done"), end.why
    (after,) = sessions_for(caller, tmp_path)
    assert after.id == before.id
    texts = [message_text(message) for message in after.context().messages]
    assert (texts[:2], texts[-1]) == (["wait long", "I wait."], "Waited.")
    assert message_text(model.requests[0].messages[0]) == "wait long"
    assert "wait long" not in [message_text(message) for message in model.requests[-1].messages]


def test_a_session_of_another_call_is_not_continued(tmp_path: Path) -> None:
    caller = caller_in(tmp_path, "native")
    asks = ScriptCall("task", {"description": "d", "prompt": "a part", "mode": "session"}, id="call_0")
    ends = turn("A part is done.", when="a part", repeat=True)
    model = ScriptedModel([turn(None, asks, when="first"), turn(None, asks, when="second"), ends, turn("end")])
    tools = [TaskTool(home=str(tmp_path / "home"))]
    for prompt in ("first", "second"):  # both calls have the same id, as some servers give them
        asyncio.run(run(caller, prompt, model=model, tools=tools).finish())
    assert len(sessions_for(caller, tmp_path)) == 2
    assert caller.leaf is not None
    assert find_subagent_session(caller, caller.leaf, "no such call", str(tmp_path / "home")) is None
