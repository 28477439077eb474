"""The table of actions, for menus, key bindings and requests.

for action in ACTIONS.values():
    why_not = action.why_not(subject)       # None if it works on this session
    plan = action.plan(subject, **arguments)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from sessiontree.agent.workspace import Workspace
from sessiontree.app.actions.archive import plan_archive, plan_prune_branch
from sessiontree.app.actions.compact import plan_compact, plan_undo_compaction
from sessiontree.app.actions.contract import ActionPlan
from sessiontree.app.actions.convert import check_target, plan_convert
from sessiontree.app.actions.diff import plan_diff
from sessiontree.app.actions.export import plan_export
from sessiontree.app.actions.fork import plan_fork
from sessiontree.app.actions.lanes import DropLanesPlan, KeepLanePlan, MergeLanesPlan, plan_decision, why_no_lanes
from sessiontree.app.actions.leave_out import plan_leave_out, plan_take_in
from sessiontree.app.actions.merge import plan_merge, plan_pick
from sessiontree.app.actions.names import plan_label, plan_rename
from sessiontree.app.actions.repair import plan_repair_of
from sessiontree.app.actions.rewind import plan_rewind, plan_undo_rewind
from sessiontree.app.actions.switch import plan_switch
from sessiontree.app.actions.tags import plan_pin, plan_tag
from sessiontree.app.summaries import summary_options
from sessiontree.archive.archive_home import Home, can_archive
from sessiontree.archive.tags import TagFile
from sessiontree.compaction.prune_outputs import can_prune
from sessiontree.conversion.copies import CopyFile
from sessiontree.conversion.install import Request
from sessiontree.errors import UsageError
from sessiontree.session.reader import CURRENT
from sessiontree.session.session import Session
from sessiontree.settings import Settings
from sessiontree.stores.repositories import open_repository

ArgumentKind: TypeAlias = Literal["entry", "entries", "text", "texts", "path", "choice", "flag"]
"""`entry` is the id of an entry; `choice` is one of `choices`."""

Need: TypeAlias = Literal["write", "file", "archive", "context edits", "workspace", "lanes"]
"""What an action needs of a session: that it can be written, is a separate file, can be archived, can leave entries
out of its context, has the contents of files in the folder that tools work in, or has an exploration."""


class Subject(Struct, frozen=True):
    """What actions work on: a session, with the archive, settings and folder that some of them need."""

    session: Session
    home: Home
    settings: Settings = Settings()
    workspace: Workspace | None = None
    """Where tools work; only a front end that runs an agent has one."""


class Argument(Struct, frozen=True):
    """A keyword argument of `Action.plan`."""

    name: str
    kind: ArgumentKind
    is_required: bool = False
    choices: tuple[str, ...] = ()


class Action(Struct, frozen=True):
    """An action that a front end can offer."""

    name: str
    title: str
    plan: Callable[..., ActionPlan[Any]]
    """Called with a `Subject` and the arguments as keywords; writes nothing."""
    arguments: tuple[Argument, ...] = ()
    needs: tuple[Need, ...] = ()

    def why_not(self, subject: Subject) -> str | None:
        """Why the action does not work on this session; None if it does."""
        return next((why for need in self.needs if (why := _REASONS[need](subject)) is not None), None)


def _read_only(subject: Subject) -> str | None:
    return subject.session.read_only


def _not_a_file(subject: Subject) -> str | None:
    return None if subject.session.ref.is_file else "this works only for sessions in separate files"


def _no_edits(subject: Subject) -> str | None:
    return None if can_prune(subject.session) else "its format cannot leave entries out of the context"


def _no_workspace(subject: Subject) -> str | None:
    if subject.workspace is None:
        return "no agent works with this session here"
    return None if subject.session.journal.blobs is not None else "this session does not store file contents"


_REASONS: dict[Need, Callable[[Subject], str | None]] = {
    "write": _read_only,
    "file": _not_a_file,
    "archive": lambda subject: None if can_archive(subject.session) else _not_a_file(subject),
    "context edits": _no_edits,
    "workspace": _no_workspace,
    "lanes": lambda subject: why_no_lanes(subject.session),
}


def _switch(
    subject: Subject, entry: str | None = None, summarize: bool = False, instructions: str | None = None
) -> ActionPlan[Any]:
    options = summary_options(subject.settings, instructions) if summarize else None
    return plan_switch(subject.session, entry, options)


def _merge(
    subject: Subject, entry: str, into: str | None = None, how: Any = "summary", instructions: str | None = None
) -> ActionPlan[Any]:
    options = summary_options(subject.settings, instructions) if how == "summary" else None
    return plan_merge(subject.session, entry, into=CURRENT if into is None else into, how=how, options=options)


def _pick(subject: Subject, entries: list[str], onto: str | None = None) -> ActionPlan[Any]:
    return plan_pick(subject.session, entries, onto=CURRENT if onto is None else onto)


def _diff(subject: Subject, entry: str, other: str | None = None) -> ActionPlan[Any]:
    ours = subject.session.leaf if other is None else other
    if ours is None:
        raise UsageError(f"{subject.session.location}: no current entry; name both entries to compare")
    return plan_diff(subject.session, ours, entry)


def _compact(subject: Subject, instructions: str | None = None) -> ActionPlan[Any]:
    return plan_compact(subject.session, subject.settings, instructions=instructions)


def _convert(subject: Subject, to: str, branch: Any = "active", path: str | None = None) -> ActionPlan[Any]:
    copies = CopyFile(open_repository(subject.home.folder).documents)
    return plan_convert(subject.session, Request(check_target(to), branch=branch, out=path), copies)


def _rewind(subject: Subject, entry: str | None = None, scope: Any = "both") -> ActionPlan[Any]:
    return plan_rewind(subject.session, _workspace(subject), entry).choose(scope)


def _keep_lane(subject: Subject, lane: str, run: str | None = None) -> ActionPlan[Any]:
    return plan_decision(KeepLanePlan, subject.session, subject.home.folder, [lane], run)


def _merge_lanes(subject: Subject, lanes: list[str], run: str | None = None) -> ActionPlan[Any]:
    summary = summary_options(subject.settings)
    return plan_decision(MergeLanesPlan, subject.session, subject.home.folder, lanes, run, summary)


def _drop_lanes(subject: Subject, lanes: list[str], run: str | None = None) -> ActionPlan[Any]:
    return plan_decision(DropLanesPlan, subject.session, subject.home.folder, lanes, run)


def _tags(subject: Subject) -> TagFile:
    return subject.home.tags_of(subject.session)


def _workspace(subject: Subject) -> Workspace:
    if subject.workspace is None:
        raise UsageError(f"{subject.session.location}: no agent works with this session here")
    return subject.workspace


ENTRY = Argument("entry", "entry", is_required=True)
ENTRIES = Argument("entries", "entries", is_required=True)
BRANCH = Argument("branch", "choice", choices=("active", "all"))
INSTRUCTIONS = Argument("instructions", "text")
LANES = (Argument("lanes", "texts", is_required=True), Argument("run", "text"))
"""Lanes by number or name, and the id of their exploration; default: the last one."""

ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        Action(
            "switch",
            "Switch to another entry",
            _switch,
            (Argument("entry", "entry"), Argument("summarize", "flag"), INSTRUCTIONS),
            ("write",),
        ),
        Action(
            "fork",
            "Start a new session with this history",
            lambda subject, entry=None, to=None: plan_fork(
                subject.session, entry, to=None if to is None else check_target(to)
            ),
            (Argument("entry", "entry"), Argument("to", "text")),
        ),
        Action(
            "label",
            "Label an entry",
            lambda subject, entry, text=None: plan_label(subject.session, entry, text),
            (ENTRY, Argument("text", "text")),
            ("write",),
        ),
        Action(
            "rename",
            "Rename the session",
            lambda subject, name=None: plan_rename(subject.session, name),
            (Argument("name", "text"),),
            ("write",),
        ),
        Action("diff", "Compare two branches", _diff, (ENTRY, Argument("other", "entry"))),
        Action(
            "merge",
            "Merge a branch into this one",
            _merge,
            (
                ENTRY,
                Argument("into", "entry"),
                Argument("how", "choice", choices=("summary", "append")),
                INSTRUCTIONS,
            ),
            ("write",),
        ),
        Action("pick", "Copy entries of other branches", _pick, (ENTRIES, Argument("onto", "entry")), ("write",)),
        Action("compact", "Replace older messages with a summary", _compact, (INSTRUCTIONS,), ("write",)),
        Action(
            "undo-compaction",
            "Go back to before the last compaction",
            lambda subject, entry=None: plan_undo_compaction(subject.session, entry),
            (Argument("entry", "entry"),),
            ("write",),
        ),
        Action(
            "leave-out",
            "Leave entries out of the context",
            lambda subject, entries: plan_leave_out(subject.session, entries),
            (ENTRIES,),
            ("write", "context edits"),
        ),
        Action(
            "take-in",
            "Take entries into the context again",
            lambda subject, entries: plan_take_in(subject.session, entries),
            (ENTRIES,),
            ("write", "context edits"),
        ),
        Action(
            "rewind",
            "Rewind the conversation, files, or both",
            _rewind,
            (Argument("entry", "entry"), Argument("scope", "choice", choices=("both", "conversation", "files"))),
            ("write", "workspace"),
        ),
        Action(
            "undo-rewind",
            "Undo the last rewind",
            lambda subject: plan_undo_rewind(subject.session, _workspace(subject)),
            needs=("write", "workspace"),
        ),
        Action(
            "keep-lane",
            "Keep a lane: make it current and apply its files",
            _keep_lane,
            (Argument("lane", "text", is_required=True), Argument("run", "text")),
            ("write", "lanes"),
        ),
        Action("merge-lanes", "Merge lanes: summaries and files", _merge_lanes, LANES, ("write", "lanes")),
        Action("drop-lanes", "Drop lanes", _drop_lanes, LANES, ("write", "lanes")),
        Action(
            "tag",
            "Change the tags of the session",
            lambda subject, add=(), remove=(): plan_tag(_tags(subject), subject.session, add, remove),
            (Argument("add", "texts"), Argument("remove", "texts")),
        ),
        Action(
            "pin",
            "Protect the session from being cleaned",
            lambda subject, pinned=True: plan_pin(_tags(subject), subject.session, pinned=pinned),
            (Argument("pinned", "flag"),),
        ),
        Action(
            "export",
            "Export the session to a file",
            lambda subject, path, **options: plan_export(subject.session, path, **options),
            (Argument("path", "path", is_required=True), BRANCH, Argument("redact", "flag")),
        ),
        Action(
            "convert",
            "Convert the session to another agent's format",
            _convert,
            (Argument("to", "text", is_required=True), BRANCH, Argument("path", "path")),
        ),
        Action(
            "repair",
            "Repair the session's file",
            lambda subject, path=None: plan_repair_of(subject.session, path),
            (Argument("path", "path"),),
            ("file",),
        ),
        Action(
            "prune",
            "Move a branch to the archive",
            lambda subject, entry: plan_prune_branch(subject.home, subject.session, entry),
            (ENTRY,),
            ("archive",),
        ),
        Action(
            "archive",
            "Move the session to the archive",
            lambda subject, why="archive": plan_archive(subject.home, subject.session, why),
            (Argument("why", "text"),),
            ("archive",),
        ),
    )
}
