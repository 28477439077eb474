"""A `SessionStore` for the Claude Agent SDK: transcripts as ordinary Claude Code sessions.

    ClaudeAgentOptions(session_store=SessionTreeStore("/srv/agents"))

In a folder, transcripts have the names that Claude Code gives them: `projects/<project_key>/<session_id>.jsonl`, and
those of sub-agents below `<session_id>/`. In another repository (`memory:`, `postgresql:`), the key becomes the id.

The SDK is imported only for summaries: it checks stores by their methods, and its package contains the whole client.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from sessiontree.adapters.file_identity import file_identity
from sessiontree.core.ids import timestamp
from sessiontree.core.jsonio import parse_object, render_json
from sessiontree.core.lines import iter_lines
from sessiontree.dialects import CLAUDE_AGENT_SDK_DIALECT
from sessiontree.dialects.contract import is_metadata_id
from sessiontree.dialects.passthrough import PASSTHROUGH
from sessiontree.errors import ExistsError, NotFoundError, ReplacedError, UsageError
from sessiontree.session.open import open_store
from sessiontree.session.session import Session
from sessiontree.stores.contract import (
    DocumentStore,
    SessionRef,
    SessionRepository,
    SessionStat,
    SessionStore,
    read_bytes,
)
from sessiontree.stores.file import FileStore
from sessiontree.stores.repositories import FileDocuments, delete_file, is_address, open_repository
from sessiontree.stores.safe_files import write_file

Entry: TypeAlias = dict[str, Any]
"""A line of a transcript, as decoded JSON."""
ResultT = TypeVar("ResultT")

_OPEN_TRANSCRIPTS = 64
"""Transcripts whose index stays in memory between calls."""
_ATTEMPTS = 5
"""Attempts for a transcript that others create and delete at the same time."""
_METADATA_TYPE = "agent_metadata"
"""Type of the entries that describe a sub-agent. The client keeps the last one in a file next to the transcript."""
_UNTYPED = "untyped"
"""Field of a metadata line of our own that holds an entry without a type."""

_log = logging.getLogger("sessiontree")


class Key(Struct, frozen=True):
    """The key of a transcript: a session, or with a subpath something that belongs to it, such as a sub-agent."""

    project: str
    session: str
    subpath: str = ""

    @classmethod
    def parse(cls, key: Mapping[str, Any]) -> Key:
        return cls(
            _check_name("project_key", key.get("project_key")),
            _check_name("session_id", key.get("session_id")),
            "/".join(_check_name("subpath", part) for part in (key.get("subpath") or "").split("/") if part),
        )

    def fields(self) -> dict[str, str]:
        """The key as the SDK passes it."""
        subpath = {"subpath": self.subpath} if self.subpath else {}
        return {"project_key": self.project, "session_id": self.session, **subpath}


class Recovery(Struct, frozen=True):
    """A parent that `load` replaced: the recorded one is missing, so the client would lose all earlier history."""

    key: dict[str, str]
    uuid: str
    missing: str | None
    """The recorded parent."""
    parent: str
    """The parent in the entry that was returned."""
    why: str


class SessionTreeStore:
    """A Claude Agent SDK `SessionStore` in a folder, or in the repository at an address such as `postgresql://...`.

    An entry whose `uuid` is stored already is ignored. Entries without one are always written. Each `append` is one
    write, all or nothing, and durable when it returns.

    With `recover`, `load` gives entries after a lost line another parent, so that the client resumes with the history
    before it. Each is passed to `on_recovery`, by default a log message. The stored lines are never changed.

    Files and databases are used in worker threads; with `threads=False`, directly in the coroutine.
    """

    def __init__(
        self,
        home: str | os.PathLike[str],
        *,
        recover: bool = False,
        on_recovery: Callable[[Recovery], object] | None = None,
        threads: bool = True,
    ) -> None:
        address = os.fspath(home)
        self._places: _Places = _RepositoryPlaces(address) if is_address(address) else _Folder(address)
        self._recover = recover
        self._on_recovery = on_recovery or _log_recovery
        self._threads = threads
        self._transcripts: OrderedDict[Key, _Transcript] = OrderedDict()
        self._lock = threading.Lock()

    # The protocol

    async def append(self, key: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> None:
        """Append entries to a transcript, which is created if necessary."""
        lines = [_Line(_uuid_of(entry), _render(entry)) for entry in entries]
        metadata = next((entry for entry in reversed(entries) if entry.get("type") == _METADATA_TYPE), None)
        if lines:
            await self._run(self._append, Key.parse(key), lines, metadata)

    async def load(self, key: Mapping[str, Any]) -> list[Entry] | None:
        """The entries of a transcript in the order of their appends; None if it was never written."""
        return await self._run(self._load, Key.parse(key))

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """The sessions of a project, with the time of their last change in milliseconds."""
        return await self._run(self._list_sessions, _check_name("project_key", project_key))

    async def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        """The SDK's own summary of each session of a project."""
        return await self._run(self._list_summaries, _check_name("project_key", project_key))

    async def delete(self, key: Mapping[str, Any]) -> None:
        """Delete a transcript permanently; that of a session with everything that belongs to it."""
        await self._run(self._delete, Key.parse(key))

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        """The subpaths of a session's transcripts."""
        session = Key.parse(key)
        return await self._run(self._places.list_subpaths, session.project, session.session)

    # Work in threads

    async def _run(self, call: Callable[..., ResultT], *arguments: object) -> ResultT:
        if not self._threads:
            return call(*arguments)
        from sessiontree.adapters.worker_threads import run_write  # anyio is installed with the SDK

        return await run_write(functools.partial(call, *arguments))

    def _append(self, key: Key, lines: list[_Line], metadata: Mapping[str, Any] | None) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._append_once(key, lines)
                break
            except (ExistsError, NotFoundError, ReplacedError):  # another process created or deleted it just now
                if attempt == _ATTEMPTS - 1:
                    raise
        self._places.note_change(key)
        if metadata is not None:
            self._places.write_metadata(key, metadata)

    def _append_once(self, key: Key, lines: list[_Line]) -> None:
        transcript = self._find(key)
        if transcript is None:
            self._places.store(key).create([_joined(_without_repeats(lines))])
            return
        try:
            transcript.append(lines)
        except BaseException:
            self._forget(key)  # its state is unknown: the next call reads it again
            raise

    def _load(self, key: Key) -> list[Entry] | None:
        for _ in range(_ATTEMPTS):
            try:
                transcript = self._find(key)
                if transcript is None:
                    return None
                return transcript.load(self._report_for(key) if self._recover else None)
            except (NotFoundError, ReplacedError):  # deleted or replaced since it was opened
                self._forget(key)
        return None

    def _report_for(self, key: Key) -> Callable[[str, str | None, str, str], object]:
        return lambda uuid, missing, parent, why: self._on_recovery(Recovery(key.fields(), uuid, missing, parent, why))

    def _list_sessions(self, project: str) -> list[dict[str, Any]]:
        return [{"session_id": id, "mtime": _milliseconds(stat)} for id, stat in self._newest_first(project)]

    def _newest_first(self, project: str) -> list[tuple[str, SessionStat]]:
        # The SDK sorts by milliseconds with a stable sort, so this order decides between equal ones.
        return sorted(self._places.iter_stats(project), key=lambda one: one[1].changed, reverse=True)

    def _list_summaries(self, project: str) -> list[dict[str, Any]]:
        # A summary is a fold of the lines in order. So it is computed here from the lines since the last listing, and
        # an append needs no second write that could fail or be lost in a race.
        documents, name = self._places.documents, _summaries_name(project)
        known = parse_object(documents.read(name) or b"{}")
        current: Entry = {}
        summaries: list[dict[str, Any]] = []
        for id, stat in self._newest_first(project):
            key = Key(project, id)
            try:
                current[id] = self._summarize(key, stat, known.get(id))
            except (NotFoundError, ReplacedError):  # deleted since it was listed
                continue
            summaries.append({"session_id": id, "mtime": _milliseconds(stat), "data": current[id]["data"]})
        if current != known:
            documents.update(name, lambda _: render_json(current) if current else None)
        return summaries

    def _summarize(self, key: Key, stat: SessionStat, known: object) -> Entry:
        match known:
            case {"size": int(start), "identity": stat.identity, "data": dict(data)} if start <= stat.size:
                summary: Entry | None = {"session_id": key.session, "mtime": 0, "data": data}
            case _:
                start, summary = 0, None
        if summary is None or start < stat.size:
            fold = importlib.import_module("claude_agent_sdk").fold_session_summary
            new = read_bytes(self._places.store(key), start, stat.size - start)
            complete = new[: new.rfind(b"\n") + 1]
            entries = [_unwrap(entry) for _, line in iter_lines(complete) if (entry := parse_object(line))]
            summary = fold(summary, key.fields(), entries)
            start += len(complete)
        return {"size": start, "identity": stat.identity, "data": summary["data"]}

    def _delete(self, key: Key) -> None:
        with self._lock:
            for known in [known for known in self._transcripts if _belongs_to(known, key)]:
                del self._transcripts[known]
        self._places.delete(key)

    # Open transcripts

    def _find(self, key: Key) -> _Transcript | None:
        """The transcript of a key, opened if necessary; None if there is none."""
        with self._lock:
            found = self._transcripts.get(key)
            if found is not None:
                self._transcripts.move_to_end(key)
                return found
        store = self._places.store(key)
        if not store.exists():
            return None
        opened = _Transcript(open_store(store, repository=self._places.repository, dialect=CLAUDE_AGENT_SDK_DIALECT))
        with self._lock:
            found = self._transcripts.setdefault(key, opened)
            while len(self._transcripts) > _OPEN_TRANSCRIPTS:
                self._transcripts.popitem(last=False)  # a thread may still use it: it closes when the last one is done
            return found

    def _forget(self, key: Key) -> None:
        with self._lock:
            self._transcripts.pop(key, None)


