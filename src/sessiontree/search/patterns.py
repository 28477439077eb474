"""Regular expressions with a time limit: tried in a process of its own, which is ended when it takes too long.

A pattern can take longer than anyone has time for, and while it does nothing else of the process goes on. So a child
tries them; it is started with the first text and has only the standard library in it.
"""

from __future__ import annotations

import marshal
import select
import sys
import time
from typing import TYPE_CHECKING

from sessiontree.search.query_parser import Regex

if TYPE_CHECKING:
    import subprocess

_CHILD = """
import marshal, re, sys
read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
known = {}
while True:
    head = read(8)
    if len(head) < 8:
        break
    pattern, flags, text = marshal.loads(read(int.from_bytes(head, "big")))
    key = pattern, flags
    if key not in known:
        known[key] = re.compile(pattern, flags)
    spans = []
    for found in known[key].finditer(text):
        if found.end() > found.start():
            spans.append(found.span())
            if len(spans) >= 50:
                break
    answer = marshal.dumps(spans)
    write(len(answer).to_bytes(8, "big") + answer)
    sys.stdout.buffer.flush()
"""
_FLAGS = {"i": 2, "m": 8, "s": 16}


class Patterns:
    """Finds patterns in texts for as long as there is time left."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self.is_spent = False
        """Whether the time was used up: what was not looked at by then was not found."""

    def find(self, regex: Regex, text: str) -> list[tuple[int, int]]:
        if self.is_spent:
            return []
        start = time.perf_counter()
        try:
            return self._ask(regex, text)
        except (OSError, EOFError, ValueError):
            self._give_up()
            return []
        finally:
            self._left -= time.perf_counter() - start
            if self._left <= 0:
                self._give_up()

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None

    def _give_up(self) -> None:
        self.is_spent = True
        self.close()

    def _ask(self, regex: Regex, text: str) -> list[tuple[int, int]]:
        if self._child is None:
            import subprocess  # not at the start, since most searches have no pattern

            command = [sys.executable, "-I", "-S", "-c", _CHILD]
            self._child = subprocess.Popen(  # noqa: S603 - our own program; pattern and text come by the pipe
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        child = self._child
        assert child.stdin is not None
        assert child.stdout is not None
        whole = text.encode("utf-8", "replace").decode()
        asked = marshal.dumps((regex.pattern, sum(_FLAGS[flag] for flag in regex.flags), whole))
        child.stdin.write(len(asked).to_bytes(8, "big") + asked)
        child.stdin.flush()
        if not select.select([child.stdout], [], [], max(self._left, 0.0))[0]:
            raise EOFError
        size = int.from_bytes(child.stdout.read(8), "big")
        spans: list[tuple[int, int]] = marshal.loads(child.stdout.read(size))  # noqa: S302 - of our own child
        return spans
