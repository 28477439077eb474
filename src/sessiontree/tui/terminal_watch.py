"""Detect that the UI's terminal has gone away.

The kernel sends a signal only to programs whose controlling terminal it was. For the others, reading returns at once
and without data, again and again, and the UI would run forever without a user.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

_GRACE = 10.0
"""Seconds for the UI to end by itself."""
HANGUP = 129
"""The exit code of a program that a hangup ended."""


class TerminalWatch:
    """Calls a function, in a thread, when a terminal is closed at its other end."""

    def __init__(self, input: int, output: int, on_hangup: Callable[[], object]) -> None:
        self._input, self._output, self._on_hangup = input, output, on_hangup
        self._has_ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="terminal-watch", daemon=True).start()

    def stop(self) -> None:
        """The UI has ended."""
        self._has_ended.set()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._input, 0)  # only hangups and errors
        while not poll.poll(1_000):
            if self._has_ended.is_set():
                return
        self._detach()
        self._on_hangup()
        if not self._has_ended.wait(_GRACE):
            os._exit(HANGUP)  # blocked by a write to the terminal; what is in the session is on disk

    def _detach(self) -> None:
        """Keep threads from failing or spinning: nothing more is read, and output is dropped."""
        # The write end stays open, so that reading blocks instead of returning the end of the file again and again.
        silence, self._writer = os.pipe()
        os.dup2(silence, self._input)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._output)
