"""Save the git worktree of a session, and restore it after it was removed.

save: record path, branch, commit and uncommitted files, in the session file (native sessions) or next to it. restore:
recreate the worktree with its files, or report what is missing. list: show all sessions with a worktree.
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from sessiontree.archive.client_worktrees import build_backup_snapshot, count_backups, iter_noted_worktrees
from sessiontree.archive.saved_worktree import find_worktree, save_worktree, worktree_blobs
from sessiontree.archive.tags import tagged_path
from sessiontree.cli import output, stderr
from sessiontree.cli.archive_home import open_home
from sessiontree.cli.library_options import add_root_option
from sessiontree.cli.parser import Options
from sessiontree.dialects import DEFAULT_DIALECT
from sessiontree.errors import NotFoundError, UsageError
from sessiontree.git.restore_files import RestoredFiles
from sessiontree.git.worktree import SavedWorktree, WorktreePlan, WorktreeState, plan_restore, restore_worktree
from sessiontree.paths import blobs_folder, real_folder
from sessiontree.stores.blobs import FileBlobs
from sessiontree.views.text import clean, plural

if TYPE_CHECKING:
    from sessiontree.archive.archive_home import Home
    from sessiontree.git.snapshot import PutBlob, Snapshot
    from sessiontree.session.session import Session

EXAMPLES = """examples:
  sessiontree worktree save 019c2f3a
  sessiontree worktree restore 019c2f3a

