"""Search the messages of all agents' sessions, on every branch, including compacted messages, thinking and tool calls.

QUERY: words (all must match), "phrases", -not, OR, prefix*, re:/pattern/, and the filters role:, tool:, file:, agent:,
project:, model:, tag:, session:, in:, is:error, is:abandoned, is:pinned,
branch:active, since:, before:. Quote characters that the shell would
interpret. A word may begin with one hyphen; after --, everything is part of the query.

The best match comes first. A hit that a model no longer sees is marked: it is on an abandoned branch or before a
compaction. Files that are not indexed yet are searched directly, and indexed afterwards. If that takes too long, the
exit code is 4, and the same search continues where this one stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree.cli import output, stderr
from sessiontree.cli.index_progress import clear_progress, progress_bar, rebuild_index, update_index
from sessiontree.cli.library_options import add_root_option, known_agent, open_library, parse_since
from sessiontree.cli.parser import Options
from sessiontree.errors import SessionTreeError, UsageError
from sessiontree.search import Hit, Results, search
from sessiontree.search.engine import SEARCH_SECONDS
from sessiontree.search.query import terms
from sessiontree.search.query_parser import parse
from sessiontree.search.session_filter import is_in_project
from sessiontree.views.listing import short_ids
from sessiontree.views.search_results import describe_hit, draw_place, draw_session, draw_snippet, grouped
from sessiontree.views.text import clean, cut, one_line, plural

# Modules that open a session (the readers, passages, the pager) are imported where they are used: a plain search takes
# 0.1 s, and importing them takes a third of that.
if TYPE_CHECKING:
    from sessiontree.core.entries import Entry
    from sessiontree.library.library import Library
    from sessiontree.session.session import Session
    from sessiontree.views.passages import Passage

EXAMPLES = """examples:
  sessiontree search 'parser "json flag" since:2w' --context 1
  sessiontree search tool:bash is:error timeout --json"""

_ROLES = frozenset({"user", "assistant", "tool", "toolresult", "system", "custom", "bashexecution"})
_SHOWN = 20
_MOST_CONTEXT = 100
_MOST_PROJECTS = 20  # in a message
_OPENED_CONTEXT = 5
_LONGEST_NEIGHBOR = 2_000
_INDENT = "     "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", nargs="+", help="what to search for")
    parser.add_argument(
        "--agent", metavar="NAME", help="only sessions of this agent, such as claude, codex, opencode or native"
    )
    parser.add_argument(
        "--project", metavar="DIR", help="only sessions of this folder's project (default: all projects)"
    )
    parser.add_argument("--since", metavar="AGE", help="only messages since then: 90m, 12h, 7d, 2w, or 2026-11-01")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=_SHOWN, help=f"show at most N hits (default: {_SHOWN})"
    )
    parser.add_argument("--offset", metavar="N", type=int, default=0, help="skip the first N hits")
    parser.add_argument("--context", metavar="N", type=int, help="show N messages before and after each hit")
    parser.add_argument(
        "--open", action="store_true", help="open the session at the first hit; with --offset N, at a later one"
    )
    parser.add_argument(
        "--semantic", action="store_true", help="also search by meaning (needs `pip install 'sessiontree[semantic]'`)"
    )
    parser.add_argument("--no-refresh", action="store_true", help="do not update the index")
    parser.add_argument("--rebuild", action="store_true", help="rebuild the index first")
    add_root_option(parser)


def run(options: Options) -> int:
    _check(options)
    with open_library(options) as library:
        if options.rebuild:
            rebuild_index(library)
        results = _results(library, options)
        hits = list(results)
        clear_progress()
        if options.json:
            output.print_json(_to_json(results, hits, options))
        else:
            _print(library, results, hits, options)
        sys.stdout.flush()
        if results.unindexed and not options.no_refresh:
            # What an incomplete search did not reach is indexed for as long: the next one continues from there.
            update_index(library, *(() if results.is_complete else (SEARCH_SECONDS,)))
        return 0 if results.is_complete else stderr.INCOMPLETE


def _check(options: Options) -> None:
    for name, least in (("limit", 1), ("offset", 0), ("context", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageError(f"--{name} {value}: expected {least} or more")
    if options.rebuild and options.no_refresh:
        raise UsageError("--rebuild and --no-refresh cannot be used together")
    if options.context is not None:
        options.context = min(options.context, _MOST_CONTEXT)


def _check_filters(library: Library, options: Options) -> None:
    """Refuse a query without words and filters, and filters whose value cannot match anything."""
    query = parse(_query(options))
    if query.refused:
        raise UsageError(query.refused[0])
    if not _query(options).strip() and not (options.agent or options.project or options.since):
        raise UsageError("nothing to search for: pass a word, or a filter such as since:7d")
    for agent in (*query.filters.agent.wanted, *query.filters.agent.unwanted, options.agent):
        known_agent(library, agent)
    for role in (*query.filters.role.wanted, *query.filters.role.unwanted):
        if role not in _ROLES:
            raise UsageError(f"unknown role {role!r}; known: {', '.join(sorted(_ROLES))}")
    for prefix in query.filters.session.wanted:
        if not any(summary.id.startswith(prefix) for summary in library.everything()):
            raise UsageError(f"no session has an id that begins with {prefix!r}; `sessiontree list --all` shows ids")
    if query.filters.project.wanted:
        _check_projects(library, query.filters.project.wanted)
    if query.filters.tag.wanted:
        _check_tags(library, query.filters.tag.wanted)


def _check_projects(library: Library, wanted: Sequence[str]) -> None:
    folders = {summary.cwd for summary in library.everything() if summary.cwd}
    names = sorted({os.path.basename(folder) or folder for folder in folders})
    for project in wanted:
        if names and not any(is_in_project(folder, project) for folder in folders):
            more = f" and {len(names) - _MOST_PROJECTS:,} more" if len(names) > _MOST_PROJECTS else ""
            known = ", ".join(names[:_MOST_PROJECTS])
            raise UsageError(one_line(f"no session belongs to a project {project!r}; known: {known}{more}"))


def _check_tags(library: Library, wanted: Sequence[str]) -> None:
    from sessiontree.archive.tags import tags_of_summaries  # imports more than the rest of a search

    marked = tags_of_summaries(library.documents, library.everything()).values()
    known = {tag for session in marked for tag in session.tags}
    for tag in wanted:
        if tag not in known:
            hint = f"known: {', '.join(sorted(known))}" if known else "`sessiontree tag SESSION TAG` adds one"
            raise UsageError(f"no session has the tag {tag!r}; {hint}")


def _results(library: Library, options: Options) -> Results:
    _check_filters(library, options)
    arguments: dict[str, Any] = {
        "agent": options.agent,
        "since": None if options.since is None else parse_since(options.since),
        "project": options.project,
        "limit": options.limit,
        "offset": options.offset,
        "refresh": "none" if options.no_refresh else "auto",
        "progress": progress_bar("indexing"),
        "match_progress": progress_bar("searching"),
    }
    if options.semantic:
        from sessiontree.search.semantic import search_by_meaning

        return search_by_meaning(library, _query(options), **arguments)
    return search(library, _query(options), **arguments)


def _query(options: Options) -> str:
    return " ".join(options.query)


# As text


def _print(library: Library, results: Results, hits: Sequence[Hit], options: Options) -> None:
    if not hits:
        _print_no_match(library, results, options)
        return
    if options.open:
        _open(hits[0], options)
        _print_notes(results)
        return

    output.print_lines(_lines(hits, options, short_ids(library.everything()), results))
    _print_notes(results)
    _print_summary(results, hits)


def _lines(hits: Sequence[Hit], options: Options, ids: dict[str, str], results: Results) -> Iterator[str]:
    more = results.more
    width, now = output.width(), time.time()
    number = options.offset
    for one, found in grouped(hits):
        title, facts = draw_session(one, width, now, ids.get(one.ref, one.id))
        if number > options.offset:
            yield ""
        yield f"{output.bold(title)}  {output.dim(facts)}"
        session = _open_session(found[0]) if options.context else None
        for hit in found:
            number += 1
            place, notes = draw_place(hit, now, width - len(_INDENT))
            warning = f" · {_yellow(notes)}" if notes else ""
            before, after = _neighbors(session, hit, options.context)
            yield f"{number:>3}  {output.dim(place)}{warning}"
            yield from (_neighbor_line(entry, width) for entry in before)
            yield _INDENT + draw_snippet(hit.snippet, width - len(_INDENT), _emphasize)
            yield from (_neighbor_line(entry, width) for entry in after)
        if one.ref in more:
            least = "at least " if one.ref in results.more_at_least else ""
            found_more = f"{least}{more[one.ref]:,} more in this session: add session:{ids.get(one.ref, one.id)}"
            yield output.dim(f"{_INDENT}{found_more}")


def _neighbors(session: Session | None, hit: Hit, number: int | None) -> tuple[list[Entry], list[Entry]]:
    if session is None or not number or hit.entry not in session:
        return [], []
    from sessiontree.views.passages import find_passage

    return find_passage(session, hit.entry, number).around


def _neighbor_line(entry: Entry, width: int) -> str:
    from sessiontree.views.passages import entry_text, speaker

    return output.dim(cut(f"{_INDENT}┆ {speaker(entry)}: {one_line(entry_text(entry))}", width))


def _open_session(hit: Hit) -> Session | None:
    """Open the session of a hit; None if that fails, and only the snippet can be shown."""
    from sessiontree.session.open import open

    try:
        return open(hit.session.ref, dialect=hit.session.agent)
    except (SessionTreeError, OSError):
        return None


def _emphasize(text: str) -> str:
    if output.use_color():
        return f"\x1b[1;33m{text}\x1b[0m"
    left, right = ("«", "»") if output.can_print("«»") else ("[", "]")
    return f"{left}{text}{right}"


def _yellow(text: str) -> str:
    return f"\x1b[33m{text}\x1b[0m" if output.use_color() else text


def _print_notes(results: Results) -> None:
    for note in results.notes:
        stderr.print_error(note)


def _print_summary(results: Results, hits: Sequence[Hit]) -> None:
    more = f"; more: --offset {results.next_offset}" if results.next_offset is not None else ""
    if sys.stdout.isatty():
        sessions = len({hit.session.ref for hit in hits})
        how = {"index": "the index", "scan": "the files", "mixed": "the index and files"}[results.state]
        counted = f"{plural(len(hits), 'hit')} in {plural(sessions, 'session')}"
        stderr.print_line(f"{counted}{more} · from {how} in {1000 * results.seconds:.0f} ms")
    elif more:
        stderr.print_line(f"{plural(len(hits), 'hit')} shown{more}")


def _print_no_match(library: Library, results: Results, options: Options) -> None:
    _print_notes(results)
    if options.offset:
        stderr.print_line(f"no hits from {options.offset + 1} on; use `--offset 0` to start over")
        return
    where = f" of {options.project}" if options.project else ""
    count = len(library.sessions(agent=options.agent, project=options.project, include_subagents=True))
    agent = f" of {options.agent}" if options.agent else ""
    searched = count - results.unsearched.sessions
    among = plural(count, "session") if searched == count else f"{searched:,} of {plural(count, 'session')}"
    stderr.print_line(f"no match for {_query(options)!r} in {among}{agent}{where}")
    if not results.is_complete:
        return
    words = [term for term in terms(results.query.where) if getattr(term, "text", "")]
    tries = ["the beginning of a word followed by *"] if words else []
    if options.agent and not count:
        agents = ", ".join(sorted({session.agent for session in library.everything()}))
        tries = [f"an agent with sessions: {agents}"] if agents else []
    tries += ["fewer words, or OR between them"] if len(words) > 1 else []
    tries += ["no filters"] if results.query.filters != type(results.query.filters)() else []
    tries += ["no --project"] if options.project else []
    if results.unindexed and options.no_refresh:
        tries.append("without --no-refresh")
    if tries:
        stderr.print_line(f"try: {'; '.join(tries)}")


# Opening a hit


def _open(hit: Hit, options: Options) -> None:
    """Show the whole branch in a pager on a terminal, else the messages around the hit."""
    from sessiontree.cli.pager import find_pager, page
    from sessiontree.views.passages import find_passage

    session = _open_session(hit)
    if session is None:
        raise UsageError(f"{hit.session.ref}: cannot be opened; run `sessiontree doctor` on it")
    pager = find_pager()
    show_all = pager is not None and options.context is None
    context = _OPENED_CONTEXT if options.context is None else options.context
    passage = find_passage(session, hit.entry, len(session) if show_all else context)
    lines = list(_opened_lines(session, hit, passage))
    if pager is None:
        output.print_lines(lines)
        return
    at = next((number for number, line in enumerate(lines) if _HERE in line), 0)
    page(pager, lines, at)


_HERE = "◀ found here"


def _opened_lines(session: Session, hit: Hit, passage: Passage) -> Iterator[str]:
    from sessiontree.views.transcript import show_entry

    now = time.time()
    title, facts = draw_session(hit.session, output.width(), now, hit.session.id)
    place, notes = draw_place(hit, now, output.width())
    yield f"{output.bold(title)}  {output.dim(facts)}"
    yield output.dim(place) + (f" · {_yellow(notes)}" if notes else "")
    yield ""
    if passage.before:
        yield output.dim(f"⋯ {passage.before} more before ⋯")
        yield ""
    labels = session.labels
    for number, entry in enumerate(passage.entries):
        is_found = number == passage.at
        lines = show_entry(entry, label=labels.get(entry.id), mark=_HERE if is_found else "")
        if not is_found:
            yield from lines
            continue
        yield output.bold(next(lines))
        yield from _highlight(lines, hit)
    if passage.after:
        yield output.dim(f"⋯ {passage.after} more after ⋯")


def _highlight(lines: Iterator[str], hit: Hit) -> Iterator[str]:
    """Highlight the snippet's hits wherever they occur in the entry."""
    words = sorted({clean(part.text) for part in hit.snippet if part.is_hit}, key=len, reverse=True)
    wanted = "|".join(map(_escaped, filter(str.strip, words)))
    if not wanted:
        yield from lines
        return
    import re

    pattern = re.compile(wanted)
    for line in lines:
        yield pattern.sub(lambda found: _emphasize(found[0]), line)


