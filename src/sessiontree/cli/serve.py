"""Show all sessions in a browser: list, search, branches, statistics, chats.

Listens on this machine only and prints a link that works once. Pages update while sessions grow. Needs the `web` extra
(`pip install 'sessiontree[web]'`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys

from sessiontree.cli import output, stderr
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError

EXAMPLES = """examples:
  sessiontree serve --port 8321 --read-only --open
  sessiontree serve --users --home postgresql://db.example/team"""

_MAX_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", metavar="N", type=int, default=0, help="port to listen on (default: any free one)")
    parser.add_argument("--open", action="store_true", help="open the link in a browser")
    parser.add_argument("--read-only", action="store_true", help="disable changes: no actions and no chats")
    parser.add_argument(
        "--host", metavar="NAME", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate, for a --host that other machines can reach")
    parser.add_argument("--tls-key", metavar="FILE", help="key of the certificate")
    parser.add_argument(
        "--no-tls",
        action="store_true",
        help="with such a --host, serve without encryption, readable by anyone on the network",
    )
    parser.add_argument(
        "--users",
        action="store_true",
        help="serve several users of a database, each with a token from `sessiontree store add-token`; runs no agents",
    )
    add_root_option(parser)


def run(options: Options) -> None:
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError("the web page needs an extra: pip install 'sessiontree[web]'")
    if not 0 <= options.port <= _MAX_PORT:
        raise UsageError(f"--port {options.port}: expected 0 to {_MAX_PORT}")
    from sessiontree.app.workbench import Workbench
    from sessiontree.library.library import Library
    from sessiontree.library.roots import parse_roots
    from sessiontree.settings import load_settings
    from sessiontree.stores.contract import TokenRepository
    from sessiontree.stores.repositories import open_repository
    from sessiontree.web.server import ServeOptions, serve, serve_users

    chosen = ServeOptions(
        host=options.host,
        port=options.port,
        open_browser=options.open,
        read_only=options.read_only,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        no_tls=options.no_tls,
        users=options.users,
    )
    report = _print_url if options.json else None
    if options.users:
        repository = open_repository(options.home)
        if not isinstance(repository, TokenRepository):
            raise UsageError(f"serve --users: {repository.home} has no tokens; name a database with --home")
        if options.root:
            raise UsageError("serve --users: shows sessions of the database only; leave out --root")
        serve_users(repository, chosen, stderr.print_line, report)
        return
    with Library(options.home, parse_roots(options.root)) as library:
        workbench = Workbench(library, os.getcwd(), load_settings(os.getcwd()).settings)
        serve(workbench, chosen, stderr.print_line, report)


def _print_url(url: str) -> None:
    output.print_json({"url": url})
    sys.stdout.flush()  # the command goes on: a script that reads from a pipe waits for this line
