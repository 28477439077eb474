"""`make bench-peers`: measure published packages beside ours, and print tables in Markdown.

    python -m benchmarks.peer_packages [--only stores,postgres,loaders,libraries] [--entries 60000] [--seconds 60]
    python -m benchmarks.peer_packages --only stores --frameworks langgraph,pydantic-ai

Stores and fast-resume are installed in their newest versions, the others in those of the tests. What cannot be
installed or measured is a row with the reason. All parts together take about a quarter of an hour; where a framework is
too slow for the long history, its rows name the length that was measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.postgres.server import find_programs, running
from tests_adapters.environments import ROOT, NotInstalledError, environment, version_in

from benchmarks.generate import scratch_folder
from benchmarks.peer_packages import libraries, loaders
from benchmarks.peer_packages.processes import CommandFailedError, measured
from benchmarks.peer_packages.stores import DATABASE_STORES, FILE_STORES, LONGEST, OURS
from sessiontree.stores.postgres import open_postgres_repository

PACKAGES: dict[str, tuple[list[str], list[str]]] = {
    "openai-agents": (["openai-agents", "postgres"], ["openai-agents", "sqlalchemy[asyncio]", "aiosqlite"]),
    "google-adk": ([], ["google-adk", "sqlalchemy[asyncio]", "aiosqlite", "psycopg[binary]>=3.2"]),
    "langgraph": (
        ["langgraph", "postgres"],
        ["langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg[binary]>=3.2"],
    ),
    "pydantic-ai": (["pydantic-ai", "postgres"], ["pydantic-ai-slim"]),
}
"""By framework: the extras of this package, and what is installed with them."""
VERSIONS = {
    "openai-agents": ["openai-agents", "sqlalchemy"],
    "google-adk": ["google-adk"],
    "langgraph": ["langgraph", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"],
    "pydantic-ai": ["pydantic-ai-slim"],
}
_MEMORY_FOLDER = Path("/dev/shm")
_PARTS = ("stores", "postgres", "loaders", "libraries")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer_packages", description=__doc__)
    parser.add_argument("--only", default=",".join(_PARTS), help="parts, joined by commas")
    parser.add_argument("--frameworks", default=",".join(PACKAGES), help="whose stores, joined by commas")
    parser.add_argument("--entries", type=int, default=60_000, help="length of the long history")
    parser.add_argument("--seconds", type=float, default=60, help="time that a store may take to write it")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    parts = options.only.split(",")
    pythons: dict[str, str] = {}
    if "stores" in parts or "postgres" in parts:
        for framework, reason in _install(options.frameworks.split(","), pythons):
            print(f"{framework} cannot be installed: {reason}\n", flush=True)
    today = datetime.datetime.now(datetime.UTC).date()
    versions = [f"{name} {version_in(pythons[key], name)}" for key in pythons for name in VERSIONS[key]]
    print(f"Python {sys.version.split()[0]}, {today}{''.join(f', {name}' for name in versions)}\n", flush=True)
    begin = time.monotonic()
    if "stores" in parts:
        _print(_STORE_TITLES, _store_rows(pythons, options))
    if "postgres" in parts:
        _print(("framework", "store", "one writer", "32 writers", "CPU, one writer"), _database_rows(pythons))
    if "loaders" in parts:
        titles = ("program", "session of 100 MB", "CPU", "without its start", "peak memory", "messages")
        _print(titles, loaders.rows(options.rounds))
    if "libraries" in parts:
        _print(("program", "200 sessions, 155 MB", "CPU", "peak memory", "found"), libraries.rows(options.rounds))
    print(f"measured in {(time.monotonic() - begin) / 60:.0f} minutes", flush=True)


def _install(frameworks: Sequence[str], pythons: dict[str, str]) -> Iterator[tuple[str, str]]:
    for framework in frameworks:
        extras, requirements = PACKAGES[framework]
        try:
            pythons[framework] = environment(f"peers-{framework}", extras, requirements)
        except NotInstalledError as error:
            yield framework, str(error)


_STORE_TITLES = (
    "framework",
    "store",
    "append at 10",
    "on the clock",
    "no sync",
    "append at the end",
    "entries",
    "latest 50",
    "branch at 10",
    "branch at the end",
    "memory",
)


def _store_rows(pythons: dict[str, str], options: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    scratch = scratch_folder() / "peers"
    for framework, stores in FILE_STORES.items():
        for store in stores if framework in pythons else ():
            entries = min(options.entries, LONGEST.get(framework, options.entries))
            limits = ["--entries", str(entries), "--seconds", str(options.seconds)]
            try:
                found = _measure(pythons[framework], framework, store, scratch, limits)
                unsynced = (
                    _measure(pythons[framework], framework, store, _MEMORY_FOLDER / f"peers-{os.getpid()}", _SHORT)
                    if _MEMORY_FOLDER.is_dir()
                    else {}
                )
            except CommandFailedError as error:
                yield framework, store, f"failed: {error}", *[""] * (len(_STORE_TITLES) - 3)
                continue
            yield (
                framework,
                store,
                _ms(found, "append_first"),
                _ms(found, "wall_first"),
                _ms(unsynced, "append_first"),
                _ms(found, "append_last"),
                _length(found["history"], entries, options),
                _ms(found, "latest"),
                _ms(found, "branch_first"),
                _ms(found, "branch_last"),
                f"{found['memory']:,.0f} MB",
            )


def _length(history: int, entries: int, options: argparse.Namespace) -> str:
    """The measured length, with the reason if it is not the one that was asked for."""
    if history < entries:
        return f"{history:,} (after {options.seconds:.0f} s)"
    return f"{history:,}" if entries == options.entries else f"{history:,} (limit: too slow for {options.entries:,})"


_SHORT = ["--entries", "100", "--seconds", "1"]


def _measure(python: str, framework: str, store: str, place: Path, options: Sequence[str]) -> dict[str, Any]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        return _costs(python, framework, store, str(place), options)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _costs(python: str, framework: str, store: str, place: str, options: Sequence[str]) -> dict[str, Any]:
    print(f"{framework}: {store} ...", file=sys.stderr, flush=True)
    module = "benchmarks.peer_packages.store_costs"
    run = measured([python, "-m", module, framework, store, place, *options], dict(os.environ), str(ROOT))
    found: dict[str, Any] = json.loads(run.output)
    return found


def _database_rows(pythons: dict[str, str]) -> Iterator[tuple[str, ...]]:
    """All on one server with the settings of a fresh installation: each commit is synced."""
    try:
        find_programs()
    except FileNotFoundError as error:
        yield "PostgreSQL", str(error), "", "", ""
        return
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        with running(Path(folder) / "server") as server:
            for framework, stores in DATABASE_STORES.items():
                for store in stores if framework in pythons else ():
                    yield framework, store, *_rates(server, pythons[framework], framework, store)


def _rates(server: Any, python: str, framework: str, store: str) -> tuple[str, str, str]:
    address = server.create_database(f"peers{abs(hash((framework, store)))}")
    if OURS in store:
        repository = open_postgres_repository(address)
        repository.upgrade()
        repository.close()
    try:
        one = _costs(python, framework, store, address, ["--writers", "1"])
        many = _costs(python, framework, store, address, ["--writers", "32"])
    except CommandFailedError as error:
        return f"failed: {error}", "", ""
    return f"{one['rate']:,.0f} a second", f"{many['rate']:,.0f} a second", _ms(one, "cpu")


def _ms(found: dict[str, Any], name: str) -> str:
    return f"{found[name]:,.2f} ms" if name in found else ""


def _print(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}", flush=True)
    for row in rows:
        cells = [cell.replace("|", "/").replace("\n", " ") for cell in row]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(flush=True)


if __name__ == "__main__":
    main()
