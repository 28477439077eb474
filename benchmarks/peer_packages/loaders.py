"""Open a session of 100 MB in a new process and build its context: Pi, oh-my-pi, a loader with json.loads, and ours."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from acceptance import programs

import sessiontree
from benchmarks.generate import Shape, generated, scratch_folder
from benchmarks.peer_packages.processes import CommandFailedError, best, measured

_OURS = """
import sys, sessiontree
print(len(sessiontree.open(sys.argv[1]).context().messages))
"""
_LOADER = """
import sys
from pathlib import Path
from benchmarks.peers import load_context
print(len(load_context(Path(sys.argv[1]))))
"""
_OPEN: dict[Literal["pi", "omp"], str] = {
    "pi": "SessionManager.open(file)",
    "omp": "await SessionManager.open(file, folder, undefined, { initialCwd: folder, suppressBreadcrumb: true })",
}
_DRIVER = """
const [, , module, file, folder] = process.argv;
const { SessionManager } = await import(module);
const manager = OPEN;
console.log(manager.buildSessionContext().messages.length);
process.exit(0);
"""
_EMPTY = """
const [, , module] = process.argv;
await import(module);
process.exit(0);
"""


def rows(rounds: int) -> Iterator[tuple[str, ...]]:
    """Program, CPU time and peak memory of the process, CPU time without its start, number of messages."""
    native = generated(Shape())
    folder = scratch_folder() / "loaders"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    around = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    around |= {"SESSIONTREE_CACHE": str(folder / "cache"), "PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": str(folder)}
    yield _row("json.loads loader", "a native file", [sys.executable, "-c", _LOADER], str(native), around, rounds)
    yield _row("sessiontree (ours)", "a native file", [sys.executable, "-c", _OURS], str(native), around, rounds)
    for name in _OPEN:
        kind, path = f"a file of {programs.TITLES[name]}", folder / f"{name}.jsonl"
        with open(path, "wb") as file:
            file.writelines(sessiontree.convert(sessiontree.open(native), name, branch="all").lines)
        yield _row("sessiontree (ours)", kind, [sys.executable, "-c", _OURS], str(path), around, rounds)
        yield _program_row(name, kind, path, around, rounds)


def _program_row(
    name: Literal["pi", "omp"], kind: str, path: Path, around: dict[str, str], rounds: int
) -> tuple[str, ...]:
    try:
        installed = programs.install(name)
    except programs.NotInstalledError as error:
        return programs.TITLES[name], kind, f"not installed: {error}", "", "", ""
    script = path.with_suffix(".mjs")
    script.write_text(_DRIVER.replace("OPEN", _OPEN[name]))
    command = [str(installed.binary), str(script), str(installed.module)]
    script.with_name("empty.mjs").write_text(_EMPTY)
    empty = [str(installed.binary), str(script.with_name("empty.mjs")), str(installed.module)]
    return _row(installed.title, kind, command, str(path), around, rounds, empty)


def _row(
    title: str,
    kind: str,
    command: list[str],
    path: str,
    around: dict[str, str],
    rounds: int,
    empty: list[str] | None = None,
) -> tuple[str, ...]:
    idle = empty or [sys.executable, "-c", "import sessiontree, sessiontree.session.open, json"]
    try:
        runs = []
        for _ in range(rounds):
            shutil.rmtree(around["SESSIONTREE_CACHE"], ignore_errors=True)
            runs.append(measured([*command, path, str(Path(path).parent)], around))
        run, start = best(runs), best([measured(idle, around) for _ in range(rounds)])
    except CommandFailedError as error:
        return title, kind, f"failed: {error}", "", "", ""
    alone = max(run.seconds - start.seconds, 0.0)
    return (
        title,
        kind,
        f"{1e3 * run.seconds:,.0f} ms",
        f"{1e3 * alone:,.0f} ms",
        f"{run.peak / 1e6:,.0f} MB",
        f"{int(run.output.split()[-1]):,}",
    )
