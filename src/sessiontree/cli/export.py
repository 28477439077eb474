"""Export a session as Markdown, a self-contained HTML page, plain text, JSON, or its original lines.

Prints to stdout, or writes a new file with --out; existing files are never overwritten. Exports the path to the current
entry, or every branch with --branch all. --redact masks keys, tokens, private keys, passwords, e-mail addresses and
home paths, and reports how many.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Iterator

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.cli.sessions import add_read_options, open_for_reading
from sessiontree.errors import ExistsError, UsageError
from sessiontree.export import Format, Redactor, export
from sessiontree.stores.atomic_files import create_file

EXAMPLES = """examples:
  sessiontree export 019c2f3a --out session.html --branch all
  sessiontree export s.jsonl --format md --redact"""

_EXTENSIONS: dict[str, Format] = {
    ".md": "md",
    ".markdown": "md",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".jsonl": "jsonl",
    ".txt": "text",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    parser.add_argument(
        "--format",
        choices=("md", "html", "json", "jsonl", "text"),
        help="output format (default: from the extension of --out, else md)",
    )
    parser.add_argument(
        "--branch",
        choices=("active", "all"),
        default="active",
        help="export the path to the current entry (default), or every branch",
    )
    parser.add_argument("--redact", action="store_true", help="mask secrets, e-mail addresses and home paths")
    parser.add_argument("--out", metavar="FILE", help="write to a new file instead of stdout")
    add_read_options(parser)


def run(options: Options) -> None:
    gc.disable()  # our values have no reference cycles; looking for them costs a tenth of the time
    format = _format(options)
    if options.out and os.path.lexists(options.out):
        raise ExistsError(f"{options.out}: file exists; choose another name")
    session = open_for_reading(options)
    redactor = Redactor(os.path.expanduser("~")) if options.redact else None
    pieces = export(session, format, branch=options.branch, redactor=redactor)
    if options.out:
        path, size = _write(options.out, pieces)
        if options.json:
            output.print_json(
                {
                    "path": path,
                    "format": format,
                    "branch": options.branch,
                    "bytes": size,
                    "masked": redactor.counts if redactor else None,
                    "maskedByRule": dict(redactor.by_rule) if redactor else None,
                }
            )
        else:
            output.print_lines([path])
    else:
        output.print_bytes(pieces)
    if redactor is not None:
        stderr.print_line(redactor.report)
    if not options.json:
        stderr.print_problems(session.location, session.problems)


def _format(options: Options) -> Format:
    """--format, else from the extension of --out, else Markdown; `--json` alone means the JSON document."""
    chosen: Format | None = options.format
    if chosen is None and options.out:
        chosen = _EXTENSIONS.get(os.path.splitext(options.out)[1].lower())
    if options.json and not options.out:
        if chosen not in (None, "json"):
            raise UsageError(f"--json prints one JSON object; add --out FILE for the {chosen} document")
        return "json"
    return chosen or "md"


def _write(out: str, pieces: Iterator[bytes]) -> tuple[str, int]:
    """Write a new file atomically; returns its path and size."""
    size = 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for piece in pieces:
            size += len(piece)
            yield piece

    path = os.path.abspath(out)
    create_file(path, counted())
    return path, size
