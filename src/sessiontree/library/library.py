"""The library of all sessions: list, find, continue, thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from sessiontree import paths
from sessiontree.core.ids import SHORTEST_PREFIX
from sessiontree.errors import AmbiguousError, NotFoundError
from sessiontree.library.cache import Cache, Row, cache_path
from sessiontree.library.projects import Project, Projects
from sessiontree.library.roots import Root, dialect_named, find_roots
from sessiontree.library.scan import Found, find_files
from sessiontree.library.summary import Summary
from sessiontree.library.threads import ThreadMember, build_threads

if TYPE_CHECKING:  # imported only if a file has to be read
    from sessiontree.dialects.contract import SessionFile
    from sessiontree.library.counts import Counted
    from sessiontree.library.summary_reader import SummaryRead
    from sessiontree.search import Results

Sort: TypeAlias = Literal["recent", "size", "cost", "messages"]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of files read, and of all files to read."""

_BATCH = 100
_DETECT_BYTES = 16 * 1024

_SORTS: dict[Sort, Callable[[Summary], float]] = {
    "recent": lambda summary: summary.recency,
    "size": lambda summary: summary.size,
    "cost": lambda summary: summary.cost,
    "messages": lambda summary: summary.messages,
}


class Scan(Struct, frozen=True):
    """Statistics of the last scan."""

    found: int = 0
    read: int = 0
    """Files that were new or had changed."""
    bytes_read: int = 0
    seconds: float = 0.0


