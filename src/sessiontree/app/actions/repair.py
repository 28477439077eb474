"""Repair a damaged session, in place or into a new file."""

from __future__ import annotations

from msgspec import Struct

from sessiontree.app.actions.contract import ActionPlan, Description, Done, unchanged
from sessiontree.app.actions.files import RemoveFilesPlan
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import ConflictError
from sessiontree.repair import Plan, carry_out, plan_repair
from sessiontree.repair.repair import Change
from sessiontree.session.session import Session
from sessiontree.stores.contract import read_bytes
from sessiontree.views.text import plural


class Repaired(Struct, frozen=True):
    """Paths that a repair wrote; None if it did not need one."""

    path: str | None = None
    sidecar: str | None = None
    """The bytes that were removed."""
    backup: str | None = None
    """The file as it was."""


class RepairPlan(ActionPlan[Repaired]):
    action = "repair"

    def __init__(self, session: Session, expected: Plan, out: str | None) -> None:
        super().__init__(unchanged(session))
        self._session, self.expected, self._out = session, expected, out

    def describe(self) -> Description:
        changes = self.expected.changes
        where = f"in {self._out}" if self._out else "in place, with a backup"
        if self.expected.copy is not None and not self._out:
            where = "in a new session, because its client remembers positions in the file"
        nothing = "nothing to repair" if self.expected.is_empty else None
        title = f"repair {self.expected.location} {where}: {plural(len(changes), 'change')}"
        lines = tuple(f"line {change.line} byte {change.start}: {change.rule}" for change in changes)
        data = {"changes": [change_fields(change) for change in changes]}
        return Description(self.action, title, lines, nothing=nothing, data=data)

    def _carry_out(self) -> Done[Repaired]:
        session, plan = self._session, self.expected
        if plan.is_empty:
            return Done(Repaired(), None, session)
        is_copy = self._out is not None or plan.copy is not None
        before = b"" if is_copy else read_bytes(session.journal.store, 0, plan.size)
        path, sidecar, backup = carry_out(plan, session, self._out)
        repaired = Repaired(path, sidecar, backup)
        if is_copy:
            return Done(repaired, RemoveFilesPlan([path], "undo repair"), session)
        now = session.reopen()
        return Done(repaired, _UnrepairPlan(now, plan.content, before), now)


class _UnrepairPlan(ActionPlan[str]):
    """Write the damaged bytes back; the repaired ones become a backup."""

    action = "undo"

    def __init__(self, session: Session, repaired: bytes, before: bytes) -> None:
        super().__init__(self._check)
        self._session, self._repaired, self._before = session, repaired, before

    def describe(self) -> Description:
        title = f"undo repair: write the old content of {self._session.location} back"
        return Description(self.action, title, final="repair it again to revert this")

    def _check(self) -> None:
        store = self._session.journal.store
        if store.size() != len(self._repaired) or read_bytes(store, 0, len(self._repaired)) != self._repaired:
            raise ConflictError(f"{self._session.location}: changed since it was repaired; nothing was written")

    def _carry_out(self) -> Done[str]:
        backup = self._session.journal.store.replace([self._before], expected_size=len(self._repaired))
        return Done(backup, None, self._session.reopen())


def plan_repair_of(session: Session, out: str | None = None) -> RepairPlan:
    """Plan a repair in place or, with `out`, into a new file."""
    return RepairPlan(session, plan_repair(session), out)


def change_fields(change: Change) -> JsonObject:
    return {
        "rule": change.rule,
        "line": change.line,
        "offset": change.start,
        "before": None if change.before is None else change.before.decode("utf-8", "replace"),
        "after": None if change.after is None else change.after.decode("utf-8", "replace"),
    }
