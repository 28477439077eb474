"""Resume a session in its agent, or in another one.

A session that the agent can find itself is resumed in place. For another agent, a converted copy with all branches is
installed first.
"""

from __future__ import annotations

import argparse

from sessiontree.app.actions.convert import ConvertPlan, check_target, conversion_fields
from sessiontree.cli import output
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_for_reading, remember_session
from sessiontree.conversion.launch import plan_resumption, start_agent
from sessiontree.views.text import clean

EXAMPLES = """examples:
  sessiontree resume 019c2f3a --in claude
  sessiontree resume ~/.claude/projects/-work/4f1c.jsonl --in pi --print

--print also installs the converted copy, but does not start the agent."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "--in", dest="agent", metavar="AGENT", help="claude, pi, omp or neovate (default: the session's own agent)"
    )
    parser.add_argument("--cwd", metavar="DIR", help="the folder to work in (default: the session's folder)")
    parser.add_argument("--print", dest="show", action="store_true", help="print the command instead of running it")
    add_read_options(parser)


def run(options: Options) -> None:
    session = open_for_reading(options)
    resumption = plan_resumption(session, check_target(options.agent) if options.agent else None, options.cwd)
    path = session.location if resumption.plan is None else resumption.plan.path

    def remember() -> None:
        remember_session(path, resumption.cwd, options)

    if not options.show and not options.json:
        start_agent(session, resumption, remember)
        return
    if resumption.plan is not None:
        ConvertPlan(session, resumption.plan).do()
    remember()
    if options.json:
        installed = None if resumption.plan is None else conversion_fields(resumption.plan)
        output.print_json(
            {"session": session.id, "command": list(resumption.command), "cwd": resumption.cwd, "installed": installed}
        )
    else:
        output.print_lines([clean(resumption.shell_line)])
