"""Look after a database of sessions, such as PostgreSQL.

status: what it holds. upgrade: create its tables, or upgrade them. verify: find damage. vacuum: join the small rows of
appends, and remove old backups.
"""

from __future__ import annotations

import argparse

import msgspec

from sessiontree.cli import output, stderr
from sessiontree.cli.parser import Options
from sessiontree.errors import UsageError
from sessiontree.stores.contract import MaintainedRepository
from sessiontree.stores.repositories import open_repository
from sessiontree.views.text import clean, plural

EXAMPLES = """examples:
  sessiontree store upgrade --home postgresql://db.example/team
  sessiontree store vacuum --home postgresql://db.example/team --days 30"""

_DAMAGED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("status", "upgrade", "verify", "vacuum"), help="what to do")
    parser.add_argument(
        "--days", type=float, default=30.0, metavar="N", help="for vacuum: keep backups this long (default: 30)"
    )


def run(options: Options) -> int | None:
    repository = open_repository(options.home)
    if not isinstance(repository, MaintainedRepository):
        raise UsageError(
            f"{repository.home}: a folder of sessions has no tables; use `sessiontree doctor` and `sessiontree clean`, "
            "or name a database with --home"
        )
    if options.days < 0:
        raise UsageError(f"--days {options.days:g}: expected 0 or more")
    match options.action:
        case "status":
            _print_status(repository, options)
        case "upgrade":
            _upgrade(repository, options)
        case "verify":
            return _verify(repository, options)
        case _:
            _vacuum(repository, options)
    return None


def _print_status(repository: MaintainedRepository, options: Options) -> None:
    status = repository.status()
    if options.json:
        output.print_json({"home": repository.home, **msgspec.to_builtins(status)})
        return
    output.print_lines(
        [
            f"home      {clean(repository.home)}",
            f"server    {clean(status.server)}, tables of version {status.version}",
            f"sessions  {status.sessions:,} ({status.size:,} bytes in {plural(status.parts, 'part')})",
            f"backups   {status.backups:,}",
            f"blobs     {status.blobs:,} ({status.blob_size:,} bytes)",
        ]
    )


def _upgrade(repository: MaintainedRepository, options: Options) -> None:
    done = repository.upgrade()
    if options.json:
        output.print_json({"home": repository.home, "migrations": done})
    else:
        stderr.print_line(f"{clean(repository.home)}: {f'upgraded to version {done[-1]}' if done else 'is current'}")


def _verify(repository: MaintainedRepository, options: Options) -> int:
    problems = list(repository.verify())
    if options.json:
        output.print_json({"home": repository.home, "problems": problems})
    else:
        output.print_lines(clean(problem) for problem in problems)
        stderr.print_line(
            f"{clean(repository.home)}: {plural(len(problems), 'problem') if problems else 'no problems'}"
        )
    return _DAMAGED if problems else 0


def _vacuum(repository: MaintainedRepository, options: Options) -> None:
    joined, removed = repository.vacuum(days=options.days)
    if options.json:
        output.print_json({"home": repository.home, "joined": joined, "removed": removed})
    else:
        stderr.print_line(f"{clean(repository.home)}: {joined:,} rows joined, {removed:,} rows of old backups removed")
