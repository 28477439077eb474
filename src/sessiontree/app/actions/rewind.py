"""Rewind the conversation, the files that tools changed, or both; and undo the last rewind."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from sessiontree.agent.checkpoints import Checkpoints, RewindPlan, RewindScope, Rewound
from sessiontree.agent.workspace import Workspace
from sessiontree.app.actions.contract import ActionPlan, Description, Done, unchanged
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import UsageError
from sessiontree.session.session import Session


class RewindAction(ActionPlan[Rewound]):
    """A rewind, with the files it will change."""

    action: ClassVar[str] = "rewind"
    _verb: ClassVar[str] = "rewind"
    _final: ClassVar[str | None] = None

    def __init__(
        self,
        session: Session,
        workspace: Workspace,
        expected: RewindPlan,
        scope: RewindScope = "both",
        overwrite: Collection[str] = (),
    ) -> None:
        super().__init__(unchanged(session))
        self._session, self._workspace, self.expected = session, workspace, expected
        self._scope, self._overwrite = scope, overwrite

    def choose(self, scope: RewindScope, overwrite: Collection[str] = ()) -> RewindAction:
        """The same rewind of only a part, with the conflicting files to overwrite."""
        return type(self)(self._session, self._workspace, self.expected, scope, overwrite)

    def describe(self) -> Description:
        plan = self.expected
        where = plan.leaf or "before the first entry"
        return Description(
            self.action,
            f"{self._verb} to {where}: {self._scope}",
            tuple(plan.diff.splitlines()) if self._scope != "conversation" else (),
            (
                *(f"{change.shown}: {change.conflict}" for change in plan.conflicts),
                *(f"cannot be restored: {lost}" for lost in plan.lost),
            ),
            final=self._final,
            data=rewind_fields(plan),
        )

    def _carry_out(self) -> Done[Rewound]:
        checkpoints = open_checkpoints(self._session, self._workspace)
        done = checkpoints.rewind(self.expected, self._scope, overwrite=self._overwrite)
        return Done(done, plan_undo_rewind(self._session, self._workspace), self._session)


class UndoRewindAction(RewindAction):
    """The undo of the last rewind."""

    action = "undo-rewind"
    _verb = "undo the last rewind, back"
    _final = "rewind again to revert this"

    def _carry_out(self) -> Done[Rewound]:
        checkpoints = open_checkpoints(self._session, self._workspace)
        return Done(checkpoints.undo(self.expected, overwrite=self._overwrite), None, self._session)


def plan_rewind(session: Session, workspace: Workspace, entry: str | None) -> RewindAction:
    """Plan a rewind to an entry; to a prompt, to just before it; to None, to the beginning."""
    return RewindAction(session, workspace, open_checkpoints(session, workspace).plan(entry))


def plan_undo_rewind(session: Session, workspace: Workspace) -> UndoRewindAction:
    """Plan the undo of the last rewind; `NotFoundError` if there is none."""
    return UndoRewindAction(session, workspace, open_checkpoints(session, workspace).plan_undo())


def open_checkpoints(session: Session, workspace: Workspace) -> Checkpoints:
    blobs = session.journal.blobs
    if blobs is None:
        raise UsageError(f"{session.location}: this session does not store file contents")
    return Checkpoints(session, workspace, blobs)


def rewind_fields(plan: RewindPlan) -> JsonObject:
    return {
        "entry": plan.entry,
        "leaf": plan.leaf,
        "changes": [
            {"path": change.path, "kind": change.kind, "diff": change.diff, "conflict": change.conflict}
            for change in plan.changes
        ],
        "lost": list(plan.lost),
    }
