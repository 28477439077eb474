"""The library of all sessions: list, find, continue, thread."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from sessiontree import paths
from sessiontree.core.ids import SHORTEST_PREFIX
from sessiontree.core.jsonio import is_unicode
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.errors import AmbiguousError, NotFoundError, SessionTreeError, StoreError
from sessiontree.library.cache import Cache, SplitCache, cache_path
from sessiontree.library.projects import Project, Projects
from sessiontree.library.roots import Root, dialect_named, find_roots, is_repository
from sessiontree.library.scanner import Progress, Scan, Scanner
from sessiontree.library.snapshot import Snapshot
from sessiontree.library.summary import MAX_TITLE, Summary, cut_at_word
from sessiontree.library.threads import ThreadMember, build_threads
from sessiontree.stores.contract import DocumentStore, SessionRef
from sessiontree.stores.safe_files import read_small

if TYPE_CHECKING:  # imported only if a file has to be read
    from sessiontree.library.counts import Counted
    from sessiontree.library.home_image import HomeImage
    from sessiontree.search import Results

Sort: TypeAlias = Literal["recent", "size", "cost", "messages"]

_SORTS: dict[Sort, Callable[[Summary], float]] = {
    "recent": lambda summary: summary.recency,
    "size": lambda summary: summary.size,
    "cost": lambda summary: summary.cost,
    "messages": lambda summary: summary.messages,
}

_RESTING = 600.0
"""Seconds without a change after which a session is examined again."""


def _is_incomplete(summary: Summary) -> bool:
    """Whether facts of a listing are estimated or unknown. A session in use grows all the time, and waits."""
    return not summary.exact or (summary.health == "unchecked" and time.time() - summary.modified / 1000 > _RESTING)


class Library:
    """The sessions of all agents on this machine that this process can read."""

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        roots: Mapping[str, Sequence[str]] | None = None,
        environment: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        *,
        only_home: bool = False,
    ) -> None:
        """`only_home` leaves out the agents' folders on this machine, for users it does not belong to."""
        self.only_home = only_home
        self.environment = os.environ if environment is None else environment
        self.home = self._own_home() if home is None else os.fspath(home)
        is_folder = not is_repository(self.home)
        if is_folder:
            self.home = os.path.abspath(self.home)
        self.cache = self._open_cache(is_folder=is_folder)
        self.roots: list[Root] = [
            root
            for root in find_roots(self.environment, roots, self.home, self.cache)
            if root.folder == self.home or not only_home
        ]
        self.projects = Projects(self.home if is_folder else None, reads_folders=not only_home)
        self.scan = Scan()
        self._progress = progress
        self._all: list[Summary] | None = None
        self.outside_titles: dict[str, str] = {}
        """By reference: titles that are not in the session but in another file of the client, uncut."""
        self._scan_lock = threading.Lock()
        self._snapshot = Snapshot(self._load_known, self.refresh)
        self._is_closed = False

    def _own_home(self) -> str:
        """The home folder in the given environment, which may differ from that of this process."""
        if self.environment is os.environ:
            return paths.home_address()
        chosen = self.environment.get("SESSIONTREE_HOME", "")
        if paths.is_address(chosen):
            return chosen
        return os.path.dirname(dialect_named(DEFAULT_DIALECT).session_roots(self.environment)[0])

    def _open_cache(self, *, is_folder: bool) -> Cache:
        path = cache_path(self.environment)
        image = None if is_folder else self.home_image("library")
        return Cache(path) if image is None else SplitCache(path, self.home, image)

    def home_image(self, name: str) -> HomeImage | None:
        """A database about the sessions of the home, if the home is a repository that keeps its own."""
        if not is_repository(self.home) or _is_volatile(self.home):
            return None
        from sessiontree.library.home_image import HomeImage

        return HomeImage(self.documents, name)

    def close(self) -> None:
        self._is_closed = True  # ends a background scan at its next file
        self._snapshot.join()
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
        """All sessions, newest first; without sub-agents by default.

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

    def find(self, text: str, *, outside: bool = True) -> Summary:
        """Find a session by path, reference, id, prefix of an id, title, or part of a title.

        A prefix of fewer than 8 characters counts after titles: it may be a word. If a session and its converted copies
        share a title, it names the session itself.

        With `outside`, a path may also be that of a file outside of all roots.
        """
        everything = self.everything()
        if os.sep in text or text.endswith(".jsonl") or "#" in text:
            found = self._at_ref(everything, text, outside=outside)
            if found is not None:
                return found
        is_folder = os.path.isdir(text)
        by_prefix = [summary for summary in everything if text and summary.id.startswith(text)]
        for candidates in (
            [summary for summary in everything if summary.id == text],
            by_prefix if len(text) >= SHORTEST_PREFIX else [],
            [summary for summary in everything if summary.kind == "session" and summary.title == text],
            by_prefix if len(by_prefix) == 1 else [],
            [
                summary
                for summary in everything
                if summary.kind == "session" and text and not is_folder and text.lower() in summary.title.lower()
            ],
            by_prefix,
        ):
            if len({summary.id for summary in candidates}) == 1:
                # Some clients leave files without messages that have the id of another one.
                candidates = [summary for summary in candidates if summary.health != "empty"] or candidates
            if len(candidates) > 1 and not candidates[0].id.startswith(text):
                candidates = self._without_copies(candidates)
            if len(candidates) == 1:
                return candidates[0]
            if candidates:
                raise _ambiguous(text, sorted(candidates, key=_SORTS["recent"], reverse=True))
        if is_folder:
            import shlex  # slow to import

            hint = f"list its sessions: sessiontree list --project {shlex.quote(text)}"
            raise NotFoundError(f"{text}: a folder, not a session; {hint}")
        searched = f"{len(everything)} session{'' if len(everything) == 1 else 's'}"
        raise NotFoundError(f"no session matches {text!r} (searched {searched}; use a path, an id prefix or a title)")

    def _without_copies(self, sessions: Sequence[Summary]) -> list[Summary]:
        """Sessions without the converted copies of others among them: a copy has the title of its origin."""
        refs = {summary.ref for summary in sessions}
        return [summary for summary in sessions if self.copies.get(summary.ref) not in refs]

    def indexable(self) -> list[Summary]:
        """Every session that may be indexed in a file."""
        return [
            summary for summary in self.everything() if not self.is_volatile(summary) and not self.is_stored(summary)
        ]

    def stored(self) -> list[Summary]:
        """Every session of a repository that keeps its own index."""
        return [summary for summary in self.everything() if self.is_stored(summary)]

    def is_stored(self, summary: Summary) -> bool:
        """Whether a session is in a repository that keeps everything about it, so that no file may."""
        return not summary.is_file and summary.ref.startswith(self._stored)

    @functools.cached_property
    def _stored(self) -> tuple[str, ...]:
        folders = [root.folder for root in self.roots if root.is_repository]
        return tuple(f"{folder}/" for folder in folders if not _is_volatile(folder))

    def is_volatile(self, summary: Summary) -> bool:
        """Whether nothing about a session can be stored: it ends with the process, or its path is not valid Unicode."""
        return not is_unicode(summary.ref) or (not summary.is_file and summary.ref.startswith(self._volatile))

    @functools.cached_property
    def _volatile(self) -> tuple[str, ...]:
        folders = [root.folder for root in self.roots if root.is_repository]
        return tuple(f"{folder}/" for folder in folders if _is_volatile(folder))

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
        return build_threads(self.sessions() if sessions is None else sessions, self.copies)

    @functools.cached_property
    def documents(self) -> DocumentStore:
        """Documents about the sessions: tags, copies."""
        from sessiontree.stores.repositories import open_repository

        return open_repository(self.home).documents

    def count_exactly(self, until: float, progress: Progress | None = None) -> int:
        """Count and examine sessions completely, newest first, until `time.monotonic()` is `until`.

        Listings then show their messages, branches and health exactly. Returns how many are left.
        """
        incomplete = filter(_is_incomplete, self.everything())
        waiting = [summary for summary in incomplete if not self.is_volatile(summary)]
        if not waiting:
            return 0
        from sessiontree.library import counts
        from sessiontree.library.session_store import size_in_cache
        from sessiontree.repair import is_damaged
        from sessiontree.session.open import open as open_session

        waiting.sort(key=_SORTS["recent"], reverse=True)
        for done, summary in enumerate(waiting):
            if time.monotonic() > until:
                return len(waiting) - done
            if progress is not None:
                progress(done, len(waiting))
            try:
                with contextlib.closing(open_session(summary.ref, home=self.home, dialect=summary.agent)) as session:
                    size = size_in_cache(session)
                    self.cache.store_exact(summary.ref, size, counts.count(session))
                    self.cache.store_health(summary.ref, size, is_damaged=is_damaged(session))
            except SessionTreeError:
                continue  # not readable: it stays marked as damaged
        if progress is not None:
            progress(len(waiting), len(waiting))
        return 0

    @functools.cached_property
    def copies(self) -> dict[str, str]:
        """Converted copies of sessions: their reference, and that of their origin."""
        return self.read_copies()

    def read_copies(self) -> dict[str, str]:
        """`copies`, read again, for long-running callers."""
        if is_repository(self.home):
            return {}
        from sessiontree.conversion.copies import CopyFile  # only listings need it

        return {copy.path: copy.origin for copy in CopyFile(self.documents).read()}

    def search(self, query: str, **arguments: Any) -> Results:
        """Search all sessions; the arguments are those of `sessiontree.search.search`."""
        from sessiontree.search import search  # a layer above this one, imported only by callers that search

        return search(self, query, **arguments)

    def store_exact(self, path: str, size: int | None, counted: Counted) -> None:
        """Store exact counts of a caller that read a whole file of this size; the next listing shows them."""
        self.cache.store_exact(os.path.realpath(path), size, counted)

    # Scanning

    def snapshot(self) -> Snapshot:
        """The sessions known without reading the disk, for any thread; its `follow` scans in the background."""
        return self._snapshot

    def refresh(self) -> None:
        """Scan the disk: read files that are new or have changed, take the rest from the cache."""
        with self._scan_lock:  # one scan at a time: the next one reads what changed meanwhile
            scanner = Scanner(self.roots, self.cache, self.projects)
            self.scan = scanner.run(self._report_progress, self._snapshot.report)
            self._all = self._complete(scanner.found)
            self._snapshot.settle(self._all)

    def _report_progress(self, done: int, total: int) -> None:
        if self._is_closed:
            raise StoreError("the library was closed during a scan")
        if self._progress is not None:
            self._progress(done, total)

    def _complete(self, found: list[Summary]) -> list[Summary]:
        """Add facts that need more than one file: parents by id, files that a newer one replaces, titles stored
        elsewhere.
        """
        found = _resolve_parents(found)
        for root in self.roots:
            for agent in root.indexed_agents:
                if any(summary.agent == agent for summary in found):
                    found = self._complete_agent(found, root, agent)
        return found

    def _complete_agent(self, found: list[Summary], root: Root, agent: str) -> list[Summary]:
        dialect = dialect_named(agent)
        if dialect.traits.newest_file_counts:
            found = _rename_replaced(found, agent)
        titles = dialect.session_titles(root.folder, read_small) if dialect.traits.has_title_file else {}
        named = {
            summary.ref: titles[summary.id] for summary in found if summary.agent == agent and summary.id in titles
        }
        self.outside_titles |= named
        return [
            msgspec.structs.replace(summary, title=cut_at_word(named[summary.ref], MAX_TITLE), named=True)
            if summary.ref in named
            else summary
            for summary in found
        ]

    def _load_known(self) -> list[Summary]:
        folders = {root.folder: ",".join(root.agents) for root in self.roots}
        return self._complete(self.cache.summaries(folders))

    def _of_project(self, found: Iterable[Summary], project: Project) -> list[Summary]:
        """Sessions of a project with their sub-agents, wherever those worked."""
        kept: list[Summary] = []
        subagents: list[Summary] = []
        for summary in found:
            if summary.parent is not None:
                subagents.append(summary)
            elif self.projects.belongs_to(summary.cwd, summary.recency, project):
                kept.append(summary)
        paths = {summary.ref for summary in kept}
        return kept + [summary for summary in subagents if summary.parent in paths]

    def _at_ref(self, everything: Sequence[Summary], text: str, *, outside: bool) -> Summary | None:
        """The session with a path or a reference; None for other text."""
        from sessiontree.session.open import looks_like_path
        from sessiontree.stores.repositories import find_ref

        if not looks_like_path(text):
            return None  # a title that contains "#"
        ref = find_ref(text)
        if not ref.home:
            ref = msgspec.structs.replace(ref, name=os.path.realpath(ref.name))
        found = next((summary for summary in everything if summary.ref == str(ref)), None)
        if found is None and not outside:
            raise NotFoundError(f"{text}: not the path of a known session")
        return found or self._read_outside(ref, text)

    def _read_outside(self, ref: SessionRef, text: str) -> Summary:
        """Read a session that is outside of all roots."""
        from sessiontree.library.summary_reader import read_ends
        from sessiontree.sources import is_line_file, open_source
        from sessiontree.sources.detect import detect_source

        if ref.home:
            return self._read_stored(ref)
        try:
            modified = os.stat(ref.name).st_mtime_ns
        except OSError as error:
            raise NotFoundError(f"{text}: {error.strerror or error}") from None
        dialect = detect_source(ref)
        summary = read_ends(open_source(ref, dialect), dialect.name, modified=modified).summary
        return msgspec.structs.replace(summary, is_line_file=is_line_file(ref.name, dialect))

    def _read_stored(self, ref: SessionRef) -> Summary:
        """Read a session of a repository that is not a root."""
        from sessiontree.library.summary_reader import read_ends
        from sessiontree.sources.detect import detect_stored
        from sessiontree.stores.repositories import open_repository

        repository = open_repository(ref.home)
        stat = next((stat for stat in repository.iter_stats() if stat.ref == ref), None)
        if stat is None:
            raise NotFoundError(f"{ref}: no such session")
        dialect = stat.dialect or detect_stored(ref).name
        return read_ends(repository.open(ref), dialect, stat.size, modified=stat.changed).summary


def _is_volatile(address: str) -> bool:
    from sessiontree.stores.repositories import open_repository

    return open_repository(address).is_volatile


def _resolve_parents(found: list[Summary]) -> list[Summary]:
    """Replace ids of parents with their references, and drop parents that do not exist: some are only derived."""
    paths = {summary.ref for summary in found}
    unknown = {summary.parent for summary in found if summary.parent is not None} - paths
    by_id = {(summary.agent, summary.id): summary.ref for summary in found if summary.id in unknown}
    return [
        summary
        if summary.parent is None or summary.parent in paths
        else msgspec.structs.replace(summary, parent=by_id.get((summary.agent, summary.parent)))
        for summary in found
    ]


def _rename_replaced(found: list[Summary], agent: str) -> list[Summary]:
    """If a newer file with the same id replaces a file, use the old file's name as its id, so ids stay unambiguous."""
    newest: dict[str, str] = {}
    for summary in found:
        if summary.agent == agent:
            newest[summary.id] = max(newest.get(summary.id, ""), os.path.basename(summary.ref))
    return [
        msgspec.structs.replace(summary, id=os.path.basename(summary.ref).partition(".")[0], forked_from=summary.id)
        if summary.agent == agent and os.path.basename(summary.ref) != newest[summary.id]
        else summary
        for summary in found
    ]


def _ambiguous(text: str, candidates: Sequence[Summary]) -> AmbiguousError:
    listed = candidates[:20]
    width = max(len(summary.agent) for summary in listed)
    shown = "\n".join(
        f"  {summary.id}  {summary.agent:{width}}  {summary.title[:60]}  {summary.ref}" for summary in listed
    )
    more = f"\n  and {len(candidates) - 20} more" if len(candidates) > 20 else ""
    return AmbiguousError(
        f"{text!r} matches {len(candidates)} sessions; use a longer id prefix or a path:\n{shown}{more}",
        tuple(summary.ref for summary in candidates),
    )
