"""Switch to another entry, with or without a summary of the branch being left."""

from __future__ import annotations

from sessiontree.app.actions.contract import ActionPlan, Description, Done, MovePlan, unchanged
from sessiontree.branches.leave import LeaveResult, PreparedLeave, prepare_leave, write_leave
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.session.session import Session
from sessiontree.views.text import short_entry_id


class SwitchPlan(ActionPlan[LeaveResult]):
    action = "switch"

    def __init__(self, session: Session, prepared: PreparedLeave) -> None:
        super().__init__(unchanged(session))
        self._session, self._prepared = session, prepared

    def describe(self) -> Description:
        found = self._prepared.found
        where = (
            "before the first entry" if found.leaf is None else short_entry_id(found.leaf, self._session.id_prefixes)
        )
        nothing = "this is the current entry" if found.leaf == found.left and not found.summary else None
        data = {"leaf": found.leaf, "left": found.left, "summary": found.summary or None, "messages": found.messages}
        lines = tuple(found.summary.splitlines())
        return Description(self.action, f"switch to {where}", lines, found.reports, nothing, data=data)

    def _carry_out(self) -> Done[LeaveResult]:
        session, before = self._session, self._session.leaf
        left = write_leave(session, self._prepared)
        undo = MovePlan(session, before, "undo switch") if session.leaf != before else None
        return Done(left, undo, session)


def plan_switch(session: Session, to: str | None, options: SummaryOptions | None = None) -> SwitchPlan:
    """Plan to switch to an entry; None is before the first one.

    With `options`, the new branch starts with a summary of the one that is left. It is written now, and shown as it
    will be.
    """
    session.node_of(to)
    if options is not None:
        return SwitchPlan(session, prepare_leave(session, to, options))
    return SwitchPlan(session, PreparedLeave(LeaveResult(session.leaf, to)))
