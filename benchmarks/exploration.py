"""Benchmarks of exploration: throughput of sixteen lanes against one, and how long the event loop is blocked.

The model answers after a fixed delay. While all lanes wait for it, the rest is measured: the run loop, its events, the
shared session, and the tools. Elapsed time is used, because waiting is the point.

A task that repeatedly sleeps for a millisecond measures how late it is woken, which is how long the loop was blocked. A
busy machine also wakes it late, so the round with the smallest maximum counts: the engine's own share occurs in every
round.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import sessiontree
from benchmarks.agent import Nothing
from benchmarks.generate import scratch_folder
from benchmarks.results import Result, milliseconds
from sessiontree import Session
from sessiontree.agent.tools.base import Tools, load_tools
from sessiontree.core.jsonio import JsonObject
from sessiontree.core.messages import Assistant, Text, ToolCall, Usage
from sessiontree.explore import explore
from sessiontree.models import Event, Facts, Request, Stop, TextDelta

LANES = 16
_FLOOR = 12.0
_MAX_BLOCKED = 50.0

Script = Callable[[int, str], ToolCall]
"""Returns the tool call of a lane's step."""


class _Slow:
    """A model that answers after a delay: a number of calls, then the end."""

    name = "benchmark:slow"
    facts = Facts(1 << 40, 8_192, source="benchmark")

    def __init__(self, lane: str, calls: int, delay: float, script: Script) -> None:
        self._lane, self._calls, self._delay, self._script = lane, calls, delay, script
        self._steps = itertools.count()

    async def stream(self, request: Request, /) -> AsyncGenerator[Event, None]:  # noqa: ARG002 - the contract of a model
        await asyncio.sleep(self._delay)
        step = next(self._steps)
        text, usage = Text("I look at the next one."), Usage(5, 5, total_tokens=10)
        yield TextDelta(0, text.text)
        if step == self._calls:
            yield Stop(Assistant(content=(text,), usage=usage, stop_reason="stop"))
        else:
            call = self._script(step, self._lane)
            yield Stop(Assistant(content=(text, call), usage=usage, stop_reason="toolUse"))

    async def close(self) -> None:
        """Nothing to close."""


def _one_call(step: int, lane: str) -> ToolCall:
    return ToolCall(f"{lane}-{step}", "nothing")


def _real_calls(step: int, lane: str) -> ToolCall:
    name, content = f"{lane}.txt", f"line {step} of {lane}\n" * 40
    calls: list[tuple[str, JsonObject]] = [
        ("write", {"path": name, "content": content}),
        ("read", {"path": name}),
        ("edit", {"path": name, "old_text": "line", "new_text": "row", "replace_all": True}),
        ("bash", {"command": f"wc -l {name}"}),
    ]
    tool, arguments = calls[step % len(calls)]
    return ToolCall(f"{lane}-{step}", tool, arguments)


def side_by_side(rounds: int) -> list[Result]:
    """16 lanes have at least 12 times the throughput of one, and never block the loop for 50 ms."""
    nothing, real = Tools([Nothing()]), load_tools()
    one, many, blocked = _compare(nothing, _one_call, 30, 0.05, rounds)
    one_real, many_real, blocked_real = _compare(real, _real_calls, 20, 0.05, rounds)
    one_slow, many_slow, _ = _compare(real, _real_calls, 10, 0.5, 1)
    return [
        _ratio("16 lanes against one, a model of 50 ms", one, many),
        # Without a bound: the tools nearly fill two cores, so this figure depends on the machine.
        _ratio("16 lanes against one with file tools and commands, a model of 50 ms", one_real, many_real, floor=None),
        _ratio("16 lanes against one with file tools and commands, a model of 500 ms", one_slow, many_slow),
        Result(
            "longest time the event loop is blocked at 16 lanes",
            milliseconds(blocked),
            "on the clock, best of the rounds",
            1e3 * blocked,
            _MAX_BLOCKED,
            "ms",
        ),
        Result(
            "the same with file tools and commands",
            milliseconds(blocked_real),
            "on the clock, best of the rounds",
            1e3 * blocked_real,
            _MAX_BLOCKED,
            "ms",
        ),
    ]


def _ratio(name: str, one: float, many: float, floor: float | None = _FLOOR) -> Result:
    return Result(name, f"{many:.0f} turns/s", f"{one:.1f} turns/s, on the clock", many / one, floor=floor)


def _compare(tools: Tools, script: Script, calls: int, delay: float, rounds: int) -> tuple[float, float, float]:
    """Best turns per second of one lane and of sixteen, and the smallest maximum of blocking."""
    one = many = 0.0
    blocked = float("inf")
    for _ in range(rounds):
        one = max(one, _run(1, tools, script, calls, delay)[0])
        speed, longest = _run(LANES, tools, script, calls, delay)
        many, blocked = max(many, speed), min(blocked, longest)
    return one, many, blocked


def _run(lanes: int, tools: Tools, script: Script, calls: int, delay: float) -> tuple[float, float]:
    folder = tempfile.mkdtemp(dir=scratch_folder())
    session = sessiontree.create(folder, home=Path(folder, "home"))
    session.set_config(approval_mode="yolo")
    session.append("user", "How do we go on?")
    session.append("assistant", [{"type": "text", "text": "In several ways."}], stopReason="stop")
    took, blocked = asyncio.run(_explore(session, lanes, tools, script, calls, delay))
    session.close()
    shutil.rmtree(folder)
    return lanes * (calls + 1) / took, blocked


async def _explore(
    session: Session, lanes: int, tools: Tools, script: Script, calls: int, delay: float
) -> tuple[float, float]:
    names = [f"lane-{number}" for number in range(lanes)]
    models = [_Slow(name, calls, delay, script) for name in names]
    watch = asyncio.create_task(_measure_blocking(stop := asyncio.Event()))
    began = time.perf_counter()
    async with explore(
        session, prompts=names, models=models, tools=tools, parallel=lanes, worktrees=False
    ) as exploration:
        async for _ in exploration:
            pass
    took = time.perf_counter() - began
    stop.set()
    assert all(lane.state == "done" for lane in exploration.lanes), [lane.why for lane in exploration.lanes]
    return took, await watch


async def _measure_blocking(stop: asyncio.Event) -> float:
    longest = 0.0
    while not stop.is_set():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        longest = max(longest, time.perf_counter() - began - 0.001)
    return longest