def _escaped(text: str) -> str:
    import re

    return re.escape(text)


# As JSON


def _to_json(results: Results, hits: Sequence[Hit], options: Options) -> dict[str, Any]:
    described: list[dict[str, Any]] = []
    for _, found in grouped(hits):
        session = _open_session(found[0]) if options.context else None
        for hit in found:
            value = describe_hit(hit)
            if options.context:
                value |= _neighbors_to_json(session, hit, options.context)
            described.append(value)
    is_total = results.is_complete and results.next_offset is None and (hits or not options.offset)
    value = {
        "query": _query(options),
        "state": results.state,
        "total": options.offset + len(hits) if is_total else None,
        "offset": options.offset,
        "nextOffset": results.next_offset,
        "sessions": results.sessions,
        "moreInSession": results.more,
        "moreAtLeast": sorted(results.more_at_least),
        "unindexed": results.unindexed,
        "complete": results.is_complete,
        "unsearched": {"sessions": results.unsearched.sessions, "bytes": results.unsearched.size},
        "unreadable": results.unreadable,
        "hits": described,
        "notes": results.notes,
        "timings": {"searchMs": round(1000 * results.seconds, 1)},
    }
    return value | ({"opened": _opened_to_json(hits[0], options)} if options.open and hits else {})


def _neighbors_to_json(session: Session | None, hit: Hit, number: int) -> dict[str, Any]:
    from sessiontree.views.passages import describe_neighbor

    before, after = _neighbors(session, hit, number)
    return {
        "before": [describe_neighbor(entry, _LONGEST_NEIGHBOR) for entry in before],
        "after": [describe_neighbor(entry, _LONGEST_NEIGHBOR) for entry in after],
    }


def _opened_to_json(hit: Hit, options: Options) -> dict[str, Any] | None:
    from sessiontree.views.json import describe_shown
    from sessiontree.views.passages import find_passage

    session = _open_session(hit)
    if session is None:
        return None
    passage = find_passage(session, hit.entry, _OPENED_CONTEXT if options.context is None else options.context)
    return {
        "entries": [describe_shown(entry) for entry in passage.entries],
        "at": passage.at,
        "before": passage.before,
        "after": passage.after,
    }
