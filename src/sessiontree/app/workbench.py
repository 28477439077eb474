"""The services of a long-running front end: the library, the archive, the settings and a working folder.

All methods may be called from any thread.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessiontree import plugins
from sessiontree.core.ids import session_word
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import AS_CLIENT, ReadOptions
from sessiontree.errors import DamagedError, UsageError
from sessiontree.library.library import Library
from sessiontree.library.roots import dialect_named
from sessiontree.library.summary import Summary
from sessiontree.session.open import open as open_path
from sessiontree.session.session import Session
from sessiontree.settings import Settings
from sessiontree.stores.contract import ArchiveRepository
from sessiontree.stores.repositories import find_ref, home_folder, is_address, open_repository

if TYPE_CHECKING:
    from sessiontree.app.actions.contract import ActionPlan, Description
    from sessiontree.archive.archive_home import Home
    from sessiontree.search.results import Hit


class Workbench:
    """The sessions of one user, and everything that can be done with them."""

    def __init__(self, library: Library, cwd: str, settings: Settings | None = None) -> None:
        self.library = library
        self.cwd = os.path.abspath(cwd)
        self.settings = settings or Settings()
        self.now: Callable[[], float] = time.time
        """The clock that ages are counted from."""
        self._lock = threading.Lock()
        self._scope: dict[str, bool] = {}
        self.problem = ""
        """Why tags and pins could not be read the last time; empty if they could."""

    @functools.cached_property
    def home(self) -> Home:
        """Archive and tags, of our home folder and of the repository. It is loaded after the first frame."""
        from sessiontree.archive.archive_home import Home

        repository = open_repository(self.library.home) if is_address(self.library.home) else None
        return Home(
            home_folder(self.library.home),
            environment=self.library.environment,
            repository=repository if isinstance(repository, ArchiveRepository) else None,
            only_repository=self.library.only_home,
        )

    # Sessions

    def is_in_project(self, summary: Summary) -> bool:
        """Whether a session belongs to the project of the working folder."""
        with self._lock:
            known = self._scope.get(summary.cwd)
            if known is None:
                known = self._scope[summary.cwd] = self.library.belongs(summary, self.cwd)
            return known

    def open_session(self, summary: Summary, read_options: ReadOptions = AS_CLIENT) -> Session:
        return open_path(summary.ref, home=self.library.home, dialect=summary.agent, read_options=read_options)

    def read_tags(self) -> tuple[dict[str, tuple[str, ...]], frozenset[str]]:
        """Tags by the reference of their session, and the references of pinned sessions.

        Tags of the user come first, then those of the agent. See `problem` if the user's cannot be read.
        """
        try:
            marked = self.home.all_tags()
            self.problem = ""
        except DamagedError as error:
            marked = []
            self.problem = f"tags are not shown: {error}"
        records = {(record.session, record.path): record for record in marked}
        by_id: dict[str, list[Any]] = {}
        for record in records.values():
            by_id.setdefault(record.session, []).append(record)
        tags: dict[str, tuple[str, ...]] = {}
        pinned: set[str] = set()
        for summary in self.library.snapshot().sessions:
            found = records.get((summary.id, summary.ref)) or next(iter(by_id.get(summary.id, ())), None)
            own = () if found is None else found.tags
            if own or summary.tags:
                tags[summary.ref] = tuple(dict.fromkeys((*own, *summary.tags)))
            if found is not None and found.pinned:
                pinned.add(summary.ref)
        return tags, frozenset(pinned)

    def search(self, query: str, limit: int = 60, *, in_project: bool = False) -> list[Hit]:
        """Search the text of all sessions, or of those in the project of the working folder; one hit for each."""
        project = self.cwd if in_project else None
        return list(self.library.search(query, limit=limit, per_session=1, project=project))

    def filter_values(self, sessions: Iterable[Summary], tags: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """The values that filters of a query can have, the most frequent first."""
        agents: dict[str, int] = {}
        projects: dict[str, int] = {}
        models: dict[str, int] = {}
        for summary in sessions:
            for counts, value in (
                (agents, summary.agent),
                (projects, summary.cwd.rpartition("/")[2]),
                (models, summary.model or ""),
            ):
                if value:
                    counts[value] = counts.get(value, 0) + 1
        names = sorted({tag for of_session in tags.values() for tag in of_session})

        def ranked(counts: dict[str, int]) -> list[str]:
            return sorted(counts, key=lambda value: -counts[value])

        ages = ("1d", "7d", "30d")
        found = {"agent": ranked(agents), "model": ranked(models), "project": ranked(projects), "tag": names}
        return {**found, "since": ages, "before": ages}

    # Resuming

    def agents(self) -> list[str]:
        """The agents that a session can be resumed in."""
        return [name for name in plugins.names("dialects") if name != DEFAULT_DIALECT]

    def is_native(self, summary: Summary) -> bool:
        """Whether a session belongs to no other agent, so that the chat continues it."""
        return summary.agent == DEFAULT_DIALECT or bool(find_ref(summary.ref).home)

    def resume_command(self, summary: Summary) -> str:
        """The command that resumes a session, for a shell. Opens no file."""
        if self.is_native(summary):
            word = session_word(summary.id if summary.is_file else "", summary.ref)
            return f"sessiontree chat --session {word}"
        from sessiontree.conversion.launch import resume_in_place

        meta = SessionMeta(summary.id, "", summary.cwd, origin=summary.ref)
        try:
            command = resume_in_place(dialect_named(summary.agent), meta, summary.ref, self.library.environment)
        except UsageError:  # no folder can have the name of the session's; `resume` reports it
            command = None
        if command is None or not summary.cwd:
            return f"sessiontree resume {session_word(summary.id, summary.ref)}"
        return f"cd {shlex.quote(summary.cwd)} && {shlex.join(command)}"

    def find_missing_program(self, summary: Summary) -> str | None:
        """The program of the session's agent, if it is not installed."""
        from sessiontree.conversion.install import find_destination

        meta = SessionMeta(summary.id, "", summary.cwd, origin=summary.ref)
        try:
            command = find_destination(dialect_named(summary.agent), meta, self.library.environment).resume
        except UsageError:  # as above
            return None
        is_missing = bool(command) and shutil.which(command[0]) is None
        return command[0] if is_missing else None

    def with_short_paths(self, command: str) -> str:
        """A command or a path with `~` for the home folder, where a shell would expand it."""
        home = os.path.expanduser("~").rstrip("/")
        return re.sub(rf"(^|(?<= )){re.escape(home)}(?=/)", "~", command) if home else command

    def describe_conversion(self, summary: Summary, agent: str) -> Description:
        """What resuming in another agent would write, and what would be lost."""
        from sessiontree.app.actions.contract import Description
        from sessiontree.app.actions.convert import ConvertPlan
        from sessiontree.conversion.launch import plan_resumption

        session = self.open_session(summary)
        resumption = plan_resumption(session, agent, environment=self.library.environment)
        if resumption.plan is None:
            return Description("resume", f"resume: {resumption.shell_line}")
        return ConvertPlan(session, resumption.plan).describe()

    # Actions

    def plan(self, name: str, session: Summary | Session, /, **arguments: Any) -> ActionPlan[Any]:
        """Plan an action of the table `ACTIONS`."""
        from sessiontree.app.actions.table import ACTIONS, Subject

        opened = session if isinstance(session, Session) else self.open_session(session)
        action, subject = ACTIONS[name], Subject(opened, self.home, self.settings)
        why_not = action.why_not(subject)
        if why_not is not None:
            raise UsageError(f"{action.title}: not possible: {why_not}")
        return action.plan(subject, **arguments)

    def examine(self, session: Summary | Session) -> tuple[list[str], ActionPlan[Any] | None]:
        """The findings about a session as lines, and the plan of their repair; None if nothing can be repaired."""
        from sessiontree.repair import examine

        opened = session if isinstance(session, Session) else self.open_session(session)
        findings = examine(opened)
        if not findings:
            return ["No problems found."], None
        lines = [
            f"{finding.rule.id} ({finding.count}×): {finding.rule.meaning}{finding.cost and '; '}{finding.cost}"
            for finding in findings
        ]
        if not opened.ref.is_file:
            return lines, None
        plan = self.plan("repair", opened)
        return lines, None if plan.describe().nothing else plan
