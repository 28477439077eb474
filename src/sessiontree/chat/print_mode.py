"""Print one answer for a script: as text, as one JSON object, or as a line of JSON for each event."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from sessiontree.agent.controller import Controller
from sessiontree.agent.events import AgentEnd, ApprovalAnswered, Compacting, Event, Failed, Retry
from sessiontree.app.event_json import encode_event
from sessiontree.app.start import StartOptions, open_controller, record_session
from sessiontree.core.entries import ApprovalMode
from sessiontree.views.text import clean, one_line

Format: TypeAlias = Literal["text", "json", "stream-json"]
PrintJson: TypeAlias = Callable[[dict[str, Any]], None]
PrintError: TypeAlias = Callable[[str], None]


async def print_answer(
    options: StartOptions,
    prompt: str,
    format: Format,
    print_json: PrintJson,
    print_error: PrintError,
    *,
    image: bytes | None = None,
) -> AgentEnd:
    """Send a prompt and print the answer. Everything that needs approval is denied."""
    async with open_controller(options) as start:
        for note in start.notes:
            print_error(note)
        controller = start.controller
        _print_notice(controller, print_error)
        if image is not None:
            prompt = f"{prompt}\n\n{controller.paste_image(image)}".lstrip()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, controller.interrupt)
        end: AgentEnd | None = None
        async for event in controller.send(prompt):
            if format == "stream-json":
                print_json(encode_event(event))
                sys.stdout.flush()
            if isinstance(event, AgentEnd):
                end = event
            _print_problem(event, print_error, controller.state.approval)
        _print_notice(controller, print_error)
        assert end is not None
        is_kept = not options.in_memory and not controller.session.is_pending
        if format == "json":
            print_json(_to_json(controller, end, is_kept=is_kept))
        elif format == "text":
            _print_text(end.text)
        record_session(controller)
    return end


def _print_notice(controller: Controller, print_error: PrintError) -> None:
    if controller.state.notice:
        print_error(one_line(controller.state.notice))
        controller.store.set(notice="")


def _print_problem(event: Event, print_error: PrintError, mode: ApprovalMode) -> None:
    """Print problems during the run to stderr."""
    match event:
        case Failed():
            print_error(one_line(event.message))
        case Retry():
            print_error(one_line(f"attempt {event.attempt} failed, retrying in {event.delay:.0f} s: {event.error}"))
        case Compacting(stage="failed"):
            print_error(one_line(f"compaction failed: {event.error}"))
        case Compacting(report=report) if report:
            print_error(one_line(report))
        case ApprovalAnswered():
            wider = {"autoEdit": "yolo", "yolo": ""}.get(mode, "autoEdit or yolo")
            hint = f" (--approval {wider} allows more)" if wider else ""
            print_error(one_line(f"not approved: {event.reply.reason}{hint}"))
        case AgentEnd(reason="limit" | "interrupted"):
            print_error(one_line(event.why))
        case _:
            pass


def _print_text(text: str) -> None:
    """Print the answer: unchanged to a file or pipe, cleaned on a terminal."""
    shown = clean(text) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(shown.encode(encoding, "replace").decode(encoding) + "\n")


def _to_json(controller: Controller, end: AgentEnd, *, is_kept: bool) -> dict[str, Any]:
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
