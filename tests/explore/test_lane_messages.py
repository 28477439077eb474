"""Messages between lanes: they arrive once, survive a kill, and do not restart lanes that have ended."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import sessiontree
from sessiontree.agent.events import ToolEnd
from sessiontree.agent.tools.base import Tools
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.entries import CustomMessage
from sessiontree.core.messages import CustomText, message_text
from sessiontree.explore import Exploration, LaneEvent, explore, resume
from sessiontree.explore.events import Delivered
from sessiontree.explore.lane_messages import MAX_SENDS, MAX_TEXT
from sessiontree.explore.records import INBOX, SentMessage, iter_records
from sessiontree.explore.task_tool import TaskTool
from sessiontree.models import ScriptedModel, ScriptTurn
from sessiontree.repair import examine
from sessiontree.session.session import Session
from tests.agent.builders import child_process, is_alive, pid_in, wait_for
from tests.agent.runs import call, turn
from tests.explore.lanes import new_session


def talked(session: Session, *scripts: list[ScriptTurn], **more: Any) -> tuple[Exploration, list[LaneEvent], list[Any]]:
    """Run lanes with scripts that can send messages; returns the exploration, its events and the models."""
    models = [ScriptedModel(script) for script in scripts]
    more.setdefault("names", ["ann", "bob", "eve"][: len(scripts)])
    more.setdefault("tools", Tools())

    async def main() -> tuple[Exploration, list[LaneEvent]]:
        prompts = [f"work of {number}" for number in range(1, len(scripts) + 1)]
        async with explore(session, prompts=prompts, models=models, **more) as exploration:
            events = [event async for event in exploration]
        return exploration, events

    exploration, events = asyncio.run(main())
    bad = [finding for finding in examine(sessiontree.open(session.location)) if finding.severity != "note"]
    assert not bad, bad
    return exploration, events, models


def inbox_of(session: Session, exploration: Exploration, lane: int) -> list[CustomMessage]:
    found = session.path(exploration.lane(lane).leaf)
    return [entry for entry in found if isinstance(entry, CustomMessage) and entry.custom_type == INBOX]


def outputs(events: list[LaneEvent], lane: int) -> list[str]:
    return [one.event.output.text for one in events if one.lane == lane and isinstance(one.event, ToolEnd)]


def waits(seconds: float = 10.0) -> ScriptTurn:
    return turn(None, call("inbox", wait=seconds))


def sends(**what: str) -> ScriptTurn:
    """Send a message after the other lanes' first requests, so that those do not contain it."""
    return turn(None, call("send", **what), first_delay=0.15)


