"""Move sessions that were not used for long into the archive. Without --yes, only a table of what would go.

Age counts from the last message, not from the date of the file. Pinned sessions always stay.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sessiontree.archive.clean import Plan, Policy, at_risk, parse_duration, plan_cleaning, plan_purging, purge
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.convert import check_target
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.core.ids import now_ms
from sessiontree.errors import SessionTreeError
from sessiontree.views.text import columns, cut, one_line, pad

if TYPE_CHECKING:
    from sessiontree.archive.archive_home import Home
    from sessiontree.archive.candidates import Candidate

EXAMPLES = """examples:
  sessiontree clean --older-than 30d --keep-named
  sessiontree clean --older-than 6m --agent claude --yes

`sessiontree restore` brings a session back byte for byte. Only --purge together with --yes deletes for good."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", metavar="AGE", default="30d", help="30d, 12h, 8w, 6m, 1y (default: 30d)")
    parser.add_argument("--keep-named", action="store_true", help="leave sessions that someone gave a name")
    parser.add_argument("--keep-labeled", action="store_true", help="leave sessions with labelled entries")
    parser.add_argument("--agent", metavar="A", help="only sessions of this agent")
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument("--purge", action="store_true", help="delete for good, also what was archived as long ago")
    add_root_option(parser)


def run(options: Options) -> int | None:
    home, now = open_home(options), now_ms()
    agent = check_target(options.agent) if options.agent else None
    policy = Policy(parse_duration(options.older_than), options.keep_named, options.keep_labeled, agent)
    sessions = list(home.sessions())
    plan = plan_cleaning(sessions, policy, now)
    items = home.archive.items()
    if options.purge:
        pinned = frozenset(mark.session for mark in home.marks.read() if mark.pinned)
        plan = plan_purging(plan, items, pinned, policy, now)
    failed: list[str] = []
    refs: list[str] = []
    if options.yes and options.purge:
        from sessiontree.cli.purge import take_lanes_away

        plan, refs, failed = take_lanes_away(home, plan)
        purge(home.archive, plan)
    elif options.yes:
        failed = _archive(home, plan, f"clean --older-than {options.older_than}")
    going = {one.path for one in plan.chosen}
    staying = [one for one in sessions if one.path not in going]
    risk = at_risk(staying, items, now)
    if options.json:
        output.print_json({**_described(plan, options, failed, risk), "refs": refs})
    else:
        output.print_lines(table(plan, now))
        _tell(plan, options, risk)
    if refs:
        stderr.print_line(f"the work of their lanes stays in git: {', '.join(refs)}")
    for message in failed:
        stderr.print_error(message)
    return stderr.FAILED if failed else None


def _archive(home: Home, plan: Plan, why: str) -> list[str]:
    """Archive what was planned, one session after the other; what could not be archived, and why."""
    failed: list[str] = []
    with home.archive.locked():
        home.archive.finish()
        for one in plan.chosen:
            try:
                freed = home.archive.archive(one.about, why)
            except SessionTreeError as error:
                failed.append(str(error))
                continue
            for path in freed.left:
                stderr.print_line(f"{path}: is no regular file; it was left there")
    return failed


def table(plan: Plan, now: int) -> Iterator[str]:
    """What goes, the oldest first: title, age, size, agent, file; then the sum."""
    rows = [
        (one.title or one.id, output_age(now - (one.active or now)), one.size, one.agent, one.path)
        for one in plan.chosen
    ]
    rows += [(item.title or item.session, "archived", item.size, item.agent, item.path) for item in plan.archived]
    yield from rows_as_lines(rows)
    yield f"{len(rows)} session{'' if len(rows) == 1 else 's'}, {human_size(plan.size)}"


def rows_as_lines(rows: list[tuple[str, str, int, str, str]]) -> Iterator[str]:
    """Columns that fit: the title first and never cut below 20, the path last and cut at its beginning."""
    room = output.width()
    title = min(max([20, *(columns(one_line(row[0])) for row in rows)]), max(20, (room - 30) // 2))
    for name, age, size, agent, path in rows:
        left = f"{pad(cut(one_line(name), title), title)}  {age:>8}  {human_size(size):>8}  {agent:<8}"
        place = one_line(path)
        space = room - title - 32
        if columns(place) > space:
            place = "…" + place[-max(space - 1, 0) :] if space > 12 else ""
        yield f"{left}  {place}".rstrip()


def _tell(plan: Plan, options: Options, risk: list[Candidate]) -> None:
    for reason, count in sorted(plan.spared.items()):
        stderr.print_line(f"{count} old enough, but left: {reason}")
    if not plan.chosen and not plan.archived:
        stderr.print_line("there is nothing to clean")
    elif not options.yes:
        what = "deletes all of this for good" if options.purge else "moves them into the archive"
        stderr.print_line(f"nothing was done; the same with --yes {what}")
    elif not options.purge:
        stderr.print_line("`sessiontree restore ID` brings one back, `sessiontree restore --list` shows all")
    warn_of_deletion(risk)


def warn_of_deletion(risk: list[Candidate]) -> None:
    """Other agents delete by themselves; say so while there is time."""
    if risk:
        stderr.print_line(
            f"warning: Claude Code deletes {len(risk)} of your sessions by itself within a week, by the date of the "
            "file (its setting cleanupPeriodDays); `sessiontree keep --all` makes copies first"
        )


def output_age(milliseconds: int) -> str:
    """An age in one number and a unit: 5h, 12d, 7mo, 2y."""
    hours = max(milliseconds, 0) // 3_600_000
    days = hours // 24
    for limit, value, unit in ((1, hours, "h"), (60, days, "d"), (730, days // 30, "mo")):
        if days < limit:
            return f"{value}{unit}"
    return f"{days // 365}y"


def human_size(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    value, unit = size / 1000, "kB"
    for larger in ("MB", "GB"):
        if value >= 999.5:
            value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"


def _described(plan: Plan, options: Options, failed: list[str], risk: list[Candidate]) -> dict[str, Any]:
    return {
        "done": options.yes,
        "purge": options.purge,
        "size": plan.size,
        "sessions": [
            {
                "path": one.path,
                "agent": one.agent,
                "id": one.id,
                "title": one.title,
                "active": one.active,
                "size": one.size,
            }
            for one in plan.chosen
        ],
        "fromArchive": [{"item": item.id, "path": item.path, "size": item.size} for item in plan.archived],
        "spared": plan.spared,
        "failed": failed,
        "deletedSoonByTheirAgent": [one.path for one in risk],
    }