Not saved: ignored files, files over 10 MB, more than 100 MB in total, and untracked files whose names indicate
secrets (.env, *.pem ...); skipped files are reported. `restore` prints the command that resumes the session."""

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("save", "restore", "list"), help="what to do")
    parser.add_argument("session", metavar="SESSION", nargs="?")
    parser.add_argument("--no-files", action="store_true", help="ignore uncommitted files")
    parser.add_argument("--path", metavar="DIR", help="for save: the worktree (default: the session's folder)")
    parser.add_argument(
        "--secrets", action="store_true", help="for save: include untracked files whose names indicate secrets"
    )
    parser.add_argument("--repository", metavar="DIR", help="for restore: the repository, if it moved")
    parser.add_argument("--detach", action="store_true", help="for restore: check out the commit without its branch")
    parser.add_argument(
        "--from-history", action="store_true", help="for restore: use the file copies that Claude Code made"
    )
    parser.add_argument("--yes", action="store_true", help="for restore: change files in an existing worktree")
    parser.add_argument("--dry-run", action="store_true", help="for restore: only show what would change")
    add_root_option(parser)


def run(options: Options) -> int | None:
    home = open_home(options, only_files=True)
    if options.action == "list":
        _list(home, options)
    elif not options.session:
        raise UsageError(f"SESSION is missing: `sessiontree worktree {options.action} SESSION`")
    elif options.action == "save":
        _save(home, options)
    else:
        return _restore(home, options)
    return None


def _blobs(home: Home) -> FileBlobs:
    return FileBlobs(blobs_folder(home.folder))


def _save(home: Home, options: Options) -> None:
    session = home.open_file(options.session)
    files = not options.no_files
    saved = save_worktree(session, home.tags, _blobs(home), options.path, files=files, secrets=options.secrets)
    session.flush()
    if options.json:
        output.print_json({"session": session.id, **_to_json(saved.worktree), **_files_to_json(saved.files)})
        return
    output.print_value(_line(saved.worktree))
    if saved.files is not None:
        _print_saved(saved.files)


def _print_saved(files: Snapshot) -> None:
    size = sum(file.size for file in files.files.values())
    stderr.print_line(f"saved {plural(len(files.files), 'uncommitted file')}, {plural(size, 'byte')}")
    for path, reason in files.left_out.items():
        stderr.print_line(f"skipped: {path}: {reason}")


def _restore(home: Home, options: Options) -> int | None:
    session = home.open_file(options.session)
    blobs = worktree_blobs(session, _blobs(home))
    saved = find_worktree(session, home.tags, blobs)
    if saved is None:
        raise NotFoundError(f"{session.location}: no saved worktree; save it with `sessiontree worktree save`")
    saved = _select_files(session, saved, blobs.put, options)
    repository = os.path.abspath(options.repository) if options.repository else None
    plan = plan_restore(saved, repository, detach=options.detach)
    if plan.changes and not plan.missing and not plan.conflicts and not options.yes and not options.dry_run:
        raise UsageError(_describe_changes(plan))
    if plan.command and not options.yes and not options.dry_run and not _is_known_place(session, home, plan):
        raise UsageError(
            f"{plan.worktree.path}: only the session names this folder; nothing was created. --yes creates it there"
        )
    restored = RestoredFiles() if options.dry_run else restore_worktree(plan, blobs, overwrite=options.yes)
    resume = _resume_command(session, saved.worktree.path)
    if options.json:
        output.print_json({"session": session.id, **_restoration_to_json(plan, restored), "resume": resume})
    else:
        _print_restoration(session, plan, restored, resume, options)
    return stderr.FAILED if restored.missing else None


def _is_known_place(session: Session, home: Home, plan: WorktreePlan) -> bool:
    """Whether a worktree was saved on this machine, or is in or next to its repository, as those of agents are.

    Any other folder may be the choice of another person, such as one whose programs start when the user logs in.
    """
    tagged = home.tags.find(session.id, tagged_path(session)).worktree
    if tagged is not None and tagged.path == plan.worktree.path:
        return True
    repository, path = os.path.realpath(plan.command[2]), os.path.realpath(plan.worktree.path)
    if path.startswith(repository + os.sep):
        return ".git" not in path[len(repository) :].lower().split(os.sep)
    folder, name = os.path.split(path)
    return folder == os.path.dirname(repository) and not name.startswith(".")


def _describe_changes(plan: WorktreePlan) -> str:
    """What would change in an existing worktree. A session from another person must not change files unseen."""
    shown = "".join(f"\n  {clean(path)}" for path in plan.changes[:_SHOWN])
    more = f"\n  and {len(plan.changes) - _SHOWN:,} more" if len(plan.changes) > _SHOWN else ""
    files = plural(len(plan.changes), "file")
    return f"{plan.worktree.path}: restoring changes {files} there; nothing was changed. --yes does it:{shown}{more}"


def _restoration_to_json(plan: WorktreePlan, restored: RestoredFiles) -> dict[str, Any]:
    return {
        **_to_json(plan.worktree),
        **_files_to_json(plan.files),
        "command": list(plan.command),
        "missing": [*plan.missing, *restored.missing],
        "wasThere": plan.exists,
        "written": list(restored.written),
        "removed": list(restored.removed),
        "inTheWay": list(plan.conflicts),
        "overwritten": [{"path": path, "blob": name} for path, name in restored.overwritten],
        "notes": list(plan.notes),
    }


def _print_restoration(
    session: Session, plan: WorktreePlan, restored: RestoredFiles, resume: str, options: Options
) -> None:
    if options.dry_run and plan.command:
        output.print_lines([clean(shlex.join(plan.command))])
    for reason in (*plan.missing, *restored.missing):
        stderr.print_line(f"missing: {reason}")
    if plan.missing:
        return
    stderr.print_line("the worktree already exists" if plan.exists else _line(plan.worktree))
    for note in plan.notes:
        stderr.print_line(note)
    for path in plan.conflicts if options.dry_run else ():
        stderr.print_line(f"exists and differs (--yes overwrites it): {path}")
    for path, name in restored.overwritten:
        stderr.print_line(f"overwritten: {path}; its old content is the blob {name}")
    if plan.files is not None:
        count = len(plan.files.files) if options.dry_run else len(restored.written) + len(restored.removed)
        stderr.print_line(f"{'would restore' if options.dry_run else 'restored'} {plural(count, 'uncommitted file')}")
        shown = [*plan.files.files] if options.dry_run else [*restored.written, *restored.removed]
        for path in shown[:_SHOWN]:
            stderr.print_line(f"  {path}")
        if len(shown) > _SHOWN:
            stderr.print_line(f"  and {len(shown) - _SHOWN:,} more")
        for path, reason in plan.files.left_out.items():
            stderr.print_line(f"not saved: {path}: {reason}")
    elif not options.no_files:
        _print_copies(session)
    output.print_lines([clean(resume)])


def _select_files(session: Session, saved: SavedWorktree, put: PutBlob, options: Options) -> SavedWorktree:
    """The saved worktree with the files that the options select."""
    if options.no_files:
        return msgspec.structs.replace(saved, files=None)
    if not options.from_history:
        return saved
    if not count_backups(session):
        raise UsageError(f"{session.location}: its agent made no copies of files")
    return msgspec.structs.replace(saved, files=build_backup_snapshot(session, saved.worktree, put))


def _print_copies(session: Session) -> None:
    count = count_backups(session)
    if count:
        stderr.print_line(
            f"{session.dialect.client.name} has copies of {plural(count, 'file')} from before its last edit; "
            "use --from-history to restore them"
        )


def _resume_command(session: Session, worktree: str) -> str:
    """The shell command that resumes the session in its worktree."""
    cwd = real_folder(session.cwd) if session.cwd else ""
    is_inside = cwd == worktree or cwd.startswith(worktree + os.sep)
    folder = cwd if is_inside and os.path.isdir(cwd) else worktree
    command = ["sessiontree", "resume", session.id]
    command += ["--in", "AGENT"] if session.dialect.name == DEFAULT_DIALECT else []
    command += [] if is_inside else ["--cwd", folder]
    return f"cd {shlex.quote(folder)} && {shlex.join(command)}"


def _list(home: Home, options: Options) -> None:
    marks = [mark for mark in home.tags.read() if mark.worktree is not None]
    rows = [(mark.session, mark.path, mark.worktree, "saved") for mark in marks if mark.worktree is not None]
    known = {path for _, path, _, _ in rows}
    for client, path, noted in iter_noted_worktrees(home.roots_by_dialect):
        if path not in known:
            rows.append((os.path.splitext(os.path.basename(path))[0], path, noted, f"recorded by {client.name}"))
    if options.json:
        worktrees = [
            {"session": session, "file": path, **_to_json(worktree), "from": origin, "isThere": _is_there(worktree)}
            for session, path, worktree, origin in rows
        ]
        output.print_json({"worktrees": worktrees})
        return
    for session, _, worktree, origin in rows:
        there = "" if _is_there(worktree) else "  (gone)"
        note = "" if origin == "saved" else f"  ({origin})"
        output.print_lines([clean(f"{session}  {_line(worktree)}{there}{note}")])
    if not rows:
        stderr.print_line("no saved worktrees; save one with `sessiontree worktree save SESSION`")


def _is_there(worktree: WorktreeState) -> bool:
    return os.path.isdir(worktree.path)


def _to_json(saved: WorktreeState) -> dict[str, str | None]:
    return {"path": saved.path, "branch": saved.branch, "head": saved.head, "repository": saved.repository}


def _files_to_json(files: Snapshot | None) -> dict[str, Any]:
    if files is None:
        return {"files": None, "leftOut": {}}
    size = sum(file.size for file in files.files.values())
    return {"files": sorted(files.files), "size": size, "leftOut": files.left_out}


def _line(saved: WorktreeState) -> str:
    return f"{saved.path}  {saved.branch or 'detached'}  {(saved.head or '')[:12]}"
