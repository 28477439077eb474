"""Run a command in a process group of its own, with limits of time and output, and end everything it started.

The end of a command is the end of its process group. On a cancel or a time limit, processes that left the group go
as well: each is known by a mark in its environment (Linux tells; elsewhere only the group is ended). What is printed is
masked before anyone sees it; what is too long to be told goes to a file that only the user can read. When this program
is killed, `groups` sees to the end of what ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from sessiontree.agent.process_groups import PROCESS_GROUPS
from sessiontree.secrets.environment import Mask, MaskedStream
from sessiontree.stores.atomic_files import make_folder

HEAD = 8_000
TAIL = 24_000
"""How many bytes of the beginning and of the end are told; what is between them is in the spill file."""
SPILL = 100_000_000
_GRACE = 1.0
"""Seconds between asking a process to end and ending it."""
_DEATH = 3.0
"""Seconds that are waited for processes to be gone that were forced to end."""
_DRAIN = 0.3
"""Seconds in which the output of a command that has ended still comes."""
_MARK = "SESSIONTREE_CALL"
_starters = ThreadPoolExecutor(4, thread_name_prefix="start")
_programs = ThreadPoolExecutor(16, thread_name_prefix="program")
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MISLEADING = ("BASH_ENV", "ENV")
"""Variables that make a shell run something before the command."""


class CommandResult(Struct, frozen=True):
    """A command that has ended, or was ended."""

    output: str
    exit_code: int | None = None
    """None when it was ended from outside."""
    timed_out: bool = False
    cancelled: bool = False
    size: int = 0
    """Bytes of output, of which only some may be told."""
    truncated: bool = False
    spill: str | None = None
    """The file that has all of the output."""
    spill_is_whole: bool = True
    left_behind: bool = False
    """Whether it had left processes in the background, which were ended."""
    seconds: float = 0.0


def shell() -> str:
    return next(
        (path for path in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash") if os.path.exists(path)), "/bin/sh"
    )


async def run_command(
    command: str,
    *,
    cwd: str,
    environment: Mapping[str, str],
    mask: Mask,
    seconds: float | None = None,
    outputs: str | None = None,
    name: str = "output",
    update: Callable[[str], None] | None = None,
) -> CommandResult:
    """Run a shell command until it ends, the time is up, or the task is cancelled.

    A cancelled task gets `CancelledError` when every process is gone; `run_until_cancelled` gives what had come.
    """
    running = await RunningCommand.start(command, cwd, environment, OutputCollector(mask, outputs, name, update))
    try:
        return await running.wait(seconds)
    except asyncio.CancelledError:
        await asyncio.shield(running.stop())
        raise


async def run_until_cancelled(
    command: str, *, cwd: str, environment: Mapping[str, str], mask: Mask, outputs: str | None, name: str,
    update: Callable[[str], None] | None = None, seconds: float | None = None,
) -> CommandResult:  # fmt: skip
    """Like `run_command`, but a cancel ends the command and not the caller: what it had printed is given."""
    running = await RunningCommand.start(command, cwd, environment, OutputCollector(mask, outputs, name, update))
    try:
        return await running.wait(seconds)
    except asyncio.CancelledError:
        return await running.stop(cancelled=True)


async def run_program(arguments: Sequence[str], data: bytes, *, cwd: str, seconds: float) -> tuple[int, bytes, bytes]:
    """Run a program of ours that is given all of its input: its exit code and what it prints.

    `TimeoutError` when the time is up. Then, and when the task is cancelled, it is gone before anyone goes on.
    """
    program = _Program(arguments, cwd)
    running = asyncio.get_running_loop().run_in_executor(_programs, program.run, data, seconds)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        program.kill()
        await asyncio.wait([running])
        raise


class _Program:
    """A program that is started and waited for in one thread, and may be ended from another."""

    def __init__(self, arguments: Sequence[str], cwd: str) -> None:
        self._arguments, self._cwd = arguments, cwd
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_unwanted = False

    def run(self, data: bytes, seconds: float) -> tuple[int, bytes, bytes]:
        with self._lock:
            if self._is_unwanted:
                return 1, b"", b""
            pipe = subprocess.PIPE
            process = subprocess.Popen(  # noqa: S603 - a list of arguments that our own tools make
                self._arguments, cwd=self._cwd, stdin=pipe, stdout=pipe, stderr=pipe
            )
            self._process = process
        with process:
            try:
                out, err = process.communicate(data, seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise TimeoutError from None
        return process.returncode, out, err

    def kill(self) -> None:
        with self._lock:
            self._is_unwanted = True
            if self._process is not None:
                self._process.kill()


class RunningCommand:
    """A command that runs."""

    def __init__(
        self, process: subprocess.Popen[bytes], ended: asyncio.Future[None], mark: str, collected: OutputCollector
    ) -> None:
        self._process, self._ended, self._mark, self._collected = process, ended, mark, collected
        self._began = time.monotonic()
        assert process.stdout is not None
        self._fd = process.stdout.fileno()
        os.set_blocking(self._fd, False)
        self._eof = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._fd, self._read)
        self._is_over = False
        self._was_cancelled = False

    @classmethod
    async def start(
        cls, command: str, cwd: str, environment: Mapping[str, str], collected: OutputCollector
    ) -> RunningCommand:
        """Start a command, in a thread: that takes milliseconds, and on a busy machine tens of them.

        Whoever is cancelled meanwhile hears of it when they wait for the command: by then there is one to be ended.
        """
        mark = os.urandom(12).hex()
        around = {key: value for key, value in environment.items() if key not in _MISLEADING}
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def start() -> subprocess.Popen[bytes]:
            PROCESS_GROUPS.prepare()
            process = subprocess.Popen(  # noqa: S603 - running commands is what this is for; who may is asked before
                [shell(), "-c", command],
                cwd=cwd,
                env={**around, _MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            PROCESS_GROUPS.begin(process.pid)  # killed before this, the program leaves a command behind
            _tell_of_end(process.pid, loop, ended)
            return process

        starting = loop.run_in_executor(_starters, start)
        was_cancelled = False
        while not starting.done():
            try:
                await asyncio.wait([starting])
            except asyncio.CancelledError:
                was_cancelled = True
        running = cls(starting.result(), ended, mark, collected)
        running._was_cancelled = was_cancelled
        return running

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self, seconds: float | None) -> CommandResult:
        """Until it has ended, or the time is up."""
        if self._was_cancelled:
            raise asyncio.CancelledError
        try:
            await asyncio.wait_for(asyncio.shield(self._ended), seconds)
        except TimeoutError:
            return await self.stop(timed_out=True)
        with contextlib.suppress(TimeoutError):  # something in the background may keep the output open
            await asyncio.wait_for(self._eof.wait(), _DRAIN)
        left = not self._eof.is_set() or await asyncio.to_thread(_has_others, self._process.pid, self._process.pid)
        _signal_group(self._process.pid, signal.SIGKILL)
        return self._finish(left_behind=left)

    async def stop(self, *, timed_out: bool = False, cancelled: bool = False) -> CommandResult:
        """End it and everything it started: asked first, then forced."""
        _signal_group(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._ended), _GRACE)
        end = time.monotonic() + _DEATH
        while self._kill_all() and time.monotonic() < end:
            await asyncio.sleep(0.01)
        await asyncio.shield(self._ended)
        return self._finish(timed_out=timed_out, cancelled=cancelled)

    def _kill_all(self) -> bool:
        """Force every process to end that is still there; whether there was one besides the first."""
        marked = [pid for pid in _marked(self._mark) if pid != self.pid]
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        others = _has_others(self.pid)
        _signal_group(self.pid, signal.SIGKILL)
        return bool(marked) or others

    def _read(self) -> None:
        """Take what is there, a limited amount at a time, so that others get their turn."""
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        if data:
            self._collected.add(data)
        else:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._eof.set()

    def _finish(
        self,
        *,
        timed_out: bool = False,
        cancelled: bool = False,
        left_behind: bool = False,
    ) -> CommandResult:
        if not self._is_over:
            self._is_over = True
            self._drain()
            asyncio.get_running_loop().remove_reader(self._fd)
            assert self._process.stdout is not None
            self._process.stdout.close()
        PROCESS_GROUPS.end(self._process.pid)
        exit_code = self._process.wait()  # a process that has ended; until now its number could not be given to another
        self._collected.end()
        return self._collected.told(
            exit_code=None if timed_out or cancelled else exit_code,
            timed_out=timed_out,
            cancelled=cancelled,
            left_behind=left_behind,
            seconds=time.monotonic() - self._began,
        )

    def _drain(self) -> None:
        """What is still in the pipe."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                data = os.read(self._fd, 1 << 16)
                if not data:
                    break
                self._collected.add(data)


