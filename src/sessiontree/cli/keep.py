"""Copy sessions to the archive, so nothing is lost when an agent deletes its old sessions.

The originals do not change. Run it again, by hand or from a timer, to update the copies.
"""

from __future__ import annotations

import argparse

from sessiontree.app.actions.convert import check_target
from sessiontree.archive.archive_home import Home, session_info
from sessiontree.archive.clean import find_expiring
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.clean import warn_of_deletion
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.core.ids import now_ms
from sessiontree.errors import SessionTreeError, UsageError

EXAMPLES = """examples:
  sessiontree keep 7053107e
  sessiontree keep --all --agent claude

Claude Code deletes sessions whose file is older than 30 days. `sessiontree restore` restores a copy."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", metavar="SESSION", nargs="*")
    parser.add_argument("--all", action="store_true", help="copy all sessions of all agents")
    parser.add_argument("--agent", metavar="A", help="with --all, only sessions of this agent")
    add_root_option(parser)


def run(options: Options) -> int | None:
    if bool(options.sessions) == options.all:
        raise UsageError("name the sessions to keep, or use --all")
    home = open_home(options)
    agent = check_target(options.agent) if options.agent else None
    if options.all:
        wanted = [session.info for session in home.sessions() if agent is None or session.agent == agent]
    else:
        wanted = [session_info(home.open(session)) for session in options.sessions]
    kept: list[dict[str, str]] = []
    current: list[str] = []
    failed: list[str] = []
    for info in wanted:
        try:
            item = home.archive_at(info.path).keep(info)
        except SessionTreeError as error:
            failed.append(str(error))
            continue
        if item is None:
            current.append(info.path)
        else:
            kept.append({"path": item.path, "item": item.id})
    if options.json:
        output.print_json({"kept": kept, "current": current, "failed": failed})
    else:
        stderr.print_line(f"{len(kept)} copied, {len(current)} already up to date")
        if not options.all:
            _warn_of_deletion(home)
    for message in failed:
        stderr.print_error(message)
    return stderr.FAILED if failed else None


def _warn_of_deletion(home: Home) -> None:
    warn_of_deletion(find_expiring(home.sessions(), home.items(), now_ms()))
