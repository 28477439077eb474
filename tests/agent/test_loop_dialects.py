"""Sessions of other agents are continued in place, in their own format."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import sessiontree
from sessiontree.agent.events import Event, ToolUpdate
from sessiontree.agent.live_context import live_context_of
from sessiontree.agent.tool_calls import pending_calls
from sessiontree.agent.tools.base import load_tools
from sessiontree.agent.tools.tool_table import runnable_call
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.entries import MessageEntry
from sessiontree.core.messages import Assistant, ToolCall, ToolResult, message_text, tool_calls
from sessiontree.models import ScriptedModel
from sessiontree.repair import examine
from sessiontree.session.session import Session
from tests.agent.builders import Workplace
from tests.agent.runs import call, collect_events, end_of, results, start_run, turn

DIALECTS = ["pi", "omp", "claude", "neovate"]


def foreign(place: Workplace, dialect: str) -> Session:
    place.session.append("user", "First")
    place.session.append("assistant", [{"type": "text", "text": "Yes."}], stopReason="stop", provider="a", model="m")
    out = str(place.project.parent / f"{dialect}.jsonl")
    carry_out(place.session, make_plan(place.session, Request(dialect, out=out))).close()
    opened = sessiontree.open(out)
    opened.set_config(approval_mode="yolo")
    return opened


def check(session: Session) -> dict[str, ToolResult]:
    session.flush()
    fresh = sessiontree.open(session.location)
    assert [finding for finding in examine(fresh) if finding.severity != "note"] == []
    assert fresh.pending_calls() == []
    assert list(fresh.context().messages) == list(live_context_of(session).messages())
    return results(fresh.context().messages)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_run_in_a_session_of_another_agent(place: Workplace, dialect: str) -> None:
    (place.project / "a.txt").write_text("alpha\n")
    session = foreign(place, dialect)
    calls = [call("read", path="a.txt"), call("bash", command="echo beta"), call("write", path="b", content="b")]
    model = ScriptedModel([turn("I look.", *calls, thinking="Hm."), turn("Seen.")])
    events = asyncio.run(collect_events(start_run(place, "Look.", at=session, model=model, checkpoints=None)))
    assert end_of(events).reason == "done"
    found = {message_text(result).split(" (")[0] for result in check(session).values()}
    assert found == {"alpha", "beta", "created b"}
    texts = [message_text(message) for message in session.context().messages if message.role in ("user", "assistant")]
    assert texts == ["First", "Yes.", "Look.", "I look.", "Seen."]
    assert [message_text(message) for message in model.requests[1].messages[:4]] == [
        "First",
        "Yes.",
        "Look.",
        "I look.",
    ]
    assert Path(place.project / "b").read_text() == "b"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_interrupt_in_a_session_of_another_agent(place: Workplace, dialect: str) -> None:
    session = foreign(place, dialect)
    script = turn("I wait.", call("bash", command="echo on; sleep 30"), call("ls", path="."))
    one = start_run(place, "Wait.", script, at=session, checkpoints=None)

    def on_event(event: Event) -> None:
        if isinstance(event, ToolUpdate):
            one.interrupt()

    events = asyncio.run(collect_events(one, on_event))
    assert end_of(events).reason == "interrupted"
    assert any("interrupted" in message_text(result) for result in check(session).values())


# The other clients leave out calls without a result, or complete them.
@pytest.mark.parametrize("dialect", ["pi", "claude"])
def test_a_pending_call_of_another_agent_is_run_with_the_tool_that_does_the_same(
    place: Workplace, dialect: str
) -> None:
    path = place.project / "a.txt"
    path.write_text("alpha\nbeta\n")
    edits = [{"oldText": "beta", "newText": "gamma"}]
    calls: list[dict[str, object]] = [
        {"id": "c1", "name": "read", "arguments": {"path": str(path), "offset": 2}},
        {"id": "c2", "name": "bash", "arguments": {"command": "echo here", "timeout": 5}},
        {"id": "c3", "name": "edit", "arguments": {"path": str(path), "edits": edits}},
    ]
    place.session.append("user", "Go.")
    blocks = [{"type": "toolCall", **one} for one in calls]
    place.session.append("assistant", blocks, stopReason="toolUse", provider="a", model="m")
    out = str(place.project.parent / f"{dialect}.jsonl")
    carry_out(place.session, make_plan(place.session, Request(dialect, out=out))).close()
    session = sessiontree.open(out)
    session.set_config(approval_mode="yolo")
    waiting = [pending.call for pending in pending_calls(session)]
    if dialect == "claude":
        assert [one.name for one in waiting] == ["Read", "Bash", "Edit"]
    model = ScriptedModel([turn("Done.")])
    events = asyncio.run(
        collect_events(start_run(place, None, at=session, model=model, checkpoints=None, pending="run"))
    )
    assert end_of(events).text == "Done."
    found = [message_text(check(session)[one.id]) for one in waiting]
    assert ("beta" in found[0], "alpha" in found[0], "here" in found[1]) == (True, False, True)
    assert path.read_text() == "alpha\ngamma\n"


def test_a_call_that_no_own_tool_can_do_is_not_runnable() -> None:
    tools = load_tools()
    in_background = ToolCall("c", "Bash", {"command": "sleep 9", "run_in_background": True})
    assert runnable_call(in_background, "claude", tools) is None
    assert runnable_call(ToolCall("c", "WebFetch", {"url": "x"}), "claude", tools) is None
    assert runnable_call(ToolCall("c", "Read", {"file_path": "a"}), "native", tools) is None
    ours = ToolCall("c", "edit", {"path": "a", "old_text": "x", "new_text": "y"})
    assert runnable_call(ours, "claude", tools) is ours


# oh-my-pi leaves out calls without a result.
@pytest.mark.parametrize("dialect", ["native", "pi", "claude", "neovate"])
def test_calls_with_results_on_another_branch_get_a_copy_of_them_and_are_not_pending(
    place: Workplace, dialect: str
) -> None:
    (place.project / "a.txt").write_text("alpha\n")
    session = place.session if dialect == "native" else foreign(place, dialect)
    session.set_config(approval_mode="yolo")
    model = ScriptedModel([turn("I look.", call("read", path="a.txt"), call("ls")), turn("Seen.")])
    asyncio.run(collect_events(start_run(place, "Look.", at=session, model=model, checkpoints=None)))
    answers = [
        entry.id
        for entry in session.path()
        if isinstance(entry, MessageEntry) and isinstance(entry.message, Assistant) and tool_calls(entry.message)
    ]
    (place.project / "a.txt").write_text("changed since\n")
    session.move(answers[-1])
    assert pending_calls(session) == []
    model = ScriptedModel([turn("As before.")])
    events = asyncio.run(collect_events(start_run(place, "Again?", at=session, model=model, checkpoints=None)))
    assert (end_of(events).reason, end_of(events).text) == ("done", "As before.")
    assert "alpha" in " ".join(message_text(result) for result in check(session).values())
