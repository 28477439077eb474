"""List the prompts you typed, newest first, or search them, best match first.

QUERY has the syntax of `search`: words, "phrases", -not, OR, prefix*, agent:, project:, since:, before:. Quote
characters that the shell would interpret; put -- before a query that begins with a hyphen. ×3 marks a prompt that was
typed three times.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import add_root_option, open_library, scan_progress
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.search.prompt_history import Imported, Prompt, PromptHistory
from sessiontree.session.open import looks_like_path
from sessiontree.session.open import open as open_path
from sessiontree.stores.repositories import home_folder, is_address
from sessiontree.views.listing import age, iso
from sessiontree.views.text import columns, cut, one_line, pad, plural

EXAMPLES = """examples:
  sessiontree history --here --limit 20
  sessiontree history 'parser "json flag" since:2w' --json"""

_SHOWN = 50
_AGE, _WIDEST_PROJECT = 4, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="*", help="what to search for (default: list all)")
    parser.add_argument("--here", action="store_true", help="only prompts of this project")
    parser.add_argument(
        "--session", metavar="S", help="only prompts of this session: an id, its first characters, or a path"
    )
    parser.add_argument(
        "--limit", metavar="N", type=int, default=_SHOWN, help=f"show at most N prompts (default: {_SHOWN})"
    )
    parser.add_argument(
        "--no-refresh",
        action="store_true",
        help="do not import new prompts from sessions and agents' own histories",
    )
    add_root_option(parser)


def run(options: Options) -> None:
    if options.limit < 0:
        raise UsageError(f"--limit {options.limit}: expected 0 or more")
    is_stored = options.home is not None and is_address(options.home)
    with PromptHistory(options.home if is_stored else home_folder(options.home)) as history:
        imported = None if options.no_refresh else _import(history, options)
        found = _find(history, options)
        history.notes[:] = dict.fromkeys(history.notes)  # reading twice reports them twice
        if options.json:
            output.print_json(_to_json(history, found, imported, options))
            return
        output.print_lines(_rows(found))
        _print_notes(history)
        _print_summary(history, found, imported)


def _import(history: PromptHistory, options: Options) -> Imported:
    with open_library(options) as library:
        return history.import_from(library, scan_progress())


def _find(history: PromptHistory, options: Options) -> list[Prompt]:
    here = os.getcwd() if options.here else None
    session = _session_id(options.session, options.home) if options.session else None
    return history.search(" ".join(options.query), here=here, session=session, limit=options.limit)


def _session_id(wanted: str, home: str | None) -> str:
    return open_path(wanted, home=home).id if looks_like_path(wanted) else wanted


def _rows(found: list[Prompt]) -> list[str]:
    now = time.time()
    projects = [cut(one_line(os.path.basename(prompt.project) or prompt.project), _WIDEST_PROJECT) for prompt in found]
    widest = max(map(columns, projects), default=0)
    rows = []
    for prompt, project in zip(found, projects, strict=True):
        times = f" ×{prompt.times}" if prompt.times > 1 else ""
        before = f"{age(prompt.time, now):>{_AGE}}  {pad(project, widest)}  "
        space = max(output.width() - columns(before) - columns(times), 1)
        rows.append(f"{output.dim(before)}{cut(one_line(prompt.prompt), space)}{output.dim(times)}")
    return rows


def _print_notes(history: PromptHistory) -> None:
    for note in history.notes:
        stderr.print_error(note)
    history.notes.clear()


def _print_summary(history: PromptHistory, found: list[Prompt], imported: Imported | None) -> None:
    if imported is not None and (imported.added or imported.unreadable):
        unreadable = f"; unreadable records: {imported.unreadable}" if imported.unreadable else ""
        files = plural(imported.sources, "new or changed file")
        stderr.print_line(f"imported {plural(imported.added, 'prompt')} from {files}{unreadable}")
    if not found:
        count = len(history)
        empty = "the history is empty: no session has prompts"
        stderr.print_line(f"no match among {plural(count, 'prompt')}" if count else empty)


def _to_json(
    history: PromptHistory, found: list[Prompt], imported: Imported | None, options: Options
) -> dict[str, Any]:
    return {
        "query": " ".join(options.query),
        "prompts": [
            {
                "prompt": prompt.prompt,
                "cwd": prompt.cwd,
                "project": prompt.project,
                "session": prompt.session or None,
                "agent": prompt.agent,
                "time": iso(prompt.time),
                "times": prompt.times,
            }
            for prompt in found
        ],
        "notes": history.notes,
        "imported": None
        if imported is None
        else {"added": imported.added, "files": imported.sources, "unreadable": imported.unreadable},
    }
