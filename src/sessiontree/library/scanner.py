"""Scan all roots: take sessions that did not change from the cache, and read the others.

A file of several sessions, such as a database, is listed when it changes. Then only those of its sessions are read
whose own stamp changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree.errors import NotASessionError, SessionTreeError
from sessiontree.library.cache import Cache, Row, Stamp
from sessiontree.library.projects import Projects
from sessiontree.library.roots import Root, dialect_named
from sessiontree.library.scan import Found, find_files
from sessiontree.library.summary import WINDOW, Summary
from sessiontree.stores.contract import SessionRef, SessionStat
from sessiontree.stores.safe_files import read_small

if TYPE_CHECKING:  # imported only if a file has to be read
    from sessiontree.dialects.contract import Dialect, SessionFile
    from sessiontree.dialects.storage import Rows
    from sessiontree.library.summary_reader import SummaryRead

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of files read, and of all files to read."""

_BATCH = 100
_DETECT_BYTES = 16 * 1024
_MAX_EXAMINED = 2 << 20
"""Bytes of sessions that one scan examines; the others are examined after the list is shown."""
_MAX_OF_DATABASES = 1 << 20
"""Bytes of sessions in databases that one scan reads completely. Of others it takes the short form, if there is one."""


class Scan(Struct, frozen=True):
    """Statistics of the last scan."""

    found: int = 0
    read: int = 0
    """Sessions that were new or had changed."""
    bytes_read: int = 0
    seconds: float = 0.0
    skipped: tuple[str, ...] = ()
    """Folders that could not be read."""


