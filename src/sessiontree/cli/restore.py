"""Restore from the archive: a cleaned session, a kept copy, or the previous version of a rewritten session.

Nothing is overwritten. Lines added to a rewritten session since then are kept.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from sessiontree.app.actions.archive import plan_restore
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.views.text import clean, cut, human_size, one_line, plural

if TYPE_CHECKING:
    from sessiontree.archive.archive_home import Home
    from sessiontree.archive.catalog import ArchiveItem

EXAMPLES = """examples:
  sessiontree restore --list
  sessiontree restore 5c1f0a9be2d4 --out before-shrinking.jsonl

ITEM is the first column of --list, a session id or a prefix of one, or the path of the file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item", metavar="ITEM", nargs="?", help="id of an item, as `restore --list` shows it")
    parser.add_argument("--list", action="store_true", help="list the archive")
    parser.add_argument("--out", metavar="FILE", help="extract to this file instead; the archive does not change")
    add_root_option(parser)


def run(options: Options) -> None:
    home = open_home(options)
    if options.list:
        _list(home, options)
        return
    if not options.item:
        raise UsageError("ITEM is missing; `sessiontree restore --list` lists the archive")
    plan = plan_restore(home, options.item)
    item = plan.item
    if options.out:
        plan.archive.extract(item, options.out)
        written = [os.path.abspath(options.out)]
    else:
        written = plan.do().result
    if options.json:
        output.print_json({**plan.describe().data, "written": written})
        return

    output.print_lines(clean(path) for path in written)
    if not written:
        stderr.print_line(f"{item.path}: already in place")


def _list(home: Home, options: Options) -> None:
    archives = {archive: archive.items() for archive in home.archives()}
    items = sorted((item for found in archives.values() for item in found), key=lambda item: item.when)
    for problem in (problem for archive in archives for problem in archive.problems):
        stderr.print_line(problem)
    if options.json:
        output.print_json({"items": [_to_json(home, item) for item in items]})
        return
    for item in items:
        head = f"{item.id}  {item.when[:10]}  {_kind(item):<7}  {human_size(item.size):>8}  {item.agent:<8}"
        width = max(output.width() - len(head) - 2, 20)
        output.print_lines([f"{head}  {cut(one_line(item.title or item.session), width)}", f"    {clean(item.path)}"])
    packed = sum(archive.packed_size(found) for archive, found in archives.items())
    size = sum(item.size for item in items)
    stderr.print_line(
        f"{plural(len(items), 'item')} in the archive: {human_size(size)} ({human_size(packed)} compressed)"
    )


def _kind(item: ArchiveItem) -> str:
    return item.edit.verb if item.edit else {"moved": "cleaned", "kept": "copy"}.get(item.kind, item.kind)


def _to_json(home: Home, item: ArchiveItem) -> dict[str, Any]:
    return {
        "item": item.id,
        "kind": item.kind,
        "what": _kind(item),
        "path": item.path,
        "agent": item.agent,
        "session": item.session,
        "title": item.title,
        "size": item.size,
        "sha256": item.sha256,
        "when": item.when,
        "why": item.why,
        "files": len(item.files),
        "packed": home.archive_at(item.path).packed_size([item]),
    }
