"""Run a program without network except loopback, in a private folder and environment, with limits of its time.

The first limit is CPU time, so that a busy machine does not end a run that would have ended by itself. A program that
waits forever is ended by the second one.

It runs below a child process, `python -m acceptance.network`, because the model server must be in the same network
namespace. Where namespaces are not available, the child runs without one, and the program gets a proxy that does not
exist; the output reports that.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from acceptance.model_server import ModelServer

PORT = "{port}"
"""Placeholder for the port of the model server, in environment variables and files."""

FIXED_PORT = 8417

MAX_WAIT = 8
"""How many times its CPU time a run may last: programs share the machine with each other, and some of them wait."""
WORKERS = int(os.environ.get("SESSIONTREE_ACCEPTANCE_WORKERS") or 2 * (os.cpu_count() or 1))
"""Number of programs that run at the same time: most of them wait for half of their time."""

# Nothing listens on port 9, so any connection that does not go to loopback fails at once.
DEAD_PROXY = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of a run. `exit_code` is None if it exceeded its time."""

    exit_code: int | None
    stdout: str
    stderr: str
    requests: list[dict[str, Any]] = field(default_factory=list)


@cache
def namespace() -> tuple[str, ...] | None:
    """The command prefix for a separate network namespace; None if they are not available."""
    for prefix in (("unshare", "--map-root-user", "--net"), ("unshare", "--net")):
        try:
            done = subprocess.run([*prefix, sys.executable, "-c", ""], capture_output=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return prefix
    return None


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    seconds: float,
    files: Mapping[Path, str] | None = None,
) -> RunResult:
    """Run a program in `folder`, which is also its home, with a model server, for some seconds of CPU time.

    `files` are written before.
    """
    prefix = namespace()
    given = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        **({} if prefix else DEAD_PROXY),
        **environment,
    }
    job = {
        "command": list(command),
        "environment": given,
        "files": {str(path): text for path, text in (files or {}).items()},
        "folder": str(folder),
        "seconds": seconds,
        "in_namespace": prefix is not None,
    }
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [*(prefix or ()), sys.executable, "-m", "acceptance.network"],
        input=json.dumps(job),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=seconds * MAX_WAIT + 30,
        check=False,
    )
    if done.returncode:
        return RunResult(done.returncode, "", done.stderr)
    return RunResult(**json.loads(done.stdout))


def _main() -> None:
    """The child process: read the job from stdin, write its result to stdout."""
    job = json.load(sys.stdin)
    if job["in_namespace"]:
        _raise_loopback()
    # Some programs remember the address of the server; in a namespace it can be the same in every run.
    with ModelServer(FIXED_PORT if job["in_namespace"] else 0) as server:
        environment = {name: text.replace(PORT, str(server.port)) for name, text in job["environment"].items()}
        for path, text in job["files"].items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text.replace(PORT, str(server.port)))
        result = _run_limited(job["command"], environment, job["folder"], job["seconds"])
        result.requests.extend(server.requests)
    json.dump(asdict(result), sys.stdout)


def _run_limited(command: list[str], environment: dict[str, str], folder: str, seconds: float) -> RunResult:
    # Inherited by the program. This process needs next to nothing of it.
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
    child = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = child.communicate(timeout=seconds * MAX_WAIT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        stdout, stderr = child.communicate()
        return RunResult(None, stdout, stderr)
    is_over_limit = child.returncode in (-signal.SIGKILL, -signal.SIGXCPU)
    return RunResult(None if is_over_limit else child.returncode, stdout, stderr)


def _raise_loopback() -> None:
    """Switch on the loopback device, which is off in a new namespace."""
    set_flags, is_up = 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", is_up))


if __name__ == "__main__":
    _main()
