"""Resume a session in its agent, or in another one.

A session that the agent can find itself is resumed in place. For another agent, sessiontree first reports what changes,
then installs a converted copy with all branches. As long as the session does not change, that copy is reused. Without
SESSION, this project's newest session is offered.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time

from sessiontree.app.actions.convert import check_target, conversion_fields
from sessiontree.cli import output, stderr
from sessiontree.cli.convert import render_report
from sessiontree.cli.library_options import no_sessions, open_library
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_session, read_options_of, remember_session
from sessiontree.conversion.copies import CopyFile
from sessiontree.conversion.launch import Resumption, check_startable, install_copy, plan_resumption, start_agent
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.session.session import Session
from sessiontree.stores.repositories import home_folder, open_repository
from sessiontree.views.listing import age
from sessiontree.views.text import clean, one_line

EXAMPLES = """examples:
  sessiontree resume 019c2f3a --in claude
  sessiontree resume ~/.claude/projects/-work/4f1c.jsonl --in pi --print

--print writes nothing. If a copy is needed first, it prints the command that installs it and starts the agent."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session", metavar="SESSION", nargs="?", help="the session (default: offer this project's newest)"
    )
    parser.add_argument(
        "--in",
        dest="agent",
        metavar="AGENT",
        help="such as claude, codex, pi or opencode (default: the session's own agent)",
    )
    parser.add_argument("--cwd", metavar="DIR", help="the folder to work in (default: the session's folder)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--print", dest="show", action="store_true", help="only print the command; nothing is written")
    how.add_argument("--install", action="store_true", help="install the copy and print the agent's command")
    add_read_options(parser)


def run(options: Options) -> int | None:
    if options.session is None:
        options.session = _offer_newest(options)
        if options.session is None:
            return None
    session = open_session(options, read_options=read_options_of(options))
    agent = check_target(options.agent) if options.agent else None
    copies = CopyFile(open_repository(home_folder(options.home)).documents)
    resumption = plan_resumption(session, agent, options.cwd, copies=copies)
    if options.show:
        _print_plan(session, resumption, options)
        return None
    starts = not options.install and not options.json
    if starts:
        check_startable(resumption)
    _print_losses(resumption)

    def remember() -> None:
        remember_session(_path(session, resumption), resumption.cwd, options)

    if starts:
        start_agent(session, resumption, remember, copies)
        return None
    if resumption.plan is not None:
        install_copy(session, resumption.plan, copies)
    remember()
    if options.json:
        installed = None if resumption.plan is None else conversion_fields(resumption.plan)
        output.print_json({**_fields(session, resumption), "installed": installed})
    else:
        output.print_lines([clean(resumption.shell_line)])
    return None


def _print_plan(session: Session, resumption: Resumption, options: Options) -> None:
    """Print the command that resumes the session: the agent's, or ours if a copy has to be installed first."""
    if options.json:
        planned = None if resumption.plan is None else conversion_fields(resumption.plan)
        output.print_json({**_fields(session, resumption), "installed": None, "planned": planned})
        return
    _print_losses(resumption)
    if resumption.plan is None:
        output.print_lines([clean(resumption.shell_line)])
        return
    parts = ["sessiontree", "resume", options.session, *(["--in", options.agent] if options.agent else [])]
    parts += ["--cwd", options.cwd] if options.cwd else []
    parts += [f"--{name}" for name in ("recovered", "snips") if getattr(options, name)]
    parts += ["--as-of", options.as_of] if options.as_of != "now" else []
    output.print_lines([clean(shlex.join(parts))])
    stderr.print_line(f"nothing was written; this installs {resumption.plan.path} and starts the agent")


def _fields(session: Session, resumption: Resumption) -> dict[str, object]:
    return {
        "session": session.id,
        "command": list(resumption.command),
        "cwd": resumption.cwd,
        "reused": None if resumption.copy is None else resumption.copy.path,
    }


def _path(session: Session, resumption: Resumption) -> str:
    if resumption.plan is not None:
        return resumption.plan.path
    return session.location if resumption.copy is None else resumption.copy.path


def _print_losses(resumption: Resumption) -> None:
    """Report what a conversion changes and loses, or that an earlier copy is used."""
    if resumption.plan is not None:
        for line in render_report(resumption.plan.report):
            stderr.print_line(line)
    elif resumption.copy is not None:
        stderr.print_line(f"resuming the existing copy: {resumption.copy.path}")


def _offer_newest(options: Options) -> str | None:
    """The newest session of this project, if the user agrees; without a terminal, an error with the command."""
    with open_library(options) as library:
        found = library.newest(os.getcwd())
        if found is None:
            raise NotFoundError(no_sessions(library, os.getcwd(), "`sessiontree list --all`"))
    ago = age(found.recency, time.time())
    what = f"{one_line(found.title) or '(no title)'} ({found.agent}, {ago})"
    if not sys.stdin.isatty():
        raise UsageError(f"resume needs a session; the newest is {what}: sessiontree resume {shlex.quote(found.ref)}")
    stderr.print_line(f"Resume {what}? [Y/n]")
    return found.ref if sys.stdin.readline().strip().lower() in ("", "y", "yes") else None
