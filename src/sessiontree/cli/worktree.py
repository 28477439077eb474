"""Remember the git worktree of a session, and make it again when it is gone.

save: note path, branch and commit, in the session itself if it is a native one, else beside it. restore: make the
worktree again, or say what is missing. list: all sessions with a worktree.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from sessiontree.cli import output, talk
from sessiontree.cli.parser import Options

if TYPE_CHECKING:
    from sessiontree.tidying.home import Home
    from sessiontree.tidying.marks import WorktreeMark

SUMMARY = "remember and remake a session's worktree"
EXAMPLES = """examples:
  sessiontree worktree save 019c2f3a
  sessiontree worktree restore 019c2f3a

What was committed comes back with the branch or the commit. Uncommitted changes are not kept."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("save", "restore", "list"))
    parser.add_argument("session", metavar="SESSION", nargs="?")
    parser.add_argument("--path", metavar="DIR", help="for save: the worktree (default: where the session works)")
    parser.add_argument("--repository", metavar="DIR", help="for restore: the repository, if it moved")
    parser.add_argument("--dry-run", action="store_true", help="for restore: only show the command")


def run(options: Options) -> None:
    from sessiontree.errors import UsageError
    from sessiontree.tidying.home import Home

    home = Home(options.home)
    if options.action == "list":
        _list(home, options)
    elif not options.session:
        raise UsageError(f"which session? `sessiontree worktree {options.action} SESSION`")
    elif options.action == "save":
        _save(home, options)
    else:
        _restore(home, options)


def _save(home: Home, options: Options) -> None:
    from sessiontree.tidying.worktrees import save

    session = home.open(options.session)
    saved = save(session, home.marks, options.path)
    session.close()
    if options.json:
        output.print_json({"session": session.id, **_described(saved)})
    else:
        output.print_lines([_line(saved)])


def _restore(home: Home, options: Options) -> None:
    import shlex

    from sessiontree.errors import NotFoundError
    from sessiontree.tidying.worktrees import find, plan_restoring, restore
    from sessiontree.views.text import clean

    session = home.open(options.session)
    saved = find(session, home.marks)
    if saved is None:
        raise NotFoundError(f"{session.location}: no worktree was saved; `sessiontree worktree save` does that")
    plan = plan_restoring(saved, os.path.abspath(options.repository) if options.repository else None)
    if not options.dry_run:
        restore(plan)
    resume = f"cd {shlex.quote(saved.path)} && sessiontree resume {shlex.quote(session.id)}"
    if options.json:
        described = {"command": list(plan.command), "missing": list(plan.missing), "wasThere": plan.is_there}
        output.print_json({"session": session.id, **_described(saved), **described, "resume": resume})
        return
    if options.dry_run and plan.command:
        output.print_lines([clean(shlex.join(plan.command))])
    for reason in plan.missing:
        talk.say(f"missing: {reason}")
    if not plan.missing:
        talk.say("the worktree is there already" if plan.is_there else _line(saved))
        output.print_lines([clean(resume)])


def _list(home: Home, options: Options) -> None:
    from sessiontree.views.text import clean

    marks = [mark for mark in home.marks.read() if mark.worktree is not None]
    if options.json:
        rows = [
            {"session": mark.session, "file": mark.path, **_described(mark.worktree)} for mark in marks if mark.worktree
        ]
        output.print_json({"worktrees": rows})
        return
    for mark in marks:
        assert mark.worktree is not None
        there = "" if os.path.isdir(mark.worktree.path) else "  (gone)"
        output.print_lines([clean(f"{mark.session}  {_line(mark.worktree)}{there}")])
    if not marks:
        talk.say("no worktree was saved yet; `sessiontree worktree save SESSION` does that")


def _described(saved: WorktreeMark) -> dict[str, str | None]:
    return {"path": saved.path, "branch": saved.branch, "head": saved.head, "repository": saved.repository}


def _line(saved: WorktreeMark) -> str:
    return f"{saved.path}  {saved.branch or 'detached'}  {(saved.head or '')[:12]}"
