"""Show facts about a session: file, size, branches, usage and problems."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_dialect_option, open_session
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.library import counts
from sessiontree.library.cache import Cache, cache_path
from sessiontree.paths import iter_session_files, short_id
from sessiontree.stores.repositories import home_folder
from sessiontree.views.json import describe_session
from sessiontree.views.text import one_line, plural

if TYPE_CHECKING:
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree info 019c2f3a
  sessiontree info s.jsonl --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    add_dialect_option(parser)


def run(options: Options) -> None:
    session = open_session(options)
    facts = {**describe_session(session), "shortId": short_id(session.id, _known_ids(session, options))}
    if options.json:
        output.print_json(facts)
    else:
        output.print_lines(_lines(facts))
    if options.dialect is None:
        _update_cache(session)


def _known_ids(session: Session, options: Options) -> Iterator[str]:
    """Ids among which a prefix is looked up: those of the session's repository and, for a file, of the home folder."""
    if session.ref.home:
        return (stat.id for stat in session.repository.iter_stats())
    own = (id for id, _ in iter_session_files(home_folder(options.home)))
    if session.dialect.name == DEFAULT_DIALECT:
        return own
    return itertools.chain(own, (stat.id for stat in session.repository.iter_stats()))


def _update_cache(session: Session) -> None:
    """Replace the listing cache's estimates by exact counts, as the whole file was read. Creates no cache."""
    path = cache_path(os.environ)
    if not os.path.exists(path):
        return
    location = str(session.ref) if session.ref.home else os.path.realpath(session.location)
    size = session.journal.size
    with contextlib.closing(Cache(path)) as cache:
        if cache.lacks_exact(location, size):
            cache.store_exact(location, size, counts.count(session))


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    usage = facts["usage"]
    messages = plural(facts["messages"], "message")
    origin = facts["forkedFrom"]
    rows = {
        "session": facts["id"],
        "short id": facts["shortId"],
        "name": facts["name"] or "",
        "about": facts["description"] or "",
        "file": facts["path"],
        "dialect": f"{facts['dialect']}, version {facts['version']}",
        "folder": facts["cwd"],
        "git branch": facts["gitBranch"] or "",
        "created": facts["created"],
        "last active": facts["lastActivity"] or "",
        "forked from": f"{origin['session']} at {origin['entry']}" if origin else facts["parentSession"] or "",
        "current": facts["leaf"] or "(before the first entry)",
        "entries": f"{facts['entries']:,} ({messages}, {plural(facts['compactions'], 'compaction')})",
        "branches": str(facts["branches"]),
        "open calls": ", ".join(call["name"] for call in facts["pendingToolCalls"]),
        "orphans": str(len(facts["orphans"])) if facts["orphans"] else "",
        "labels": ", ".join(facts["labels"].values()),
        "usage": f"{plural(usage['requests'], 'request')}, {usage['input']:,} tokens in, {usage['output']:,} out, "
        f"{usage['cached']:,} cached, cost ${usage['cost']:.4f}",
        "read only": facts["readOnly"] or "",
    }
    for name, value in rows.items():
        if value:
            yield f"{name:12} {one_line(value)}"
    for problem in facts["problems"]:
        yield one_line(
            f"{'problem':12} line {problem['line']} bytes {problem['start']}-{problem['end']}: "
            f"{problem['kind']}: {problem['action']}"
        )
