"""Move a session, or a branch of one, to the archive, and restore it from there."""

from __future__ import annotations

from sessiontree.app.actions.contract import ActionPlan, Description, Done, unchanged
from sessiontree.archive.archive import ArchivedSession
from sessiontree.archive.archive_home import Home, session_info
from sessiontree.archive.catalog import ArchiveItem, SessionInfo
from sessiontree.archive.prune_branch import PrunePlan, plan_prune, prune
from sessiontree.archive.restore import restore
from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import ConflictError
from sessiontree.session.session import Session
from sessiontree.views.text import human_size, plural


class ArchivePlan(ActionPlan[ArchivedSession]):
    """Move a session with its related files to the archive."""

    action = "archive"

    def __init__(self, home: Home, info: SessionInfo, why: str) -> None:
        super().__init__(self._check)
        self._archive, self._home, self._info, self._why = home.archive_at(info.path), home, info, why
        self._stamp = self._archive.stamp(info.path)

    def describe(self) -> Description:
        info, size = self._info, self._stamp[0]
        data = {"path": info.path, "agent": info.agent, "session": info.session, "title": info.title, "size": size}
        title = f"move {info.title or info.session} ({human_size(size)}) to the archive: {info.path}"
        return Description(self.action, title, data=data)

    def _check(self) -> None:
        if self._archive.stamp(self._info.path) != self._stamp:
            raise ConflictError(f"{self._info.path}: changed since this was planned; plan it again")

    def _carry_out(self) -> Done[ArchivedSession]:
        archived = self._archive.archive(self._info, self._why)
        return Done(archived, RestorePlan(self._home, archived.item))


def plan_archive(home: Home, session: Session | SessionInfo, why: str = "archive") -> ArchivePlan:
    """Plan to move a session to the archive. An open session cannot be used after that."""
    return ArchivePlan(home, session if isinstance(session, SessionInfo) else session_info(session), why)


class RestorePlan(ActionPlan[list[str]]):
    """Restore an item of the archive; the result is the files that were written."""

    action = "restore"

    def __init__(self, home: Home, item: ArchiveItem, session: Session | None = None) -> None:
        """`session` is the session whose file is restored, if it is open."""
        super().__init__(self._check)
        self.archive, self.item, self._session = home.archive_at(item.path), item, session

    def describe(self) -> Description:
        item = self.item
        what = f"what `{item.edit.verb}` removed from" if item.edit else item.title or item.session
        data = {"item": item.id, "session": item.session, "path": item.path}
        final = "prune or archive it again to revert this"
        return Description(self.action, f"restore {what} {item.path}", final=final, data=data)

    def _check(self) -> None:
        if self.item.id not in {item.id for item in self.archive.items()}:
            raise ConflictError(f"{self.item.id}: no longer in the archive; `sessiontree restore --list` lists it")

    def _carry_out(self) -> Done[list[str]]:
        written = restore(self.archive, self.item)
        return Done(written, None, None if self._session is None else self._session.reopen())


def plan_restore(home: Home, wanted: str) -> RestorePlan:
    """Plan to restore an item of the archive: by its id, a session id, a prefix of either, or a path."""
    return RestorePlan(home, home.find_item(wanted))


class PruneBranchPlan(ActionPlan[ArchiveItem]):
    """Move a branch from a session file to the archive."""

    action = "prune"

    def __init__(self, home: Home, session: Session, expected: PrunePlan) -> None:
        super().__init__(unchanged(session))
        self._home, self._session, self.expected = home, session, expected

    def describe(self) -> Description:
        plan = self.expected
        entries = plural(len(plan.nodes), "entry", "entries")
        leaves = plural(len(plan.leaves), "leaf", "leaves")
        title = f"move {entries} from {plan.entry} on ({human_size(plan.size)}, {leaves}) to the archive"
        return Description(self.action, title, data=prune_fields(plan))

    def _carry_out(self) -> Done[ArchiveItem]:
        item = prune(self._home.archive_at(session_info(self._session).path), self._session, self.expected)
        now = self._session.reopen()
        return Done(item, RestorePlan(self._home, item, now), now)


def plan_prune_branch(home: Home, session: Session, entry: str) -> PruneBranchPlan:
    """Plan to move an entry and its descendants to the archive; the current entry must not be among them."""
    return PruneBranchPlan(home, session, plan_prune(session, entry))


def prune_fields(plan: PrunePlan) -> JsonObject:
    return {"branch": plan.entry, "entries": len(plan.nodes), "size": plan.size, "leaves": list(plan.leaves)}
