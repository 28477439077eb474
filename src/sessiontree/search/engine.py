"""The search engine. The index selects chunks of files; their lines are read and matched, and sessions are ranked.

Every hit is read from a session file during the search, so an outdated index cannot show wrong text. Small additions to
files are indexed first. Files that are not fully indexed are scanned byte by byte.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.entries import milliseconds
from sessiontree.core.ids import iso_time
from sessiontree.core.jsonio import render_json
from sessiontree.dialects.texts import Line, Text
from sessiontree.errors import SessionTreeError
from sessiontree.library.session_store import open_store
from sessiontree.library.summary import Summary
from sessiontree.search.branch_state import BranchMap, BranchState, load_branches
from sessiontree.search.file_chunks import read_chunk
from sessiontree.search.hit_builder import Group, HitBuilder, LineMatch
from sessiontree.search.index_db import IndexedFile
from sessiontree.search.index_query import MAX_ROWS, IndexQuery
from sessiontree.search.indexer import FileTexts, IndexPart, Pending, Progress, open_indexes
from sessiontree.search.matcher import Matcher, RegexFinder, may_have_variants, variant_lines
from sessiontree.search.query import And, Choice, Expression, Not, Or, Query, Regex, terms
from sessiontree.search.query_parser import parse
from sessiontree.search.ranking import Candidate, candidates, line_score
from sessiontree.search.results import Results, Unsearched
from sessiontree.search.session_filter import select_sessions
from sessiontree.search.unindexed_scan import Finder, needles, scan_lines
from sessiontree.stores.contract import SessionStore

if TYPE_CHECKING:
    from sessiontree.library.library import Library

Refresh: TypeAlias = Literal["auto", "all", "none"]
"""What to index before the search: small additions ("auto"), everything ("all") or nothing ("none")."""

HITS_PER_SESSION = 3
_SMALL = 8 << 20  # bytes that "auto" indexes before the search
_CHUNKS_PER_SESSION = 24  # chunks of a session that are read
_MATCHES_PER_HIT = 2  # matching lines to find for each hit that is shown
_COUNTED_CHUNKS = 4  # chunks of a session in which all matches are counted; a longer one may have more
_BATCH_CHUNKS, _MAX_COUNTED = 60, 3  # chunks in a batch of candidates; a large session counts as `_MAX_COUNTED`
_PATTERN_SECONDS = 5.0  # time limit of all regular expressions together
SEARCH_SECONDS = 10.0
_SLOW_PASS = 0.2  # part of the time limit after which lines with other spellings of a word are no longer compared
_RECENCY_BONUS, _RECENCY_HALF = 0.15, 30 * 86_400_000  # milliseconds
_WAITING = 30.0  # seconds of waiting for the disk or the processor that count as one
_LOCK_SECONDS = 5.0  # how long to wait for another process that indexes; then the files are scanned instead


def effort() -> float:
    """A clock of the work that this thread does: its processor time and, much slower, the time that passes.

    With this clock, many searches at once get as far as one alone.
    """
    return time.thread_time() + time.monotonic() / _WAITING


def search(
    library: Library,
    query: str | Query,
    *,
    agent: str | None = None,
    since: int | datetime | None = None,
    project: str | os.PathLike[str] | None = None,
    limit: int = 20,
    offset: int = 0,
    per_session: int = HITS_PER_SESSION,
    refresh: Refresh = "auto",
    progress: Progress | None = None,
    match_progress: Progress | None = None,
    time_limit: float = SEARCH_SECONDS,
    clock: Callable[[], float] = effort,
) -> Results:
    """Search all sessions of a library. Never raises for an invalid query.

    `since` is a time, or milliseconds since 1970. `project` is a folder: only sessions of its project are searched.
    `progress` is called while sessions are indexed, and `match_progress` while they are matched, which takes long for
    regular expressions. `time_limit` is for matching: listing the sessions and indexing do not count. If it is reached,
    the results are not `is_complete`.
    """
    start = time.perf_counter()
    parsed = parse(query) if isinstance(query, str) else query
    parsed = _with_filters(parsed, agent, since)
    results = Results(parsed)
    results.offset = offset
    if parsed.filters.session.wanted:
        per_session = offset + limit + 1  # the user asks for all hits of a session
    with open_indexes(library) as parts:
        matching = _Search(library, parts, results, project, per_session, time_limit, clock, _Meter(match_progress))
        matching.run(limit, offset, refresh, progress)
    results.seconds = time.perf_counter() - start
    return results


def _with_filters(query: Query, agent: str | None, since: int | datetime | None) -> Query:
    filters = query.filters
    if agent is not None:
        filters = msgspec.structs.replace(filters, agent=Choice((agent.lower(),), filters.agent.unwanted))
    if since is not None:
        at = since if isinstance(since, int) else int(since.timestamp() * 1000)
        filters = msgspec.structs.replace(filters, since=max(at, filters.since or 0))
    return msgspec.structs.replace(query, filters=filters)


class _Meter:
    """Reports how many bytes of the sessions to match were passed."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._sizes: dict[str, int] = {}
        self._passed: dict[str, int] = {}
        self._total = self._done = 0

    def start(self, sessions: Iterable[Summary]) -> None:
        self._sizes = {summary.ref: summary.size for summary in sessions}
        self._passed = {}
        self._total, self._done = sum(self._sizes.values()), 0

    def advance(self, ref: str, size: int | None = None) -> None:
        """Count some bytes of a session, or all of it."""
        if self._progress is None:
            return
        before, whole = self._passed.get(ref, 0), self._sizes.get(ref, 0)
        self._passed[ref] = whole if size is None else min(before + size, whole)
        self._done += self._passed[ref] - before
        self._progress(self._done, self._total, ref)


