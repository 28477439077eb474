"""Helpers for tests of the run loop: scripts, runs, their events, and checks of sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sessiontree
from sessiontree.agent.events import AgentEnd, Event
from sessiontree.agent.loop import Run, run
from sessiontree.agent.tools.base import load_tools
from sessiontree.core.messages import Message, ToolResult, message_text, tool_calls
from sessiontree.models import ScriptedModel, ScriptTurn
from sessiontree.models.scripted import ScriptCall
from sessiontree.repair import examine
from sessiontree.session.session import Branch, Session
from tests.agent.builders import Workplace

MINOR = frozenset({"note"})


def call(name: str, **arguments: Any) -> ScriptCall:
    return ScriptCall(name, arguments)


def turn(text: str | None = None, *calls: ScriptCall, **more: Any) -> ScriptTurn:
    return ScriptTurn(text=text, tool_calls=calls, **more)


def start_run(
    place: Workplace, prompt: Any, *turns: ScriptTurn, at: Branch | Session | None = None, **more: Any
) -> Run:
    more.setdefault("model", ScriptedModel(turns))
    more.setdefault("tools", load_tools())
    more.setdefault("approver", place.answers)
    more.setdefault("checkpoints", place.checkpoints)
    return run(at if at is not None else place.session, prompt, context=place.context, **more)


async def collect_events(one: Run, on_event: Callable[[Event], object] = lambda _: None) -> list[Event]:
    events = []
    async for event in one:
        events.append(event)
        on_event(event)
    return events


def run_events(place: Workplace, prompt: Any, *turns: ScriptTurn, **more: Any) -> list[Event]:
    return asyncio.run(collect_events(start_run(place, prompt, *turns, **more)))


def names(events: list[Event]) -> list[str]:
    return [event.__struct_config__.tag for event in events]


def end_of(events: list[Event]) -> AgentEnd:
    assert isinstance(events[-1], AgentEnd)
    return events[-1]


def transcript(session: Session) -> list[tuple[str, str]]:
    return [(message.role, message_text(message)) for message in session.context().messages]


def results(messages: Any) -> dict[str, ToolResult]:
    return {message.tool_call_id: message for message in messages if isinstance(message, ToolResult)}


def check_is_sound(session: Session) -> list[Message]:
    """Check that the file is healthy, every call has a result, and that a fresh reader, also as Pi, sees the same."""
    session.flush()
    if not Path(session.location).exists():
        return []
    fresh = sessiontree.open(session.location)
    bad = [finding for finding in examine(fresh) if finding.severity not in MINOR]
    assert not bad, bad
    messages = list(fresh.context().messages)
    assert messages == list(session.context(fresh.leaf).messages)
    answered = results(messages)
    for message in messages:
        for one in tool_calls(message):
            assert one.id in answered, f"{one.id} of {one.name} has no result"
    assert fresh.pending_calls() == []
    assert list(sessiontree.open(session.location, dialect="pi").context().messages) == messages
    return messages
