"""Looking something up: the index says where to look, the files say what stands there, the best sessions come first.

What is given back was read from a session file a moment ago. Of files that the index does not know yet, or not to
their end, the bytes are looked through; small additions are read into the index first.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.core.context import milliseconds
from sessiontree.library.summary import Summary
from sessiontree.search.branch_state import Branches, BranchState, branches_of
from sessiontree.search.file_chunks import line_at, open_file, stretch_block
from sessiontree.search.index_db import SHIFT, Known
from sessiontree.search.indexer import MARK, FileReading, Index, Pending, Progress
from sessiontree.search.matcher import Found, Matcher, RegexFinder, index_expression, is_odd, odd_lines
from sessiontree.search.query_parser import And, Choice, Expression, Not, Or, Query, Regex, parse, terms
from sessiontree.search.ranking import Candidate, candidates, worth
from sessiontree.search.session_filter import sessions_asked
from sessiontree.search.snippets import Part, snippet
from sessiontree.search.text_extractor import Line
from sessiontree.search.unindexed_scan import Finder, needles, scan_file

if TYPE_CHECKING:
    from sessiontree.library.library import Library

Refresh: TypeAlias = Literal["auto", "all", "none"]
"""What is read into the index before it is asked: what takes no time, everything, nothing."""

HITS_OF_A_SESSION = 3
_SMALL = 8 << 20
_ROWS = "SELECT rowid FROM terms WHERE terms MATCH ? ORDER BY rowid DESC LIMIT ?"
_MOST_ROWS, _ROWS_AT_ONCE = 200_000, 500
_STRETCHES_OF_A_SESSION = 24
_READ_FOR_EACH = 2
_LOOKED_AT_TOGETHER, _MOST_COUNTED = 60, 3
_PATTERN_SECONDS = 5.0
_SEARCH_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
"""After which nobody looks any longer for words that are written otherwise than they mostly are."""


class Hit(Struct, frozen=True):
    """A line of a session that fits."""

    session: Summary
    entry: str
    """The id of the entry; empty for a line that has none (a title, a label of some formats)."""
    offset: int
    """Where its line begins in the file."""
    kind: str
    """What was found: prompt, answer, thinking, input, output, summary, title, label, context."""
    role: str
    tool: str
    model: str
    time: int | None
    """Milliseconds since 1970."""
    is_error: bool
    branch: BranchState
    snippet: tuple[Part, ...]
    score: float
    command: tuple[str, ...]
    """What opens it."""
    is_partial: bool = False
    """Whether the line has only some of the words, and the rest stands elsewhere in the session."""


class Results(Iterator[Hit]):
    """Hits, the best sessions first, and what there is to say about them."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.notes: list[str] = list(query.notes)
        """Sentences for whoever asked: what was taken otherwise, what was not looked at."""
        self.state: Literal["index", "scan", "mixed"] = "index"
        """How it was found: by the index, by looking through the bytes of the files, or both."""
        self.unindexed = 0
        """Bytes that the index does not know yet."""
        self.sessions = 0
        """Sessions that may fit, as far as the index can tell."""
        self.offset = 0
        self.next_offset: int | None = None
        """Where the next page begins; None at the end."""
        self.seconds = 0.0
        self._hits: list[Hit] = []
        self._at = 0

    def __next__(self) -> Hit:
        if self._at >= len(self._hits):
            raise StopIteration
        self._at += 1
        return self._hits[self._at - 1]

    def __len__(self) -> int:
        return len(self._hits)

    def put(self, hits: Iterable[Hit]) -> None:
        """Give it what was found."""
        self._hits = list(hits)


