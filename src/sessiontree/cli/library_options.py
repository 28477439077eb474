"""Options and helpers of the commands that read the session library."""

from __future__ import annotations

import argparse
import os
import sys
import time

from sessiontree import plugins
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.library.library import Library
from sessiontree.library.roots import parse_roots
from sessiontree.library.scanner import Progress

_PROGRESS_AFTER = 0.3


def add_filter_options(parser: argparse.ArgumentParser, *, since: str) -> None:
    """Options of commands that select sessions by project, agent and age."""
    parser.add_argument("--all", action="store_true", help="include every project, not only this one")
    parser.add_argument(
        "--agent", metavar="NAME", help="only sessions of this agent, such as claude, codex, opencode or native"
    )
    parser.add_argument("--project", metavar="DIR", help="use the project of this folder (default: the current folder)")
    parser.add_argument("--since", metavar="AGE", help=since)


def add_root_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        metavar="DIALECT=DIR",
        action="append",
        default=[],
        help="read an agent's sessions from this folder instead of its default one; repeatable",
    )


def requested_project(options: Options) -> str | None:
    """The project folder that was asked for; None for all projects."""
    return None if options.all else options.project or os.getcwd()


def open_library(options: Options) -> Library:
    """Open the library with the `--home` and `--root` that were given."""
    roots = parse_roots(getattr(options, "root", []))  # not every command that finds a session has --root
    return Library(options.home, roots, progress=scan_progress())


def known_agent(library: Library, name: str | None) -> str | None:
    """Check the name of an agent and return it in lowercase; None for all agents."""
    if name is None:
        return None
    known = {*plugins.names("dialects"), *(summary.agent for summary in library.everything())}
    if name.lower() not in known:
        raise UsageError(f"unknown agent {name!r}; known: {', '.join(sorted(known))}")
    return name.lower()


def scan_progress() -> Progress | None:
    """A progress line on stderr for slow scans; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        return None
    start = time.perf_counter()

    def show(done: int, of: int) -> None:
        if time.perf_counter() - start > _PROGRESS_AFTER and (done % 50 == 0 or done == of):
            text = "" if done == of else f"reading sessions: {done} of {of}"
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    return show


def parse_since(text: str) -> int:
    """Parse a time by the rules of `since:` in searches; milliseconds since the epoch."""
    from sessiontree.search.query_parser import TIMES, parse_time  # most listings need none of it

    at = parse_time(text)
    if at is None:
        raise UsageError(f"--since expects {TIMES}, not {text!r}")
    return at


def no_sessions(library: Library, project: str | None, hint: str = "use --all", others: int | None = None) -> str:
    """The message for an empty result. `others` is the number of matches in other projects (default: all sessions)."""
    if project is None:
        return "no matching sessions"
    own = len(library.sessions(project=project))
    text = f"no {'matching ' if own else ''}sessions for {project}"
    if others is None:
        others = len(library.sessions()) - own
    return f"{text}; {others:,} in other projects ({hint})" if others else text
