"""Resume a session in an agent: convert it, install it where that agent finds it, and start the agent."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping

from msgspec import Struct

from sessiontree import plugins
from sessiontree.conversion.convert import BranchChoice
from sessiontree.conversion.copies import Copy, CopyFile, origin_of
from sessiontree.conversion.install import Plan, Request, check_not_empty, find_destination, install, make_plan
from sessiontree.core.ids import session_word
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.dialects.contract import Dialect, ReadOptions
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.session.reader import CURRENT
from sessiontree.session.session import Session


class Resumption(Struct, frozen=True):
    """The command that resumes a session, the directory to run it in, and the conversion to do first."""

    command: tuple[str, ...]
    cwd: str
    plan: Plan | None = None
    copy: Copy | None = None
    """A copy from an earlier conversion, which is resumed again."""

    @property
    def shell_line(self) -> str:
        """The command for a user to paste into a shell."""
        return f"cd {shlex.quote(self.cwd)} && {shlex.join(self.command)}"


def plan_resumption(
    session: Session,
    agent: str | None = None,
    cwd: str | None = None,
    environment: Mapping[str, str] = os.environ,
    copies: CopyFile | None = None,
) -> Resumption:
    """Plan how an agent resumes a session; by default the agent it belongs to. Writes nothing.

    With `copies`, an up-to-date copy of the session is reused instead of creating a new one.
    """
    if (agent or session.dialect.name) == DEFAULT_DIALECT:
        here = f"sessiontree chat --session {session_word(session.id, session.location)}"
        if agent is None:
            what = f"a {DEFAULT_DIALECT} session belongs to no agent; choose one with --in, or continue it here: {here}"
        else:
            what = f"{DEFAULT_DIALECT} is a format, not an agent; continue the session here: {here}"
        raise UsageError(f"{session.location}: {what}")
    agent = agent or session.dialect.name
    folder = (session.cwd or os.getcwd()) if cwd is None else os.path.realpath(cwd)
    if agent == session.dialect.name and cwd is None:
        meta = SessionMeta(session.id, session.header.timestamp, folder, origin=session.location)
        command = resume_in_place(session.dialect, meta, session.location, environment)
        if command is not None:
            return Resumption(command, folder)
    # Other read options produce a different copy.
    if copies is not None and session.read_options == ReadOptions():
        found = copies.find_current(session, agent, folder)
        if found is not None:
            return Resumption(found.command, found.cwd, copy=found)
    check_not_empty(session)
    target: Dialect = plugins.load("dialects", agent)
    branch = branches_for(target)
    # A copy for the session's own agent is a fork, which that agent finds: oh-my-pi and xcsh share a dialect.
    is_fork = agent == session.dialect.name
    plan = make_plan(session, Request(agent, branch=branch, cwd=cwd, fork=is_fork), environment)
    return Resumption(plan.resume, plan.cwd, plan)


def branches_for(target: Dialect) -> BranchChoice:
    """Which branches a copy for another agent has: all of them, if the agent has branches."""
    return "active" if target.traits.is_linear else "all"


def resume_in_place(
    dialect: Dialect, meta: SessionMeta, path: str, environment: Mapping[str, str] = os.environ
) -> tuple[str, ...] | None:
    """The client's command for a session that is where the client keeps its files; None if it is elsewhere."""
    own = find_destination(dialect, meta, environment)
    if own.install:
        return None  # the client keeps its sessions elsewhere
    folder, own_folder = os.path.dirname(os.path.realpath(path)), os.path.dirname(os.path.realpath(own.path))
    if dialect.traits.finds_ids_in_all_folders:
        folder, own_folder = os.path.dirname(folder), os.path.dirname(own_folder)
    if folder != own_folder:
        return None
    # A file keeps the name that its client or the user gave it, which does not have to be the one we would give it.
    return tuple(path if part == own.path else part for part in own.resume)


def install_copy(session: Session, plan: Plan, copies: CopyFile | None = None) -> Session:
    """Install a planned copy, and record it. A copy that `plan_resumption` would not make is listed, but not reused."""
    written = install(session, plan)
    if copies is not None:
        copies.add(
            Copy(
                origin_of(session),
                session.journal.size,
                session.leaf,
                plan.request.to,
                os.path.realpath(plan.path),
                plan.id,
                plan.cwd,
                plan.resume if _is_complete(session, plan.request) else (),
            )
        )
    return written


def _is_complete(session: Session, request: Request) -> bool:
    """Whether a copy is the one that resuming the session would make."""
    if session.read_options != ReadOptions() or request.at is not CURRENT:
        return False
    target: Dialect = plugins.load("dialects", request.to)
    return request.branch in ("all", branches_for(target)) or len(session.leaves()) <= 1


def start_agent(
    session: Session, resumption: Resumption, before_start: Callable[[], None], copies: CopyFile | None = None
) -> None:
    """Do the planned conversion and replace this process with the agent. Returns only by raising.

    `before_start` is called last, when nothing else can fail.
    """
    program = check_startable(resumption)
    if resumption.plan is not None:
        install_copy(session, resumption.plan, copies)
    before_start()
    os.chdir(resumption.cwd)
    os.environ["PWD"] = resumption.cwd  # some clients take the folder from there
    os.execv(program, resumption.command)  # noqa: S606 - no shell is what we want


def check_startable(resumption: Resumption) -> str:
    """The path of the agent's program; an error if it or the folder is missing."""
    program = shutil.which(resumption.command[0])
    if program is None:
        raise NotFoundError(
            f"{resumption.command[0]} is not installed or not on the PATH; nothing was written. "
            f"`--print` shows the command to run elsewhere"
        )
    if not os.path.isdir(resumption.cwd):
        raise NotFoundError(
            f"{resumption.cwd}: the session's directory does not exist; choose another one with --cwd DIR"
        )
    return program
