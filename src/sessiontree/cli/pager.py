"""Long text in the person's own pager, at the line they asked for; colours only in one that is known to take ours."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence

from sessiontree.cli import output

_LESS = "less"
_colours = re.compile(r"\x1b\[[0-9;]*m")


def find_pager() -> list[str] | None:
    """The command of the pager; None when nobody looks, none is wanted (`PAGER=cat`, or empty), or there is none."""
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
    """Show clean lines, from one of them on where the pager can be told."""
    is_less = os.path.basename(command[0]) == _LESS
    # Session text was made clean, so the only sequences in it are ours; `-R` lets nothing but colours through anyway.
    environment = {**os.environ, "LESS": os.environ.get("LESS", "-R")} if is_less else dict(os.environ)
    arguments = [*command, "-R", f"+{at + 1}"] if is_less else list(command)
    text = "\n".join(lines) + "\n"
    if not is_less:
        text = _colours.sub("", text)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        # The person's own choice of program, never of a session; no shell in between.
        running = subprocess.Popen(arguments, stdin=subprocess.PIPE, env=environment)  # noqa: S603 - the person's own $PAGER
        with running, contextlib.suppress(BrokenPipeError):  # it may be closed before all of it was read
            running.communicate(text.encode(encoding, "replace"))
    except OSError:
        output.print_lines(lines)
