"""Process groups of commands, which shall not outlive the program that started them, however that one ends.

A program that is killed at once can end nothing any more. So a small shell is told the number of each group that
begins and ends, over a pipe that nobody else holds. When the pipe closes and groups are left, it ends them: asked
first, then forced. It has a session of its own, so that what a terminal sends to its programs does not reach it.

What a command put into a session of its own (`setsid`) is not in its group, and lives on, as it does after any command.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import threading

_WATCH = """
left=' '
while read -r what group; do
    case $what in
        begins) left="$left$group " ;;
        ends) left="${left%% $group *} ${left#* $group }" ;;
    esac
done
for group in $left; do kill -TERM "-$group"; done
[ "$left" = ' ' ] || sleep 1
for group in $left; do kill -KILL "-$group"; done
"""
_PATIENCE = 3.0
"""Seconds that are waited for the watcher when the program ends in peace; it needs one if it still has to end some."""


class ProcessGroups:
    """The groups that run, and the watcher that knows of them, started with the first of them. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._watcher: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """A command is about to be started: have the watcher there by then, so that it hears of it at once."""
        with self._lock:
            if self._watcher is None:
                self._tell("")

    def begin(self, group: int) -> None:
        """A group runs from here on."""
        with self._lock:
            self._running.add(group)
            self._tell(f"begins {group}\n")

    def end(self, group: int) -> None:
        """A group has ended. To be said before its number can be given to another."""
        with self._lock:
            if group in self._running:
                self._running.discard(group)
                self._tell(f"ends {group}\n")

    def _tell(self, line: str) -> None:
        """Tell the watcher; if there is none, or no longer, one that is told everything."""
        for _ in range(2):
            try:
                if self._watcher is None:
                    self._watcher = _started()
                    line = "".join(f"begins {group}\n" for group in sorted(self._running))
                assert self._watcher.stdin is not None
                self._watcher.stdin.write(line.encode())
                return
            except OSError:  # it was ended by someone, or cannot be started: commands run all the same
                self._leave()

    def _leave(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                assert watcher.stdin is not None
                watcher.stdin.close()
                watcher.wait(_PATIENCE)

    def close(self) -> None:
        """Let go of the watcher. ProcessGroups that still run are ended by it."""
        with self._lock:
            self._leave()


def _started() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - nothing in it is from outside
        ["/bin/sh", "-c", _WATCH],
        cwd="/",
        env={"PATH": os.defpath},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )


PROCESS_GROUPS = ProcessGroups()
"""Those of this program."""
atexit.register(PROCESS_GROUPS.close)
