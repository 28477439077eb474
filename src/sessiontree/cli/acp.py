"""Serve all sessions to an editor over the Agent Client Protocol (ACP) on stdin and stdout.

Editors start it; --json prints what to add to their settings. Every session of every agent can be opened, continued and
archived there. The options are those of `chat`; messages go to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys

from sessiontree.cli import output, stderr
from sessiontree.cli.chat import add_run_options
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options

EXAMPLES = """examples:
  sessiontree acp --json
  sessiontree acp --model anthropic:claude-opus-5"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.add_argument(
        "--unstable",
        action="store_true",
        help="also offer methods that are not final in the protocol: fork, set_title and archive",
    )
    add_root_option(parser)


def run(options: Options) -> None:
    if options.json:
        server = {"command": "sessiontree", "args": _arguments(options)}
        zed = {"agent_servers": {"sessiontree": {"type": "custom", **server}}}
        output.print_json({"zed": zed, "jetbrains": {"agent_servers": {"sessiontree": server}}})
        return
    from sessiontree.acp.server import serve
    from sessiontree.app.start import StartOptions
    from sessiontree.app.workbench import Workbench
    from sessiontree.library.library import Library
    from sessiontree.library.roots import parse_roots
    from sessiontree.settings import load_settings
    from sessiontree.stores.repositories import home_folder

    if sys.stdin.isatty():
        stderr.print_line(
            "waiting for ACP requests on stdin (Ctrl-D to quit); `sessiontree acp --json` prints the editor's settings"
        )
    cwd = os.getcwd()
    home = home_folder(options.home)
    settings = load_settings(cwd, home).settings
    started = StartOptions(
        cwd=cwd,
        home=home,
        settings=settings,
        model=options.model,
        repository=options.home,
        thinking=options.thinking,
        approval=options.approval,
    )
    with Library(options.home, parse_roots(options.root)) as library:
        workbench = Workbench(library, cwd, settings)
        serve(workbench, started, stderr.print_error, allows_unstable=options.unstable)


def _arguments(options: Options) -> list[str]:
    """The arguments to start an agent with the same options."""
    found = ["acp"]
    for name in ("home", "model", "thinking", "approval"):
        value = getattr(options, name)
        found += [f"--{name}", value] if value else []
    found += [part for root in options.root for part in ("--root", root)]
    return [*found, *(["--unstable"] if options.unstable else [])]
