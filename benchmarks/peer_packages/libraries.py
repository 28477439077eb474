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
_FIRST_HITS = ["--limit", "20"]
_UNTIL_PRINTED = """
from sessiontree.cli import enter, list as listing
listing._SECONDS_UNSEEN = 0
enter()
"""
"""Our `list` counts the branches of large sessions for some time after its output, so that has a row of its own."""
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
    yield from _printed("list", scratch / "ours", own, rounds)
    search = [sys.executable, "-m", "sessiontree", "search", "--json", *_FIRST_HITS, _QUERY]
    yield from _program("sessiontree (ours)", scratch / "ours", own, rounds, _sessions, _OURS, search)
    try:
        python = environments.environment("peers-fast-resume", [], ["fast-resume"])
    except NotInstalledError as error:
        yield "fast-resume", "", f"not installed: {error}", "", ""
    else:
        caches = ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
        theirs = {**own, **dict.fromkeys(caches, str(scratch / "theirs"))}
        program = str(Path(python).with_name("fr"))
        title = f"fast-resume {version_in(python, 'fast-resume')}"
        listing, search = [program, "--json", "--all"], [program, "--json", *_FIRST_HITS, _QUERY]
        yield from _program(title, scratch / "theirs", theirs, rounds, _sessions, listing, search)
    yield from _claude_rows(folder, scratch, rounds)


_LISTING = ["list", "--all", "--json"]
_OURS = [sys.executable, "-m", "sessiontree", *_LISTING]


def _printed(about: str, cache: Path, around: Mapping[str, str], rounds: int) -> Iterator[tuple[str, ...]]:
    title, command = "sessiontree (ours)", [sys.executable, "-c", _UNTIL_PRINTED, *_LISTING]
    try:
        yield _row(title, f"{about}, first time, until printed", _first(cache, around, rounds, command), _sessions)
    except CommandFailedError as error:
        yield title, about, f"failed: {error}", "", ""


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
    about = "list the sessions of Claude Code"
    yield from _printed(about, scratch / "claude", alone, rounds)
    yield from _listing("sessiontree (ours)", about, scratch / "claude", alone, rounds, _sessions, _OURS)
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
        yield _row(title, "index all of it and search", measured([*search, "--rebuild"], around), count)
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
        yield _row(title, f"{about}, first time", _first(cache, around, rounds, command), count)
        yield _row(title, f"{about} again", best([measured(command, around) for _ in range(2 * rounds)]), count)
    except CommandFailedError as error:
        yield title, about, f"failed: {error}", "", ""


def _first(cache: Path, around: Mapping[str, str], rounds: int, command: list[str]) -> Measured:
    """The best of some runs that each start with an empty cache."""
    runs = []
    for _ in range(rounds):
        shutil.rmtree(cache, ignore_errors=True)
        runs.append(measured(command, around))
    return best(runs)


def _row(title: str, about: str, run: Measured, count: Callable[[Measured], int]) -> tuple[str, ...]:
    return title, about, f"{1e3 * run.seconds:,.0f} ms", f"{run.peak / 1e6:,.0f} MB", f"{count(run):,}"


def _sessions(run: Measured) -> int:
    """Listed sessions; of our search, its hits."""
    found = json.loads(run.output)
    if isinstance(found, dict):
        found = found["hits"] if "hits" in found else found["sessions"]
    return len(found)
