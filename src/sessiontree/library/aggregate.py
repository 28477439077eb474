"""Many sessions added up: requests, tokens, cost, calls of tools, errors, the files they were about.

Each response counts once, also where several sessions have it because one was forked from the other: it counts for the
session that began first. Sub-agents count like sessions.

One session is held at a time, or those that share lines. First the keys of all files (see `facts`) tell which of them
share anything; a file that shares nothing is added by its sums, the others, together with those they share with, by
their details. What is kept of each file in the cache does for both, so that only files that changed are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar, assert_never

import msgspec
from msgspec import Struct

from sessiontree.dialects.contract import AS_CLIENT
from sessiontree.errors import SessionTreeError
from sessiontree.library.cache import Cache, FactsPart, Stamp
from sessiontree.library.library import Library, Progress
from sessiontree.library.projects import Project, Projects
from sessiontree.library.roots import dialect_named
from sessiontree.library.session_stats import (
    KEY,
    Bucket,
    Call,
    Damage,
    Details,
    Facts,
    Numbers,
    Response,
    Result,
    Told,
    sum_up,
    tell,
)
from sessiontree.library.summary import Summary
from sessiontree.session.journal import Journal
from sessiontree.session.reader import Reader
from sessiontree.stores.file import FileStore

By: TypeAlias = Literal["day", "model", "project", "agent", "session"]
T = TypeVar("T")
_ThingT = TypeVar("_ThingT", Response, Call, Result)

_encode = msgspec.msgpack.Encoder().encode
_decode_facts = msgspec.msgpack.Decoder(Facts).decode
_decode_details = msgspec.msgpack.Decoder(Details).decode


class Group(Struct):
    """One row: a day, a model, a project, an agent or a session."""

    key: str
    """The day, the model, the folder of the project, the agent, or the path of the session; empty when not told."""
    numbers: Numbers
    sessions: int = 0
    session: Summary | None = None


class FileCount(Struct):
    """A file, and how often calls of tools read, wrote and edited it."""

    path: str
    read: int = 0
    written: int = 0
    edited: int = 0

    @property
    def uses(self) -> int:
        return self.read + self.written + self.edited


class Gap(Struct, frozen=True):
    """A session that could not be read, or not all of it: what is there counts."""

    path: str
    damage: Damage | None
    """None when nothing of it could be read."""
    reason: str = ""


class Statistics(Struct, frozen=True):
    by: By
    groups: list[Group]
    total: Group
    files: list[FileCount]
    """The busiest first."""
    gaps: list[Gap]
    repeated: int
    """Responses that were left out because an earlier session has them too."""
    read: int
    """Files that had to be read, because they were new or had changed."""
    bytes_read: int


def selected(
    library: Library, *, agent: str | None = None, project: str | None = None, since: int | None = None
) -> list[Summary]:
    """The sessions and sub-agents that statistics are about: those that began first come first, and forks, which
    may begin with the same line as their origin, behind it.

    With `since`, sessions that ended before are left out; what the others did before is for `add_up` to leave out.
    """
    found = library.sessions(agent=agent, project=project, include_subagents=True)
    kept = [one for one in found if since is None or max(one.recency, one.modified) >= since]
    depths = {member.summary.path: member.depth for member in library.thread(kept)}
    return sorted(kept, key=lambda one: (one.created or one.recency, depths[one.path], one.path))


def add_up(
    library: Library,
    sessions: Sequence[Summary],
    *,
    by: By = "day",
    since: int | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """Sessions, in the order in which they began, added up in groups. `since` is a time in milliseconds."""
    telling = _Files(library)
    sums = _Sums(by, library)
    repeated = 0
    for together in _sharing(telling, sessions, progress):
        if len(together) == 1 and (facts := telling.facts(together[0])) is not None:
            one = together[0]
            if _is_current(facts.buckets, since):
                sums.add(one, facts.buckets, facts.files)
                continue
        told = [(one, details) for one in together if (details := telling.details(one)) is not None]
        kept = _each_once([details for _, details in told])
        for (one, details), own in zip(told, kept, strict=True):
            repeated += len(details.responses) - len(own.responses)
            sums.add(one, *sum_up(_since(own, since)))
    gaps = [gap for one in sessions if (gap := telling.gaps.get(one.path)) is not None]
    total = Group("", sums.total, sums.sessions)
    return Statistics(by, sums.ordered(), total, sums.busiest(), gaps, repeated, telling.read, telling.bytes_read)


def _is_current(buckets: Iterable[Bucket], since: int | None) -> bool:
    """Whether sums are what is asked for: of whole days as they are here, and nothing too old among them."""
    return all(one.is_still_of_its_day and (since is None or one.first >= since) for one in buckets)


def _since(details: Details, since: int | None) -> Details:
    if since is None:
        return details
    return Details(
        details.models,
        details.files,
        [one for one in details.responses if one.at >= since],
        [one for one in details.calls if one.at >= since],
        [one for one in details.results if one.at >= since],
    )


class _Files:
    """What files tell: out of the cache where nothing changed, else read."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._cache: Cache = library.cache
        self._stamps: dict[str, Stamp | None] = {}
        self.gaps: dict[str, Gap] = {}
        self.read = self.bytes_read = 0

    def keys(self, one: Summary) -> bytes:
        return self._part(one, "keys", bytes, lambda told: told.keys) or b""

    def facts(self, one: Summary) -> Facts | None:
        facts = self._part(one, "facts", _decode_facts, lambda told: told.facts)
        if facts is not None and facts.damage is not None:
            self.gaps[one.path] = Gap(one.path, facts.damage)
        return facts

    def details(self, one: Summary) -> Details | None:
        self.facts(one)  # which tell of damage
        return self._part(one, "details", _decode_details, lambda told: told.details)

    def _part(
        self, one: Summary, name: FactsPart, decode: Callable[[bytes], T], choose: Callable[[Told], T]
    ) -> T | None:
        stamp = self._stamp(one)
        if stamp is None:
            return None
        raw = self._cache.find_part(name, one.path, stamp)
        if raw is not None:
            try:
                return decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                pass  # not what was put in: it is read anew
        told = self._read(one, stamp)
        return None if told is None else choose(told)

    def _stamp(self, one: Summary) -> Stamp | None:
        """The file as it was when it was first asked for: all its parts are of that one."""
        if one.path not in self._stamps:
            try:
                found = os.stat(one.path, follow_symlinks=False)
                self._stamps[one.path] = (found.st_size, found.st_mtime_ns, found.st_ino)
            except OSError as error:
                self._give_up(one, error.strerror or str(error))
        return self._stamps[one.path]

    def _read(self, one: Summary, stamp: Stamp) -> Told | None:
        try:
            reader = Reader(Journal(FileStore(one.path), dialect_named(one.agent)), AS_CLIENT)
            told = tell(reader, one.created or one.recency)
        except (SessionTreeError, OSError) as error:
            self._give_up(one, str(error))
            return None
        size = reader.journal.size
        self.read += 1
        self.bytes_read += size
        if size == stamp[0]:  # else it is being written, and is read anew the next time
            self._store(one, stamp, told)
        return told

    def _store(self, one: Summary, stamp: Stamp, told: Told) -> None:
        self._cache.store_facts(one.path, stamp, told.keys, _encode(told.facts), _encode(told.details))
        if self._cache.lacks_exact(one.path, stamp[0]):
            self._library.store_exact(one.path, stamp[0], told.counted)

    def _give_up(self, one: Summary, reason: str) -> None:
        self._stamps[one.path] = None
        self.gaps[one.path] = Gap(one.path, None, reason)


