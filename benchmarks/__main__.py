"""`python -m benchmarks`: run all benchmarks and print one table. Exits with 1 if a bound does not hold."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks import (
    agent,
    append,
    claude,
    codex,
    compaction,
    conversion,
    exploration,
    export,
    huge,
    library,
    opencode,
    postgres,
    read,
    search,
    startup,
    tui,
    web,
)
from benchmarks.against import compare
from benchmarks.results import Outcome, Result, Skipped, render_table

Measurement = Callable[[int], Outcome | list[Result] | list[Outcome]]
"""Takes a number of rounds; returns one row of the table, or several related ones."""

MEASUREMENTS: dict[str, Measurement] = {
    "loader": read.against_loader,
    "newlines": read.against_newlines,
    "newlines-chunked": read.against_chunked_newlines,
    "open-again": read.open_again,
    "memory": read.memory,
    "long-line": read.long_line,
    "claude": claude.against_loader,
    "claude-boundary": claude.after_boundary,
    "codex": codex.against_loader,
    "agent": agent.turns,
    "explore": exploration.side_by_side,
    "append-flat": append.append_stays_flat,
    "append-short": append.append_short,
    "append-mixed": append.append_mixed,
    "append-fsync": append.append_synced,
    "append-fsync-calls": append.synced_calls_alone,
    "import": startup.import_package,
    "engine": startup.import_engine,
    "help": startup.show_help,
    "convert": conversion.convert_to_each,
    "convert-compared": conversion.convert_compared,
    "compact": compaction.against_opening,
    "export": export.export_one,
    "export-corpus": export.export_corpus,
    "layout": read.layout,
    "tree": library.tree,
    "list-cold": library.list_cold,
    "list-warm": library.list_warm,
    "snapshot": library.snapshot,
    "complete": library.complete,
    "stats-cold": library.stats_cold,
    "stats-warm": library.stats_warm,
    "search-index": search.index_all,
    "search": search.run_queries,
    "search-scan": search.without_index,
    "tui": tui.screens,
}
LARGE: dict[str, Measurement] = {
    "large": read.large_memory,
    "huge": huge.commands,
    "codex-compacted": codex.repeated_compactions,
    "list-10000": library.list_10000,
    "library-20000": library.commands_20000,
    "list-opencode": opencode.list_database,
    "web": web.web,
    "postgres": postgres.measure,
    "export-browser": export.export_in_browser,
    "search-million": search.million,
}


def main() -> int:
    arguments = _arguments()
    if arguments.against is not None:
        names = list(_chosen(arguments.only, large=arguments.large))
        return int(not compare(arguments.against, names, arguments.rounds))
    outcomes: list[Outcome] = []
    for name, measure in _chosen(arguments.only, large=arguments.large).items():
        _log(f"{name} ...")
        measured = measure(arguments.rounds)
        outcomes += measured if isinstance(measured, list) else [measured]
    if arguments.json:
        print(msgspec.json.encode([_fields(outcome) for outcome in outcomes]).decode())
    else:
        print(render_table(outcomes))
    for outcome in outcomes:
        if isinstance(outcome, Skipped):
            _log(f"skipped: {outcome.name}: {outcome.reason}")
    return int(any(isinstance(outcome, Result) and not outcome.ok for outcome in outcomes))


def _arguments() -> argparse.Namespace:
    known = ", ".join({**MEASUREMENTS, **LARGE})
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME", choices=list({**MEASUREMENTS, **LARGE}), help=f"one of: {known}")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--large", action="store_true", help="also measure a session of 1 GB and 10,000 sessions")
    parser.add_argument("--rounds", metavar="N", type=int, default=5, help="rounds per measurement (default: 5)")
    parser.add_argument("--against", metavar="DIR", type=Path, help="compare with another checkout, in turns")
    return parser.parse_args()


def _chosen(only: str | None, *, large: bool) -> dict[str, Measurement]:
    if only is not None:
        return {only: {**MEASUREMENTS, **LARGE}[only]}
    return {**MEASUREMENTS, **LARGE} if large else MEASUREMENTS


def _fields(outcome: Outcome) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(outcome)
    return {**fields, "ok": outcome.ok} if isinstance(outcome, Result) else fields


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
