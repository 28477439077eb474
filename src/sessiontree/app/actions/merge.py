"""Merge a branch into another one, or pick some of its entries. Both append, and undoing switches back."""

from __future__ import annotations

from collections.abc import Sequence

from sessiontree.app.actions.contract import ActionPlan, Description, Done, MovePlan, unchanged
from sessiontree.branches.merge import Merged, PreparedMerge, prepare_merge, write_merge
from sessiontree.branches.merge_records import MergeMethod
from sessiontree.branches.pick import prepare_pick
from sessiontree.branches.summarize import SummaryOptions
from sessiontree.core.jsonio import JsonObject
from sessiontree.session.reader import CURRENT, Current
from sessiontree.session.session import Session
from sessiontree.views.text import plural

_VERBS: dict[MergeMethod, str] = {"summary": "summarize", "append": "copy", "pick": "copy"}


class MergePlan(ActionPlan[Merged]):
    """A merge, or a pick, which is a merge of chosen entries."""

    action = "merge"

    def __init__(self, session: Session, source: Session, prepared: PreparedMerge) -> None:
        super().__init__(*map(unchanged, [session] if source is session else [session, source]))
        self._session, self._prepared = session, prepared

    @property
    def expected(self) -> Merged:
        """The result that `do` will have, except for the ids of new entries."""
        return self._prepared.found

    def describe(self) -> Description:
        found = self.expected
        title = f"{_VERBS[found.how]} {plural(found.messages, 'message')} of {found.source} after {found.into}"
        return Description(
            self.action,
            title,
            tuple(found.summary.splitlines()),
            (*(f"conflict: {conflict.text}" for conflict in found.conflicts), *found.notes),
            found.nothing,
            data=merge_fields(found),
        )

    def _carry_out(self) -> Done[Merged]:
        session, before = self._session, self._session.leaf
        merged = write_merge(session, self._prepared)
        undo = None if merged.entry is None else MovePlan(session, before, f"undo {self.action}")
        return Done(merged, undo, session)


class PickPlan(MergePlan):
    action = "pick"


def plan_merge(
    session: Session,
    source_leaf: str,
    *,
    into: str | Current = CURRENT,
    how: MergeMethod = "summary",
    source: Session | None = None,
    options: SummaryOptions | None = None,
    dry_run: bool = False,
) -> MergePlan:
    """Plan a merge of the branch that ends at `source_leaf`. The summary is written now, and shown as it will be.

    `source` is the session of that branch, if it is another one. With `dry_run`, read-only sessions are accepted:
    the plan can only be shown.
    """
    other = session if source is None else source
    prepared = prepare_merge(session, source_leaf, into=into, how=how, source=other, options=options, dry_run=dry_run)
    return MergePlan(session, other, prepared)


def plan_pick(
    session: Session,
    entries: Sequence[str],
    *,
    onto: str | Current = CURRENT,
    source: Session | None = None,
    branch: str | None = None,
    dry_run: bool = False,
) -> PickPlan:
    """Plan to copy entries; the parameters are those of `plan_merge` and `branches.pick`."""
    other = session if source is None else source
    prepared = prepare_pick(session, entries, onto=onto, source=other, branch=branch, dry_run=dry_run)
    return PickPlan(session, other, prepared)


def merge_fields(merged: Merged) -> JsonObject:
    """A merge or pick as JSON; before it is written, without the ids of new entries."""
    return {
        "how": merged.how,
        "from": {"entry": merged.source, "session": merged.session},
        "into": merged.into,
        "ancestor": merged.ancestor,
        "messages": merged.messages,
        "brought": list(merged.brought),
        "entry": merged.entry,
        "summary": merged.summary,
        "readFiles": list(merged.files.read),
        "modifiedFiles": list(merged.files.modified),
        "conflicts": [conflict.fields() for conflict in merged.conflicts],
        "notes": list(merged.notes),
        "nothing": merged.nothing,
    }
