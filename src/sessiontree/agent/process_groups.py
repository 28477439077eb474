"""Process groups of commands, which must not outlive this program, however it ends.

A program that is killed cannot clean up. So a small shell, the watcher, receives over a pipe the id of each group that
starts and ends. No other process holds the pipe: it closes when this program dies, and the watcher then ends the groups
that are left, first with SIGTERM, then with SIGKILL.

A process that a command moved to a separate session (`setsid`) is not in its group. It survives, as it does for any
other program.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import threading

_WATCHER = """
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
_EXIT_TIMEOUT = 3.0
"""Seconds to wait for the watcher at exit; it takes one if it has groups to end."""


class ProcessGroups:
    """The running groups, and the watcher, which starts with the first of them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._watcher: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Start the watcher before a command, so that the command is registered without delay once it runs."""
        with self._lock:
            if self._watcher is None:
                self._send("")

    def begin(self, group: int) -> None:
        """Register a group that has started."""
        with self._lock:
            self._running.add(group)
            self._send(f"begins {group}\n")

    def end(self, group: int) -> None:
        """Remove a group that has ended. Call it before its leader is reaped: after that, its id may be reused."""
        with self._lock:
            if group in self._running:
                self._running.discard(group)
                self._send(f"ends {group}\n")

    def _send(self, line: str) -> None:
        # Twice: if the watcher was killed, a new one is started and receives all running groups.
        for _ in range(2):
            try:
                if self._watcher is None:
                    self._watcher = _start_watcher()
                    line = "".join(f"begins {group}\n" for group in sorted(self._running))
                assert self._watcher.stdin is not None
                self._watcher.stdin.write(line.encode())
                return
            except OSError:  # killed, or cannot be started: commands run all the same
                self._close_watcher()

    def _close_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                assert watcher.stdin is not None
                watcher.stdin.close()
                watcher.wait(_EXIT_TIMEOUT)

    def close(self) -> None:
        """Close the pipe; the watcher ends the groups that still run."""
        with self._lock:
            self._close_watcher()


def _start_watcher() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - a constant script
        ["/bin/sh", "-c", _WATCHER],
        cwd="/",
        env={"PATH": os.defpath},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,  # Ctrl-C in the terminal must not end it before us
    )


PROCESS_GROUPS = ProcessGroups()
"""The process groups of this program."""
atexit.register(PROCESS_GROUPS.close)
