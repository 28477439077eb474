"""The contract of actions: planned, shown, carried out once, and undoable.

plan = plan_merge(session, other_leaf)      # writes nothing
show(plan.describe())                       # data, for any front end
done = plan.do()                            # ConflictError if the session changed since it was planned
done.undo.do()                              # another plan; None if the action cannot be undone
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from msgspec import Struct

from sessiontree.core.jsonio import JsonObject
from sessiontree.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from sessiontree.session.session import Session

ResultT = TypeVar("ResultT")

Check: TypeAlias = Callable[[], None]
"""Raises `ConflictError` if something that a plan relies on has changed."""


class Description(Struct, frozen=True):
    """A plan for display. Every field is JSON (`msgspec.to_builtins`); texts are untrusted and have to be escaped."""

    action: str
    title: str
    """One line: what will be done, to what."""
    lines: tuple[str, ...] = ()
    """Further details, such as a summary."""
    warnings: tuple[str, ...] = ()
    """What the user should know before confirming: conflicts, losses."""
    nothing: str | None = None
    """Why `do` will write nothing; None if it will write something."""
    final: str | None = None
    """Why it cannot be undone; None if it can."""
    data: JsonObject = {}
    """The action's own fields, as its command prints them with `--json`."""


class Done(Struct, Generic[ResultT], frozen=True):
    """The result of an action."""

    result: ResultT
    undo: ActionPlan[Any] | None = None
    """Undoes the action, and goes stale like every plan; None if nothing was written or it cannot be undone."""
    session: Session | None = None
    """The session to continue with; a new object if its file was rewritten."""


class ActionPlan(ABC, Generic[ResultT]):
    """An action that is ready to be carried out."""

    action: ClassVar[str]
    """Name of the action, as in the table `ACTIONS`."""

    def __init__(self, *checks: Check) -> None:
        self._checks: Sequence[Check] = checks
        self._is_done = False
        self._doing = Lock()

    @abstractmethod
    def describe(self) -> Description: ...

    @abstractmethod
    def _carry_out(self) -> Done[ResultT]: ...

    def do(self) -> Done[ResultT]:
        """Carry the plan out. `ConflictError` if what it was made for has changed; nothing is written then."""
        with self._doing:  # a user may confirm twice, and requests of a page arrive in parallel
            if self._is_done:
                raise UsageError(f"{self.action}: this plan was already carried out; plan it again")
            for check in self._checks:
                check()
            done = self._carry_out()
            self._is_done = True
            return done


def unchanged(session: Session) -> Check:
    """Check that a session has the same entries, and the same current one, as now."""
    before = (session.journal.size, session.leaf)

    def check() -> None:
        session.refresh()
        if (session.journal.size, session.leaf) != before:
            raise ConflictError(f"{session.location}: changed since this was planned; plan it again")

    return check


def same(session: Session, read: Callable[[], object]) -> Check:
    """Check that a value is the same as now. For actions that messages of other writers do not concern."""
    before = read()

    def check() -> None:
        session.refresh()
        if read() != before:
            raise ConflictError(f"{session.location}: changed since this was planned; plan it again")

    return check


class MovePlan(ActionPlan[str | None]):
    """Switch to another entry: the undo of actions that append. What was appended stays in the file, on a branch."""

    action = "undo"

    def __init__(self, session: Session, to: str | None, what: str) -> None:
        """`what` is the reason, such as "undo merge"."""
        super().__init__(unchanged(session))
        self._session, self._to, self._what = session, to, what

    def describe(self) -> Description:
        where = "before the first entry" if self._to is None else self._to
        return Description(self.action, f"{self._what}: switch back to {where}", data={"leaf": self._to})

    def _carry_out(self) -> Done[str | None]:
        session, before = self._session, self._session.leaf
        session.move(self._to)
        return Done(session.leaf, MovePlan(session, before, f"revert {self._what}"), session)
