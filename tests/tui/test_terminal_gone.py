"""The UI ends when its terminal goes away."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.chat.terminals import Place, scripted, turn

SECONDS = 60


@pytest.mark.parametrize("command", ["ui", pytest.param("chat", marks=pytest.mark.slow)])
def test_the_ui_ends_when_a_terminal_is_closed_that_does_not_control_it(tmp_path: Path, command: str) -> None:
    place = Place(tmp_path)
    environment = {
        **os.environ,
        **place.environment,
        "SESSIONTREE_MODEL": scripted(place, turn("Hello.")),
        "TERM": "xterm-256color",
    }
    terminal, inner = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-m", "sessiontree", command],
        cwd=place.project,
        env=environment,
        stdin=inner,
        stdout=inner,
        stderr=inner,
    )
    os.close(inner)
    try:
        is_drawn = threading.Timer(SECONDS, program.kill)
        is_drawn.start()
        shown = b""
        while b"\x1b[?1049h" not in shown or len(shown) < 1_000:  # it draws on the alternate screen
            shown += os.read(terminal, 1 << 16)
        is_drawn.cancel()
        os.close(terminal)
        assert program.wait(SECONDS) == 129
    finally:
        with contextlib.suppress(ProcessLookupError):
            program.kill()
        program.wait()
