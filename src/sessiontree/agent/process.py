"""Run a command in its own process group, with limits on time and output, and end everything it started.

When a command ends, its process group is ended. On a cancellation or timeout, processes that left the group are ended
as well: each is recognized by a mark in its environment (on Linux; elsewhere only the group is ended). Output is masked
before it is stored or shown; long output is written to a file that only the user can read. `process_groups` cleans up
if this program is killed.
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
from sessiontree.agent.sandbox import Sandbox
from sessiontree.secrets.environment import Mask, MaskedStream
from sessiontree.session.blob_refs import PREFIX
from sessiontree.stores.atomic_files import make_folder
from sessiontree.stores.contract import BlobStore

HEAD = 8_000
TAIL = 24_000
"""Bytes of the beginning and end of the output that are returned; all of it is in the spill file."""
MAX_SPILL = 100_000_000
_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL."""
_KILL_TIMEOUT = 3.0
"""Seconds to wait for killed processes to disappear."""
_DRAIN = 0.3
"""Seconds to wait for the remaining output of a command that has ended."""
_MARK = "SESSIONTREE_CALL"
_starters = ThreadPoolExecutor(4, thread_name_prefix="start")
_programs = ThreadPoolExecutor(16, thread_name_prefix="program")
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_STARTUP_VARIABLES = ("BASH_ENV", "ENV")
"""Variables that make a shell run something before the command."""


class CommandResult(Struct, frozen=True):
    """The result of a command that has ended, or was ended."""

    output: str
    exit_code: int | None = None
    """None if it was cancelled or timed out."""
    timed_out: bool = False
    cancelled: bool = False
    size: int = 0
    """Bytes of output, of which `output` may have only a part."""
    truncated: bool = False
    spill: str | None = None
    """The file with all of the output."""
    spill_is_complete: bool = True
    left_background: bool = False
    """Whether it left background processes, which were ended."""
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
    outputs: str | BlobStore | None = None,
    name: str = "output",
    update: Callable[[str], None] | None = None,
    sandbox: Sandbox | None = None,
) -> CommandResult:
    """Run a shell command until it ends, times out, or the task is cancelled.

    `CancelledError` is raised after every process is gone; `run_until_cancelled` returns the output instead.
    """
    collector = OutputCollector(mask, outputs, name, update)
    running = await RunningCommand.start(command, cwd, environment, collector, sandbox)
    try:
        return await running.wait(seconds)
    except asyncio.CancelledError:
        # Shielded: a second cancellation must not leave processes running.
        await asyncio.shield(running.stop())
        raise


async def run_until_cancelled(
    command: str, *, cwd: str, environment: Mapping[str, str], mask: Mask, outputs: str | BlobStore | None, name: str,
    update: Callable[[str], None] | None = None, seconds: float | None = None,
) -> CommandResult:  # fmt: skip
    """Like `run_command`, but a cancellation ends only the command: the output so far is returned."""
    running = await RunningCommand.start(command, cwd, environment, OutputCollector(mask, outputs, name, update))
    try:
        return await running.wait(seconds)
    except asyncio.CancelledError:
        return await running.stop(cancelled=True)