def _sharing(files: _Files, sessions: Sequence[Summary], progress: Progress | None) -> Iterator[list[Summary]]:
    """The sessions in sets that share nothing with each other, each in the order given."""
    owners: dict[bytes, int] = {}
    above = list(range(len(sessions)))

    def top(at: int) -> int:
        while above[at] != at:
            above[at] = above[above[at]]
            at = above[at]
        return at

    for at, one in enumerate(sessions):
        if progress is not None:
            progress(at, len(sessions))
        keys = files.keys(one)
        for start in range(0, len(keys), KEY):
            owner = owners.setdefault(keys[start : start + KEY], at)
            if owner != at:
                first, second = sorted((top(owner), top(at)))
                above[second] = first
    if progress is not None:
        progress(len(sessions), len(sessions))
    together: dict[int, list[Summary]] = {}
    for at, one in enumerate(sessions):
        together.setdefault(top(at), []).append(one)
    yield from together.values()


def _each_once(members: Sequence[Details]) -> list[Details]:
    """The details of sessions that share lines, each thing only in the first that has it.

    Of a response, the copy that tells most counts, as it does among the lines of one session: a fork may have been
    taken in the middle of it, or the origin may be damaged there.
    """
    places: dict[bytes, tuple[int, int]] = {}
    responses: list[list[Response]] = [[] for _ in members]
    for number, details in enumerate(members):
        for one in details.responses:
            keys = [one.keys[start : start + KEY] for start in range(0, len(one.keys), KEY)]
            place = next((places[key] for key in keys if key in places), None)
            if place is None:
                place = (number, len(responses[number]))
                responses[number].append(one)
            else:
                first = responses[place[0]][place[1]]
                if one.size > first.size:
                    told = {"input": one.input, "output": one.output, "cached": one.cached, "cost": one.cost}
                    responses[place[0]][place[1]] = msgspec.structs.replace(first, **told)
            places.update(dict.fromkeys(keys, place))
    seen: set[bytes] = set()
    return [
        Details(details.models, details.files, own, _unseen(details.calls, seen), _unseen(details.results, seen))
        for details, own in zip(members, responses, strict=True)
    ]


