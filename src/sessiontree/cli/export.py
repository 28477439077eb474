"""Export a session as Markdown, a self-contained HTML page, plain text, JSON, its original lines or, for other tools,
OpenTelemetry spans (otel) or a trajectory (atif).

Prints to stdout, or writes a new file with --out; existing files are never overwritten. Exports the path to the current
entry, or every branch with --branch all. --redact masks keys, tokens, private keys, passwords, e-mail addresses and
home paths, and reports how many.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Iterable, Iterator

from sessiontree.app.actions.export import exported_fields, format_of, new_redactor, plan_export
from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_session, read_options_of
from sessiontree.errors import ExistsError, UsageError
from sessiontree.export import Format, export
from sessiontree.views.text import clean

EXAMPLES = """examples:
  sessiontree export 019c2f3a --out session.html --branch all
  sessiontree export s.jsonl --format md --redact"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "--format",
        choices=("md", "html", "json", "jsonl", "text", "otel", "atif"),
        help="output format (default: from the extension of --out, else md)",
    )
    parser.add_argument(
        "--branch",
        choices=("active", "all"),
        default="active",
        help="export the path to the current entry (default), or every branch",
    )
    parser.add_argument("--redact", action="store_true", help="mask secrets, e-mail addresses and home paths")
    parser.add_argument("--out", metavar="FILE", type=_new_file, help="write to a new file instead of stdout (-)")
    add_read_options(parser)


def _new_file(name: str) -> str | None:
    return None if name == "-" else name


def run(options: Options) -> None:
    gc.disable()  # our values have no reference cycles; looking for them costs a tenth of the time
    format = _format(options)
    if options.out and os.path.lexists(options.out):
        raise ExistsError(f"{options.out}: file exists; choose another name")
    session = open_session(options, read_options=read_options_of(options))
    if options.out:
        plan = plan_export(session, options.out, format=format, branch=options.branch, redact=options.redact)
        exported = plan.do().result
        redactor = exported.redactor
        if options.json:
            output.print_json(exported_fields(exported))
        else:
            output.print_lines([exported.path])
    else:
        redactor = new_redactor() if options.redact else None
        pieces = export(session, format, branch=options.branch, redactor=redactor)
        if format == "jsonl" and output.is_terminal():
            output.print_lines(clean(line.decode("utf-8", "replace")) for line in _split_lines(pieces))
        else:
            output.print_bytes(pieces)
    if redactor is not None:
        stderr.print_line(redactor.report)
    if not options.json:
        stderr.print_problems(session.location, session.problems)


def _split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file that is read in pieces, without their ends."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _format(options: Options) -> Format:
    """--format, else from the extension of --out, else Markdown; `--json` alone means the JSON document."""
    chosen: Format | None = options.format
    if chosen is None and options.out:
        chosen = format_of(options.out)
    if options.json and not options.out:
        if chosen not in (None, "json"):
            raise UsageError(f"--json prints one JSON object; add --out FILE for the {chosen} document")
        return "json"
    return chosen or "md"