def search(
    library: Library,
    query: str | Query,
    *,
    agent: str | None = None,
    since: int | datetime | None = None,
    project: str | os.PathLike[str] | None = None,
    limit: int = 20,
    offset: int = 0,
    per_session: int = HITS_OF_A_SESSION,
    refresh: Refresh = "auto",
    progress: Progress | None = None,
) -> Results:
    """What fits a query in all sessions of a library. Never raises for what a query says.

    `since` is a time, or milliseconds since 1970; `project` a folder: only sessions of the project it belongs to.
    """
    start = time.perf_counter()
    asked = parse(query) if isinstance(query, str) else query
    asked = _narrowed(asked, agent, since)
    results = Results(asked)
    results.offset = offset
    with Index(library.environment) as index:
        _Search(library, index, results, project, per_session, start).run(limit, offset, refresh, progress)
    results.seconds = time.perf_counter() - start
    return results


def _narrowed(query: Query, agent: str | None, since: int | datetime | None) -> Query:
    filters = query.filters
    if agent is not None:
        filters = msgspec.structs.replace(filters, agent=Choice((agent.lower(),), filters.agent.unwanted))
    if since is not None:
        at = since if isinstance(since, int) else int(since.timestamp() * 1000)
        filters = msgspec.structs.replace(filters, since=max(at, filters.since or 0))
    return msgspec.structs.replace(query, filters=filters)


class _Seen(Struct, frozen=True):
    """A line that was read and fits."""

    worth: float
    offset: int
    line: Line
    found: Found


class _Group(Struct, frozen=True):
    """The best lines of one session."""

    summary: Summary
    file: int | None
    """Its number in the index, if it has one."""
    score: float
    seen: list[_Seen]
    is_partial: bool = False


class _About(Struct, frozen=True):
    """The files of the index that are asked about, by their numbers."""

    sizes: dict[int, int]
    recency: dict[int, int]
    sessions: dict[int, Summary]


