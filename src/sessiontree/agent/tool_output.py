"""Output of tool calls: throttled while a call runs, spilled to a folder if it is long, and written as a message.

The folder for long output belongs to the file of its session and is named like it, without the suffix. It is moved,
archived, synchronized and deleted with that file, so no output outlives its session. The long output of a session in a
repository of another kind is a blob there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from typing import Protocol

from sessiontree.agent.tools.base import ToolOutput
from sessiontree.archive.allowed_paths import session_folder
from sessiontree.core.jsonio import JsonObject, native_fields
from sessiontree.core.messages import Text, ToolCall
from sessiontree.errors import UsageError
from sessiontree.session.session import Session
from sessiontree.stores.contract import BlobStore

INTERVAL = 0.1
"""Seconds between two updates."""
MAX_CHARACTERS = 4_000
"""Of unsent output, at most this much is kept: its end."""
FOLDER = "tool-results"
_TAIL = 2_000
"""Characters of its output in the result of an interrupted call."""


class Clock(Protocol):
    """The part of an event loop that the throttle needs."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.TimerHandle: ...


class OutputThrottle:
    """Throttles the output of one call. To be used in the thread of the event loop.

    A command can print faster than a screen can draw, and the consumer may be waiting for the user. Output does not
    pile up: only the end of what was not sent yet is kept.
    """

    def __init__(
        self,
        emit: Callable[[str], object],
        is_ready: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
    ) -> None:
        """`emit` receives new output; `is_ready` returns whether the last update was consumed.

        `clock` is the running event loop by default.
        """
        self.tail = ""
        """The end of all output."""
        self._emit, self._is_ready, self._clock = emit, is_ready, clock
        self._unsent = ""
        self._sent_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def add(self, text: str) -> None:
        """Add output; it is emitted now or when the interval is over."""
        self.tail = (self.tail + text)[-MAX_CHARACTERS:]
        self._unsent = (self._unsent + text)[-MAX_CHARACTERS:]
        if self._timer is None and not self._is_closed:
            self._emit_or_wait()

    def _emit_or_wait(self) -> None:
        self._timer = None
        clock: Clock = self._clock if self._clock is not None else asyncio.get_running_loop()
        wait = 0.0 if self._sent_at is None else self._sent_at + INTERVAL - clock.time()
        if wait > 0 or not self._is_ready():
            self._timer = clock.call_later(wait if wait > 0 else INTERVAL, self._emit_or_wait)
        else:
            self._sent_at = clock.time()
            self.flush()

    def close(self) -> None:
        """Emit nothing more on a timer: the call is over."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def flush(self) -> None:
        """Emit what was not emitted yet."""
        text, self._unsent = self._unsent, ""
        if text:
            self._emit(text)


def spill_target(session: Session) -> str | BlobStore:
    """Where long output of a session goes: a folder next to its file, or the blobs of its repository.

    `UsageError` if that folder is a symbolic link: tools would read, and commands write, wherever it leads.
    """
    if session.ref.is_file:
        folder = os.path.join(session_folder(session.ref.path), FOLDER)
        for path in (os.path.dirname(folder), folder):
            if os.path.islink(path):
                raise UsageError(f"{path}: a symbolic link, which is not followed; remove it")
        return folder
    return session.repository.blobs


def remove_spill_of_draft(session: Session) -> None:
    """Remove the spill folder of a session that is closed before it got a file."""
    if session.is_pending and session.ref.is_file:
        folder = session_folder(session.ref.path)
        shutil.rmtree(os.path.join(folder, FOLDER), ignore_errors=True)
        with contextlib.suppress(OSError):  # does not exist, or is not empty
            os.rmdir(folder)


def result_message(call: ToolCall, output: ToolOutput) -> JsonObject:
    """A tool result as a message for `append`."""
    content = [native_fields(block) for block in (Text(output.text), *output.images)]
    message: JsonObject = {
        "role": "toolResult",
        "toolCallId": call.id,
        "toolName": call.name,
        "content": content,
        "isError": output.is_error,
    }
    return {**message, "details": output.details} if output.details else message


def interrupted(why: str, *, had_begun: bool, printed: str = "") -> ToolOutput:
    """The result of a call that was interrupted before or while it ran."""
    if not had_begun:
        return ToolOutput(
            f"This call was not run: {why}. It changed nothing.", True, {"interrupted": True, "begun": False}
        )
    text = f"This call was interrupted: {why}. It may have done part or all of its work, which was not undone."
    if printed.strip():
        text += f"\n\nIts last output:\n{printed[-_TAIL:]}"
    return ToolOutput(text, True, {"interrupted": True, "begun": True})


def not_run(why: str) -> ToolOutput:
    """The result of a call that was not started."""
    return ToolOutput(f"This call was not run: {why}. It changed nothing.", True, {"begun": False})


def lost(*, had_begun: bool) -> ToolOutput:
    """The result of a call without one that the user chose not to run again."""
    known = "It had begun to change files" if had_begun else "It is not known whether it ran, in part or at all"
    return ToolOutput(
        f"The result of this call was lost: none was stored. {known}. It was not run again.",
        True,
        {"lost": True, "begun": had_begun},
    )