def test_a_message_is_part_of_the_next_request_and_names_its_sender(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, events, (_, bob) = talked(
        session,
        [sends(to="bob", text="the bug is in words.py"), turn("done")],
        [waits(), turn("I know.", when="words.py")],
    )
    assert exploration.lane("bob").text == "I know."
    last = bob.requests[-1].messages
    assert isinstance(last[-1], CustomText)
    assert "'ann', which is another agent, not the user" in message_text(last[-1])
    assert last[-2].role == "toolResult"
    (entry,) = inbox_of(session, exploration, 2)
    ((sent, record),) = [(id, one) for id, one in iter_records(session) if isinstance(one, SentMessage)]
    assert record.to == "bob"
    assert entry.details == {"from": 1, "name": "ann", "send": sent}
    assert [(one.lane, one.event.sender) for one in events if isinstance(one.event, Delivered)] == [(2, "ann")]
    assert outputs(events, 1) == ["sent to bob"]
    assert "New messages: 1, they follow." in outputs(events, 2)[0]


def test_the_sender_s_own_context_contains_only_the_call(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, _, (ann, _) = talked(
        session,
        [sends(to="2", text="hello"), waits(0), turn("done")],
        [waits(), turn("I know.", when="hello")],
    )
    assert not inbox_of(session, exploration, 1)
    assert all(not isinstance(message, CustomText) for message in ann.requests[-1].messages)


def test_a_message_to_all_is_delivered_once_to_each_other_lane(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, events, _ = talked(
        session,
        [sends(to="*", text="stop looking"), waits(0), waits(0), turn("done")],
        [waits(), waits(0), turn("b")],
        [waits(), waits(0), turn("c")],
    )
    assert [len(inbox_of(session, exploration, lane)) for lane in (1, 2, 3)] == [0, 1, 1]
    assert outputs(events, 1)[0] == "sent to bob, eve"
    assert "Earlier messages: 1.\n  from ann: stop looking" in outputs(events, 2)[1]


def test_lanes_answer_each_other(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, _, _ = talked(
        session,
        [sends(to="bob", text="which port?"), waits(), turn("thanks", when="8080")],
        [waits(), turn(None, call("send", to="ann", text="port 8080"), when="which port?"), turn("said")],
    )
    assert [lane.text for lane in exploration.lanes] == ["thanks", "said"]


def test_a_lane_that_ended_is_not_restarted_and_the_sender_is_notified(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, events, _ = talked(
        session,
        [waits(), turn(None, call("send", to="bob", text="late"), call("send", to="*", text="late")), turn("done")],
        [turn("at once")],
    )
    assert exploration.lane("bob").text == "at once"
    assert sorted(outputs(events, 1)[1:]) == [
        "send: no other lane is running; not sent",
        "send: the lane 'bob' has ended (done); not sent",
    ]
    assert not [one for _, one in iter_records(session) if isinstance(one, SentMessage)]


def test_the_sender_is_notified_once_of_an_unread_message(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, events, (ann, _) = talked(
        session,
        [
            turn(None, call("send", to="bob", text="too late for you"), first_delay=0.2),  # by then bob is asking
            waits(),
            turn(None, call("nothing")),
            turn("Then I do it myself."),
        ],
        [turn("I am done.", first_delay=0.5)],
    )
    assert outputs(events, 1)[0] == "sent to bob"
    assert not inbox_of(session, exploration, 2)
    (notice,) = inbox_of(session, exploration, 1)
    assert notice.content == "[The lane 'bob' ended before it read your message: too late for you]"
    assert [message.role for message in ann.requests[-1].messages].count("custom") == 1
    assert not [one for one in events if isinstance(one.event, Delivered)]


def test_waiting_ends_when_no_lane_is_left_that_could_send(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, events, _ = talked(session, [waits(300), turn("alone")], [turn("at once", first_delay=0.2)])
    assert exploration.lane("ann").text == "alone"
    assert "New messages: 0." in outputs(events, 1)[0]
    assert "2 bob: done; work of 2" in outputs(events, 1)[0]


@pytest.mark.parametrize(
    ("to", "text", "error"),
    [
        ("nobody", "x", "no lane 'nobody'; lanes: 1 (ann), 2 (bob)"),
        ("ann", "x", "that is your own lane"),
        ("bob", "x" * (MAX_TEXT + 1), "Expected `str` of length <= 8000"),
        ("bob", "", "Expected `str` of length >= 1"),
    ],
)
def test_messages_that_cannot_be_sent_are_reported(tmp_path: Path, to: str, text: str, error: str) -> None:
    session = new_session(tmp_path)
    _, events, _ = talked(session, [sends(to=to, text=text), turn("done")], [waits(1), turn("b")])
    assert error in outputs(events, 1)[0]
    assert not [one for _, one in iter_records(session) if isinstance(one, SentMessage)]


def test_the_number_of_messages_of_a_lane_is_limited(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    flood = [call("send", to="bob", text=f"{number}") for number in range(MAX_SENDS)]
    _, events, _ = talked(
        session,
        [turn(None, *flood), turn(None, call("send", to="bob", text="one more")), turn("done")],
        [waits(), waits(), turn("b", repeat=True)],
    )
    assert "the limit of 200 messages" in outputs(events, 1)[-1]


def test_messages_work_in_pi_sessions(tmp_path: Path) -> None:
    native = new_session(tmp_path)
    out = str(tmp_path / "pi.jsonl")
    session = carry_out(native, make_plan(native, Request("pi", at=native.leaf, out=out)))
    exploration, _, _ = talked(
        session,
        [sends(to="bob", text="hello"), turn("done")],
        [waits(), waits(0), turn("I know.")],
    )
    assert len(inbox_of(session, exploration, 2)) == 1


def test_a_sub_agent_sends_and_receives_no_messages_and_its_lane_receives_them_between_steps(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    exploration, _, (_, bob) = talked(
        session,
        [turn(None, call("send", to="bob", text="hello"), first_delay=0.1), turn("done")],
        [
            turn(None, call("task", description="slow", prompt="take your time"), when="work of"),
            turn(None, call("nothing"), when="take your time", first_delay=0.3),
            turn("slept", when="no tool is named"),
            turn("I know.", when="hello"),
        ],
        tools=Tools([TaskTool()]),
    )
    assert exploration.lane("bob").text == "I know."
    asked_of_sub = bob.requests[2].messages
    assert "hello" not in "".join(map(message_text, asked_of_sub))
    assert bob.requests[1].tools == []
    roles = [message.role for message in bob.requests[-1].messages]
    assert roles[-3:] == ["assistant", "toolResult", "custom"]


KILLED = """
import asyncio, sys
import sessiontree
from sessiontree.agent.tools.base import load_tools
from sessiontree.explore import explore
from sessiontree.explore.lane_messages import LaneMessages
from sessiontree.models import ScriptedModel
from sessiontree.models.scripted import parse_script

async def main():
    session = sessiontree.open(sys.argv[1])
    session.set_config(approval_mode="yolo")  # opening a file grants nothing
    models = [ScriptedModel(parse_script(script.encode())) for script in sys.argv[2:]]
    async with explore(session, prompts=["send", "sleep"], models=models, tools=load_tools(), names=["ann", "bob"],
                       hooks=[LaneMessages()], worktrees=False) as exploration:
        await exploration.finish()

asyncio.run(main())
"""
SENDS = """{"turns": [
  {"firstDelay": 0.3, "toolCalls": [{"name": "send", "arguments": {"to": "bob", "text": "the first"}},
                 {"name": "send", "arguments": {"to": "*", "text": "the second"}}]}, {"text": "done"}]}"""
SLEEPS = (
    """{"turns": [{"toolCalls": [{"name": "bash", "arguments": {"command": "echo $$ > ready; exec sleep 60"}}]}]}"""
)


def test_messages_undelivered_at_a_kill_are_delivered_once(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    session.close()
    with child_process([sys.executable, "-c", KILLED, session.location, SENDS, SLEEPS]):
        sleeping = pid_in(tmp_path / "project" / "ready")
        wait_for(lambda: Path(session.location).read_text().count("sessiontree.explore.end"), 30)
    wait_for(lambda: not is_alive(sleeping))

    def resumed(*turns: ScriptTurn) -> tuple[Exploration, list[LaneEvent], ScriptedModel, Session]:
        model = ScriptedModel(turns)
        again = sessiontree.open(session.location)

        async def main() -> tuple[Exploration, list[LaneEvent]]:
            events = []
            async with resume(again, find_model=lambda _: model, tools=Tools()) as exploration:
                async for event in exploration:
                    events.append(event)
                    if isinstance(event.event, ToolEnd):
                        break  # leave it in the middle once more
            return exploration, events

        return *asyncio.run(main()), model, again

    exploration, events, model, again = resumed(turn(None, call("nothing"), when="the second"))
    assert [one.event.text for one in events if isinstance(one.event, Delivered)] == ["the first", "the second"]
    assert [message.role for message in model.requests[0].messages][-3:] == ["toolResult", "custom", "custom"]
    assert len(inbox_of(again, exploration, 2)) == 2
    again.close()

    exploration, events, model, again = resumed(turn("now I am done"))
    assert exploration.lane("bob").text == "now I am done"
    assert not [one for one in events if isinstance(one.event, Delivered)]
    assert len(inbox_of(again, exploration, 2)) == 2
    assert not inbox_of(again, exploration, 1)
