"""List prompts that were typed, the newest first, or those that fit QUERY, the best match first.

QUERY is of the language of `search`: words, "phrases", -not, OR, prefix*, agent:, project:, since:, before:. Put it in
quotes, or -- before one that begins with a hyphen. Repeats are folded: ×3 was typed three times.
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
from sessiontree.views.listing import age, iso
from sessiontree.views.text import columns, cut, one_line, pad

EXAMPLES = """examples:
  sessiontree history --here --limit 20
  sessiontree history 'parser "json flag" since:2w' --json"""

_SHOWN = 50
_AGE, _WIDEST_PROJECT = 4, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="*", help="what to look for (default: everything)")
    parser.add_argument("--here", action="store_true", help="only prompts of this project")
    parser.add_argument(
        "--session", metavar="S", help="only prompts of the session with this id, beginning of it, or path"
    )
    parser.add_argument("--limit", metavar="N", type=int, default=_SHOWN, help=f"at most N prompts (default: {_SHOWN})")
    parser.add_argument(
        "--no-refresh",
        action="store_true",
        help="do not look for new prompts in sessions and in the histories that agents keep of their own",
    )
    add_root_option(parser)


def run(options: Options) -> None:
    if options.limit < 0:
        raise UsageError(f"--limit {options.limit}: expected a number of prompts")
    if options.home is not None and not options.home:
        raise UsageError("--home needs a folder")
    with PromptHistory(options.home) as history:
        imported = None if options.no_refresh else _import(history, options)
        found = _find(history, options)
        history.notes[:] = dict.fromkeys(history.notes)  # looking twice says it twice
        if options.json:
            output.print_json(_described(history, found, imported, options))
            return
        output.print_lines(_rows(found))
        _say_notes(history)
        _talk(history, found, imported)


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
    projects = [cut(one_line(os.path.basename(one.project) or one.project), _WIDEST_PROJECT) for one in found]
    widest = max(map(columns, projects), default=0)
    rows = []
    for one, project in zip(found, projects, strict=True):
        times = f" ×{one.times}" if one.times > 1 else ""
        before = f"{age(one.time, now):>{_AGE}}  {pad(project, widest)}  "
        room = max(output.width() - columns(before) - columns(times), 1)
        rows.append(f"{output.dim(before)}{cut(one_line(one.prompt), room)}{output.dim(times)}")
    return rows


def _say_notes(history: PromptHistory) -> None:
    for note in history.notes:
        stderr.print_error(note)
    history.notes.clear()


def _talk(history: PromptHistory, found: list[Prompt], imported: Imported | None) -> None:
    if imported is not None and imported.sources:
        odd = f"; places in them that could not be read: {imported.unreadable}" if imported.unreadable else ""
        stderr.print_line(
            f"{imported.added} prompts taken in from {imported.sources} files that are new or have changed{odd}"
        )
    if not found:
        count = len(history)
        empty = "the history is empty: nothing was said in any session that was found"
        stderr.print_line(f"none of the {count} prompts of the history fits" if count else empty)


def _described(
    history: PromptHistory, found: list[Prompt], imported: Imported | None, options: Options
) -> dict[str, Any]:
    return {
        "query": " ".join(options.query),
        "prompts": [
            {
                "prompt": one.prompt,
                "cwd": one.cwd,
                "project": one.project,
                "session": one.session or None,
                "agent": one.agent,
                "time": iso(one.time),
                "times": one.times,
            }
            for one in found
        ],
        "notes": history.notes,
        "imported": None
        if imported is None
        else {"added": imported.added, "files": imported.sources, "unreadable": imported.unreadable},
    }
