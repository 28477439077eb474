"""All sessions that can be found: listing, finding one, continuing, threading."""

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
from sessiontree.library.threads import Threaded, threaded

if TYPE_CHECKING:  # imported where something is read
    from sessiontree.dialects.contract import SessionFile
    from sessiontree.library.counts import Counted
    from sessiontree.library.summary_reader import Look
    from sessiontree.search import Results

Sort: TypeAlias = Literal["recent", "size", "cost", "messages"]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many of how many files have been read."""

_STORED_TOGETHER = 100
_DETECTED = 16 * 1024

_SORTS: dict[Sort, Callable[[Summary], float]] = {
    "recent": lambda one: one.recency,
    "size": lambda one: one.size,
    "cost": lambda one: one.cost,
    "messages": lambda one: one.messages,
}


class Scan(Struct, frozen=True):
    """What the last look at the disk took."""

    found: int = 0
    read: int = 0
    """Files that were new or had changed."""
    bytes_read: int = 0
    seconds: float = 0.0


class Library:
    """The sessions of all agents on this machine, as far as this process may look."""

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
        self._noted: dict[str, Mapping[str, str]] = {}
        self._all: list[Summary] | None = None

    def _own_home(self) -> str:
        """The home folder of the environment, which need not be that of this process."""
        if self.environment is os.environ:
            return paths.home()
        return os.path.dirname(dialect_named("native").session_roots(self.environment)[0])

    def close(self) -> None:
        self.cache.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Asking

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
        """The sessions there are, by default all but sub-agents, the newest first.

        `project` is a folder: only sessions of the project it belongs to. `since` is a time in milliseconds: only those
        with a message at or after it.
        """
        found = self.everything()
        if project is not None:
            found = self._of_project(found, self.projects.of(os.path.abspath(os.fspath(project))))
        kept = [
            one
            for one in found
            if (include_subagents or one.kind == "session")
            and (agent is None or one.agent == agent)
            and (since is None or one.recency >= since)
            and (not named or one.named)
        ]
        return sorted(kept, key=_SORTS[sort], reverse=True)

    def everything(self) -> list[Summary]:
        """Every session and sub-agent, as the disk is now; read once for one library. `refresh` looks again."""
        if self._all is None:
            self.refresh()
        return self._all or []

    def find(self, text: str) -> Summary:
        """The session meant by a path, an id, eight or more first characters of one, its title, or a part of that."""
        everything = self.everything()
        if os.sep in text or text.endswith(".jsonl"):
            return self._at_path(everything, text)
        for candidates in (
            [one for one in everything if one.id == text],
            [one for one in everything if len(text) >= SHORTEST_PREFIX and one.id.startswith(text)],
            [one for one in everything if one.kind == "session" and one.title == text],
            [one for one in everything if one.kind == "session" and text and text.lower() in one.title.lower()],
        ):
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                raise _ambiguous(text, sorted(candidates, key=_SORTS["recent"], reverse=True))
        raise NotFoundError(
            f"{text!r} is no path, id (or {SHORTEST_PREFIX} or more first characters of one) or title of any of the "
            f"{len(everything)} sessions found; `sessiontree list --all` shows them"
        )

    def newest(self, cwd: str | os.PathLike[str]) -> Summary | None:
        """The session of the project of a folder that was last worked on; never one of another project.

        One in which nothing was said counts only when there is no other.
        """
        found = self.sessions(project=cwd)
        spoken = [one for one in found if one.health not in ("empty", "draft")]
        return next(iter(spoken or found), None)

    def belongs(self, one: Summary, cwd: str | os.PathLike[str]) -> bool:
        """Whether a session is one of the project of a folder."""
        return bool(self._of_project([one], self.projects.of(os.path.abspath(os.fspath(cwd)))))

    def thread(self, sessions: Sequence[Summary] | None = None) -> list[Threaded]:
        """Forks under their origin, whatever the dialect; sub-agents, if there are any, under their parent."""
        return threaded(self.sessions() if sessions is None else sessions)

    def search(self, query: str, **arguments: Any) -> Results:
        """What fits a query in all these sessions; the arguments are those of `sessiontree.search.search`."""
        from sessiontree.search import search  # it stands above this module: only whoever searches needs it

        return search(self, query, **arguments)

    def store_exact(self, path: str, size: int, counted: Counted) -> None:
        """Numbers that someone counted who read a whole file of that size; the next listing shows them."""
        self.cache.store_exact(os.path.realpath(path), size, counted)

    # Looking at the disk

    def refresh(self) -> None:
        """Look at the disk: read what is new or has changed, take the rest from the cache."""
        start = time.perf_counter()
        files = find_files(self.roots)
        rows = self.cache.rows(root.folder for root in self.roots)
        agents = {root: ",".join(root.agents) for root in self.roots}
        known: list[Summary] = []
        changed: list[tuple[Found, Row | None]] = []
        for file in files:
            row = rows.pop(file.path, None)
            if row is None or row.modified != file.modified or row.size != file.size or row.inode != file.inode:
                changed.append((file, row))
            elif row.agents == agents[file.root] and (summary := row.summary) is not None:
                known.append(summary)
            elif row.raw or row.agents != agents[file.root]:
                changed.append((file, None))
        bytes_read, read = self._read(changed, known)
        if rows:  # what is left of them is not there any more
            self.cache.forget(rows)
        self._all = _with_known_parents(known)
        self.scan = Scan(len(known), read, bytes_read, time.perf_counter() - start)

    def _read(self, changed: Sequence[tuple[Found, Row | None]], known: list[Summary]) -> tuple[int, int]:
        """Read files that are new or have changed; how many bytes of how many sessions that were."""
        bytes_read = read = 0
        for start in range(0, len(changed), _STORED_TOGETHER):
            looks: list[tuple[Look, int, int, str]] = []
            others: list[tuple[str, int, int, int, str]] = []
            for at, (file, row) in enumerate(changed[start : start + _STORED_TOGETHER], start):
                if self._progress is not None:
                    self._progress(at, len(changed))
                agents = ",".join(file.root.agents)
                kind = dialect_named(file.root.agents[0]).classify_file(file.root.folder, file.relative)
                if kind is None:
                    others.append((file.path, file.size, file.modified, file.inode, agents))
                    continue
                seen = self._look(file, kind, row)
                bytes_read += seen.bytes_read
                looks.append((seen, file.modified, file.inode, agents))
                known.append(seen.summary)
            read += len(looks)
            if looks:
                self.cache.store(looks)
            if others:
                self.cache.store_others(others)
            self.projects.notice(dict.fromkeys(one.summary.cwd for one, *_ in looks))
        if changed and self._progress is not None:
            self._progress(len(changed), len(changed))
        return bytes_read, read

    def _look(self, file: Found, kind: SessionFile, row: Row | None) -> Look:
        from sessiontree.library.summary_reader import look, look_further

        before = row.summary if row is not None else None
        seen: Look | None = None
        if row is not None and before is not None and row.inode == file.inode and before.size < file.size:
            state = self.cache.find_state(file.path) if before.agent in file.root.agents else None
            if state is not None:
                seen = look_further(before, state, file.size, file.modified, kind)
        if seen is None:
            seen = look(file.path, _agent_of(file), file.size, modified=file.modified, file=kind)
        summary = seen.summary
        if kind.parent is not None:
            summary = msgspec.structs.replace(summary, parent=os.path.join(file.root.folder, kind.parent))
        if not summary.cwd:
            summary = msgspec.structs.replace(summary, cwd=self._noted_cwd(file, summary.agent))
        return msgspec.structs.replace(seen, summary=summary)

    def _noted_cwd(self, file: Found, agent: str) -> str:
        """The working folder that an agent notes elsewhere, for a file that does not tell."""
        root = file.root.folder
        if root not in self._noted:
            self._noted[root] = dialect_named(agent).session_cwds(root, _read_small)
        return self._noted[root].get(os.path.dirname(file.relative), "")

    def _of_project(self, found: Iterable[Summary], project: Project) -> list[Summary]:
        """Sessions of a project, and their sub-agents, wherever those worked."""
        kept: list[Summary] = []
        subagents: list[Summary] = []
        for one in found:
            if one.parent is not None:
                subagents.append(one)
            elif self.projects.is_of(one.cwd, one.recency, project):
                kept.append(one)
        paths = {one.path for one in kept}
        return kept + [one for one in subagents if one.parent in paths]

    def _at_path(self, everything: Sequence[Summary], text: str) -> Summary:
        path = os.path.realpath(text)
        for one in everything:
            if one.path == path:
                return one
        try:
            stat = os.stat(path)
        except OSError as error:
            raise NotFoundError(f"{text}: {error.strerror or error}") from None
        return self._outside(path, stat)

    def _outside(self, path: str, stat: os.stat_result) -> Summary:
        """A session that lies in none of the folders that are looked into."""
        from sessiontree.library.summary_reader import look
        from sessiontree.session.open import detect

        agent = detect(_read_small(path, _DETECTED) or b"", path).name
        return look(path, agent, stat.st_size, modified=stat.st_mtime_ns).summary


def _agent_of(file: Found) -> str:
    """The agent that wrote a file: where several may have, the one that is surest about its first bytes."""
    if len(file.root.agents) == 1:
        return file.root.agents[0]
    head = _read_small(file.path, _DETECTED) or b""
    return max(file.root.agents, key=lambda name: dialect_named(name).recognize(head))


def _read_small(path: str, size: int = 1 << 22) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return None


def _with_known_parents(found: list[Summary]) -> list[Summary]:
    """A parent that is guessed from an id counts only when it is there."""
    paths = {one.path for one in found}
    return [
        one if one.parent is None or one.parent in paths else msgspec.structs.replace(one, parent=None) for one in found
    ]


def _ambiguous(text: str, candidates: Sequence[Summary]) -> AmbiguousError:
    shown = "\n".join(f"  {one.id}  {one.agent:8}{one.title[:60]}  {one.path}" for one in candidates[:20])
    more = f"\n  and {len(candidates) - 20} more" if len(candidates) > 20 else ""
    return AmbiguousError(
        f"{text!r} fits {len(candidates)} sessions; give more of the id, or a path:\n{shown}{more}",
        tuple(one.path for one in candidates),
    )
