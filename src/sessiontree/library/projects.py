"""Whether two folders are the same project.

A project is known by its real path and by its repository. Two folders are the same project when

* they have the same real path, or lie in working trees of one repository on this machine (worktrees, subfolders); or
* their repositories have a network remote in common; or, where at least one of them has none, the same first commit.

Two repositories that have network remotes, but none in common, are different projects, also with the same first
commit: forks, and what was made from one template.

A session only records the folder it worked in. Which repository a folder belongs to is remembered as soon as it is
seen, in `projects.jsonl` in the home folder: not in the cache, because it cannot be found out any more once the folder
is gone. Names of the agents' own folders never decide anything: `/a-b` and `/a/b` share one there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import msgspec

from sessiontree.core.jsonio import Value, render_json
from sessiontree.git.repository import Repository, find_repository, has_commits, read_first_commit

_FILE = "projects.jsonl"


class Project(Value, frozen=True):
    """A folder someone works in, and the repository it belongs to, as it was seen."""

    cwd: str
    real: str
    git_folder: str = ""
    git_identity: str = ""
    remotes: tuple[str, ...] = ()
    first_commit: str | None = None
    """Empty when git was asked and did not tell: it is asked once, however often someone works there."""
    seen: int = 0
    """When, in milliseconds since 1970."""

    @property
    def has_repository(self) -> bool:
        """Whether anything is known of its repository that is worth remembering."""
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
    """The projects of folders, today and as they are remembered."""

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, _FILE)
        self._memory: dict[str, list[Project]] | None = None
        self._today: dict[str, Project | None] = {}

    def of(self, folder: str) -> Project:
        """The project of a folder as it is today; what is learned of its repository is remembered."""
        found = self._find_today(folder)
        return found if found is not None else Project(folder, os.path.realpath(folder))

    def notice(self, folders: Iterable[str]) -> None:
        """Look at some folders, so that they are known again when they are gone."""
        for folder in folders:
            if folder:
                self._find_today(folder)

    def is_of(self, cwd: str, at: int, project: Project) -> bool:
        """Whether work in a folder at some time belongs to a project.

        The path decides first. Where a folder has been that of several repositories, the one that was seen there last
        before that time counts.
        """
        if not cwd:
            return False
        today = self._find_today(cwd)
        if cwd in (project.cwd, project.real) or (today is not None and today.real == project.real):
            return True
        known = self._memories().get(cwd, [])
        if known:
            then = next((record for record in reversed(known) if record.seen <= at), known[0])
            if then is known[-1] and today is not None:
                return today.is_same(project)
            return then.real == project.real or then.has_same_repository(project)
        return today is not None and today.is_same(project)

    def _find_today(self, folder: str) -> Project | None:
        if folder not in self._today:
            self._today[folder] = self._look(folder)
        return self._today[folder]

    def _look(self, folder: str) -> Project | None:
        if not os.path.isabs(folder) or "\x00" in folder or not os.path.isdir(folder):
            return None
        real = os.path.realpath(folder)
        repository = find_repository(real)
        if repository is None:
            return Project(folder, real)
        known = self._memories().get(folder, [])
        identity = repository.identity
        same = next((record for record in reversed(known) if _is_unchanged(record, repository, identity)), None)
        first_commit = same.first_commit if same is not None else None
        if first_commit is None:
            first_commit = self._first_commit_elsewhere(repository, identity)
        if first_commit is None and has_commits(repository):
            first_commit = read_first_commit(repository) or ""
        found = Project(
            folder, real, repository.git_folder, identity, repository.remotes, first_commit, _now() if known else 0
        )
        if found.has_repository and (not known or not _is_equal(known[-1], found)):
            self._remember(found)
        return found

    def _first_commit_elsewhere(self, repository: Repository, identity: str) -> str | None:
        """What another folder of the same repository has told already, today or before."""
        remembered = (records[-1] for records in self._memories().values())
        known = (project for project in (*self._today.values(), *remembered) if project is not None)
        for project in known:
            if project.git_folder == repository.git_folder and _is_unchanged(project, repository, identity):
                return project.first_commit
        return None

    def _memories(self) -> dict[str, list[Project]]:
        if self._memory is None:
            self._memory = {}
            for line in _read_lines(self._path):
                try:
                    record = _decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    continue  # torn by a crash, or of a newer version: it is learned again
                self._memory.setdefault(record.cwd, []).append(record)
        return self._memory

    def _remember(self, project: Project) -> None:
        self._memories().setdefault(project.cwd, []).append(project)
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, render_json(project) + b"\n")
            finally:
                os.close(descriptor)
        except OSError:
            return  # a home that cannot be written remembers nothing; listing goes on


def _is_unchanged(record: Project, repository: Repository, identity: str) -> bool:
    return bool(identity) and record.git_identity == identity and record.remotes == repository.remotes


def _is_equal(one: Project, other: Project) -> bool:
    return (one.real, one.remotes, one.first_commit) == (other.real, other.remotes, other.first_commit)


def _read_lines(path: str) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _now() -> int:
    return time.time_ns() // 1_000_000
