"""Projects: whether two folders belong together.

A project is identified by its real path and its repository. Two folders are the same project if

* they have the same real path, or are in working trees of one repository on this machine (worktrees, subfolders); or
* their repositories share a network remote or, if at least one of them has none, the first commit.

Two repositories that have network remotes, but none in common, are different projects even with the same first commit.
They are forks, or made from one template.

A session records only its working folder. The repository of a folder is recorded when it is first seen, in
`projects.jsonl` in the home folder. It is not in the cache because it cannot be derived once the folder is gone. Names
of the agents' own folders are never used: there `/a-b` and `/a/b` share one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable

import msgspec

from sessiontree.core.jsonio import Value, render_json
from sessiontree.git.repository import Repository, find_repository, has_commits, read_first_commit

_FILE = "projects.jsonl"


class Project(Value, frozen=True):
    """A working folder and its repository, as they were seen at some time."""

    cwd: str
    real: str
    git_folder: str = ""
    git_identity: str = ""
    remotes: tuple[str, ...] = ()
    first_commit: str | None = None
    """None if unknown; empty if git found none, so that git is not asked again."""
    seen: int = 0
    """Milliseconds since 1970."""

    @property
    def has_repository(self) -> bool:
        """Whether anything is known of a repository."""
        return bool(self.remotes) or self.first_commit is not None

    def is_same(self, other: Project) -> bool:
        if self.real == other.real or (self.git_folder and self.git_folder == other.git_folder):
            return True
        return self.has_same_repository(other)

    def has_same_repository(self, other: Project) -> bool:
        if self.remotes and other.remotes:
            return not set(self.remotes).isdisjoint(other.remotes)
        return bool(self.first_commit) and self.first_commit == other.first_commit


_decode = msgspec.json.Decoder(Project).decode


class Projects:
    """Current and recorded projects of folders, for any thread."""

    def __init__(self, home: str | None, *, reads_folders: bool = True) -> None:
        """`home` is the folder where they are recorded; None records nothing.

        Without `reads_folders`, paths alone are compared: sessions of users of another machine name folders there.
        """
        self._reads_folders = reads_folders
        self._lock = threading.RLock()
        self._path = None if home is None else os.path.join(home, _FILE)
        self._memory: dict[str, list[Project]] | None = None
        self._today: dict[str, Project | None] = {}

    def of(self, folder: str) -> Project:
        """The current project of a folder; records what is new about its repository."""
        found = self._find_today(folder)
        if found is not None:
            return found
        is_path = self._reads_folders and "\x00" not in folder
        return Project(folder, os.path.realpath(folder) if is_path else folder)

    def record(self, folders: Iterable[str]) -> None:
        """Record the projects of folders, so that they are known after the folders are gone."""
        for folder in folders:
            if folder:
                self._find_today(folder)

    def belongs_to(self, cwd: str, at: int, project: Project) -> bool:
        """Whether work in a folder at some time belongs to a project.

        The path decides first. If a folder has held several repositories, the last one seen before that time counts.
        """
        if not cwd:
            return False
        today = self._find_today(cwd)
        if cwd in (project.cwd, project.real) or (today is not None and today.real == project.real):
            return True
        known = self._load_records().get(cwd, [])
        if known:
            then = next((record for record in reversed(known) if record.seen <= at), known[0])
            if then is known[-1] and today is not None:
                return today.is_same(project)
            return then.real == project.real or then.has_same_repository(project)
        return today is not None and today.is_same(project)

    def _find_today(self, folder: str) -> Project | None:
        if folder not in self._today:
            with self._lock:
                self._today[folder] = self._read_file(folder)
        return self._today[folder]

    def _read_file(self, folder: str) -> Project | None:
        if not self._reads_folders or not os.path.isabs(folder) or "\x00" in folder or not os.path.isdir(folder):
            return None
        real = os.path.realpath(folder)
        repository = find_repository(real)
        if repository is None:
            return Project(folder, real)
        known = self._load_records().get(folder, [])
        identity = repository.identity
        same = next((record for record in reversed(known) if _is_unchanged(record, repository, identity)), None)
        first_commit = same.first_commit if same is not None else None
        if first_commit is None:
            first_commit = self._first_commit_elsewhere(repository, identity)
        if first_commit is None and has_commits(repository):
            first_commit = read_first_commit(repository) or ""
        # The first record of a folder has time 0, so that it also applies to older sessions.
        found = Project(
            folder, real, repository.git_folder, identity, repository.remotes, first_commit, _now() if known else 0
        )
        if found.has_repository and (not known or not _is_equal(known[-1], found)):
            self._remember(found)
        return found

    def _first_commit_elsewhere(self, repository: Repository, identity: str) -> str | None:
        """The first commit, if another folder of the same repository already has it on record."""
        remembered = (records[-1] for records in self._load_records().values())
        known = (project for project in (*self._today.values(), *remembered) if project is not None)
        for project in known:
            if project.git_folder == repository.git_folder and _is_unchanged(project, repository, identity):
                return project.first_commit
        return None

    def _load_records(self) -> dict[str, list[Project]]:
        with self._lock:
            if self._memory is None:
                self._memory = {}
                for line in _read_lines(self._path) if self._path is not None else ():
                    try:
                        record = _decode(line)
                    except (msgspec.MsgspecError, UnicodeDecodeError):
                        continue  # torn by a crash, or of a newer version: it is recorded again
                    self._memory.setdefault(record.cwd, []).append(record)
            return self._memory

    def _remember(self, project: Project) -> None:
        self._load_records().setdefault(project.cwd, []).append(project)
        if self._path is None:
            return
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # One write in append mode, so that lines of several processes do not mix.
                os.write(descriptor, render_json(project) + b"\n")
            finally:
                os.close(descriptor)
        except OSError:
            return  # without a writable home nothing is recorded; listings still work


def _is_unchanged(record: Project, repository: Repository, identity: str) -> bool:
    return bool(identity) and record.git_identity == identity and record.remotes == repository.remotes


def _is_equal(project: Project, other: Project) -> bool:
    return (project.real, project.remotes, project.first_commit) == (other.real, other.remotes, other.first_commit)


def _read_lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _now() -> int:
    return time.time_ns() // 1_000_000