class Scanner:
    """One scan of the roots."""

    def __init__(self, roots: Sequence[Root], cache: Cache, projects: Projects) -> None:
        self._roots = roots
        self._cache = cache
        self._projects = projects
        self._agents = {root: ",".join(root.agents) for root in roots}
        self._rows: dict[str, Row] = {}
        """Cached rows of sessions that were not found yet."""
        self._cwd_records: dict[str, Mapping[str, str]] = {}
        self._reads: list[tuple[SummaryRead, Stamp, str]] = []
        self._others: list[tuple[str, Stamp, str, Sequence[str] | None]] = []
        self.found: list[Summary] = []
        self.read = self.bytes_read = 0
        self._examined = 0

    def run(self, progress: Progress, on_read: Callable[[Summary], None]) -> Scan:
        """Scan everything into `found`; `on_read` is called for each session that was read."""
        start = time.perf_counter()
        skipped: list[str] = []
        files = find_files([root for root in self._roots if not root.is_repository], skipped)
        self._rows = self._cache.rows(root.folder for root in self._roots)
        changed = list(self._compare(files))
        for number, (file, row) in enumerate(changed):
            progress(number, len(changed))
            self._add_all(self._read_file(file, row), on_read)
        for root in self._roots:
            if root.is_repository:
                progress(len(changed), len(changed))
                self._add_all(self._read_repository(root), on_read)
        self._store()
        if changed:
            progress(len(changed), len(changed))
        gone = [path for path in self._rows if not path.startswith(tuple(f"{folder}/" for folder in skipped))]
        if gone:  # rows that are left belong to deleted sessions
            self._cache.forget(gone)
        return Scan(len(self.found), self.read, self.bytes_read, time.perf_counter() - start, tuple(skipped))

    def _add_all(self, summaries: Iterable[Summary], on_read: Callable[[Summary], None]) -> None:
        for summary in summaries:
            self.found.append(summary)
            on_read(summary)
            if len(self._reads) + len(self._others) >= _BATCH:
                self._store()

    def _compare(self, files: Iterable[Found]) -> Iterator[tuple[Found, Row | None]]:
        """Add sessions that did not change to `found`; yield the other files with their rows."""
        rows, found, agents = self._rows, self.found, self._agents
        for file in files:
            row = rows.pop(file.path, None)
            # Size, time and inode together: an append changes the size, a rewrite in place the time, a replacement the
            # inode. None of them is enough alone, and comparing content would mean reading every file.
            if row is None or row.modified != file.modified or row.size != file.size or row.inode != file.inode:
                yield file, row
            elif row.agents != agents[file.root]:
                yield file, None  # read by the rules of other agents
            elif (summary := row.summary) is not None:
                found.append(summary)
            elif not row.is_other and not self._take_items(file, row):
                yield file, None  # a damaged row

    def _take_items(self, file: Found, row: Row) -> bool:
        """Add the sessions of an unchanged file that contains several; False if one of them is not in the cache."""
        refs = [f"{file.path}#{item}" for item in row.items or ()]
        known = [summary for ref in refs if ref in self._rows and (summary := self._rows[ref].summary) is not None]
        if row.items is None or len(known) < len(refs):
            return False
        self.found += known
        for ref in refs:
            del self._rows[ref]
        return True

    def _read_file(self, file: Found, row: Row | None) -> Iterator[Summary]:
        """Read the sessions of a file that is new or changed."""
        from sessiontree.dialects.storage import LineFile, Rows

        agents = self._agents[file.root]
        dialect = dialect_named(_agent_of(file))
        role = dialect.classify_file(file.root.folder, file.relative)
        if role is None:
            self._others.append((file.path, file.stamp, agents, None))
            return
        storage = dialect.storage(file.path)
        if isinstance(storage, Rows):
            yield from self._read_container(file, dialect, storage)
            return
        stat = SessionStat(SessionRef(file.path), "", *file.stamp)
        seen = self._read_session(stat, dialect, role, row, is_line_file=isinstance(storage, LineFile))
        if role.parent is not None:
            seen = _with(seen, parent=os.path.join(file.root.folder, role.parent))
        if not seen.summary.cwd:
            seen = _with(seen, cwd=self._find_cwd(file, dialect.name))
        self._reads.append((seen, file.stamp, agents))
        yield seen.summary

    def _read_container(self, file: Found, dialect: Dialect, storage: Rows) -> Iterator[Summary]:
        """Read the changed sessions of a file that contains several. A damaged file is listed as one session."""
        from sessiontree.library.summary_reader import unreadable
        from sessiontree.sources.items import iter_items

        try:
            stats = list(iter_items(file.path, storage, file.modified, dialect.name))
        except SessionTreeError:
            yield unreadable(SessionRef(file.path), dialect.name, file.size, file.modified)
            return
        agents = self._agents[file.root]
        yield from self._read_items(file.path, stats, dialect, storage, agents)
        self._others.append((file.path, file.stamp, agents, [stat.ref.item for stat in stats]))

    def _read_items(
        self, path: str, stats: Sequence[SessionStat], dialect: Dialect, storage: Rows, agents: str
    ) -> Iterator[Summary]:
        """Read the changed sessions of a database: completely as long as they are few, then in their short form."""
        from sessiontree.dialects.contract import SessionFile
        from sessiontree.library.summary_reader import read_outline
        from sessiontree.sources.items import read_outlines

        changed: list[SessionStat] = []
        size = 0
        for stat in stats:
            row = self._rows.get(str(stat.ref))
            is_known = row is not None and row.stamp == _stamp(stat) and row.agents == agents
            if storage.outline and not is_known and size >= _MAX_OF_DATABASES:
                changed.append(stat)
                continue
            for summary in self._read_listed([stat], agents):
                size += 0 if is_known else summary.size
                yield summary
        outlines = read_outlines(path, storage, [stat.ref.item for stat in changed])
        for stat, outline in zip(changed, outlines, strict=True):
            if outline is None:
                yield from self._read_listed([stat], agents)
                continue
            self._rows.pop(str(stat.ref), None)
            seen = read_outline(stat.ref, outline, dialect.name, stat.changed, SessionFile(stat.kind, stat.id))
            if stat.parent is not None:
                seen = _with(seen, parent=str(stat.parent))
            self.read += 1
            self.bytes_read += seen.bytes_read
            self._reads.append((_with(seen, is_line_file=False), _stamp(stat), agents))
            yield self._reads[-1][0].summary

    def _read_repository(self, root: Root) -> Iterator[Summary]:
        from sessiontree.stores.repositories import open_repository

        repository = open_repository(root.folder)
        agents = None if repository.is_volatile else self._agents[root]
        yield from self._read_listed(repository.iter_stats(), agents, default=root.agents[0])

    def _read_listed(self, stats: Iterable[SessionStat], agents: str | None, default: str = "") -> Iterator[Summary]:
        """Read the listed sessions that changed; without `agents` nothing is taken from the cache or stored in it."""
        from sessiontree.dialects.contract import SessionFile

        for stat in stats:
            stamp = _stamp(stat)
            row = self._rows.pop(str(stat.ref), None)
            known = row.summary if row is not None and row.stamp == stamp and row.agents == agents else None
            if known is not None:
                yield known
                continue
            dialect = dialect_named(stat.dialect) if stat.dialect else _detect_listed(stat.ref, default)
            seen = self._read_session(stat, dialect, SessionFile(stat.kind, stat.id), row, is_line_file=False)
            if stat.parent is not None:
                seen = _with(seen, parent=str(stat.parent))
            if agents is not None:
                self._reads.append((seen, stamp, agents))
            yield seen.summary

    def _read_session(
        self, stat: SessionStat, dialect: Dialect, role: SessionFile, row: Row | None, *, is_line_file: bool
    ) -> SummaryRead:
        from sessiontree.library.summary_reader import read_ends, read_growth
        from sessiontree.sources import open_source

        # Only lines that are stored as such can be continued; other content is complete only when all of it is read.
        is_lines = is_line_file or bool(stat.ref.home)
        before = row.summary if row is not None and is_lines and row.inode == stat.identity else None
        seen: SummaryRead | None = None
        if before is not None and before.size < stat.size and before.agent == dialect.name:
            state = self._cache.find_state(before.ref)
            if state is not None:
                store = open_source(stat.ref, dialect)
                seen = read_growth(store, before, state, stat.size, stat.changed, role)
                if seen is not None and seen.summary.health == "unchecked" and self._may_examine(stat.size):
                    store = open_source(stat.ref, dialect)
                    seen = _with(seen, health=read_ends(store, dialect.name, stat.size, file=role).summary.health)
        if seen is None:
            size = stat.size if is_lines else None
            store, is_examined = open_source(stat.ref, dialect), self._may_examine(stat.size)
            seen = read_ends(store, dialect.name, size, modified=stat.changed, file=role, is_examined=is_examined)
        self.read += 1
        self.bytes_read += seen.bytes_read
        return _with(seen, is_line_file=is_line_file)

    def _may_examine(self, size: int) -> bool:
        """Whether a session is examined now: it is small, and so are those before it together."""
        if size > 2 * WINDOW or self._examined + size > _MAX_EXAMINED:
            return False
        self._examined += size
        return True

    def _store(self) -> None:
        """Store what was read since the last call. Sessions come before the file that lists them."""
        if self._reads:
            self._cache.store(self._reads)
            self._projects.record(dict.fromkeys(seen.summary.cwd for seen, *_ in self._reads))
        if self._others:
            self._cache.store_others(self._others)
        self._reads, self._others = [], []

    def _find_cwd(self, file: Found, agent: str) -> str:
        """The working folder from the agent's own records, for a session without one."""
        root = file.root.folder
        if root not in self._cwd_records:
            self._cwd_records[root] = dialect_named(agent).session_cwds(root, read_small)
        return self._cwd_records[root].get(os.path.dirname(file.relative), "")


def _stamp(stat: SessionStat) -> Stamp:
    return stat.size, stat.changed, stat.identity


def _with(seen: SummaryRead, **changes: Any) -> SummaryRead:
    return msgspec.structs.replace(seen, summary=msgspec.structs.replace(seen.summary, **changes))


def _agent_of(file: Found) -> str:
    """The agent that wrote a file. In a shared root, the dialect that is most certain about the first bytes."""
    agents = file.root.agents
    if len(agents) > 1:
        agents = tuple(name for name in agents if file.path.endswith(dialect_named(name).traits.session_names))
    if len(agents) == 1:
        return agents[0]
    head = read_small(file.path, _DETECT_BYTES) or b""
    return max(agents, key=lambda name: dialect_named(name).recognize(head))


def _detect_listed(ref: SessionRef, default: str) -> Dialect:
    """The dialect of a session in a repository by its first bytes; the default one if no dialect recognizes them."""
    from sessiontree.sources.detect import detect_stored

    try:
        return detect_stored(ref)
    except NotASessionError:
        return dialect_named(default)
