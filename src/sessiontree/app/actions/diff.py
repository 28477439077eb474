"""Compare two branches: a plan that writes nothing."""

from __future__ import annotations

from sessiontree.app.actions.contract import ActionPlan, Description, Done
from sessiontree.branches.diff import Diff, diff
from sessiontree.session.reader import Reader
from sessiontree.views.diff import describe_diff, draw_diff

_WIDTH = 100


class DiffPlan(ActionPlan[Diff]):
    """A comparison of two branches."""

    action = "diff"

    def __init__(self, found: Diff) -> None:
        super().__init__()
        self.found = found

    def describe(self) -> Description:
        title, *lines = draw_diff(self.found, _WIDTH, str, str)
        conflicts = (f"both changed {conflict.path} differently" for conflict in self.found.conflicts)
        nothing = "comparing branches writes nothing"
        return Description(self.action, title, tuple(lines), tuple(conflicts), nothing, data=describe_diff(self.found))

    def _carry_out(self) -> Done[Diff]:
        return Done(self.found)


def plan_diff(session: Reader, one: str, other: str, *, other_session: Reader | None = None) -> DiffPlan:
    """Compare the branches that end at two entries, of one session or of two."""
    return DiffPlan(diff(session, one, other, other_session=other_session))
