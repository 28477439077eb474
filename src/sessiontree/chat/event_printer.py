"""The events of a run as lines on a screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from sessiontree.agent.events import (
    AgentEnd,
    AgentStart,
    ApprovalAnswered,
    ApprovalAsked,
    Compacting,
    Event,
    Failed,
    Persisted,
    Retry,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    ToolUpdate,
    TurnEnd,
    TurnStart,
    Used,
)
from sessiontree.agent.limits import RunUsage
from sessiontree.agent.tools.base import ToolOutput, short
from sessiontree.chat.terminal import CYAN, DIM, GREEN, RED, Screen
from sessiontree.core.messages import ToolCall
from sessiontree.views.text import clean, cut, one_line

_PREVIEW = 5
"""Lines of a result that are shown."""
_KEPT = 4_000
"""Characters of what a command prints of which the last lines are shown."""
_TELLING = ("command", "path", "pattern", "query", "url", "name")
"""Arguments that say what a call is about, the most telling first."""


class Teller:
    """Shows one run after the other."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._is_thinking = False
        self._under_way: dict[str, Printing] = {}

    def hear(self, event: Event) -> None:
        screen = self._screen
        match event:
            case TextDelta():
                if self._is_thinking:
                    screen.end_line()
                self._is_thinking = False
                screen.write(event.text)
            case ThinkingDelta():
                if not self._is_thinking:
                    screen.end_line()
                self._is_thinking = True
                screen.write(event.text, DIM)
            case Retry():
                said = f"· attempt {event.attempt} failed, again in {event.delay:.0f} s: {one_line(event.error)}"
                screen.line(said, RED)
            case ToolStart():
                screen.line(cut(f"→ {describe_call(event.call)}", screen.width), CYAN)
                self._under_way[event.call.id] = Printing(screen, describe_call(event.call))
            case ToolUpdate():
                if event.call_id in self._under_way:
                    self._under_way[event.call_id].hear(event.text, is_alone=len(self._under_way) == 1)
            case ToolEnd():
                self._under_way.pop(event.call.id, None)
                self._show_result(event.call, event.output)
            case Compacting():
                self._show_compaction(event)
            case Failed():
                screen.line(f"✗ {one_line(event.message)}", RED)
            case AgentEnd():
                self._under_way.clear()
                self._show_end(event)
            case TurnStart() | TurnEnd():
                screen.end_line()
                self._is_thinking = False
            case AgentStart() | Persisted() | Used() | ApprovalAsked() | ApprovalAnswered():
                pass
            case _:
                assert_never(event)

    def _show_result(self, call: ToolCall, output: ToolOutput) -> None:
        mark, style = ("✗", RED) if output.is_error else ("✓", GREEN)
        self._screen.line(cut(f"{mark} {describe_call(call)}", self._screen.width), style)
        self._screen.lines(preview_lines(output.text, self._screen.width), DIM)

    def _show_compaction(self, event: Compacting) -> None:
        match event.stage:
            case "start":
                why = " because the model's window is full" if event.occasion == "overflow" else ""
                self._screen.line(f"· making room{why} …", DIM)
            case "end" if event.how:
                what = "old tool outputs left out" if event.how == "prune" else "the older part is summarised"
                self._screen.line(f"· {what}: {event.tokens_before:,} -> {event.tokens_after:,} tokens", DIM)
            case "end":
                pass
            case "failed":
                self._screen.line(f"· no room could be made: {one_line(event.error)}", RED)

    def _show_end(self, event: AgentEnd) -> None:
        self._screen.end_line()
        if event.reason == "interrupted":
            self._screen.line("· interrupted; what was open is settled in the session", RED)
        elif event.reason == "limit":
            self._screen.line(f"· stopped: {one_line(event.why)}", RED)
        if event.spent.turns:
            self._screen.line(f"· {describe_spent(event.spent)}", DIM)


class Printing:
    """The last lines of what a command prints, while it prints. They are gone when something else is shown."""

    def __init__(self, screen: Screen, title: str) -> None:
        self._screen, self._title = screen, title
        self._printed = ""

    def hear(self, text: str, *, is_alone: bool = True) -> None:
        """Show what is new. Where several print at once, the one that printed last says who it is."""
        self._printed = (self._printed + text)[-_KEPT:]
        lines = [f"  {line}" for line in last_lines(self._printed, _PREVIEW)]
        self._screen.pass_by(lines if is_alone else [f"… {self._title}", *lines], DIM)


def last_lines(text: str, count: int) -> list[str]:
    """The last lines of an output. Of a line that is written over and over, as bars are, the last writing."""
    lines = text.rstrip("\n").split("\n")[-count:]
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def describe_call(call: ToolCall) -> str:
    """A call on one line."""
    about = next((call.arguments[name] for name in _TELLING if name in call.arguments), call.arguments)
    return one_line(f"{call.name} {short(about, 400)}" if about else call.name)


def preview_lines(text: str, width: int) -> Iterator[str]:
    """The first lines of a result, and how many are not shown."""
    lines = text.rstrip().split("\n") if text.strip() else []
    for line in lines[:_PREVIEW]:
        yield cut(f"  {clean(line[:4096]).rstrip()}", width)
    if len(lines) > _PREVIEW:
        yield f"  … {len(lines) - _PREVIEW:,} more lines"


def describe_spent(spent: RunUsage) -> str:
    cached = f" ({spent.cached:,} cached)" if spent.cached else ""
    cost = f" · ${spent.cost:.4f}" if spent.cost else ""
    return f"{spent.input + spent.cached:,} tokens in{cached}, {spent.output:,} out{cost} · {spent.seconds:.1f} s"
