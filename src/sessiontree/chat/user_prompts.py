"""Questions to the user, one at a time: approvals, choices from a list, calls without a result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.tool_calls import Answered, PendingCall, Resolution
from sessiontree.chat.event_printer import describe_call
from sessiontree.chat.line_editor import Prompter, Reader
from sessiontree.chat.styles import BOLD, CYAN, DIFF_STYLES, DIM
from sessiontree.chat.terminal import Screen
from sessiontree.views.text import clean, cut, number_range, one_line, plural

_LONGEST_PREVIEW = 80


class ApprovalPrompts:
    """Asks the approval questions of a run. Nothing else is printed while one is on the screen."""

    def __init__(self, screen: Screen, reader: Prompter, interrupt: Callable[[], object]) -> None:
        self._screen, self._reader, self._interrupt = screen, reader, interrupt
        self._lock = asyncio.Lock()
        self._is_free = asyncio.Event()
        self._is_free.set()

    async def wait_until_free(self) -> None:
        """Wait until no question is on the screen."""
        await self._is_free.wait()

    def input_lock(self) -> asyncio.Lock:
        """The lock for the input line."""
        return self._lock

    async def ask(self, question: Question) -> Reply:
        async with self._lock:
            self._is_free.clear()
            try:
                return await self._ask(question)
            except KeyboardInterrupt:
                self._interrupt()
                # The interrupt cancels this task; if the run has already ended, the answer is no.
                await asyncio.sleep(1)
                return Reply("no", "the user interrupted it")
            except EOFError:
                return Reply("no", "there is no user to approve it")
            finally:
                self._is_free.set()

    async def _ask(self, question: Question) -> Reply:
        screen = self._screen
        screen.line(cut(f"? {one_line(question.tool)}: {one_line(question.title)}", screen.width), BOLD)
        is_cut = show_diff(screen, question.preview)
        screen.lines((f"  ({one_line(reason)})" for reason in question.reasons), DIM)
        always = "/[a]lways in this session" if question.may_always else ""
        while True:
            show = "/[s]how all of it" if is_cut else ""
            answer = (await self._reader.ask(f"Allow? [y]es{always}{show}/[n]o, or n and a reason:")).strip()
            word, _, rest = answer.partition(" ")
            match word.lower().rstrip(",:"):
                case "y" | "yes":
                    return Reply("once")
                case "a" | "always" if question.may_always:
                    return Reply("always")
                case "n" | "no":
                    return Reply("no", rest.strip())
                case "s" | "show" if is_cut:
                    is_cut = show_diff(screen, question.preview, most=None)
                case _:
                    screen.line("type y, n or n and a reason" + (", or a" if question.may_always else ""))


def show_diff(screen: Screen, text: str, most: int | None = _LONGEST_PREVIEW) -> bool:
    """Print the first lines of a command or a colored diff. Returns whether there are more."""
    lines = clean(text).rstrip("\n").split("\n")
    shown = lines[:most]
    for line in shown:
        screen.line(f"  {line}", DIFF_STYLES.get(line[:1], ""))
    is_cut = len(shown) < len(lines)
    if is_cut:
        screen.line(f"  … {plural(len(lines) - len(shown), 'more line')}", DIM)
    return is_cut


async def choose(screen: Screen, reader: Reader, rows: Sequence[str], question: str, hint: str = "") -> int | None:
    """The index of the row that the user chooses; None to cancel."""
    screen.lines(cut(f"{number:3} {row}", screen.width) for number, row in enumerate(rows, 1))
    numbers = number_range(len(rows))
    while True:
        answer = (await reader.ask_number(f"{question} [{numbers}, Enter to cancel]{hint}", rows)).strip()
        if not answer:
            return None
        if answer.isdecimal() and 1 <= int(answer) <= len(rows):
            return int(answer) - 1
        screen.line(f"type a number ({numbers})")


async def confirm(reader: Reader, question: str) -> bool:
    return (await reader.ask(f"{question} [y/N]")).strip().lower() in ("y", "yes")


async def decide_pending(
    screen: Screen, reader: Reader, calls: Sequence[PendingCall], can_run: Mapping[str, bool]
) -> dict[str, Resolution]:
    """Ask how to resolve each call without a result. Nothing is run again unless the user chooses that."""
    screen.line("This call has no result:" if len(calls) == 1 else "These calls have no result:", BOLD)
    resolutions: dict[str, Resolution] = {}
    for pending in calls:
        screen.line(cut(f"  {describe_call(pending.call)}", screen.width), CYAN)
        screen.line("  it had started to change files" if pending.had_begun else "  it may have completed", DIM)
        resolution: Resolution | None = None
        while resolution is None:
            resolution = await _resolve(screen, reader, can_run=can_run[pending.call.id])
        resolutions[pending.call.id] = resolution
    return resolutions


async def _resolve(screen: Screen, reader: Reader, *, can_run: bool) -> Resolution | None:
    choices = "[r]un it, [s]kip, or [a]nswer it yourself:" if can_run else "[s]kip, or [a]nswer it yourself:"
    answer = (await reader.ask(choices)).strip()
    word, _, rest = answer.partition(" ")
    match word.lower():
        case "r" | "run" if can_run:
            return "run"
        case "s" | "skip":
            return "skip"
        case "a" | "answer":
            return Answered(rest.strip() or await reader.ask("The result:"))
        case _:
            screen.line("type r, s or a" if can_run else "type s or a; no tool here can run this call")
            return None