def _unseen(things: Sequence[_ThingT], seen: set[bytes]) -> list[_ThingT]:
    kept = [one for one in things if one.keys not in seen]
    seen.update(one.keys for one in kept)
    return kept


class _Sums:
    """Groups as sessions are added to them, each session once."""

    def __init__(self, by: By, library: Library) -> None:
        self._by = by
        self._folders = _Folders(library)
        self._groups: dict[str, Group] = {}
        self._files: dict[str, FileCount] = {}
        self.total = Numbers()
        self.sessions = 0

    def add(self, one: Summary, buckets: Sequence[Bucket], files: Mapping[str, tuple[int, int, int]]) -> None:
        touched = set()
        for bucket in buckets:
            key = self._key(one, bucket)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = Group(key, Numbers(), session=one if self._by == "session" else None)
            group.numbers.add(bucket.numbers)
            self.total.add(bucket.numbers)
            touched.add(key)
        for key in touched:
            self._groups[key].sessions += 1
        self.sessions += bool(touched)
        for file, (read, written, edited) in files.items():
            path = _whole_path(one.cwd, file)
            found = self._files.get(path)
            if found is None:
                found = self._files[path] = FileCount(path)
            found.read += read
            found.written += written
            found.edited += edited

    def _key(self, one: Summary, bucket: Bucket) -> str:
        match self._by:
            case "day":
                return bucket.day
            case "model":
                return bucket.model
            case "agent":
                return one.agent
            case "session":
                return one.path
            case "project":
                return self._folders.of(one)
            case _:
                assert_never(self._by)

    def ordered(self) -> list[Group]:
        """Days in their order, everything else by what it used, the most first."""
        if self._by == "day":
            return sorted(self._groups.values(), key=lambda group: group.key)
        return sorted(self._groups.values(), key=lambda group: (-group.numbers.tokens, group.key))

    def busiest(self) -> list[FileCount]:
        return sorted(self._files.values(), key=lambda file: (-file.uses, file.path))


def _whole_path(cwd: str, file: str) -> str:
    """A file by its whole path, so that it is the same one for sessions that name it differently."""
    if file.startswith("~") or not (cwd or file.startswith("/")):
        return file
    return os.path.normpath(f"{cwd}/{file}" if not file.startswith("/") else file)


class _Folders:
    """The folder that stands for the project of a session: of several that are the same project, the first met."""

    def __init__(self, library: Library) -> None:
        self._projects: Projects = library.projects
        self._parents = {one.path: one for one in library.everything() if one.kind == "session"}
        self._known: list[Project] = []
        self._folders: dict[str, str] = {}

    def of(self, one: Summary) -> str:
        if one.path not in self._folders:
            parent = self._parents.get(one.parent) if one.parent else None
            self._folders[one.path] = self._find(parent or one)
        return self._folders[one.path]

    def _find(self, one: Summary) -> str:
        if not one.cwd:
            return ""
        for project in self._known:
            if self._projects.is_of(one.cwd, one.recency, project):
                return project.cwd
        project = self._projects.of(one.cwd)
        self._known.append(project)
        return project.cwd
