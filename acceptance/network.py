"""Runs a program with no network but loopback, in a folder and an environment of its own, for a limited time.

The run happens in a child process, `python -m acceptance.network`, because the model server must stand in the same
network namespace as the program. Where namespaces cannot be made, the same child runs without one, the program is
given a proxy that does not exist, and the output of the run says so.
"""

from __future__ import annotations

import fcntl
import json
import os
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
"""Stands in environment variables and files for the port of the model server."""

# Nothing listens on port 9, so whatever does not go to loopback fails at once.
NO_WAY_OUT = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `exit_code` is None when the time was up."""

    exit_code: int | None
    stdout: str
    stderr: str
    requests: list[dict[str, Any]] = field(default_factory=list)


@cache
def namespace() -> tuple[str, ...] | None:
    """The command that starts another one in a network namespace of its own, or None where that is impossible."""
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
) -> Ended:
    """Run a program in `folder`, which is also its home, with a model server beside it. `files` are written before."""
    prefix = namespace()
    given = {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        **({} if prefix else NO_WAY_OUT),
        **environment,
    }
    job = {
        "command": list(command),
        "environment": given,
        "files": {str(path): text for path, text in (files or {}).items()},
        "folder": str(folder),
        "seconds": seconds,
        "alone": prefix is not None,
    }
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [*(prefix or ()), sys.executable, "-m", "acceptance.network"],
        input=json.dumps(job),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=seconds + 30,
        check=False,
    )
    if done.returncode:
        return Ended(done.returncode, "", done.stderr)
    return Ended(**json.loads(done.stdout))


def _main() -> None:
    """Inside: the job comes in on stdin, and how it ended goes out on stdout."""
    job = json.load(sys.stdin)
    if job["alone"]:
        _raise_loopback()
    with ModelServer() as server:
        environment = {name: text.replace(PORT, str(server.port)) for name, text in job["environment"].items()}
        for path, text in job["files"].items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text.replace(PORT, str(server.port)))
        ended = _run_limited(job["command"], environment, job["folder"], job["seconds"])
        ended.requests.extend(server.requests)
    json.dump(asdict(ended), sys.stdout)


def _run_limited(command: list[str], environment: dict[str, str], folder: str, seconds: float) -> Ended:
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
        stdout, stderr = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        stdout, stderr = child.communicate()
        return Ended(None, stdout, stderr)
    return Ended(child.returncode, stdout, stderr)


def _raise_loopback() -> None:
    """Switch on the loopback device, which is off in a new namespace."""
    set_flags, is_up = 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", is_up))


if __name__ == "__main__":
    _main()