class _Line(Struct, frozen=True):
    uuid: str
    """Empty if the entry has none."""
    raw: bytes


class _Transcript:
    """An open transcript, with the uuids of lines outside of the tree. Threads may share it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._identity = file_identity(session)
        self._lock = threading.Lock()
        self._metadata_uuids: set[str] = set()
        self._read = 0
        """Number of lines whose uuids are known."""

    def append(self, lines: Sequence[_Line]) -> None:
        """Append the lines whose uuid is not in the file."""
        session = self._session
        # The engine knows the ids of messages. Other lines, such as titles, have uuids that only we compare, so no
        # other writer may append between the comparison and the write.
        with self._lock, session.journal.store.exclusive():
            session.refresh()
            self._read_uuids()
            new = [line.raw for line in _without_repeats(lines) if not self._has(line.uuid)]
            if new:
                session.append_lines(new)

    def load(self, report: Callable[[str, str | None, str, str], object] | None) -> list[Entry]:
        """All entries in file order. With `report`, lost parents are replaced and reported."""
        with self._lock:
            if file_identity(self._session) != self._identity:
                raise ReplacedError(f"{self._session.location}: was deleted or replaced. Open it again.")
            self._session.refresh()
            journal = self._session.journal
            entries = [_unwrap(fields) for fields in journal.fields(range(len(journal)))]
            if report is not None:
                ids = journal.tree.ids
                for found in journal.dialect.find_reparentings(journal):
                    entry = entries[found.node]
                    report(ids[found.node], entry.get("parentUuid"), ids[found.parent], found.why)
                    entry["parentUuid"] = ids[found.parent]
            return entries

    def _has(self, uuid: str) -> bool:
        return bool(uuid) and (uuid in self._metadata_uuids or uuid in self._session)

    def _read_uuids(self) -> None:
        journal = self._session.journal
        end = len(journal)
        nodes = [node for node in range(self._read, end) if is_metadata_id(journal.tree.ids[node])]
        for raw in journal.iter_lines(nodes):
            if b'"uuid"' in raw and (uuid := _uuid_of(_unwrap(parse_object(raw)))):
                self._metadata_uuids.add(uuid)
        self._read = end


# Where transcripts are stored


class _Places(Protocol):
    """Maps keys to stores, and lists what is stored."""

    @property
    def repository(self) -> SessionRepository | None:
        """The repository of all transcripts; None for the folder of a client."""
        ...

    @property
    def documents(self) -> DocumentStore: ...

    def store(self, key: Key) -> SessionStore: ...

    def iter_stats(self, project: str) -> Iterator[tuple[str, SessionStat]]:
        """The sessions of a project with their ids."""
        ...

    def list_subpaths(self, project: str, session: str) -> list[str]: ...

    def note_change(self, key: Key) -> None:
        """Record the exact time of a change, where the storage does not."""
        ...

    def write_metadata(self, key: Key, metadata: Mapping[str, Any]) -> None: ...

    def delete(self, key: Key) -> None: ...


class _Folder:
    """Transcripts in a folder that is laid out like Claude Code's configuration folder."""

    repository = None

    def __init__(self, folder: str) -> None:
        home = os.path.abspath(os.path.expanduser(folder))
        self._projects = os.path.join(home, "projects")
        self.documents: DocumentStore = FileDocuments(home)
        self._lock = threading.Lock()
        self._last_change = 0

    def store(self, key: Key) -> SessionStore:
        return FileStore(self._path(key))

    def iter_stats(self, project: str) -> Iterator[tuple[str, SessionStat]]:
        for path in sorted(_files_in(os.path.join(self._projects, project))):
            with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                stat = os.stat(path)
                id = os.path.basename(path).removesuffix(".jsonl")
                yield id, SessionStat(SessionRef(path), id, stat.st_size, stat.st_mtime_ns, stat.st_ino)

    def list_subpaths(self, project: str, session: str) -> list[str]:
        top = os.path.join(self._projects, project, session)
        files = (path for folder, _, _ in os.walk(top) for path in _files_in(folder))
        return sorted(os.path.relpath(path, top).removesuffix(".jsonl").replace(os.sep, "/") for path in files)

    def note_change(self, key: Key) -> None:
        # The kernel's clock for file times advances only every few milliseconds. The SDK sorts sessions by
        # milliseconds, so this store never gives two appends the same one.
        with self._lock:
            after = (self._last_change // 1_000_000 + 1) * 1_000_000
            now = self._last_change = max(time.time_ns(), after)
        with contextlib.suppress(FileNotFoundError):  # deleted just now
            os.utime(self._path(key), ns=(now, now))

    def write_metadata(self, key: Key, metadata: Mapping[str, Any]) -> None:
        if key.subpath:
            fields = {name: value for name, value in metadata.items() if name != "type"}
            write_file(self._metadata_path(key), render_json(fields))

    def delete(self, key: Key) -> None:
        path = self._path(key)
        try:
            delete_file(path)
        except NotFoundError:  # there may be transcripts of sub-agents alone
            import shutil

            shutil.rmtree(path.removesuffix(".jsonl"), ignore_errors=True)
        if key.subpath:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._metadata_path(key))

    def _path(self, key: Key) -> str:
        return os.path.join(self._projects, key.project, key.session, key.subpath).rstrip(os.sep) + ".jsonl"

    def _metadata_path(self, key: Key) -> str:
        return self._path(key).removesuffix(".jsonl") + ".meta.json"


