"""Move sessions that have not been used for a while to the archive. Without --yes, only list them.

The age is that of the last message, not of the file. Pinned sessions always stay.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sessiontree.app.actions.archive import plan_archive
from sessiontree.app.actions.convert import check_target
from sessiontree.archive.clean import (
    CleanPlan,
    CleanPolicy,
    find_expiring,
    plan_clean,
    plan_purge,
    purge,
)
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option, open_library
from sessiontree.cli.parser import Options
from sessiontree.clients import client_of
from sessiontree.core.durations import parse_age
from sessiontree.core.ids import now_ms
from sessiontree.errors import SessionTreeError
from sessiontree.stores.repositories import is_address
from sessiontree.stores.temporary_files import find_leftovers, remove_leftover
from sessiontree.views.listing import short_ids
from sessiontree.views.text import columns, cut, human_size, one_line, pad, plural

if TYPE_CHECKING:
    from sessiontree.archive.archive_home import Home
    from sessiontree.archive.candidates import Candidate

EXAMPLES = """examples:
  sessiontree clean --older-than 30d --keep-named
  sessiontree clean --older-than 6mo --agent claude --yes

`sessiontree restore` restores a session byte for byte. Only --purge with --yes deletes permanently."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", metavar="AGE", default="30d", help="minimum age: 12h, 30d, 8w, 6mo (months), 1y (default: 30d)"
    )
    parser.add_argument("--keep-named", action="store_true", help="keep sessions with a name")
    parser.add_argument("--keep-labeled", action="store_true", help="keep sessions with labeled entries")
    parser.add_argument("--agent", metavar="A", help="only sessions of this agent")
    parser.add_argument("--yes", action="store_true", help="archive them")
    parser.add_argument(
        "--purge",
        action="store_true",
        help="delete permanently, including sessions archived that long ago, and temporary files of killed commands",
    )
    add_root_option(parser)


def run(options: Options) -> int | None:
    home, now = open_home(options), now_ms()
    agent = check_target(options.agent) if options.agent else None
    age = parse_age(options.older_than)
    policy = CleanPolicy(round(1000 * age.seconds), options.keep_named, options.keep_labeled, agent)
    sessions = list(home.sessions())
    plan = plan_clean(sessions, policy, now)
    items = home.items()
    if options.purge:
        pinned = frozenset(mark.session for mark in home.all_tags() if mark.pinned)
        plan = plan_purge(plan, items, pinned, policy, now)
    ids = {} if options.json else _short_ids(options)
    failed: list[str] = []
    refs: list[str] = []
    leftovers = find_leftovers([home.folder, *home.roots]) if options.purge else []
    if options.yes and options.purge:
        from sessiontree.cli.purge import remove_lanes

        plan, refs, failed = remove_lanes(home, plan)
        purge(home.archive_at, plan)
        failed += _remove_leftovers(leftovers)
    elif options.yes:
        failed = _archive(home, plan, f"clean --older-than {options.older_than}")
    leaving = {session.path for session in plan.chosen}
    staying = [session for session in sessions if session.path not in leaving]
    risk = find_expiring(staying, items, now)
    if options.json:
        output.print_json({**_to_json(plan, options, failed, risk), "refs": refs, "leftovers": leftovers})
    else:
        output.print_lines(table(plan, now, ids))
        stderr.print_line(f"sessions without a message for {age.text}")
        _print_summary(plan, options, risk)
        if leftovers:
            stderr.print_line(f"{plural(len(leftovers), 'temporary file')} of commands that were killed")
    if refs:
        stderr.print_line(f"the lanes' work is kept in git: {', '.join(refs)}")
    for message in failed:
        stderr.print_error(message)
    return stderr.FAILED if failed else None


def _remove_leftovers(leftovers: list[str]) -> list[str]:
    failed: list[str] = []
    for path in leftovers:
        try:
            remove_leftover(path)
        except FileNotFoundError:
            continue  # another process has removed it
        except OSError as error:
            failed.append(f"{path}: not deleted: {error.strerror}")
    return failed


