"""Questions to a person, one at a time: may this be done, which one of these, what becomes of calls left open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sessiontree.agent.approval import Question, Reply
from sessiontree.agent.pending import Answered, PendingCall, Resolution
from sessiontree.chat.event_printer import describe_call
from sessiontree.chat.line_editor import Asks, Reader
from sessiontree.chat.terminal import BOLD, CYAN, DIM, GREEN, RED, Screen
from sessiontree.views.text import clean, cut, one_line

_LONGEST_PREVIEW = 80


class Asking:
    """Puts the questions of a run. While one stands on the screen, nothing else is written there."""

    def __init__(self, screen: Screen, reader: Asks, interrupt: Callable[[], object]) -> None:
        self._screen, self._reader, self._interrupt = screen, reader, interrupt
        self._one_at_a_time = asyncio.Lock()
        self._is_free = asyncio.Event()
        self._is_free.set()

    async def wait_until_free(self) -> None:
        """Wait while a question stands on the screen."""
        await self._is_free.wait()

    def alone(self) -> asyncio.Lock:
        """Held by whoever has the line where a person types."""
        return self._one_at_a_time

    async def ask(self, question: Question) -> Reply:
        async with self._one_at_a_time:
            self._is_free.clear()
            try:
                return await self._put(question)
            except KeyboardInterrupt:
                self._interrupt()
                # The interrupt takes the question back by cancelling us; if nothing runs any more, it is a no.
                await asyncio.sleep(1)
                return Reply("no", "the user interrupted it")
            except EOFError:
                return Reply("no", "nobody is there to approve it")
            finally:
                self._is_free.set()

    async def _put(self, question: Question) -> Reply:
        screen = self._screen
        screen.line(cut(f"? {one_line(question.tool)}: {one_line(question.title)}", screen.width), BOLD)
        show_diff(screen, question.preview)
        screen.lines((f"  ({one_line(reason)})" for reason in question.reasons), DIM)
        always = "/[a]lways in this session" if question.may_always else ""
        while True:
            answer = (await self._reader.ask(f"Do it? [y]es{always}/[n]o, or n and the reason:")).strip()
            word, _, rest = answer.partition(" ")
            match word.lower().rstrip(",:"):
                case "y" | "yes":
                    return Reply("once")
                case "a" | "always" if question.may_always:
                    return Reply("always")
                case "n" | "no":
                    return Reply("no", rest.strip())
                case _:
                    screen.line("y, n or n and a reason" + (", or a" if question.may_always else ""))


def show_diff(screen: Screen, text: str) -> None:
    """A command, or a difference with its lines coloured; a long one is cut, and that is said."""
    lines = clean(text).rstrip("\n").split("\n")
    styles = {"+": GREEN, "-": RED, "@": CYAN}
    for line in lines[:_LONGEST_PREVIEW]:
        screen.line(f"  {line}", styles.get(line[:1], ""))
    if len(lines) > _LONGEST_PREVIEW:
        screen.line(f"  … {len(lines) - _LONGEST_PREVIEW:,} more lines", DIM)


async def choose(screen: Screen, reader: Reader, rows: Sequence[str], question: str) -> int | None:
    """The place of the row that a person chooses by its number; None for none."""
    screen.lines(cut(f"{number:3} {row}", screen.width) for number, row in enumerate(rows, 1))
    while True:
        answer = (await reader.ask(f"{question} 1-{len(rows)}, or nothing to leave it:")).strip()
        if not answer:
            return None
        if answer.isdecimal() and 1 <= int(answer) <= len(rows):
            return int(answer) - 1
        screen.line(f"expected a number from 1 to {len(rows)}")


async def confirm(reader: Reader, question: str) -> bool:
    """Whether a person says yes; anything else is a no."""
    return (await reader.ask(f"{question} [y/N]")).strip().lower() in ("y", "yes")


async def decide_pending(screen: Screen, reader: Reader, calls: Sequence[PendingCall]) -> dict[str, Resolution]:
    """What becomes of calls that have no result, one by one. Nothing is run again without a yes."""
    screen.line("Calls of an earlier run have no result, because the program ended in the middle:", BOLD)
    decided: dict[str, Resolution] = {}
    for pending in calls:
        screen.line(cut(f"  {describe_call(pending.call)}", screen.width), CYAN)
        screen.line("  it had begun to change files" if pending.had_begun else "  it may have done its work", DIM)
        how: Resolution | None = None
        while how is None:
            how = await _decide_one(screen, reader)
        decided[pending.call.id] = how
    return decided


async def _decide_one(screen: Screen, reader: Reader) -> Resolution | None:
    answer = (await reader.ask("[r]un it again, [s]kip it, or [a]nswer by hand:")).strip()
    word, _, rest = answer.partition(" ")
    match word.lower():
        case "r" | "run":
            return "run"
        case "s" | "skip":
            return "skip"
        case "a" | "answer":
            return Answered(rest.strip() or await reader.ask("The result:"))
        case _:
            screen.line("r, s, or a")
            return None
