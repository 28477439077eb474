"""Benchmarks of import and of the start of the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.results import Outcome, Result, Skipped, milliseconds
from benchmarks.timing import run_python, wall_seconds

_ENGINE = "import sessiontree; sessiontree.open"


def import_package(rounds: int) -> Result:
    """`import sessiontree` takes under 60 ms, by `-X importtime`."""
    best = min(_import_seconds("import sessiontree") for _ in range(2 * rounds))
    return Result("import sessiontree", milliseconds(best), "nothing (-X importtime)", 1e3 * best, bound=60, unit="ms")


def import_engine(rounds: int) -> Result:
    """Import of the engine, which `sessiontree.open` loads: elapsed time beyond a bare interpreter."""
    best = bare = float("inf")
    for _ in range(2 * rounds):
        best = min(best, wall_seconds([sys.executable, "-c", _ENGINE]))
        bare = min(bare, wall_seconds([sys.executable, "-c", ""]))
    return Result(
        "import sessiontree and touch open",
        milliseconds(best),
        f"{milliseconds(bare)} for a bare interpreter",
        1e3 * (best - bare),
        unit="ms",
    )


def show_help(rounds: int) -> Outcome:
    """`sessiontree --help` takes under 150 ms, including the start of Python."""
    name = "sessiontree --help"
    command = Path(sys.executable).with_name("sessiontree")
    if not command.exists():
        return Skipped(name, "the command is not installed next to this interpreter")
    try:
        best = min(wall_seconds([str(command), "--help"]) for _ in range(2 * rounds))
    except subprocess.CalledProcessError as error:
        return Skipped(name, f"it fails: {error.stderr.decode().splitlines()[-1]}")
    return Result(name, milliseconds(best), "nothing", 1e3 * best, bound=150, unit="ms")


def _import_seconds(code: str) -> float:
    """The cumulative import time of the package, which the interpreter prints in microseconds."""
    report = run_python(code, options=("-X", "importtime"))[1]
    rows = (line.removeprefix("import time:").split("|") for line in report.splitlines())
    return next(int(row[1]) / 1e6 for row in rows if row[-1].strip() == "sessiontree")
