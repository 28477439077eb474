"""Statistics of many sessions: requests, tokens, cost, tool calls, errors, files.

Each response counts once. If forks share it, it counts for the session that began first. Sub-agents count like
sessions.

Memory holds one session at a time, or those that share lines. The keys of all files (see `session_stats`) show which of
them share anything. A file that shares nothing is added by its totals; the others are added together by their details.
Both are cached, so only files that changed are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar, assert_never

import msgspec
from msgspec import Struct

from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.errors import SessionTreeError
from sessiontree.library.cache import Cache, Stamp, StatsPart
from sessiontree.library.library import Library
from sessiontree.library.projects import Project, Projects
from sessiontree.library.roots import dialect_named
from sessiontree.library.scanner import Progress
from sessiontree.library.session_stats import (
    KEY,
    Bucket,
    Call,
    Damage,
    Details,
    FileStats,
    Numbers,
    Response,
    Result,
    Totals,
    read_stats,
    sum_up,
)
from sessiontree.library.session_store import open_store
from sessiontree.library.summary import Summary
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader

By: TypeAlias = Literal["day", "model", "project", "agent", "session"]
T = TypeVar("T")
_ItemT = TypeVar("_ItemT", Response, Call, Result)

_encode = msgspec.msgpack.Encoder().encode
_decode_totals = msgspec.msgpack.Decoder(Totals).decode
_decode_details = msgspec.msgpack.Decoder(Details).decode


_UNSTORED: Stamp = (-1, -1, -1)
"""The stamp of a session that is not in the cache, because nothing about it may be stored."""


class Group(Struct):
    """One row: a day, a model, a project, an agent or a session."""

    key: str
    """The day, model, project folder, agent or session path; empty if unknown."""
    numbers: Numbers
    sessions: int = 0
    session: Summary | None = None


class FileCount(Struct):
    """A file, and how often tool calls read, wrote and edited it."""

    path: str
    read: int = 0
    written: int = 0
    edited: int = 0

    @property
    def uses(self) -> int:
        return self.read + self.written + self.edited


class Gap(Struct, frozen=True):
    """A session that could not be read completely; what was read counts."""

    path: str
    damage: Damage | None
    """None if nothing could be read."""
    reason: str = ""


class Statistics(Struct, frozen=True):
    by: By
    groups: list[Group]
    total: Group
    files: list[FileCount]
    """The most used first."""
    gaps: list[Gap]
    repeated: int
    """Responses that were skipped because an earlier session also has them."""
    read: int
    """Files that were read because they were new or had changed."""
    bytes_read: int


def select_sessions(
    library: Library, *, agent: str | None = None, project: str | None = None, since: int | None = None
) -> list[Summary]:
    """The sessions and sub-agents to aggregate, by their start.

    Forks come after their origin, which may begin with the same line. With `since`, sessions that ended before are
    skipped; older parts of the others are filtered by `build_statistics`.
    """
    found = library.sessions(agent=agent, project=project, include_subagents=True)
    kept = [summary for summary in found if since is None or max(summary.recency, summary.modified) >= since]
    depths = {member.summary.ref: member.depth for member in library.thread(kept)}
    return sorted(kept, key=lambda summary: (summary.created or summary.recency, depths[summary.ref], summary.ref))


def build_statistics(
    library: Library,
    sessions: Sequence[Summary],
    *,
    by: By = "day",
    since: int | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """Aggregate sessions, given in the order in which they began. `since` is in milliseconds."""
    reader = _StatsReader(library)
    aggregator = _Aggregator(by, library)
    repeated = 0
    for group in _group_sharing(reader, sessions, progress):
        if len(group) == 1 and (totals := reader.totals(group[0])) is not None:
            summary = group[0]
            if _is_current(totals.buckets, since):
                aggregator.add(summary, totals.buckets, totals.files)
                continue
        stats = [(summary, details) for summary in group if (details := reader.details(summary)) is not None]
        kept = _deduplicate([details for _, details in stats])
        for (summary, details), own in zip(stats, kept, strict=True):
            repeated += len(details.responses) - len(own.responses)
            aggregator.add(summary, *sum_up(_since(own, since)))
    gaps = [gap for summary in sessions if (gap := reader.gaps.get(summary.ref)) is not None]
    total = Group("", aggregator.total, aggregator.sessions)
    return Statistics(
        by, aggregator.ordered(), total, aggregator.busiest(), gaps, repeated, reader.read, reader.bytes_read
    )


def _is_current(buckets: Iterable[Bucket], since: int | None) -> bool:
    """Whether totals can be used: their days are those of the current time zone, and nothing is too old."""
    return all(bucket.is_current_day and (since is None or bucket.first >= since) for bucket in buckets)


def _since(details: Details, since: int | None) -> Details:
    if since is None:
        return details
    return Details(
        details.models,
        details.files,
        [item for item in details.responses if item.at >= since],
        [item for item in details.calls if item.at >= since],
        [item for item in details.results if item.at >= since],
    )


class _StatsReader:
    """Reads statistics of files: from the cache if nothing changed, else from the file."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._cache: Cache = library.cache
        self._stamps: dict[str, Stamp | None] = {}
        self._unstored: dict[str, FileStats] = {}
        """Statistics of sessions that may not be cached."""
        self.gaps: dict[str, Gap] = {}
        self.read = self.bytes_read = 0

    def keys(self, summary: Summary) -> bytes:
        return self._part(summary, "keys", bytes, lambda stats: stats.keys) or b""

    def totals(self, summary: Summary) -> Totals | None:
        totals = self._part(summary, "facts", _decode_totals, lambda stats: stats.totals)
        if totals is not None and totals.damage is not None:
            self.gaps[summary.ref] = Gap(summary.ref, totals.damage)
        return totals

    def details(self, summary: Summary) -> Details | None:
        self.totals(summary)  # sets the gap of a damaged file
        return self._part(summary, "details", _decode_details, lambda stats: _decode_details(stats.details))

    def _part(
        self, summary: Summary, name: StatsPart, decode: Callable[[bytes], T], choose: Callable[[FileStats], T]
    ) -> T | None:
        stamp = self._stamp(summary)
        if stamp is None:
            return None
        raw = self._cache.find_stats_part(name, summary.ref, stamp)
        if raw is not None:
            try:
                return decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                pass  # damaged cache entry: the file is read again
        stats = self._unstored.get(summary.ref) or self._read(summary, stamp)
        return None if stats is None else choose(stats)

    def _stamp(self, summary: Summary) -> Stamp | None:
        """The session's stamp at first access: all parts have to be of that version."""
        if summary.ref not in self._stamps:
            if not summary.is_line_file:
                self._stamps[summary.ref] = self._cache.find_stamp(summary.ref) or _UNSTORED
                return self._stamps[summary.ref]
            try:
                found = os.stat(summary.ref, follow_symlinks=False)
                self._stamps[summary.ref] = (found.st_size, found.st_mtime_ns, found.st_ino)
            except OSError as error:
                self._record_gap(summary, error.strerror or str(error))
        return self._stamps[summary.ref]

    def _read(self, summary: Summary, stamp: Stamp) -> FileStats | None:
        try:
            reader = Reader(Journal(open_store(summary), dialect_named(summary.agent)), AS_CLIENT)
            stats = read_stats(reader, summary.created or summary.recency)
        except (SessionTreeError, OSError) as error:
            self._record_gap(summary, str(error))
            return None
        size = reader.journal.size
        del reader  # its index is large, and storing copies the statistics
        self.read += 1
        self.bytes_read += size
        if stamp is _UNSTORED:
            self._unstored[summary.ref] = stats
        elif size == stamp[0] or not summary.is_line_file:  # else the file is being written: it is read again next time
            self._store(summary, stamp, stats)
        return stats

    def _store(self, summary: Summary, stamp: Stamp, stats: FileStats) -> None:
        self._cache.store_stats(summary.ref, stamp, stats.keys, _encode(stats.totals), stats.details)
        if self._cache.lacks_exact(summary.ref, stamp[0]):
            self._library.store_exact(summary.ref, stamp[0], stats.counted)

    def _record_gap(self, summary: Summary, reason: str) -> None:
        self._stamps[summary.ref] = None
        self.gaps[summary.ref] = Gap(summary.ref, None, reason)


