"""Print the events of a run as lines on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from sessiontree.chat.styles import CYAN, DIM, GREEN, RED
from sessiontree.chat.terminal import Screen
from sessiontree.core.call_target import call_target
from sessiontree.core.messages import ToolCall
from sessiontree.core.usage import CostTotal
from sessiontree.views.text import clean, cut, one_line, plural

_PREVIEW = 5
"""How many lines of a result are shown."""
_KEPT = 4_000
"""How many characters of a command's output are kept to show its last lines."""


class EventPrinter:
    """Prints the events of one run after another."""

    def __init__(self, screen: Screen, is_verbose: Callable[[], bool] = lambda: False) -> None:
        self._is_verbose = is_verbose
        self._screen = screen
        self._is_thinking = False
        self._running: dict[str, LiveOutput] = {}

    def print(self, event: Event) -> None:
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
                text = f"· attempt {event.attempt} failed, retrying in {event.delay:.0f} s: {one_line(event.error)}"
                screen.line(text, RED)
            case ToolStart():
                screen.line(cut(f"→ {describe_call(event.call)}", screen.width), CYAN)
                self._running[event.call.id] = LiveOutput(screen, describe_call(event.call))
            case ToolUpdate():
                if event.call_id in self._running:
                    self._running[event.call_id].append(event.text, is_alone=len(self._running) == 1)
            case ToolEnd():
                self._running.pop(event.call.id, None)
                self._print_result(event.call, event.output)
            case Compacting():
                self._print_compaction(event)
            case Failed():
                screen.line(f"✗ {one_line(event.message)}", RED)
            case AgentEnd():
                self._running.clear()
                self._print_end(event)
            case TurnStart() | TurnEnd():
                screen.end_line()
                self._is_thinking = False
            case AgentStart() | Persisted() | Used() | ApprovalAsked() | ApprovalAnswered():
                pass
            case _:
                assert_never(event)

    def _print_result(self, call: ToolCall, output: ToolOutput) -> None:
        mark, style = ("✗", RED) if output.is_error else ("✓", GREEN)
        self._screen.line(cut(f"{mark} {describe_call(call)}", self._screen.width), style)
        if self._is_verbose():
            self._screen.lines((f"  {line}" for line in clean(output.text.rstrip()).split("\n")), DIM)
        else:
            self._screen.lines(preview_lines(output.text, self._screen.width), DIM)

    def _print_compaction(self, event: Compacting) -> None:
        for text, style in compaction_lines(event):
            self._screen.line(text, style)

    def _print_end(self, event: AgentEnd) -> None:
        self._screen.end_line()
        if event.reason == "interrupted":
            self._screen.line("· Interrupted. Unfinished tool calls were recorded as not run.", RED)
        elif event.reason == "limit":
            self._screen.line(f"· stopped: {one_line(event.why)}", RED)
        if event.spent.turns:
            self._screen.line(f"· {describe_usage(event.spent)}", DIM)


class LiveOutput:
    """The last lines of a running command's output. The next output replaces them."""

    def __init__(self, screen: Screen, title: str) -> None:
        self._screen, self._title = screen, title
        self._output = ""

    def append(self, text: str, *, is_alone: bool = True) -> None:
        """Show new output, under the command's title if several commands are running."""
        self._output = (self._output + text)[-_KEPT:]
        lines = [f"  {line}" for line in last_lines(self._output, _PREVIEW)]
        self._screen.show_temporary(lines if is_alone else [f"… {self._title}", *lines], DIM)


def last_lines(text: str, count: int) -> list[str]:
    """The last lines of an output. Of a line with carriage returns (a progress bar), only the last state counts."""
    lines = text.rstrip("\n").split("\n")[-count:]
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def describe_call(call: ToolCall) -> str:
    """A call on one line: its name and main argument."""
    about = call_target(call.arguments) or call.arguments
    return one_line(f"{call.name} {short(about, 400)}" if about else call.name)


def preview_lines(text: str, width: int) -> Iterator[str]:
    """The first lines of a result, and how many more there are."""
    lines = text.rstrip().split("\n") if text.strip() else []
    for line in lines[:_PREVIEW]:
        yield cut(f"  {clean(line[:4096]).rstrip()}", width)
    if len(lines) > _PREVIEW:
        yield f"  … {plural(len(lines) - _PREVIEW, 'more line')}"


def compaction_lines(event: Compacting) -> Iterator[tuple[str, str]]:
    """What a compaction does or has done, as lines with their styles."""
    match event.stage:
        case "start":
            why = ": the context window is full" if event.occasion == "overflow" else ""
            yield f"· compacting{why} …", DIM
        case "end" if event.how:
            done = "removed old tool outputs" if event.how == "prune" else "summarized older messages"
            yield f"· {done}: {event.tokens_before:,} -> {event.tokens_after:,} tokens", DIM
            if event.report:
                yield f"· {one_line(event.report)}", RED
        case "end":
            pass
        case "failed":
            yield f"· compaction failed: {one_line(event.error)}", RED


def describe_usage(usage: RunUsage) -> str:
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    cost = f" · ${CostTotal(usage.cost, 'recorded').text(4)}" if usage.cost else " · cost unknown"
    return f"{usage.input + usage.cached:,} tokens in{cached}, {usage.output:,} out{cost} · {usage.seconds:.1f} s"