class OutputCollector:
    """The output of a command: its beginning, its end, and all of it in a file when it is long."""

    def __init__(self, mask: Mask, outputs: str | None, name: str, update: Callable[[str], None] | None) -> None:
        self._stream = MaskedStream(mask)
        self._outputs, self._name, self._update = outputs, name, update
        self._head, self._tail = bytearray(), bytearray()
        self._size = 0
        self._fd: int | None = None
        self._path: str | None = None
        self._spilled = 0

    def add(self, data: bytes) -> None:
        self._keep(self._stream.feed(data))

    def end(self) -> None:
        self._keep(self._stream.end())
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        if self._update is not None:
            self._update(clean(data))
        room = max(0, HEAD - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        self._size += len(data)
        if self._size > HEAD + TAIL:
            self._spill(data)
            del self._tail[: max(0, len(self._tail) - TAIL)]

    def _spill(self, data: bytes) -> None:
        """Put output into the file. A full disk must not end the command; that the file is not whole is told."""
        if self._outputs is None or self._spilled >= SPILL:
            return
        try:
            if self._fd is None:
                self._path, self._fd = _new_file(self._outputs, self._name)
                data = bytes(self._head + self._tail)
            self._spilled += os.write(self._fd, data[: SPILL - self._spilled])
        except OSError:
            self._outputs = None

    def told(
        self, *, exit_code: int | None, timed_out: bool, cancelled: bool, left_behind: bool, seconds: float
    ) -> CommandResult:
        left_out = self._size - len(self._head) - len(self._tail)
        if left_out:
            first, last = clean(bytes(self._head)), clean(bytes(self._tail))
            note = f"[about {left_out:,} of {self._size:,} bytes left out here]"
            text = f"{_whole_lines_before(first)}\n\n{note}\n\n{_whole_lines_behind(last)}"
        else:
            text = clean(bytes(self._head + self._tail))
        return CommandResult(
            output=text,
            exit_code=exit_code,
            timed_out=timed_out,
            cancelled=cancelled,
            size=self._size,
            truncated=left_out > 0,
            spill=self._path,
            spill_is_whole=self._path is not None and self._spilled == self._size,
            left_behind=left_behind,
            seconds=seconds,
        )


def _new_file(folder: str, name: str) -> tuple[str, int]:
    """A file that only the user can read, with a name that leads nowhere else."""
    make_folder(folder)
    safe = re.sub(r"[^A-Za-z0-9_-]", "", name)[:40] or "output"
    path = os.path.join(folder, f"{safe}-{os.urandom(4).hex()}.txt")
    return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def clean(data: bytes) -> str:
    """Output as text: without colours and cursor movements, and without NUL, which not every store can hold."""
    return _CONTROL.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\0", "\ufffd")


def _whole_lines_before(text: str) -> str:
    return text[: text.rfind("\n")] if "\n" in text else text


def _whole_lines_behind(text: str) -> str:
    return text[text.find("\n") + 1 :] if "\n" in text[:2000] else text


def _tell_of_end(pid: int, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
    """Let a future be done when a child has ended; its number stays taken, so that a signal to its group cannot reach a
    stranger.

    Where the system has no way to tell of it, it is waited for in a thread of its own: those of the event loop are few,
    and commands may take long.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # too old a kernel, or no more files may be opened
            told_by = os.pidfd_open(pid)

            def over() -> None:
                loop.remove_reader(told_by)
                os.close(told_by)
                if not ended.done():
                    ended.set_result(None)

            loop.call_soon_threadsafe(loop.add_reader, told_by, over)
            return

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))

    threading.Thread(target=wait, daemon=True, name=f"command-{pid}").start()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _has_others(group: int, above: int = 0) -> bool:
    """Whether a process group has a living process besides its leader, among those with a number above another one.

    Numbers are given in turn, so what a command started has one above its own, but for once in a whole round of them;
    and to look at all there are takes longer than most commands do.
    """
    for pid, stat in _processes("stat", above):
        state, _, its_group, *_ = stat.rpartition(b")")[2].split()
        if int(its_group) == group and pid != group and state not in (b"Z", b"X"):
            return True
    return False


def _marked(mark: str) -> Iterator[int]:
    """The processes that were started under a mark, whichever group they are in by now."""
    wanted = f"{_MARK}={mark}".encode()
    return (pid for pid, around in _processes("environ") if wanted in around)


def _processes(what: str, above: int = 0) -> Iterator[tuple[int, bytes]]:
    """What the system tells of each process with a number above another one, where it does."""
    try:
        numbers = [number for entry in os.listdir("/proc") if entry.isdigit() and (number := int(entry)) > above]
    except FileNotFoundError:
        return
    for pid in numbers:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{what}", "rb") as file:
            yield pid, file.read()