class _Search:
    """One question to one library."""

    def __init__(
        self,
        library: Library,
        index: Index,
        results: Results,
        project: str | os.PathLike[str] | None,
        per_session: int,
        start: float,
    ) -> None:
        self._library = library
        self._index = index
        self._results = results
        self._query = results.query
        self._per_session = max(1, per_session)
        self._deadline = start + _SEARCH_SECONDS
        self._regex_finder = RegexFinder(_PATTERN_SECONDS)
        self._matcher = Matcher(self._query, self._regex_finder)
        self._wanted = len(terms(self._query.where))
        self._known: dict[str, Known] = {}
        self._groups: dict[str, _Group] = {}
        self._places = 0
        self._odd_files: set[int] = set()
        """The files in which lines were met that may write words in another way than they are mostly written."""
        self._sessions = {one.path: one for one in sessions_asked(library, self._query.filters, project)}

    def run(self, limit: int, offset: int, refresh: Refresh, progress: Progress | None) -> None:
        self._run(limit, offset, refresh, progress)
        if self._regex_finder.timed_out:
            self._results.notes.append(
                f"the pattern was tried for {_PATTERN_SECONDS:.0f} seconds and then left; there may be more"
            )

    def _run(self, limit: int, offset: int, refresh: Refresh, progress: Progress | None) -> None:
        unread = self._refreshed(refresh, progress)
        enough = offset + limit + 1
        if unread:
            self._results.unindexed = sum(one.summary.size - one.start for one in unread)
            self._scan(unread, enough)
        try:
            self._ask(enough)
        except (sqlite3.Error, OSError) as error:
            self._results.notes.append(f"the index could not be asked ({error}); files were looked through instead")
            self._scan([Pending(one, 0, None) for one in self._sessions.values()], enough)
        places = [(group, seen) for group in self._groups.values() for seen in group.seen]
        self._results.put(self._shown(places[offset : offset + limit]))
        self._results.next_offset = offset + limit if len(places) > offset + limit else None

    def _add(self, groups: Sequence[_Group]) -> None:
        """Put sessions behind those that are there already, the best first, of equals the newest."""
        ordered = sorted(groups, key=lambda one: (-round(one.score, 2), -one.summary.recency))
        self._groups.update({group.summary.path: group for group in ordered})
        self._places += sum(len(group.seen) for group in ordered)

    def _refreshed(self, refresh: Refresh, progress: Progress | None) -> list[Pending]:
        """Bring the index up to date as far as it is to be; the files that it does not know to their end."""
        everything = self._library.everything()
        try:
            self._known = self._index.store.known()
            waiting = self._index.pending(everything, self._known)
            size = sum(one.summary.size - one.start for one in waiting)
            is_now = refresh == "all" or (refresh == "auto" and size <= _SMALL)
            if not waiting:
                return []
            if is_now and self._index.update(everything, progress=progress, wait=refresh == "all"):
                self._known = self._index.store.known()
                return []
        except (sqlite3.Error, OSError) as error:
            self._results.notes.append(f"the index could not be used ({error}); the files were looked through instead")
            self._known = {}
            waiting = [Pending(one, 0, None) for one in everything]
        self._results.state = "mixed" if self._known else "scan"
        return [one for one in waiting if one.summary.path in self._sessions]

    # Looking through bytes

    def _scan(self, files: Sequence[Pending], enough: int) -> None:
        words = needles(self._query.where)
        finder = None if words is None else Finder(words)
        found: list[_Group] = []
        for one in sorted(files, key=lambda one: one.summary.recency, reverse=True):
            if sum(len(group.seen) for group in found) >= enough or self._is_late():
                break
            if one.summary.path not in self._groups:
                lines = scan_file(one.summary.path, one.start, finder)
                seen = self._seen_of(one.summary, None, lines)
                if seen:
                    found.append(_Group(one.summary, None, _score(0.0, seen), seen[: self._per_session]))
        self._add(found)

    # Asking the index

    def _ask(self, enough: int) -> None:
        known = {known.file: known for known in self._known.values() if known.path in self._sessions}
        if not known:
            return
        about = _About(
            {file: one.size for file, one in known.items()},
            {file: self._sessions[one.path].recency for file, one in known.items()},
            {file: self._sessions[one.path] for file, one in known.items()},
        )
        ordered = candidates(self._rows(self._expression(self._query)), about.sizes, about.recency)
        self._results.sessions = len(ordered)
        missed = self._look(ordered, about, enough, is_quick=True)
        if self._matcher.required:
            self._look(missed, about, enough, is_quick=False)
        if isinstance(self._query.where, And):
            self._look_for_parts(self._query.where, about, enough)

    def _expression(self, query: Query) -> str:
        models = self._marks("m") if query.filters.model else []
        tools = self._marks("t") if query.filters.tool else []
        return index_expression(query, models, tools)

    def _rows(self, expression: str) -> list[int]:
        return self._index.store.attempt(
            lambda database: list(chain.from_iterable(database.execute(_ROWS, (expression, _MOST_ROWS))))
        )

    def _rarest(self, expressions: Sequence[str]) -> tuple[int, list[int]]:
        """Which of some expressions has the fewest rows, and those. Of the others no more rows are read than of it."""

        def ask(database: sqlite3.Connection) -> tuple[int, list[int]]:
            asked = [database.execute(_ROWS, (expression, _MOST_ROWS)) for expression in expressions]
            rows: list[list[int]] = [[] for _ in asked]
            while True:
                for number, cursor in enumerate(asked):
                    more = cursor.fetchmany(_ROWS_AT_ONCE)
                    rows[number] += [row for (row,) in more]
                    if len(more) < _ROWS_AT_ONCE:
                        return number, rows[number]

        return self._index.store.attempt(ask)

    def _is_in_file(self, expression: str, file: int) -> bool:
        asked = "SELECT 1 FROM terms WHERE terms MATCH ? AND rowid BETWEEN ? AND ? LIMIT 1"
        bounds = file << SHIFT, ((file + 1) << SHIFT) - 1
        row = self._index.store.attempt(lambda database: database.execute(asked, (expression, *bounds)).fetchone())
        return row is not None

    def _marks(self, letter: str) -> list[str]:
        asked = "SELECT term FROM words WHERE term >= ? AND term < ?"
        bounds = (f"{MARK}{letter}", f"{MARK}{chr(ord(letter) + 1)}")
        return self._index.store.attempt(lambda database: [term for (term,) in database.execute(asked, bounds)])

    def _look(self, ordered: Sequence[Candidate], about: _About, enough: int, *, is_quick: bool) -> list[Candidate]:
        """Read the lines of sessions, the best first, until there are enough; those to look at again, without a hit.

        They are read and put in order some at a time, always the same ones together, so that pages fit each other.
        """
        missed: list[Candidate] = []
        for together in _together(ordered):
            if self._places >= enough or self._is_late(is_quick=is_quick):
                break
            found: list[_Group] = []
            for candidate in together:
                one = about.sessions[candidate.file]
                if one.path in self._groups:
                    continue
                seen = self._seen_of(one, candidate, None, is_quick=is_quick)
                if seen:
                    score = _score(candidate.score, seen)
                    found.append(_Group(one, candidate.file, score, seen[: self._per_session]))
                elif candidate.file in self._odd_files:
                    missed.append(candidate)
            self._add(found)
        return missed

    def _look_for_parts(self, where: And, about: _About, enough: int) -> None:
        """Sessions that have all the words, but on no line together."""
        parts = [part for part in where.parts if not isinstance(part, Not | Regex)]
        refused = [part for part in where.parts if isinstance(part, Not | Regex)]
        if len(parts) < 2 or self._places >= enough:
            return
        asked = [self._expression(msgspec.structs.replace(self._query, where=part)) for part in parts]
        rarest, rows = self._rarest(asked)
        others = asked[:rarest] + asked[rarest + 1 :]
        either: Expression = Or(tuple(parts))
        query = msgspec.structs.replace(self._query, where=And((either, *refused)) if refused else either)
        whole, self._matcher = self._matcher, Matcher(query, self._regex_finder)
        found: list[_Group] = []
        try:
            for candidate in candidates(rows, about.sizes, about.recency):
                one = about.sessions[candidate.file]
                if self._places + len(found) >= enough or self._is_late():
                    break
                if one.path in self._groups or not all(self._is_in_file(other, candidate.file) for other in others):
                    continue
                seen = self._seen_of(one, candidate, None, is_quick=True)[: self._per_session]
                if seen:
                    found.append(_Group(one, candidate.file, _score(candidate.score, seen), seen, is_partial=True))
        finally:
            self._matcher = whole
        self._add(found)

    # Reading what was found

    def _seen_of(
        self,
        one: Summary,
        candidate: Candidate | None,
        lines: Iterator[tuple[int, bytes]] | None,
        *,
        is_quick: bool = True,
    ) -> list[_Seen]:
        """The best lines of a session: of some lines, or of the stretches that the index named."""
        try:
            descriptor = open_file(one.path)
        except OSError:
            return []
        try:
            reading = FileReading(one.agent, one.path, descriptor)
            if lines is None:
                assert candidate is not None
                lines = self._lines(descriptor, candidate, is_quick=is_quick)
            return self._best_lines(one, candidate, reading, descriptor, lines)
        finally:
            os.close(descriptor)

    def _lines(self, descriptor: int, candidate: Candidate, *, is_quick: bool) -> Iterator[tuple[int, bytes]]:
        lines_of = self._matcher.lines_that_may_fit if is_quick else odd_lines
        for stretch in candidate.stretches()[:_STRETCHES_OF_A_SESSION]:
            start, block = stretch_block(descriptor, stretch)
            if is_quick and is_odd(block):
                self._odd_files.add(candidate.file)
            for place, line in lines_of(block):
                yield start + place, line

    def _best_lines(
        self,
        one: Summary,
        candidate: Candidate | None,
        reading: FileReading,
        descriptor: int,
        lines: Iterator[tuple[int, bytes]],
    ) -> list[_Seen]:
        best: list[_Seen] = []
        branches: Branches | None = None
        if self._asks_for_branch:
            size = os.fstat(descriptor).st_size
            branches = branches_of(self._index.store, candidate.file if candidate else None, one, size)
        for offset, raw in lines:
            if branches is not None and not self._is_on_asked_branch(branches.state(offset)):
                continue
            for line in reading.texts(raw, offset, tools=bool(self._query.filters.tool)):
                found = self._matcher.fit(line) if self._is_in_time(line) else None
                if found is not None:
                    best.append(_Seen(worth(found, self._wanted), offset, line, found))
            if len(best) >= _READ_FOR_EACH * self._per_session or self._regex_finder.timed_out or self._is_late():
                break
        return sorted(best, key=lambda seen: (-seen.worth, -seen.offset))

    # Showing it

    def _shown(self, places: Sequence[tuple[_Group, _Seen]]) -> Iterator[Hit]:
        """Lines that were found as hits, with what takes another look: the branch, and the tool of a result."""
        open_files: dict[str, tuple[int, Branches, FileReading]] = {}
        try:
            for group, seen in places:
                one = group.summary
                if one.path not in open_files:
                    try:
                        descriptor = open_file(one.path)
                    except OSError:
                        continue  # it was deleted a moment ago
                    size = os.fstat(descriptor).st_size
                    branches = branches_of(self._index.store, group.file, one, size)
                    reading = FileReading(one.agent, one.path, descriptor)
                    open_files[one.path] = descriptor, branches, reading
                _, branches, reading = open_files[one.path]
                text = seen.found.text
                tool = text.tool or reading.tool_of(text, seen.offset)
                yield self._hit(group, seen, tool, branches.state(seen.offset))
        finally:
            for descriptor, *_ in open_files.values():
                os.close(descriptor)

    def _hit(self, group: _Group, seen: _Seen, tool: str, state: BranchState) -> Hit:
        one, line, found = group.summary, seen.line, seen.found
        command = ("sessiontree", "show", one.path, *(("--leaf", line.id) if line.id and state != "active" else ()))
        return Hit(
            session=one,
            entry=line.id,
            offset=seen.offset,
            kind=found.text.kind,
            role=found.text.role,
            tool=tool,
            model=line.model,
            time=milliseconds(line.time) if line.time else None,
            is_error=found.text.is_error,
            branch=state,
            snippet=snippet(found.said, found.spans),
            score=round(group.score, 4),
            command=command,
            is_partial=group.is_partial,
        )

    def _is_in_time(self, line: Line) -> bool:
        filters = self._query.filters
        if filters.since is None and filters.before is None:
            return True
        at = milliseconds(line.time) if line.time else None
        if at is None:
            return False
        return (filters.since is None or at >= filters.since) and (filters.before is None or at < filters.before)

    @property
    def _asks_for_branch(self) -> bool:
        return self._query.filters.branch == "active" or self._query.filters.abandoned is not None

    def _is_on_asked_branch(self, state: BranchState) -> bool:
        filters = self._query.filters
        if filters.branch == "active" and state != "active":
            return False
        return filters.abandoned is None or (state == "abandoned") == filters.abandoned

    def _is_late(self, *, is_quick: bool = True) -> bool:
        if time.perf_counter() < self._deadline - (0.0 if is_quick else _SEARCH_SECONDS - _CLOSE_SECONDS):
            return False
        note = "stopped for lack of time; there may be more"
        if note not in self._results.notes:
            self._results.notes.append(note)
        return True


def read_hit(hit: Hit) -> bytes:
    """The line of a hit as it stands in the file now."""
    descriptor = open_file(hit.session.path)
    try:
        return line_at(descriptor, hit.offset)
    finally:
        os.close(descriptor)


def _together(ordered: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Sessions that are read before they are put in order: many small ones, or a few large ones."""
    together: list[Candidate] = []
    size = 0
    for candidate in ordered:
        together.append(candidate)
        size += min(candidate.count(_MOST_COUNTED), _MOST_COUNTED)
        if size >= _LOOKED_AT_TOGETHER:
            yield together
            together, size = [], 0
    if together:
        yield together


def _score(before: float, seen: Sequence[_Seen]) -> float:
    """What the index says of a session and what its best lines say, the later ones less and less."""
    return before + sum(one.worth / (2 + at) for at, one in enumerate(seen))
