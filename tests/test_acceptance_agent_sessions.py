"""Sessions of agents without a generator: removing our own data from a conversion leaves its conversation complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance.agent_sessions import AGENTS, without_our_data
from acceptance.sources import Dialect

import sessiontree
from sessiontree import Session
from sessiontree.conversion.install import Request, carry_out, make_plan
from sessiontree.core.messages import message_text
from sessiontree.dialects.passthrough import LEFT_OUT


def texts(session: Session) -> list[tuple[str, str]]:
    return [(message.role, message_text(message)) for message in session.context().messages]


def make_session() -> Session:
    """A session with settings, notes and snapshots between its messages, also between the results of two calls."""
    session = sessiontree.create(cwd="/p")
    session.append({"type": "model_change", "provider": "anthropic", "modelId": "claude-sonnet-4-5"})
    session.append("user", "Read both.")
    session.append({"type": "custom", "customType": "note", "data": 1})
    session.append({"type": "custom", "customType": LEFT_OUT})
    calls = [{"type": "toolCall", "id": id, "name": "read", "arguments": {"path": id}} for id in ("c1", "c2")]
    session.append("assistant", [{"type": "text", "text": "Looking."}, *calls])
    for call in calls:
        session.append("toolResult", f"content of {call['id']}", toolCallId=call["id"], toolName="read")
        session.append({"type": "custom", "customType": "note", "data": call["id"]})
    session.append("assistant", [{"type": "text", "text": "Both were read."}])
    session.append({"type": "mode_change", "mode": "plan"})
    session.append("user", "Thanks.")
    return session


@pytest.mark.parametrize("agent", AGENTS)
def test_a_conversion_without_our_data_has_the_same_conversation(agent: Dialect, tmp_path: Path) -> None:
    path = tmp_path / ("session.json" if agent == "opencode" else "session.jsonl")
    session = make_session()
    converted = carry_out(session, make_plan(session, Request(agent, out=str(path))))
    expected = texts(converted)
    assert ("assistant", "Both were read.") in expected
    path.write_bytes(without_our_data(path.read_bytes(), agent))
    assert b'"sessiontree.' not in path.read_bytes()  # entries of our own types
    bare = sessiontree.open(path, dialect=agent)
    assert texts(bare) == expected
    assert bare.problems == []