def _group_sharing(
    files: _StatsReader, sessions: Sequence[Summary], progress: Progress | None
) -> Iterator[list[Summary]]:
    """Partition sessions into groups that share no keys, each in the given order."""
    first_with_key: dict[bytes, int] = {}
    # Union-find over keys: sessions with a common key end up in one set, even if only through a third session.
    above = list(range(len(sessions)))

    def top(at: int) -> int:
        while above[at] != at:
            above[at] = above[above[at]]
            at = above[at]
        return at

    for at, summary in enumerate(sessions):
        if progress is not None:
            progress(at, len(sessions))
        keys = files.keys(summary)
        for start in range(0, len(keys), KEY):
            first_session = first_with_key.setdefault(keys[start : start + KEY], at)
            if first_session != at:
                first, second = sorted((top(first_session), top(at)))
                above[second] = first
    if progress is not None:
        progress(len(sessions), len(sessions))
    groups: dict[int, list[Summary]] = {}
    for at, summary in enumerate(sessions):
        groups.setdefault(top(at), []).append(summary)
    yield from groups.values()


def _deduplicate(members: Sequence[Details]) -> list[Details]:
    """Deduplicate details of sessions that share lines: each item stays only in the first session that has it.

    Of a response, the copy with the most tokens counts, as among the lines of one session. The session may have been
    forked in the middle of a response, or the origin may be damaged there.
    """
    positions: dict[bytes, tuple[int, int]] = {}
    responses: list[list[Response]] = [[] for _ in members]
    for number, details in enumerate(members):
        for response in details.responses:
            keys = [response.keys[start : start + KEY] for start in range(0, len(response.keys), KEY)]
            position = next((positions[key] for key in keys if key in positions), None)
            if position is None:
                position = (number, len(responses[number]))
                responses[number].append(response)
            else:
                first = responses[position[0]][position[1]]
                if response.size > first.size:
                    stats = {
                        "input": response.input,
                        "output": response.output,
                        "cached": response.cached,
                        "cost": response.cost,
                    }
                    responses[position[0]][position[1]] = msgspec.structs.replace(first, **stats)
            positions.update(dict.fromkeys(keys, position))
    seen: set[bytes] = set()
    return [
        Details(details.models, details.files, own, _unseen(details.calls, seen), _unseen(details.results, seen))
        for details, own in zip(members, responses, strict=True)
    ]


