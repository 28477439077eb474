"""Helpers for tests of explorations: a project with a session, models that derive the next step, invariants."""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import sessiontree
from sessiontree.agent.tools.base import Changes, Plan, ToolContext, ToolOutput, Tools
from sessiontree.conversion.install import Request as Conversion
from sessiontree.conversion.install import carry_out, make_plan
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import (
    Assistant,
    Message,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    User,
    message_text,
    tool_calls,
)
from sessiontree.explore import Exploration, Lane, LaneEvent, explore
from sessiontree.explore.state import find_exploration
from sessiontree.models import Event, Facts, Request, Stop, TextDelta
from sessiontree.repair import examine
from sessiontree.session.session import Session

AT_ONCE = 30.0
"""Seconds. A run that does not end at once would wait 60: far from both even on a loaded machine."""
MINOR = frozenset({"note"})
USED = Usage(5, 5, total_tokens=10)
FACTS = Facts(200_000, 100, source="test")


def new_session(
    folder: Path, *, prompt: str | None = "Where we begin.", dialect: str = "native", **more: Any
) -> Session:
    """A session with messages, in a temporary project."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    session = sessiontree.create(project, home=folder / "home", **more)
    session.set_config(approval_mode="yolo")
    if prompt is not None:
        session.append("user", prompt)
        session.append("assistant", [{"type": "text", "text": "Understood."}], stopReason="stop")
    if dialect != "native":
        out = str(folder / f"{dialect}.jsonl")
        carry_out(session, make_plan(session, Conversion(dialect, out=out))).close()
        session = sessiontree.open(out)
        session.set_config(approval_mode="yolo")
    return session


class Stepping:
    """A model that makes a number of calls one after another and then ends.

    The next step is derived from the conversation, so that it continues where a process died. `calls` returns the calls
    of a step for a prompt; by default one call of `note`.
    """

    def __init__(
        self,
        steps: int,
        *,
        name: str = "test:stepping",
        delay: float = 0.0,
        calls: Callable[[str, int], Sequence[ToolCall]] | None = None,
        usage: Callable[[str, int], Usage] = lambda prompt, step: USED,
        facts: Facts = FACTS,
        meet: int = 1,
    ) -> None:
        """With `meet`, requests are answered once that many are in flight: lanes that wait for each other time out."""
        self.name, self.facts = name, facts
        self._steps, self._delay, self._usage = steps, delay, usage
        self._calls = calls or (lambda prompt, step: [ToolCall(f"{prompt}-{step}", "note", {"text": prompt})])
        self._barrier = asyncio.Barrier(meet)
        self.under_way = self.most_under_way = 0

    async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:
        prompt, step = where(request.messages)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            async with asyncio.timeout(60 + self._delay):
                await self._barrier.wait()
                await asyncio.sleep(self._delay)
        finally:
            self.under_way -= 1
        text = Text(f"{prompt} step {step}")
        yield TextDelta(0, text.text)
        usage = self._usage(prompt, step)
        if step >= self._steps:
            yield Stop(Assistant(content=(text,), usage=usage, stop_reason="stop"))
        else:
            content = (text, *self._calls(prompt, step))
            yield Stop(Assistant(content=content, usage=usage, stop_reason="toolUse"))

    async def close(self) -> None:
        """Nothing to close."""


def where(messages: Sequence[Message]) -> tuple[str, int]:
    """The last prompt of a conversation, and the number of answers since."""
    answers = 0
    for message in reversed(messages):
        if isinstance(message, User):
            return message_text(message), answers
        answers += isinstance(message, Assistant) and message.stop_reason not in ("error", "aborted")
    return "", answers


class Note:
    """A tool with a side effect: each call appends its id to a file in one write (default: `notes` in its folder)."""

    name = "note"
    description = "notes that it was called"
    changes: Changes = "nothing"  # so that no checkpoint is made: what is tested is the lanes
    schema: ClassVar[JsonObject] = {"type": "object", "properties": {"text": {"type": "string"}}}

    def __init__(self, path: Path, delay: float = 0.0) -> None:
        self._path, self._delay = path, delay

    def plan(self, arguments: JsonObject, context: ToolContext) -> Plan:
        return Plan("note")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:
        path = context.workspace.root + "/notes" if self._path == Path() else self._path
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{context.call_id}\n".encode())
        os.close(file)
        await asyncio.sleep(self._delay)
        return ToolOutput(f"noted {arguments.get('text')}")


def explored(
    session: Session, *prompts: str, handle: Callable[[LaneEvent], object] = lambda _: None, **more: Any
) -> Any:
    """Run an exploration to its end; returns it and its events."""

    async def main() -> tuple[Exploration, list[LaneEvent]]:
        events = []
        async with explore(session, prompts=prompts, **more) as exploration:
            async for one in exploration:
                events.append(one)
                handle(one)
        return exploration, events

    more.setdefault("models", [Stepping(0)])
    more.setdefault("tools", Tools())
    return asyncio.run(main())


def own_messages(session: Session, lane: Lane) -> list[Message]:
    """The messages of a lane without those before it."""
    assert lane.leaf is not None
    ids = session.path_ids(lane.leaf)
    before = ids[ids.index(lane.start) - 1]
    return session.messages_to(lane.leaf)[len(session.messages_to(before)) :]


def check_is_sound(session: Session, run: str | None = None, *, killed: bool = False) -> list[list[Message]]:
    """Check that the file is healthy and each lane's context complete; returns the messages of each lane.

    A kill can interrupt a `write` between two pages. The next writer closes such a line, so with `killed` a line that
    ends at a page boundary may be incomplete: its append never returned.
    """
    session.flush()
    fresh = sessiontree.open(session.location)
    bad = [finding for finding in examine(fresh) if finding.severity not in MINOR]
    if killed:
        bad = [finding for finding in bad if any(span.end % mmap.PAGESIZE for span in finding.places)]
    assert not bad, bad
    found = []
    for lane in find_exploration(fresh, run).lanes:
        messages = own_messages(fresh, lane)
        answered = [message.tool_call_id for message in messages if isinstance(message, ToolResult)]
        asked = [call.id for message in messages for call in tool_calls(message)]
        assert sorted(answered) == sorted(asked), f"{lane.name}: {asked} were answered by {answered}"
        foreign = [text for text in map(_lane_text, messages) if text and f"of {lane.name}." not in text]
        assert not foreign, f"{lane.name} has messages of others: {foreign}"
        found.append(messages)
    return found


def check_no_message_is_lost(session: Session) -> None:
    """Check that every message of the file is before the lanes or on one of them, so that none was lost."""
    fresh = sessiontree.open(session.location)
    state = find_exploration(fresh)
    seen = {id for lane in state.lanes for id in fresh.path_ids(lane.leaf)}
    lost = [id for id in fresh.ids if fresh.type_of(id) == "message" and id not in seen]
    assert not lost, [fresh.fields(id) for id in lost]


def _lane_text(message: Message) -> str:
    """The text of a message, which names its lane."""
    return message.tool_call_id if isinstance(message, ToolResult) else message_text(message)