class _RepositoryPlaces:
    """Transcripts in a repository, whose ids are made from keys: `<session>.<hash of project>[.<subpath>]`."""

    def __init__(self, address: str) -> None:
        self.repository: SessionRepository = open_repository(address)
        self.documents = self.repository.documents

    def store(self, key: Key) -> SessionStore:
        id = _repository_id(key)
        try:
            return self.repository.open(SessionRef(id, self.repository.home))
        except NotFoundError:
            return self.repository.new(id, timestamp=timestamp(), cwd="/")

    def iter_stats(self, project: str) -> Iterator[tuple[str, SessionStat]]:
        digest = _project_digest(project)
        for stat in self.repository.iter_stats():
            match stat.id.split("."):
                case [session, found] if found == digest:
                    yield _unescape(session), stat

    def list_subpaths(self, project: str, session: str) -> list[str]:
        return sorted(_unescape(stat.id.split(".")[2]) for stat in self._subkeys(project, session))

    def note_change(self, key: Key) -> None:
        """The repository knows the time of each append."""

    def write_metadata(self, key: Key, metadata: Mapping[str, Any]) -> None:
        """The client reads no database, so the line in the transcript is enough."""

    def delete(self, key: Key) -> None:
        doomed = [SessionRef(_repository_id(key), self.repository.home)]
        if not key.subpath:
            doomed += [stat.ref for stat in self._subkeys(key.project, key.session)]
        for ref in doomed:
            with contextlib.suppress(NotFoundError):
                self.repository.delete(ref)

    def _subkeys(self, project: str, session: str) -> list[SessionStat]:
        prefix = _repository_id(Key(project, session)) + "."
        return [stat for stat in self.repository.iter_stats() if stat.id.startswith(prefix)]