async def run_program(arguments: Sequence[str], data: bytes, *, cwd: str, seconds: float) -> tuple[int, bytes, bytes]:
    """Run one of our own programs with all of its input; returns exit code, stdout and stderr.

    `TimeoutError` when the time is up. Then, and on a cancellation, the program has ended before this returns.
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
    """Started and awaited in one thread, killed from another."""

    def __init__(self, arguments: Sequence[str], cwd: str) -> None:
        self._arguments, self._cwd = arguments, cwd
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_killed = False

    def run(self, data: bytes, seconds: float) -> tuple[int, bytes, bytes]:
        # The lock makes `kill` wait for a start in progress: it must not miss the process.
        with self._lock:
            if self._is_killed:  # before it was started
                return 1, b"", b""
            pipe = subprocess.PIPE
            process = subprocess.Popen(  # noqa: S603 - a list of arguments built by our own tools
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
            self._is_killed = True
            if self._process is not None:
                self._process.kill()


class RunningCommand:
    """A shell command in progress."""

    def __init__(
        self, process: subprocess.Popen[bytes], ended: asyncio.Future[None], mark: str, collector: OutputCollector
    ) -> None:
        self._process, self._ended, self._mark, self._collector = process, ended, mark, collector
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
        cls,
        command: str,
        cwd: str,
        environment: Mapping[str, str],
        collector: OutputCollector,
        sandbox: Sandbox | None = None,
    ) -> RunningCommand:
        """Start a command in a thread: a fork takes milliseconds, on a busy machine tens of them.

        A cancellation meanwhile is raised by `wait`: only then is there a process that can be ended.
        """
        mark = os.urandom(12).hex()
        inherited = {key: value for key, value in environment.items() if key not in _STARTUP_VARIABLES}
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        words = [shell(), "-c", command]
        arguments = words if sandbox is None else sandbox.arguments(words)

        def popen() -> subprocess.Popen[bytes]:
            return subprocess.Popen(  # noqa: S603 - running commands is the purpose; approval comes before
                arguments,
                cwd=cwd,
                env={**inherited, _MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Its own group, so that it can be ended, and no terminal, so that it cannot read the user's keys.
                start_new_session=True,
            )

        def start() -> subprocess.Popen[bytes]:
            PROCESS_GROUPS.prepare()
            process = popen() if sandbox is None else sandbox.call(popen)
            # If this program is killed between the two lines, the command survives. The window cannot be closed.
            PROCESS_GROUPS.begin(process.pid)
            _notify_of_end(process.pid, loop, ended)
            return process

        starting = loop.run_in_executor(_starters, start)
        was_cancelled = False
        while not starting.done():
            try:
                await asyncio.wait([starting])
            except asyncio.CancelledError:
                was_cancelled = True
        running = cls(starting.result(), ended, mark, collector)
        running._was_cancelled = was_cancelled
        return running

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self, seconds: float | None) -> CommandResult:
        """Wait until the command has ended; stop it when the time is up."""
        if self._was_cancelled:
            raise asyncio.CancelledError
        try:
            await asyncio.wait_for(asyncio.shield(self._ended), seconds)
        except TimeoutError:
            return await self.stop(timed_out=True)
        with contextlib.suppress(TimeoutError):  # a background process may keep the output open
            await asyncio.wait_for(self._eof.wait(), _DRAIN)
        left = not self._eof.is_set() or await asyncio.to_thread(_has_members, self._process.pid, self._process.pid)
        # The shell has ended but is not reaped, so its id cannot belong to another group yet.
        _signal_group(self._process.pid, signal.SIGKILL)
        return self._finish(left_background=left)

    async def stop(self, *, timed_out: bool = False, cancelled: bool = False) -> CommandResult:
        """End the command and everything it started: SIGTERM first, then SIGKILL."""
        _signal_group(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._ended), _GRACE)
        # Repeated: a process may fork between being listed and being killed.
        end = time.monotonic() + _KILL_TIMEOUT
        while self._kill_all() and time.monotonic() < end:
            await asyncio.sleep(0.01)
        await asyncio.shield(self._ended)
        return self._finish(timed_out=timed_out, cancelled=cancelled)

    def _kill_all(self) -> bool:
        """Kill all processes of the command; returns whether there was one besides the shell."""
        marked = [pid for pid in _find_marked(self._mark) if pid != self.pid]
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        has_members = _has_members(self.pid)
        _signal_group(self.pid, signal.SIGKILL)
        return bool(marked) or has_members

    def _read(self) -> None:
        # One read per call, so that a command which prints without end does not block the event loop.
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        if data:
            self._collector.add(data)
        else:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._eof.set()

    def _finish(
        self,
        *,
        timed_out: bool = False,
        cancelled: bool = False,
        left_background: bool = False,
    ) -> CommandResult:
        if not self._is_over:
            self._is_over = True
            self._drain()
            asyncio.get_running_loop().remove_reader(self._fd)
            assert self._process.stdout is not None
            self._process.stdout.close()
        # `wait` reaps the process, and its id may be reused from then on: no signal may be sent after it.
        PROCESS_GROUPS.end(self._process.pid)
        exit_code = self._process.wait()
        self._collector.end()
        return self._collector.result(
            exit_code=None if timed_out or cancelled else exit_code,
            timed_out=timed_out,
            cancelled=cancelled,
            left_background=left_background,
            seconds=time.monotonic() - self._began,
        )

    def _drain(self) -> None:
        """Read what is left in the pipe; bounded, as a process that escaped may still write to it."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(64):
                data = os.read(self._fd, 1 << 16)
                if not data:
                    break
                self._collector.add(data)


