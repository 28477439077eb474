"""Fork a session: a new one with the history up to an entry."""

from __future__ import annotations

from sessiontree.app.actions.contract import ActionPlan, Description, Done, unchanged
from sessiontree.app.actions.files import RemoveFilesPlan
from sessiontree.archive.allowed_paths import iter_related_files, session_folder
from sessiontree.conversion.fork import Forked, find_end, fork
from sessiontree.session.reader import Current
from sessiontree.session.session import Session
from sessiontree.stores.contract import SessionStore


class ForkPlan(ActionPlan[Forked]):
    action = "fork"

    def __init__(
        self,
        session: Session,
        at: str | None,
        before: bool | None,
        to: str | None,
        cwd: str | None,
        store: SessionStore | None,
    ) -> None:
        super().__init__(unchanged(session))
        self._session, self._at, self._before = session, at, before
        self._to, self._cwd, self._store = to, cwd, store
        self._end, self._prompt = find_end(session, at, before)

    def describe(self) -> Description:
        end = self._session.leaf if isinstance(self._end, Current) else self._end
        target = f" as a {self._to} session" if self._to else ""
        title = f"fork after {end}{target}" if end is not None else f"fork without history{target}"
        data = {"entry": end, "to": self._to or self._session.dialect.name, "prompt": self._prompt}
        return Description(self.action, title, final=self._final, data=data)

    @property
    def _final(self) -> str | None:
        ref = (self._session if self._store is None else self._store).ref
        return None if ref.is_file else "the new session stays in its repository until it is deleted there"

    def _carry_out(self) -> Done[Forked]:
        forked = fork(self._session, self._at, before=self._before, to=self._to, cwd=self._cwd, store=self._store)
        undo = None
        if not self._final:
            path = forked.session.ref.path
            undo = RemoveFilesPlan([path, *iter_related_files(path)], "undo fork", session_folder(path))
        return Done(forked, undo, self._session)


def plan_fork(
    session: Session,
    at: str | None = None,
    *,
    before: bool | None = None,
    to: str | None = None,
    cwd: str | None = None,
    store: SessionStore | None = None,
) -> ForkPlan:
    """Plan a fork; the parameters are those of `conversion.fork`. The result has the new session."""
    return ForkPlan(session, at, before, to, cwd, store)
