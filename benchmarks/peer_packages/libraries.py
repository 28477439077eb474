"""List and search 200 sessions of several agents, each call a new process: fast-resume, claude-agent-sdk and ours."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests_adapters import environments
from tests_adapters.environments import NotInstalledError, version_in
from tests_adapters.runs import Run

from benchmarks.corpus import Corpus, environment, generated
from benchmarks.generate import scratch_folder
from benchmarks.peer_packages.processes import CommandFailedError, Measured, best, measured

_QUERY = "parser cache"
_LIST_WITH_SDK = """
from claude_agent_sdk import list_sessions
print(len(list_sessions()))
"""


def rows(rounds: int) -> Iterator[tuple[str, ...]]:
    """Program, what it does, CPU time and peak memory, the number of sessions or hits."""
    folder = generated(Corpus())
    scratch = scratch_folder() / "libraries"
    shutil.rmtree(scratch, ignore_errors=True)
    own = {**os.environ, **environment(folder), "SESSIONTREE_CACHE": str(scratch / "ours")}
    ours = [sys.executable, "-m", "sessiontree"]
    yield from _program("sessiontree (ours)", scratch / "ours", own, rounds, _sessions, *_ours(ours))
    try:
        python = environments.environment("peers-fast-resume", [], ["fast-resume"])
    except NotInstalledError as error:
        yield "fast-resume", "", f"not installed: {error}", "", ""
    else:
        caches = ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
        theirs = {**own, **dict.fromkeys(caches, str(scratch / "theirs"))}
        program = str(Path(python).with_name("fr"))
        title = f"fast-resume {version_in(python, 'fast-resume')}"
        listing, search = [program, "--json", "--all"], [program, "--json", "--all", _QUERY]
        yield from _program(title, scratch / "theirs", theirs, rounds, _sessions, listing, search)
    yield from _claude_rows(folder, scratch, rounds)


def _ours(program: list[str]) -> tuple[list[str], list[str]]:
    return [*program, "list", "--all", "--json"], [*program, "search", "--all", "--json", _QUERY]


def _claude_rows(folder: Path, scratch: Path, rounds: int) -> Iterator[tuple[str, ...]]:
    """The sessions of Claude Code alone, which the SDK lists; it has no search."""
    alone = {
        **os.environ,
        "HOME": str(scratch / "empty"),
        "SESSIONTREE_HOME": str(scratch / "empty"),
        "XDG_DATA_HOME": str(scratch / "empty"),
        "CLAUDE_CONFIG_DIR": str(folder / ".claude"),
        "SESSIONTREE_CACHE": str(scratch / "claude"),
    }
    command = _ours([sys.executable, "-m", "sessiontree"])[0]
    about = "list the sessions of Claude Code"
    yield from _listing("sessiontree (ours)", about, scratch / "claude", alone, rounds, _sessions, command)
    try:
        python = Run("claude_agent_sdk").environment()
    except NotInstalledError as error:
        yield "claude-agent-sdk", about, f"not installed: {error}", "", ""
        return
    title = f"claude-agent-sdk {version_in(python, 'claude-agent-sdk')}"
    theirs = [python, "-c", _LIST_WITH_SDK]
    yield from _listing(title, about, scratch / "claude", alone, rounds, lambda run: int(run.output), theirs)


def _program(
    title: str,
    cache: Path,
    around: Mapping[str, str],
    rounds: int,
    count: Callable[[Measured], int],
    listing: list[str],
    search: list[str],
) -> Iterator[tuple[str, ...]]:
    yield from _listing(title, "list", cache, around, rounds, count, listing)
    try:
        shutil.rmtree(cache, ignore_errors=True)
        first = measured(search, around)
        yield _row(title, "search, without an index", first, count)
        yield _row(title, "search again", best([measured(search, around) for _ in range(2 * rounds)]), count)
    except CommandFailedError as error:
        yield title, "search", f"failed: {error}", "", ""


def _listing(
    title: str,
    about: str,
    cache: Path,
    around: Mapping[str, str],
    rounds: int,
    count: Callable[[Measured], int],
    command: list[str],
) -> Iterator[tuple[str, ...]]:
    try:
        cold = []
        for _ in range(rounds):
            shutil.rmtree(cache, ignore_errors=True)
            cold.append(measured(command, around))
        yield _row(title, f"{about}, first time", best(cold), count)
        yield _row(title, f"{about} again", best([measured(command, around) for _ in range(2 * rounds)]), count)
    except CommandFailedError as error:
        yield title, about, f"failed: {error}", "", ""


def _row(title: str, about: str, run: Measured, count: Callable[[Measured], int]) -> tuple[str, ...]:
    return title, about, f"{1e3 * run.seconds:,.0f} ms", f"{run.peak / 1e6:,.0f} MB", f"{count(run):,}"


def _sessions(run: Measured) -> int:
    found = json.loads(run.output)
    if isinstance(found, dict):
        found = next(value for value in found.values() if isinstance(value, list))
    return len(found)