def _unseen(items: Sequence[_ItemT], seen: set[bytes]) -> list[_ItemT]:
    kept = [item for item in items if item.keys not in seen]
    seen.update(item.keys for item in kept)
    return kept


class _Aggregator:
    """Groups and file counts, filled session by session."""

    def __init__(self, by: By, library: Library) -> None:
        self._by = by
        self._folders = _ProjectFolders(library)
        self._groups: dict[str, Group] = {}
        self._files: dict[str, FileCount] = {}
        self.total = Numbers()
        self.sessions = 0

    def add(self, summary: Summary, buckets: Sequence[Bucket], files: Mapping[str, tuple[int, int, int]]) -> None:
        touched = set()
        for bucket in buckets:
            key = self._key(summary, bucket)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = Group(key, Numbers(), session=summary if self._by == "session" else None)
            group.numbers.add(bucket.numbers)
            self.total.add(bucket.numbers)
            touched.add(key)
        for key in touched:
            self._groups[key].sessions += 1
        self.sessions += bool(touched)
        for file, (read, written, edited) in files.items():
            path = _absolute_path(summary.cwd, file)
            found = self._files.get(path)
            if found is None:
                found = self._files[path] = FileCount(path)
            found.read += read
            found.written += written
            found.edited += edited

    def _key(self, summary: Summary, bucket: Bucket) -> str:
        match self._by:
            case "day":
                return bucket.day
            case "model":
                return bucket.model
            case "agent":
                return summary.agent
            case "session":
                return summary.ref
            case "project":
                return self._folders.of(summary)
            case _:
                assert_never(self._by)

    def ordered(self) -> list[Group]:
        """Days in order; anything else by usage, most first."""
        if self._by == "day":
            return sorted(self._groups.values(), key=lambda group: group.key)
        return sorted(self._groups.values(), key=lambda group: (-group.numbers.tokens, group.key))

    def busiest(self) -> list[FileCount]:
        return sorted(self._files.values(), key=lambda file: (-file.uses, file.path))


def _absolute_path(cwd: str, file: str) -> str:
    """Make a path absolute, so that sessions that name it differently count the same file."""
    if file.startswith("~") or not (cwd or file.startswith("/")):
        return file
    return os.path.normpath(f"{cwd}/{file}" if not file.startswith("/") else file)


class _ProjectFolders:
    """Maps sessions to the folder that represents their project: the first one seen."""

    def __init__(self, library: Library) -> None:
        self._projects: Projects = library.projects
        self._parents = {summary.ref: summary for summary in library.everything() if summary.kind == "session"}
        self._known: list[Project] = []
        self._folders: dict[str, str] = {}

    def of(self, summary: Summary) -> str:
        if summary.ref not in self._folders:
            parent = self._parents.get(summary.parent) if summary.parent else None
            self._folders[summary.ref] = self._find(parent or summary)
        return self._folders[summary.ref]

    def _find(self, summary: Summary) -> str:
        if not summary.cwd:
            return ""
        for project in self._known:
            if self._projects.belongs_to(summary.cwd, summary.recency, project):
                return project.cwd
        project = self._projects.of(summary.cwd)
        self._known.append(project)
        return project.cwd
