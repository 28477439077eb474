"""List this project's sessions from all agents on this machine; with --all, the sessions of every project.

Marks before the title: ! damaged, ~ not checked yet, - no messages, ? draft. A number with ~ is estimated from both
ends of a large file. `?` means unknown; a cost with ~ is estimated from dated prices (see `sessiontree info`). With
--subagents, sub-agents are listed below the session that started them; with --tree, forks below the session they were
forked from.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import (
    add_filter_options,
    add_root_option,
    known_agent,
    no_sessions,
    open_library,
    parse_since,
    requested_project,
    scan_progress,
)
from sessiontree.cli.parser import Options
from sessiontree.errors import DamagedError, UsageError
from sessiontree.library.summary import has_tags
from sessiontree.library.threads import ThreadMember, with_subagents
from sessiontree.views.listing import describe_thread, draw_listing, short_ids, totals
from sessiontree.views.text import plural

if TYPE_CHECKING:
    from sessiontree.archive.tags import SessionTags
    from sessiontree.library.library import Library
    from sessiontree.library.summary import Summary

EXAMPLES = """examples:
  sessiontree list --since 7d
  sessiontree list --all --agent claude --sort cost --json"""


_SECONDS_SEEN, _SECONDS_UNSEEN = 30.0, 2.0
"""How long large sessions are counted after the output, on a terminal and elsewhere."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_filter_options(parser, since="only sessions active since then: 90m, 12h, 7d, 2w, or 2026-11-01")
    parser.add_argument(
        "--tag", metavar="TAG", action="append", default=[], help="only sessions with this tag; repeatable"
    )
    parser.add_argument("--pinned", action="store_true", help="only pinned sessions")
    parser.add_argument("--subagents", action="store_true", help="show sub-agents")
    parser.add_argument("--named", action="store_true", help="only sessions with a name")
    parser.add_argument(
        "--sort", choices=("recent", "size", "cost", "messages"), default="recent", help="sort by (default: recent)"
    )
    parser.add_argument("--tree", action="store_true", help="show forks below their origin")
    parser.add_argument("--limit", metavar="N", type=int, help="show at most N sessions")
    add_root_option(parser)


def run(options: Options) -> int:
    start = time.perf_counter()
    with open_library(options) as library:
        options.agent = known_agent(library, options.agent)
        project = requested_project(options)
        tags = _find_tags(library)
        selected, hidden = _limit(_select(library, options, project, tags), options.limit)
        members = _arrange(library, selected, options)
        if options.json:
            output.print_json(_to_json(library, members, project, start, tags))
        else:
            _print(library, members, tags, with_project=options.all)
            if any(member.summary.kind == "session" for member in members):
                _print_summary(library, members, hidden, start)
            else:
                others = 0 if project is None else len(_select(library, options, None, tags))
                stderr.print_line(no_sessions(library, project, others=others))
            for folder in library.scan.skipped:
                stderr.print_error(f"incomplete: {folder} cannot be read; check its permissions")
        sys.stdout.flush()
        _count_exactly(library)
        return stderr.INCOMPLETE if library.scan.skipped else 0


def _find_tags(library: Library) -> dict[str, SessionTags]:
    if not has_tags(library.documents, library.everything()):
        return {}
    from sessiontree.archive.tags import tags_of_summaries  # imports more than the rest of a listing

    try:
        return tags_of_summaries(library.documents, library.everything())
    except DamagedError as error:
        stderr.print_line(f"{error}; tags are not shown")
        return {}


def _count_exactly(library: Library) -> None:
    """Count large sessions after the output: completely on a terminal, else for a few seconds."""
    seconds = _SECONDS_SEEN if sys.stderr.isatty() else _SECONDS_UNSEEN
    try:
        library.count_exactly(time.monotonic() + seconds, scan_progress())
    except KeyboardInterrupt:
        stderr.print_line("Counting stopped. The next listing continues it.")


def _select(library: Library, options: Options, project: str | None, tags: Mapping[str, SessionTags]) -> list[Summary]:
    """The sessions of a project, or of all, that match the options."""
    found = library.sessions(
        agent=options.agent,
        project=project,
        since=None if options.since is None else parse_since(options.since),
        named=options.named,
        sort=options.sort,
    )
    if options.tag or options.pinned:
        wanted = {" ".join(tag.split()) for tag in options.tag}
        found = [summary for summary in found if _has_tags(tags.get(summary.ref), wanted, pinned=options.pinned)]
    return found


def _limit(found: list[Summary], limit: int | None) -> tuple[list[Summary], int]:
    """The first sessions, and how many --limit leaves out."""
    if limit is None:
        return found, 0
    if limit < 0:
        raise UsageError(f"--limit {limit}: expected 0 or more")
    return found[:limit], max(len(found) - limit, 0)


def _has_tags(tags: SessionTags | None, wanted: set[str], *, pinned: bool) -> bool:
    return tags is not None and wanted.issubset(tags.tags) and (tags.pinned or not pinned)


def _arrange(library: Library, sessions: Sequence[Summary], options: Options) -> list[ThreadMember]:
    """Put sub-agents below their sessions and, with --tree, forks below their origin."""
    paths = {session.ref for session in sessions} if options.subagents else set()
    subagents = [other for other in library.everything() if other.kind == "subagent" and other.parent in paths]
    subagents.sort(key=lambda subagent: subagent.created or subagent.modified)
    return (
        library.thread([*sessions, *subagents]) if options.tree else with_subagents(sessions, subagents, library.copies)
    )


def _print(
    library: Library, members: Sequence[ThreadMember], tags: Mapping[str, SessionTags], *, with_project: bool
) -> None:
    if not members:
        return
    rows = draw_listing(
        members, output.width(), time.time(), short_ids(library.everything()), with_project=with_project, tags=tags
    )
    output.print_lines([output.dim(next(rows))])
    if not output.use_color():
        output.print_lines(["\n".join(rows)])  # one write: many small ones take longer than reading the cache
        return
    for member, row in zip(members, rows, strict=True):
        summary = member.summary
        quiet = summary.health in ("empty", "draft") or summary.kind == "subagent"
        if summary.health == "damaged":
            row = f"\x1b[31m{row[:1]}\x1b[0m{row[1:]}"
        output.print_lines([output.dim(row) if quiet else row])


def _print_summary(library: Library, members: Sequence[ThreadMember], hidden: int, start: float) -> None:
    if sys.stdout.isatty():
        sessions = sum(member.summary.kind == "session" for member in members)
        took = 1000 * (time.perf_counter() - start)
        more = f", {hidden} more (raise --limit)" if hidden else ""
        files = f"read {library.scan.read} of {library.scan.found} files"
        stderr.print_line(f"{plural(sessions, 'session')}{more} · {files} · {took:.0f} ms")


def _to_json(
    library: Library,
    members: Sequence[ThreadMember],
    project: str | None,
    start: float,
    tags: Mapping[str, SessionTags],
) -> dict[str, Any]:
    scan = library.scan
    return {
        "project": project,
        "sessions": [describe_thread(member, tags.get(member.summary.ref)) for member in members],
        "complete": not scan.skipped,
        "skipped": list(scan.skipped),
        "totals": totals([member.summary for member in members]),
        "scan": {"files": scan.found, "read": scan.read, "bytesRead": scan.bytes_read},
        "timings": {"scanMs": round(1000 * scan.seconds, 1), "totalMs": round(1000 * (time.perf_counter() - start), 1)},
    }
