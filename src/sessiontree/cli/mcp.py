"""Serve past sessions to agents as MCP tools on stdin and stdout: search, read messages, list sessions, recent
decisions.

Agents start it; --json prints the configuration to give them. It changes no session, and reads only those that `list
--all` shows. Results are short and marked as untrusted content. Needs `pip install 'sessiontree[mcp]'`.
"""

from __future__ import annotations

import argparse
import sys

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options

EXAMPLES = """examples:
  sessiontree mcp --json
  sessiontree mcp --no-refresh"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-refresh", action="store_true", help="do not update the search index")
    add_root_option(parser)


def run(options: Options) -> None:
    from sessiontree.library.roots import parse_roots
    from sessiontree.mcp_server.server import TOOLS, require_mcp, serve

    roots = parse_roots(options.root)
    if options.json:
        output.print_json(
            {"mcpServers": {"sessiontree": {"command": "sessiontree", "args": _arguments(options)}}} | {"tools": TOOLS}
        )
        return
    require_mcp()
    if sys.stdin.isatty():
        stderr.print_line(
            "waiting for MCP requests on stdin (Ctrl-D to quit); `sessiontree mcp --json` prints the configuration"
        )
    serve(options.home, roots, refresh=not options.no_refresh)


def _arguments(options: Options) -> list[str]:
    """The arguments to start a server with the same options."""
    home = ["--home", options.home] if options.home else []
    roots = [part for root in options.root for part in ("--root", root)]
    return ["mcp", *home, *roots, *(["--no-refresh"] if options.no_refresh else [])]