def _archive(home: Home, plan: CleanPlan, why: str) -> list[str]:
    """Archive the planned sessions; returns an error message for each that failed."""
    failed: list[str] = []
    with contextlib.ExitStack() as stack:
        # Of the folder's archive only if it is used: sessions of a database leave no file behind.
        for archive in {home.archive_at(session.path) for session in plan.chosen if not is_address(session.path)}:
            stack.enter_context(archive.locked())
            archive.finish()
        for session in plan.chosen:
            try:
                archived = plan_archive(home, session.info, why).do().result
            except SessionTreeError as error:
                failed.append(str(error))
                continue
            for path in archived.remaining:
                stderr.print_line(f"{path}: not a regular file; left in place")
    return failed


def _short_ids(options: Options) -> dict[str, str]:
    with open_library(options) as library:
        return short_ids(library.everything())


def table(plan: CleanPlan, now: int, ids: Mapping[str, str]) -> Iterator[str]:
    """The sessions to archive, oldest first, and their total size. `ids` maps paths to ids that find the session."""
    rows = [
        (
            session.title or session.id,
            render_age(now - (session.active or now)),
            session.size,
            session.agent,
            ids.get(session.path, session.id),
            session.path,
        )
        for session in plan.chosen
    ]
    rows += [
        (item.title or item.session, "archived", item.size, item.agent, item.id, item.path) for item in plan.archived
    ]
    yield from _render_rows(rows)
    yield f"{plural(len(rows), 'session')}, {human_size(plan.size)}"


def _render_rows(rows: list[tuple[str, str, int, str, str, str]]) -> Iterator[str]:
    """Fit columns to the width: the title has at least 20 columns, the path loses its beginning."""
    width = output.width()
    id_width = max((len(row[4]) for row in rows), default=0)
    title = min(max([20, *(columns(one_line(row[0])) for row in rows)]), max(20, (width - 32 - id_width) // 2))
    for name, age, size, agent, id, path in rows:
        left = f"{pad(cut(one_line(name), title), title)}  {age:>8}  {human_size(size):>8}  {agent:<8}"
        left += f"  {pad(one_line(id), id_width)}"
        place = one_line(path)
        space = width - title - 34 - id_width
        if columns(place) > space:
            place = "…" + place[-max(space - 1, 0) :] if space > 12 else ""
        yield f"{left}  {place}".rstrip()


def _print_summary(plan: CleanPlan, options: Options, risk: list[Candidate]) -> None:
    for reason, count in sorted(plan.spared.items()):
        stderr.print_line(f"kept although old enough: {count} ({reason})")
    if not plan.chosen and not plan.archived:
        stderr.print_line("nothing to clean")
    elif not options.yes:
        action = "delete them permanently" if options.purge else "archive them"
        stderr.print_line(f"nothing changed; add --yes to {action}")
    elif not options.purge:
        stderr.print_line("to undo: `sessiontree restore ID` (`sessiontree restore --list` lists all)")
    warn_of_deletion(risk)


def warn_of_deletion(risk: list[Candidate]) -> None:
    """Warn about sessions that their agent will delete soon."""
    if risk:
        clients = " and ".join(sorted({client_of(candidate.agent).name for candidate in risk}))
        stderr.print_line(
            f"warning: {clients} will delete {plural(len(risk), 'session')} within a week, as its settings require; "
            "`sessiontree keep --all` makes copies"
        )


def render_age(milliseconds: int) -> str:
    """An age in one number and a unit: 5h, 12d, 7mo, 2y."""
    hours = max(milliseconds, 0) // 3_600_000
    days = hours // 24
    for limit, value, unit in ((1, hours, "h"), (60, days, "d"), (730, days // 30, "mo")):
        if days < limit:
            return f"{value}{unit}"
    return f"{days // 365}y"


def _to_json(plan: CleanPlan, options: Options, failed: list[str], risk: list[Candidate]) -> dict[str, Any]:
    return {
        "done": options.yes,
        "purge": options.purge,
        "size": plan.size,
        "sessions": [
            {
                "path": session.path,
                "agent": session.agent,
                "id": session.id,
                "title": session.title,
                "active": session.active,
                "size": session.size,
            }
            for session in plan.chosen
        ],
        "fromArchive": [{"item": item.id, "path": item.path, "size": item.size} for item in plan.archived],
        "spared": plan.spared,
        "failed": failed,
        "deletedSoonByTheirAgent": [session.path for session in risk],
    }
