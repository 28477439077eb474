"""Show long text in the user's pager, at a given line; with colors only in `less`, which is known to handle ours."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence

from sessiontree.cli import output

_LESS = "less"
_colors = re.compile(r"\x1b\[[0-9;]*m")


def find_pager() -> list[str] | None:
    """The pager's command; None without a terminal, if turned off (`PAGER=cat`, or empty), or if not installed."""
    if not (sys.stdout.isatty() and sys.stdin.isatty()) or os.environ.get("TERM") == "dumb":
        return None
    import shlex
    from shutil import which

    try:
        command = shlex.split(os.environ.get("PAGER", _LESS))
    except ValueError:
        return None
    return command if command and command[0] != "cat" and which(command[0]) else None


def page(command: Sequence[str], lines: Sequence[str], at: int) -> None:
    """Show lines, scrolled to one of them if the pager supports it."""
    is_less = os.path.basename(command[0]) == _LESS
    # Session text passed `clean`, so all escape sequences are ours; `-R` lets only colors through anyway.
    environment = {**os.environ, "LESS": os.environ.get("LESS", "-R")} if is_less else dict(os.environ)
    arguments = [*command, "-R", f"+{at + 1}"] if is_less else list(command)
    text = "\n".join(lines) + "\n"
    if not is_less:
        text = _colors.sub("", text)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        # The user's own program, never one that a session names; no shell is involved.
        running = subprocess.Popen(arguments, stdin=subprocess.PIPE, env=environment)  # noqa: S603 - the user's own $PAGER
        with running, contextlib.suppress(BrokenPipeError):  # the user may quit before the pager has read everything
            running.communicate(text.encode(encoding, "replace"))
    except OSError:
        output.print_lines(lines)
