"""Going on with a session in an agent: where that agent finds it, and the command that starts it there."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping

from msgspec import Struct

from sessiontree.conversion.install import Plan, Request, carry_out, make_plan
from sessiontree.dialects.canonical import SessionMeta
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.session.session import Session


class Resumption(Struct, frozen=True):
    """The command that goes on with a session, the folder it is run in, and what has to be installed before."""

    command: tuple[str, ...]
    cwd: str
    plan: Plan | None = None

    @property
    def shell_line(self) -> str:
        """The same for a person to paste into a shell."""
        return f"cd {shlex.quote(self.cwd)} && {shlex.join(self.command)}"


def plan_resumption(
    session: Session, agent: str | None = None, cwd: str | None = None, environment: Mapping[str, str] = os.environ
) -> Resumption:
    """How an agent goes on with a session; by default the agent whose session it is. Writes nothing."""
    agent = agent or session.dialect.name
    if agent == "native":
        raise UsageError(f"{session.location}: is no other agent's session; say which agent shall go on with it (--in)")
    if agent == session.dialect.name and cwd is None:
        start = SessionMeta(session.id, session.header.timestamp, session.cwd)
        place = session.dialect.destination(start, environment)
        if os.path.dirname(os.path.realpath(session.location)) == os.path.dirname(os.path.realpath(place.path)):
            return Resumption(place.resume, session.cwd)
    plan = make_plan(session, Request(agent, branch="all", cwd=cwd), environment)
    return Resumption(plan.resume, plan.cwd, plan)


def start_agent(session: Session, resumption: Resumption, before_start: Callable[[], None]) -> None:
    """Install what has to be installed and become the agent. Does not return when that works.

    `before_start` is called at the last moment, when nothing stands in the way any more.
    """
    program = shutil.which(resumption.command[0])
    if program is None:
        raise NotFoundError(
            f"{resumption.command[0]} is not installed, or not on the PATH; nothing was written. "
            f"`--print` shows the command to run where it is"
        )
    if not os.path.isdir(resumption.cwd):
        raise NotFoundError(f"{resumption.cwd}: the folder of the session is not there; --cwd DIR names another one")
    if resumption.plan is not None:
        carry_out(session, resumption.plan)
    before_start()
    os.chdir(resumption.cwd)
    os.execv(program, resumption.command)  # noqa: S606 - no shell is what we want
