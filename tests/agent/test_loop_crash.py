"""The program is killed during a run, and the session is resumed: with real processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sessiontree
from sessiontree.agent.events import Failed
from sessiontree.agent.tool_calls import Answered, pending_calls, resolve_pending
from sessiontree.core.messages import message_text
from sessiontree.errors import UsageError
from sessiontree.models import ScriptedModel
from sessiontree.session.session import Session
from tests.agent.builders import Workplace, is_alive, pid_in, wait_for
from tests.agent.runs import check_is_sound, end_of, results, run_events, transcript, turn

CHILD = """
import asyncio, sys
import sessiontree
from sessiontree.agent.events import TextDelta
from sessiontree.agent.loop import run
from sessiontree.agent.tools.base import load_tools
from sessiontree.models import ScriptedModel
from sessiontree.models.scripted import parse_script

project, home, script = sys.argv[1:]
session = sessiontree.create(project, home=home)
session.set_config(approval_mode="yolo")
print(session.location, flush=True)

async def main():
    model = ScriptedModel(parse_script(script.encode()))
    async for event in run(session, "Go.", model=model, tools=load_tools()):
        if isinstance(event, TextDelta):
            print(event.text, flush=True)

asyncio.run(main())
"""
TOOLS = """{"turns": [{"text": "Both.", "toolCalls": [
  {"name": "bash", "arguments": {"command": "echo run >> count; echo $$ > pid; sleep 30"}},
  {"name": "write", "arguments": {"path": "made.txt", "content": "made"}}]}]}"""
STREAM = """{"turns": [{"text": "one two three four five six", "piece": 4, "delay": 0.3}]}"""


def killed(place: Workplace, script: str, ready: str) -> Session:
    """The session of a process that was killed once a condition was met."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(place.project), str(place.home), script], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    location = child.stdout.readline().strip()
    if ready == "stream":
        child.stdout.readline()
    else:
        pid_in(place.project / ready)
        wait_for(lambda: b"made.txt" in Path(location).read_bytes() and b"toolResult" in Path(location).read_bytes())
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    pid = place.project / "pid"
    if pid.exists():
        number = pid_in(pid)
        wait_for(lambda: not is_alive(number))  # what it had started goes with it
    place.session = sessiontree.open(location)
    return place.session


@pytest.fixture
def crashed(place: Workplace) -> Workplace:
    killed(place, TOOLS, "pid")
    return place


def test_a_call_without_a_result_is_found_and_nothing_is_run_automatically(crashed: Workplace) -> None:
    (waiting,) = pending_calls(crashed.session)
    assert waiting.call.name == "bash"
    before = Path(crashed.session.location).read_bytes()
    events = run_events(crashed, "Go on.", turn("Never."))
    assert end_of(events).reason == "pending"
    assert [event.kind for event in events if isinstance(event, Failed)] == ["PendingCalls"]
    assert Path(crashed.session.location).read_bytes() == before
    assert (crashed.project / "count").read_text() == "run\n"


def test_a_skipped_call_gets_a_result_that_states_what_is_unknown(crashed: Workplace) -> None:
    asyncio.run(resolve_pending(crashed.session, "skip"))
    assert pending_calls(crashed.session) == []
    assert "none was stored" in str(results(check_is_sound(crashed.session)))
    assert end_of(run_events(crashed, "Go on.", turn("Gladly."))).text == "Gladly."
    assert (crashed.project / "count").read_text() == "run\n"
    check_is_sound(crashed.session)


def test_a_call_can_be_answered_by_the_user_and_the_run_continues(crashed: Workplace) -> None:
    (waiting,) = pending_calls(crashed.session)
    decision = {waiting.call.id: Answered("it had slept enough")}
    model = ScriptedModel([turn("I see.")])
    events = run_events(crashed, None, model=model, pending=decision)
    assert end_of(events).text == "I see."
    assert message_text(model.requests[0].messages[-1]) == "it had slept enough"
    check_is_sound(crashed.session)


def test_a_call_is_run_again_only_on_request_and_with_a_new_approval(crashed: Workplace) -> None:
    crashed.session.set_config(approval_mode="default")
    (waiting,) = pending_calls(crashed.session)
    command = crashed.project / "bin"
    command.mkdir()
    (command / "sleep").write_text("#!/bin/sh\nexit 0\n")
    (command / "sleep").chmod(0o755)
    quick = {**crashed.context.environment, "PATH": f"{command}:{crashed.context.environment['PATH']}"}
    crashed.context = type(crashed.context)(crashed.workspace, quick, outputs=str(crashed.outputs))
    events = run_events(crashed, None, turn("It ran."), pending="run")
    assert [question.tool for question in crashed.answers.questions] == ["bash"]
    assert (crashed.project / "count").read_text() == "run\nrun\n"
    assert end_of(events).text == "It ran."
    assert not results(check_is_sound(crashed.session))[waiting.call.id].is_error


def test_a_decision_that_omits_a_call_does_nothing(crashed: Workplace) -> None:
    before = Path(crashed.session.location).read_bytes()
    with pytest.raises(UsageError, match="no decision for the call"):
        asyncio.run(resolve_pending(crashed.session, {}))
    with pytest.raises(UsageError, match="needs a ToolRunner"):
        asyncio.run(resolve_pending(crashed.session, "run"))
    assert Path(crashed.session.location).read_bytes() == before


def test_a_call_that_had_begun_to_change_files_is_recognized(place: Workplace) -> None:
    place.session.append("user", "Go.")
    calls = [{"type": "toolCall", "id": "c1", "name": "write", "arguments": {"path": "a", "content": "a"}}]
    place.session.append("assistant", calls, stopReason="toolUse")
    place.session.append({"type": "file_snapshot", "files": {}, "root": str(place.project), "call": "c1"})
    (waiting,) = pending_calls(place.session)
    assert waiting.had_begun
    asyncio.run(resolve_pending(place.session, "skip"))
    assert "had begun to change files" in str(results(place.session.context().messages))


def test_calls_followed_by_a_user_message_are_not_pending(place: Workplace) -> None:
    place.session.append("user", "Go.")
    place.session.append("assistant", [{"type": "toolCall", "id": "c1", "name": "ls", "arguments": {}}])
    place.session.append("user", "Never mind.")
    assert pending_calls(place.session) == []


def test_a_process_killed_during_an_answer_leaves_the_prompt_unanswered(place: Workplace) -> None:
    session = killed(place, STREAM, "stream")
    assert transcript(session) == [("user", "Go.")]
    assert pending_calls(session) == []
    assert end_of(run_events(place, None, turn("one two three"))).text == "one two three"
    check_is_sound(session)
