"""Show facts about a session: file, size, branches, usage and problems."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree import plugins
from sessiontree.archive.tags import TagFile, tagged_path
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_dialect_option, open_session
from sessiontree.core.usage import CostTotal
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.contract import Dialect
from sessiontree.errors import DamagedError
from sessiontree.library import counts
from sessiontree.library.cache import Cache, cache_path
from sessiontree.library.session_store import size_in_cache
from sessiontree.models.cost_estimate import describe_cost
from sessiontree.paths import short_id
from sessiontree.session.client_repository import ClientRepository
from sessiontree.stores.repositories import home_folder, open_repository
from sessiontree.views.session_facts import describe_session
from sessiontree.views.text import one_line, plural, short_entry_id

if TYPE_CHECKING:
    from sessiontree.session.session import Session

_SHOWN_PROBLEMS = 20
"""Of a damaged file, which can have a million."""

EXAMPLES = """examples:
  sessiontree info 019c2f3a
  sessiontree info s.jsonl --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    add_dialect_option(parser)


def run(options: Options) -> None:
    session = open_session(options)
    known = list(_known_ids(session, options))
    short = short_id(session.id, known) if known.count(session.id) < 2 else str(session.ref)
    facts = {**describe_session(session), "shortId": short}
    repository = session.repository if session.ref.home else open_repository(home_folder(options.home))
    try:
        own = TagFile(repository.documents).find(session.id, tagged_path(session)).tags
    except DamagedError as error:
        stderr.print_line(f"sessiontree: {error}; tags are not shown")
        own = ()
    facts["tags"] = [*dict.fromkeys((*own, *facts["tags"]))]
    if options.json:
        output.print_json(facts)
    else:
        output.print_lines(_lines(session, facts))
    if options.dialect is None:
        _update_cache(session)


def _known_ids(session: Session, options: Options) -> Iterator[str]:
    """Ids among which a prefix is looked up: those of the session's repository; for a file, of every client."""
    if session.ref.home:
        return (stat.id for stat in session.repository.iter_stats())
    home = open_repository(home_folder(options.home))
    dialects: list[Dialect] = [plugins.load("dialects", name) for name in plugins.names("dialects")]
    clients = (ClientRepository(dialect, "", home) for dialect in dialects if dialect.name != DEFAULT_DIALECT)
    return (stat.id for repository in (home, *clients) for stat in repository.iter_stats())


def _update_cache(session: Session) -> None:
    """Replace the listing cache's estimates with exact counts, as the whole file was read. Creates no cache."""
    path = cache_path(os.environ)
    if not os.path.exists(path):
        return
    location = str(session.ref) if session.ref.home else os.path.realpath(session.location)
    size = size_in_cache(session)
    with contextlib.closing(Cache(path)) as cache:
        if cache.lacks_exact(location, size):
            cache.store_exact(location, size, counts.count(session))


def _lines(session: Session, facts: dict[str, Any]) -> Iterator[str]:
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
        "tags": ", ".join(facts["tags"]),
        "agent": facts["agentSetting"] or "",
        "pull request": ", ".join(facts["pullRequests"]),
        "replaced": plural(facts["contentReplacements"], "tool result") if facts["contentReplacements"] else "",
        "usage": f"{plural(usage['requests'], 'request')}, {usage['input']:,} tokens in, {usage['output']:,} out, "
        f"{usage['cached']:,} cached",
        "cost": describe_cost(CostTotal(facts["estimatedCost"], facts["costKind"])) if usage["requests"] else "",
        "read only": facts["readOnly"] or "",
    }
    for name, value in rows.items():
        if value:
            yield f"{name:12} {one_line(value)}"
    for leaf, summary in facts["branchSummaries"].items():
        yield one_line(f"{'summary':12} {short_entry_id(leaf, session.id_prefixes)}: {summary}")
    problems = facts["problems"]
    for problem in problems[:_SHOWN_PROBLEMS]:
        yield one_line(
            f"{'problem':12} line {problem['line']} bytes {problem['start']}-{problem['end']}: "
            f"{problem['kind']}: {problem['action']}"
        )
    if len(problems) > _SHOWN_PROBLEMS:
        more = f"{len(problems) - _SHOWN_PROBLEMS:,} more"
        yield f"{'problems':12} {more}; --json has all, `sessiontree doctor` sums them up"
