"""Sessions of other agents are continued in place, in their own format."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import sessiontree
from sessiontree.agent.events import Event, ToolUpdate
from sessiontree.agent.live_context import live_context_of
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.messages import ToolResult, message_text
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
    session.close()
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
