"""Peak memory of commands on sessions of 1 GB that were never compacted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks.generate import LARGE, generated, scratch_folder
from benchmarks.results import Result, megabytes
from benchmarks.transcripts import TranscriptShape, transcript

_FORMATS = ("md", "html", "json", "jsonl", "text")
_COMMANDS = (
    *("info", "tree", "branches", "doctor", "show", "context --json"),
    *(f"export --format {format}" for format in _FORMATS),
)
_OF_A_LIBRARY = ("list --all", "search parser", "search parser --json")
"""Commands that find the session in a library, with no index and no cache yet."""
_DIALECTS = {"native": "native", "Claude Code": "claude"}
_RUN = """
import resource, sys
from sessiontree.cli import main
main(sys.argv[1:])
sys.stdout.flush()
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
except FileNotFoundError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
used = resource.getrusage(resource.RUSAGE_SELF)
print(peak, used.ru_utime + used.ru_stime, file=sys.stderr)
"""


def commands(rounds: int) -> list[Result]:  # noqa: ARG001 - memory is not noisy
    """Each command takes at most 250 MB, including the interpreter."""
    native = generated(msgspec.structs.replace(LARGE, compactions=0))
    sessions = {"native": native, "Claude Code": transcript(TranscriptShape(size=LARGE.size))}
    return [
        *(_measure(command, name, path) for command in _COMMANDS for name, path in sessions.items()),
        *(_measure(command, name, path, True) for command in _OF_A_LIBRARY for name, path in sessions.items()),
    ]


def _measure(command: str, name: str, path: Path, in_library: bool = False) -> Result:
    verb, *options = command.split()
    with tempfile.TemporaryDirectory(dir=scratch_folder()) as home:
        if in_library:
            folder = Path(home, "sessions", "project")
            folder.mkdir(parents=True)
            os.link(path, folder / "00000000-0000-4000-8000-000000000001.jsonl")
            options.append(f"--root={_DIALECTS[name]}={folder.parent}")
        else:
            options.insert(0, str(path))
        done = subprocess.run(
            [sys.executable, "-c", _RUN, verb, *options],
            stdout=subprocess.PIPE if in_library else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=True,
            env={**os.environ, "HOME": home, "XDG_CACHE_HOME": home},
        )
        if in_library and not done.stdout:
            raise RuntimeError(f"`{command}` of 1 GB ({name}) found nothing: {done.stderr.decode()}")
    peak, seconds = done.stderr.split()[-2:]
    about = f"{float(seconds):.1f} s"
    return Result(
        f"`{command}` of 1 GB ({name}), peak memory",
        megabytes(int(peak)),
        about,
        int(peak) / 1e6,
        bound=262,  # 250 MiB
        unit="MB",
    )
