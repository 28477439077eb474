"""Check sessions for problems: this project's, all sessions with --all, or the ones you name.

Reports the position and effect of each, what the client does, and what `repair` does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import add_root_option, no_sessions, open_library
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_dialect_option, find_session
from sessiontree.errors import NotFoundError, SessionTreeError, UsageError
from sessiontree.library.cache import Cache, cache_path
from sessiontree.library.session_store import size_in_cache
from sessiontree.repair import Finding, examine
from sessiontree.session.open import looks_like_path
from sessiontree.session.open import open as open_path
from sessiontree.sources.find import iter_sessions
from sessiontree.stores.repositories import find_ref
from sessiontree.views.text import one_line, plural

EXAMPLES = """examples:
  sessiontree doctor --all
  sessiontree doctor damaged.jsonl ~/.pi/agent/sessions --json

Exits with 3 if messages are hidden or data is damaged, and with 0 if there are only notes or no problems."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places",
        metavar="SESSION|DIR",
        nargs="*",
        help="sessions or folders to check (default: this project's sessions)",
    )
    parser.add_argument("--all", action="store_true", help="check the sessions of every project")
    add_dialect_option(parser)
    add_root_option(parser)


def run(options: Options) -> int:
    if options.places and options.all:
        raise UsageError("doctor: --all checks every session; leave it out to check the named ones")
    missing: list[dict[str, Any]] = []
    skipped: list[str] = []
    files = list(_named(options, missing, skipped)) if options.places else _listed(options)
    if not files and not missing and not skipped:
        return 0
    checked = [_check(path, options.dialect, number, len(files)) for number, path in enumerate(files, 1)]
    _store_health(checked)
    reports = [*missing, *checked]
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if options.json:
        output.print_json({"sessions": reports, "complete": not skipped, "skipped": skipped})
    else:
        output.print_lines(
            part for report in checked for line in _render(report, alone=len(reports) == 1) for part in _wrapped(line)
        )
        if len(reports) > 1:
            output.print_lines(_summary(reports))
        for folder in skipped:
            stderr.print_error(f"incomplete: {folder} cannot be read; check its permissions")
    if any(map(_is_damaged, checked)):
        return stderr.DAMAGED
    if missing:
        return stderr.FAILED
    return stderr.INCOMPLETE if skipped else 0


def _is_damaged(report: dict[str, Any]) -> bool:
    return bool(report["error"]) or any(found["severity"] != "note" for found in report["findings"])


def _store_health(reports: list[dict[str, Any]]) -> None:
    """Store the results for `list`, whose mark has to agree: it reads only the ends of files. Creates no cache."""
    path = cache_path(os.environ)
    if not os.path.exists(path):
        return
    with contextlib.closing(Cache(path)) as cache:
        for report in reports:
            if report["error"] is None:
                cache.store_health(os.path.realpath(report["path"]), report["size"], is_damaged=_is_damaged(report))


def _listed(options: Options) -> list[str]:
    """The sessions and sub-agents of this project, or of all."""
    with open_library(options) as library:
        project = None if options.all else os.getcwd()
        found = [summary.ref for summary in library.sessions(project=project, include_subagents=True)]
        if not found:
            stderr.print_line(no_sessions(library, project))
    return found


def _named(options: Options, missing: list[dict[str, Any]], skipped: list[str]) -> Iterator[str]:
    """The sessions that the arguments name; a report is added to `missing` for each that does not exist.

    Folders that cannot be read are added to `skipped`.
    """
    for place in options.places:
        try:
            yield from _files(place, options, skipped)
        except SessionTreeError as error:
            missing.append(_new_report(place, str(error)))
            if not options.json:
                stderr.print_error(str(error))


def _files(place: str, options: Options, skipped: list[str]) -> Iterator[str]:
    if os.path.isdir(place):
        found = False
        for ref in iter_sessions(place, lambda error: skipped.append(str(error.filename))):
            found = True
            yield str(ref)
        if not found and not options.json:
            stderr.print_line(f"{place}: no sessions in this folder")
    elif os.path.exists(place):
        yield from (place if ref.is_file else str(ref) for ref in iter_sessions(place))
    elif looks_like_path(place) and not find_ref(place).is_file:
        yield place
    elif os.sep in place or place.endswith(".jsonl"):
        raise NotFoundError(f"{place}: no such file or folder")
    else:
        yield find_session(place, options)[0]


_started = time.monotonic()


def _check(path: str, dialect: str | None, number: int, count: int) -> dict[str, Any]:
    if sys.stderr.isatty() and time.monotonic() - _started > 0.3:
        print(f"\r\x1b[K{number}/{count} {one_line(os.path.basename(path))[:60]}", end="", file=sys.stderr, flush=True)
    report = _new_report(path)
    try:
        session = open_path(path, dialect=dialect)
        report["dialect"] = session.dialect.name
        report["entries"] = len(session)
        report["size"] = size_in_cache(session)
        report["findings"] = [_to_json(finding) for finding in examine(session)]
        session.close()
    except SessionTreeError as error:
        report["error"] = str(error)
    return report


def _new_report(path: str, error: str | None = None) -> dict[str, Any]:
    return {"path": path, "dialect": None, "entries": 0, "error": error, "findings": [], "size": None}


def _to_json(finding: Finding) -> dict[str, Any]:
    rule = finding.rule
    return {
        "rule": rule.id,
        "severity": rule.severity,
        "count": finding.count,
        "places": [{"line": place.line, "start": place.start, "end": place.end} for place in finding.places],
        "meaning": rule.meaning,
        "cost": finding.cost,
        "owner": rule.client,
        "repair": rule.repair,
    }


_MARKS = {"loss": "✗", "damage": "✗", "note": "·"}


def _render(report: dict[str, Any], *, alone: bool) -> Iterator[str]:
    if report["error"]:
        yield one_line(f"✗ {report['error']}")
        return
    if not report["findings"]:
        if alone:
            entries = plural(report["entries"], "entry", "entries")
            yield one_line(f"✓ {report['path']} ({report['dialect']}, {entries}): no problems found")
        return
    yield one_line(f"{report['path']} ({report['dialect']}, {plural(report['entries'], 'entry', 'entries')})")
    for found in report["findings"]:
        where = found["places"][0]
        cost = f"; {found['cost']}" if found["cost"] else ""
        yield "  " + one_line(
            f"{_MARKS[found['severity']]} {found['rule']}  {found['count']:,} ×, first at line {where['line']} "
            f"bytes {where['start']}-{where['end']}: {found['meaning']}{cost}"
        )
        yield "      " + one_line(f"{report['dialect']} {found['owner']}. Repair {found['repair']}.")


def _wrapped(line: str) -> list[str]:
    """Wrap the line of a finding between words in a terminal; paths, and lines for other programs, stay whole."""
    if not output.is_terminal() or not line.startswith(" "):
        return [line]
    indent = " " * (6 if line.startswith("      ") else 4)  # below the text, after its mark if it has one
    return textwrap.wrap(line, output.width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _summary(reports: list[dict[str, Any]]) -> Iterator[str]:
    """Count the sessions for each problem."""
    counts: dict[str, int] = {}
    for report in reports:
        for rule in {found["rule"] for found in report["findings"]}:
            counts[rule] = counts.get(rule, 0) + 1
    healthy = sum(not report["findings"] and not report["error"] for report in reports)
    refused = sum(bool(report["error"]) for report in reports)
    yield ""
    yield f"{plural(len(reports), 'file')}: {healthy:,} without problems, {refused:,} not a session"
    for rule, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield f"  {rule:24} {count:,}"
