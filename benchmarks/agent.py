"""Benchmarks of an agent turn, excluding model and tools, in short and in long sessions.

The model answers at once without reading its request, and its tool does nothing. A scripted model would search the
entire conversation, which costs more than all the rest. What remains is the run loop, its events, and the session's
writes: CPU time of all threads, without waiting for the disk.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import ClassVar

import sessiontree
from benchmarks.generate import scratch_folder
from benchmarks.results import Result, milliseconds
from sessiontree import Session
from sessiontree.agent.loop import run
from sessiontree.agent.tools.base import Changes, Plan, ToolContext, ToolOutput, Tools
from sessiontree.agent.workspace import Workspace
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, Text, ToolCall, Usage
from sessiontree.models import Event, Facts, Request, Stop, TextDelta, UsageReport
from sessiontree.secrets.environment import Mask

_TURNS = 40
_LONG = 50_000
_BOUND = 2


class Nothing:
    """A tool that does nothing."""

    name = "nothing"
    description = "does nothing"
    changes: Changes = "nothing"
    schema: ClassVar[JsonObject] = {"type": "object", "properties": {}}

    def plan(self, arguments: JsonObject, context: ToolContext) -> Plan:  # noqa: ARG002 - the contract of a tool
        return Plan("nothing")

    async def run(self, arguments: JsonObject, context: ToolContext) -> ToolOutput:  # noqa: ARG002 - as above
        return ToolOutput("done")


class _Prompt:
    """A model that calls the tool a number of times, then ends the turn."""

    name = "benchmark:prompt"
    facts = Facts(1 << 40, 8_192, source="benchmark")

    def __init__(self, calls: int) -> None:
        self._left = calls

    async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:  # noqa: ARG002 - the contract of a model
        text, usage = Text("I look at the next one."), Usage(5, 5, total_tokens=10)
        yield TextDelta(0, text.text)
        yield UsageReport(usage)
        if self._left == 0:
            yield Stop(Assistant(content=(text,), usage=usage, stop_reason="stop"))
            return
        self._left -= 1
        call = ToolCall(f"call-{self._left}", "nothing")
        yield Stop(Assistant(content=(text, call), usage=usage, stop_reason="toolUse"))

    async def close(self) -> None:
        """Nothing to close."""


def turns(rounds: int) -> list[Result]:
    """A turn costs under 2 ms at 10 and at 50,000 entries: in a run of many turns, and for a prompt and one answer."""
    long = _session_of(_LONG)
    short = _session_of(10)
    try:
        return [
            _result("a turn of the agent at 10 entries", _measure(short, _TURNS, 4 * rounds)),
            _result("a turn of the agent at 50,000 entries", _measure(long, _TURNS, 4 * rounds)),
            _result("a prompt and its answer at 50,000 entries", _measure(long, 0, 10 * rounds)),
        ]
    finally:
        for session in (long, short):
            folder = session.cwd
            session.close()
            shutil.rmtree(folder)


def _result(name: str, seconds: float) -> Result:
    return Result(name, milliseconds(seconds), "", 1e3 * seconds, bound=_BOUND, unit="ms")


def _measure(session: Session, calls: int, rounds: int) -> float:
    """CPU seconds per turn in the best of several runs, after a first one that reads the session."""
    context = ToolContext(Workspace(session.cwd), mask=Mask(os.environ))
    asyncio.run(_run(session, 1, context))
    return min(asyncio.run(_run(session, calls, context)) for _ in range(rounds))


async def _run(session: Session, calls: int, context: ToolContext) -> float:
    began = time.process_time()
    async for _ in run(session, "Go on.", model=_Prompt(calls), tools=Tools([Nothing()]), context=context):
        pass
    return (time.process_time() - began) / (calls + 1)


def _session_of(entries: int) -> Session:
    folder = tempfile.mkdtemp(dir=scratch_folder())
    session = sessiontree.create(folder, home=Path(folder, "home"))
    session.append("user", "How does it go on?")
    while len(session) < entries:
        words = f"This is answer {len(session)}, and it is as long as a sentence or two are. " * 2
        session.append("assistant", [{"type": "text", "text": words}], stopReason="toolUse")
    return session