class _IndexedSessions(Struct, frozen=True):
    """The indexed sessions that are searched, by file number."""

    sizes: dict[int, int]
    recency: dict[int, int]
    sessions: dict[int, Summary]


class _Search:
    """One search in one library."""

    def __init__(
        self,
        library: Library,
        parts: Sequence[IndexPart],
        results: Results,
        project: str | os.PathLike[str] | None,
        per_session: int,
        time_limit: float,
        clock: Callable[[], float],
        meter: _Meter,
    ) -> None:
        self._library = library
        self._meter = meter
        self._parts = parts
        self._index = parts[0].index
        """The index that is asked at the moment."""
        self._known_in: list[dict[str, IndexedFile]] = []
        """By part: the sessions in its index."""
        self._results = results
        self._query = results.query
        self._is_of_sessions = bool(self._query.filters.session.wanted)
        self._per_session = max(1, per_session)
        self._time_limit = time_limit
        self._clock = clock
        self._start = clock()
        self._unsearched: dict[str, int] = {}
        """Sessions that were not searched, or only in part, and their sizes."""
        self._counted: dict[str, int] = {}
        """By session: matching lines that were only counted, after the best ones."""
        self._uncounted: set[str] = set()
        """Sessions that may have more matching lines than were counted."""
        self._unreadable: dict[str, str] = {}
        """Sessions that could not be read, and the reasons."""
        self._regex_finder = RegexFinder(_PATTERN_SECONDS)
        self._matcher = Matcher(self._query, self._regex_finder)
        self._wanted = len(terms(self._query.where))
        self._known: dict[str, IndexedFile] = {}
        self._ref_of: dict[int, str] = {}
        """By file number in the index: the reference of its session."""
        self._groups: dict[str, Group] = {}
        self._match_count = 0
        self._variant_files: set[int] = set()
        """Files with lines that may have other spellings of a word (see `matcher.may_have_variants`)."""
        self._sessions = {summary.ref: summary for summary in select_sessions(library, self._query.filters, project)}
        self._titles = self._match_outside_titles()
        """By session: the match of a title that another file has, until the session's hits are grouped."""
        self._newest = max((summary.recency for summary in self._sessions.values()), default=0)

    def run(self, limit: int, offset: int, refresh: Refresh, progress: Progress | None) -> None:
        self._run(limit, offset, refresh, progress)
        self._report_unsearched()

    def _report_unsearched(self) -> None:
        results = self._results
        skipped = self._library.scan.skipped
        if skipped:
            results.is_complete = False
            results.notes.append(f"incomplete: {skipped[0]} cannot be read{_more(len(skipped) - 1)}")
        if self._unreadable:
            results.is_complete = False
            results.unreadable = list(self._unreadable)
            first, reason = next(iter(self._unreadable.items()))
            shown = reason if first in reason else f"{first}: {reason}"
            results.notes.append(f"incomplete: {shown}{_more(len(self._unreadable) - 1)}")
        unsearched = {ref: size for ref, size in self._unsearched.items() if ref not in self._groups}
        reasons = []
        if self._regex_finder.timed_out:
            reasons.append(f"stopped matching the pattern after {_PATTERN_SECONDS:g} seconds")
        elif unsearched:
            reasons.append("the time limit was reached")
        if unsearched:
            results.unsearched = Unsearched(len(unsearched), sum(unsearched.values()))
            reasons.append(
                f"not searched: {len(unsearched):,} of {len(self._sessions):,} "
                f"session{'s' if len(self._sessions) != 1 else ''} ({_megabytes(results.unsearched.size)} MB)"
            )
        if reasons:
            results.is_complete = False
            results.notes.append(f"incomplete: {'; '.join(reasons)}. {self._hint_after_stop()}")

    def _hint_after_stop(self) -> str:
        """What finds more after a search that was stopped. Once everything is indexed, repeating it does not."""
        narrower = "add a word or a filter such as project:NAME or agent:NAME."
        if self._regex_finder.timed_out or any(isinstance(term, Regex) for term in terms(self._query.where)):
            return f"Use a more specific pattern, or {narrower}"
        return "Run it again to continue." if self._results.unindexed else f"{narrower[0].upper()}{narrower[1:]}"

    def _run(self, limit: int, offset: int, refresh: Refresh, progress: Progress | None) -> None:
        unread = self._refresh(refresh, progress)
        for summary in self._sessions.values():
            if summary.health == "damaged" and not summary.messages and _is_container(summary):
                self._unreadable[summary.ref] = f"{summary.ref}: its sessions cannot be read; see `sessiontree doctor`"
        enough = offset + limit + 1
        if unread:
            self._results.unindexed = sum(file.summary.size - file.start for file in unread)
            self._scan(unread, enough)
        try:
            self._start = self._clock()  # a scan that used up its time leaves the index its own
            for part, known in zip(self._parts, self._known_in, strict=True):
                self._index, self._known, self._variant_files = part.index, known, set()
                self._ask(enough)
        except (sqlite3.Error, OSError) as error:
            self._results.notes.append(f"the index cannot be queried ({error}); the files were scanned instead")
            self._scan([Pending(summary, 0, None) for summary in self._sessions.values()], enough)
        self._add_titled()
        found = [(group, match) for group in self._groups.values() for match in group.matches]
        self._results.set_hits(HitBuilder(self._library, self._parts).build(found[offset : offset + limit]))
        self._results.next_offset = offset + limit if len(found) > offset + limit else None

    def _add(self, groups: Sequence[Group]) -> None:
        """Append groups after those found before, by score, then by recency."""
        ordered = sorted(groups, key=lambda group: (-round(self._ranked(group), 2), -group.summary.recency))
        self._groups.update({group.summary.ref: group for group in ordered})
        self._match_count += sum(len(group.matches) for group in ordered)
        more = {group.summary.ref: group.more for group in ordered if group.more}
        self._results.more.update(more)
        self._results.more_at_least |= more.keys() & self._uncounted

    def _ranked(self, group: Group) -> float:
        """The score of a session with a bonus for recent ones, which halves with each month before the newest."""
        age = max(0, self._newest - group.summary.recency)
        return group.score + _RECENCY_BONUS * math.exp2(-age / _RECENCY_HALF)

    def _group(self, summary: Summary, file: int | None, score: float, matches: list[LineMatch]) -> Group:
        outside = self._titles.pop(summary.ref, [])
        matches = [*outside, *(match for match in matches if not outside or match.found.text.kind != "title")]
        shown = matches[: self._per_session]
        more = len(matches) + self._counted.get(summary.ref, 0) - len(shown)
        return Group(summary, file, _score(score, matches), shown, more=more)

    def _match_outside_titles(self) -> dict[str, list[LineMatch]]:
        """Match the titles that no line of their session has. They are few, and are not indexed."""
        if not self._is_on_selected_branch("active"):
            return {}
        matches: dict[str, list[LineMatch]] = {}
        for ref, title in self._library.outside_titles.items():
            if ref not in self._sessions:
                continue
            line = Line("", iso_time(self._sessions[ref].active), "", [Text("title", "user", render_json(title))])
            found = self._matcher.match(line) if self._is_in_time(line) else None
            if found is not None:
                matches[ref] = [LineMatch(line_score(found, self._wanted), 0, line, found)]
        return matches

    def _add_titled(self) -> None:
        """Add the sessions that match only by such a title."""
        self._add([self._group(self._sessions[ref], None, 0.0, []) for ref in [*self._titles]])

    def _refresh(self, refresh: Refresh, progress: Progress | None) -> list[Pending]:
        """Update the index as far as `refresh` asks for; return the sessions that are not fully indexed."""
        volatile = [summary for summary in self._sessions.values() if self._library.is_volatile(summary)]
        waiting = [Pending(summary, 0, None) for summary in volatile]
        for part in self._parts:
            self._index, self._known = part.index, {}
            waiting += self._update_index(part.sessions(), refresh, progress)
            self._known_in.append(self._known)
        return waiting

    def _update_index(
        self, everything: Sequence[Summary], refresh: Refresh, progress: Progress | None
    ) -> list[Pending]:
        try:
            self._index.store.check_terms()
            self._known = self._index.store.indexed_files()
            waiting = self._index.pending(everything, self._known)
            size = sum(file.summary.size - file.start for file in waiting)
            is_now = refresh == "all" or (refresh == "auto" and size <= _SMALL)
            if not waiting:
                return []
            # Wait for another process that indexes as little: many searches at once then answer from one index.
            seconds = None if refresh == "all" else _LOCK_SECONDS
            if is_now and self._index.update(everything, progress=progress, timeout=seconds):
                self._known = self._index.store.indexed_files()
                # What still waits could not be read, or grew: reading it now finds out.
                left = self._index.pending(everything, self._known)
                return [file for file in left if file.summary.ref in self._sessions]
        except (sqlite3.Error, OSError) as error:
            self._results.notes.append(f"the index cannot be used ({error}); the files were scanned instead")
            self._known = {}
            waiting = [Pending(summary, 0, None) for summary in everything]
        self._results.state = "mixed" if self._known else "scan"
        return [file for file in waiting if file.summary.ref in self._sessions]

    # Without the index

    def _scan(self, files: Sequence[Pending], enough: int) -> None:
        words = needles(self._query.where)
        finder = None if words is None else Finder(words)
        found: list[Group] = []
        ordered = sorted(files, key=lambda file: file.summary.recency, reverse=True)
        self._start = self._clock()  # listing the sessions and indexing them may have taken minutes
        self._meter.start(file.summary for file in ordered)
        for number, file in enumerate(ordered):
            if sum(len(group.matches) for group in found) >= enough:
                break
            if self._is_out_of_time():
                self._leave_out(unread.summary for unread in ordered[number:])
                break
            if file.summary.ref not in self._groups:
                lines = partial(scan_lines, start=file.start, finder=finder)
                matches = self._match_session(file.summary, None, lines)
                self._meter.advance(file.summary.ref)
                if matches:
                    found.append(self._group(file.summary, None, 0.0, matches))
        self._add(found)

    # With the index

    def _ask(self, enough: int) -> None:
        known = {known.file: known for known in self._known.values() if known.path in self._sessions}
        if not known:
            return
        self._ref_of = {file: indexed_file.path for file, indexed_file in known.items()}
        indexed = _IndexedSessions(
            {file: indexed_file.size for file, indexed_file in known.items()},
            {file: self._sessions[indexed_file.path].recency for file, indexed_file in known.items()},
            {file: self._sessions[indexed_file.path] for file, indexed_file in known.items()},
        )
        asked = IndexQuery(self._index.store)
        rows = asked.rows(asked.expression(self._query))
        ordered = candidates(rows, indexed.sizes, indexed.recency)
        self._results.sessions += len(ordered)
        self._meter.start(indexed.sessions[candidate.file] for candidate in ordered)
        # The quick pass finds words in their usual spelling. Files with other spellings get a slow pass only if they
        # had no hit, and words spread over several lines come last.
        # Sessions with a matching title come first, whatever the page is, so that pages never overlap.
        titled = [candidate for candidate in ordered if indexed.sessions[candidate.file].ref in self._titles]
        self._match_candidates(titled, indexed, enough, is_quick=True)
        self._add_titled()
        missed = self._match_candidates(ordered, indexed, enough, is_quick=True)
        if self._matcher.required:
            self._match_candidates(missed, indexed, enough, is_quick=False)
        if isinstance(self._query.where, And):
            self._match_across_lines(self._query.where, indexed, enough)
        if len(rows) >= MAX_ROWS and self._match_count < enough:
            self._results.is_complete = False
            self._results.notes.append(
                f"incomplete: only the newest {MAX_ROWS:,} parts of sessions were searched; add a word or a filter"
            )

    def _match_candidates(
        self, ordered: Sequence[Candidate], indexed: _IndexedSessions, enough: int, *, is_quick: bool
    ) -> list[Candidate]:
        """Match lines of candidates, best first, until there are enough hits. Returns those worth a slow pass.

        Candidates are read and sorted in batches. The batches do not depend on the page, so that pages never overlap.
        """
        missed: list[Candidate] = []
        read = 0
        for batch in _batches(ordered):
            if self._match_count >= enough:
                break
            if self._is_out_of_time(is_quick=is_quick):
                self._leave_out(indexed.sessions[candidate.file] for candidate in ordered[read:])
                break
            read += len(batch)
            found: list[Group] = []
            for candidate in batch:
                summary = indexed.sessions[candidate.file]
                if summary.ref in self._groups:
                    continue
                if self._is_out_of_time(is_quick=is_quick):
                    self._leave_out([summary])
                    continue
                matches = self._match_candidate(summary, candidate, is_quick=is_quick)
                self._meter.advance(summary.ref)
                if matches:
                    found.append(self._group(summary, candidate.file, candidate.score, matches))
                elif candidate.file in self._variant_files:
                    missed.append(candidate)
            self._add(found)
        return missed

    def _match_across_lines(self, where: And, indexed: _IndexedSessions, enough: int) -> None:
        """Find sessions that have all words, but not on one line."""
        parts = [part for part in where.parts if not isinstance(part, Not | Regex)]
        rest = [part for part in where.parts if isinstance(part, Not | Regex)]
        if len(parts) < 2 or self._match_count >= enough:
            return
        asked = IndexQuery(self._index.store)
        expressions = [asked.expression(msgspec.structs.replace(self._query, where=part)) for part in parts]
        rarest, rows = asked.find_rarest(expressions)
        others = expressions[:rarest] + expressions[rarest + 1 :]
        either: Expression = Or(tuple(parts))
        query = msgspec.structs.replace(self._query, where=And((either, *rest)) if rest else either)
        matcher, self._matcher = self._matcher, Matcher(query, self._regex_finder)
        found: list[Group] = []
        try:
            ordered = candidates(rows, indexed.sizes, indexed.recency)
            for number, candidate in enumerate(ordered):
                summary = indexed.sessions[candidate.file]
                if self._match_count + len(found) >= enough:
                    break
                if self._is_out_of_time():
                    self._leave_out(indexed.sessions[unread.file] for unread in ordered[number:])
                    break
                if summary.ref in self._groups or not all(asked.has_file(other, candidate.file) for other in others):
                    continue
                matches = self._match_candidate(summary, candidate, is_quick=True)[: self._per_session]
                if matches:
                    found.append(
                        Group(summary, candidate.file, _score(candidate.score, matches), matches, is_partial=True)
                    )
        finally:
            self._matcher = matcher
        self._add(found)

    # Matching lines

    def _match_candidate(self, summary: Summary, candidate: Candidate, *, is_quick: bool) -> list[LineMatch]:
        """The best lines of a session, out of the chunks that the index named: of the first ones, if one matches."""
        chunks = candidate.chunks()
        first = len(chunks) if self._is_of_sessions else _CHUNKS_PER_SESSION

        def match(part: Sequence[int]) -> list[LineMatch]:
            return self._match_session(
                summary, candidate, lambda store: self._lines(store, candidate, part, is_quick=is_quick)
            )

        matches = match(chunks[:first])
        if len(chunks) <= first:
            return matches
        if not matches and not self._is_out_of_time(is_quick=is_quick):
            return match(chunks[first:])  # the index names chunks, but cannot check patterns and phrases
        if not matches:
            self._leave_out([summary])
        self._uncounted.add(summary.ref)
        return matches

    def _match_session(
        self,
        summary: Summary,
        candidate: Candidate | None,
        lines: Callable[[SessionStore], Iterator[tuple[int, bytes]]],
    ) -> list[LineMatch]:
        """The best lines of a session, out of some of them; none if it cannot be read."""
        try:
            with contextlib.closing(open_store(summary)) as store:
                texts = FileTexts(summary.agent, summary.ref, store)
                return self._best_lines(summary, candidate, texts, store, lines(store))
        except (SessionTreeError, OSError) as error:
            if not summary.is_line_file or os.path.lexists(summary.ref):  # else it was deleted meanwhile
                self._unreadable[summary.ref] = str(error)
            return []

    def _lines(
        self, store: SessionStore, candidate: Candidate, chunks: Sequence[int], *, is_quick: bool
    ) -> Iterator[tuple[int, bytes]]:
        lines_of = self._matcher.candidate_lines if is_quick else variant_lines
        for chunk in chunks:
            start, block = read_chunk(store, chunk)
            self._meter.advance(self._ref_of[candidate.file], len(block))
            if is_quick and may_have_variants(block):
                self._variant_files.add(candidate.file)
            for offset, line in lines_of(block):
                yield start + offset, line

    def _best_lines(
        self,
        summary: Summary,
        candidate: Candidate | None,
        texts: FileTexts,
        store: SessionStore,
        lines: Iterator[tuple[int, bytes]],
    ) -> list[LineMatch]:
        best: list[LineMatch] = []
        title: list[LineMatch] = []  # the newest that matches: a session has a line for each name it ever had
        counted, enough = 0, _MATCHES_PER_HIT * self._per_session
        counts_all = candidate is not None and len(candidate.chunks()) <= _COUNTED_CHUNKS
        branches: BranchMap | None = None
        if self._filters_by_branch:
            file = candidate.file if candidate else None
            branches = load_branches(self._index.store, file, summary, store.size())
        for offset, raw in lines:
            if branches is not None and not self._is_on_selected_branch(branches.state(offset)):
                continue
            for line in texts.texts(raw, offset, tools=bool(self._query.filters.tool)):
                if not self._is_in_time(line):
                    continue
                if len(best) >= enough and not _is_title(line):
                    counted += self._matcher.is_match(line)
                elif (found := self._matcher.match(line)) is not None:
                    match = LineMatch(line_score(found, self._wanted), offset, line, found)
                    if found.text.kind != "title":
                        best.append(match)
                    elif not title or offset > title[0].offset:
                        title = [match]
            if len(best) >= enough and not counts_all:
                self._uncounted.add(summary.ref)
                break
            if self._is_out_of_time():
                self._leave_out([summary])
                self._uncounted.add(summary.ref)
                break
        self._counted[summary.ref] = counted
        return sorted([*title, *best], key=lambda match: (-match.line_score, -match.offset))

    # Filters and limits

    def _is_in_time(self, line: Line) -> bool:
        filters = self._query.filters
        if filters.since is None and filters.before is None:
            return True
        at = milliseconds(line.time) if line.time else None
        if at is None:
            return False
        return (filters.since is None or at >= filters.since) and (filters.before is None or at < filters.before)

    @property
    def _filters_by_branch(self) -> bool:
        return self._query.filters.branch == "active" or self._query.filters.abandoned is not None

    def _is_on_selected_branch(self, state: BranchState) -> bool:
        filters = self._query.filters
        if filters.branch == "active" and state != "active":
            return False
        return filters.abandoned is None or (state == "abandoned") == filters.abandoned

    def _is_out_of_time(self, *, is_quick: bool = True) -> bool:
        limit = self._time_limit * (1.0 if is_quick else _SLOW_PASS)
        return self._regex_finder.timed_out or self._clock() - self._start >= limit

    def _leave_out(self, sessions: Iterable[Summary]) -> None:
        """Count sessions as not searched, or only in part."""
        self._unsearched.update((summary.ref, summary.size) for summary in sessions if summary.ref not in self._groups)


def _is_title(line: Line) -> bool:
    return any(text.kind == "title" for text in line.texts)


def _batches(ordered: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Group candidates that are read before they are sorted: many small sessions, or a few large ones."""
    batch: list[Candidate] = []
    size = 0
    for candidate in ordered:
        batch.append(candidate)
        size += min(candidate.count(_MAX_COUNTED), _MAX_COUNTED)
        if size >= _BATCH_CHUNKS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_container(summary: Summary) -> bool:
    """Whether a file holds several sessions. It is listed as one if none of them can be found in it."""
    from sessiontree.dialects.storage import Rows  # rarely needed
    from sessiontree.library.roots import dialect_named

    return isinstance(dialect_named(summary.agent).storage(summary.ref), Rows)


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.1f}"


def _more(others: int) -> str:
    return f", and {others:,} more" if others else ""


def _score(before: float, matches: Sequence[LineMatch]) -> float:
    """Combine a session's index score with the scores of its best lines, each weighing less than the one before."""
    return before + sum(match.line_score / (2 + at) for at, match in enumerate(matches))