class OutputCollector:
    """Masks output, keeps its beginning and end, and writes all of it to a file or a blob when it is long."""

    def __init__(
        self, mask: Mask, outputs: str | BlobStore | None, name: str, update: Callable[[str], None] | None
    ) -> None:
        """`outputs` is the folder of spill files, or blobs; `name` a prefix of a file; `update` gets masked output."""
        self._stream = MaskedStream(mask)
        self._outputs, self._name, self._update = outputs, name, update
        self._head, self._tail = bytearray(), bytearray()
        self._size = 0
        self._spill: _SpillFile | _SpillBlob | None = None
        self._spilled = 0

    def add(self, data: bytes) -> None:
        self._keep(self._stream.feed(data))

    def end(self) -> None:
        self._keep(self._stream.end())
        if self._spill is not None:
            self._spill.close()

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        if self._update is not None:
            self._update(clean(data))
        free = max(0, HEAD - len(self._head))
        self._head += data[:free]
        self._tail += data[free:]
        self._size += len(data)
        if self._size > HEAD + TAIL:
            self._write_spill(data)
            del self._tail[: max(0, len(self._tail) - TAIL)]

    def _write_spill(self, data: bytes) -> None:
        if self._outputs is None or self._spilled >= MAX_SPILL:
            return
        try:
            if self._spill is None:
                to = self._outputs
                self._spill = _SpillFile(to, self._name) if isinstance(to, str) else _SpillBlob(to)
                data = bytes(self._head + self._tail)
            self._spilled += self._spill.write(data[: MAX_SPILL - self._spilled])
        except OSError:  # a full disk must not end the command; the result reports that the file is incomplete
            self._outputs = None

    def result(
        self,
        *,
        exit_code: int | None = None,
        timed_out: bool = False,
        cancelled: bool = False,
        left_background: bool = False,
        seconds: float = 0.0,
    ) -> CommandResult:
        omitted = self._size - len(self._head) - len(self._tail)
        if omitted:
            first, last = clean(bytes(self._head)), clean(bytes(self._tail))
            note = f"[about {omitted:,} of {self._size:,} bytes omitted here]"
            text = f"{_drop_last_line(first)}\n\n{note}\n\n{_drop_first_line(last)}"
        else:
            text = clean(bytes(self._head + self._tail))
        return CommandResult(
            output=text,
            exit_code=exit_code,
            timed_out=timed_out,
            cancelled=cancelled,
            size=self._size,
            truncated=omitted > 0,
            spill=None if self._spill is None else self._spill.location,
            spill_is_complete=self._spill is not None and self._spilled == self._size,
            left_background=left_background,
            seconds=seconds,
        )


class _SpillFile:
    """A file that only the user can read. Its name comes from a model: anything but letters and digits is dropped."""

    def __init__(self, folder: str, name: str) -> None:
        make_folder(folder)
        if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)):
            raise OSError(f"{folder}: a symbolic link, which is not followed")
        safe = re.sub(r"[^A-Za-z0-9_-]", "", name)[:40] or "output"
        self.location: str | None = os.path.join(folder, f"{safe}-{os.urandom(4).hex()}.txt")
        self._fd = os.open(self.location, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> int:
        return os.write(self._fd, data)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _SpillBlob:
    """Output that becomes a blob when it is complete."""

    def __init__(self, blobs: BlobStore) -> None:
        self.location: str | None = None
        self._blobs = blobs
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        self._data += data
        return len(data)

    def close(self) -> None:
        if self.location is None:
            self.location = PREFIX + self._blobs.put(bytes(self._data))
            self._data.clear()


def clean(data: bytes) -> str:
    """Decode output, without colors and cursor movements, and without NUL, which not every store supports."""
    return _CONTROL.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\0", "\ufffd")


def _drop_last_line(text: str) -> str:
    return text[: text.rfind("\n")] if "\n" in text else text


def _drop_first_line(text: str) -> str:
    return text[text.find("\n") + 1 :] if "\n" in text[:2000] else text


def _notify_of_end(pid: int, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
    """Resolve a future when a child has ended, without reaping it.

    Until it is reaped its id stays taken, so that a signal to its group cannot reach an unrelated process.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # an old kernel, or too many open files
            pidfd = os.pidfd_open(pid)

            def on_readable() -> None:
                loop.remove_reader(pidfd)
                os.close(pidfd)
                if not ended.done():
                    ended.set_result(None)

            loop.call_soon_threadsafe(loop.add_reader, pidfd, on_readable)
            return

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(lambda: None if ended.done() else ended.set_result(None))

    # A separate thread: executors have few, and commands may run for hours.
    threading.Thread(target=wait, daemon=True, name=f"command-{pid}").start()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _has_members(group: int, above: int = 0) -> bool:
    """Whether a process group has a live process besides its leader, among those with an id greater than `above`.

    Ids are assigned in ascending order, so what a command starts has a greater one, except when they wrap around.
    Reading all of /proc would take longer than most commands do.
    """
    for pid, stat in _iter_processes("stat", above):
        state, _, its_group, *_ = stat.rpartition(b")")[2].split()
        if int(its_group) == group and pid != group and state not in (b"Z", b"X"):
            return True
    return False


def _find_marked(mark: str) -> Iterator[int]:
    """Processes that were started with a mark in their environment, in whichever group they are now."""
    wanted = f"{_MARK}={mark}".encode()
    return (pid for pid, environment in _iter_processes("environ") if wanted in environment)


def _iter_processes(file: str, above: int = 0) -> Iterator[tuple[int, bytes]]:
    """Read a file in /proc of each process with an id greater than `above`; nothing on other systems."""
    try:
        pids = [pid for entry in os.listdir("/proc") if entry.isdigit() and (pid := int(entry)) > above]
    except FileNotFoundError:
        return
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", "rb") as opened:
            yield pid, opened.read()
