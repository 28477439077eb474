"""Convert a session to another agent's format, in a new file."""

from __future__ import annotations

import os
import shlex

from sessiontree import plugins
from sessiontree.app.actions.contract import ActionPlan, Description, Done, unchanged
from sessiontree.app.actions.files import RemoveFilesPlan
from sessiontree.conversion.copies import CopyFile
from sessiontree.conversion.install import Plan, Request, check_not_empty, make_plan
from sessiontree.conversion.launch import install_copy
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import UsageError
from sessiontree.session.session import Session


class ConvertPlan(ActionPlan[Session]):
    """A conversion; its result is the new session."""

    action = "convert"

    def __init__(self, session: Session, expected: Plan, copies: CopyFile | None = None) -> None:
        super().__init__(unchanged(session))
        self._session, self.expected = session, expected
        # A file that the user named can be anywhere, and of any age: it is not listed as a copy.
        self._copies = copies if expected.request.out is None else None

    def describe(self) -> Description:
        plan = self.expected
        steps = [f"import with: {shlex.join(plan.install)}"] if plan.install else []
        steps += [f"resume with: cd {shlex.quote(plan.cwd)} && {shlex.join(plan.resume)}"] if plan.resume else []
        losses = tuple(f"{line.kind}: {line.what} ({line.count:,}): {line.why}" for line in plan.report.notes)
        title = f"convert to {plan.request.to}: {plan.path} ({plan.size:,} bytes)"
        return Description(self.action, title, tuple(steps), losses, data=conversion_fields(plan))

    def _carry_out(self) -> Done[Session]:
        converted = install_copy(self._session, self.expected, self._copies)
        related = self.expected.related_folder
        folder = related[1] if related else None
        paths = [self.expected.path, *(_files_below(folder) if folder else ())]
        return Done(converted, RemoveFilesPlan(paths, "undo convert", folder), self._session)


def _files_below(folder: str) -> list[str]:
    return [os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names]


def plan_convert(session: Session, request: Request, copies: CopyFile | None = None) -> ConvertPlan:
    """Plan a conversion. Everything except the writing is done now, so the plan has the report of losses.

    An installed copy is recorded in `copies`, so that it is listed under its origin.
    """
    check_not_empty(session)
    return ConvertPlan(session, make_plan(session, request), copies)


def check_target(name: str) -> str:
    """Check the name of a dialect."""
    known = plugins.names("dialects")
    if name not in known:
        raise UsageError(f"unknown agent {name!r}; use {', '.join(known)}")
    return name


def conversion_fields(plan: Plan) -> JsonObject:
    return {
        "path": plan.path,
        "size": plan.size,
        "cwd": plan.cwd,
        "resume": list(plan.resume),
        **({"install": list(plan.install)} if plan.install else {}),
        "beside": plan.related_folder[1] if plan.related_folder else None,
        "report": plan.report.as_json(),
    }
