"""Serve past sessions to agents as MCP tools on stdin and stdout: search, read a passage, list, recent decisions.

An agent starts it: `--json` prints what to put into its settings. It only reads, and only sessions that `list --all`
shows; answers are small, and marked as untrusted content. Needs `pip install 'sessiontree[mcp]'`.
"""

from __future__ import annotations

import argparse
import sys

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError

EXAMPLES = """examples:
  sessiontree mcp --json
  sessiontree mcp --no-refresh"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-refresh", action="store_true", help="read nothing into the search index")
    add_root_option(parser)


def run(options: Options) -> None:
    from sessiontree.library.roots import parse_roots
    from sessiontree.mcp_server.server import TOOLS, require_mcp, serve

    if options.home is not None and not options.home:
        raise UsageError("--home needs a folder")
    roots = parse_roots(options.root)
    if options.json:
        output.print_json(
            {"mcpServers": {"sessiontree": {"command": "sessiontree", "args": _arguments(options)}}} | {"tools": TOOLS}
        )
        return
    require_mcp()
    if sys.stdin.isatty():
        stderr.print_line(
            "waiting for an agent to speak MCP on stdin (Ctrl-D ends it); `sessiontree mcp --json` has the settings"
        )
    serve(options.home, roots, refresh=not options.no_refresh)


def _arguments(options: Options) -> list[str]:
    """The arguments an agent has to start it with, to get what was asked for here."""
    home = ["--home", options.home] if options.home else []
    roots = [part for root in options.root for part in ("--root", root)]
    return ["mcp", *home, *roots, *(["--no-refresh"] if options.no_refresh else [])]
