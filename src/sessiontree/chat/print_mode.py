"""One answer for a script: as text, as one JSON object, or as a line of JSON for each event."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from sessiontree.agent.controller import Controller
from sessiontree.agent.events import AgentEnd, ApprovalAnswered, Compacting, Event, Failed, Retry
from sessiontree.app.start import StartOptions, open_controller
from sessiontree.library.last_session import record_last_session
from sessiontree.views.text import clean, one_line

Format: TypeAlias = Literal["text", "json", "stream-json"]
PrintJson: TypeAlias = Callable[[dict[str, Any]], None]
Say: TypeAlias = Callable[[str], None]


async def print_answer(
    wanted: StartOptions, prompt: str, format: Format, print_json: PrintJson, say: Say, *, image: bytes | None = None
) -> AgentEnd:
    """Say a prompt and print what comes of it; how it ended. Where someone would have to be asked, it is denied."""
    async with open_controller(wanted) as start:
        for note in start.notes:
            say(note)
        controller = start.controller
        if image is not None:
            prompt = f"{prompt}\n\n{controller.paste_image(image)}".lstrip()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, controller.interrupt)
        end: AgentEnd | None = None
        async for event in controller.send(prompt):
            if format == "stream-json":
                print_json(msgspec.to_builtins(event))
                sys.stdout.flush()
            if isinstance(event, AgentEnd):
                end = event
            _talk(event, say)
        assert end is not None
        session = controller.session
        is_kept = not wanted.in_memory and not session.is_pending
        if format == "json":
            print_json(_described(controller, end, is_kept=is_kept))
        elif format == "text":
            _print_text(end.text)
        if is_kept:
            record_last_session(session.location, session.cwd or controller.cwd, home=wanted.home)
    return end


def _talk(event: Event, say: Say) -> None:
    """What went wrong on the way goes where people look, not where the answer goes."""
    match event:
        case Failed():
            say(one_line(event.message))
        case Retry():
            say(one_line(f"attempt {event.attempt} failed, again in {event.delay:.0f} s: {event.error}"))
        case Compacting(stage="failed"):
            say(one_line(f"no room could be made: {event.error}"))
        case ApprovalAnswered():
            say(one_line(f"not approved: {event.reply.reason} (--approval autoEdit or yolo lets more pass)"))
        case AgentEnd(reason="limit" | "interrupted"):
            say(one_line(event.why))
        case _:
            pass


def _print_text(text: str) -> None:
    """The answer: as it is for a file or a pipe, harmless for a terminal."""
    shown = clean(text) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(shown.encode(encoding, "replace").decode(encoding) + "\n")


def _described(controller: Controller, end: AgentEnd, *, is_kept: bool) -> dict[str, Any]:
    session = controller.session
    return {
        "session": session.id,
        "path": session.location if is_kept else None,
        "model": controller.model.name,
        "leaf": end.leaf,
        "text": end.text,
        "reason": end.reason,
        "why": end.why,
        "usage": msgspec.to_builtins(end.spent),
    }