class Library:
    """The sessions of all agents on this machine that this process can read."""

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        roots: Mapping[str, Sequence[str]] | None = None,
        environment: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.environment = os.environ if environment is None else environment
        self.cache = Cache(cache_path(self.environment))
        self.home = os.path.abspath(os.fspath(home)) if home is not None else self._own_home()
        self.roots: list[Root] = find_roots(self.environment, roots, self.home, self.cache)
        self.projects = Projects(self.home)
        self.scan = Scan()
        self._progress = progress
        self._cwd_records: dict[str, Mapping[str, str]] = {}
        self._all: list[Summary] | None = None

    def _own_home(self) -> str:
        """The home folder in the given environment, which may differ from that of this process."""
        if self.environment is os.environ:
            return paths.home()
        return os.path.dirname(dialect_named("native").session_roots(self.environment)[0])

    def close(self) -> None:
        self.cache.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Queries

    def sessions(
        self,
        *,
        agent: str | None = None,
        project: str | os.PathLike[str] | None = None,
        since: int | None = None,
        named: bool = False,
        include_subagents: bool = False,
        sort: Sort = "recent",
    ) -> list[Summary]:
        """All sessions, the newest first; without sub-agents by default.

        `project` is a folder: only sessions of its project. `since` is in milliseconds: only sessions with a message at
        or after it.
        """
        found = self.everything()
        if project is not None:
            found = self._of_project(found, self.projects.of(os.path.abspath(os.fspath(project))))
        kept = [
            summary
            for summary in found
            if (include_subagents or summary.kind == "session")
            and (agent is None or summary.agent == agent)
            and (since is None or summary.recency >= since)
            and (not named or summary.named)
        ]
        return sorted(kept, key=_SORTS[sort], reverse=True)

    def everything(self) -> list[Summary]:
        """Every session and sub-agent. The disk is scanned once per library; `refresh` scans again."""
        if self._all is None:
            self.refresh()
        return self._all or []

    def find(self, text: str) -> Summary:
        """Find a session by path, id, prefix of an id (8 characters or more), title, or part of a title."""
        everything = self.everything()
        if os.sep in text or text.endswith(".jsonl"):
            return self._at_path(everything, text)
        for candidates in (
            [summary for summary in everything if summary.id == text],
            [summary for summary in everything if len(text) >= SHORTEST_PREFIX and summary.id.startswith(text)],
            [summary for summary in everything if summary.kind == "session" and summary.title == text],
            [
                summary
                for summary in everything
                if summary.kind == "session" and text and text.lower() in summary.title.lower()
            ],
        ):
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                raise _ambiguous(text, sorted(candidates, key=_SORTS["recent"], reverse=True))
        raise NotFoundError(
            f"no session matches {text!r} (searched {len(everything)} sessions; use a path, an id prefix or a title)"
        )

    def newest(self, cwd: str | os.PathLike[str]) -> Summary | None:
        """The most recent session in the project of a folder, never of another project.

        An empty session is returned only if there is no other.
        """
        found = self.sessions(project=cwd)
        non_empty = [summary for summary in found if summary.health not in ("empty", "draft")]
        return next(iter(non_empty or found), None)

    def belongs(self, summary: Summary, cwd: str | os.PathLike[str]) -> bool:
        """Whether a session belongs to the project of a folder."""
        return bool(self._of_project([summary], self.projects.of(os.path.abspath(os.fspath(cwd)))))

    def thread(self, sessions: Sequence[Summary] | None = None) -> list[ThreadMember]:
        """Sessions as a tree: forks below their origin, in any dialect, and sub-agents below their parent."""
        return build_threads(self.sessions() if sessions is None else sessions)

    def search(self, query: str, **arguments: Any) -> Results:
        """Search all sessions; the arguments are those of `sessiontree.search.search`."""
        from sessiontree.search import search  # a layer above this one, imported only by callers that search

        return search(self, query, **arguments)

    def store_exact(self, path: str, size: int, counted: Counted) -> None:
        """Store exact counts of a caller that read a whole file of this size; the next listing shows them."""
        self.cache.store_exact(os.path.realpath(path), size, counted)

    # Scanning

    def refresh(self) -> None:
        """Scan the disk: read files that are new or have changed, take the rest from the cache."""
        start = time.perf_counter()
        files = find_files(self.roots)
        rows = self.cache.rows(root.folder for root in self.roots)
        agents = {root: ",".join(root.agents) for root in self.roots}
        known: list[Summary] = []
        changed: list[tuple[Found, Row | None]] = []
        for file in files:
            row = rows.pop(file.path, None)
            # Size, time and inode together: an append changes the size, a rewrite in place the time, a replacement the
            # inode. None of them is enough alone, and comparing content would mean reading every file.
            if row is None or row.modified != file.modified or row.size != file.size or row.inode != file.inode:
                changed.append((file, row))
            elif row.agents == agents[file.root] and (summary := row.summary) is not None:
                known.append(summary)
            # A damaged row, or one that was read by other agents' rules, is read again. What is left are empty rows:
            # files that are not sessions.
            elif row.raw or row.agents != agents[file.root]:
                changed.append((file, None))
        bytes_read, read = self._read(changed, known)
        if rows:  # rows that are left belong to deleted files
            self.cache.forget(rows)
        self._all = _drop_missing_parents(known)
        self.scan = Scan(len(known), read, bytes_read, time.perf_counter() - start)

    def _read(self, changed: Sequence[tuple[Found, Row | None]], known: list[Summary]) -> tuple[int, int]:
        """Read new and changed files; returns the number of bytes and of sessions."""
        bytes_read = read = 0
        for start in range(0, len(changed), _BATCH):
            reads: list[tuple[SummaryRead, int, int, str]] = []
            others: list[tuple[str, int, int, int, str]] = []
            for at, (file, row) in enumerate(changed[start : start + _BATCH], start):
                if self._progress is not None:
                    self._progress(at, len(changed))
                agents = ",".join(file.root.agents)
                kind = dialect_named(file.root.agents[0]).classify_file(file.root.folder, file.relative)
                if kind is None:
                    others.append((file.path, file.size, file.modified, file.inode, agents))
                    continue
                seen = self._read_file(file, kind, row)
                bytes_read += seen.bytes_read
                reads.append((seen, file.modified, file.inode, agents))
                known.append(seen.summary)
            read += len(reads)
            if reads:
                self.cache.store(reads)
            if others:
                self.cache.store_non_sessions(others)
            self.projects.record(dict.fromkeys(read.summary.cwd for read, *_ in reads))
        if changed and self._progress is not None:
            self._progress(len(changed), len(changed))
        return bytes_read, read

    def _read_file(self, file: Found, kind: SessionFile, row: Row | None) -> SummaryRead:
        from sessiontree.library.summary_reader import read_ends, read_growth

        before = row.summary if row is not None else None
        seen: SummaryRead | None = None
        if row is not None and before is not None and row.inode == file.inode and before.size < file.size:
            state = self.cache.find_state(file.path) if before.agent in file.root.agents else None
            if state is not None:
                seen = read_growth(before, state, file.size, file.modified, kind)
        if seen is None:
            seen = read_ends(file.path, _agent_of(file), file.size, modified=file.modified, file=kind)
        summary = seen.summary
        if kind.parent is not None:
            summary = msgspec.structs.replace(summary, parent=os.path.join(file.root.folder, kind.parent))
        if not summary.cwd:
            summary = msgspec.structs.replace(summary, cwd=self._find_cwd(file, summary.agent))
        return msgspec.structs.replace(seen, summary=summary)

    def _find_cwd(self, file: Found, agent: str) -> str:
        """The working folder from the agent's own records, for a file without one."""
        root = file.root.folder
        if root not in self._cwd_records:
            self._cwd_records[root] = dialect_named(agent).session_cwds(root, _read_small)
        return self._cwd_records[root].get(os.path.dirname(file.relative), "")

    def _of_project(self, found: Iterable[Summary], project: Project) -> list[Summary]:
        """Sessions of a project with their sub-agents, wherever those worked."""
        kept: list[Summary] = []
        subagents: list[Summary] = []
        for summary in found:
            if summary.parent is not None:
                subagents.append(summary)
            elif self.projects.belongs_to(summary.cwd, summary.recency, project):
                kept.append(summary)
        paths = {summary.path for summary in kept}
        return kept + [summary for summary in subagents if summary.parent in paths]

    def _at_path(self, everything: Sequence[Summary], text: str) -> Summary:
        path = os.path.realpath(text)
        for summary in everything:
            if summary.path == path:
                return summary
        try:
            stat = os.stat(path)
        except OSError as error:
            raise NotFoundError(f"{text}: {error.strerror or error}") from None
        return self._read_outside(path, stat)

    def _read_outside(self, path: str, stat: os.stat_result) -> Summary:
        """Read a session that is outside of all roots."""
        from sessiontree.library.summary_reader import read_ends
        from sessiontree.session.open import detect

        agent = detect(_read_small(path, _DETECT_BYTES) or b"", path).name
        return read_ends(path, agent, stat.st_size, modified=stat.st_mtime_ns).summary


def _agent_of(file: Found) -> str:
    """The agent that wrote a file. In a shared root, the dialect that is most certain about the first bytes."""
    if len(file.root.agents) == 1:
        return file.root.agents[0]
    head = _read_small(file.path, _DETECT_BYTES) or b""
    return max(file.root.agents, key=lambda name: dialect_named(name).recognize(head))


def _read_small(path: str, size: int = 1 << 22) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return None


def _drop_missing_parents(found: list[Summary]) -> list[Summary]:
    """Drop parents that do not exist: some are only derived from an id."""
    paths = {summary.path for summary in found}
    return [
        summary if summary.parent is None or summary.parent in paths else msgspec.structs.replace(summary, parent=None)
        for summary in found
    ]


def _ambiguous(text: str, candidates: Sequence[Summary]) -> AmbiguousError:
    shown = "\n".join(
        f"  {summary.id}  {summary.agent:8}{summary.title[:60]}  {summary.path}" for summary in candidates[:20]
    )
    more = f"\n  and {len(candidates) - 20} more" if len(candidates) > 20 else ""
    return AmbiguousError(
        f"{text!r} matches {len(candidates)} sessions; use a longer id prefix or a path:\n{shown}{more}",
        tuple(summary.path for summary in candidates),
    )