def _repository_id(key: Key) -> str:
    parts = [_escape(key.session), _project_digest(key.project)]
    if key.subpath:
        parts.append(_escape(key.subpath))
    return ".".join(parts)


def _project_digest(project: str) -> str:
    return sha256(project.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _escape(text: str) -> str:
    """Any text in the characters of a session id except the dot: others become `_` and two hex digits per byte."""
    escaped = re.sub(
        r"[^A-Za-z0-9-]|-\Z",
        lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass")),
        text,
    )
    return escaped if escaped[:1].isalnum() else f"0__{escaped}"


def _unescape(text: str) -> str:
    data = re.sub(
        rb"_([0-9a-f]{2})",
        lambda found: bytes([int(found[1], 16)]),
        text.removeprefix("0__").encode("ascii", "replace"),
    )
    return data.decode("utf-8", "surrogatepass")


def _files_in(folder: str) -> list[str]:
    """The transcripts directly in a folder, which need not exist. Links are not followed."""
    try:
        with os.scandir(folder) as found:
            return [one.path for one in found if one.name.endswith(".jsonl") and one.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


# Keys and lines


def _check_name(what: str, name: object) -> str:
    """A part of a key that is safe as a file name; `UsageError` for any other."""
    if not isinstance(name, str) or not name or name in (".", "..") or re.search(r"[/\\\x00]", name):
        raise UsageError(f"{what}: {str(name)[:80]!r} cannot be part of a path; use a name without '/' and '..'")
    return name


def _belongs_to(key: Key, deleted: Key) -> bool:
    is_same_session = (key.project, key.session) == (deleted.project, deleted.session)
    return is_same_session and (not deleted.subpath or key.subpath == deleted.subpath)


def _render(entry: Mapping[str, Any]) -> bytes:
    """An entry as a line. The SDK passes any object on; one without a type goes into a metadata line of our own."""
    has_type = isinstance(entry.get("type"), str) and entry["type"] != ""
    return render_json(entry if has_type else {"type": PASSTHROUGH, _UNTYPED: entry})


def _unwrap(fields: Entry) -> Entry:
    untyped = fields.get(_UNTYPED) if fields.get("type") == PASSTHROUGH else None
    return untyped if isinstance(untyped, dict) else fields


def _uuid_of(entry: Mapping[str, Any]) -> str:
    uuid = entry.get("uuid")
    return uuid if isinstance(uuid, str) else ""


def _without_repeats(lines: Iterable[_Line]) -> list[_Line]:
    """The first line of each uuid, and all lines without one."""
    seen: set[str] = set()
    kept: list[_Line] = []
    for line in lines:
        if line.uuid not in seen:
            kept.append(line)
            if line.uuid:
                seen.add(line.uuid)
    return kept


def _joined(lines: Iterable[_Line]) -> bytes:
    return b"".join(line.raw + b"\n" for line in lines)


def _milliseconds(stat: SessionStat) -> int:
    return stat.changed // 1_000_000


def _summaries_name(project: str) -> str:
    return f"sessiontree-summaries-{_project_digest(project)}.json"


def _log_recovery(found: Recovery) -> None:
    _log.warning("%s: the parent of %s is missing; loaded as a child of %s", found.key, found.uuid, found.parent)
